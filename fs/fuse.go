package fs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	iofs "io/fs"
	"log"
	"math"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"weightfs/fs/plan"
)

// forEver is the timeout of what never changes.
const forEver = time.Duration(math.MaxInt64)

// never is the shortest timeout that is not "the default".
const never = time.Nanosecond

// node is a file or directory that the kernel knows. It holds no plan.
type node struct {
	fusefs.Inode
	door *door
	at   *place
	way  *way // of a file that may be read by passthrough
}

// door is what the nodes of one mount share.
type door struct {
	fs       *FS
	uid, gid uint32
	life     context.Context // of the mount; it ends when nobody can be waiting any more
	pass     passthrough

	mu    sync.Mutex       // guards paths
	paths map[uint64]known // by inode number
}

// known is what is remembered of a path that was looked up.
type known struct {
	hash uint64 // another one than the inode number, to see collisions
	gen  uint64 // of the inode, with its way, if it may be read by passthrough
	way  *way
}

var (
	_ fusefs.NodeLookuper  = (*node)(nil)
	_ fusefs.NodeReaddirer = (*node)(nil)
	_ fusefs.NodeGetattrer = (*node)(nil)
	_ fusefs.NodeOpener    = (*node)(nil)
	_ fusefs.NodeReader    = (*node)(nil)
	_ fusefs.NodeReleaser  = (*node)(nil)
	_ fusefs.NodeStatfser  = (*node)(nil)
	_ fusefs.NodeLseeker   = (*node)(nil)
)

// options are the settings of a mount. Data in the page cache is kept over opens, names and attributes for ever: nothing ever changes.
// Readers get requests of up to 1 MiB, 64 of them at a time, if memory allows. Listing a directory makes no nodes: with entries looked up on the way
// (readdirplus), a walk over all blocks of a large model would leave one for each.
func (d *door) options(m MountOptions, direct bool) *fusefs.Options {
	timeout := forEver
	request, background := requests(m.Replies)
	o := &fusefs.Options{
		EntryTimeout: &timeout, AttrTimeout: &timeout, NegativeTimeout: &timeout,
		RootStableAttr: &fusefs.StableAttr{Ino: rootIno},
		Logger:         log.New(d.fs.ring, "", 0),
	}
	o.MountOptions = fuse.MountOptions{
		MaxWrite: request, MaxBackground: background, DisableSplice: true, DisableXAttrs: true, DisableReadDirPlus: true, ExplicitDataCacheControl: true,
		FsName: m.Name, Name: "weightfs", AllowOther: m.AllowOther,
		Logger: log.New(d.fs.ring, "fuse: ", 0), PanicHandler: d.panicked,
	}
	if direct {
		o.DirectMountStrict = true
		o.DirectMountFlags = syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOATIME | syscall.MS_NOEXEC
		o.Options = []string{"default_permissions"}
	} else {
		o.Options = []string{"ro", "nosuid", "nodev", "noatime", "noexec", "default_permissions"}
	}
	return o
}

// requests is the size of the kernel's largest request and how many it has in flight for read-ahead, for replies of about so many bytes. Readers that the
// kernel does not read ahead for (O_DIRECT) have one request each, however many there are: the less memory, the smaller.
func requests(replies int64) (size, background int) {
	if replies <= 0 {
		replies = 64 << 20
	}
	for size = 1 << 20; size > 128<<10 && replies/int64(size) < 64; {
		size /= 2
	}
	return size, int(max(4, min(64, replies/int64(size))))
}

// panicked makes a panic of a handler an EIO, with the stack in the log.
func (d *door) panicked(what any) fuse.Status {
	d.fs.stats.panics.Add(1)
	d.fs.log.Error("panic", "what", fmt.Sprint(what), "stack", string(debug.Stack()))
	return fuse.EIO
}

// fail logs an error and makes it an errno. A name that is not there is no failure; why a view is absent is worth a line.
func (d *door) fail(op string, at *place, err error) syscall.Errno {
	e := errno(err)
	switch {
	case e != syscall.ENOENT:
		d.fs.failed(fmt.Errorf("%s %s: %w", op, at.path, err))
	case err != iofs.ErrNotExist:
		d.fs.log.Info(fmt.Sprintf("%s %s: %v", op, at.path, err))
	}
	return e
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	ctx, cancel := n.door.request(ctx)
	defer cancel()
	child, err := n.at.lookup(ctx, name)
	if err != nil {
		if n.at.tree != nil && !n.at.tree.Complete {
			out.SetEntryTimeout(never)
		}
		return nil, n.door.fail("lookup "+name+" in", n.at, err)
	}
	ino := child.ino()
	if err := n.door.register(ino, child.path); err != nil {
		return nil, n.door.fail("lookup", child, err)
	}
	n.door.attr(child, &out.Attr)
	if child.node.Live != nil {
		out.SetAttrTimeout(never)
	}
	id := fusefs.StableAttr{Mode: out.Attr.Mode & syscall.S_IFMT, Ino: ino}
	made := &node{door: n.door, at: child}
	if file, ok := n.door.passable(child); ok {
		id.Gen, made.way = n.door.generation(ctx, ino, child, file)
		if child.tree.Backings.Completes(file) {
			out.SetEntryTimeout(completeWithin)
		}
	}
	return n.NewInode(ctx, made, id), 0
}

// register remembers whose an inode number is. Two paths with one number would be one file to the kernel: the second is refused.
func (d *door) register(ino uint64, path string) error {
	sum := sha256.Sum256([]byte("collision\x00" + path))
	other := binary.BigEndian.Uint64(sum[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	k, ok := d.paths[ino]
	if ok && k.hash != other {
		return fmt.Errorf("inode number %d is another file's", ino)
	}
	k.hash = other
	d.paths[ino] = k
	return nil
}

func (n *node) Readdir(ctx context.Context) (fusefs.DirStream, syscall.Errno) {
	ctx, cancel := n.door.request(ctx)
	defer cancel()
	places, err := n.at.list(ctx)
	if err != nil {
		return nil, n.door.fail("list", n.at, err)
	}
	entries := make([]fuse.DirEntry, len(places))
	for i, p := range places {
		entries[i] = fuse.DirEntry{Name: p.node.Name, Ino: p.ino(), Mode: kernelMode(p)}
	}
	return fusefs.NewListDirStream(entries), 0
}

func kernelMode(p *place) uint32 {
	if p.isDir() {
		return syscall.S_IFDIR | uint32(p.mode().Perm())
	}
	return syscall.S_IFREG | uint32(p.mode().Perm())
}

// attr fills in everything that stat shows.
func (d *door) attr(p *place, out *fuse.Attr) {
	out.Mode = kernelMode(p)
	out.Nlink = 1
	out.Owner = fuse.Owner{Uid: d.uid, Gid: d.gid}
	out.Size = uint64(p.node.Size)
	switch {
	case p.isDir():
		out.Nlink, out.Size = 2, 0
	case p.node.Live != nil:
		out.Size = uint64(len(p.node.Live()))
	}
	out.Blksize = 4096
	out.Blocks = (out.Size + 511) / 512
	if t := p.time(); !t.IsZero() {
		out.SetTimes(&t, &t, &t)
	}
}

// Lseek is left to the kernel, which asks once: a file is data up to its end.
func (n *node) Lseek(context.Context, fusefs.FileHandle, uint64, uint32) (uint64, syscall.Errno) {
	return 0, syscall.ENOSYS
}

func (n *node) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.door.attr(n.at, &out.Attr)
	if n.at.node.Live != nil {
		out.SetTimeout(never)
	}
	return 0
}

// Open makes sure that the file has a plan, so that what stands against it is said here and not by a page fault. A live file's content
// is taken now and read past the page cache.
func (n *node) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	ctx, cancel := n.door.request(ctx)
	defer cancel()
	file, err := n.door.fs.openPlace(ctx, n.at)
	if err != nil {
		return nil, 0, n.door.fail("open", n.at, err)
	}
	if file.open == nil {
		return &liveHandle{file.live}, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
	}
	if whole, ok := n.door.passable(n.at); ok && n.way != nil {
		h, mode := n.openPassable(ctx, whole, flags)
		return h, mode | fuse.FOPEN_NOFLUSH, 0
	}
	return openHandle{flags&syscall.O_DIRECT != 0}, fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH, 0
}

// openHandle is an open file: what has a handle is released.
type openHandle struct {
	direct bool // reads are those of its reader, and not the kernel's for its page cache
}

// liveHandle is an open live file: its content when it was opened.
type liveHandle struct{ data []byte }

func (n *node) Read(ctx context.Context, h fusefs.FileHandle, dst []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if live, ok := h.(*liveHandle); ok {
		k, err := readLive(live.data, dst, off)
		if err != nil && err != io.EOF {
			return nil, n.door.fail("read", n.at, err)
		}
		return fuse.ReadResultData(dst[:k]), 0
	}
	if p, ok := h.(*passHandle); ok && !p.direct {
		n.door.pass.ignored(n.door.fs, n.at)
	}
	n.door.fs.stats.replying.Add(int64(len(dst)))
	defer n.door.fs.stats.replying.Add(-int64(len(dst)))
	ctx, cancel := n.door.request(ctx)
	defer cancel()
	if open, ok := h.(openHandle); !ok || !open.direct {
		ctx = plan.ByKernel(ctx)
	}
	v, err := n.door.fs.readPlace(ctx, n.at, dst, off)
	if err != nil {
		return nil, errno(err)
	}
	return &lent{v, v.Len()}, 0
}

// Release gives up what was asked for ahead for whoever has closed the file, a process that was killed too.
func (n *node) Release(ctx context.Context, h fusefs.FileHandle) syscall.Errno {
	if x := n.door.fs.plans.get(n.at.path); x != nil {
		n.at.tree.Reader.Leave(x.plan)
	}
	if r, ok := h.(fusefs.FileReleaser); ok {
		return r.Release(ctx)
	}
	return 0
}

// readPlace reads a file whose plan may have to be made again.
func (f *FS) readPlace(ctx context.Context, at *place, dst []byte, off int64) (plan.Vector, error) {
	open, err := f.plans.open(ctx, at)
	if err != nil {
		f.failed(fmt.Errorf("open %s: %w", at.path, err))
		return plan.Vector{}, err
	}
	return f.readVector(ctx, at, open.plan, dst, off)
}

// lent is a reply whose bytes stay where they are until it is sent.
type lent struct {
	v    plan.Vector
	size int
}

func (r *lent) Size() int                       { return r.size }
func (r *lent) Slices() ([][]byte, fuse.Status) { return r.v.Parts, fuse.OK }
func (r *lent) Done()                           { r.v.Release() }

func (r *lent) Bytes([]byte) ([]byte, fuse.Status) { return bytes.Join(r.v.Parts, nil), fuse.OK }

// Statfs has the sizes of the releases: a file system that is full.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const block = 4096
	var bytes, files int64
	for _, t := range n.door.fs.trees {
		bytes += t.Bytes
		files += t.Files
	}
	out.Bsize, out.Frsize, out.NameLen = block, block, 255
	out.Blocks = uint64((bytes + block - 1) / block)
	out.Files = uint64(files)
	return 0
}

func newDoor(f *FS, life context.Context) *door {
	return &door{fs: f, life: life, uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), paths: map[uint64]known{}}
}
