// Package fs has the doors through which a tree of virtual files is read: a FUSE mount, HTTP and io/fs. All of them stand before one [FS],
// which finds files, opens their plans and reads them through a [plan.Reader]; nothing else in the program reads bytes for users.
//
// Everything is immutable. A file's size, inode number and content are the same for as long as the mount lives, and a read returns exactly
// the bytes of the file or an error. The exception is what a tree marks as live (status, log).
package fs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"weightfs/fs/plan"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Tree is one release in the mount.
type Tree struct {
	// At is where the tree stands below the root, org/name; "" if it is the only one and is the root itself.
	At     string
	Root   plan.Dir
	Reader *plan.Reader
	// Source and Revision say what is mounted, without secrets. Inode numbers and ETags hang on them.
	Source, Revision string
	Time             time.Time
	// Bytes and Files are the totals of the release, for statfs.
	Bytes, Files int64
	// Complete says that a name not found now never will be, so that the kernel may remember it.
	Complete bool
	// FileName is the path of a file of the release, for plan digests.
	FileName func(file int) string
	// Backings are the local files that may stand in for the tree's. It may be nil.
	Backings Backings
}

// identity names the pinned release.
func (t *Tree) identity() string { return t.Source + "@" + t.Revision }

// Config is what an FS is made of.
type Config struct {
	Trees []*Tree
	// Control is the entries of .weightfs beside status.json and log.
	Control []plan.Node
	// HideControl leaves .weightfs out of the root's listing; it can be opened all the same.
	HideControl bool
	// Log receives what goes wrong; its end can be read as .weightfs/log. It must be given.
	Log *Log
	// Deadline is how long a read or a lookup waits at most, 60 s if 0.
	Deadline time.Duration
	// Plans is how many bytes of plans are kept open, 64 MiB if 0.
	Plans int64
	// Counters tells what lies below the FS, for status.json. It may be nil.
	Counters func() Counters
}

const (
	defaultDeadline = 60 * time.Second
	defaultPlans    = 64 << 20
)

// FS is the one core behind all doors. It is safe for parallel use.
type FS struct {
	root     *place
	trees    []*Tree
	log      *slog.Logger
	ring     *Log
	deadline time.Duration
	counters func() Counters
	started  time.Time
	stats    stats
	plans    planCache
	mount    atomic.Pointer[Mount] // the FUSE door, if there is one
}

// New makes an FS. Two trees at one place, or a tree at the root beside others, are an error.
func New(c Config) (*FS, error) {
	f := &FS{trees: c.Trees, ring: c.Log, log: c.Log.Logger(), deadline: c.Deadline, counters: c.Counters, started: time.Now()}
	if f.deadline <= 0 {
		f.deadline = defaultDeadline
	}
	f.deadline = clampDeadline(f.deadline, maxRequestTimeout)
	f.plans.init(c.Plans)
	root, err := joinTrees(c.Trees)
	if err != nil {
		return nil, err
	}
	root.control = f.control(c.Control)
	root.hideControl = c.HideControl
	f.root = root
	return f, nil
}

// File is an open file.
type File struct {
	Size int64
	fs   *FS
	open *openPlan
	live []byte // the content of a live file at the time it was opened
	at   *place
}

// Open finds a file by its path below the root. A directory is an error that wraps [errIsDir].
func (f *FS) Open(ctx context.Context, name string) (File, error) {
	p, err := f.find(ctx, name)
	if err != nil {
		return File{}, &iofs.PathError{Op: "open", Path: name, Err: err}
	}
	file, err := f.openPlace(ctx, p)
	if err != nil {
		return File{}, &iofs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

var (
	errIsDir  = errors.New("is a directory")
	errNotDir = errors.New("is not a directory")
)

func (f *FS) openPlace(ctx context.Context, p *place) (File, error) {
	f.stats.opens.Add(1)
	switch {
	case p.isDir():
		return File{}, errIsDir
	case p.node.Live != nil:
		data := p.node.Live()
		return File{Size: int64(len(data)), fs: f, live: data, at: p}, nil
	}
	open, err := f.plans.open(ctx, p)
	if err != nil {
		return File{}, err
	}
	if open.plan.Size != p.node.Size {
		return File{}, fmt.Errorf("the plan has %d bytes, its directory says %d", open.plan.Size, p.node.Size)
	}
	return File{Size: p.node.Size, fs: f, open: open, at: p}, nil
}

// ETag names the file's content: equal tags mean equal bytes, for ever. Live files have none, which is "".
func (x File) ETag() (string, error) {
	if x.open == nil {
		return "", nil
	}
	return x.open.etag()
}

// ReadAt reads as [io.ReaderAt] does. It waits no longer than the read deadline, and returns either min(len(p), Size-off) bytes or
// none and an error.
func (x File) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if x.open == nil {
		return readLive(x.live, p, off)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, x.fs.deadline, errDeadline)
	defer cancel()
	return x.fs.read(ctx, x.at, x.open.plan, p, off)
}

func readLive(data, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at negative offset %d", off)
	}
	if off >= int64(len(data)) {
		return 0, io.EOF
	}
	n := copy(p, data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// read reads into dst.
func (f *FS) read(ctx context.Context, at *place, p *plan.Plan, dst []byte, off int64) (int, error) {
	n, err := at.tree.Reader.ReadAt(ctx, p, dst, off)
	return f.answer(at, n, err, p.Size, off, len(dst))
}

// readVector reads into dst, except for what is in memory anyway. The caller releases the vector.
func (f *FS) readVector(ctx context.Context, at *place, p *plan.Plan, dst []byte, off int64) (plan.Vector, error) {
	v, err := at.tree.Reader.ReadVector(ctx, p, dst, off)
	if _, err := f.answer(at, v.Len(), err, p.Size, off, len(dst)); err != nil && err != io.EOF {
		v.Release()
		return plan.Vector{}, err
	}
	return v, nil
}

// answer is what becomes of every read of a file's bytes. Failures are written to the log.
func (f *FS) answer(at *place, n int, err error, size, off int64, asked int) (int, error) {
	n, err = reply(n, err, size, off, asked)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read %s [%d, %d): %w", at.path, off, off+int64(asked), err)
		f.failed(err)
		return 0, err
	}
	f.stats.reads.Add(1)
	f.stats.served.Add(int64(n))
	return n, err
}

// reply is the choke point of all reads: whatever lies below, a reader gets exactly the min(asked, size-off) bytes there are, or none and
// an error. A short reply would truncate the file for everybody, silently.
func reply(n int, err error, size, off int64, asked int) (int, error) {
	want := max(0, min(int64(asked), size-off))
	switch {
	case err != nil && err != io.EOF:
		return 0, err
	case int64(n) != want:
		return 0, fmt.Errorf("internal error: %d of %d bytes were read", n, want)
	}
	return n, err
}

// failed counts and logs a failure that a reader saw.
func (f *FS) failed(err error) {
	if errors.Is(err, errKilled) || errors.Is(err, context.Canceled) {
		return
	}
	f.stats.errors.Add(1)
	f.log.Error(err.Error())
}

// openPlan is a plan that is held open, with its tag once somebody asked for it.
type openPlan struct {
	plan *plan.Plan
	etag func() (string, error)
}

// planCache holds open plans, the least recently used going first when they are more than max bytes.
type planCache struct {
	mu   sync.Mutex // guards the rest; plans are made outside
	lru  *simplelru.LRU[string, *openPlan]
	size int64
	max  int64
}

func (c *planCache) init(max int64) {
	if c.max = max; max <= 0 {
		c.max = defaultPlans
	}
	c.lru, _ = simplelru.NewLRU(1<<20, func(_ string, x *openPlan) { c.size -= x.plan.Memory() })
}

func (c *planCache) open(ctx context.Context, p *place) (*openPlan, error) {
	if x := c.get(p.path); x != nil {
		return x, nil
	}
	made, err := p.node.Open(ctx)
	if err != nil {
		return nil, err
	}
	return c.add(p, made), nil
}

func (c *planCache) get(path string) *openPlan {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, _ := c.lru.Get(path)
	return x
}

// add keeps the plan, or returns the one that another opener has kept meanwhile.
func (c *planCache) add(p *place, made *plan.Plan) *openPlan {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x, ok := c.lru.Get(p.path); ok {
		return x
	}
	x := &openPlan{plan: made, etag: sync.OnceValues(func() (string, error) { return etag(p.tree, made) })}
	c.lru.Add(p.path, x)
	for c.size += made.Memory(); c.size > c.max && c.lru.Len() > 1; {
		c.lru.RemoveOldest()
	}
	return x
}

func (c *planCache) memory() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

// etag is the plan's digest and the release's identity, 128 and 64 bits of them in hex.
func etag(t *Tree, p *plan.Plan) (string, error) {
	sum, err := plan.Digest(p, t.FileName)
	if err != nil {
		return "", err
	}
	id := sha256.Sum256([]byte(t.identity()))
	return hex.EncodeToString(sum[:16]) + "-" + hex.EncodeToString(id[:8]), nil
}

// find walks to a path below the root.
func (f *FS) find(ctx context.Context, name string) (*place, error) {
	p := f.root
	for _, part := range splitPath(path.Clean("/" + name)) {
		next, err := p.lookup(ctx, part)
		if err != nil {
			return nil, err
		}
		p = next
	}
	return p, nil
}
