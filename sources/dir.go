package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is a release in a local directory, or one .safetensors file. All regular files below it belong to the release, also dot files and
// what symbolic links lead to (a snapshot of the Hugging Face cache is links into its blobs directory). Directories whose name begins
// with a dot (.git, .cache), links to directories, and anything else are left out and listed as hidden. A file is pinned by device, inode, size,
// modification and change time when it is listed.
func Dir(path string) (Source, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{Op: "open", Path: printable(path), Err: err}
	}
	d := &dir{root: abs}
	if _, err := os.Stat(abs); err != nil {
		return nil, &Error{Op: "open", Path: d.name(), Err: localError(err)}
	}
	return d, nil
}

type dir struct {
	root string
	list flight[*dirListing]
}

type dirListing struct {
	Listing
	root  string // of the paths in the listing
	files map[string]*pinnedFile
}

// pinnedFile is what a local file was when it was listed. All blobs of it share the finding that it is another one.
type pinnedFile struct {
	name string // on this machine
	was  stamp
	gone atomic.Bool
}

// stamp tells one content of a file from another.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

func (d *dir) name() string {
	return (&url.URL{Scheme: "file", Path: d.root}).String()
}

func (d *dir) List(ctx context.Context) (*Listing, error) {
	l, err := d.list.do(ctx, d.walk)
	if err != nil {
		return nil, &Error{Op: "list", Path: d.name(), Err: localError(err)}
	}
	return &l.Listing, nil
}

// walk lists the directory, or the one file.
func (d *dir) walk(ctx context.Context) (*dirListing, error) {
	l := &dirListing{Listing: Listing{Name: d.name(), Complete: true}, root: d.root, files: map[string]*pinnedFile{}}
	st, err := os.Stat(d.root)
	if err != nil {
		return nil, err
	}
	w := &walker{dirListing: l}
	switch {
	case st.IsDir():
		err = filepath.WalkDir(d.root, func(p string, e fs.DirEntry, err error) error {
			if ended := context.Cause(ctx); ended != nil {
				return ended
			}
			return w.visit(p, e, err)
		})
	case strings.HasSuffix(d.root, ".safetensors"):
		l.root = filepath.Dir(d.root)
		w.file(filepath.Base(d.root), d.root)
	default:
		err = errors.New("neither a directory nor a .safetensors file")
	}
	if err != nil {
		return nil, err
	}
	var hidden []Hidden
	l.Files, hidden = sift(w.entries)
	l.Hidden = append(l.Hidden, hidden...)
	return l, nil
}

// walker collects the entries of a directory.
type walker struct {
	*dirListing
	entries []Entry
}

func (w *walker) visit(name string, e fs.DirEntry, err error) error {
	if name == w.root {
		return err
	}
	rel, relErr := filepath.Rel(w.root, name)
	switch {
	case relErr != nil:
		return relErr
	case err != nil:
		w.hide(rel, localError(err).Error())
	case e.IsDir() && strings.HasPrefix(e.Name(), "."):
		w.hide(rel, "a directory whose name begins with a dot")
		return fs.SkipDir
	case e.IsDir():
	default:
		w.file(rel, name)
	}
	if len(w.entries) > maxEntries {
		return errTooManyEntries
	}
	return nil
}

// file adds one name that is no directory.
func (w *walker) file(rel, name string) {
	var st unix.Stat_t
	err := unix.Stat(name, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		w.hide(rel, "a symbolic link to nothing")
	case err != nil:
		w.hide(rel, localError(err).Error())
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		w.hide(rel, "a symbolic link to a directory")
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		w.hide(rel, "not a regular file")
	default:
		w.entries = append(w.entries, Entry{Path: rel, Size: st.Size})
		w.files[rel] = &pinnedFile{name: name, was: stampOf(&st)}
		if t := time.Unix(st.Mtim.Unix()); t.After(w.Time) {
			w.Time = t
		}
	}
}

func (w *walker) hide(rel, reason string) {
	w.Hidden = append(w.Hidden, Hidden{Path: printable(rel), Reason: reason})
}

func (d *dir) Open(ctx context.Context, path string) (Blob, error) {
	if _, err := d.List(ctx); err != nil {
		return nil, err
	}
	l, err := d.list.do(ctx, d.walk)
	if err != nil || l.Find(path) < 0 {
		return nil, &Error{Op: "open", Path: printable(path), Err: errors.Join(err, ErrNotFound)}
	}
	b, err := l.files[path].open(path)
	if err != nil {
		return nil, &Error{Op: "open", Path: path, Err: err}
	}
	return b, nil
}

// open opens the file and makes sure that it is the one that was listed. A named pipe in its place does not block.
func (p *pinnedFile) open(path string) (*localBlob, error) {
	f, err := os.OpenFile(p.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, changed("it was deleted")
	}
	if err != nil {
		return nil, localError(err)
	}
	b := &localBlob{f: f, pin: p, path: path}
	if b.raw, err = f.SyscallConn(); err == nil {
		err = b.check()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return b, nil
}

// localError puts an error of the operating system under the sentinels. The path in it stays.
func localError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return err
}

// localBlob is an open local file.
type localBlob struct {
	f    *os.File
	raw  syscall.RawConn
	pin  *pinnedFile
	path string
}

var _ Local = (*localBlob)(nil)

func (b *localBlob) Size() int64  { return b.pin.was.size }
func (b *localBlob) ID() ID       { return ID{} }
func (b *localBlob) Fd() uintptr  { return b.f.Fd() }
func (b *localBlob) Close() error { return b.f.Close() }

// check compares the open file with what was listed. A difference is remembered for as long as the source lives.
func (b *localBlob) check() error {
	var st unix.Stat_t
	var err error
	if closed := b.raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); closed != nil || err != nil {
		return errors.Join(closed, err)
	}
	if stampOf(&st) != b.pin.was {
		b.pin.gone.Store(true)
	}
	if b.pin.gone.Load() {
		return changed("%s was modified or replaced after it was listed", printable(b.pin.name))
	}
	return nil
}

// ReadAt reads in place, and then makes sure that the file was the pinned one all the while.
func (b *localBlob) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := context.Cause(ctx)
	if n := int64(len(p)); err == nil && (off < 0 || off > b.Size()-n) {
		err = fmt.Errorf("beyond the file's %d bytes", b.Size())
	}
	if err == nil {
		err = b.readAt(p, off)
	}
	if err != nil {
		return &Error{Op: "read", Path: b.path, Off: off, Len: int64(len(p)), Err: err}
	}
	return nil
}

func (b *localBlob) readAt(p []byte, off int64) error {
	_, err := b.f.ReadAt(p, off)
	if err != nil && err != io.EOF {
		return err
	}
	if other := b.check(); other != nil || err == nil {
		return other
	}
	return io.ErrUnexpectedEOF
}

func (b *localBlob) Stream(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	return streamLocal(ctx, b, b.path, off, n)
}

// streamLocal reads [off, off+n) of a local file with its ReadAt.
func streamLocal(ctx context.Context, b Local, path string, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n < 0 || off > b.Size()-n {
		return nil, &Error{Op: "read", Path: path, Off: off, Len: n, Err: fmt.Errorf("beyond the file's %d bytes", b.Size())}
	}
	return &localReader{ctx: ctx, b: b, off: off, end: off + n}, nil
}

type localReader struct {
	ctx      context.Context
	b        Local
	off, end int64
}

func (r *localReader) Read(p []byte) (int, error) {
	if r.off == r.end {
		return 0, io.EOF
	}
	n := min(int64(len(p)), r.end-r.off)
	if err := r.b.ReadAt(r.ctx, p[:n], r.off); err != nil {
		return 0, err
	}
	r.off += n
	return int(n), nil
}

func (r *localReader) Close() error { return nil }
