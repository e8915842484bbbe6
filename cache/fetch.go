package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// run is one fetch: pending cells that follow each other in one file, each with a pin of the run.
type run struct {
	file  *file
	cells []*cell
	ctx   context.Context // of the reader that started it, without its end
	wrong int             // cells that came and were not the sealed ones
	of    *runs

	// Guarded by memory.mu.
	wanted bool          // has a cell that a reader waits for
	demand chan struct{} // closed when wanted is set
	shared bool          // was asked for ahead more than once: who gives it up is not alone
	active bool          // is under way
	bound  *bound        // of its fetch
	end    int           // cells from here on have become another run's
	at     int           // the cell that is on its way, if it is active
	from   int           // that with which the answer began
	since  time.Time     // when that was
	seen   int           // end of the cells that a reader waits for, as far as they follow at
}

// want says that a reader waits for cell c of the run. memory.mu is held, and the caller counts as work of the cache.
func (r *run) want(c *cell) {
	i := slices.Index(r.cells, c)
	if r.split(i); i >= r.end {
		r = c.run
	} else if i <= max(r.at, r.seen) || !r.since.IsZero() {
		r.seen = max(r.seen, i+1)
	}
	if r.wanted {
		return
	}
	r.wanted = true
	close(r.demand)
	if r.bound != nil {
		r.bound.progress() // what it waited for its turn was nobody's time
	}
	if r.active {
		r.of.wanted++
	}
	r.of.dispatch()
}

// splitAbove is what a reader waits for cells that nobody wants before its own are asked for by themselves.
const splitAbove = 250 * time.Millisecond

// split makes cell i the first of a run of its own, if the run has not begun, or would take long to come to it. memory.mu is held.
func (r *run) split(i int) {
	at := slices.Index(r.of.queue, r)
	switch {
	case r.active && r.slow(i) && r.of.wanted < r.of.cache.opt.Fetches: // it begins at once
	case at >= 0 && i > 0 && !r.wanted:
	default:
		return
	}
	rest := &run{file: r.file, of: r.of, ctx: r.ctx, cells: r.cells[i:r.end], end: r.end - i, demand: make(chan struct{}), shared: r.shared}
	for _, x := range rest.cells {
		x.run = rest
	}
	if r.end = i; !r.active {
		r.cells = r.cells[:i:i]
	}
	r.of.queue = slices.Insert(r.of.queue, at+1, rest)
}

// slow says whether cells before i that nobody wants take longer than splitAbove to come.
func (r *run) slow(i int) bool {
	gap, had := i-max(r.at, r.seen), max(1, r.at-r.from)
	return !r.since.IsZero() && gap > 0 && time.Since(r.since)*time.Duration(gap)/time.Duration(had) > splitAbove
}

// next says whether cell i is the run's, and that it is on its way now.
func (r *run) next(c *Cache, i int) bool {
	c.mem.mu.Lock()
	defer c.mem.mu.Unlock()
	if r.at = i; r.since.IsZero() {
		r.from, r.since = i, time.Now()
	}
	return i < r.end
}

// runs is the queue of fetches of one source. memory.mu guards it.
type runs struct {
	cache  *Cache
	queue  []*run
	active int
	wanted int // those of active that a reader waits for
}

func (q *runs) init(c *Cache) { q.cache = c }

// startRuns makes runs of claimed cells, those with demanded cells first, and starts what the limit allows. memory.mu is held.
func (f *Files) startRuns(ctx context.Context, claims []claim) {
	if len(claims) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	sortClaims(claims)
	most := longestRun(len(claims), slices.ContainsFunc(claims, func(x claim) bool { return x.cell.read }))
	var ahead []*run
	for _, part := range consecutive(claims) {
		for len(part) > 0 {
			first := part[0].cell.index
			n := min(int64(len(part)), runEnd(first, most)-first)
			chunk := part[:n]
			part = part[n:]
			if r := f.newRun(ctx, chunk); r.wanted {
				f.runs.queue = append(f.runs.queue, r)
			} else {
				ahead = append(ahead, r)
			}
		}
	}
	f.runs.queue = append(f.runs.queue, ahead...)
	f.runs.dispatch()
}

func (f *Files) newRun(ctx context.Context, claims []claim) *run {
	r := &run{file: &f.files[claims[0].file], of: &f.runs, ctx: ctx, cells: make([]*cell, len(claims)), demand: make(chan struct{}), end: len(claims)}
	for i, x := range claims {
		r.cells[i] = x.cell
		x.cell.run = r
		r.wanted = r.wanted || x.cell.read
		if x.cell.read && r.seen == i {
			r.seen++
		}
	}
	if r.wanted {
		close(r.demand)
	}
	return r
}

// dispatch starts runs while there is room: first those that a reader waits for, then the others, which leave room for one more. Those may be waiting for
// other readers of their host, so they are no reason to hold up what is wanted here. memory.mu is held, and the caller counts as work of the cache.
func (q *runs) dispatch() {
	limit := q.cache.opt.Fetches
	for len(q.queue) > 0 {
		i := slices.IndexFunc(q.queue, func(r *run) bool { return r.wanted })
		if i >= 0 && q.wanted >= limit || i < 0 && q.active >= max(1, limit-1) {
			return
		}
		i = max(i, 0)
		r := q.queue[i]
		q.queue = slices.Delete(q.queue, i, i+1)
		q.active++
		if r.active = true; r.wanted {
			q.wanted++
		}
		q.cache.work.Add(1)
		go func() {
			defer q.cache.work.Done()
			r.fetch(q.cache)
			q.finish(r)
		}()
	}
}

// Drop gives up runs that lie in the spans and were asked for ahead, unless they are under way or somebody else may want them.
func (f *Files) Drop(spans []plan.Span) {
	if f.cache.enter() != nil {
		return
	}
	defer f.cache.leave()
	xs := make([]extent, 0, len(spans))
	for _, s := range spans {
		if s.Len() > 0 && f.checkSpan(s) == nil {
			xs = append(xs, extentOf(s))
		}
	}
	xs = joined(xs)
	mem := f.cache.mem
	mem.mu.Lock()
	defer mem.mu.Unlock()
	f.deferred = slices.DeleteFunc(f.deferred, func(x extent) bool { return contains(xs, x) })
	f.runs.queue = slices.DeleteFunc(f.runs.queue, func(r *run) bool {
		if r.wanted || r.shared || !contains(xs, r.extent()) {
			return false
		}
		for _, c := range r.cells {
			mem.fail(c, errDropped)
			mem.unpin(c)
		}
		return true
	})
	mem.grant()
}

// errDropped is the error of cells that nobody waits for.
var errDropped = errors.New("given up before it was fetched")

func (r *run) extent() extent {
	first := r.cells[0].index
	return extent{r.file.index, first, first + int64(len(r.cells))}
}

func (q *runs) finish(r *run) {
	q.cache.mem.mu.Lock()
	defer q.cache.mem.mu.Unlock()
	q.active--
	if r.active = false; r.wanted {
		q.wanted--
	}
	q.dispatch()
}

// fetch fills the cells of the run one by one. After a passing failure it goes on at the first missing cell; each cell that arrives
// gives it the whole deadline again. Cells that never arrive fail, and answer with the error for a while.
func (r *run) fetch(c *Cache) {
	w := &writer{cache: c, cells: r.cells}
	for {
		err := r.fetchRest(c, w)
		if err == nil {
			return
		}
		w.flush()
		if r.fail(c, w.next, err) {
			return
		}
	}
}

// fetchRest fills the missing cells within one deadline. What gave its connection to a reader is asked for in its turn.
func (r *run) fetchRest(c *Cache, w *writer) error {
	ctx, b := c.bound(sources.Ahead(r.ctx, r.demand))
	defer b.stop()
	c.mem.mu.Lock()
	r.bound = b
	c.mem.mu.Unlock()
	tries := 0
	for r.next(c, w.next) {
		err := sources.Retry(ctx, func(ctx context.Context) error {
			c.stats.request(tries)
			tries++
			at := w.next
			err := r.stream(ctx, w, b)
			if errors.Is(err, sources.ErrNoTurn) && ctx.Err() == nil {
				tries = 0
				return nil
			}
			if w.next > at && errors.Is(err, sources.ErrTemporary) {
				return nil
			}
			return err
		})
		if err != nil {
			return b.explain(ctx, err)
		}
	}
	w.flush()
	return nil
}

// stream asks for the missing cells of the run and fills them as they arrive.
func (r *run) stream(ctx context.Context, w *writer, b *bound) error {
	o := r.file.open.Load()
	first, last := r.cells[w.next], r.last(w.cache)
	off := first.index << cellLog2
	body, err := o.blob.Stream(ctx, off, last.index<<cellLog2+int64(len(last.buf))-off)
	if err != nil {
		return err
	}
	defer body.Close()
	for r.next(w.cache, w.next) {
		x := r.cells[w.next]
		n, err := io.ReadFull(body, x.buf)
		w.cache.stats.fetched.Add(int64(n))
		if err != nil {
			return r.short(x, n, err)
		}
		if !x.content.right(x.index, x.buf) {
			return r.unsealed(x)
		}
		b.progress()
		w.add(x)
	}
	return nil
}

// last is the last cell that is the run's; from now on time counts from when its answer begins.
func (r *run) last(c *Cache) *cell {
	c.mem.mu.Lock()
	defer c.mem.mu.Unlock()
	r.since = time.Time{}
	return r.cells[r.end-1]
}

// short is the error of a body that ended early: a source reports that itself, but a wrong one must not pass for the end of a file.
func (r *run) short(x *cell, n int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.file.fault("read", x.index<<cellLog2, int64(len(x.buf)), fmt.Errorf("%w: the body ended after %d bytes: %w", sources.ErrTemporary, n, err))
	}
	return err
}

// fail ends cells that did not arrive. That their turn did not come is forgotten: whoever reads them has a turn at once. If a reader came for them in the
// last moment, fail does nothing and reports false.
func (r *run) fail(c *Cache, from int, err error) bool {
	noTurn := errors.Is(err, sources.ErrNoTurn) && !errors.Is(err, ErrClosed)
	level := slog.LevelWarn
	if noTurn || errors.Is(err, sources.ErrOffline) {
		level = slog.LevelDebug // a matter for who reads it, and what is fetched ahead is read by nobody
	}
	c.opt.Log.Log(r.ctx, level, "fetch failed", "path", r.file.entry.Path, "cell", r.cells[from].index, "err", err)
	now := c.opt.Now()
	c.mem.mu.Lock()
	defer c.mem.mu.Unlock()
	cells := r.cells[from:max(from, r.end)]
	if len(cells) == 0 {
		return true
	}
	if noTurn && r.wanted {
		return false
	}
	c.stats.failed.Add(int64(len(cells)))
	ct := cells[0].content
	switch {
	case errors.Is(err, sources.ErrChanged):
		ct.err = err
	case !noTurn && !errors.Is(err, ErrClosed):
		ct.remember(cells, err, now, now.Add(c.opt.Bad))
	}
	for _, x := range cells {
		c.mem.fail(x, err)
		c.mem.unpin(x)
	}
	c.mem.grant()
	return true
}

// writer takes the cells of a run as they arrive: readers have them at once, the disk in pieces of 2 MiB, aligned, where the run allows.
type writer struct {
	cache *Cache
	cells []*cell
	next  int // cells that have arrived
	kept  int // cells that were given to the disk, and whose pins are gone
}

func (w *writer) add(c *cell) {
	w.cache.mem.mu.Lock()
	w.cache.mem.fill(c)
	w.cache.mem.mu.Unlock()
	w.next++
	if (c.index+1)%pieceCells == 0 || w.next == len(w.cells) {
		w.flush()
	}
}

// flush gives what has arrived to the disk. All of it lies in one piece.
func (w *writer) flush() {
	if piece := w.cells[w.kept:w.next]; len(piece) > 0 {
		w.cache.keep(piece)
		w.kept = w.next
	}
}

// keep hands a piece over to those who write to disk, or ends its pins at once if it is not kept. It waits when they are far behind: no more
// than a quarter of the memory is with them.
func (c *Cache) keep(piece []*cell) {
	if len(piece[0].content.blobs) == 0 {
		c.mem.release(piece...)
		return
	}
	c.work.Add(1) // the caller counts as work
	c.pieces <- piece
}

// writers is the number of pieces that are written at a time.
const writers = 2

// startWriters starts what writes pieces behind the fetches, so that a slow disk does not hold up a fast network. Pieces are written past the page
// cache: what was fetched is read through the mount, whose pages hold it, and a second copy would halve what fits into memory. When the disk
// is slower than the network, the page cache takes what waits. It ends when c.pieces is closed.
func (c *Cache) startWriters() {
	c.pieces = make(chan []*cell, max(1, c.mem.maxGather()/pieceCells))
	for range writers {
		c.writers.Go(func() {
			for piece := range c.pieces {
				c.store(piece[0].content, piece, writing(len(c.pieces) <= cap(c.pieces)/2))
				c.mem.release(piece...)
				c.work.Done()
			}
		})
	}
}

// bound ends detached work: when the cache closes, or when nothing arrived for the deadline.
type bound struct {
	timer    *time.Timer
	deadline time.Duration
	cancel   context.CancelCauseFunc
	unhook   func() bool
}

func (c *Cache) bound(ctx context.Context) (context.Context, *bound) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &bound{deadline: c.opt.Deadline, cancel: cancel}
	b.unhook = context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	b.timer = time.AfterFunc(b.deadline, func() {
		cancel(fmt.Errorf("%w: gave up after %v without a cell", sources.ErrTemporary, b.deadline))
	})
	return ctx, b
}

func (b *bound) progress() { b.timer.Reset(b.deadline) }

func (b *bound) stop() {
	b.timer.Stop()
	b.unhook()
	b.cancel(nil)
}

// explain adds to an error why the work was ended, if it was.
func (b *bound) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
