// Package cache stands between plans and sources: memory cells over disk cells over a source.
//
// A source file is divided into cells of 128 KiB. A gather pins the cells it needs: it takes those in memory, joins those on
// their way, reads those on disk (each checked against its CRC32C) and fetches the others in runs of up to 8 MiB. Every cell
// is fetched once for as long as it is held somewhere; a fetch is detached from the reader that started it, and readers wait on the
// cells they need. Memory is one arena off the Go heap under one byte budget: a gather reserves its total in one step, first come
// first served, and what is fetched ahead takes only what is free.
//
// Local files ([sources.Local]) are read in place and never copied.
package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"weightfs/sources"
)

const (
	cellLog2   = 17
	cellSize   = 1 << cellLog2
	runCells   = 64 // a fetch is at most 8 MiB: long enough to fill a connection
	unitRuns   = 15 // what somebody waits for is fetched by so many requests at once, if it is large enough
	pieceCells = 16 // a write to disk is 2 MiB where the run allows: such files map with huge pages
)

// LeastMemory is the smallest budget.
const LeastMemory = 16 * cellSize

// ErrClosed is the error of every call after Close.
var ErrClosed = errors.New("the cache is closed")

// Options of New. The zero value of a field is its default.
type Options struct {
	// Dir is the cache directory, DefaultDir() for most; none means that nothing is kept on disk.
	Dir string
	// Size is the most bytes kept on disk. Default: half of what is free when the cache opens, its own bytes counted as free.
	// At least 10 % of the file system is left free in any case.
	Size int64
	// Hub is the cache of huggingface_hub, [sources.HubCacheDir] for most: files of a Hub release that lie there are read in place. Default: none.
	Hub string
	// Memory is the budget in bytes, at least [LeastMemory]. Default: DefaultMemory().
	Memory int64
	// Deadline is how long a fetch goes without one more cell before it fails, 60 s by default. Bad is how long the cells of a
	// failed fetch answer with its error at once, 3 s by default.
	Deadline, Bad time.Duration
	// Fetches is the most requests in flight for one source that a reader waits for, 16 by default. Of others none starts while less than two of as many
	// are free; sources limit connections themselves.
	Fetches int
	// Now is the clock that ages what is remembered, time.Now by default.
	Now func() time.Time
	// Sealed refuses files that are not sealed: see [Files.Seal].
	Sealed bool
	// Log gets what a user may want to know afterwards, at most a few lines a minute. Default: none.
	Log *slog.Logger
}

func (o *Options) defaults() {
	if o.Memory == 0 {
		o.Memory = DefaultMemory()
	}
	if o.Deadline == 0 {
		o.Deadline = 60 * time.Second
	}
	if o.Bad == 0 {
		o.Bad = 3 * time.Second
	}
	if o.Fetches == 0 {
		o.Fetches = 16
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Cache holds cells of any number of releases under one budget of memory and one of disk.
type Cache struct {
	opt    Options
	mem    *memory
	disk   *disk // nil without a directory
	stats  counters
	ctx    context.Context // of every fetch; ended by Close
	cancel context.CancelFunc
	work   sync.WaitGroup // gathers, fetches, pieces to be written and checks that run

	pieces  chan []*cell   // on their way to the disk, with the pins of their fetch
	writers sync.WaitGroup // those who write them

	mu       sync.Mutex // guards the fields below
	closed   bool
	contents map[sources.ID]*content
	files    []*Files
}

// New opens a cache. The caller closes it.
func New(o Options) (*Cache, error) {
	o.defaults()
	if o.Memory < LeastMemory {
		return nil, fmt.Errorf("a memory budget of %d bytes is too small: the least is %d", o.Memory, LeastMemory)
	}
	mem, err := newMemory(int(o.Memory/cellSize), o.Now)
	if err != nil {
		return nil, err
	}
	c := &Cache{opt: o, mem: mem, contents: map[sources.ID]*content{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if o.Dir != "" {
		if c.disk, err = openDisk(o, &c.stats); err != nil {
			mem.close()
			return nil, err
		}
		mem.keep /= 8 // the rest is as near on disk
	}
	c.startWriters()
	return c, nil
}

// Close ends every fetch, waits for readers and gives all memory and descriptors back. Blobs of every release are closed.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
	close(c.pieces)
	c.writers.Wait()
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.close())
	}
	if c.disk != nil {
		errs = append(errs, c.disk.close())
	}
	errs = append(errs, c.mem.close())
	return errors.Join(errs...)
}

// enter counts one more user of the cache until leave; it fails once the cache is closed.
func (c *Cache) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.work.Add(1)
	return nil
}

func (c *Cache) leave() { c.work.Done() }

// goFunc runs fn in a goroutine that Close waits for, unless the cache is closed already.
func (c *Cache) goFunc(fn func()) bool {
	if c.enter() != nil {
		return false
	}
	go func() {
		defer c.leave()
		fn()
	}()
	return true
}

// MaxGather is the largest total that one gather should ask for: a quarter of the memory budget. Larger ones are split here.
func (c *Cache) MaxGather() int64 { return int64(c.mem.maxGather()) * cellSize }
