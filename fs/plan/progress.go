package plan

import (
	"slices"
	"sync"
	"time"
	"weak"
)

// What progress remembers. Everything is bounded, whatever is read.
const (
	maxStreams = 256
	maxAsked   = 4096      // units
	maxWindow  = 384 << 20 // bytes of a file asked for before they are read: enough for 16 connections
	aheadTimes = 32        // and no more than so many times what the stream has read: who stops early has cost little
	maxNext    = 64        // bundles asked for by one read
	forgetUnit = 1 << 30   // a unit is remembered until this many bytes of others have been asked for
	minSlack   = 1 << 20   // a read this near to where a stream should go on is part of it: kernels send reads out of order
)

// streamBorders is how many borders of units a stream has passed when it is taken to go on.
const streamBorders = 2

// leftFor is how long a stream has had no read, while its plan is read elsewhere, when its reader is taken to have gone there.
const leftFor = 10 * time.Millisecond

// progress watches the reads of all plans and says which units to ask for. A unit is asked for once, when it is first touched. Reads that go
// on where others ended are a stream, whoever sends them; a stream that has gone over two borders of units asks for the units ahead
// of it, 32 times as far as it has read. One that began within the file, and may have come to the next unit only because kernels read ahead, asks for as much
// of it as it has read. A read that continues no stream asks for nothing but its own unit, and not even for that if the unit is a
// stretch of a large file: then for the part of it that [Plan.SetParts] tells. When the plan is read elsewhere and a stream is not, what it asked for
// beyond the unit that it is in is given up; should it go on after all, it asks again.
//
// Plans are remembered by weak pointers: nothing here keeps one alive.
type progress struct {
	drop  func([]Span)                // of a [Dropper], else nil; called with mu held, so that what is asked for again is not dropped
	now   func() time.Time            // nil is time.Now
	after func(time.Duration, func()) // calls back, else nil

	mu      sync.Mutex // guards everything below
	tick    uint64
	streams []*stream
	asked   map[unitKey]int64 // length of the unit
	order   []unitKey         // of asked, oldest first
	total   int64             // bytes of asked
}

type unitKey struct {
	plan  weak.Pointer[Plan]
	start int64
	what  asking
}

// asking is what is asked for as one.
type asking uint8

const (
	askUnit asking = iota
	askPart
	askBundle
)

// stream is a run of reads that follow each other in one plan.
type stream struct {
	plan    weak.Pointer[Plan]
	from    int64  // where it began
	inside  bool   // that is not the beginning of a file that is read as a whole
	next    int64  // end of the furthest read
	unit    int64  // end of the furthest unit touched
	asked   int64  // what lies before this offset was asked for
	home    int64  // end of the unit that it began in, or of the last that it has left
	borders int    // of units that it has left, up to streamBorders
	used    uint64 // tick of the last read
	reading int    // reads that have not ended
	ended   time.Time
	into    *stream // that it has become part of
}

// access is a read of [off, end). A kernel's has bytes that nobody asked for, around a page that was touched and ahead of reads.
type access struct {
	off, end int64
	kernel   bool
}

func (a access) len() int64 { return a.end - a.off }

// middle is a byte that was touched, of those from pos on. Kernels read around a page fault: it is at the end of the page in the middle, since what
// was touched may be anywhere in its page.
func (a access) middle(pos int64) int64 {
	if !a.kernel {
		return pos
	}
	return min(a.end-1, (pos+a.end)/2|(4096-1))
}

// near says that the read belongs to a stream that has come to next: it begins where that is, or as far from it as kernels' reads are out of order.
func (a access) near(next int64) bool {
	return a.off-next <= max(minSlack, a.len()) && next-a.off <= max(minSlack, 2*a.len())
}

// skips says that the read goes on behind the unit that would have been next: whoever loads some tensors of many, in their order, is a stream too.
func (s *stream) skips(p *Plan, a access) bool {
	if a.off < s.next || s.unit >= p.Size || a.off-s.unit > unitBundle {
		return false
	}
	_, stop, whole := p.Unit(s.unit)
	return whole && !p.copied(s.unit) && a.off <= stop
}

// holds says that the unit [start, stop) was touched, and is not only there because a kernel has read around what was.
func (a access) holds(start, stop int64) bool {
	mid := a.middle(a.off)
	return !a.kernel || start <= mid && mid < stop
}

// begin records a read and appends to ask the units to ask for now: those that the read touches first, then those that its
// stream will need next. The read ends with end.
func (g *progress) begin(p *Plan, a access, ask []Unit) ([]Unit, *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := weak.Make(p)
	s, going := g.stream(p, key, a)
	s.reading++
	g.idle(p, key, leftFor)
	if !going {
		g.later(p, key)
	}
	going = going || !s.inside
	for pos, first := a.off, !going; pos < a.end; {
		start, stop, whole := p.Unit(pos)
		switch {
		case !whole && s.part(p, a.middle(pos), going):
			ask = g.part(p, key, s, a, a.middle(pos), ask)
		case going && !whole && s.short(pos, start, stop):
			if a.end-s.from >= unitSmall {
				p.lone.Store(0)
			}
			ask = s.double(stop, a.end, ask)
		case whole && first && !a.holds(start, stop):
		case whole && !first && p.copied(pos) && s.edge(start, stop, a):
		case whole && s.before(start, a) && stop-start > a.end-s.from:
			ask = s.double(stop, a.end, ask)
		case going && s.borders >= streamBorders:
			ask, _ = g.bundle(p, key, pos, ask)
		case (whole || going) && !g.bundled(p, key, pos) && g.ask(unitKey{key, start, askUnit}, stop-start):
			ask = append(ask, Unit{start, p.beyond(stop, a), whole})
		}
		s.pass(p, start, a)
		s.unit = max(s.unit, stop)
		pos, going = stop, true
	}
	s.next = max(s.next, a.end)
	g.join(s, a.off)
	return g.next(p, key, s, ask), s
}

// join makes streams part of s that began between off and where s has come to, if they have not gone further than s asks ahead: readers of a file that take
// turns are one stream.
func (g *progress) join(s *stream, off int64) {
	for i := 0; i < len(g.streams); i++ {
		t := g.streams[i]
		if t == s || t.plan != s.plan || t.from < off || t.from > s.next || t.next > s.next+s.window() {
			continue
		}
		t.into = s
		s.next, s.unit, s.asked = max(s.next, t.next), max(s.unit, t.unit), max(s.asked, t.asked)
		s.borders += t.borders
		s.reading += t.reading
		if t.ended.After(s.ended) {
			s.ended = t.ended
		}
		g.streams = slices.Delete(g.streams, i, i+1)
		i = -1 // it may have come to where another one began
	}
}

// window is how far a stream asks ahead.
func (s *stream) window() int64 { return min(maxWindow, aheadTimes*(s.next-s.from)) }

// beyond is how far to fetch when a block is touched: a kernel's last read of it has as much of the next one as fills the read, and its reader would wait
// for that.
func (p *Plan) beyond(stop int64, a access) int64 {
	if !a.kernel || stop == p.Size || !p.copied(stop-1) {
		return stop
	}
	return min(stop+a.len(), p.Size)
}

// pass counts the units that a stream has left, until they are enough, when a read is in the unit that begins at start. What kernels read
// ahead is no progress of a reader: in streams that began inside the file their last two reads do not count.
func (s *stream) pass(p *Plan, start int64, a access) {
	if s.inside && a.kernel {
		start = min(start, s.next-2*a.len())
	}
	for s.borders < streamBorders && s.home <= start && s.home < p.Size {
		from, to, _ := p.Unit(s.home)
		if !s.inside || !p.copied(from) || from-s.from >= to-from {
			s.borders++
		}
		s.home = to
	}
}

// before says that a stream that began inside the file may have come to the unit at start only because kernels read ahead.
func (s *stream) before(start int64, a access) bool {
	return s.inside && a.kernel && s.borders < streamBorders && start >= s.home
}

// end records that a read has ended.
func (g *progress) end(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s.into != nil {
		s = s.into
	}
	s.reading--
	s.ended = g.clock()
}

func (g *progress) clock() time.Time {
	if g.now != nil {
		return g.now()
	}
	return time.Now()
}

// part says whether a read at off is reason to fetch the part it is in, as a stream that began within a file reaches it. A stream that has read
// more than two of them is going on: it is met by what double asks for.
func (s *stream) part(p *Plan, off int64, going bool) bool {
	if going && s.from == 0 {
		return false
	}
	start, end, ok := p.part(off)
	return ok && off-s.from <= 2*(end-start)
}

// short says that a stream began within the file and has read less than the unit [start, stop), which it has come to at off.
func (s *stream) short(off, start, stop int64) bool {
	return s.from > start || s.from > 0 && off-s.from < stop-start
}

// edge says that a read of a stream that began inside the file may touch the unit [start, stop) only because kernels read around what was touched, and
// as much again ahead of it: its middle is elsewhere, or it is one of the stream's first two in a unit that the stream did not begin in. It matters for
// blocks of experts, which are read one by one; tensors are mostly read on from, if as far only as was read before.
func (s *stream) edge(start, stop int64, a access) bool {
	return s.inside && a.kernel && (!a.holds(start, stop) || s.from < start && a.off < start+2*a.len())
}

// part asks for the part that a stream has touched, and for a kernel one cell more, since that reads a little further. The second read in a part
// says that touching one is reason to fetch it.
func (g *progress) part(p *Plan, key weak.Pointer[Plan], s *stream, a access, off int64, ask []Unit) []Unit {
	start, end, _ := p.part(off)
	if a.kernel && s.from < start-unitCell && off < start+2*unitCell {
		return ask // the kernel's read-ahead may go that far, no reader
	}
	if !g.ask(unitKey{key, start, askPart}, end-start) {
		if off < s.asked {
			p.lone.Store(0)
		}
		return ask
	}
	p.lone.Add(end - start)
	if a.kernel {
		end = min(end+unitCell, p.Size)
	}
	s.asked = max(s.asked, end)
	return append(ask, Unit{Start: start, End: end})
}

// double is for a stream in a unit that is not fetched for a lone touch, or that may not have been touched by a reader: it asks for as much of the unit as the
// stream has read so far, so that at most half of what is fetched is for nothing.
func (s *stream) double(stop, end int64, ask []Unit) []Unit {
	read := end - s.from
	from, to := max(end, s.asked), min(stop, (end+read)/unitCell*unitCell)
	if to <= from || to < stop && to-from < read/2 {
		return ask
	}
	s.asked = to
	return append(ask, Unit{Start: from, End: to})
}

// next asks for the units that begin in the stream's window.
func (g *progress) next(p *Plan, key weak.Pointer[Plan], s *stream, ask []Unit) []Unit {
	if s.borders < streamBorders {
		return ask
	}
	limit := min(p.Size, s.next+s.window())
	pos := max(s.unit, s.asked)
	for i := 0; pos < limit && i < maxNext; i++ { // also what was asked for before: it may be gone since, and if it is not, that costs nothing
		k, end := bundleKey(p, key, pos)
		g.ask(k, end-k.start)
		ask, pos = append(ask, bundleFrom(p, pos, end)), end
	}
	s.asked = pos
	return ask
}

// bundle asks for the bundle around off and returns its end.
func (g *progress) bundle(p *Plan, key weak.Pointer[Plan], off int64, ask []Unit) ([]Unit, int64) {
	k, end := bundleKey(p, key, off)
	if g.ask(k, end-k.start) {
		ask = append(ask, bundleFrom(p, off, end))
	}
	return ask, end
}

// bundleFrom is a bundle that ends at end, from the unit around off on: a stream that began within the bundle needs no more.
func bundleFrom(p *Plan, off, end int64) Unit {
	from, _, _ := p.Unit(off)
	return Unit{Start: from, End: end}
}

// bundled says whether the bundle around off was asked for.
func (g *progress) bundled(p *Plan, key weak.Pointer[Plan], off int64) bool {
	k, _ := bundleKey(p, key, off)
	_, ok := g.asked[k]
	return ok
}

// bundleKey is the key of the bundle around off, and its end. A bundle of one unit is that unit.
func bundleKey(p *Plan, key weak.Pointer[Plan], off int64) (unitKey, int64) {
	start, end := p.bundle(off)
	if from, to, _ := p.Unit(off); from == start && to == end {
		return unitKey{key, start, askUnit}, end
	}
	return unitKey{key, start, askBundle}, end
}

// stream finds the stream that the read belongs to, the nearest if there are several, or begins one in place of the least recently used.
func (g *progress) stream(p *Plan, key weak.Pointer[Plan], a access) (s *stream, going bool) {
	g.tick++
	best, oldest := -1, -1
	for i := range g.streams {
		s := g.streams[i]
		if d := abs(a.off - s.next); s.plan == key && (a.near(s.next) || s.skips(p, a)) && (best < 0 || d < abs(a.off-g.streams[best].next)) {
			best = i
		}
		if oldest < 0 || s.used < g.streams[oldest].used {
			oldest = i
		}
	}
	if best >= 0 {
		s = g.streams[best]
		s.used, s.from = g.tick, min(s.from, a.off)
		return s, true
	}
	s = &stream{plan: key, from: a.off, next: a.end, used: g.tick, inside: a.off > 0 || p.copied(0)}
	touched := a.off
	if s.inside {
		touched = a.middle(a.off)
	}
	_, s.home, _ = p.Unit(touched)
	if len(g.streams) < maxStreams {
		g.streams = append(g.streams, s)
	} else {
		g.streams[oldest] = s
	}
	return s, false
}

// leave gives up what streams of a plan ask for that has been closed by somebody, but for those that are being read.
func (g *progress) leave(p *Plan) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle(p, weak.Make(p), 0)
}

// idle gives up what streams of a plan ask for that have had no read for a while.
func (g *progress) idle(p *Plan, key weak.Pointer[Plan], while time.Duration) {
	if g.drop == nil {
		return
	}
	var now time.Time
	for _, s := range g.streams {
		if s.reading > 0 || !s.waits(key) {
			continue
		}
		if now.IsZero() {
			now = g.clock()
		}
		if now.Sub(s.ended) >= while {
			g.giveUp(p, key, max(s.unit, s.next), s.asked)
		}
	}
}

// waits says that a stream of the plan has asked for something beyond the unit that it is in.
func (s *stream) waits(key weak.Pointer[Plan]) bool {
	return s.plan == key && s.borders >= streamBorders && max(s.unit, s.next) < s.asked
}

// later looks for idle streams once more, when those that have been left a moment ago are: the reader that went elsewhere may read nothing again.
func (g *progress) later(p *Plan, key weak.Pointer[Plan]) {
	if g.after == nil || !slices.ContainsFunc(g.streams, func(s *stream) bool { return s.waits(key) }) {
		return
	}
	g.after(leftFor+time.Millisecond, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.idle(p, key, leftFor)
	})
}

// giveUp takes back that [from, to) was asked for.
func (g *progress) giveUp(p *Plan, key weak.Pointer[Plan], from, to int64) {
	for k, n := range g.asked {
		if k.plan == key && k.start < to && k.start+n > from {
			g.total -= n
			delete(g.asked, k)
		}
	}
	g.order = slices.DeleteFunc(g.order, func(k unitKey) bool { _, ok := g.asked[k]; return !ok })
	for _, s := range g.streams {
		if s.plan == key && s.next < to {
			s.asked = min(s.asked, max(from, s.next))
		}
	}
	g.drop(p.ahead(from, to-from))
}

func abs(n int64) int64 { return max(n, -n) }

// ask remembers a unit and says whether it is new.
func (g *progress) ask(key unitKey, n int64) bool {
	if _, ok := g.asked[key]; ok {
		return false
	}
	if g.asked == nil {
		g.asked = map[unitKey]int64{}
	}
	g.asked[key] = n
	g.order = append(g.order, key)
	for g.total += n; len(g.order) > 1 && (g.total > forgetUnit || len(g.order) > maxAsked); {
		g.total -= g.asked[g.order[0]]
		delete(g.asked, g.order[0])
		g.order = g.order[1:]
	}
	return true
}
