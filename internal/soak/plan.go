package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// event is something that happens while readers read.
type event struct {
	after time.Duration // since the readers began
	what  string
}

// events by name, and what happens. After a crash reads may fail; readers notice nothing else.
const (
	restart = "restart"     // the hub ends and starts again, its CDN on another port
	outage  = "outage"      // the hub is away for outageLasts
	damage  = "damage"      // bytes of the cache's files flip, files become shorter or vanish
	lose    = "lose"        // the cache directory is removed
	fill    = "fill"        // the cache's disk fills up
	killOne = "kill reader" // SIGKILL to a reader
	crash   = "crash"       // SIGKILL to a daemon; it is mounted again, and readers begin again
)

const outageLasts = 2 * time.Second

// kinds of cache directory.
const (
	cacheShared = "shared" // the directory of all rounds
	cacheFresh  = "fresh"
	cacheTiny   = "tiny"  // of 2 MiB
	cacheNone   = "none"  // nothing on disk
	cacheTmpfs  = "tmpfs" // a disk of 8 MiB
)

// round is what one round does. It is a function of the seed and the round's number.
type round struct {
	n       int
	mounts  int // daemons, all with the same cache directory
	memory  int // MiB
	cache   string
	faults  string // a fault plan
	latency time.Duration
	readers int // of each mount
	lasts   time.Duration
	seed    uint64 // of the readers
	events  []event
	// through: the kernel may read complete files of the cache by itself. Damage done there later, or in an earlier round, is then read too.
	through bool
}

func (r round) String() string {
	return fmt.Sprintf("round %d: %d mounts, %d MiB, cache %s (passthrough %v), latency %v, %d readers for %v, events %v\n%s",
		r.n, r.mounts, r.memory, r.cache, r.through, r.latency, r.readers, r.lasts, r.events, r.faults)
}

// transient are faults that readers must not notice, and how often they are drawn at most.
var transient = []struct {
	most float64
	rule string
}{
	{0.10, `on any p=%.4f seed=%d : status code=503 body="busy"`},
	{0.10, `on any p=%.4f seed=%d : status code=500 body="broken"`},
	{0.10, `on data p=%.4f seed=%d : drop after=1000`},
	{0.10, `on data p=%.4f seed=%d : reset after=70000`},
	{0.10, `on any p=%.4f seed=%d : close`},
	{0.10, `on any p=%.4f seed=%d : abort`},
	{0.01, `on data p=%.4f seed=%d : stall after=1000 for=3s`},
	{0.01, `on any p=%.4f seed=%d : hang for=3s`},
	{0.02, `on data p=%.4f seed=%d : drip rate=200K`},
	{0.10, `on data p=%.4f seed=%d : full`},
	{0.10, `on data p=%.4f seed=%d : gzip`},
	{0.10, `on data p=%.4f seed=%d : range start=4`},
	{0.10, `on data p=%.4f seed=%d : header drop=Content-Range`},
	{0.10, `on data p=%.4f seed=%d : multipart`},
	{0.10, `on data p=%.4f seed=%d : short by=1`},
	{0.10, `on data p=%.4f seed=%d : long by=10`},
	{0.10, `on data p=%.4f seed=%d : chunked`},
	{0.10, `on data p=%.4f seed=%d : unsatisfiable`},
	{0.10, `on data p=%.4f seed=%d first=1 per=range : expired`}, // twice in a row it is an answer
	{0.05, `on data p=%.4f seed=%d first=1 per=range : status code=401 body="Unauthorized"`},
	{0.02, `on any p=%.4f seed=%d : status code=429 header="Retry-After: 1"`},
}

// faulty draws a plan: some kinds of fault, so that about a fifth of the requests fail at most.
func faulty(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(3) == 0 {
		fmt.Fprintf(&b, "hub signed=%ds\n", 2+r.IntN(5))
	}
	for range r.IntN(5) {
		t := transient[r.IntN(len(transient))]
		fmt.Fprintf(&b, t.rule+"\n", max(0.0001, t.most*r.Float64()), r.IntN(1000)) // 0 is always
	}
	return b.String()
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// draw is round n of a seed.
func draw(seed uint64, n int) round {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	p := round{
		n: n, mounts: pick(r, 1, 1, 2), memory: pick(r, 8, 8, 16, 64, 256), readers: 1 + r.IntN(4),
		cache:   pick(r, cacheShared, cacheShared, cacheShared, cacheFresh, cacheFresh, cacheTiny, cacheNone, cacheTmpfs),
		latency: time.Duration(pick(r, 0, 0, 1, 5, 20)) * time.Millisecond, faults: faulty(r),
		lasts: time.Duration(1500+r.IntN(2500)) * time.Millisecond, seed: r.Uint64(),
	}
	for range r.IntN(4) {
		what := pick(r, restart, outage, damage, damage, damage, damage, lose, killOne, crash, crash)
		if p.cache == cacheTmpfs && what == lose {
			what = fill
		}
		p.events = append(p.events, event{after: time.Duration(r.Int64N(int64(p.lasts))), what: what})
	}
	slices.SortFunc(p.events, func(a, b event) int { return cmp.Compare(a.after, b.after) })
	p.through = p.cache == cacheFresh && !slices.ContainsFunc(p.events, func(e event) bool { return e.what == damage })
	return p
}
