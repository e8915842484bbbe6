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
