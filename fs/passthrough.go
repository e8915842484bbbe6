package fs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"weightfs/fs/plan"
)

// Passthrough lets the kernel read a local file in place of one of the mount's, without asking this process: it has the same bytes. The kernel
// wants all users of an inode to read one way, by passthrough or through the page cache, for as long as anybody has it open or mapped. So a
// file that becomes complete while it is in use is shown as a new inode, of the same number and the next generation, to those who open it
// from then on.

// Backing is a local file with all the bytes of a file of the release. Nothing of it goes away before Done is called.
type Backing struct {
	Fd   uintptr
	Size int64
	Done func()
}

// Backings are the local files that a tree's files may be read from.
type Backings interface {
	// Lend opens a file of the release, and lends the local file that has its bytes, if there is one.
	Lend(ctx context.Context, file int) (Backing, bool)
	// Completes says that such a local file comes and goes: there is one, or will be, when all of the file was read, until it is evicted.
	Completes(file int) bool
}

// completeWithin is how soon a file that has become complete is noticed.
const completeWithin = time.Second

// whole is the file of the release that p is a copy of, all of it.
func whole(p *plan.Plan) (file int, ok bool) {
	if p == nil || len(p.Pieces) != 1 {
		return 0, false
	}
	c, ok := p.Pieces[0].(plan.Copy)
	return c.Span.File, ok && c.Span.Start == 0
}

// passthrough is what the files of a mount share. Its zero value is off.
type passthrough struct {
	server atomic.Pointer[fuse.Server] // nil: off
	opens  atomic.Int64
	failed atomic.Int64
	once   sync.Once // guards a message
}

var errNotAsked = errors.New("turned off")

// start tries with a file that is sure to be right, and turns passthrough on if the kernel takes it. It wants root in the first user
// namespace and Linux 6.9.
func (p *passthrough) start(s *fuse.Server) error {
	fd, err := unix.MemfdCreate("weightfs", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := register(s, uintptr(fd)); err != nil {
		return err
	}
	p.server.Store(s)
	return nil
}

// register makes sure that the kernel takes a file. The library does not say when it does not: it turns passthrough off in silence.
func register(s *fuse.Server, fd uintptr) error {
	id, errno := s.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	if errno == 0 {
		errno = s.UnregisterBackingFd(id)
	}
	switch errno {
	case 0:
		return nil
	case syscall.EPERM:
		return fmt.Errorf("%w: it takes root, outside of containers", errno)
	case syscall.ENOTTY, syscall.EOPNOTSUPP, syscall.EINVAL:
		return fmt.Errorf("%w: it takes Linux 6.9", errno)
	case syscall.ELOOP:
		return fmt.Errorf("%w: the file lies in a stacked file system", errno)
	}
	return errno
}

// way is how an inode is read, by all who have it open at a time.
type way struct {
	mu      sync.Mutex // guards what follows
	handles int
	cached  bool     // it was opened for the page cache once, and stays so
	backing *Backing // of those who have it open; nil: through the page cache
}

// open counts one more handle, which reads as the others do. The first decides: it asks lend for a backing.
func (w *way) open(lend func() *Backing) fusefs.FileHandle {
	if h := w.join(); h != nil {
		return h
	}
	offer := lend()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handles == 0 && !w.cached {
		w.backing, w.cached = offer, offer == nil
	} else if offer != nil {
		offer.Done() // somebody else decided
	}
	return w.handle()
}

// join is a handle like those there are, nil if there are none to go by.
func (w *way) join() fusefs.FileHandle {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handles == 0 && !w.cached {
		return nil
	}
	return w.handle()
}

// handle counts a handle. w.mu is held.
func (w *way) handle() fusefs.FileHandle {
	w.handles++
	if w.backing == nil {
		return &cachedHandle{w}
	}
	return &passHandle{cachedHandle: cachedHandle{w}, fd: int(w.backing.Fd)}
}

func (w *way) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handles--; w.handles == 0 && w.backing != nil {
		w.backing.Done()
		w.backing = nil
	}
}

// outdated says whether the inode is one for the page cache though there is a backing now.
func (w *way) outdated(lend func() *Backing) bool {
	w.mu.Lock()
	cached := w.cached
	w.mu.Unlock()
	if !cached {
		return false
	}
	b := lend()
	if b != nil {
		b.Done()
	}
	return b != nil
}

// cachedHandle is an open file that is read through the page cache, passHandle one that the kernel reads from its backing.
type cachedHandle struct{ way *way }

type passHandle struct {
	cachedHandle
	fd     int
	direct bool // reads come to this process all the same
}

func (h *cachedHandle) Release(context.Context) syscall.Errno {
	h.way.close()
	return 0
}

func (h *passHandle) PassthroughFd() (int, bool) { return h.fd, true }

var (
	_ fusefs.FileReleaser        = (*cachedHandle)(nil)
	_ fusefs.FileReleaser        = (*passHandle)(nil)
	_ fusefs.FilePassthroughFder = (*passHandle)(nil)
)

// lend is a backing of a whole file that the kernel takes, or nil.
func (d *door) lend(ctx context.Context, at *place, file int) *Backing {
	s := d.pass.server.Load()
	b, ok := at.tree.Backings.Lend(ctx, file)
	if !ok {
		return nil
	}
	if b.Size != at.node.Size {
		b.Done() // it is more than the file shows
		return nil
	}
	if err := register(s, b.Fd); err != nil {
		b.Done()
		d.pass.refused(d.fs, at, err)
		return nil
	}
	return &b
}

// ignored tells, once, that a file is read through this process though it was opened for passthrough: the library has turned it off.
func (p *passthrough) ignored(f *FS, at *place) {
	p.once.Do(func() { p.refused(f, at, errors.New("the kernel refused it when the file was opened")) })
}

// refused tells of a file that cannot be read by passthrough though its bytes are there.
func (p *passthrough) refused(f *FS, at *place, err error) {
	p.failed.Add(1)
	f.log.Warn(fmt.Sprintf("passthrough of %s: %v: it is read through the page cache", at.path, err))
}

// passable is the file of the release that the place is, if it may be read by passthrough.
func (d *door) passable(at *place) (file int, ok bool) {
	if d.pass.server.Load() == nil || at.tree == nil || at.tree.Backings == nil {
		return 0, false
	}
	return whole(at.node.Plan)
}

// openPassable opens a file that may be read by passthrough. Reads with O_DIRECT may be of any alignment, which the local file would not
// take: they come to this process, and mappings do not.
func (n *node) openPassable(ctx context.Context, file int, flags uint32) (h fusefs.FileHandle, mode uint32) {
	h = n.way.open(func() *Backing { return n.door.lend(ctx, n.at, file) })
	p, ok := h.(*passHandle)
	if !ok {
		return h, fuse.FOPEN_KEEP_CACHE
	}
	n.door.pass.opens.Add(1)
	if p.direct = flags&syscall.O_DIRECT != 0; p.direct {
		return p, fuse.FOPEN_DIRECT_IO
	}
	return p, 0
}

// generation is the generation under which a file is shown, and its way. It is the next one if the last is for the page cache though it need not be.
func (d *door) generation(ctx context.Context, ino uint64, at *place, file int) (gen uint64, w *way) {
	d.mu.Lock()
	k := d.paths[ino]
	d.mu.Unlock()
	if k.way != nil && !k.way.outdated(func() *Backing { return d.lend(ctx, at, file) }) {
		return k.gen, k.way
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.paths[ino]; now.way != k.way {
		return now.gen, now.way // somebody else was here
	}
	if k.way != nil {
		k.gen++
	}
	k.way = &way{}
	d.paths[ino] = k
	return k.gen, k.way
}
