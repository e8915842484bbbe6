package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// TestWantedAhead: a run that waits to be fetched ahead starts at once when a reader wants it, on the connection that is left free for that.
func TestWantedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 64 * mib})
		open := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-open }
		f := newCache(t, Options{Memory: 512 * mib, Fetches: 3}).Release(src, src.listing())
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 64*mib)}))
		synctest.Wait()
		wantRequests(t, src, request{"a", 0, 8 * mib}, request{"a", 8 * mib, 16 * mib})
		var reader sync.WaitGroup
		goRead(t, &reader, f, src, 40*mib, 40*mib+cellSize)
		wantRequests(t, src, request{"a", 40 * mib, 48 * mib})
		goRead(t, &reader, f, src, 30*mib, 30*mib+1) // the end of another one
		wantRequests(t, src, request{"a", 30 * mib, 32 * mib})
		close(open)
		reader.Wait()
		synctest.Wait()
		wantRequests(t, src, request{"a", 16 * mib, 24 * mib}, request{"a", 24 * mib, 30 * mib}, request{"a", 32 * mib, 40 * mib}, request{"a", 48 * mib, 56 * mib}, request{"a", 56 * mib, 64 * mib})
	})
}

// TestWantedUnderWay: a reader of the end of a run that is on its way over a slow connection has it in a request of its own, and over a fast one waits; nothing
// that comes with the first is asked for again.
func TestWantedUnderWay(t *testing.T) {
	const mib = 1 << 20
	for _, x := range []struct {
		pace, most time.Duration
		requests   []request
	}{
		{500, 100 * time.Millisecond, []request{{"a", 0, 8 * mib}, {"a", 7 * mib, 8 * mib}}},
		{20, 150 * time.Millisecond, []request{{"a", 0, 8 * mib}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(fakeFile{path: "a", size: 8 * mib})
			src.latency, src.pace = 20*time.Millisecond, x.pace
			c := newCache(t, Options{Memory: 512 * mib})
			f := c.Release(src, src.listing())
			must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 8*mib)}))
			time.Sleep(50 * time.Millisecond)
			start := time.Now()
			for at := int64(7 * mib); at < 7*mib+3*cellSize; at += cellSize {
				must(t, readBack(ctxb(), f, src, 0, at, at+1))
				if took := time.Since(start); at == 7*mib && took > x.most {
					t.Errorf("at %v a byte it took %v", x.pace, took)
				}
			}
			must(t, readBack(ctxb(), f, src, 0, 0, 8*mib))
			wantRequests(t, src, x.requests...)
			if s := c.Stats(); s.BytesFetched > 8*mib+cellSize || s.FailedCells != 0 || s.Pinned != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestWantedInQueue: a read of several cells of a run that has to wait, since as many as may be are wanted, is one request.
func TestWantedInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 64 * mib})
		open := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-open }
		f := newCache(t, Options{Memory: 512 * mib, Fetches: 1}).Release(src, src.listing())
		var readers sync.WaitGroup
		read := func(start, end int64) { goRead(t, &readers, f, src, start, end) }
		read(60*mib, 60*mib+1)
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 24*mib)}))
		read(17*mib, 18*mib)
		read(19*mib, 20*mib)
		close(open)
		readers.Wait()
		synctest.Wait()
		wantRequests(t, src, request{"a", 0, 8 * mib}, request{"a", 8 * mib, 16 * mib}, request{"a", 16 * mib, 17 * mib}, request{"a", 17 * mib, 24 * mib}, request{"a", 60 * mib, 60*mib + cellSize})
	})
}

// TestWantedByMany: readers of cells that one of them has asked for already, in front of a slow connection, send nothing more.
func TestWantedByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 8 * mib})
		src.latency, src.pace = 20*time.Millisecond, 500 // 2 MB/s
		f := newCache(t, Options{Memory: 512 * mib}).Release(src, src.listing())
		var readers sync.WaitGroup
		read := func(after time.Duration, start, end int64) {
			readers.Go(func() {
				time.Sleep(after)
				if err := readBack(ctxb(), f, src, 0, start, end); err != nil {
					t.Error(err)
				}
			})
		}
		read(0, 0, 2*mib)
		for _, cell := range []int64{15, 12, 9, 6} {
			read(100*time.Millisecond, cell*cellSize, cell*cellSize+1)
		}
		readers.Wait()
		wantRequests(t, src, request{"a", 0, 2 * mib})
	})
}

// TestOneJump: a reader of a whole file who goes elsewhere and reads nothing more, with the file open, leaves little behind.
func TestOneJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 1 << 30})
		src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
		f := newCache(t, Options{Memory: 2 << 30, Fetches: 4}).Release(src, src.listing())
		r, p := plan.NewReader(f, 0), plan.New(plan.Copy{Span: span(0, 0, 1<<30)})
		read := func(off int64) {
			if _, err := r.ReadAt(ctxb(), p, make([]byte, mib), off); err != nil {
				t.Fatal(err)
			}
		}
		for off := int64(0); off < 64*mib; off += mib {
			read(off)
		}
		src.take()
		read(700 * mib)
		time.Sleep(time.Minute)
		if n := len(src.take()); n > 2 {
			t.Errorf("%d requests after the jump", n)
		}
	})
}

// TestPostponedIsNotLost: a lone read in what waits for memory does not lose what lies before it, where another reader will come.
func TestPostponedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 64 * mib})
		f := newCache(t, Options{Memory: 8 * mib}).Release(src, src.listing())
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 16*mib)}))
		synctest.Wait()
		must(t, readBack(ctxb(), f, src, 0, 9*mib, 9*mib+1))
		wantRequests(t, src, request{"a", 0, 2 * mib}, request{"a", 9 * mib, 9*mib + cellSize})
		for at := int64(0); at < 6*mib; at += mib {
			must(t, readBack(ctxb(), f, src, 0, at, at+mib))
			synctest.Wait()
		}
		wantRequests(t, src, request{"a", 2 * mib, 4 * mib}, request{"a", 4 * mib, 6 * mib}, request{"a", 6 * mib, 8 * mib})
	})
}

// TestPostponedElsewhere: what was to be fetched ahead in a file that its reader has left does not take the memory of a reader of another one.
func TestPostponedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 64 * mib}, fakeFile{path: "b", size: 64 * mib})
		f := newCache(t, Options{Memory: 8 * mib}).Release(src, src.listing())
		must(t, readBack(ctxb(), f, src, 0, 0, 1, span(0, 0, 16*mib)))
		synctest.Wait()
		wantRequests(t, src, request{"a", 0, 2 * mib})
		time.Sleep(2 * stale)
		must(t, readBack(ctxb(), f, src, 1, 0, 1, span(1, 0, 16*mib)))
		for at := int64(0); at < 4*mib; at += mib {
			must(t, readBack(ctxb(), f, src, 1, at, at+mib))
			synctest.Wait()
		}
		wantRequests(t, src, request{"b", 0, 2 * mib}, request{"b", 2 * mib, 4 * mib}, request{"b", 4 * mib, 6 * mib})
	})
}

// TestTurnThatNeverComes: what waits for its turn behind readers of the host, until its deadline, is no failure of who reads it then; and who wants it while
// it waits has a whole deadline from then on.
func TestTurnThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib, deadline = 1 << 20, 20 * time.Second
		src := newFake(fakeFile{path: "a", size: 64 * mib})
		var noTurn sync.Map // what waited until its context ended
		src.gate = func(ctx context.Context, _ string, off, _ int64) {
			turn := map[int64]time.Duration{0: time.Hour, 8 * mib: deadline * 3 / 2}[off]
			select {
			case <-time.After(turn):
			case <-ctx.Done():
				noTurn.Store(off, true)
			}
		}
		src.fault = func(_ string, off, n int64) (int64, error) {
			if _, ok := noTurn.Load(off); ok {
				return 0, sources.ErrNoTurn
			}
			return n, nil
		}
		f := newCache(t, Options{Deadline: deadline, Bad: time.Hour}).Release(src, src.listing())
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 16*mib)}))
		time.Sleep(deadline * 9 / 10)
		must(t, readBack(ctxb(), f, src, 0, 8*mib, 8*mib+1))
		time.Sleep(deadline)
		src.gate, src.fault = nil, nil
		must(t, readBack(ctxb(), f, src, 0, 0, 1))
	})
}

// TestGaveWay: what gave its connection to a reader goes on where it was, and is neither a failure nor another try.
func TestGaveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 8 * mib})
		src.fault = func(_ string, off, n int64) (int64, error) {
			if off < 6*mib {
				return 2*mib + 5, fmt.Errorf("read: %w", sources.ErrNoTurn)
			}
			return n, nil
		}
		c := newCache(t, Options{})
		f := c.Release(src, src.listing())
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 8*mib)}))
		synctest.Wait()
		wantRequests(t, src, request{"a", 0, 8 * mib}, request{"a", 2 * mib, 8 * mib}, request{"a", 4 * mib, 8 * mib}, request{"a", 6 * mib, 8 * mib})
		must(t, readBack(ctxb(), f, src, 0, 0, 8*mib))
		wantRequests(t, src)
		if s := c.Stats(); s.Retries != 0 || s.FailedCells != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestTurns: readers of one file who take turns have as much fetched ahead as one who reads it all, with few requests more, also if some are held up, from
// the beginning and from inside the file, with and without a kernel between.
func TestTurns(t *testing.T) {
	const mib, size = 1 << 20, 512 << 20
	for _, from := range []int64{0, 200*mib + 12288} {
		for _, ctx := range []context.Context{ctxb(), plan.ByKernel(ctxb())} {
			for _, step := range []int64{mib, 4 * mib, 16 * mib} {
				var alone float64
				for _, readers := range []int64{1, 4, 8} {
					took, requests := turns(t, ctx, from, size, step, readers)
					if readers == 1 {
						alone = took
					}
					if took > 1.2*alone || requests > 180 {
						t.Errorf("from %d MiB, %d readers, %d MiB each: %.2f s and %d requests, one takes %.2f s", from/mib, readers, step/mib, took, requests, alone)
					}
				}
			}
		}
	}
}

// turns lets readers take turns in a file, and says how many seconds and requests that takes.
func turns(t *testing.T, ctx context.Context, from, size, step, readers int64) (took float64, requests int) {
	const read = 128 << 10
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: size})
		src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
		f := newCache(t, Options{Memory: 2 << 30}).Release(src, src.listing())
		r, p := plan.NewReader(f, 0), plan.New(plan.Copy{Span: span(0, 0, size)})
		var all sync.WaitGroup
		start := time.Now()
		for k := range readers {
			all.Go(func() {
				buf := make([]byte, read)
				for at := from + k*step; at < size; at += readers * step {
					time.Sleep(time.Duration(at / step % 3 * int64(time.Millisecond)))
					for off := at; off < min(at+step, size); off += read {
						if _, err := r.ReadAt(ctx, p, buf[:min(read, size-off)], off); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		all.Wait()
		took, requests = time.Since(start).Seconds(), len(src.requests)
	})
	return took, requests
}

// TestStale: what waited long for a connection is not stale when it comes.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		src := newFake(fakeFile{path: "a", size: 16 * mib}, fakeFile{path: "b", size: 16 * mib})
		open := make(chan struct{})
		src.gate = func(context.Context, string, int64, int64) { <-open }
		f := newCache(t, Options{Memory: 64 * mib}).Release(src, src.listing())
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(0, 0, 16*mib)}))
		time.Sleep(stale + time.Second)
		close(open)
		synctest.Wait()
		must(t, f.Gather(ctxb(), nil, []plan.Span{span(1, 0, 16*mib)}))
		synctest.Wait()
		src.take()
		must(t, readBack(ctxb(), f, src, 0, 0, 16*mib))
		wantRequests(t, src)
	})
}

// TestReadTwice: who reads a file again of which nothing is left has it fetched ahead again.
func TestReadTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib, size = 1 << 20, 600 << 20
		src := newFake(fakeFile{path: "a", size: size})
		src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
		f := newCache(t, Options{Memory: 64 * mib}).Release(src, src.listing())
		r, p := plan.NewReader(f, 0), plan.New(plan.Copy{Span: span(0, 0, size)})
		read := func() time.Duration {
			start, buf := time.Now(), make([]byte, mib)
			for off := int64(0); off < size; off += mib {
				if _, err := r.ReadAt(ctxb(), p, buf, off); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(start)
		}
		first := read()
		time.Sleep(time.Minute)
		if second := read(); second > first*5/4 {
			t.Errorf("%v, then %v", first, second)
		}
	})
}

// TestExperts: of experts here and there in a file of blocks, read by their offset through a kernel that reads 1 MiB ahead, not many others are fetched.
func TestExperts(t *testing.T) {
	const mib, n, blocks = 1 << 20, 2816 << 10, 512
	for _, threads := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(fakeFile{path: "a", size: n * blocks})
			src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
			f := newCache(t, Options{Memory: 2 << 30}).Release(src, src.listing())
			r, p := plan.NewReader(f, 0), plan.New(plan.Repeat{Name: "e", N: blocks, Stride: n, At: func(i int64) *plan.Plan {
				return plan.NewBlock(plan.Copy{Span: span(0, i*n, (i+1)*n)})
			}})
			order := rand.New(rand.NewPCG(1, 2)).Perm(blocks)[:64]
			parallel(threads, len(order), func(i int) {
				at := int64(order[i]) * n
				for off := at; off < min(at+n+mib, p.Size); off += mib { // and one more, that the kernel reads ahead
					if _, err := r.ReadAt(plan.ByKernel(ctxb()), p, make([]byte, min(mib, p.Size-off)), off); err != nil {
						t.Error(err)
					}
				}
			})
			time.Sleep(time.Minute)
			fetched := int64(0)
			for _, q := range src.take() {
				fetched += q.end - q.start
			}
			if times := float64(fetched) / float64(64*n); times > 2.5 {
				t.Errorf("%d threads: %.2f times the experts' bytes are fetched", threads, times)
			}
		})
	}
}

// TestTensors: who maps one tensor here and there has little more fetched than that, though kernels read around and ahead of what is touched; who loads all
// of them, in the order of the file and by several threads, keeps the connections busy.
func TestTensors(t *testing.T) {
	const kib, mib, header = 1 << 10, 1 << 20, 100 << 10
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []plan.Piece{plan.Literal{Name: "header", Size: header, Bytes: make([]byte, header)}}
	var tensors []plan.Span
	at := int64(0)
	for at < 600*mib {
		n := []int64{10_000, 900_000, 900_000, 900_000, 900_000, 5 * mib, random.Int64N(50 * mib)}[random.IntN(7)]
		tensors = append(tensors, span(0, at, at+n))
		pieces = append(pieces, plan.Copy{Span: span(0, at, at+n)})
		at += n
	}
	for _, x := range []struct {
		ahead   int64 // what the kernel reads around a page fault, and ahead of reads
		threads int   // that load everything; 0: one tensor here and there
		times   float64
	}{{128 * kib, 1, 1}, {mib, 1, 1}, {128 * kib, 4, 1}, {mib, 8, 1}, {128 * kib, 0, 2.5}, {mib, 0, 4.5}} {
		synctest.Test(t, func(t *testing.T) {
			src := newFake(fakeFile{path: "a", size: at})
			src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
			f := newCache(t, Options{Memory: 2 << 30}).Release(src, src.listing())
			r, p := plan.NewReader(f, 0), plan.New(pieces...)
			load := func(s plan.Span, past int64) {
				end := min(header+s.End+past, p.Size)
				for off := max(0, header+s.Start-x.ahead/2) &^ 4095; off < end; off += x.ahead {
					if _, err := r.ReadAt(plan.ByKernel(ctxb()), p, make([]byte, min(x.ahead, p.Size-off)), off); err != nil {
						t.Error(err)
					}
				}
			}
			start, wanted := time.Now(), int64(0)
			if x.threads == 0 {
				for _, i := range random.Perm(len(tensors))[:16] {
					wanted += tensors[i].Len()
					load(tensors[i], x.ahead)
					time.Sleep(time.Second)
				}
			} else {
				wanted = at
				parallel(x.threads, len(tensors), func(i int) { load(tensors[i], 0) })
				if took, alone := time.Since(start), time.Duration(at)*src.pace; took > alone/9 {
					t.Errorf("%+v: as fast as %.1f connections", x, float64(alone)/float64(took))
				}
			}
			fetched := int64(0)
			for _, q := range src.take() {
				fetched += q.end - q.start
			}
			if times := float64(fetched) / float64(wanted); times > x.times {
				t.Errorf("%+v: %.2f times what was wanted is fetched", x, times)
			}
		})
	}
}

// TestSkips: who loads every second or third tensor, in their order, is a stream as well: all that lies between comes along, and nothing waits for round trips.
func TestSkips(t *testing.T) {
	const kib, mib, header, size, n = 1 << 10, 1 << 20, 100 << 10, 1_800_000, 150
	pieces := []plan.Piece{plan.Literal{Name: "header", Size: header, Bytes: make([]byte, header)}}
	for i := range int64(n) {
		pieces = append(pieces, plan.Copy{Span: span(0, i*size, (i+1)*size)})
	}
	for _, every := range []int64{2, 3} {
		for _, ahead := range []int64{128 * kib, mib} {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(fakeFile{path: "a", size: n * size})
				src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
				f := newCache(t, Options{Memory: 2 << 30}).Release(src, src.listing())
				r, p := plan.NewReader(f, 0), plan.New(pieces...)
				start := time.Now()
				for at := int64(header); at < p.Size; at += every * size {
					for off := max(0, at-ahead/2) &^ 4095; off < at+size; off += ahead { // as kernels read what is mapped
						if _, err := r.ReadAt(plan.ByKernel(ctxb()), p, make([]byte, min(ahead, p.Size-off)), off); err != nil {
							t.Fatal(err)
						}
					}
				}
				if took, alone := time.Since(start), n*size*src.pace; took > alone/7 {
					t.Errorf("every %d, read-ahead of %d: all of it as fast as by %.1f connections", every, ahead, float64(alone)/float64(took))
				}
			})
		}
	}
}

// parallel does parts 0 to n-1 by several threads, each of which takes the next.
func parallel(threads, n int, part func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				part(int(i))
			}
		})
	}
	all.Wait()
}
