package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// workload is one thing that readers do.
type workload struct {
	name, what string
	run        func(*bench) error
	once       bool // not in every round
}

func workloads() []workload {
	return []workload{
		{name: "floors", what: "memcpy, page cache of the disk's file system, raw socket", run: floors},
		{name: "kernels", what: "decoding and encoding on one core, beside a copy", run: (*bench).kernelRates},
		{name: "sequential", what: "cold, 1 MiB reads with the kernel's default read-ahead; mapped in the order of tensors; by threads that take turns", run: sequential},
		{name: "demand", what: "cold, random pages while the file is read", run: demand},
		{name: "shapes", what: "cold sequential at other latencies and rates", run: shapes, once: true},
		{name: "rivals", what: "the same with rclone, hf-mount, huggingface_hub, where installed", run: rivals},
		{name: "tensors", what: "cold, random tensors of a mapped file", run: randomTensors},
		{name: "faults", what: "2,000 random 4 KiB faults of a mapped file", run: faults},
		{name: "experts", what: "cold, random whole experts of 2.7 and 17.5 MB by pread, O_DIRECT and mapped, as files and by offset", run: experts},
		{name: "processes", what: "cold, 8 processes read one file", run: processes},
		{name: "preads", what: "cold, 64 random 1 MiB preads at the same time", run: preads},
		{name: "warm", what: "from the disk cache, and again from the page cache", run: warm},
		{name: "view", what: "the BF16 view beside the release's file, from the disk cache", run: view},
		{name: "packed", what: "the BF16 view of tensors packed by columns, with twice the largest as memory", run: packed},
		{name: "second-mount", what: "of 287,119 tensors", run: secondMount},
		{name: "resident", what: "cold, the resident part alone", run: resident},
		{name: "cp", what: "cold, weightfs cp of the BF16 view", run: cpView},
		{name: "little-memory", what: "cold sequential with 512 MiB and 64 MiB", run: littleMemory},
		{name: "budget", what: "little memory: 64 MiB, and 64 streams on 8 MiB", run: budget},
	}
}

const (
	mb = 1e6
	gb = 1e9
)

// shardSpan is the whole shard of a release.
func (b *bench) shardSpan(release string) span {
	return span{0, b.release(release).File(shard).Size}
}

// bytes is how much of a file a workload reads: less in a quick run.
func (b *bench) bytes(n int64) int64 {
	if b.opt.quick {
		return n / 4
	}
	return n
}

// count is a number of parts, less in a quick run.
func (b *bench) count(n int) int {
	if b.opt.quick {
		return max(n/4, 2)
	}
	return n
}

// client is what the parallel range client takes for spans of a file.
func (b *bench) client(h *hub, release, path string, spans ...span) (result, error) {
	var all []get
	for _, s := range spans {
		all = append(all, split(h.file(release, path), s)...)
	}
	return b.child(job{Op: "get", Groups: [][]get{all}})
}

func floors(b *bench) error {
	r, err := b.child(job{Op: "memcpy"})
	if err != nil {
		return err
	}
	b.add("memcpy", float64(32<<20)/median(r.Parts)/gb)
	if r, err = b.child(job{Op: "socket", Size: b.bytes(1 << 30)}); err != nil {
		return err
	}
	b.add("socket", r.rate()/gb)
	return b.pageCache()
}

const floorSize = 1 << 30

// floorFile is a file of the disk's own, as large as a shard and written with large folios.
func (b *bench) floorFile() (string, error) {
	path := filepath.Join(b.dir, "floor")
	if _, err := os.Stat(path); err == nil {
		return path, inPageCache(path)
	}
	if _, err := b.child(job{Op: "write", Path: path, Size: floorSize}); err != nil {
		return "", err
	}
	return path, inPageCache(path)
}

// pageCache measures the disk's own file system from memory: rates of reading and of touching a mapping that was made before.
func (b *bench) pageCache() error {
	path, err := b.floorFile()
	if err != nil {
		return err
	}
	rates, err := b.inTurn(job{Op: "read", Path: path, Again: 6}, job{Op: "read", Path: path, Map: true, Again: 6})
	if err != nil {
		return err
	}
	b.add("ext4 read", rates[0].again/gb)
	b.add("ext4 mmap", rates[1].again/gb)
	return nil
}

// cold mounts a release on an empty cache, as a user without privileges would have it.
func (b *bench) cold(h *hub, release, label string) (*mount, error) {
	return b.mount(h, release, how{label: label, readAhead: userReadAhead})
}

func sequential(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	return b.stream(h, fp8, "sequential")
}

// stream reads and maps a whole shard from a cold cache, and lets the client fetch it in between.
func (b *bench) stream(h *hub, release, key string) error {
	n := b.bytes(b.shardSpan(release).End)
	m, err := b.cold(h, release, key)
	if err != nil {
		return err
	}
	mark := h.mark()
	r, err := b.child(job{Op: "read", Path: m.path("release", shard), Size: n})
	if err != nil {
		return err
	}
	requests, _, err := h.data(mark)
	if err != nil {
		return err
	}
	if err := m.check(m.path("release", shard), b.truth(release, shard)); err != nil {
		return err
	}
	m.end()
	b.add(key+" weightfs", r.rate()/gb)
	b.add(key+" requests", requests)

	c, err := b.client(h, release, shard, span{0, n})
	if err != nil {
		return err
	}
	b.add(key+" client", c.rate()/gb)
	return b.streamInParts(h, release, key, n)
}

// streamInParts takes the first n bytes of a cold shard in parts: tensor by tensor of a mapping, and by threads that take turns.
func (b *bench) streamInParts(h *hub, release, key string, n int64) error {
	var turns []span
	for off := int64(0); off < n; off += 4 << 20 {
		turns = append(turns, span{off, min(off+4<<20, n)})
	}
	for _, x := range []struct {
		name string
		job  job
	}{
		{"mmap", job{Map: true, Ranges: b.tensors(release, n)}},
		{"turns", job{Threads: 4, Ranges: turns}},
	} {
		m, err := b.cold(h, release, key+" "+x.name)
		if err != nil {
			return err
		}
		x.job.Op, x.job.Path = "ranges", m.path("release", shard)
		r, err := b.child(x.job)
		if err != nil {
			return err
		}
		m.end()
		b.add(key+" "+x.name, r.rate()/gb)
	}
	return nil
}

// demand touches random pages of the second half of a shard, alone and while the first half is read.
func demand(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	m, err := b.cold(h, fp8, "demand")
	if err != nil {
		return err
	}
	defer m.end()
	half := b.shardSpan(fp8).End / 2
	pages := randomPages(half, 2*half, 2*b.count(16))
	read := job{Op: "read", Path: m.path("release", shard), Size: half}
	touch := job{Op: "ranges", Path: read.Path, Map: true, Random: true, Ranges: pages[:len(pages)/2]}
	alone, err := b.child(touch)
	if err != nil {
		return err
	}
	touch.Ranges = pages[len(pages)/2:]
	both, err := b.children([]job{read, touch})
	if err != nil {
		return err
	}
	if both[0].End.Before(both[1].End) {
		return errors.New("the file was read before all pages were touched")
	}
	b.add("demand alone", median(alone.Parts))
	b.add("demand busy", median(both[1].Parts))
	return nil
}

// randomPages are different pages of [from, to).
func randomPages(from, to int64, n int) (pages []span) {
	for _, p := range shuffled(int((to-from)/4096), 2)[:n] {
		off := from&^4095 + int64(p)*4096
		pages = append(pages, span{off, off + 4096})
	}
	return pages
}

// tensors are the spans of the tensors of a release's shard that end before n, in the order of the header.
func (b *bench) tensors(release string, n int64) []span {
	var out []span
	for _, t := range b.release(release).File(shard).Tensors() {
		if t.End <= n {
			out = append(out, span{t.Start, t.End})
		}
	}
	return out
}

// otherShapes are those of workload shapes.
func otherShapes() []shape {
	var out []shape
	for _, ms := range []time.Duration{0, 5, 20, 100} {
		for _, rate := range []int64{50e6, 0} {
			if s := (shape{latency: ms * time.Millisecond, rate: rate}); s != far {
				out = append(out, s)
			}
		}
	}
	return out
}

func shapes(b *bench) error {
	for _, s := range otherShapes() {
		h, err := b.hub(s)
		if err != nil {
			return err
		}
		n := b.bytes(512 << 20)
		m, err := b.cold(h, fp8, "shapes")
		if err != nil {
			return err
		}
		r, err := b.child(job{Op: "read", Path: m.path("release", shard), Size: n})
		if err != nil {
			return err
		}
		m.end()
		c, err := b.client(h, fp8, shard, span{0, n})
		if err != nil {
			return err
		}
		b.add("shape "+s.String()+" weightfs", r.rate()/gb)
		b.add("shape "+s.String()+" client", c.rate()/gb)
	}
	return nil
}

func randomTensors(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	some := b.some(b.count(32), 500e3, 0)
	m, err := b.cold(h, fp8, "tensors")
	if err != nil {
		return err
	}
	r, err := b.child(job{Op: "ranges", Path: m.path("release", shard), Map: true, Ranges: some})
	if err != nil {
		return err
	}
	m.end()
	b.add("tensors weightfs", median(r.Parts))
	var groups [][]get
	for _, s := range some {
		groups = append(groups, []get{{h.file(fp8, shard), s}})
	}
	if r, err = b.child(job{Op: "get", Groups: groups}); err != nil {
		return err
	}
	b.add("tensors client", median(r.Parts))
	return nil
}

func faults(b *bench) error {
	h, err := b.hub(near)
	if err != nil {
		return err
	}
	pages := randomPages(0, b.shardSpan(fp8).End, b.count(2000))
	m, err := b.cold(h, fp8, "faults")
	if err != nil {
		return err
	}
	defer m.end()
	j := job{Op: "ranges", Path: m.path("release", shard), Map: true, Random: true, Ranges: pages}
	for _, key := range []string{"faults cold", "faults warm"} {
		r, err := b.child(j)
		if err != nil {
			return err
		}
		b.add(key, quantile(r.Parts, 0.5)*1e6)
		b.add(key+" p99", quantile(r.Parts, 0.99)*1e6)
	}
	if j.Path, err = b.floorFile(); err != nil {
		return err
	}
	j.Ranges = randomPages(0, floorSize, len(pages))
	r, err := b.child(j)
	if err != nil {
		return err
	}
	b.add("faults ext4", quantile(r.Parts, 0.5)*1e6)
	return nil
}

func processes(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	n := b.bytes(512 << 20)
	m, err := b.cold(h, fp8, "processes")
	if err != nil {
		return err
	}
	mark := h.mark()
	jobs := make([]job, 8)
	for i := range jobs {
		jobs[i] = job{Op: "read", Path: m.path("release", shard), Size: n}
	}
	rs, err := b.children(jobs)
	if err != nil {
		return err
	}
	start, end := rs[0].Start, rs[0].End
	for _, r := range rs {
		start, end = earlier(start, r.Start), later(end, r.End)
	}
	b.add("processes weightfs", end.Sub(start).Seconds())
	bytes, err := h.dataBelow(mark, n)
	if err != nil {
		return err
	}
	m.end()
	b.add("processes fetched", bytes/float64(n))
	c, err := b.client(h, fp8, shard, span{0, n})
	if err != nil {
		return err
	}
	b.add("processes client", c.seconds())
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func preads(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	var spans []span
	for _, i := range shuffled(int(b.shardSpan(fp8).End>>20), 3)[:64] {
		spans = append(spans, span{int64(i) << 20, int64(i+1) << 20})
	}
	m, err := b.cold(h, fp8, "preads")
	if err != nil {
		return err
	}
	mark := h.mark()
	r, err := b.child(job{Op: "ranges", Path: m.path("release", shard), Ranges: spans, Threads: 64})
	if err != nil {
		return err
	}
	requests, bytes, err := h.data(mark)
	if err != nil {
		return err
	}
	m.end()
	b.add("preads weightfs", r.seconds())
	b.add("preads requests", requests)
	b.add("preads fetched", bytes/float64(r.Bytes))
	c, err := b.client(h, fp8, shard, spans...)
	if err != nil {
		return err
	}
	b.add("preads client", c.seconds())
	return nil
}

func resident(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	m, err := b.cold(h, fp8, "resident")
	if err != nil {
		return err
	}
	mark := h.mark()
	r, err := b.child(job{Op: "files", Paths: []string{m.path("resident", shard)}})
	if err != nil {
		return err
	}
	_, bytes, err := h.data(mark)
	if err != nil {
		return err
	}
	m.end()
	b.add("resident weightfs", r.rate()/gb)
	b.add("resident fetched", bytes/float64(r.Bytes))
	spans, err := b.explained(h, fp8, "resident/"+shard)
	if err != nil {
		return err
	}
	c, err := b.client(h, fp8, shard, spans.Spans...)
	if err != nil {
		return err
	}
	b.add("resident client", c.rate()/gb)
	return nil
}

func cpView(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	to := b.fresh("copy")
	defer os.RemoveAll(to)
	view := "bf16/" + shard
	if b.opt.quick {
		view = "resident/" + shard
	}
	if err := errors.Join(b.ballast.take(), b.ballast.drop()); err != nil {
		return err
	}
	start := time.Now()
	if _, err := b.run(h.env(), b.weightfs, "cp", "--quiet", "--cache-dir", b.fresh("cache"), "hf://demo/"+fp8, view, filepath.Join(to, "x")); err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	b.add("cp weightfs", took)
	spans, err := b.explained(h, fp8, view)
	if err != nil {
		return err
	}
	c, err := b.client(h, fp8, shard, spans.Spans...)
	if err != nil {
		return err
	}
	w, err := b.child(job{Op: "write", Path: filepath.Join(to, "y"), Size: spans.Size})
	if err != nil {
		return err
	}
	b.add("cp floor", c.seconds()+w.seconds())
	return nil
}

// explanation is what weightfs explain says of a file.
type explanation struct {
	Spans    []span
	Requests []span
	Bytes    int64
	Size     int64
}

// explained asks weightfs how a file is made.
func (b *bench) explained(h *hub, release, path string) (explanation, error) {
	var e explanation
	out, err := b.run(h.env(), b.weightfs, "explain", "--json", "--cache-dir", filepath.Join(b.dir, "explain"), "hf://demo/"+release, path)
	if err != nil {
		return e, err
	}
	return e, unmarshal(out, &e)
}

// packed reads the BF16 view of a column-packed release with a budget of twice its largest tensor and no disk cache: bytes of the source that
// come more than once are seen.
func packed(b *bench) error {
	h, err := b.hub(near)
	if err != nil {
		return err
	}
	var all, largest int64
	for _, t := range b.release(gptq).File(shard).Tensors() {
		all += t.End - t.Start
		largest = max(largest, t.End-t.Start)
	}
	m, err := b.mount(h, gptq, how{label: "packed by columns", cache: "none", memory: 2 * largest, readAhead: userReadAhead})
	if err != nil {
		return err
	}
	defer m.end()
	mark := h.mark()
	r, err := b.child(job{Op: "read", Path: m.path("bf16", shard)})
	if err != nil {
		return err
	}
	_, bytes, err := h.data(mark)
	if err != nil {
		return err
	}
	b.add("packed read", r.rate()/gb)
	b.add("packed fetched", bytes/float64(all))
	return nil
}

func secondMount(b *bench) error {
	h, err := b.hub(shape{latency: far.latency})
	if err != nil {
		return err
	}
	cache := filepath.Join(b.dir, "second-mount")
	if _, err := os.Stat(cache); err != nil {
		start := time.Now()
		m, err := b.mount(h, huge, how{label: "first mount", cache: cache})
		if err != nil {
			return err
		}
		m.end()
		b.note("  first mount, the hub made the release meanwhile: %.1fs", time.Since(start).Seconds())
	}
	mark := h.mark()
	m, err := b.mount(h, huge, how{label: "second mount", cache: cache, measured: true})
	if err != nil {
		return err
	}
	defer m.end()
	b.add("second mount ready", m.ready.Seconds())
	requests, err := h.since(mark)
	if err != nil {
		return err
	}
	b.add("second mount requests", float64(len(requests)))
	if err := b.openShards(m); err != nil {
		return err
	}
	m.end()
	mark = h.mark()
	if m, err = b.mount(h, huge, how{label: "second mount", cache: cache, args: []string{"--offline"}}); err != nil {
		return err
	}
	defer m.end()
	requests, err = h.since(mark)
	b.add("offline mount requests", float64(len(requests)))
	return err
}

// openShards opens every shard of a mount and says what that takes of the daemon's memory.
func (b *bench) openShards(m *mount) error {
	shards, err := filepath.Glob(m.path("release", "*.safetensors"))
	if err != nil {
		return err
	}
	before := rss(m.process.Process.Pid)
	for _, s := range shards {
		f, err := os.Open(s)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	b.add("open shards", float64(len(shards)))
	b.add("open shards memory", float64(rss(m.process.Process.Pid)-before)/mb)
	return nil
}

// littleMemory reads the shard as sequential does, with less memory than a stream asks for ahead.
func littleMemory(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		sample string
		memory int64
	}{{"sequential 512 MiB", 512 << 20}, {"sequential 64 MiB", 64 << 20}} {
		m, err := b.mount(h, fp8, how{label: x.sample, memory: x.memory, readAhead: userReadAhead})
		if err != nil {
			return err
		}
		r, err := b.child(job{Op: "read", Path: m.path("release", shard), Size: b.bytes(x.memory)})
		if err != nil {
			return err
		}
		m.end()
		b.add(x.sample, r.rate()/gb)
	}
	return nil
}

func budget(b *bench) error {
	h, err := b.hub(near)
	if err != nil {
		return err
	}
	return errors.Join(b.everything(h), b.streams(h))
}

// everything reads in every way on a budget of 64 MiB.
func (b *bench) everything(h *hub) error {
	m, err := b.mount(h, fp8, how{label: "64 MiB", memory: 64 << 20, readAhead: userReadAhead})
	if err != nil {
		return err
	}
	defer m.end()
	release, view, blocks := m.path("release", shard), m.path("bf16", shard), m.path("experts", "bf16", "expert_blocks.bin")
	n, half := b.bytes(256<<20), b.shardSpan(fp8).End/2
	tensors := b.some(64, 500e3, half)
	for _, jobs := range [][]job{
		{{Op: "read", Path: release, Size: n}, {Op: "read", Path: view, Size: n}, {Op: "read", Path: blocks, Size: n}},
		{{Op: "ranges", Path: release, Map: true, Ranges: tensors}},
		{{Op: "ranges", Path: release, Map: true, Random: true, Ranges: randomPages(half, 2*half, 500)}},
		{{Op: "ranges", Path: release, Direct: true, Threads: 64, Ranges: tensors}, {Op: "ranges", Path: view, Threads: 64, Ranges: tensors}},
	} {
		if _, err := b.children(jobs); err != nil {
			return err
		}
	}
	return nil
}

// streams reads by 64 threads on a budget of 8 MiB.
func (b *bench) streams(h *hub) error {
	m, err := b.mount(h, fp8, how{label: "64 streams on 8 MiB", memory: 8 << 20, readAhead: userReadAhead})
	if err != nil {
		return err
	}
	defer m.end()
	jobs := make([]job, 2)
	for i, path := range []string{m.path("release", shard), m.path("bf16", shard)} {
		jobs[i] = job{Op: "ranges", Path: path, Threads: 32}
		for k := range int64(32) {
			jobs[i].Ranges = append(jobs[i].Ranges, span{k * 24 << 20, k*24<<20 + b.bytes(4<<20)})
		}
	}
	rs, err := b.children(jobs)
	if err != nil {
		return fmt.Errorf("64 streams on 8 MiB: %w", err)
	}
	b.add("64 streams", later(rs[0].End, rs[1].End).Sub(earlier(rs[0].Start, rs[1].Start)).Seconds())
	return nil
}
