package sources_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

// TestReadersFirst: over all blobs of one host, what is fetched ahead leaves a connection free and waits behind readers, until a reader wants it.
func TestReadersFirst(t *testing.T) {
	s := &sourcetest.Server{Files: sourcetest.Small()}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		o.Conns = 3
		blobs := []sources.Blob{open(t, src, shard), open(t, newHub(t, s, o), s.Files[5].Path)}
		for i, b := range blobs {
			if _, err := read(t, s, b, s.Files[4+i].Path, 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex // guards arrived
		var arrived []string
		proceed := make(chan struct{})
		s.Inject(sourcetest.Fault{Kind: "data", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
			mu.Lock()
			arrived = append(arrived, r.Header.Get("Range"))
			mu.Unlock()
			<-proceed
			right.ServeHTTP(w, r)
		}})
		var all sync.WaitGroup
		ask := func(ctx context.Context, blob int, off int64) {
			all.Go(func() {
				r, err := blobs[blob].Stream(ctx, off, 1)
				if err == nil {
					_, err = io.Copy(io.Discard, r)
					r.Close()
				}
				if err != nil && (!errors.Is(err, sources.ErrNoTurn) || !errors.Is(err, context.Cause(ctx))) {
					t.Errorf("%d: %v", off, err)
				}
			})
			synctest.Wait()
		}
		want := func(ranges ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(arrived, ranges) {
				t.Fatalf("arrived %v, want %v", arrived, ranges)
			}
			arrived = nil
		}
		end := func() { proceed <- struct{}{} }

		ask(sources.Ahead(t.Context(), nil), 0, 10)
		ask(sources.Ahead(t.Context(), nil), 1, 11)
		ask(sources.Ahead(t.Context(), nil), 0, 12)
		wanted := make(chan struct{})
		ask(sources.Ahead(t.Context(), wanted), 1, 13)
		gone, leave := context.WithCancel(t.Context())
		ask(sources.Ahead(gone, nil), 0, 14)
		want("bytes=10-10", "bytes=11-11")
		ask(t.Context(), 1, 20)
		want("bytes=20-20")
		ask(t.Context(), 0, 21)
		close(wanted)
		leave()
		want()
		end()
		want("bytes=13-13") // it came before the reader
		end()
		want("bytes=21-21")
		end()
		want()
		end()
		want("bytes=12-12")
		ask(t.Context(), 0, 22)
		want("bytes=22-22")
		close(proceed)
		all.Wait()
	})
}

// TestSlotsComeBack: whoever gives up while it waits for a slot, or in the moment when it gets one, takes none away.
func TestSlotsComeBack(t *testing.T) {
	s := &sourcetest.Server{Files: sourcetest.Small()}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		o.Conns = 2
		b := open(t, src, shard)
		var all sync.WaitGroup
		for i := range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			if i%2 == 0 {
				ctx = sources.Ahead(ctx, nil)
			}
			all.Go(func() {
				if r, err := b.Stream(ctx, int64(i), 1); err == nil {
					r.Close()
				}
			})
			if i%3 == 0 {
				all.Go(cancel)
			} else {
				defer cancel()
			}
		}
		all.Wait()
		for i := range int64(4) {
			if _, err := read(t, s, b, shard, i, 10); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestGivesWay: of a slow host's connections, what is fetched ahead gives as many as readers wait for, once it has had its share, but not what is nearly done or
// wanted by then; no more than are needed.
func TestGivesWay(t *testing.T) {
	s := &sourcetest.Server{Files: sourcetest.Small()}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		o.Conns = 4
		b := slowBlob(t, s, src, func(*http.Request) {})
		const size = 300_001 // of the shard: 30 s
		ctxs := []context.Context{sources.Ahead(t.Context(), nil), sources.Ahead(t.Context(), nil)}
		wanted := make(chan struct{})
		ctxs = append(ctxs, sources.Ahead(t.Context(), wanted))
		got := make([]int64, len(ctxs))
		errs := make([]error, len(ctxs))
		var all, readers sync.WaitGroup
		for i, ctx := range ctxs {
			all.Go(func() {
				r, err := b.Stream(ctx, 0, size)
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Close()
				got[i], errs[i] = io.Copy(io.Discard, r)
			})
		}
		time.Sleep(20 * time.Second)
		close(wanted)
		start := time.Now()
		for i := range int64(2) { // for one of whom a connection is free
			readers.Go(func() {
				if _, err := read(t, s, b, shard, i, 20_000); err != nil {
					t.Error(err)
				}
			})
		}
		readers.Wait()
		if took := time.Since(start); took > 3*time.Second { // each takes two
			t.Errorf("readers took %v", took)
		}
		all.Wait()
		gave := 0
		for i, err := range errs {
			switch {
			case err == nil && got[i] == size:
			case errors.Is(err, sources.ErrNoTurn) && i < 2 && got[i] >= 128<<10 && got[i] < size:
				gave++
			default:
				t.Errorf("stream %d: %d bytes, %v", i, got[i], err)
			}
		}
		if gave != 1 {
			t.Errorf("%d gave their connection, for one reader that waited", gave)
		}
	})
}

// TestWholeIsNotGiven: what a server without ranges sends as a whole cannot be continued, so it keeps its connection.
func TestWholeIsNotGiven(t *testing.T) {
	s := &sourcetest.Server{Files: sourcetest.Small()}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		o.Conns = 1
		b := slowBlob(t, s, src, func(r *http.Request) { r.Header.Del("Range") })
		var all sync.WaitGroup
		all.Go(func() {
			r, err := b.Stream(sources.Ahead(t.Context(), nil), 1000, 200_000)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			if n, err := io.Copy(io.Discard, r); n != 200_000 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
		time.Sleep(time.Second)
		if _, err := read(t, s, b, shard, 5, 10); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
}

// TestAddressIsNotAhead: the address of a file is asked for as a reader's, whoever needs it first, since readers wait for the same answer.
func TestAddressIsNotAhead(t *testing.T) {
	s := &sourcetest.Server{Files: sourcetest.Small()}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		o.Conns = 2 // one of which nothing that is ahead takes
		first, second := open(t, src, shard), open(t, src, s.Files[5].Path)
		var arrived atomic.Int64
		proceed := make(chan struct{})
		s.Inject(sourcetest.Fault{Kind: "resolve", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
			arrived.Add(1)
			<-proceed
			right.ServeHTTP(w, r)
		}})
		var all sync.WaitGroup
		ask := func(ctx context.Context, blob sources.Blob) {
			all.Go(func() {
				r, err := blob.Stream(ctx, 0, 1)
				if err != nil {
					t.Error(err)
					return
				}
				r.Close()
			})
			synctest.Wait()
		}
		ask(t.Context(), first)
		ask(sources.Ahead(t.Context(), nil), second)
		if n := arrived.Load(); n != 2 {
			t.Errorf("%d addresses are asked for", n)
		}
		close(proceed)
		all.Wait()
	})
}

// slowBlob is the shard on a host that writes slowly from now on, once its requests have been changed.
func slowBlob(t *testing.T, s *sourcetest.Server, src sources.Source, change func(*http.Request)) sources.Blob {
	b := open(t, src, shard)
	if _, err := read(t, s, b, shard, 0, 1); err != nil {
		t.Fatal(err)
	}
	s.Inject(sourcetest.Fault{Kind: "data", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
		change(r)
		right.ServeHTTP(slowly{w}, r)
	}})
	return b
}

// slowly writes 10 KB a second.
type slowly struct{ http.ResponseWriter }

func (w slowly) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		k := min(1000, len(p))
		time.Sleep(100 * time.Millisecond)
		k, err = w.ResponseWriter.Write(p[:k])
		n, p = n+k, p[k:]
	}
	return n, err
}
