package cache

import (
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// stale is how long a cell that was fetched ahead may lie unread before other prefetch may take its memory.
const stale = 10 * time.Second

// cell is one cell of a content in memory, or on its way there. Its bytes may be read by whoever pins it, once it is ready.
type cell struct {
	content *content
	index   int64
	buf     []byte // of the arena, as long as the cell
	done    chan struct{}

	// Guarded by memory.mu. ready and err change once, before done is closed.
	slot  int32
	pins  int  // readers and the fetch; 0: may be evicted
	ready bool // buf is filled
	err   error
	read  bool      // some gather demanded it; else it was fetched ahead
	since time.Time // when it came, if it was fetched ahead
	run   *run      // that will fill it, nil if it is read from disk
}

// memory is the budget and the cells under it.
type memory struct {
	now   func() time.Time
	slots int
	keep  int // more cells that were read than this stay only if they are not on disk; else they make way before fresh memory is used

	mu     sync.Mutex // guards all below, every cell's and every content's cells and the queues of runs; never held over I/O
	arena  *arena
	idle   [2]int // ready cells without a pin: those read, those fetched ahead and unread
	ahead  int    // cells fetched ahead that nobody read yet
	read   *simplelru.LRU[*cell, struct{}]
	unread *simplelru.LRU[*cell, struct{}]
	queue  []*ticket
	evicts int64
}

// ticket is a gather that waits for memory. try is called under memory.mu.
type ticket struct {
	try     func(mayTake bool) bool
	granted chan struct{}
}

func newMemory(slots int, now func() time.Time) (*memory, error) {
	a, err := newArena(slots)
	if err != nil {
		return nil, err
	}
	m := &memory{now: now, slots: slots, keep: slots, arena: a}
	m.read, _ = simplelru.NewLRU[*cell, struct{}](slots+1, nil) // the size is never reached: the arena ends first
	m.unread, _ = simplelru.NewLRU[*cell, struct{}](slots+1, nil)
	return m, nil
}

func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.arena.close()
}

// maxGather is the most cells that one gather reserves.
func (m *memory) maxGather() int { return m.slots / 4 }

// maxAhead is the most cells that are fetched ahead and unread at any time. The other three quarters of the budget are never theirs: in twice its size
// a tensor that is read over and over, such as one packed by columns, has room beside what is fetched ahead of it.
func (m *memory) maxAhead() int { return m.slots / 4 }

// leastAhead is how many cells must be free before postponed prefetch goes on: a run, or an eighth of what may be ahead if that is less, so that several
// connections have something to do.
func (m *memory) leastAhead() int {
	return max(pieceCells, min(runCells, m.maxAhead()/8/pieceCells*pieceCells))
}

// admit waits until try succeeds, first come first served. A try that may not take memory can still succeed if it needs none: it
// never waits behind others.
func (m *memory) admit(ctx context.Context, try func(mayTake bool) bool) error {
	m.mu.Lock()
	if try(len(m.queue) == 0) {
		m.mu.Unlock()
		return nil
	}
	t := &ticket{try: try, granted: make(chan struct{})}
	m.queue = append(m.queue, t)
	m.mu.Unlock()
	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
		return m.leave(ctx, t)
	}
}

// leave takes a ticket back, unless it was granted in the meantime.
func (m *memory) leave(ctx context.Context, t *ticket) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.queue, t)
	if i < 0 {
		return nil
	}
	m.queue = slices.Delete(m.queue, i, i+1)
	m.grant()
	return context.Cause(ctx)
}

// grant lets waiting gathers in, in their order, as far as memory goes.
func (m *memory) grant() {
	for len(m.queue) > 0 && m.queue[0].try(true) {
		close(m.queue[0].granted)
		m.queue = slices.Delete(m.queue, 0, 1)
	}
}

// available is the number of cells that a demand can have at once.
func (m *memory) available() int { return len(m.arena.free) + m.idle[0] + m.idle[1] }

// idleOf is the count of idle that c belongs to.
func (m *memory) idleOf(c *cell) *int {
	if c.read {
		return &m.idle[0]
	}
	return &m.idle[1]
}

// pin keeps a cell; every pin is followed by one unpin.
func (m *memory) pin(c *cell) {
	if c.pins == 0 {
		*m.idleOf(c)--
	}
	c.pins++
}

// touch notes that a gather demands a cell that it has pinned.
func (m *memory) touch(c *cell) {
	if c.run != nil {
		c.run.want(c)
	}
	if !c.read {
		c.read = true
		m.ahead--
		if m.unread.Remove(c) {
			m.read.Add(c, struct{}{})
		}
	} else if c.ready {
		m.read.Get(c)
	}
}

func (m *memory) unpin(c *cell) {
	c.pins--
	if c.pins > 0 {
		return
	}
	if c.content.cells.get(c.index) == c {
		*m.idleOf(c)++
	} else {
		m.free(c)
	}
}

// claim makes a pending cell with one pin, that of whoever will fill it. There must be memory.
func (m *memory) claim(ct *content, index int64, demanded bool) *cell {
	if len(m.arena.free) == 0 {
		m.evict()
	} else if m.arena.fresh() && m.idle[0] > m.keep {
		m.reuse()
	}
	slot := m.arena.take()
	c := &cell{content: ct, index: index, slot: slot, pins: 1, read: demanded, done: make(chan struct{})}
	c.buf = m.arena.bytes(slot, ct.cellLen(index))
	if !demanded {
		m.ahead++
	}
	ct.cells.put(index, c)
	return c
}

// reuse drops the cell that was read longest ago if it can be read again from disk.
func (m *memory) reuse() {
	c, _, ok := m.read.GetOldest()
	if ok && c.pins == 0 && c.content.onDisk(c.index/pieceCells)>>(c.index%pieceCells)&1 != 0 {
		m.drop(c)
		m.evicts++
	}
}

// evict drops the least recently used cell without a pin; there must be one. What was read goes before what was fetched ahead.
func (m *memory) evict() {
	for _, lru := range []*simplelru.LRU[*cell, struct{}]{m.read, m.unread} {
		for range lru.Len() {
			c, _, _ := lru.GetOldest()
			if c.pins == 0 {
				m.drop(c)
				m.evicts++
				return
			}
			lru.Get(c) // in use: move it to the front
		}
	}
	panic("cache: no cell to evict")
}

// drop takes a cell out of its content: the next gather makes a new one. Readers that pin it keep its bytes.
func (m *memory) drop(c *cell) {
	c.content.cells.del(c.index)
	if c.pins == 0 {
		*m.idleOf(c)--
		m.free(c)
	}
}

// free gives the slot of a cell that is in no content and has no pin.
func (m *memory) free(c *cell) {
	m.read.Remove(c)
	if !c.read {
		m.ahead--
		m.unread.Remove(c)
	}
	m.arena.give(c.slot)
	c.buf = nil
}

// fill marks a pending cell as ready and wakes its waiters.
func (m *memory) fill(c *cell) {
	c.ready, c.run = true, nil
	if c.read {
		m.read.Add(c, struct{}{})
	} else {
		c.since = m.now()
		m.unread.Add(c, struct{}{})
	}
	close(c.done)
}

// fail ends a pending cell with an error; the next gather starts afresh.
func (m *memory) fail(c *cell, err error) {
	c.err, c.run = err, nil
	if c.content.cells.get(c.index) == c {
		c.content.cells.del(c.index)
	}
	close(c.done)
}

// spare is the number of cells that prefetch may take now: free, or read already, and never more than its quarter of the budget. When that
// is used up, cells of it that lie unread for long are given up.
func (m *memory) spare() int {
	if len(m.queue) > 0 {
		return 0
	}
	if m.ahead > m.maxAhead()-pieceCells {
		m.dropStale()
	}
	return max(0, min(len(m.arena.free)+m.idle[0], m.maxAhead()-m.ahead))
}

func (m *memory) dropStale() {
	for now := m.now(); ; m.evicts++ {
		c, _, ok := m.unread.GetOldest()
		if !ok || c.pins > 0 || now.Sub(c.since) < stale {
			return
		}
		m.drop(c)
	}
}

// release takes one pin off each cell and lets waiting gathers in.
func (m *memory) release(cells ...*cell) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range cells {
		m.unpin(c)
	}
	m.grant()
}

// table finds the cells of one content. Cells come in groups of 16, so that a look at 2 MiB is one look-up.
type table map[int64]*group

type group struct {
	held  uint16
	cells [pieceCells]*cell
}

func (t table) get(i int64) *cell {
	if g := t[i/pieceCells]; g != nil {
		return g.cells[i%pieceCells]
	}
	return nil
}

func (t table) put(i int64, c *cell) {
	g := t[i/pieceCells]
	if g == nil {
		g = &group{}
		t[i/pieceCells] = g
	}
	g.held |= 1 << (i % pieceCells)
	g.cells[i%pieceCells] = c
}

func (t table) del(i int64) {
	g := t[i/pieceCells]
	g.held &^= 1 << (i % pieceCells)
	g.cells[i%pieceCells] = nil
	if g.held == 0 {
		delete(t, i/pieceCells)
	}
}

// held is the cells of a group that are in memory or on their way.
func (t table) held(group int64) uint16 {
	if g := t[group]; g != nil {
		return g.held
	}
	return 0
}

// share is held, and notes of the runs that will fill cells of a mask that these are wanted once more. A single cell is no reason: neighbours
// have one in common.
func (t table) share(group int64, mask uint16) uint16 {
	g := t[group]
	if g == nil {
		return 0
	}
	for m := g.held & mask; m&(m-1) != 0; m &= m - 1 {
		if r := g.cells[bits.TrailingZeros16(m)].run; r != nil {
			r.shared = true
		}
	}
	return g.held
}

// all calls fn for every cell.
func (t table) all(fn func(*cell)) {
	for _, g := range t {
		for held := g.held; held != 0; held &= held - 1 {
			fn(g.cells[bits.TrailingZeros16(held)])
		}
	}
}
