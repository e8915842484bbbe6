package cache

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"weightfs/fs/plan"
)

// ledger counts how often each cell was delivered whole.
type ledger struct {
	mu    sync.Mutex
	rand  *rand.Rand
	fail  int // of 100 requests
	count map[string]int
}

// fault decides on a request: some fail, after any number of bytes.
func (l *ledger) fault(path string, off, n int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	give, err := n, error(nil)
	if l.rand.IntN(100) < l.fail {
		give, err = l.rand.Int64N(n+1), errPassing
	}
	for at := off; at < off+give; at += cellSize {
		if whole := min(at+cellSize, off+n); off+give >= whole {
			l.count[fmt.Sprint(path, " ", at>>cellLog2)]++
		}
	}
	return give, err
}

func (l *ledger) most() (cell string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, k := range l.count {
		if k > n {
			cell, n = c, k
		}
	}
	return cell, n
}

// scenario is what one check of TestGatherProperty does.
type scenario struct {
	opt     Options
	onDisk  bool
	seed    uint64
	fail    int
	readers []int // of each run
}

// TestGatherProperty: any gathers by many goroutines, with any budgets, failing requests, evictions and restarts, give the right bytes; while
// memory holds everything, each cell is delivered once, and while the disk does too, also over restarts.
func TestGatherProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := scenario{
			opt: Options{
				Memory:  rapid.SampledFrom([]int64{2 << 20, 4 << 20, 16 << 20}).Draw(r, "memory"),
				Size:    rapid.SampledFrom([]int64{1 << 20, 1 << 30}).Draw(r, "size"),
				Fetches: rapid.IntRange(1, 4).Draw(r, "fetches"),
			},
			onDisk:  rapid.Bool().Draw(r, "disk"),
			seed:    rapid.Uint64().Draw(r, "seed"),
			fail:    rapid.SampledFrom([]int{0, 20, 35}).Draw(r, "failing per cent"),
			readers: rapid.SliceOfN(rapid.IntRange(1, 8), 1, 3).Draw(r, "readers"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = s.run() })
		if err != nil {
			r.Fatal(err)
		}
	})
}

var propertyFiles = sync.OnceValue(func() []fakeFile {
	return []fakeFile{
		{path: "a", data: content0(1, 3<<20+11), named: true}, {path: "b", data: content0(2, 1), named: true},
		{path: "c", data: content0(3, 2*cellSize-1), named: true}, {path: "d", data: content0(4, 1<<20)},
		{path: "e", data: content0(5, 7*cellSize), local: true},
	}
})

func (s scenario) run() error {
	src := newFake(propertyFiles()...)
	if s.onDisk {
		dir, err := os.MkdirTemp("", "weightfs-cache-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.opt.Dir = dir
	}
	l := &ledger{rand: rand.New(rand.NewPCG(s.seed, 1)), fail: s.fail, count: map[string]int{}}
	src.fault = l.fault
	for run, readers := range s.readers {
		c, err := New(s.opt)
		if err != nil {
			return err
		}
		err = readAtRandom(c.Release(src, src.listing()), src, readers, s.seed+uint64(run))
		settle(c)
		if err = errors.Join(err, checkIdle(c), c.Close()); err != nil {
			return err
		}
		held := s.opt.Memory > 8<<20 && (!s.onDisk || s.opt.Size > 8<<20)
		if cell, n := l.most(); held && n > 1 {
			return fmt.Errorf("cell %s was delivered %d times", cell, n)
		}
		l.restart(s.onDisk && s.opt.Size > 8<<20)
	}
	return nil
}

// restart forgets the cells that a restart loses: all but those on disk. The blob d has no name and is never there.
func (l *ledger) restart(onDisk bool) {
	for k := range l.count {
		if !onDisk || k[0] == 'd' {
			delete(l.count, k)
		}
	}
}

// settle waits until no run is left; time is the bubble's.
func settle(c *Cache) {
	synctest.Wait()
	for c.Stats().Pinned > 0 {
		time.Sleep(time.Second)
	}
	synctest.Wait()
}

// checkIdle holds the books of memory when nothing goes on.
func checkIdle(c *Cache) error {
	m := c.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.slots - len(m.arena.free)
	if used != m.idle[0]+m.idle[1] || m.idle[0] != m.read.Len() || m.idle[1] != m.unread.Len() || m.ahead != m.idle[1] || len(m.queue) != 0 {
		return fmt.Errorf("%d cells in use, idle %v, lists of %d and %d, ahead %d, %d waiting", used, m.idle, m.read.Len(), m.unread.Len(), m.ahead, len(m.queue))
	}
	return nil
}

func readAtRandom(f *Files, src *fakeSource, readers int, seed uint64) error {
	var g errgroup.Group
	for i := range readers {
		g.Go(func() error {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 1 + r.IntN(10) {
				if err := gatherAtRandom(r, f, src); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func gatherAtRandom(r *rand.Rand, f *Files, src *fakeSource) error {
	var reads []plan.Read
	for range r.IntN(6) {
		s := randomSpan(r, src, r.IntN(4) == 0)
		reads = append(reads, plan.Read{Span: s, Dst: make([]byte, s.Len())})
	}
	var ahead []plan.Span
	for range r.IntN(4) {
		ahead = append(ahead, randomSpan(r, src, true))
	}
	if err := f.Gather(ctxb(), reads, ahead); err != nil {
		return err
	}
	for _, x := range reads {
		if !bytes.Equal(x.Dst, src.files[x.Span.File].bytes(x.Span.Start, x.Span.Len())) {
			return fmt.Errorf("wrong bytes for %v", x.Span)
		}
	}
	return nil
}

func randomSpan(r *rand.Rand, src *fakeSource, long bool) plan.Span {
	file := r.IntN(len(src.files))
	size := src.files[file].size
	start := r.Int64N(size + 1)
	n := r.Int64N(min(size-start, 1000) + 1)
	if long {
		n = r.Int64N(size - start + 1)
	}
	return span(file, start, start+n)
}
