package fs

import (
	"context"
	"errors"
	"io"
	iofs "io/fs"
	"time"
)

// IO is the tree as an [io/fs.FS] whose files can be read at any offset ([io.ReaderAt], [io.Seeker]) and know their digest
// ([Tagged]). Every call ends with ctx.
func (f *FS) IO(ctx context.Context) iofs.FS { return ioFS{f, ctx} }

// Tagged is implemented by files that know a name for their content: equal tags mean equal bytes.
type Tagged interface{ ETag() (string, error) }

// ioFS carries the context of whoever walks the tree: io/fs has no other place for it.
type ioFS struct {
	fs  *FS
	ctx context.Context
}

var (
	_ iofs.ReadDirFS   = ioFS{}
	_ iofs.StatFS      = ioFS{}
	_ iofs.ReadDirFile = (*ioDir)(nil)
	_ io.ReadSeeker    = (*ioFile)(nil)
	_ io.ReaderAt      = (*ioFile)(nil)
	_ Tagged           = (*ioFile)(nil)
)

// find walks to a name of io/fs, "." being the root.
func (s ioFS) find(op, name string) (*place, error) {
	if !iofs.ValidPath(name) {
		return nil, &iofs.PathError{Op: op, Path: name, Err: iofs.ErrInvalid}
	}
	p, err := s.fs.find(s.ctx, name)
	if errors.Is(err, errNotDir) {
		err = iofs.ErrNotExist
	}
	if err != nil {
		return nil, &iofs.PathError{Op: op, Path: name, Err: err}
	}
	return p, nil
}

func (s ioFS) Open(name string) (iofs.File, error) {
	p, err := s.find("open", name)
	if err != nil {
		return nil, err
	}
	if p.isDir() {
		return &ioDir{fs: s, at: p, name: name}, nil
	}
	file, err := s.fs.openPlace(s.ctx, p)
	if err != nil {
		return nil, &iofs.PathError{Op: "open", Path: name, Err: err}
	}
	return &ioFile{File: file, ctx: s.ctx, name: name}, nil
}

func (s ioFS) Stat(name string) (iofs.FileInfo, error) {
	p, err := s.find("stat", name)
	if err != nil {
		return nil, err
	}
	return newInfo(p), nil
}

func (s ioFS) ReadDir(name string) ([]iofs.DirEntry, error) {
	p, err := s.find("readdir", name)
	if err != nil {
		return nil, err
	}
	places, err := p.list(s.ctx)
	if err != nil {
		return nil, &iofs.PathError{Op: "readdir", Path: name, Err: err}
	}
	out := make([]iofs.DirEntry, len(places))
	for i, x := range places {
		out[i] = iofs.FileInfoToDirEntry(newInfo(x))
	}
	return out, nil
}

// info is what stat says.
type info struct {
	at   *place
	size int64
}

func newInfo(p *place) info {
	if p.node.Live != nil {
		return info{p, int64(len(p.node.Live()))}
	}
	return info{p, p.node.Size}
}

func (i info) Name() string {
	if i.at.path == "" {
		return "."
	}
	return i.at.node.Name
}
func (i info) Size() int64         { return i.size }
func (i info) Mode() iofs.FileMode { return i.at.mode() }
func (i info) ModTime() time.Time  { return i.at.time() }
func (i info) IsDir() bool         { return i.at.isDir() }
func (i info) Sys() any            { return nil }

// ioFile is an open file with a position.
type ioFile struct {
	File
	ctx  context.Context
	name string
	pos  int64
}

func (x *ioFile) Stat() (iofs.FileInfo, error) { return info{x.at, x.Size}, nil }

func (x *ioFile) Close() error { return nil }

func (x *ioFile) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := x.ReadAt(p, x.pos)
	x.pos += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

func (x *ioFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := x.File.ReadAt(x.ctx, p, off)
	if err != nil && err != io.EOF {
		err = &iofs.PathError{Op: "read", Path: x.name, Err: err}
	}
	return n, err
}

func (x *ioFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += x.pos
	case io.SeekEnd:
		offset += x.Size
	}
	if offset < 0 || whence < io.SeekStart || whence > io.SeekEnd {
		return 0, &iofs.PathError{Op: "seek", Path: x.name, Err: iofs.ErrInvalid}
	}
	x.pos = offset
	return offset, nil
}

// ioDir is an open directory.
type ioDir struct {
	fs   ioFS
	at   *place
	name string
	rest []iofs.DirEntry
	read bool
}

func (d *ioDir) Stat() (iofs.FileInfo, error) { return newInfo(d.at), nil }

func (d *ioDir) Close() error { return nil }

func (d *ioDir) Read([]byte) (int, error) {
	return 0, &iofs.PathError{Op: "read", Path: d.name, Err: errIsDir}
}

func (d *ioDir) ReadDir(n int) ([]iofs.DirEntry, error) {
	if !d.read {
		all, err := d.fs.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.rest, d.read = all, true
	}
	if n <= 0 {
		n = len(d.rest)
	} else if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	out := d.rest[:n:n]
	d.rest = d.rest[n:]
	return out, nil
}
