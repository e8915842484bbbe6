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
	check   = "verify"      // a release is verified by another process, through the same cache directory
	prune   = "prune"       // somebody wants to empty the cache: the daemon that uses it says no
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
	proxy   string // stands before the hub; "" is none
	sealed  bool   // all releases are sealed first
	require bool   // mounted with --require-sealed
	fio     string // the engine of a fio that reads beside the readers; "" is none
}

func (r round) String() string {
	return fmt.Sprintf("round %d: %d mounts, %d MiB, cache %s (passthrough %v, sealed %v, required %v), proxy %q, fio %q, latency %v, %d readers for %v, events %v\n%s",
		r.n, r.mounts, r.memory, r.cache, r.through, r.sealed, r.require, r.proxy, r.fio, r.latency, r.readers, r.lasts, r.events, r.faults)
}

// transient are faults that readers must not notice, and how often they are drawn at most.
var transient = []fault{
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

type fault struct {
	most float64
	rule string
}

// gentle are those of them that a cache before the hub does not keep.
var gentle = slices.DeleteFunc(slices.Clone(transient), func(f fault) bool {
	_, action, _ := strings.Cut(f.rule, " : ")
	kind, _, _ := strings.Cut(action, " ")
	return !slices.Contains([]string{"status", "drop", "reset", "close", "abort", "stall"}, kind)
})

// faulty draws a plan: some of these faults, so that about a fifth of the requests fail at most.
func faulty(r *rand.Rand, from []fault) string {
	var b strings.Builder
	if r.IntN(3) == 0 {
		fmt.Fprintf(&b, "hub signed=%ds\n", 2+r.IntN(5))
	}
	for range r.IntN(5) {
		t := from[r.IntN(len(from))]
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
		latency: time.Duration(pick(r, 0, 0, 1, 5, 20)) * time.Millisecond, faults: faulty(r, transient),
		lasts: time.Duration(1500+r.IntN(2500)) * time.Millisecond, seed: r.Uint64(),
	}
	for range r.IntN(4) {
		what := pick(r, restart, outage, damage, damage, damage, damage, lose, killOne, crash, crash)
		if p.cache == cacheTmpfs && what == lose {
			what = fill
		}
		p.events = append(p.events, event{after: time.Duration(r.Int64N(int64(p.lasts))), what: what})
	}
	p.through = p.cache == cacheFresh && !p.has(damage)
	for range r.IntN(3) {
		p.events = append(p.events, event{after: time.Duration(r.Int64N(int64(p.lasts))), what: pick(r, check, prune)})
	}
	slices.SortStableFunc(p.events, func(a, b event) int { return cmp.Compare(a.after, b.after) })
	p.sealed = r.IntN(6) == 0 && (p.cache == cacheShared || p.cache == cacheFresh)
	p.require = p.sealed && r.IntN(2) == 0 && !p.has(lose)
	if r.IntN(4) == 0 {
		p.fio = pick(r, engines...)
	}
	if r.IntN(3) == 0 {
		p = p.behind(pick(r, proxies...).name)
	}
	return p
}

// has says whether something happens in the round.
func (r round) has(what string) bool {
	return slices.ContainsFunc(r.events, func(e event) bool { return e.what == what })
}

// behind is the round behind a proxy, with faults that no cache keeps.
func (r round) behind(proxy string) round {
	r.proxy, r.faults = proxy, faulty(rand.New(rand.NewPCG(r.seed, 3)), gentle)
	return r
}
