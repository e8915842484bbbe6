// Package testrel has releases of model weights as data: names, headers and bytes of every layout that weightfs must read, made from
// nothing. A release is the same on every machine and in every run, and every byte of a tensor is a closed form of the tensor's name
// and the offset ([Fill]), so that a release of terabytes can be served without being stored and every tensor's true BF16 values
// ([Release.Truth]) can be computed by code that shares nothing with the code under test.
package testrel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"weightfs/sources/safetensors"
)

// Tensor is one tensor of a release and its place: the bytes [Start, End) of the file Path.
type Tensor struct {
	Name       string
	DType      safetensors.DType
	Shape      []int64
	Fill       Fill
	Path       string
	Start, End int64
	data       []byte // in place of Fill, for tensors that have no closed form
}

// ReadAt fills p with the tensor's bytes from off, like [io.ReaderAt].
func (t *Tensor) ReadAt(p []byte, off int64) (int, error) {
	n, err := clip(p, off, t.End-t.Start)
	if t.data != nil {
		copy(p[:n], t.data[min(off, int64(len(t.data))):])
	} else {
		t.Fill.read(p[:n], seed(t.Name), off)
	}
	return n, err
}

// Bytes is the whole tensor.
func (t *Tensor) Bytes() []byte {
	p := make([]byte, t.End-t.Start)
	t.ReadAt(p, 0)
	return p
}

// File is one file of a release: literal bytes, then tensors that tile the rest.
type File struct {
	Path    string // slash-separated
	Size    int64
	head    []byte
	tensors []Tensor // by Start
}

// ReadAt fills p with the file's bytes from off, like [io.ReaderAt]. It is safe for parallel use.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := clip(p, off, f.Size)
	for done := 0; done < n; {
		done += f.readSome(p[done:n], off+int64(done))
	}
	return n, err
}

// readSome reads from the head or from one tensor and says how much; off is inside the file.
func (f *File) readSome(p []byte, off int64) int {
	if off < int64(len(f.head)) {
		return copy(p, f.head[off:])
	}
	i := sort.Search(len(f.tensors), func(i int) bool { return f.tensors[i].End > off })
	n, _ := f.tensors[i].ReadAt(p, off-f.tensors[i].Start)
	return n
}

// Tensors are the tensors of the file in the order of its data; nil for a plain file.
func (f *File) Tensors() []Tensor { return f.tensors }

// HeaderLen is the length of a safetensors file's header with its eight bytes of length; for a plain file it is the size.
func (f *File) HeaderLen() int64 { return int64(len(f.head)) }

// Bytes is the whole file.
func (f *File) Bytes() []byte {
	p := make([]byte, f.Size)
	f.ReadAt(p, 0) // a whole file is never short
	return p
}

// clip says how much of a read of p at off a file of that size gives, with io.EOF if that is not all.
func clip(p []byte, off, size int64) (int, error) {
	switch {
	case off < 0:
		return 0, errors.New("testrel: negative offset")
	case off >= size:
		return 0, io.EOF
	case int64(len(p)) > size-off:
		return int(size - off), io.EOF
	}
	return len(p), nil
}

// Release is a name and files, sorted by path.
type Release struct {
	Name  string
	Files []File
	// HeaderOnly releases have no truth on disk: [WriteDir] leaves the tensors' data a hole.
	HeaderOnly bool
	// Digests, if not nil, are all the truth there is: the SHA-256, in hex, of tensors as the BF16 view must have them (bf16-all for
	// casts), by name. Releases of the groups formats and families have them.
	Digests map[string]string
	byName  func() map[string]*Tensor
}

func newRelease(name string, files ...File) *Release {
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	r := &Release{Name: name, Files: files}
	r.byName = sync.OnceValue(r.index)
	return r
}

func (r *Release) index() map[string]*Tensor {
	m := map[string]*Tensor{}
	for i := range r.Files {
		for j := range r.Files[i].tensors {
			t := &r.Files[i].tensors[j]
			m[t.Name] = t
		}
	}
	return m
}

// File is the file at path, or nil.
func (r *Release) File(path string) *File {
	i := sort.Search(len(r.Files), func(i int) bool { return r.Files[i].Path >= path })
	if i < len(r.Files) && r.Files[i].Path == path {
		return &r.Files[i]
	}
	return nil
}

// Tensor is the tensor of that name, or nil.
func (r *Release) Tensor(name string) *Tensor { return r.byName()[name] }

// Bytes is the size of all files.
func (r *Release) Bytes() int64 {
	var n int64
	for i := range r.Files {
		n += r.Files[i].Size
	}
	return n
}

// WriteDir writes the release's files into dir, which is made.
func WriteDir(dir string, r *Release) error {
	for i := range r.Files {
		if err := writeFile(dir, &r.Files[i], r.HeaderOnly); err != nil {
			return fmt.Errorf("writing %s of release %s: %w", r.Files[i].Path, r.Name, err)
		}
	}
	return nil
}

func writeFile(dir string, f *File, headerOnly bool) error {
	path := filepath.Join(dir, filepath.FromSlash(f.Path))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	n := f.Size
	if headerOnly {
		n = f.HeaderLen()
	}
	_, err = io.Copy(out, io.NewSectionReader(f, 0, n))
	return errors.Join(err, out.Truncate(f.Size), out.Close())
}
