package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weightfs/fs/plan"
	"weightfs/sources"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noise is what the bytes of all fake files are cut from. Its length is a prime, so that no two cells of a file are alike.
var noise = sync.OnceValue(func() []byte {
	p := make([]byte, 1_000_003)
	rand.NewChaCha8([32]byte{1}).Read(p)
	return p
})

// fill writes the bytes of a file from off: a function of the seed and the offset alone.
func fill(p []byte, seed uint64, off int64) {
	from := noise()
	at := int(seed%1000*7919+uint64(off)) % len(from)
	for len(p) > 0 {
		n := copy(p, from[at:])
		p, at = p[n:], 0
	}
}

func content0(seed uint64, n int64) []byte {
	p := make([]byte, n)
	fill(p, seed, 0)
	return p
}

// fakeFile is one file of a fakeSource.
type fakeFile struct {
	path  string
	size  int64
	seed  uint64
	data  []byte // instead of the function of seed
	named bool   // has an ID
	sha   bool   // whose ID is the SHA-256 that the listing has
	local bool
	id    sources.ID // instead of the one derived from path
}

// fakeSource is a source in memory that notes every request.
type fakeSource struct {
	files    []fakeFile
	name     string // of the listing
	revision string
	// fault, if set, is asked before each request: it may fail it, or let only so many bytes through before cut.
	fault func(path string, off, n int64) (give int64, err error)
	// gate, if set, is called before each request is answered.
	gate func(ctx context.Context, path string, off, n int64)
	// latency passes before the first byte of an answer, pace for each byte.
	latency, pace time.Duration

	mu       sync.Mutex // guards below
	requests []request
	opens    map[string]int
	closed   int
	// once, if set, fails the test when a cell is asked for that was asked for before.
	once  testing.TB
	asked map[string]bool
}

type request struct {
	path       string
	start, end int64
}

func (r request) String() string { return fmt.Sprintf("%s [%d, %d)", r.path, r.start, r.end) }

func newFake(files ...fakeFile) *fakeSource {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b fakeFile) int { return strings.Compare(a.path, b.path) })
	for i := range files {
		if files[i].seed == 0 {
			files[i].seed = uint64(i + 1)
		}
		if files[i].data != nil {
			files[i].size = int64(len(files[i].data))
		}
	}
	return &fakeSource{files: files, opens: map[string]int{}}
}

func (s *fakeSource) List(context.Context) (*sources.Listing, error) {
	l := &sources.Listing{Name: s.name, Revision: s.revision, Complete: true}
	for _, f := range s.files {
		e := sources.Entry{Path: f.path, Size: f.size}
		if f.sha {
			sum := sha256.Sum256(f.bytes(0, f.size))
			e.SHA256 = hex.EncodeToString(sum[:])
		}
		l.Files = append(l.Files, e)
	}
	return l, nil
}

func (s *fakeSource) listing() *sources.Listing {
	l, _ := s.List(context.Background())
	return l
}

func (s *fakeSource) Open(_ context.Context, path string) (sources.Blob, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.files {
		if s.files[i].path == path {
			s.opens[path]++
			b := &fakeBlob{s, &s.files[i]}
			if s.files[i].local {
				return fakeLocal{b}, nil
			}
			return b, nil
		}
	}
	return nil, &sources.Error{Op: "open", Path: path, Err: sources.ErrNotFound}
}

// take returns the requests since the last call.
func (s *fakeSource) take() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

func (f *fakeFile) bytes(off, n int64) []byte {
	if f.data != nil {
		return f.data[off : off+n]
	}
	p := make([]byte, n)
	fill(p, f.seed, off)
	return p
}

type fakeBlob struct {
	s *fakeSource
	f *fakeFile
}

func (b *fakeBlob) Size() int64 { return b.f.size }

func (b *fakeBlob) ID() sources.ID {
	switch {
	case b.f.id != sources.ID{}:
		return b.f.id
	case b.f.sha:
		return sha256.Sum256(b.f.bytes(0, b.f.size))
	case b.f.named:
		return sha256.Sum256([]byte("id:" + b.f.path))
	}
	return sources.ID{}
}

func (b *fakeBlob) Close() error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.closed++
	return nil
}

func (b *fakeBlob) Stream(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n <= 0 || off+n > b.f.size {
		return nil, fmt.Errorf("stream of [%d, %d) of %d bytes", off, off+n, b.f.size)
	}
	b.s.mu.Lock()
	b.s.requests = append(b.s.requests, request{b.f.path, off, off + n})
	b.s.checkOnce(b.f.path, off, n)
	b.s.mu.Unlock()
	if b.s.gate != nil {
		b.s.gate(ctx, b.f.path, off, n)
	}
	time.Sleep(b.s.latency)
	give, fail := n, error(nil)
	if b.s.fault != nil {
		if give, fail = b.s.fault(b.f.path, off, n); fail != nil && give == 0 {
			return nil, fail
		}
	}
	var r io.Reader = &fillReader{f: b.f, off: off, left: give, pace: b.s.pace}
	if fail != nil {
		r = io.MultiReader(r, failing{fail})
	}
	return io.NopCloser(r), nil
}

// checkOnce notes the cells of a request. s.mu is held.
func (s *fakeSource) checkOnce(path string, off, n int64) {
	if s.once == nil {
		return
	}
	if s.asked == nil {
		s.asked = map[string]bool{}
	}
	for i := off >> cellLog2; i<<cellLog2 < off+n; i++ {
		key := fmt.Sprint(path, " ", i)
		if s.asked[key] {
			s.once.Errorf("cell %s was asked for again", key)
		}
		s.asked[key] = true
	}
}

// fillReader yields bytes in pieces as odd as a network's.
type fillReader struct {
	f         *fakeFile
	off, left int64
	pace      time.Duration
}

func (r *fillReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.left, 100_003)]
	time.Sleep(time.Duration(len(p)) * r.pace)
	copy(p, r.f.bytes(r.off, int64(len(p))))
	r.off, r.left = r.off+int64(len(p)), r.left-int64(len(p))
	return len(p), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// fakeLocal is a blob that is a local file.
type fakeLocal struct{ *fakeBlob }

func (b fakeLocal) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, b.f.bytes(off, int64(len(p))))
	return nil
}
func (b fakeLocal) Fd() uintptr { return 0 }

var errPassing = fmt.Errorf("%w: connection reset", sources.ErrTemporary)

// newCache opens a cache that ends with the test.
func newCache(t testing.TB, o Options) *Cache {
	t.Helper()
	if o.Memory == 0 {
		o.Memory = 64 << 20
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCache(t, c) })
	return c
}

// closeCache closes a cache and checks that it holds nothing any more.
func closeCache(t testing.TB, c *Cache) {
	t.Helper()
	c.mem.mu.Lock()
	closed := c.mem.arena.mem == nil
	c.mem.mu.Unlock()
	if closed {
		return
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if s := c.Stats(); s.MemoryUsed != 0 {
		t.Errorf("after close %d bytes of memory are in use", s.MemoryUsed)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func ctxb() context.Context { return context.Background() }

// readBack gathers one span and compares it with the truth.
func readBack(ctx context.Context, f *Files, s *fakeSource, file int, start, end int64, ahead ...plan.Span) error {
	p := make([]byte, end-start)
	if err := f.Gather(ctx, []plan.Read{{Span: plan.Span{File: file, Start: start, End: end}, Dst: p}}, ahead); err != nil {
		return err
	}
	if !bytes.Equal(p, s.files[file].bytes(start, end-start)) {
		return fmt.Errorf("wrong bytes in %s [%d, %d)", s.files[file].path, start, end)
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantRequests(t testing.TB, s *fakeSource, want ...request) {
	t.Helper()
	got := s.take()
	slices.SortFunc(got, func(a, b request) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(want, func(a, b request) int { return strings.Compare(a.String(), b.String()) })
	if !slices.Equal(got, want) {
		t.Errorf("requests:\n  got  %v\n  want %v", got, want)
	}
}

func span(file int, start, end int64) plan.Span { return plan.Span{File: file, Start: start, End: end} }

// isErr fails unless err is target.
func isErr(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("got error %v, want %v", err, target)
	}
}

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// forget drops every cell of memory that is not in use.
func forget(c *Cache) {
	c.mem.mu.Lock()
	defer c.mem.mu.Unlock()
	for c.mem.idle[0]+c.mem.idle[1] > 0 {
		c.mem.evict()
	}
}

// goRead starts a reader of [start, end) of the first file, in a bubble, and lets it come as far as it gets.
func goRead(t *testing.T, readers *sync.WaitGroup, f *Files, src *fakeSource, start, end int64) {
	readers.Go(func() {
		if err := readBack(ctxb(), f, src, 0, start, end); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}
