package cache

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weightfs/fs/plan"
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
		reader.Go(func() {
			if err := readBack(ctxb(), f, src, 0, 40*mib, 40*mib+cellSize); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wantRequests(t, src, request{"a", 40 * mib, 48 * mib})
		close(open)
		reader.Wait()
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

// TestTurns: readers of one file who take turns have as much fetched ahead as one who reads it all, with few requests more, also if some are held up.
func TestTurns(t *testing.T) {
	const mib, size = 1 << 20, 512 << 20
	seconds := map[int64]float64{}
	for _, readers := range []int64{1, 2, 4, 8} {
		for _, step := range []int64{mib, 4 * mib, 16 * mib} {
			synctest.Test(t, func(t *testing.T) {
				src := newFake(fakeFile{path: "a", size: size})
				src.latency, src.pace = 20*time.Millisecond, 20 // 50 MB/s
				f := newCache(t, Options{Memory: 2 << 30}).Release(src, src.listing())
				r, p := plan.NewReader(f, 0), plan.New(plan.Copy{Span: span(0, 0, size)})
				var all sync.WaitGroup
				start := time.Now()
				for k := range readers {
					all.Go(func() {
						buf := make([]byte, mib/8)
						for at := k * step; at < size; at += readers * step {
							time.Sleep(time.Duration(at / step % 3 * int64(time.Millisecond)))
							for off := at; off < at+step; off += mib / 8 {
								if _, err := r.ReadAt(ctxb(), p, buf, off); err != nil {
									t.Error(err)
								}
							}
						}
					})
				}
				all.Wait()
				took := time.Since(start).Seconds()
				if readers == 1 {
					seconds[step] = took
				}
				if n := len(src.requests); took > 1.05*seconds[step] || n > 160 {
					t.Errorf("%d readers, %d MiB each: %.2f s and %d requests, one takes %.2f s", readers, step/mib, took, n, seconds[step])
				}
			})
		}
	}
}
