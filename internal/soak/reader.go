package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// readerEnv makes this program a reader.
const readerEnv = "WEIGHTFS_SOAK_READER"

// task is what a reader is told on its standard input.
type task struct {
	Mount, Truth string // directories with the same files
	Seed         uint64
	Lasts        time.Duration
}

// outcome is what a reader says on its standard output.
type outcome struct {
	Ops, Bytes int64
	Slowest    time.Duration // operation
	Wrong      []string      // bytes that were not the truth
	Faults     int64         // SIGBUS
	Failed     []string      // operations that failed, faults among them
}

// most is how many failures are told.
const most = 5

func readerMain(in io.Reader, out io.Writer) int {
	var t task
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		fmt.Fprintln(os.Stderr, "soak reader:", err)
		return 2
	}
	r := &reader{task: t, rnd: seeded(t.Seed), ways: operations}
	if err := r.find(); err != nil {
		fmt.Fprintln(os.Stderr, "soak reader:", err)
		return 2
	}
	r.read()
	if err := json.NewEncoder(out).Encode(r.outcome); err != nil {
		return 2
	}
	return 0
}

// reader does one random operation after another.
type reader struct {
	task
	outcome
	rnd   *rand.Rand
	ways  []operation
	names []string
}

// find lists what there is to read: every file of the truth.
func (r *reader) find() error {
	return filepath.WalkDir(r.Truth, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			name, _ := filepath.Rel(r.Truth, p)
			r.names = append(r.names, name)
		}
		return err
	})
}

func (r *reader) read() {
	r.guard()
	for began := time.Now(); time.Since(began) < r.Lasts && len(r.Wrong)+len(r.Failed) < most; {
		name, op := pick(r.rnd, r.names...), pick(r.rnd, r.ways...)
		start := time.Now()
		if err := r.try(name, op.do); err != nil {
			r.Failed = append(r.Failed, fmt.Sprintf("%s of %s: %v", op.name, name, err))
		}
		r.Ops++
		r.Slowest = max(r.Slowest, time.Since(start))
	}
}

// guard makes faults of this goroutine panics, which try survives.
func (r *reader) guard() { debug.SetPanicOnFault(true) }

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

var errFault = errors.New("SIGBUS")

// try does an operation on a file, in the mount and in the truth.
func (r *reader) try(name string, op func(*reader, *pair) error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			if _, ok := x.(interface{ Addr() uintptr }); !ok {
				panic(x)
			}
			r.Faults++
			err = errFault
		}
	}()
	p := &pair{name: name}
	if p.file, err = os.Open(filepath.Join(r.Mount, name)); err != nil {
		return err
	}
	defer p.file.Close()
	if p.truth, err = os.Open(filepath.Join(r.Truth, name)); err != nil {
		return err
	}
	defer p.truth.Close()
	got, err := p.file.Stat()
	if err != nil {
		return err
	}
	want, err := p.truth.Stat()
	if err != nil {
		return err
	}
	if p.size = want.Size(); got.Size() != p.size {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%s has %d bytes, want %d", name, got.Size(), p.size))
		return nil
	}
	return op(r, p)
}

// pair is a file of the mount and its truth.
type pair struct {
	name        string
	file, truth *os.File
	size        int64
}

// compare checks that got is what the truth has from off.
func (r *reader) compare(p *pair, got []byte, off int64) error {
	want := make([]byte, len(got))
	if _, err := p.truth.ReadAt(want, off); err != nil {
		return fmt.Errorf("reading the truth: %w", err)
	}
	r.Bytes += int64(len(got))
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	r.Wrong = append(r.Wrong, fmt.Sprintf("%s: [%d, %d): byte %d is %#x, want %#x", p.name, off, off+int64(len(got)), off+int64(i), got[i], want[i]))
	return nil
}

// span is a random range of the file: mostly short, sometimes long, sometimes at the end.
func (r *reader) span(p *pair) (off, n int64) {
	if p.size == 0 {
		return 0, 0
	}
	off = r.rnd.Int64N(p.size)
	if r.rnd.IntN(8) == 0 {
		off = max(0, p.size-1-r.rnd.Int64N(5000))
	}
	n = 1 + r.rnd.Int64N(pick[int64](r.rnd, 8, 5000, 200_000, 3<<20))
	return off, min(n, p.size-off)
}

type operation struct {
	name string
	do   func(*reader, *pair) error
}

// operations are the ways in which programs read files.
var operations = []operation{
	{"pread", (*reader).pread}, {"pread", (*reader).pread}, {"readv", (*reader).readv}, {"O_DIRECT", (*reader).direct},
	{"shared mapping", (*reader).shared}, {"private mapping", (*reader).private}, {"populated mapping", (*reader).populated},
	{"sendfile", (*reader).sendfile}, {"reading on", (*reader).stream}, {"reading at the end", (*reader).end},
}

func (r *reader) pread(p *pair) error {
	off, n := r.span(p)
	buf := make([]byte, n)
	if _, err := p.file.ReadAt(buf, off); err != nil {
		return err
	}
	return r.compare(p, buf, off)
}

// readv fills three buffers of odd lengths with one call.
func (r *reader) readv(p *pair) error {
	off, n := r.span(p)
	if n < 3 {
		return nil
	}
	buf := make([]byte, n)
	got, err := unix.Preadv(int(p.file.Fd()), [][]byte{buf[:n/3], buf[n/3 : n/3+1], buf[n/3+1:]}, off)
	if err != nil || int64(got) != n {
		return fmt.Errorf("%d of %d bytes: %w", got, n, err)
	}
	return r.compare(p, buf, off)
}

// direct reads past the page cache, mostly at offsets that are on no boundary.
func (r *reader) direct(p *pair) error {
	fd, err := unix.Open(p.file.Name(), unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	off, n := r.span(p)
	if r.rnd.IntN(3) == 0 {
		off &^= 4095
	}
	buf := make([]byte, n)
	got, err := unix.Pread(fd, buf, off)
	if err != nil || int64(got) != n {
		return fmt.Errorf("%d of %d bytes: %w", got, n, err)
	}
	return r.compare(p, buf, off)
}

// mapped maps the file and lets fn read from it.
func (r *reader) mapped(p *pair, prot, flags int, fn func(m []byte) error) error {
	if p.size == 0 {
		return nil
	}
	m, err := unix.Mmap(int(p.file.Fd()), 0, int(p.size), prot, flags)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer unix.Munmap(m)
	return fn(m)
}

// touch compares some ranges of a mapping.
func (r *reader) touch(p *pair, m []byte) error {
	for range 1 + r.rnd.IntN(8) {
		off, n := r.span(p)
		if err := r.copied(p, m, off, n); err != nil {
			return err
		}
	}
	return nil
}

// copied compares a range of a mapping, which it copies first: a fault is then one of this loop.
func (r *reader) copied(p *pair, m []byte, off, n int64) error {
	got := make([]byte, n)
	copy(got, m[off:off+n])
	return r.compare(p, got, off)
}

func (r *reader) shared(p *pair) error {
	return r.mapped(p, unix.PROT_READ, unix.MAP_SHARED, func(m []byte) error {
		if err := unix.Madvise(m, pick(r.rnd, unix.MADV_NORMAL, unix.MADV_RANDOM, unix.MADV_SEQUENTIAL, unix.MADV_WILLNEED)); err != nil {
			return err
		}
		return r.touch(p, m)
	})
}

// private writes to the mapping, which nobody else may see.
func (r *reader) private(p *pair) error {
	return r.mapped(p, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE, func(m []byte) error {
		i := r.rnd.IntN(len(m))
		m[i] ^= 0xFF
		m[i] ^= 0xFF
		if err := r.touch(p, m); err != nil {
			return err
		}
		m[i] ^= 0xFF
		return nil
	})
}

func (r *reader) populated(p *pair) error {
	return r.mapped(p, unix.PROT_READ, unix.MAP_SHARED, func(m []byte) error {
		off, n := r.span(p)
		from := off &^ 4095
		if err := unix.Madvise(m[from:off+n], unix.MADV_POPULATE_READ); err != nil {
			return fmt.Errorf("MADV_POPULATE_READ: %w", err)
		}
		return r.copied(p, m, off, n)
	})
}

func (r *reader) sendfile(p *pair) error {
	to, err := unix.MemfdCreate("soak", 0)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(to), "memory")
	defer out.Close()
	off, n := r.span(p)
	at := off
	for left := int(n); left > 0; {
		k, err := unix.Sendfile(to, int(p.file.Fd()), &at, left)
		if err != nil || k == 0 {
			return fmt.Errorf("%d bytes left: %w", left, err)
		}
		left -= k
	}
	got := make([]byte, n)
	if _, err := out.ReadAt(got, 0); err != nil && n > 0 {
		return err
	}
	return r.compare(p, got, off)
}

// stream reads from some place to the end, or for 4 MiB, as cat does.
func (r *reader) stream(p *pair) error {
	off, _ := r.span(p)
	if r.rnd.IntN(2) == 0 {
		off = 0
	}
	buf := make([]byte, pick(r.rnd, 4096, 65_537, 1<<20))
	for stop := off + 4<<20; off < min(stop, p.size); {
		n, err := p.file.ReadAt(buf, off)
		if err != nil && (err != io.EOF || off+int64(n) != p.size) {
			return err
		}
		if err := r.compare(p, buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// end reads over and past the end, where there is nothing.
func (r *reader) end(p *pair) error {
	off := max(0, p.size-r.rnd.Int64N(100))
	buf := make([]byte, 1000)
	for _, x := range []struct{ off, n int64 }{{off, p.size - off}, {p.size, 0}, {p.size + 4096, 0}, {1 << 50, 0}} {
		n, err := unix.Pread(int(p.file.Fd()), buf, x.off)
		if err != nil {
			return err
		}
		if int64(n) != x.n {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: %d bytes at %d, want %d", p.name, n, x.off, x.n))
			return nil
		}
		if err := r.compare(p, buf[:n], min(x.off, p.size)); err != nil {
			return err
		}
	}
	return nil
}
