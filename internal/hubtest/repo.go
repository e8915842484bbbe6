package hubtest

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"weightfs/internal/testrel"
)

// Access says who may read a repository.
type Access int

const (
	Public   Access = iota
	Gated           // listed for everybody, files only with Repo.Token
	Private         // does not exist without Repo.Token
	Disabled        // nobody
)

// Repo is what a test says of a repository it adds.
type Repo struct {
	Name   string // org/name, or a name alone
	Access Access
	Token  string // gives access to a gated or private repository
	Files  []File
	Date   time.Time // of the commit; zero is a fixed day
}

// File is one file of a commit.
type File struct {
	Path string
	Size int64
	Open func() (Body, error)
	// Stamp stands for the content in the commit's id.
	Stamp string
	// Unhashed content is too large to be hashed: its oid is made from its name, size and stamp.
	Unhashed bool
}

// repo is a repository: where its branch is and every commit it ever had.
type repo struct {
	name     string
	access   Access
	token    string
	dir      string // of a repository on disk, scanned when its branch is asked for
	main     string
	branches map[string]string // besides main and HEAD: name to commit
	commits  map[string]*commit
}

// commit is immutable.
type commit struct {
	id    string
	date  time.Time
	blobs []*blob // sorted by path
}

// blob is one file of one commit. Its hashes are computed when they are first asked for.
type blob struct {
	File
	commit string
	hashes func() hashes
}

type hashes struct {
	sha256 string // of the content; "" for a plain file
	git    string // of the git blob: the content, or the pointer of an LFS file
	err    error
}

// lfs reports whether the file is stored as LFS: all safetensors are.
func (b *blob) lfs() bool { return strings.HasSuffix(b.Path, ".safetensors") }

// pointer is the text that git holds in place of an LFS file.
func pointer(sha string, size int64) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", sha, size)
}

var fixedDate = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newCommit(repo string, files []File, date time.Time) *commit {
	if date.IsZero() {
		date = fixedDate
	}
	files = append([]File(nil), files...)
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	id := sha1.New()
	fmt.Fprintf(id, "%s %s\n", repo, date.UTC().Format(time.RFC3339Nano))
	for _, f := range files {
		fmt.Fprintf(id, "%q %d %s\n", f.Path, f.Size, f.Stamp)
	}
	c := &commit{id: hex.EncodeToString(id.Sum(nil)), date: date}
	for _, f := range files {
		b := &blob{File: f, commit: c.id}
		b.hashes = sync.OnceValue(b.hash)
		c.blobs = append(c.blobs, b)
	}
	return c
}

func (b *blob) hash() (h hashes) {
	if b.lfs() {
		if h.sha256, h.err = b.contentHash(); h.err == nil {
			p := pointer(h.sha256, b.Size)
			h.git = gitHash([]byte(p))
		}
		return h
	}
	body, err := b.Open()
	if err != nil {
		h.err = err
		return h
	}
	defer body.Close()
	x := sha1.New()
	fmt.Fprintf(x, "blob %d\x00", b.Size)
	_, h.err = io.Copy(x, io.NewSectionReader(body, 0, b.Size))
	h.git = hex.EncodeToString(x.Sum(nil))
	return h
}

func gitHash(content []byte) string {
	h := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...))
	return hex.EncodeToString(h[:])
}

func (b *blob) contentHash() (string, error) {
	x := sha256.New()
	if b.Unhashed {
		fmt.Fprintf(x, "weightfs stand-in hub: content of %s, %d bytes, %s", b.Path, b.Size, b.Stamp)
		return hex.EncodeToString(x.Sum(nil)), nil
	}
	body, err := b.Open()
	if err != nil {
		return "", err
	}
	defer body.Close()
	_, err = io.Copy(x, io.NewSectionReader(body, 0, b.Size))
	return hex.EncodeToString(x.Sum(nil)), err
}

// find is the blob at path, or nil.
func (c *commit) find(path string) *blob {
	i := sort.Search(len(c.blobs), func(i int) bool { return c.blobs[i].Path >= path })
	if i < len(c.blobs) && c.blobs[i].Path == path {
		return c.blobs[i]
	}
	return nil
}

// FilesOf are the files of a release.
func FilesOf(r *testrel.Release) []File {
	out := make([]File, len(r.Files))
	for i := range r.Files {
		f := &r.Files[i]
		out[i] = File{Path: f.Path, Size: f.Size, Stamp: r.Name, Unhashed: r.HeaderOnly && f.Tensors() != nil,
			Open: func() (Body, error) { return memory{f}, nil }}
	}
	return out
}

// Add serves a repository under its name and returns its commit. Adding a name again moves its branch to a new commit; the old commit stays.
func (h *Hub) Add(r Repo) (id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.repos[r.Name]
	if p == nil {
		p = &repo{name: r.Name, branches: map[string]string{}, commits: map[string]*commit{}}
		h.repos[r.Name] = p
	}
	p.access, p.token = r.Access, r.Token
	return p.move(newCommit(r.Name, r.Files, r.Date))
}

// AddRelease serves a release as the public repository name.
func (h *Hub) AddRelease(name string, r *testrel.Release) (id string) {
	return h.Add(Repo{Name: name, Files: FilesOf(r)})
}

// Tag gives a commit of a repository another name, like v1.0 or refs/pr/1.
func (h *Hub) Tag(name, revision, commit string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repos[name].branches[revision] = commit
}

func (p *repo) move(c *commit) string {
	if _, known := p.commits[c.id]; !known {
		p.commits[c.id] = c
	}
	p.main = c.id
	return c.id
}

// lookup is the repository of that name, or nil: one that was added, a directory below Root, or a release that Make makes.
func (h *Hub) lookup(name string) *repo {
	if p := h.repo(name); p != nil {
		return p
	}
	h.making.Lock()
	defer h.making.Unlock()
	if p := h.repo(name); p != nil {
		return p
	}
	files, dir := h.discover(name)
	if files == nil && dir == "" {
		return nil
	}
	p := &repo{name: name, dir: dir, branches: map[string]string{}, commits: map[string]*commit{}}
	p.access, p.token = h.plan.access(name)
	if files != nil {
		p.move(newCommit(name, files, time.Time{}))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repos[name] = p
	return p
}

func (h *Hub) repo(name string) *repo {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.repos[name]
}

func (h *Hub) discover(name string) (files []File, dir string) {
	if h.cfg.Root != "" && strings.Count(name, "/") == 1 && filepath.IsLocal(filepath.FromSlash(name)) {
		d := filepath.Join(h.cfg.Root, filepath.FromSlash(name))
		if fi, err := os.Stat(d); err == nil && fi.IsDir() {
			return nil, d
		}
	}
	if h.cfg.Make != nil {
		if r := h.cfg.Make(name); r != nil {
			return FilesOf(r), ""
		}
	}
	return nil, ""
}

// revision is the commit that rev names, or nil: main and HEAD, another branch or tag, or a commit's full id. A directory is scanned for
// its branch, and for a commit that this process has not seen yet.
func (h *Hub) revision(p *repo, rev string) (*commit, error) {
	main := rev == "main" || rev == "HEAD" || rev == "refs/heads/main"
	if p.dir != "" && (main || h.known(p, rev) == nil) {
		c, err := scan(p.name, p.dir)
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		p.move(c)
		h.mu.Unlock()
	}
	if main {
		h.mu.Lock()
		rev = p.main
		h.mu.Unlock()
	}
	return h.known(p, rev), nil
}

func (h *Hub) known(p *repo, rev string) *commit {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id, ok := p.branches[rev]; ok {
		rev = id
	}
	return p.commits[rev]
}

// scan makes a commit of a directory as it is now.
func scan(name, dir string) (*commit, error) {
	var files []File
	var newest time.Time
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := os.Stat(path)
		if err != nil || !fi.Mode().IsRegular() {
			return nil // a link to nothing, a pipe: it is not in the commit
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if fi.ModTime().After(newest) {
			newest = fi.ModTime()
		}
		files = append(files, onDisk(path, filepath.ToSlash(rel), fi))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("scanning %s: %w", dir, err)
	}
	return newCommit(name, files, newest), nil
}

// onDisk is a file of a directory. One that is mostly holes stands for something larger than the disk and is not hashed.
func onDisk(path, rel string, fi fs.FileInfo) File {
	f := File{Path: rel, Size: fi.Size(), Stamp: fi.ModTime().UTC().Format(time.RFC3339Nano)}
	f.Open = func() (Body, error) { return os.Open(path) }
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		f.Unhashed = fi.Size() > 64<<20 && st.Blocks*512 < fi.Size()/2
	}
	return f
}
