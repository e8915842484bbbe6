package sources

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	mostGate = 300 * time.Second // the longest pause a server may ask for
	mostSway = time.Second       // waiters start up to this much, or a tenth of the pause, apart
)

// gate holds back all requests to one host: a number of slots, and a time before which nothing is sent. What is fetched ahead takes no slot while
// somebody waits for one, and leaves one free, so that a reader's request starts at once.
type gate struct {
	conns    int
	answered atomic.Bool // the host gave a reply before
	ranged   atomic.Bool // and a right one to a range

	full atomic.Bool // a reader waits for a slot

	mu     sync.Mutex // guards the fields below
	taken  int        // slots
	queue  []*waiter  // for a slot, first come first served but for those ahead
	giving int        // slots of what is fetched ahead that are being given to readers
	until  time.Time
	paused time.Duration // length of the pause that ends at until
	bare   int           // replies 429 in a row that did not say how long to wait
	warned string        // the last warning of the host
}

func newGate(conns int) *gate { return &gate{conns: conns} }

// waiter is a request that waits for a slot.
type waiter struct {
	granted chan struct{}
	ahead   bool // nobody waits for the reply; guarded by gate.mu
}

type aheadKey struct{}

// Ahead is a context for what is fetched ahead of readers: its requests wait for those of readers, until wanted is closed. If it ends before, they fail with
// [ErrNoTurn]; so do bodies that would keep a connection for long while a reader waits for one: the rest can be asked for again, and has its turn later.
func Ahead(ctx context.Context, wanted <-chan struct{}) context.Context {
	return context.WithValue(ctx, aheadKey{}, wanted)
}

// notAhead is a context for what readers may wait for, whoever started it.
func notAhead(ctx context.Context) context.Context { return context.WithValue(ctx, aheadKey{}, nil) }

// enter waits for the pause to end and for a slot. Every enter that returns nil is followed by one leave.
func (g *gate) enter(ctx context.Context) error {
	for {
		if err := g.wait(ctx); err != nil {
			return err
		}
		if err := g.slot(ctx); err != nil {
			return err
		}
		if g.rest() <= 0 {
			return nil
		}
		g.leave()
	}
}

func (g *gate) leave() { g.left(false) }

// left is leave for who may have been asked to give the slot to a reader.
func (g *gate) left(gave bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken--; gave {
		g.giving--
	}
	g.grant()
}

// give says whether to give a slot to a reader that waits, for whom nobody else does. Who is told so leaves.
func (g *gate) give() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	readers := 0
	for _, w := range g.queue {
		if !w.ahead {
			readers++
		}
	}
	if readers <= g.giving {
		return false
	}
	g.giving++
	return true
}

// turn is whether a request is ahead of readers, and what is closed when one waits for it.
func turn(ctx context.Context) (wanted <-chan struct{}, ahead bool) {
	wanted, ahead = ctx.Value(aheadKey{}).(<-chan struct{})
	select {
	case <-wanted:
		return nil, false
	default:
		return wanted, ahead
	}
}

// slot waits for a slot.
func (g *gate) slot(ctx context.Context) error {
	wanted, ahead := turn(ctx)
	w := &waiter{granted: make(chan struct{}), ahead: ahead}
	g.mu.Lock()
	g.queue = append(g.queue, w)
	g.grant()
	g.mu.Unlock()
	for {
		select {
		case <-w.granted:
			return nil
		case <-wanted:
			wanted = nil
			g.mu.Lock()
			w.ahead = false
			g.grant()
			g.mu.Unlock()
		case <-ctx.Done():
			if g.giveBack(w) {
				return fmt.Errorf("%w: %w", ErrNoTurn, context.Cause(ctx))
			}
			return context.Cause(ctx)
		}
	}
}

// giveBack ends the wait of w, also if it has a slot by now, and says whether readers were before it to the end.
func (g *gate) giveBack(w *waiter) (ahead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.grant()
	if i := slices.Index(g.queue, w); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
		return w.ahead
	}
	g.taken--
	return false
}

// grant gives slots to those who wait. mu is held.
func (g *gate) grant() {
	g.full.Store(false)
	for len(g.queue) > 0 {
		i, room := slices.IndexFunc(g.queue, func(w *waiter) bool { return !w.ahead }), g.conns
		if i < 0 {
			i, room = 0, max(1, g.conns-1)
		}
		if g.taken >= room {
			g.full.Store(!g.queue[i].ahead)
			return
		}
		g.taken++
		close(g.queue[i].granted)
		g.queue = slices.Delete(g.queue, i, i+1)
	}
}

// wait sleeps until no pause is on. Those who had to wait start at slightly different times.
func (g *gate) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		rest, sway := time.Until(g.until), min(g.paused/10, mostSway)
		g.mu.Unlock()
		if rest <= 0 {
			return nil
		}
		if err := sleep(ctx, rest+rand.N(sway+1)); err != nil {
			return temporary("the host asked for a pause of another %s: %w", rest.Round(time.Second), err)
		}
	}
}

// rest is how much of the pause is left.
func (g *gate) rest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.until)
}

// newWarning reports whether a warning of the host is another one than its last.
func (g *gate) newWarning(w string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	same := g.warned == w
	g.warned = w
	return !same
}

// note reads from a reply how long the host wants everyone to wait, and reports whether that starts or lengthens a pause. A host that
// answers 429 and does not say how long gets 1, 2, 4 … 64 s. A quota of which less than a twentieth is left is spread over what is
// left of its window.
func (g *gate) note(status int, h http.Header) (time.Duration, bool) {
	pause, spread := asked(status, h, time.Now())
	g.mu.Lock()
	defer g.mu.Unlock()
	if status == http.StatusTooManyRequests && pause == 0 {
		pause = time.Second << min(g.bare, 6)
		if time.Until(g.until) > 0 { // one burst of replies is one refusal
			return 0, false
		}
		g.bare++
	} else if status < 400 {
		g.bare = 0
	}
	pause = min(pause, mostGate)
	if end := time.Now().Add(pause); pause > 0 && end.After(g.until) {
		longer := !spread && end.Sub(g.until) > pause/2
		g.until, g.paused = end, pause
		return pause, longer
	}
	return 0, false
}

// asked is the pause that a reply asks for, 0 for none, and whether it is only the pace of a quota that runs low.
func asked(status int, h http.Header, now time.Time) (pause time.Duration, pace bool) {
	refused := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	left, reset, ok := rateLimit(h.Get("RateLimit"))
	switch after := retryAfter(h.Get("Retry-After"), now); {
	case refused && ok && left == 0 && reset > 0:
		return reset + time.Second, false
	case refused && after > 0:
		return after, false
	case refused && status == http.StatusTooManyRequests && ok && reset > 0:
		return reset + time.Second, false
	case refused || !ok:
		return 0, false
	case left == 0:
		return reset + time.Second, false
	}
	if quota := rateQuota(h.Get("RateLimit-Policy")); left < quota/20 {
		return reset / time.Duration(left+1), true
	}
	return 0, false
}

// retryAfter reads a Retry-After header, seconds or a date; 0 if there is none or it is over.
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, mostGate)
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// rateLimit reads `"resolvers";r=2998;t=172`: requests left and time to the end of the window (IETF draft ratelimit-headers).
func rateLimit(s string) (left int64, reset time.Duration, ok bool) {
	r, okR := parameter(s, "r")
	t, okT := parameter(s, "t")
	return r, min(time.Duration(t)*time.Second, mostGate), okR && okT
}

// rateQuota reads q of `"fixed window";"resolvers";q=3000;w=300`, 0 if there is none.
func rateQuota(s string) int64 {
	q, _ := parameter(s, "q")
	return q
}

// parameter is the number of `;name=number` in a structured header.
func parameter(s, name string) (int64, bool) {
	for part := range strings.SplitSeq(s, ";") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(part), name+"="); ok {
			n, err := strconv.ParseUint(v, 10, 31)
			return int64(n), err == nil
		}
	}
	return 0, false
}
