package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"weightfs/sources"
)

// HubCacheDir is where huggingface_hub keeps what it downloaded: $HF_HUB_CACHE, else hub below $HF_HOME, else below huggingface in
// the user's cache directory; "" if there is no such place.
func HubCacheDir() string {
	if dir := os.Getenv("HF_HUB_CACHE"); dir != "" {
		return dir
	}
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return filepath.Join(dir, "hub")
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "huggingface", "hub")
	}
	return ""
}

// openHub opens a file of a Hub release that huggingface_hub has downloaded already, nil if it has not: blobs/<hash> with the hash of
// the listing, or, where it made no links, snapshots/<commit>/<path>. Only a regular file of the right size will do, and no link is followed. What the
// file contains is taken on trust of its name: huggingface_hub gives it that name when it is complete.
func openHub(dir string, l *sources.Listing, e *sources.Entry) sources.Local {
	repo, ok := strings.CutPrefix(l.Name, "hf://")
	if dir == "" || !ok {
		return nil
	}
	repo, _, _ = strings.Cut(repo, "@")
	root, err := os.OpenRoot(filepath.Join(dir, "models--"+strings.ReplaceAll(repo, "/", "--")))
	if err != nil {
		return nil
	}
	defer root.Close()
	var names []string
	for _, hash := range []string{e.SHA256, e.GitOID} {
		if hash != "" {
			names = append(names, path.Join("blobs", hash))
		}
	}
	if l.Revision != "" {
		names = append(names, path.Join("snapshots", l.Revision, e.Path))
	}
	for _, name := range names {
		if b, err := openHubBlob(root, name, e); err == nil {
			return b
		}
	}
	return nil
}

func openHubBlob(root *os.Root, name string, e *sources.Entry) (sources.Local, error) {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != e.Size {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	b := &hubBlob{f: f, entry: e}
	if now, err := f.Stat(); err != nil || !os.SameFile(info, now) || now.Size() != e.Size {
		f.Close()
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	b.was = info
	return b, nil
}

// hubBlob is a file of the Hub's own cache, open. It may be deleted there meanwhile, but must not be written.
type hubBlob struct {
	f     *os.File
	entry *sources.Entry
	was   os.FileInfo
}

func (b *hubBlob) Size() int64    { return b.entry.Size }
func (b *hubBlob) ID() sources.ID { return sources.ID{} }
func (b *hubBlob) Close() error   { return b.f.Close() }
func (b *hubBlob) Fd() uintptr    { return b.f.Fd() }

func (b *hubBlob) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := context.Cause(ctx)
	if err == nil {
		_, err = b.f.ReadAt(p, off)
	}
	now, statErr := b.f.Stat()
	switch {
	case statErr == nil && (now.Size() != b.was.Size() || !now.ModTime().Equal(b.was.ModTime())):
		err = fmt.Errorf("%w: %s in the cache of huggingface_hub was written to", sources.ErrChanged, b.f.Name())
	case err == nil:
		return nil
	}
	return &sources.Error{Op: "read", Path: b.entry.Path, Off: off, Len: int64(len(p)), Err: err}
}

// Stream reads [off, off+n).
func (b *hubBlob) Stream(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(readerAt{ctx, b}, off, n)), nil
}

type readerAt struct {
	ctx context.Context
	b   *hubBlob
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if left := r.b.Size() - off; int64(len(p)) > left {
		return 0, io.ErrUnexpectedEOF
	}
	if err := r.b.ReadAt(r.ctx, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}
