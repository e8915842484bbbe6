package cache

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// TestGolden runs scripts of reads and compares the requests that reached the source, in the order in which they started, with
// testdata/<name>.txt. A line is a command; the lines after it that begin with a tab are what it did:
//
//	file NAME SIZE            a file of the release; these come first, sorted by name
//	memory SIZE               the budget
//	read SPAN... [ahead SPAN...]   one gather; SPAN is NAME:START+LENGTH
//	restart                   close the cache and open it again on the same directory
//	forget                    drop what is in memory
//
// Numbers take the suffixes K and M.
func TestGolden(t *testing.T) {
	paths, _ := filepath.Glob("testdata/*.txt")
	if len(paths) == 0 {
		t.Fatal("no scripts")
	}
	for _, p := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(p), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(p)
			must(t, err)
			var got string
			synctest.Test(t, func(t *testing.T) { got = runScript(t, string(raw)) })
			if *update {
				must(t, os.WriteFile(p, []byte(got), 0o644))
			} else if got != string(raw) {
				t.Errorf("the script's output changed (-update rewrites it):\n%s", got)
			}
		})
	}
}

type script struct {
	t     *testing.T
	opt   Options
	src   *fakeSource
	cache *Cache
	files *Files
	asker *Asker
}

func runScript(t *testing.T, text string) string {
	s := &script{t: t, opt: Options{Dir: t.TempDir(), Size: 1 << 40, Memory: 256 << 20, Fetches: 1}}
	s.src = newFake()
	var out strings.Builder
	for in := bufio.NewScanner(strings.NewReader(text)); in.Scan(); {
		if line := in.Text(); !strings.HasPrefix(line, "\t") {
			fmt.Fprintln(&out, line)
			if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
				s.run(f, &out)
			}
		}
	}
	if s.cache != nil {
		closeCache(t, s.cache)
	}
	return out.String()
}

func (s *script) run(f []string, out *strings.Builder) {
	switch f[0] {
	case "file":
		s.src.files = append(s.src.files, fakeFile{path: f[1], size: number(s.t, f[2]), named: true, seed: uint64(len(s.src.files) + 1)})
	case "memory":
		s.opt.Memory = number(s.t, f[1])
	case "restart":
		closeCache(s.t, s.cache)
		s.open()
	case "forget":
		forget(s.cache)
	case "read":
		if s.cache == nil {
			s.open()
		}
		s.read(f[1:], out)
	default:
		s.t.Fatalf("command %q", f[0])
	}
}

func (s *script) open() {
	c, err := New(s.opt)
	must(s.t, err)
	if s.opt.Memory >= 128<<20 {
		s.src.once = s.t
	}
	s.cache, s.files = c, c.Release(s.src, s.src.listing())
	if s.asker == nil {
		sizes := make([]int64, len(s.src.files))
		for i, f := range s.src.files {
			sizes[i] = f.size
		}
		s.asker = NewAsker(sizes)
	}
}

func (s *script) read(words []string, out *strings.Builder) {
	var reads []plan.Read
	var demanded, ahead []plan.Span
	isAhead := false
	for _, w := range words {
		if w == "ahead" {
			isAhead = true
			continue
		}
		x := s.span(w)
		if isAhead {
			ahead = append(ahead, x)
		} else {
			demanded = append(demanded, x)
			reads = append(reads, plan.Read{Span: x, Dst: make([]byte, x.Len())})
		}
	}
	must(s.t, s.files.Gather(context.Background(), reads, ahead))
	synctest.Wait()
	for _, r := range reads {
		if !bytes.Equal(r.Dst, s.src.files[r.Span.File].bytes(r.Span.Start, r.Span.Len())) {
			s.t.Errorf("wrong bytes for %v", r.Span)
		}
	}
	got := s.src.take()
	for _, r := range got {
		fmt.Fprintf(out, "\t%s [%s, %s)\n", r.path, cellsText(r.start), cellsText(r.end))
	}
	s.compare(s.asker.Ask(demanded, ahead), got)
}

// compare holds the requests against those that explain would print; a script with little memory may send fewer.
func (s *script) compare(want []plan.Span, got []request) {
	if s.opt.Memory < 128<<20 {
		return
	}
	var a, b []string
	for _, x := range want {
		a = append(a, request{s.src.files[x.File].path, x.Start, x.End}.String())
	}
	for _, r := range got {
		b = append(b, r.String())
	}
	if strings.Join(a, " ") != strings.Join(b, " ") {
		s.t.Errorf("requests are not what the Asker says:\n  got   %v\n  asker %v", b, a)
	}
}

// cellsText writes an offset in cells: 3c, or 3c+17 bytes.
func cellsText(n int64) string {
	if n%cellSize == 0 {
		return fmt.Sprintf("%dc", n/cellSize)
	}
	return fmt.Sprintf("%dc+%d", n/cellSize, n%cellSize)
}

func (s *script) span(w string) plan.Span {
	name, rest, _ := strings.Cut(w, ":")
	from, n, _ := strings.Cut(rest, "+")
	for i, f := range s.src.files {
		if f.path == name {
			start := number(s.t, from)
			return span(i, start, start+number(s.t, n))
		}
	}
	s.t.Fatalf("no file %q", name)
	return plan.Span{}
}

func number(t *testing.T, s string) int64 {
	shift := 0
	if rest, ok := strings.CutSuffix(s, "M"); ok {
		s, shift = rest, 20
	} else if rest, ok := strings.CutSuffix(s, "K"); ok {
		s, shift = rest, 10
	}
	n, err := strconv.ParseInt(s, 10, 64)
	must(t, err)
	return n << shift
}

// TestRuns cuts one gather into requests.
func TestRuns(t *testing.T) {
	sizes := []int64{400 << 20, 1000}
	got := Runs(sizes, []plan.Span{span(1, 5, 6), span(0, 3<<20+1, 3<<20+2), span(0, 3<<20+128<<10, 10<<20), span(1, 0, 0)})
	want := []plan.Span{span(0, 3<<20, 6<<20), span(0, 6<<20, 8<<20), span(0, 8<<20, 10<<20), span(1, 0, 1000)}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, x := range []struct{ size, run, n int64 }{{2 << 20, 2 << 20, 1}, {17 << 20, 2 << 20, 9}, {60 << 20, 4 << 20, 15}, {400 << 20, 8 << 20, 50}} {
		if got := Runs(sizes, []plan.Span{span(0, 0, x.size)}); len(got) != int(x.n) || got[0] != span(0, 0, x.run) {
			t.Errorf("%d MiB: %d runs, the first %v; want %+v", x.size>>20, len(got), got[0], x)
		}
	}
	if got := NewAsker(sizes).Ask(nil, []plan.Span{span(0, 0, 17<<20)}); len(got) != 3 {
		t.Errorf("ahead: %v", got)
	}
	if got := Runs(sizes, nil); len(got) != 0 {
		t.Errorf("nothing gives %v", got)
	}
}

// TestJoin has many readers of one cell: one request, and the bytes arrive at all of them.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 1 << 20})
		release := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-release }
		c := newCache(t, Options{})
		f := c.Release(src, src.listing())
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if err := readBack(ctxb(), f, src, 0, int64(i)*1000, int64(i)*1000+500); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		wantRequests(t, src, request{"a", 0, cellSize})
		if src.opens["a"] != 1 {
			t.Errorf("opened %d times", src.opens["a"])
		}
	})
}

// TestReaderGone ends the context of the reader that started a fetch: those who joined still get their bytes.
func TestReaderGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 1 << 20})
		release := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-release }
		c := newCache(t, Options{})
		f := c.Release(src, src.listing())
		ctx, cancel := context.WithCancel(ctxb())
		first := make(chan error, 1)
		go func() { first <- readBack(ctx, f, src, 0, 0, 10) }()
		synctest.Wait()
		second := make(chan error, 1)
		go func() { second <- readBack(ctxb(), f, src, 0, 5, 20) }()
		synctest.Wait()
		cancel()
		isErr(t, <-first, context.Canceled)
		close(release)
		must(t, <-second)
		wantRequests(t, src, request{"a", 0, cellSize})
	})
}

// TestWakeAsCellsArrive lets one cell of a long run through: its reader returns while the rest is still on its way.
func TestWakeAsCellsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 2 << 20})
		stall := make(chan struct{})
		src.fault = func(_ string, off, n int64) (int64, error) {
			if off == 0 {
				return 2*cellSize + 5, errPassing
			}
			<-stall
			return n, nil
		}
		c := newCache(t, Options{})
		f := c.Release(src, src.listing())
		must(t, readBack(ctxb(), f, src, 0, 100, 200, span(0, 0, 2<<20)))
		must(t, readBack(ctxb(), f, src, 0, cellSize, 2*cellSize))
		synctest.Wait()
		wantRequests(t, src, request{"a", 0, 2 << 20}, request{"a", 2 * cellSize, 2 << 20})
		close(stall)
		must(t, readBack(ctxb(), f, src, 0, 1<<20, 2<<20))
		wantRequests(t, src)
		if s := c.Stats(); s.Requests != 2 || s.Retries != 1 || s.BytesFetched != 2<<20+5 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestDeadline has a range that never answers: one deadline, then its error at once for a while, then another try.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 8 << 20})
		var healed atomic.Bool
		src.fault = func(_ string, off, n int64) (int64, error) {
			if healed.Load() {
				return n, nil
			}
			return 0, errPassing
		}
		c := newCache(t, Options{Deadline: 20 * time.Second, Bad: 3 * time.Second})
		f := c.Release(src, src.listing())
		start := time.Now()
		isErr(t, readBack(ctxb(), f, src, 0, 0, 10, span(0, 0, 4<<20)), sources.ErrTemporary)
		if d := time.Since(start); d < 20*time.Second || d > 21*time.Second {
			t.Errorf("failed after %v", d)
		}
		src.take()
		for _, at := range []int64{0, 5, 4<<20 - 10} {
			isErr(t, readBack(ctxb(), f, src, 0, at, at+10), sources.ErrTemporary)
		}
		if d := time.Since(start); d > 21*time.Second {
			t.Errorf("the cells of a dead range took another %v", d-20*time.Second)
		}
		wantRequests(t, src)
		healed.Store(true)
		must(t, readBack(ctxb(), f, src, 0, 4<<20, 4<<20+10))
		time.Sleep(3 * time.Second)
		must(t, readBack(ctxb(), f, src, 0, 0, 10))
	})
}

// TestSlowIsNotDead has a server that sends one cell in most of a deadline, for many deadlines.
func TestSlowIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 1 << 20})
		src.gate = func(context.Context, string, int64, int64) { time.Sleep(8 * time.Second) }
		src.fault = func(_ string, _, n int64) (int64, error) {
			if n > cellSize {
				return cellSize, errPassing
			}
			return n, nil
		}
		c := newCache(t, Options{Deadline: 10 * time.Second})
		must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, 1<<20))
	})
}

// TestErrors passes errors of a source on, and remembers for ever only that the file changed.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		err    error
		sticky bool
	}{{sources.ErrDenied, false}, {sources.ErrNotFound, false}, {sources.ErrChanged, true}, {errors.New("odd"), false}} {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(fakeFile{path: "a", size: 1 << 20}, fakeFile{path: "b", size: 1 << 20})
			src.fault = func(string, int64, int64) (int64, error) { return 0, test.err }
			c := newCache(t, Options{})
			f := c.Release(src, src.listing())
			isErr(t, readBack(ctxb(), f, src, 0, 0, 10), test.err)
			src.fault = nil
			time.Sleep(time.Hour)
			err := readBack(ctxb(), f, src, 0, cellSize, cellSize+10)
			if got := errors.Is(err, test.err); got != test.sticky {
				t.Errorf("%v: an hour later another cell says %v", test.err, err)
			}
			must(t, readBack(ctxb(), f, src, 1, 0, 10))
		})
	}
}

// TestShortBody has a source that ends a body early and calls that a success: the bytes are asked for again, never made up.
func TestShortBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 1 << 20})
		tries := 0
		src.fault = func(_ string, _, n int64) (int64, error) {
			if tries++; tries < 4 {
				return n - 1, nil
			}
			return n, nil
		}
		c := newCache(t, Options{})
		must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, 1<<20))
	})
}

// TestLocal reads local files in place: no cell is made.
func TestLocal(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 1 << 20, local: true}, fakeFile{path: "b", size: 1 << 20})
	c := newCache(t, Options{})
	f := c.Release(src, src.listing())
	pa, pb := make([]byte, 1000), make([]byte, 1000)
	must(t, f.Gather(ctxb(), []plan.Read{{Span: span(0, 5, 1005), Dst: pa}, {Span: span(1, 7, 1007), Dst: pb}}, []plan.Span{span(0, 0, 1<<20)}))
	if !bytes.Equal(pa, src.files[0].bytes(5, 1000)) || !bytes.Equal(pb, src.files[1].bytes(7, 1000)) {
		t.Error("wrong bytes")
	}
	wantRequests(t, src, request{"b", 0, cellSize})
	if s := c.Stats(); s.BytesLocal != 1000 || s.MemoryUsed != cellSize {
		t.Errorf("stats %+v", s)
	}
}

// TestBadSpans refuses spans that are not in the release.
func TestBadSpans(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 1000})
	c := newCache(t, Options{})
	f := c.Release(src, src.listing())
	for _, s := range []plan.Span{span(1, 0, 1), span(-1, 0, 1), span(0, -1, 1), span(0, 5, 4), span(0, 0, 1001)} {
		if err := f.Gather(ctxb(), []plan.Read{{Span: s, Dst: make([]byte, max(0, s.Len()))}}, nil); err == nil {
			t.Errorf("%v was read", s)
		}
		if err := f.Gather(ctxb(), nil, []plan.Span{s}); err == nil {
			t.Errorf("%v was asked for ahead", s)
		}
	}
	if err := f.Gather(ctxb(), []plan.Read{{Span: span(0, 0, 10), Dst: make([]byte, 9)}}, nil); err == nil {
		t.Error("a short buffer was accepted")
	}
	must(t, f.Gather(ctxb(), []plan.Read{{Span: span(0, 1000, 1000)}}, nil))
}

// TestTinyBudget has 64 streams on a budget of 8 MiB, each asking for far more ahead than fits: all finish with the right bytes.
func TestTinyBudget(t *testing.T) {
	const streams, size = 64, 2 << 20
	var files []fakeFile
	for i := range streams {
		files = append(files, fakeFile{path: fmt.Sprintf("f%02d", i), size: size})
	}
	src := newFake(files...)
	src.gate = func(context.Context, string, int64, int64) { time.Sleep(20 * time.Millisecond) }
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, Options{Memory: 8 << 20})
		f := c.Release(src, src.listing())
		var wg sync.WaitGroup
		for i := range streams {
			wg.Go(func() {
				const step = 1 << 20
				for off := int64(0); off < size; off += step {
					if err := readBack(ctxb(), f, src, i, off, off+step, span(i, 0, size)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := c.Stats(); got.MemoryUsed > 8<<20 || got.Waiting != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}

// TestLargeGather reads more at once than the budget has.
func TestLargeGather(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 20<<20 + 17})
	c := newCache(t, Options{Memory: 8 << 20})
	must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 3, 20<<20+17, span(0, 0, 20<<20)))
}

// TestWaitForMemory ends a reader that waits for memory, and lets the others go on in their order.
func TestWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 64 << 20})
		release := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-release }
		c := newCache(t, Options{Memory: 8 << 20})
		f := c.Release(src, src.listing())
		var wg sync.WaitGroup
		read := func(ctx context.Context, i int64) (err error) {
			return readBack(ctx, f, src, 0, i<<21, (i+1)<<21)
		}
		for i := range int64(4) { // all of the memory
			wg.Go(func() { must(t, read(ctxb(), i)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(ctxb())
		gone := make(chan error, 1)
		go func() { gone <- read(ctx, 4) }()
		synctest.Wait()
		wg.Go(func() { must(t, read(ctxb(), 5)) })
		synctest.Wait()
		if n := c.Stats().Waiting; n != 2 {
			t.Errorf("%d gathers wait", n)
		}
		cancel()
		isErr(t, <-gone, context.Canceled)
		close(release)
		wg.Wait()
		for _, r := range src.take() {
			if r.start == 4<<21 {
				t.Error("the reader that left was served")
			}
		}
	})
}

// TestPrefetchTakesWhatIsFree never waits for ahead, and never takes memory of what is being read.
func TestPrefetchTakesWhatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 64 << 20})
		c := newCache(t, Options{Memory: 8 << 20})
		f := c.Release(src, src.listing())
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 64<<20)}))
		synctest.Wait()
		if s := c.Stats(); s.Ahead != 2<<20 || s.MemoryUsed != 2<<20 {
			t.Errorf("ahead holds %d of %d bytes, a quarter of the budget is 2 MiB", s.Ahead, s.MemoryUsed)
		}
		src.take()
		// What found no memory is fetched as soon as a reader has taken what was there; nothing else is then.
		must(t, readBack(ctxb(), f, src, 0, 0, 2<<20-1))
		synctest.Wait()
		wantRequests(t, src, request{"a", 2 << 20, 4 << 20})
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 32<<20, 64<<20)}))
		synctest.Wait()
		wantRequests(t, src)
		// What nobody came for is given up after a while.
		time.Sleep(2 * stale)
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 48<<20, 64<<20)}))
		synctest.Wait()
		if got := src.take(); len(got) == 0 {
			t.Error("stale cells stop prefetch for ever")
		}
	})
}

// TestDemandIsFirst: what readers ask for starts at once, up to the limit, whatever is fetched ahead, and before anything that still waits for that; of which
// no more starts until a connection is free again.
func TestDemandIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 100 * mib})
		answer := map[int64]chan struct{}{}
		for off := int64(0); off < 100; off++ {
			answer[off*mib] = make(chan struct{})
		}
		src.gate = func(_ context.Context, _ string, off, _ int64) { <-answer[off] }
		c := newCache(t, Options{Memory: 512 * mib, Fetches: 4})
		f := c.Release(src, src.listing())
		var readers sync.WaitGroup
		read := func(at int64) { goRead(t, &readers, f, src, at*mib, at*mib+cellSize) }
		end := func(at int64) { close(answer[at*mib]); synctest.Wait() }
		cell := func(at int64) request { return request{"a", at * mib, at*mib + cellSize} }

		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 48*mib)}))
		synctest.Wait()
		wantRequests(t, src, request{"a", 0, 8 * mib}, request{"a", 8 * mib, 16 * mib}, request{"a", 16 * mib, 24 * mib})
		read(60)
		read(62)
		read(40) // of the last run that is to be fetched ahead, which came before
		read(64)
		wantRequests(t, src, request{"a", 40 * mib, 48 * mib}, cell(60), cell(62), cell(64))
		read(66) // as many as there may be are wanted now
		end(8)
		wantRequests(t, src)
		end(60)
		wantRequests(t, src, cell(66))
		for _, at := range []int64{0, 16, 62} {
			end(at)
		}
		wantRequests(t, src)
		end(64)
		wantRequests(t, src, request{"a", 24 * mib, 32 * mib})
		end(66)
		wantRequests(t, src, request{"a", 32 * mib, 40 * mib})
		for _, at := range []int64{24, 32, 40} {
			end(at)
		}
		readers.Wait()
	})
}

// TestSmallBudgetStreams: with less memory than a stream asks for ahead, it goes on asking as memory is read, so that it is not left with one connection.
func TestSmallBudgetStreams(t *testing.T) {
	const mib = 1 << 20
	for _, x := range []struct {
		memory      int64
		connections int // that as many bytes take as long with, at least
	}{{2048 * mib, 12}, {768 * mib, 12}, {384 * mib, 9}, {192 * mib, 6}, {48 * mib, 3}} {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(fakeFile{path: "a", size: 1 << 30})
			src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
			f := newCache(t, Options{Memory: x.memory}).Release(src, src.listing())
			r, p := plan.NewReader(f, 0), plan.New(plan.Copy{Span: span(0, 0, 1<<30)})
			buf := make([]byte, mib/8)
			start := time.Now()
			for off := int64(0); off < 1<<30; off += mib / 8 {
				if _, err := r.ReadAt(ctxb(), p, buf, off); err != nil {
					t.Fatal(err)
				}
			}
			alone := time.Duration(1<<30) * 20
			if n := float64(alone) / float64(time.Since(start)); n < float64(x.connections) {
				t.Errorf("%d MiB: as fast as %.1f connections, not %d", x.memory/mib, n, x.connections)
			}
		})
	}
}

// TestDrop: what was asked for ahead and waits for a connection is given up, but for runs that a reader waits for or that were asked for again; it
// can be asked for anew.
func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 100 * mib})
		open := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-open }
		c := newCache(t, Options{Memory: 512 * mib, Fetches: 2})
		f := c.Release(src, src.listing())
		ahead := func(start, end int64) {
			must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, start, end)}))
			synctest.Wait()
		}
		run := func(at int64) request { return request{"a", at * mib, at*mib + 8*mib} }

		ahead(0, 64*mib)
		var readers sync.WaitGroup
		for _, at := range []int64{80, 90, 24} { // no more than two that are wanted are under way
			goRead(t, &readers, f, src, at*mib, at*mib+cellSize)
		}
		wantRequests(t, src, run(0), request{"a", 80 * mib, 80*mib + cellSize}, request{"a", 90 * mib, 90*mib + cellSize})
		ahead(40*mib, 48*mib)                                             // by another stream
		f.Drop([]plan.Span{span(0, 0, 60*mib), span(0, 70*mib, 100*mib)}) // not all of the last run
		f.Drop([]plan.Span{span(0, 5, 5), {File: 7, Start: 0, End: 1}})
		if s := c.Stats(); s.Ahead != 32*mib-mib/8 {
			t.Errorf("%d bytes are on their way ahead", s.Ahead)
		}
		close(open)
		synctest.Wait()
		readers.Wait()
		wantRequests(t, src, run(24), run(40), run(56))
		ahead(0, 64*mib)
		wantRequests(t, src, run(8), run(16), run(32), run(48))
	})
}

// TestDropNeighbours: a cell that two units have in common is no reason to keep what was asked for with it.
func TestDropNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 32 * mib})
		open := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-open }
		f := newCache(t, Options{Memory: 512 * mib, Fetches: 2}).Release(src, src.listing())
		for _, s := range []plan.Span{span(0, 0, 12*mib+1), span(0, 12*mib+1, 20*mib)} {
			must(t, f.Gather(ctxb(), nil, []plan.Span{s}))
			synctest.Wait()
		}
		f.Drop([]plan.Span{span(0, 8*mib, 20*mib)})
		close(open)
		synctest.Wait()
		wantRequests(t, src, request{"a", 0, 8 * mib})
	})
}

// TestDropFreesMemory: a reader who waits for memory gets what is given up.
func TestDropFreesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 32 * mib})
		open := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-open }
		c := newCache(t, Options{Memory: 8 * mib, Fetches: 2})
		f := c.Release(src, src.listing())
		var readers sync.WaitGroup
		read := func(start, end int64) { goRead(t, &readers, f, src, start, end) }
		read(0, 2*mib)
		read(2*mib, 4*mib) // both connections are taken
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 16*mib, 18*mib)}))
		read(4*mib, 6*mib) // all memory is taken
		read(6*mib, 6*mib+1)
		waiting := func() int { c.mem.mu.Lock(); defer c.mem.mu.Unlock(); return len(c.mem.queue) }
		if n := waiting(); n != 1 {
			t.Fatalf("%d readers wait for memory, want 1", n)
		}
		f.Drop([]plan.Span{span(0, 16*mib, 18*mib)})
		if n := waiting(); n != 0 {
			t.Errorf("%d readers wait for memory that was given up", n)
		}
		close(open)
		readers.Wait()
	})
}

// TestDropPostponed: what waits for memory is given up as well.
func TestDropPostponed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 64 * mib})
		c := newCache(t, Options{Memory: 8 * mib})
		f := c.Release(src, src.listing())
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 16*mib)}))
		synctest.Wait()
		wantRequests(t, src, request{"a", 0, 2 * mib})
		f.Drop([]plan.Span{span(0, 2*mib, 16*mib)})
		must(t, readBack(ctxb(), f, src, 0, 0, 2*mib))
		must(t, readBack(ctxb(), f, src, 0, 2*mib, 2*mib+cellSize))
		synctest.Wait()
		wantRequests(t, src, request{"a", 2 * mib, 2*mib + cellSize})
	})
}

// TestJump: a reader of a whole file who goes elsewhere, to stay there or not, leaves no more behind than what is under way, and finds the rest again when it
// returns.
func TestJump(t *testing.T) {
	const mib, fetches = 1 << 20, 4
	for name, reads := range map[string][]int64{"here and there": {700 * mib, 900 * mib, 800 * mib}, "to stay": {700 * mib, 700*mib + 4096}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(fakeFile{path: "a", size: 1 << 30})
				src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
				f := newCache(t, Options{Memory: 2 << 30, Fetches: fetches}).Release(src, src.listing())
				r, p := plan.NewReader(f, 0), plan.New(plan.Copy{Span: span(0, 0, 1<<30)})
				read := func(off, n int64) {
					got, want := make([]byte, n), make([]byte, n)
					if _, err := r.ReadAt(ctxb(), p, got, off); err != nil {
						t.Fatal(err)
					}
					if fill(want, 1, off); !bytes.Equal(got, want) {
						t.Fatalf("wrong bytes at %d", off)
					}
				}
				sequential := func(from, to int64) {
					for off := from; off < to; off += mib / 8 {
						read(off, mib/8)
					}
				}
				sequential(0, 64*mib)
				time.Sleep(10 * time.Millisecond)
				src.take()
				var cells []request
				for _, off := range reads {
					start, cell := time.Now(), off/cellSize*cellSize
					read(off, 4096)
					if took := time.Since(start); took > 30*time.Millisecond {
						t.Errorf("a lone read waits %v", took)
					}
					if len(cells) == 0 || cells[len(cells)-1].start != cell {
						cells = append(cells, request{"a", cell, cell + cellSize})
					}
				}
				time.Sleep(time.Minute)
				wantRequests(t, src, cells...)
				sequential(64*mib, 320*mib)
				time.Sleep(time.Minute)
				total := int64(0)
				for _, r := range src.take() {
					total += r.end - r.start
				}
				if total < 568*mib || total > 640*mib {
					t.Errorf("%d MiB are fetched for a reader of 256 who reads 384 ahead, some of which were there", total/mib)
				}
			})
		})
	}
}

// TestClose ends readers that wait, and fails those who come later.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 1 << 20})
		src.gate = func(ctx context.Context, _ string, _, _ int64) { <-ctx.Done() }
		src.fault = func(string, int64, int64) (int64, error) { return 0, errPassing }
		c := newCache(t, Options{})
		f := c.Release(src, src.listing())
		got := make(chan error, 1)
		go func() { got <- readBack(ctxb(), f, src, 0, 0, 10) }()
		synctest.Wait()
		must(t, c.Close())
		isErr(t, <-got, ErrClosed)
		isErr(t, readBack(ctxb(), f, src, 0, 0, 10), ErrClosed)
		if src.closed != 1 {
			t.Errorf("%d blobs closed", src.closed)
		}
	})
}
