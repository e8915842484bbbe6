package cache

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"weightfs/fs/plan"
)

// Gather fills every read or fails as a whole; ahead is fetched with it as far as memory is free. It never waits for ahead.
func (f *Files) Gather(ctx context.Context, reads []plan.Read, ahead []plan.Span) error {
	if err := f.cache.enter(); err != nil {
		return err
	}
	defer f.cache.leave()
	return f.gather(&gather{f: f, ctx: ctx}, reads, ahead)
}

// Hold is Gather, but lends the memory of cells to reads that permit it: they stay where they are until release is called.
func (f *Files) Hold(ctx context.Context, reads []plan.Read, ahead []plan.Span) (release func(), err error) {
	if err := f.cache.enter(); err != nil {
		return func() {}, err
	}
	g := &gather{f: f, ctx: ctx, lend: true}
	if err := f.gather(g, reads, ahead); err != nil || len(g.held) == 0 {
		f.cache.leave()
		return func() {}, err
	}
	return func() {
		f.cache.mem.release(g.held...)
		f.cache.leave()
	}, nil
}

func (f *Files) gather(g *gather, reads []plan.Read, ahead []plan.Span) error {
	ctx := g.ctx
	if err := f.checkSpans(reads, ahead); err != nil {
		return err
	}
	if err := f.openAll(ctx, reads); err != nil {
		return err
	}
	want, err := f.readInPlace(ctx, reads)
	if err != nil {
		return err
	}
	if ahead = f.openAhead(ctx, ahead); len(want) == 0 {
		if len(ahead) > 0 {
			f.fetchAhead(ctx, ahead)
		}
		return nil
	}
	g.ahead = ahead
	batches := split(joined(want), f.cache.mem.maxGather())
	g.lend = g.lend && len(batches) == 1 // nobody holds some cells while waiting for memory for others
	for i := range batches {
		g.want = batches[i]
		g.later = batches[i+1:]
		if err := g.do(reads); err != nil {
			return err
		}
	}
	return nil
}

// checkSpans refuses what only a bug asks for.
func (f *Files) checkSpans(reads []plan.Read, ahead []plan.Span) error {
	for _, r := range reads {
		if int64(len(r.Dst)) != r.Span.Len() {
			return fmt.Errorf("a buffer of %d bytes for span %v", len(r.Dst), r.Span)
		}
		if err := f.checkSpan(r.Span); err != nil {
			return err
		}
	}
	for _, s := range ahead {
		if err := f.checkSpan(s); err != nil {
			return err
		}
	}
	return nil
}

func (f *Files) checkSpan(s plan.Span) error {
	if s.File < 0 || s.File >= len(f.files) || s.Start < 0 || s.End < s.Start || s.End > f.files[s.File].entry.Size {
		return fmt.Errorf("span %v is not in the release's files", s)
	}
	return nil
}

// readInPlace reads what needs no cell in memory straight into place, and returns the cells that all the rest lies in: local files, and
// whole cells that are on disk only.
func (f *Files) readInPlace(ctx context.Context, reads []plan.Read) ([]extent, error) {
	want := make([]extent, 0, len(reads))
	for _, r := range reads {
		o := f.files[r.Span.File].open.Load()
		switch {
		case len(r.Dst) == 0:
		case o.local == nil:
			o.content.refresh()
			want = f.cache.readWhole(o.content, r, want)
		default:
			if err := o.local.ReadAt(ctx, r.Dst, r.Span.Start); err != nil {
				return nil, err
			}
			f.cache.stats.localBytes.Add(int64(len(r.Dst)))
		}
	}
	return want, nil
}

// readWhole reads from disk the cells that a read has whole and that are not in memory, and appends all others of the read to want.
func (c *Cache) readWhole(ct *content, r plan.Read, want []extent) []extent {
	x := extentOf(r.Span)
	first, end := (r.Span.Start+cellSize-1)>>cellLog2, r.Span.End>>cellLog2
	if r.Span.End == ct.size {
		end = x.end
	}
	for i := first; i < end && len(ct.blobs) > 0; {
		n := c.diskOnly(ct, i, end)
		if n == 0 {
			i++
			continue
		}
		start := i<<cellLog2 - r.Span.Start
		bufs := cellsIn(r.Dst[start:min(start+int64(n)<<cellLog2, int64(len(r.Dst)))])
		for _, good := range ct.readCells(i, bufs) {
			if good {
				c.stats.served.Add(int64(ct.cellLen(i)))
				want = appendCells(want, extent{x.file, x.first, i})
				x.first = i + 1
			}
			i++
		}
	}
	return appendCells(want, x)
}

func appendCells(xs []extent, x extent) []extent {
	if x.first < x.end {
		return append(xs, x)
	}
	return xs
}

// diskOnly is the number of cells from i on, before end, that are on disk and not in memory.
func (c *Cache) diskOnly(ct *content, i, end int64) (n int) {
	for ; i < end; i++ {
		mask := ct.onDisk(i / pieceCells)
		if mask != 0 {
			c.mem.mu.Lock()
			mask &^= ct.cells.held(i / pieceCells)
			c.mem.mu.Unlock()
		}
		for ; i < end; i++ {
			if mask>>(i%pieceCells)&1 == 0 {
				return n
			}
			n++
			if i%pieceCells == pieceCells-1 {
				break
			}
		}
	}
	return n
}

// openAhead is the spans of ahead whose files are open and not local. Files that are not open yet are opened behind the reader's back,
// and their spans fetched then.
func (f *Files) openAhead(ctx context.Context, ahead []plan.Span) []plan.Span {
	var ready []plan.Span
	var later map[int][]plan.Span
	for _, s := range ahead {
		o := f.files[s.File].open.Load()
		switch {
		case s.Len() == 0 || o != nil && o.local != nil:
		case o != nil:
			ready = append(ready, s)
		default:
			if later == nil {
				later = map[int][]plan.Span{}
			}
			later[s.File] = append(later[s.File], s)
		}
	}
	for i, spans := range later {
		x := &f.files[i]
		if !x.postpone(spans) {
			ready = append(ready, f.openAhead(ctx, spans)...)
			continue
		}
		f.cache.goFunc(func() { x.get(context.WithoutCancel(ctx)) })
	}
	return ready
}

// fetchAhead starts to fetch spans of open files as far as memory is free.
func (f *Files) fetchAhead(ctx context.Context, ahead []plan.Span) {
	g := gather{f: f, ctx: ctx, ahead: ahead}
	f.cache.mem.mu.Lock()
	defer f.cache.mem.mu.Unlock()
	g.take(true)
}

// gather is one batch of demanded cells on its way through the cache.
type gather struct {
	f     *Files
	ctx   context.Context
	want  []extent   // demanded, joined
	later [][]extent // demanded by the batches that follow
	ahead []plan.Span

	cells  []*cell // the cells of want, in order, each with a pin
	starts []int   // starts[i] is where those of want[i] begin
	wait   []*cell // those of them that somebody else fills
	disk   []claim // those that this gather reads from disk
	fetch  []claim // cells to fetch, demanded or ahead
	err    error   // a cell that failed a moment ago

	lend bool    // the cells stay pinned, and stand in for what reads permit
	held []*cell // those
}

// claim is a pending cell and the file of this release that it is fetched from.
type claim struct {
	file int
	cell *cell
}

// do reserves memory for the batch, has its cells filled and copies them into the reads that they belong to.
func (g *gather) do(reads []plan.Read) error {
	g.cells, g.starts, g.wait, g.disk, g.fetch = g.cells[:0], g.starts[:0], g.wait[:0], g.disk[:0], g.fetch[:0]
	mem := g.f.cache.mem
	if err := mem.admit(g.ctx, g.take); err != nil {
		return err
	}
	if g.err != nil {
		return g.err
	}
	defer func() {
		if g.held == nil {
			mem.release(g.cells...)
		}
	}()
	g.readDisk()
	if err := g.await(); err != nil {
		return err
	}
	for i := range reads {
		g.copy(&reads[i])
	}
	if g.lend {
		g.held = g.cells
	}
	return nil
}

// take pins the cells of the batch, claims those that are nowhere, and as many of those ahead as memory is free for; it starts the
// fetches. It does nothing and reports false if memory is short. memory.mu is held.
func (g *gather) take(mayTake bool) bool {
	if g.err = g.recent(); g.err != nil {
		return true
	}
	missing, own := g.count()
	if missing > 0 && (!mayTake || missing > g.f.cache.mem.available()-own) {
		return false
	}
	g.pin()
	if missing > 0 {
		g.claimMissing()
	}
	if missing > 0 || len(g.ahead) > 0 || len(g.f.deferred) > 0 {
		g.takeAhead()
		g.f.startRuns(g.ctx, g.fetch)
	}
	return true
}

// recent is the error of a demanded cell that failed a moment ago.
func (g *gather) recent() error {
	for _, x := range g.want {
		ct := g.content(x.file)
		if ct.err == nil && len(ct.bad) == 0 {
			continue
		}
		for i := x.first; i < x.end; i++ {
			if err := ct.recent(i, g.f.cache.opt.Now); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *gather) content(file int) *content { return g.f.files[file].open.Load().content }

// count is the number of demanded cells that are not in memory, and of those that are and could be evicted.
func (g *gather) count() (missing, own int) {
	for _, x := range g.want {
		ct := g.content(x.file)
		for i := x.first; i < x.end; i++ {
			if c := ct.cells.get(i); c == nil {
				missing++
			} else if c.pins == 0 {
				own++
			}
		}
	}
	return missing, own
}

// pin pins the cells that are in memory or on their way, all before the first is claimed, so that none is evicted for another.
func (g *gather) pin() {
	mem := g.f.cache.mem
	for _, x := range g.want {
		g.starts = append(g.starts, len(g.cells))
		ct := g.content(x.file)
		for i := x.first; i < x.end; i++ {
			c := ct.cells.get(i)
			if c != nil {
				mem.pin(c)
				mem.touch(c)
				if !c.ready {
					g.wait = append(g.wait, c)
				}
			}
			g.cells = append(g.cells, c)
		}
	}
}

func (g *gather) claimMissing() {
	at := 0
	for _, x := range g.want {
		ct := g.content(x.file)
		for i := x.first; i < x.end; i++ {
			if g.cells[at] == nil {
				g.cells[at] = g.claim(x.file, ct, i)
			}
			at++
		}
	}
}

// claim takes memory for a demanded cell. It has two pins then: the reader's, and that of whoever fills it.
func (g *gather) claim(file int, ct *content, i int64) *cell {
	c := g.f.cache.mem.claim(ct, i, true)
	c.pins++
	if ct.onDisk(i/pieceCells)>>(i%pieceCells)&1 != 0 {
		g.disk = append(g.disk, claim{file, c})
	} else {
		g.fetch = append(g.fetch, claim{file, c})
		g.wait = append(g.wait, c)
	}
	return c
}

// takeAhead claims cells that will be wanted soon and are neither in memory nor on disk, as many as memory is free for. If that is not all
// of them, only whole pieces: a prefetch of single cells would be worse than none. The rest is postponed until a run of it finds memory.
func (g *gather) takeAhead() {
	room := g.f.cache.mem.spare()
	for _, b := range g.later {
		for _, x := range b {
			room = g.takeExtent(x, room)
		}
	}
	for _, x := range g.f.recall(g.want) {
		room = g.takeExtent(x, room)
	}
	if room >= g.f.cache.mem.leastAhead() {
		for _, x := range g.resume() {
			room = g.takeExtent(x, room)
		}
	}
	for _, s := range g.ahead {
		if x := extentOf(s); !g.f.waits(x.file) || overlaps(g.want, x) {
			room = g.takeExtent(x, room)
		} else {
			g.f.postpone(x) // behind what has waited longer, which is nearer
		}
	}
}

// maxDeferred bounds what is remembered of prefetch that found no memory; the oldest is forgotten.
const maxDeferred = 1024

// postpone remembers an extent that was to be fetched ahead when memory was short. memory.mu is held.
func (f *Files) postpone(x extent) {
	if len(f.deferred) == maxDeferred {
		f.deferred = slices.Delete(f.deferred, 0, 1)
	}
	f.deferred = append(f.deferred, x)
}

// recall takes back what was postponed, from demanded cells on: a reader got there before there was memory. memory.mu is held.
func (f *Files) recall(want []extent) (out []extent) {
	if len(f.deferred) == 0 {
		return nil
	}
	rest := f.deferred[:0]
	for _, x := range f.deferred {
		i := slices.IndexFunc(want, func(w extent) bool { return w.file == x.file && w.first < x.end && x.first < w.end })
		if i < 0 {
			rest = append(rest, x)
			continue
		}
		from := max(x.first, want[i].first)
		out = append(out, extent{x.file, from, x.end})
		if from-x.first >= pieceCells { // is still before another reader
			rest = append(rest, extent{x.file, x.first, from})
		}
	}
	f.deferred = rest
	return out
}

// resume takes back what was postponed of the files that the gather is about: what a reader frees is not for files that others have left.
func (g *gather) resume() (out []extent) {
	g.f.deferred = slices.DeleteFunc(g.f.deferred, func(x extent) bool {
		about := slices.ContainsFunc(g.want, func(w extent) bool { return w.file == x.file }) ||
			slices.ContainsFunc(g.ahead, func(s plan.Span) bool { return s.File == x.file })
		if about {
			out = append(out, x)
		}
		return about
	})
	return out
}

// waits says whether something of a file was postponed. memory.mu is held.
func (f *Files) waits(file int) bool {
	return slices.ContainsFunc(f.deferred, func(x extent) bool { return x.file == file })
}

// takeExtent claims the missing cells of an extent, group by group, and returns the room that is left. What finds none is postponed.
func (g *gather) takeExtent(x extent, room int) int {
	ct := g.content(x.file)
	i := x.first
	for i < x.end {
		group := i / pieceCells
		next := min(x.end, (group+1)*pieceCells)
		mask := uint16(1<<(next-group*pieceCells)-1) &^ (1<<(i-group*pieceCells) - 1)
		mask &^= ct.cells.share(group, mask)
		if mask != 0 {
			mask &^= ct.onDisk(group)
		}
		if bits.OnesCount16(mask) > room {
			break
		}
		for ; mask != 0; mask &= mask - 1 {
			i := group*pieceCells + int64(bits.TrailingZeros16(mask))
			if ct.recent(i, g.f.cache.opt.Now) == nil {
				g.fetch = append(g.fetch, claim{x.file, g.f.cache.mem.claim(ct, i, false)})
				room--
			}
		}
		i = next
	}
	if i < x.end {
		g.f.postpone(extent{x.file, i, x.end})
		return 0
	}
	return room
}

// readDisk reads the claimed cells that are on disk. Bad ones are misses and are fetched.
func (g *gather) readDisk() {
	c := g.f.cache
	var missed []claim
	for _, part := range consecutive(g.disk) {
		cells := make([]*cell, len(part))
		for i, x := range part {
			cells[i] = x.cell
		}
		bad := c.readDisk(cells[0].content, cells)
		c.mem.mu.Lock()
		for _, x := range cells {
			if !slices.Contains(bad, x) {
				c.mem.fill(x)
				c.mem.unpin(x)
			}
		}
		c.mem.grant()
		c.mem.mu.Unlock()
		for _, x := range bad {
			missed = append(missed, claim{part[0].file, x})
			g.wait = append(g.wait, x)
		}
	}
	if len(missed) > 0 {
		c.mem.mu.Lock()
		g.f.startRuns(g.ctx, missed)
		c.mem.mu.Unlock()
	}
}

// await waits until the cells that others fill are ready, or for as long as the reader does.
func (g *gather) await() error {
	for _, c := range g.wait {
		select {
		case <-c.done:
			if c.err != nil {
				return c.err
			}
		case <-g.ctx.Done():
			return context.Cause(g.ctx)
		}
	}
	return nil
}

// copy fills the part of a read that lies in the cells of this batch.
func (g *gather) copy(r *plan.Read) {
	if len(r.Dst) == 0 {
		return
	}
	i := sort.Search(len(g.want), func(i int) bool {
		x := g.want[i]
		return x.file > r.Span.File || x.file == r.Span.File && x.end<<cellLog2 > r.Span.Start
	})
	for ; i < len(g.want) && g.want[i].file == r.Span.File; i++ {
		x := g.want[i]
		start, end := max(r.Span.Start, x.first<<cellLog2), min(r.Span.End, x.end<<cellLog2)
		if start >= end {
			break
		}
		g.copyCells(r, g.cells[g.starts[i]:], start, end)
	}
}

// copyCells copies the bytes [start, end) of the file out of the cells of one extent, or lends them.
func (g *gather) copyCells(r *plan.Read, cells []*cell, start, end int64) {
	g.f.cache.stats.served.Add(end - start)
	base := cells[0].index
	for start < end {
		c := cells[start>>cellLog2-base]
		from := c.buf[start-c.index<<cellLog2:]
		from = from[:min(int64(len(from)), end-start)]
		if g.lend && r.Lend {
			r.Held = append(r.Held, plan.Held{At: start - r.Span.Start, Bytes: from})
		} else {
			copy(r.Dst[start-r.Span.Start:], from)
		}
		start += int64(len(from))
	}
}

// consecutive cuts claims, sorted by file and cell, where they do not follow each other.
func consecutive(cs []claim) [][]claim {
	var out [][]claim
	for len(cs) > 0 {
		n := 1
		for n < len(cs) && cs[n].file == cs[0].file && cs[n].cell.index == cs[n-1].cell.index+1 {
			n++
		}
		out, cs = append(out, cs[:n]), cs[n:]
	}
	return out
}

func sortClaims(cs []claim) {
	slices.SortFunc(cs, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.cell.index, b.cell.index))
	})
}
