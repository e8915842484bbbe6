package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weightfs/internal/hubtest"
	"weightfs/internal/testrel"
)

// demoLatency is how long the stand-in hub waits before each reply unless told otherwise.
const demoLatency = 20 * time.Millisecond

// checker is one run of demo: a hub, a door into what weightfs makes of its releases, and what has come out so far.
type checker struct {
	u     *ui
	home  string // everything that is written
	hub   *hubtest.Hub
	log   hubtest.Ledger
	sent  map[string][]hubtest.Entry // by repository: what the log had and nobody has told yet
	door  door
	strip string // what of demo/NAME the door's paths lack: all of it if there is one release alone
	wrong int
}

func (c *checker) list(p string) ([]listed, error) {
	return c.door.list(strings.TrimPrefix(p, c.strip))
}

func (c *checker) read(p string, off, n int64) ([]byte, error) {
	return c.door.read(strings.TrimPrefix(p, c.strip), off, n)
}

// check is demo: it serves, mounts, reads, compares, unmounts. It fails if one byte was wrong.
func (f *demoFlags) check(ctx context.Context, u *ui) (err error) {
	ctx, u = untilUnread(ctx, u)
	c := &checker{u: u, sent: map[string][]hubtest.Entry{}}
	if c.home, err = os.MkdirTemp("", "weightfs-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.home)
	releases := append(testrel.Small(), testrel.Qwen38MaxFP8())
	if len(f.only) > 0 {
		releases = named(f.only)
	}
	if err := c.serve(f, releases); err != nil {
		return err
	}
	defer c.hub.Close()
	if err := c.open(ctx, releases); err != nil {
		return err
	}
	err = errors.Join(c.compare(ctx, releases), c.door.close())
	switch {
	case err != nil:
		return err
	case c.wrong > 0:
		return fmt.Errorf("%d differences", c.wrong)
	}
	u.printf("\nUnmounted. Everything that was read is equal to its closed form.\n")
	return nil
}

// untilUnread ends the context once nobody reads any more what is said (demo | head), in place of the program: what it has mounted must not stay.
// Nor does a second signal end the program.
func untilUnread(ctx context.Context, u *ui) (context.Context, *ui) {
	signal.Ignore(syscall.SIGPIPE)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(ctx)
	said := *u
	said.out = writerFunc(func(p []byte) (int, error) {
		n, err := u.out.Write(p)
		if err != nil {
			cancel(err)
		}
		return n, err
	})
	return ctx, &said
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// serve starts the hub. It finds small releases on disk, where they are written first, and is given large ones as functions.
func (c *checker) serve(f *demoFlags, releases []*testrel.Release) (err error) {
	cfg := hubtest.Config{Root: filepath.Join(c.home, "hub"), Latency: demoLatency, Log: c.log.Add}
	if f.latency > 0 {
		cfg.Latency = f.latency
	}
	if f.faults != "" {
		if cfg.Plan, err = f.plan(); err != nil {
			return err
		}
	}
	if c.hub, err = hubtest.Start(cfg); err != nil {
		return err
	}
	c.u.printf("A stand-in hub at %s, its CDN at %s, %v before every reply. It serves\n", c.hub.URL, c.hub.CDN, cfg.Latency)
	for _, r := range releases {
		where := "on disk"
		if r.HeaderOnly {
			where = "on no disk"
			c.hub.AddRelease("demo/"+r.Name, r)
		} else if err := testrel.WriteDir(filepath.Join(cfg.Root, "demo", r.Name), r); err != nil {
			c.hub.Close()
			return err
		}
		c.u.printf("  demo/%-18s %9s in %3d files, %s\n", r.Name, size(r.Bytes()), len(r.Files), where)
	}
	c.u.printf("\n")
	return nil
}

// open mounts all releases in one mount, or serves them over HTTP.
func (c *checker) open(ctx context.Context, releases []*testrel.Release) (err error) {
	var sources []string
	for _, r := range releases {
		sources = append(sources, "hf://demo/"+r.Name)
	}
	if len(releases) == 1 {
		c.strip = "demo/" + releases[0].Name
	}
	if why := noFUSE(); why != "" {
		c.u.printf("No mount here: %s.\nThe same through the HTTP door:\n\n$ weightfs serve %s …\n", why, sources[0])
		d, err := openHTTP(ctx, c.hub.URL, c.home, sources)
		if err != nil {
			return err
		}
		c.door = d
	} else {
		c.u.printf("$ weightfs mount --daemon %s … %s\n", sources[0], filepath.Join(c.home, "mnt"))
		d, err := openMount(ctx, c.hub.URL, c.home, sources)
		if err != nil {
			return err
		}
		c.door = d
	}
	return nil
}

// fetched says what a repository sent since the last call, and in what time.
func (c *checker) fetched(repo string, began time.Time) string {
	for _, e := range c.log.Take() {
		c.sent[e.Repo] = append(c.sent[e.Repo], e)
	}
	all := c.sent[repo]
	delete(c.sent, repo)
	data := hubtest.Of("data", all)
	return fmt.Sprintf("%.1f s, %d requests, %s fetched by %d of them", time.Since(began).Seconds(), len(all), size(hubtest.BytesOf(data)), len(data))
}

func (c *checker) compare(ctx context.Context, releases []*testrel.Release) error {
	shown := max(slices.IndexFunc(releases, func(r *testrel.Release) bool { return r.Name == "qwen-fp8" }), 0)
	if err := c.tree("demo/" + releases[shown].Name); err != nil {
		return err
	}
	for _, r := range releases {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		look := c.whole
		if r.HeaderOnly {
			look = c.parts
		}
		if err := look(r); err != nil {
			return fmt.Errorf("demo/%s: %w", r.Name, err)
		}
	}
	return nil
}

// branches is how many entries of a directory the tree shows.
const branches = 4

// tree prints a directory two levels deep.
func (c *checker) tree(root string) error {
	c.u.printf("\n%s\n", root)
	top, err := c.list(root)
	if err != nil {
		return err
	}
	for i, e := range top {
		c.u.printf("%s\n", branch("", i == len(top)-1, e))
		if !e.Dir {
			continue
		}
		below, err := c.list(path.Join(root, e.Path))
		if err != nil {
			return err
		}
		bar := "│   "
		if i == len(top)-1 {
			bar = "    "
		}
		for j, e := range below {
			if j == branches-1 && len(below) > branches {
				c.u.printf("%s└── … %d more\n", bar, len(below)-j)
				break
			}
			c.u.printf("%s\n", branch(bar, j == len(below)-1, e))
		}
	}
	return nil
}

func branch(bar string, last bool, e listed) string {
	arm := "├── "
	if last {
		arm = "└── "
	}
	if e.Dir {
		return bar + arm + e.Path + "/"
	}
	return fmt.Sprintf("%s%s%-36s %s", bar, arm, e.Path, size(e.Size))
}

// same compares; a difference is counted, and where it is is said at once.
func (c *checker) same(where string, got, want []byte) string {
	if bytes.Equal(got, want) {
		return "equal to the byte"
	}
	c.wrong++
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	c.u.printf("WRONG  %s: %d bytes, want %d; the first difference is at %d\n", where, len(got), len(want), i)
	return "WRONG"
}

// whole compares every file of a small release, every tensor of its bf16 view and every expert block.
func (c *checker) whole(r *testrel.Release) error {
	began, before, base := time.Now(), c.wrong, "demo/"+r.Name
	for i := range r.Files {
		f := &r.Files[i]
		p := path.Join(base, "release", f.Path)
		got, err := c.read(p, 0, -1)
		if err != nil {
			return err
		}
		c.same(p, got, f.Bytes())
	}
	tensors, quantized, err := c.tensors(r, base)
	if err != nil {
		return err
	}
	blocks, err := c.blocks(r, base)
	if err != nil {
		return err
	}
	verdict := "equal to the byte"
	if c.wrong > before {
		verdict = "compared, with differences"
	}
	c.u.printf("\n%s: %s in %d files\n  %s: the release", base, size(r.Bytes()), len(r.Files), verdict)
	if tensors > 0 {
		c.u.printf("; bf16/ (%d tensors, %d of them dequantized)", tensors, quantized)
	}
	if blocks > 0 {
		c.u.printf("; experts/native/ (%d blocks)", blocks)
	}
	c.u.printf("\n  %s\n", c.fetched(base, began))
	return nil
}

// tensors compares every tensor of the bf16 view, each of which must be there, with its truth or its digest.
func (c *checker) tensors(r *testrel.Release, base string) (n, quantized int, err error) {
	if r.Digests != nil {
		n, err = c.digests(r, base)
		return n, n, err
	}
	dir := base + "/bf16"
	shards, err := c.index(dir)
	if err != nil {
		return 0, 0, err
	}
	for _, name := range r.Truths() {
		t := r.Truth(name)
		if x := r.Tensor(name); x != nil && strings.HasPrefix(x.Path, "consolidated") {
			continue // the second copy of the weights is not in the view
		}
		got, err := c.tensor(dir, shards, name, 0, math.MaxInt64)
		if err != nil {
			return 0, 0, err
		}
		c.same(dir+": "+name, got, t.Bytes())
		if n++; t.Quantized() {
			quantized++
		}
	}
	if n != len(shards.files) {
		c.wrong++
		c.u.printf("WRONG  %s has %d tensors, want %d\n", dir, len(shards.files), n)
	}
	return n, quantized, nil
}

// digests compares the tensors of which only the SHA-256 is known.
func (c *checker) digests(r *testrel.Release, base string) (n int, err error) {
	dir := base + "/bf16"
	if r.IsCast() {
		dir += "-all"
	}
	for name, want := range r.Digests {
		shards, err := c.index(dir)
		if err != nil {
			return n, err
		}
		got, err := c.tensor(dir, shards, name, 0, math.MaxInt64)
		if err != nil {
			return n, err
		}
		h := sha256.Sum256(got)
		c.same(dir+": SHA-256 of "+name, []byte(hex.EncodeToString(h[:])), []byte(want))
		n++
	}
	return n, nil
}

// shardIndex is a model directory's index and the headers that were read so far. It is read with encoding/json, not with the code
// that wrote it.
type shardIndex struct {
	files   map[string]string // tensor to file
	headers map[string]map[string]jsonTensor
	starts  map[string]int64 // of the data, by file
}

type jsonTensor struct {
	Offsets [2]int64 `json:"data_offsets"`
}

func (c *checker) index(dir string) (*shardIndex, error) {
	b, err := c.read(path.Join(dir, "model.safetensors.index.json"), 0, -1)
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, fmt.Errorf("%s: index: %w", dir, err)
	}
	return &shardIndex{files: index.WeightMap, headers: map[string]map[string]jsonTensor{}, starts: map[string]int64{}}, nil
}

// tensor is the bytes [from, from+n) of one tensor of a model directory, or as many as it has.
func (c *checker) tensor(dir string, s *shardIndex, name string, from, n int64) ([]byte, error) {
	file := s.files[name]
	if file == "" {
		return nil, fmt.Errorf("%s: the index has no %s", dir, name)
	}
	p := path.Join(dir, file)
	if s.headers[file] == nil {
		first, err := c.read(p, 0, 8)
		if err != nil {
			return nil, err
		}
		length := int64(binary.LittleEndian.Uint64(first))
		b, err := c.read(p, 8, length)
		if err != nil {
			return nil, err
		}
		var header map[string]jsonTensor
		if err := json.Unmarshal(b, &header); err != nil {
			return nil, fmt.Errorf("%s: header: %w", p, err)
		}
		s.headers[file], s.starts[file] = header, 8+length
	}
	t, ok := s.headers[file][name]
	if !ok {
		return nil, fmt.Errorf("%s: the header has no %s", p, name)
	}
	at, end := s.starts[file]+t.Offsets[0]+from, s.starts[file]+t.Offsets[1]
	return c.read(p, at, min(n, end-at))
}

// manifest is the part of manifest.json that reading blocks takes.
type manifest struct {
	File      string      `json:"file"`
	Block     int64       `json:"blockByteLength"`
	Layers    []int       `json:"layers"`
	PerLayer  int         `json:"expertsPerLayer"`
	Parts     []blockPart `json:"parts"`
	MTP       *manifest
	directory string
}

// blockPart is one tensor of every block.
type blockPart struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"byteLength"`
	Tensor string `json:"tensor"`
}

// manifest reads experts/native of a release; nil if it has no experts.
func (c *checker) manifest(base string) (*manifest, error) {
	views, err := c.list(base)
	if err != nil {
		return nil, err
	}
	for _, v := range views {
		if v.Path != "experts" {
			continue
		}
		m := &manifest{directory: path.Join(base, "experts/native")}
		b, err := c.read(path.Join(m.directory, "manifest.json"), 0, -1)
		if err == nil {
			err = json.Unmarshal(b, m)
		}
		if m.MTP != nil {
			m.MTP.directory = m.directory
		}
		return m, err
	}
	return nil, nil
}

// blocks compares every block of experts/native and says how many there are.
func (c *checker) blocks(r *testrel.Release, base string) (int, error) {
	m, err := c.manifest(base)
	n := 0
	for ; err == nil && m != nil; m = m.MTP {
		for i, layer := range m.Layers {
			for e := range m.PerLayer {
				at := int64(i*m.PerLayer+e) * m.Block
				got, err := c.read(path.Join(m.directory, m.File), at, m.Block)
				if err != nil {
					return n, err
				}
				c.same(fmt.Sprintf("%s/%s: layer %d, expert %d", m.directory, m.File, layer, e), got, m.truth(r, layer, e))
				n++
			}
		}
	}
	return n, err
}

// of is the tensor of an expert, and where in it the expert begins.
func (p *blockPart) of(layer, expert int) (name string, at int64) {
	name = strings.ReplaceAll(p.Tensor, "{layer}", strconv.Itoa(layer))
	if strings.Contains(name, "{expert}") {
		return strings.ReplaceAll(name, "{expert}", strconv.Itoa(expert)), 0
	}
	return name, int64(expert) * p.Length
}

// truth is the block of an expert: its tensors' parts at the manifest's offsets, zeros between them.
func (m *manifest) truth(r *testrel.Release, layer, expert int) []byte {
	block := make([]byte, m.Block)
	for i := range m.Parts {
		p := &m.Parts[i]
		name, at := p.of(layer, expert)
		if t := r.Tensor(name); t != nil {
			t.ReadAt(block[p.Offset:p.Offset+p.Length], at)
		}
	}
	return block
}

// parts reads one expert block and up to partMost of one tensor of a release that is too large to be read whole.
func (c *checker) parts(r *testrel.Release) error {
	began, base := time.Now(), "demo/"+r.Name
	c.u.printf("\n%s: %s in %d files\n", base, size(r.Bytes()), len(r.Files))
	m, err := c.manifest(base)
	if err != nil {
		return err
	}
	if m == nil {
		return errors.New("no expert views")
	}
	shards, err := c.index(base + "/bf16")
	if err != nil {
		return err
	}
	c.u.printf("  headers, manifest and the view's index: %s\n", c.fetched(base, began))

	began = time.Now()
	layer, expert := m.Layers[len(m.Layers)/9], m.PerLayer*3/7
	block := fmt.Sprintf("blocks/L%03d/E%03d.bin", layer, expert)
	got, err := c.read(path.Join(m.directory, block), 0, -1)
	if err != nil {
		return err
	}
	equal := c.same(path.Join(m.directory, block), got, m.truth(r, layer, expert))
	c.u.printf("  experts/native/%s: %s, %s; %s\n", block, size(int64(len(got))), equal, c.fetched(base, began))

	began = time.Now()
	name, from := m.Parts[0].of(m.Layers[len(m.Layers)/2], expert)
	name = strings.TrimSuffix(name, "_packed")
	if got, err = c.tensor(base+"/bf16", shards, name, from, partMost); err != nil {
		return err
	}
	equal = c.same(base+"/bf16: "+name, got, r.Truth(name).Range(from, from+int64(len(got))))
	c.u.printf("  bf16/ %s: %s, %s; %s\n", name, size(int64(len(got))), equal, c.fetched(base, began))
	return nil
}

// partMost is how much of a tensor is read where it may be as large as a disk.
const partMost = 32 << 20
