package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// childArg makes this program a child that does one job.
const childArg = "-child"

// job is what a child does. What is left out is the zero value.
type job struct {
	Op      string   `json:"op"`
	Path    string   `json:"path,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	Ranges  []span   `json:"ranges,omitempty"`
	Size    int64    `json:"size,omitempty"`    // of a sequential read, 0 is all
	Direct  bool     `json:"direct,omitempty"`  // O_DIRECT
	Map     bool     `json:"map,omitempty"`     // touch the pages of a mapping
	Random  bool     `json:"random,omitempty"`  // MADV_RANDOM
	Drop    int      `json:"drop,omitempty"`    // sequential reads, before each of which the file's page cache is dropped; then it is dropped at the end too
	Again   int      `json:"again,omitempty"`   // sequential reads that follow, of what the page cache has by then
	Threads int      `json:"threads,omitempty"` // 1 if 0
	Groups  [][]get  `json:"groups,omitempty"`  // of requests: those of a group in parallel, the groups one after another
	Env     []string `json:"-"`                 // of the child, beside that of this process
}

// span is the bytes [Start, End).
type span struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// get is one ranged request.
type get struct {
	URL string `json:"url"`
	span
}

// result is what a child measured: when it began and ended, bytes, and how long each part took, in seconds.
type result struct {
	Start, End time.Time
	Bytes      int64
	Parts      []float64
	Values     map[string]float64
	Error      string `json:",omitempty"`
}

func (r result) seconds() float64 { return r.End.Sub(r.Start).Seconds() }
func (r result) rate() float64    { return float64(r.Bytes) / r.seconds() }

// child does the job that stands on in and writes the result to out.
func child(in io.Reader, out io.Writer) int {
	var j job
	var r result
	err := json.NewDecoder(in).Decode(&j)
	if err == nil {
		r, err = j.do()
	}
	if err != nil {
		r.Error = err.Error()
	}
	if json.NewEncoder(out).Encode(r) != nil || err != nil {
		return 1
	}
	return 0
}

func (j job) do() (result, error) {
	switch j.Op {
	case "read":
		return j.sequential()
	case "ranges":
		return j.ranges()
	case "files":
		return j.files()
	case "get":
		return j.get()
	case "memcpy":
		return memcpy(), nil
	case "write":
		return writeFile(j.Path, j.Size)
	case "socket":
		return socket(j.Size)
	case "kernels":
		return kernels()
	}
	return result{}, fmt.Errorf("no job %q", j.Op)
}

// child runs one job in a process of its own.
func (b *bench) child(j job) (result, error) {
	rs, err := b.children([]job{j})
	if err != nil {
		return result{}, err
	}
	return rs[0], nil
}

// children runs jobs at the same time. If one fails, the others are ended.
func (b *bench) children(jobs []job) ([]result, error) {
	if err := b.ballast.drop(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(b.ctx)
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	out := make([]result, len(jobs))
	for i, j := range jobs {
		in, err := json.Marshal(j)
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		c := exec.CommandContext(ctx, self, childArg)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		c.Env, c.Stdin, c.Stdout = append(os.Environ(), j.Env...), bytes.NewReader(in), &text
		if err := c.Start(); err != nil { // here: a child dies with the thread that started it
			end()
			return nil, errors.Join(err, g.Wait())
		}
		g.Go(func() error {
			if err := errors.Join(c.Wait(), json.Unmarshal(text.Bytes(), &out[i])); err != nil || out[i].Error != "" {
				return fmt.Errorf("%s %s: %s (%w)", j.Op, j.Path, out[i].Error, err)
			}
			return nil
		})
	}
	return out, g.Wait()
}

// readings are rates of reading one file, in bytes a second: when its pages have to come from somewhere, and when they have been read often enough for
// the kernel to have stopped counting.
type readings struct{ dropped, again float64 }

// inTurn runs sequential reads one after another, several times over, so that what the machine does meanwhile meets all of them, and returns the medians
// of each. The first two change places every time.
func (b *bench) inTurn(jobs ...job) ([]readings, error) {
	const turns = 4
	dropped, again := make([][]float64, len(jobs)), make([][]float64, len(jobs))
	for turn := range turns {
		for i := range jobs {
			if turn%2 == 1 && i < min(2, len(jobs)) {
				i = min(2, len(jobs)) - 1 - i
			}
			j := jobs[i]
			r, err := b.child(j)
			if err != nil {
				return nil, err
			}
			d, a := j.rates(r)
			dropped[i], again[i] = append(dropped[i], d...), append(again[i], a...)
		}
	}
	out := make([]readings, len(jobs))
	for i := range jobs {
		out[i] = readings{median(dropped[i]), median(again[i])}
	}
	return out, nil
}

// rates are those of a sequential read's passes: after the page cache was dropped, and in the second half of those that follow.
func (j job) rates(r result) (dropped, again []float64) {
	for k, seconds := range r.Parts {
		rate := float64(r.Bytes) / float64(len(r.Parts)) / seconds
		if k < j.Drop {
			dropped = append(dropped, rate)
		} else if k >= j.Drop+j.Again/2 {
			again = append(again, rate)
		}
	}
	return dropped, again
}

const readSize = 1 << 20 // of every read(2)

// sequential reads or maps a file from its beginning.
func (j job) sequential() (result, error) {
	f, size, err := j.open(j.Path)
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	if j.Size > 0 {
		size = min(size, j.Size)
	}
	return j.timed(func(r *result) (total int64, err error) {
		drop := func() { // advice: who reads again sees whether it was taken
			if j.Drop > 0 {
				_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
			}
		}
		defer drop() // what is free next is what was free before
		for pass := range max(1, j.Drop+j.Again) {
			if pass < j.Drop {
				drop()
			}
			start := time.Now()
			n, err := j.take(f, span{0, size})
			if err != nil {
				return 0, err
			}
			r.Parts = append(r.Parts, time.Since(start).Seconds())
			total += n
		}
		return total, nil
	})
}

func (j job) open(path string) (*os.File, int64, error) {
	flags := os.O_RDONLY
	if j.Direct {
		flags |= syscall.O_DIRECT
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	return f, st.Size(), err
}

// timed runs fn between two looks at the clock.
func (j job) timed(fn func(*result) (int64, error)) (r result, err error) {
	r.Start = time.Now()
	r.Bytes, err = fn(&r)
	r.End = time.Now()
	return r, err
}

// take reads or touches a range of a file.
func (j job) take(f *os.File, s span) (int64, error) {
	if j.Map {
		return j.touch(f, []span{s}, nil)
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for off := s.Start; off < s.End; {
		n := s.End - off
		if j.Direct { // whole pages; the file may end inside the last
			n = (n + 4095) &^ 4095
		}
		k, err := f.ReadAt((*buf)[:min(n, readSize)], off)
		if err != nil && err != io.EOF || k == 0 {
			return 0, fmt.Errorf("at %d: %w", off, err)
		}
		off += int64(k)
	}
	return s.End - s.Start, nil
}

// buffers are page-aligned, as O_DIRECT wants it.
var buffers = sync.Pool{New: func() any {
	p, err := unix.Mmap(-1, 0, readSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		panic(err)
	}
	return &p
}}

// touch maps a file and touches one byte of every page of the ranges, in their order.
func (j job) touch(f *os.File, spans []span, parts *[]float64) (n int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(data)
	if j.Random {
		if err := unix.Madvise(data, unix.MADV_RANDOM); err != nil {
			return 0, err
		}
	}
	sum := byte(0)
	for _, s := range spans {
		start := time.Now()
		for off := s.Start; off < s.End; off = off&^4095 + 4096 {
			sum += data[off]
		}
		n += s.End - s.Start
		if parts != nil {
			*parts = append(*parts, time.Since(start).Seconds())
		}
	}
	touched.Store(int64(sum))
	return n, nil
}

// ranges takes parts of one file, in their order or by several threads.
func (j job) ranges() (result, error) {
	f, _, err := j.open(j.Path)
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	if j.Map && j.Threads <= 1 {
		return j.timed(func(r *result) (int64, error) { return j.touch(f, j.Ranges, &r.Parts) })
	}
	return j.parallel(len(j.Ranges), func(i int) (int64, error) { return j.take(f, j.Ranges[i]) })
}

// files takes whole files, one after another or by several threads; opening counts.
func (j job) files() (result, error) {
	return j.parallel(len(j.Paths), func(i int) (int64, error) {
		f, size, err := j.open(j.Paths[i])
		if err != nil {
			return 0, err
		}
		defer f.Close()
		if j.Size > 0 {
			size = min(size, j.Size)
		}
		return j.take(f, span{0, size})
	})
}

// parallel does n parts by j.Threads threads, each timed.
func (j job) parallel(n int, part func(i int) (int64, error)) (result, error) {
	var mu sync.Mutex // guards all below
	next, total := 0, int64(0)
	parts, errs := make([]float64, n), []error(nil)
	work := func() {
		for {
			mu.Lock()
			i := next
			next++
			mu.Unlock()
			if i >= n {
				return
			}
			start := time.Now()
			k, err := part(i)
			mu.Lock()
			parts[i] = time.Since(start).Seconds()
			if total += k; err != nil {
				errs = append(errs, err)
			}
			mu.Unlock()
		}
	}
	return j.timed(func(r *result) (int64, error) {
		var wait sync.WaitGroup
		for range max(1, j.Threads) {
			wait.Go(work)
		}
		wait.Wait()
		r.Parts = parts
		return total, errors.Join(errs...)
	})
}

// shuffled is 0..n-1 in an order that depends on the seed alone.
func shuffled(n int, seed uint64) []int {
	return rand.New(rand.NewPCG(seed, 0)).Perm(n)
}

// quantile is the q-th quantile of values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 && n > 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return quantile(values, 0.5)
}
