package transform

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
	"weightfs/sources/release"
)

var update = flag.Bool("update", false, "write the golden files")

// memory is a release without a disk: it opens it, and is the store that plans over it read from.
type memory struct {
	name  string
	files []memoryFile // sorted by path
	reads int64        // bytes of ReadAt and Gather, not of headers
}

type memoryFile struct {
	path string
	size int64
	io.ReaderAt
}

// bytes is the whole file.
func (f *memoryFile) bytes() []byte {
	b := make([]byte, f.size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		panic(err)
	}
	return b
}

func fromRelease(r *testrel.Release) *memory {
	m := &memory{name: r.Name}
	for i := range r.Files {
		m.files = append(m.files, memoryFile{r.Files[i].Path, r.Files[i].Size, &r.Files[i]})
	}
	return m
}

// fromFiles is a release of these files.
func fromFiles(name string, files map[string][]byte) *memory {
	m := &memory{name: name}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		m.files = append(m.files, memoryFile{path, int64(len(files[path])), bytes.NewReader(files[path])})
	}
	return m
}

func (m *memory) file(path string) *memoryFile {
	for i := range m.files {
		if m.files[i].path == path {
			return &m.files[i]
		}
	}
	panic("no file " + path)
}

func (m *memory) Header(_ context.Context, path string, buf []byte) ([]byte, error) {
	var n [8]byte
	if _, err := m.file(path).ReadAt(n[:], 0); err != nil {
		return nil, err
	}
	b := slices.Grow(buf[:0], int(8+binary.LittleEndian.Uint64(n[:])))[:8+binary.LittleEndian.Uint64(n[:])]
	if _, err := m.file(path).ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}

func (m *memory) ReadFile(_ context.Context, path string, max int64) ([]byte, error) {
	if f := m.file(path); f.size > max {
		return nil, fmt.Errorf("%s has %d bytes", path, f.size)
	}
	return m.file(path).bytes(), nil
}

func (m *memory) ReadAt(_ context.Context, path string, p []byte, off int64) error {
	m.reads += int64(len(p))
	_, err := m.file(path).ReadAt(p, off)
	return err
}

func (m *memory) MaxGather() int64 { return 0 }

func (m *memory) Gather(_ context.Context, reads []plan.Read, _ []plan.Span) error {
	for _, r := range reads {
		m.reads += r.Span.Len()
		f := &m.files[r.Span.File]
		if n, err := f.ReadAt(r.Dst, r.Span.Start); n < len(r.Dst) {
			return fmt.Errorf("file %s [%d, %d): %w", f.path, r.Span.Start, r.Span.End, err)
		}
	}
	return nil
}

func (m *memory) listing() *release.Listing {
	l := &release.Listing{Name: "hf://demo/" + m.name, Revision: "0123456789abcdef0123456789abcdef01234567", Complete: true}
	for i := range m.files {
		l.Files = append(l.Files, release.Entry{Path: m.files[i].path, Size: m.files[i].size})
	}
	return l
}

// tree is the tree of the release.
func (m *memory) tree() plan.Dir {
	return Tree(m.listing(), m.open)
}

func (m *memory) open(ctx context.Context) (*release.Release, error) {
	return release.Open(ctx, m.listing(), m)
}

// open makes the tree of a release in memory, and what reads it.
func open(r *testrel.Release) (plan.Dir, *memory) {
	m := fromRelease(r)
	return m.tree(), m
}

// file is one file of a tree.
type file struct {
	path string
	node plan.Node
}

// files lists every file below dir.
func files(t *testing.T, dir plan.Dir, below string) []file {
	t.Helper()
	n, err := plan.Walk(t.Context(), dir, below)
	if err != nil {
		t.Fatalf("%s: %v", below, err)
	}
	if n.Dir == nil {
		return []file{{below, n}}
	}
	nodes, err := n.Dir.List(t.Context())
	if err != nil {
		t.Fatalf("listing %s: %v", below, err)
	}
	var out []file
	for i, x := range nodes {
		if i > 0 && nodes[i-1].Name >= x.Name {
			t.Errorf("%s: %q stands before %q", below, nodes[i-1].Name, x.Name)
		}
		found, err := n.Dir.Lookup(t.Context(), x.Name)
		if err != nil || found.Name != x.Name || found.Size != x.Size || (found.Dir == nil) != (x.Dir == nil) {
			t.Errorf("%s: looking up %q gives %q, %d bytes, %v", below, x.Name, found.Name, found.Size, err)
		}
		out = append(out, files(t, dir, strings.TrimPrefix(below+"/"+x.Name, "/"))...)
	}
	return out
}

// content reads a whole file.
func content(t *testing.T, m *memory, f file) []byte {
	t.Helper()
	p, err := f.node.Open(t.Context())
	if err != nil {
		t.Fatalf("opening %s: %v", f.path, err)
	}
	if p.Size != f.node.Size {
		t.Fatalf("%s has %d bytes, its entry says %d", f.path, p.Size, f.node.Size)
	}
	b := make([]byte, p.Size)
	if _, err := plan.NewReader(m, 1<<30).ReadAt(t.Context(), p, b, 0); err != nil {
		t.Fatalf("reading %s: %v", f.path, err)
	}
	return b
}

// at reads the file at path.
func at(t *testing.T, dir plan.Dir, m *memory, path string) []byte {
	t.Helper()
	fs := files(t, dir, path)
	if len(fs) != 1 || fs[0].path != path {
		t.Fatalf("%s is no file", path)
	}
	return content(t, m, fs[0])
}

// golden compares text with a file below testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(got)) {
		t.Errorf("%s differs (run with -update and look at the diff):\n%s", path, firstDifference(string(want), got))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n-%s\n+%s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
