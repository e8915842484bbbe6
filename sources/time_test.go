package sources_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

// inBubble runs a hub and a source in virtual time over a network in memory.
func inBubble(t *testing.T, s *sourcetest.Server, run func(t *testing.T, n *sourcetest.MemNet, src sources.Source, o *sources.Options)) {
	synctest.Test(t, func(t *testing.T) {
		n := &sourcetest.MemNet{}
		if s.Files == nil {
			s.Files = sourcetest.Small()
		}
		sourcetest.StartIn(t, n, s)
		o := sources.SetDial(options(t), n.Dial)
		run(t, n, newHub(t, s, o), o)
	})
}

// retried reads a range with Retry, as the cache does, and checks it.
func retried(t testing.TB, s *sourcetest.Server, b sources.Blob, path string, off, n int64, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	p := make([]byte, n)
	err := sources.Retry(ctx, func(ctx context.Context) error { return sources.ReadAt(ctx, b, p, off) })
	if err == nil {
		if d := s.Files.Find(path).Diff(p, off); d != "" {
			t.Error(d)
		}
	}
	return noSecret(t, err)
}

func count(l []sourcetest.Request, kind string) (n int) {
	for _, r := range l {
		if r.Kind == kind {
			n++
		}
	}
	return n
}

// TestSignedAddressIsRenewed: at four fifths of its life, before it fails.
func TestSignedAddressIsRenewed(t *testing.T) {
	s := &sourcetest.Server{Life: 100 * time.Second}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, _ *sources.Options) {
		b := open(t, src, shard)
		for _, at := range []struct {
			wait     time.Duration
			resolves int
		}{{0, 1}, {70 * time.Second, 1}, {11 * time.Second, 2}, {70 * time.Second, 2}, {time.Hour, 3}} {
			time.Sleep(at.wait)
			if _, err := read(t, s, b, shard, 0, 1000); err != nil {
				t.Fatal(err)
			}
			if n := count(s.Log(0), "resolve"); n != at.resolves {
				t.Errorf("%d resolves, want %d", n, at.resolves)
			}
		}
		for _, l := range s.Log(0) {
			if l.Status == http.StatusForbidden {
				t.Errorf("an address was used after its end: %+v", l)
			}
		}
	})
}

// TestForbidden: a 403 leads to one new address, however many readers it hits; a second one is an error.
func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		times  int // replies that are refused after the first address was asked for
		want   error
	}{
		{"once", 403, 1, nil}, {"expired 400", 400, 1, nil}, {"410", 410, 1, nil}, {"401", 401, 1, nil},
		{"for all readers", 403, 16, nil}, {"for good", 403, 0, sources.ErrDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sourcetest.Server{}
			inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
				b := open(t, src, shard)
				if _, err := read(t, s, b, shard, 0, 10); err != nil {
					t.Fatal(err)
				}
				mark := len(s.Log(0))
				s.Inject(sourcetest.Fault{Kind: "data", Times: c.times, Do: refuseTogether(t, c.status, c.times)})
				var wg sync.WaitGroup
				for i := range 16 {
					wg.Go(func() {
						if _, err := read(t, s, b, shard, int64(i), 10); !errors.Is(err, c.want) {
							t.Errorf("got %v, want %v", err, c.want)
						}
					})
				}
				wg.Wait()
				l := s.Log(mark)
				if n := count(l, "resolve"); n < 1 || c.want == nil && n > 1 || n > 16 {
					t.Errorf("%d new addresses", n)
				}
				if n := count(l, "data"); n > 32 {
					t.Errorf("%d range requests for 16 readers", n)
				}
				if c.want != nil && !strings.Contains(firstError(t, s, b).Error(), "also at a new address") {
					t.Errorf("got %v", firstError(t, s, b))
				}
			})
		})
	}
}

func firstError(t *testing.T, s *sourcetest.Server, b sources.Blob) error {
	_, err := read(t, s, b, shard, 0, 10)
	return err
}

// TestConfusedCDN (T16): a CDN that gave ranges and refuses what the hub permits is asked again for some seconds, more and more slowly, and then
// believed; one that never gave any is believed at once, and so is the hub.
func TestConfusedCDN(t *testing.T) {
	const other = "model-00002-of-00002.safetensors"
	for _, c := range []struct {
		name         string
		before       string // the file that is read before
		kind         string // of what is refused
		times        int    // how often, 0 for ever
		want         error
		least, most  time.Duration
		mostRequests int
	}{
		{"four times", shard, "data", 4, nil, 0, 5 * time.Second, 5},
		{"four times, of a file that was not read before", other, "data", 4, nil, 0, 5 * time.Second, 5},
		{"for good", shard, "data", 0, sources.ErrDenied, 9 * time.Second, 30 * time.Second, 20},
		{"for good, of a host that was never right", "", "data", 0, sources.ErrDenied, 0, 0, 2},
		{"a token that was revoked", shard, "", 0, sources.ErrDenied, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sourcetest.Server{}
			inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
				b := open(t, src, shard)
				if c.before != "" {
					if _, err := read(t, s, open(t, src, c.before), c.before, 0, 10); err != nil {
						t.Fatal(err)
					}
				}
				mark, start := len(s.Log(0)), time.Now()
				s.Inject(sourcetest.Fault{Kind: c.kind, Times: c.times, Do: sourcetest.Status(http.StatusForbidden)})
				err := retried(t, s, b, shard, 100, 10, time.Minute)
				if d := time.Since(start); !errors.Is(err, c.want) || errors.Is(err, sources.ErrTemporary) || d < c.least || d > c.most {
					t.Errorf("after %v: %v", d, err)
				}
				if n := count(s.Log(mark), "data"); n > c.mostRequests {
					t.Errorf("%d requests", n)
				}
				if c.want == nil {
					return
				}
				s.Heal()
				if err := retried(t, s, b, shard, 100, 10, time.Minute); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

// refuseTogether gives a status once n requests wait for it, to one after the other.
func refuseTogether(t *testing.T, status, n int) sourcetest.Doer {
	var wg sync.WaitGroup
	wg.Add(n)
	var late atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, right http.Handler) {
		if n > 0 {
			wg.Done()
			wg.Wait()
			time.Sleep(time.Duration(late.Add(1)) * 500 * time.Millisecond) // the last learn of it when the first have the new address
		}
		sourcetest.Status(status)(w, r, right)
	}
}

// TestPause: a host that asks for a pause gets it from everyone, and everything is read in the end.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		headers []string
		pause   time.Duration
	}{
		{"RateLimit", 429, []string{`RateLimit: "resolvers";r=0;t=40`, `RateLimit-Policy: "fixed window";"resolvers";q=3000;w=300`}, 41 * time.Second},
		{"Retry-After", 429, []string{"Retry-After: 30"}, 30 * time.Second},
		{"Retry-After of a 503", 503, []string{"Retry-After: 30"}, 30 * time.Second},
		{"date", 429, []string{"Retry-After: Sat, 01 Jan 2000 00:00:20 GMT"}, 20 * time.Second},
		{"nothing", 429, nil, time.Second},
		{"years", 429, []string{"Retry-After: 99999999"}, 300 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sourcetest.Server{}
			inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
				b := open(t, src, shard)
				if _, err := read(t, s, b, shard, 0, 10); err != nil {
					t.Fatal(err)
				}
				mark := len(s.Log(0))
				s.Inject(sourcetest.Fault{Kind: "data", Times: 1, Do: sourcetest.Status(c.status, c.headers...)})
				start := time.Now()
				if err := retried(t, s, b, shard, 0, 10, 10*time.Minute); err != nil {
					t.Fatal(err)
				}
				end := time.Now()
				if end.Sub(start) < c.pause-time.Second || end.Sub(start) > c.pause+3*time.Second {
					t.Errorf("it took %s, want %s", end.Sub(start), c.pause)
				}
				if n := len(s.Log(mark)); n != 2 {
					t.Errorf("%d requests, want 2", n)
				}
				if p := o.Status().Paused; len(p) != 0 {
					t.Errorf("still paused: %v", p)
				}
				if o.Metrics.Pauses.Load() != 1 {
					t.Errorf("%d pauses counted", o.Metrics.Pauses.Load())
				}
			})
		})
	}
}

// TestStorm: 64 readers against a hub that refuses everything for a while: after the first refusals nobody asks until the pause is over, and then
// not all in the same instant.
func TestStorm(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		b := open(t, src, shard)
		if _, err := read(t, s, b, shard, 0, 10); err != nil {
			t.Fatal(err)
		}
		mark, start := len(s.Log(0)), time.Now()
		end := start.Add(50 * time.Second)
		s.Inject(sourcetest.Fault{Kind: "data", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
			if time.Now().Before(end) {
				sourcetest.Status(429, "Retry-After: 50")(w, r, right)
				return
			}
			right.ServeHTTP(w, r)
		}})
		var wg sync.WaitGroup
		for i := range int64(64) {
			wg.Go(func() {
				if err := retried(t, s, b, shard, i*1000, 1000, 2*time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		early, instants := 0, map[time.Time]int{}
		for _, l := range s.Log(mark) {
			if l.At.Before(end) {
				early++
			} else {
				instants[l.At]++
			}
		}
		if early > 16 || len(instants) < 32 {
			t.Errorf("%d requests before the pause was over, want at most the 16 that were under way; the others came at %d instants", early, len(instants))
		}
	})
}

// TestQuotaRunsLow: what is left of a small rest is spread over the window.
func TestQuotaRunsLow(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		b := open(t, src, shard)
		s.Inject(sourcetest.Fault{Kind: "data", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
			w.Header().Set("RateLimit", `"resolvers";r=9;t=100`)
			w.Header().Set("RateLimit-Policy", `"fixed window";"resolvers";q=3000;w=300`)
			right.ServeHTTP(w, r)
		}})
		start := time.Now()
		for range 3 {
			if err := retried(t, s, b, shard, 0, 10, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d < 20*time.Second || d > 23*time.Second {
			t.Errorf("three requests took %s, want ten seconds between two", d)
		}
	})
}

// TestPauseBeyondTheDeadline: the reader's own deadline ends the waiting, and the error says what it waited for.
func TestPauseBeyondTheDeadline(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		b := open(t, src, shard)
		s.Inject(sourcetest.Fault{Kind: "data", Times: 1, Do: sourcetest.Status(429, "Retry-After: 200")})
		start := time.Now()
		err := retried(t, s, b, shard, 0, 10, time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, sources.ErrTemporary) || !strings.Contains(err.Error(), "asked for a pause") {
			t.Errorf("got %v", err)
		}
		if time.Since(start) != time.Minute {
			t.Errorf("it took %s", time.Since(start))
		}
		if p := o.Status(); len(p.Paused) != 1 || p.Paused[0].Host != "http://cdn.test:80" || !p.Paused[0].Until.Equal(start.Add(200*time.Second)) || p.Pauses != 1 {
			t.Errorf("status: %+v", p)
		}
	})
}

// TestStall: a transfer that stops, crawls, or never starts is ended and asked again.
func TestStall(t *testing.T) {
	for _, c := range []struct {
		name string
		do   sourcetest.Doer
		took time.Duration
	}{
		{"after some bytes", sourcetest.Stall(100_000, time.Hour), 15 * time.Second},
		{"before the body", sourcetest.Stall(0, time.Hour), 15 * time.Second},
		{"drip", sourcetest.Drip(1024, time.Second), 15 * time.Second},
		{"no reply", func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }, 15 * time.Second},
		{"slow but fast enough", sourcetest.Drip(64<<10, 14*time.Second), 4 * 14 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sourcetest.Server{}
			inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
				b := open(t, src, shard)
				s.Inject(sourcetest.Fault{Kind: "data", Times: 1, Do: c.do})
				start := time.Now()
				if err := retried(t, s, b, shard, 0, 200_000, 2*time.Minute); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d < c.took || d > c.took+2*time.Second {
					t.Errorf("it took %s, want %s", d, c.took)
				}
			})
		})
	}
}

// TestSlowReader: a reader that takes its time is no stall.
func TestSlowReader(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		r, err := open(t, src, shard).Stream(t.Context(), 0, 300_001)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var got []byte
		buf := make([]byte, 10_000)
		for err == nil {
			var n int
			n, err = r.Read(buf)
			got = append(got, buf[:n]...)
			time.Sleep(time.Minute)
		}
		if err != io.EOF || s.Files.Find(shard).Diff(got, 0) != "" || len(got) != 300_001 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

// TestNetworkDown: five seconds without network are waited out; the number of attempts is bounded.
func TestNetworkDown(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, n *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		b := open(t, src, shard)
		o.Close()
		up, dials := time.Now().Add(5*time.Second), 0
		sources.SetNetwork(o, func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials++; time.Now().Before(up) {
				return nil, errors.New("network is unreachable")
			}
			return n.Dial(ctx, network, addr)
		})
		if err := retried(t, s, b, shard, 0, 1000, time.Minute); err != nil {
			t.Error(err)
		}
		if late := time.Since(up); late > 8*time.Second || dials > 20 {
			t.Errorf("the bytes came %s after the network, with %d connections", late, dials)
		}
	})
}

// TestBytesMove: where nothing answers at a file's address any more, the Hub is asked once for a new one, however many readers find out.
// While nothing answers anywhere it is asked no more often than an address grows old.
func TestBytesMove(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, n *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		b := open(t, src, shard)
		if _, err := read(t, s, b, shard, 0, 1000); err != nil {
			t.Fatal(err)
		}
		o.Close()
		moved := ""
		sources.SetNetwork(o, func(ctx context.Context, network, addr string) (net.Conn, error) {
			switch addr {
			case "cdn.test:80":
				return n.Dial(ctx, network, "nobody.test:80")
			case moved:
				addr = "cdn.test:80"
			}
			return n.Dial(ctx, network, addr)
		})
		time.Sleep(time.Minute)
		mark := len(s.Log(0))
		if err := retried(t, s, b, shard, 0, 1000, time.Minute); err == nil {
			t.Error("somebody answers")
		}
		if n := count(s.Log(mark), "resolve"); n < 1 || n > 12 {
			t.Errorf("%d new addresses in a minute in which nothing answers", n)
		}
		time.Sleep(time.Minute)
		s.CDNURL, moved = "http://cdn2.test", "cdn2.test:80"
		mark = len(s.Log(0))
		var wg sync.WaitGroup
		for i := range int64(16) {
			wg.Go(func() {
				if _, err := read(t, s, b, shard, i, 1000); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := count(s.Log(mark), "resolve"); n != 1 {
			t.Errorf("%d new addresses", n)
		}
	})
}

// frozen is a connection on which nothing arrives any more once its network is gone.
type frozen struct {
	net.Conn
	gone, closed chan struct{}
	once         sync.Once
}

func (f *frozen) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	select {
	case <-f.gone:
		<-f.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (f *frozen) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}

// TestDeadConnections: when the network was gone and is back, the connections that were idle meanwhile are dead and do not tell. One of
// them costs the stall time, not each.
func TestDeadConnections(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, n *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		gone := make(chan struct{})
		o.Close()
		sources.SetNetwork(o, func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := n.Dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			select {
			case <-gone:
				return c, nil
			default:
				return &frozen{Conn: c, gone: gone, closed: make(chan struct{})}, nil
			}
		})
		b := open(t, src, shard)
		s.Inject(sourcetest.Fault{Kind: "data", Times: 16, Do: sourcetest.Stall(0, time.Second)}) // so that 16 connections are made
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if _, err := read(t, s, b, shard, 0, 1000); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		close(gone)
		start := time.Now()
		if err := retried(t, s, b, shard, 0, 1000, time.Minute); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d < 15*time.Second || d > 17*time.Second {
			t.Errorf("it took %s, want one stall time", d)
		}
	})
}

// TestConnectionsAreKept: what 16 readers ask for at once takes 16 connections and never more, and what they ask for later takes the same ones,
// also after a minute in which nobody asked for anything.
func TestConnectionsAreKept(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, n *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		var dials atomic.Int64
		o.Close()
		sources.SetNetwork(o, func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return n.Dial(ctx, network, addr)
		})
		b := open(t, src, shard)
		before := dials.Load()
		for round, pause := range []time.Duration{0, 0, time.Minute} {
			time.Sleep(pause)
			s.Inject(sourcetest.Fault{Kind: "data", Times: 16, Do: sourcetest.Stall(0, time.Second)}) // so that all are asked at the same time
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					if _, err := read(t, s, b, shard, int64(i)*1000, 1000); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := dials.Load() - before; got != 16 {
				t.Errorf("round %d: %d connections were made in all", round, got)
			}
		}
	})
}

// TestNoNetwork: List gives up after some seconds and says so.
func TestNoNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &sourcetest.MemNet{}
		o := sources.SetDial(options(t), n.Dial)
		o.Endpoint = "http://hub.test"
		src, err := sources.Hub("org/name", "", o)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = src.List(t.Context())
		if !errors.Is(err, sources.ErrTemporary) || time.Since(start) > 20*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// TestRandomFailures: a fifth of all requests fails in one way or another; everything is read, with few more requests.
func TestRandomFailures(t *testing.T) {
	const reads = 400
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		b := open(t, src, shard)
		rng := rand.New(rand.NewPCG(3, 4))
		var mu sync.Mutex // guards rng
		faults := []sourcetest.Doer{
			sourcetest.Status(500), sourcetest.Status(503, "Retry-After: 1"), sourcetest.Status(502), sourcetest.Reset, sourcetest.Cut(5, false),
			sourcetest.Cut(5, true), sourcetest.Longer("x", true), sourcetest.Header("Content-Range", ""), sourcetest.Stall(3, time.Hour),
			sourcetest.Status(403), sourcetest.Status(429),
		}
		s.Inject(sourcetest.Fault{Kind: "data", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
			mu.Lock()
			fails, kind := rng.IntN(5) == 0, rng.IntN(len(faults))
			mu.Unlock()
			if fails {
				faults[kind](w, r, right)
				return
			}
			right.ServeHTTP(w, r)
		}})
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := range reads / 16 {
					if err := retried(t, s, b, shard, int64(w*10_000+i*300), 9000, 10*time.Minute); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := count(s.Log(0), "data"); n < reads*11/10 || n > reads*3/2 {
			t.Errorf("%d requests for %d reads", n, reads)
		}
	})
}

// TestBrokenForAWhile: something in the way of a server that kept the rule before is waited out.
func TestBrokenForAWhile(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		b := open(t, src, shard)
		if _, err := read(t, s, b, shard, 0, 10); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(30 * time.Second)
		s.Inject(sourcetest.Fault{Kind: "data", Do: func(w http.ResponseWriter, r *http.Request, right http.Handler) {
			if time.Now().Before(end) {
				sourcetest.Status(200, "Content-Type: text/html")(w, r, right)
				return
			}
			right.ServeHTTP(w, r)
		}})
		if err := retried(t, s, b, shard, 5, 10, time.Minute); err != nil {
			t.Error(err)
		}
		if n := count(s.Log(0), "data"); n > 12 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestBrokenForGood: a server that always breaks the rule is not asked for ever.
func TestBrokenForGood(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		b := open(t, src, shard)
		s.Inject(sourcetest.Fault{Kind: "data", Do: sourcetest.Header("Content-Range", "")})
		err := retried(t, s, b, shard, 5, 10, time.Hour)
		if !errors.Is(err, sources.ErrBroken) || count(s.Log(0), "data") != 3 || o.Metrics.Refused.Load() != 3 {
			t.Errorf("%d requests, %d refused, %v", count(s.Log(0), "data"), o.Metrics.Refused.Load(), err)
		}
	})
}

// TestSizesLater: a cache that is still getting a file does not know its size. It is asked again for some seconds; a file whose size is
// never said is hidden.
func TestSizesLater(t *testing.T) {
	unsized := func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		if r.Method != http.MethodHead {
			io.WriteString(w, "some of it")
		}
	}
	for _, c := range []struct {
		name   string
		fault  sourcetest.Fault
		files  int
		hidden string
	}{
		{"in a while", sourcetest.Fault{Kind: "plain", Times: 60, Do: unsized}, 5, ""},
		{"never", sourcetest.Fault{Kind: "plain", Path: "README.md", Do: unsized}, 4, "README.md: the server does not say its size"},
		{"compressed", sourcetest.Fault{Kind: "plain", Path: shard, Do: sourcetest.Header("Content-Encoding", "gzip")}, 4, shard + ": the server does not say its size"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sourcetest.Server{Files: withIndex(sourcetest.Small())}
			inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, _ sources.Source, o *sources.Options) {
				s.Inject(c.fault)
				start := time.Now()
				l, err := newHTTP(t, s.HubURL+"/plain/", o).List(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(l.Files) != c.files || len(l.Hidden) > 1 || len(l.Hidden) == 0 != (c.hidden == "") || time.Since(start) > 20*time.Second {
					t.Errorf("after %s: files %v, hidden %v", time.Since(start), paths(l), l.Hidden)
				}
				for _, h := range l.Hidden {
					if h.Path+": "+h.Reason != c.hidden {
						t.Errorf("hidden %v", h)
					}
				}
			})
		})
	}
}

// TestListAbandoned: a List that nobody waits for asks nothing more.
func TestListAbandoned(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, _ *sources.Options) {
		s.Inject(sourcetest.Fault{Kind: "api", Do: sourcetest.Stall(0, 5*time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := src.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(s.Log(0)); n != 1 {
			t.Errorf("%d requests, want the one that was under way", n)
		}
	})
}

// TestListLeft: a List that nobody waits for any more ends; one that someone else waits for does not.
func TestListLeft(t *testing.T) {
	s := &sourcetest.Server{}
	inBubble(t, s, func(t *testing.T, _ *sourcetest.MemNet, src sources.Source, o *sources.Options) {
		s.Inject(sourcetest.Fault{Kind: "api", Path: "/revision/", Do: sourcetest.Stall(0, 5*time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := src.List(t.Context()); err != nil {
				t.Errorf("the patient one: %v", err)
			}
		})
		if _, err := src.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the impatient one: %v", err)
		}
		wg.Wait()
		if n := len(s.Log(0)); n != 3 {
			t.Errorf("%d requests, want one revision and two pages", n)
		}
	})
}
