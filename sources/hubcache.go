package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HubCacheDir is where huggingface_hub keeps what it downloaded: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, else hub below $HF_HOME, else
// below huggingface in the user's cache directory; "" if there is no such place.
func HubCacheDir(getenv func(string) string) string {
	for _, key := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if dir := getenv(key); dir != "" {
			return atHome(dir, getenv)
		}
	}
	if home := hfHome(getenv); home != "" {
		return filepath.Join(home, "hub")
	}
	return ""
}

// hubCache is what huggingface_hub has downloaded of one repository:
//
//	refs/<revision>            the commit that it was at
//	trees/<commit>.json        the files of a commit, with hashes; not every version writes it, and none for a single file
//	blobs/<hash>               content, named by its SHA-256 or git's hash, once it is complete
//	snapshots/<commit>/<path>  links into blobs, or the files themselves where there are no links
//
// Everything is read in place, nothing is written, and nothing outside of the repository's directory is read. The zero value has nothing.
type hubCache struct{ root *os.Root }

// openHubCache is the part of a repository in the cache directory dir, "" for none. The caller closes it.
func openHubCache(dir, repo string) hubCache {
	if dir == "" {
		return hubCache{}
	}
	root, err := os.OpenRoot(filepath.Join(dir, "models--"+strings.ReplaceAll(repo, "/", "--")) + "/") // with the slash nothing but a directory is opened: a pipe would be waited for
	if err != nil {
		return hubCache{}
	}
	return hubCache{root}
}

func (c hubCache) close() {
	if c.root != nil {
		c.root.Close()
	}
}

// ref is the commit that a revision was at, and when that was found out; "" if it is not there.
func (c hubCache) ref(revision string) (commit string, seen time.Time) {
	text, seen := c.read(path.Join("refs", revision), 1<<10)
	return hexOf(strings.TrimSpace(string(text)), 20), seen
}

// read is a small file and its modification time, nil if it is not there or longer than limit.
func (c hubCache) read(name string, limit int64) ([]byte, time.Time) {
	if c.root == nil {
		return nil, time.Time{}
	}
	f, err := c.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, time.Time{}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > limit {
		return nil, time.Time{}
	}
	text, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, time.Time{}
	}
	return text, info.ModTime()
}

// tree is the files of a commit from trees/<commit>.json, nil if it is not there or not of the known form.
func (c hubCache) tree(commit string) *tree {
	text, written := c.read(path.Join("trees", commit+".json"), maxKept)
	if text == nil {
		return nil
	}
	t := &tree{time: written}
	if t.readCached(strings.NewReader(string(text))) != nil {
		return nil
	}
	return t
}

// readCached reads the form that huggingface_hub keeps a tree in: {"format_version": 1, "files": {path: {size, blob_id, lfs_sha256, lfs_size}}}.
func (t *tree) readCached(r io.Reader) error {
	dec := json.NewDecoder(r)
	version, listed := json.Number(""), false
	err := eachField(dec, func(key string) error {
		switch key {
		case "format_version":
			return dec.Decode(&version)
		case "files":
			listed = true
			return eachField(dec, func(name string) error { return t.addCached(dec, name) })
		}
		return dec.Decode(&json.RawMessage{})
	})
	if err == nil && (version != "1" || !listed) {
		err = fmt.Errorf("format_version %q, a list of files: %t", version, listed)
	}
	return err
}

func (t *tree) addCached(dec *json.Decoder, name string) error {
	var f struct {
		Size    json.Number `json:"size"`
		BlobID  string      `json:"blob_id"`
		SHA256  string      `json:"lfs_sha256"`
		LFSSize json.Number `json:"lfs_size"`
	}
	if err := dec.Decode(&f); err != nil {
		return err
	}
	if t.count++; t.count > maxEntries {
		return errTooManyEntries
	}
	e := treeEntry{Type: "file", Path: name, OID: f.BlobID, Size: f.Size}
	if f.SHA256 != "" {
		e.LFS = &lfsPointer{OID: f.SHA256, Size: f.LFSSize}
	}
	t.add(e, nil)
	return nil
}

// snapshot is the files of a commit that have been downloaded, nil if none has: a part of the commit's, perhaps.
func (c hubCache) snapshot(commit string) *tree {
	if c.root == nil {
		return nil
	}
	t, top := &tree{part: true}, path.Join("snapshots", commit)
	err := fs.WalkDir(c.root.FS(), top, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if t.count++; t.count > maxEntries {
			return errTooManyEntries
		}
		c.addSnapshot(t, name, strings.TrimPrefix(name, top+"/"))
		return nil
	})
	if err != nil || len(t.entries) == 0 {
		return nil
	}
	return t
}

// addSnapshot adds one name below snapshots/<commit>. The blob that it leads to has the content's hash for its name, mostly.
func (c hubCache) addSnapshot(t *tree, name, file string) {
	blob := c.blobOf(name)
	info, err := c.root.Lstat(blob)
	if err != nil || !info.Mode().IsRegular() {
		t.hidden = append(t.hidden, Hidden{Path: printable(file), Reason: "its content is not in the cache of huggingface_hub"})
		return
	}
	e := Entry{Path: file, Size: info.Size()}
	if hash := path.Base(blob); blob != name {
		e.SHA256, e.GitOID = hexOf(hash, 32), hexOf(hash, 20)
	}
	if info.ModTime().After(t.time) {
		t.time = info.ModTime()
	}
	t.entries = append(t.entries, e)
}

// blobOf is the file that a name below snapshots stands for: the one in blobs that it is a link to, else itself.
func (c hubCache) blobOf(name string) string {
	target, err := c.root.Readlink(name)
	if err != nil {
		return name
	}
	blob := path.Join(path.Dir(name), filepath.ToSlash(target))
	if dir, file := path.Split(blob); dir != "blobs/" || strings.HasSuffix(file, ".incomplete") {
		return name
	}
	return blob
}

// commits is the commits of which files have been downloaded.
func (c hubCache) commits() (all []string) {
	if c.root == nil {
		return nil
	}
	dir, err := c.root.OpenFile("snapshots", os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if hexOf(name, 20) == name {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// OpenHubCache opens a file of a Hub release that huggingface_hub has downloaded to its cache directory dir, nil if it has not: the blob
// with the hash of the listing, or what stands for the path in the commit's snapshot. Only a regular file of the right size will do, and no link but
// the snapshot's into blobs is followed. What the file contains is taken on trust of its name, which huggingface_hub gives it when it is complete.
func OpenHubCache(dir string, l *Listing, e *Entry) Local {
	repo, ok := strings.CutPrefix(l.Name, "hf://")
	if !ok {
		return nil
	}
	repo, _, _ = strings.Cut(repo, "@")
	c := openHubCache(dir, repo)
	defer c.close()
	if c.root == nil {
		return nil
	}
	var names []string
	for _, hash := range []string{e.SHA256, e.GitOID} {
		if hash != "" {
			names = append(names, path.Join("blobs", hash))
		}
	}
	if l.Revision != "" {
		names = append(names, c.blobOf(path.Join("snapshots", l.Revision, e.Path)))
	}
	for _, name := range names {
		if b, err := c.open(name, e); err == nil {
			return b
		}
	}
	return nil
}

func (c hubCache) open(name string, e *Entry) (Local, error) {
	info, err := c.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != e.Size {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	f, err := c.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(info, now) || now.Size() != e.Size {
		f.Close()
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	return &hubBlob{f: f, entry: e, was: info}, nil
}

// hubBlob is a file of the Hub's own cache, open. It may be deleted there meanwhile, but must not be written.
type hubBlob struct {
	f     *os.File
	entry *Entry
	was   os.FileInfo
}

func (b *hubBlob) Size() int64  { return b.entry.Size }
func (b *hubBlob) ID() ID       { return ID{} }
func (b *hubBlob) Close() error { return b.f.Close() }
func (b *hubBlob) Fd() uintptr  { return b.f.Fd() }

// ReadAt reads in place, and then makes sure that the file is as it was.
func (b *hubBlob) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := context.Cause(ctx)
	if err == nil {
		_, err = b.f.ReadAt(p, off)
	}
	now, statErr := b.f.Stat()
	switch {
	case statErr == nil && (now.Size() != b.was.Size() || !now.ModTime().Equal(b.was.ModTime())):
		err = changed("%s in the cache of huggingface_hub was written to", b.f.Name())
	case err == nil:
		return nil
	}
	return &Error{Op: "read", Path: b.entry.Path, Off: off, Len: int64(len(p)), Err: err}
}

func (b *hubBlob) Stream(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	return streamLocal(ctx, b, b.entry.Path, off, n)
}
