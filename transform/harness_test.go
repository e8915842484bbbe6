package transform

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
	"weightfs/sources/release"
)

var update = flag.Bool("update", false, "write the golden files")

// memory is a release in memory: it opens it, and is the store that plans over it read from.
type memory struct {
	*testrel.Release
	reads int64 // bytes of ReadAt and Gather, not of headers
}

func (m *memory) Header(_ context.Context, path string) ([]byte, error) {
	f := m.File(path)
	b := make([]byte, f.HeaderLen())
	_, err := f.ReadAt(b, 0)
	return b, err
}

func (m *memory) ReadFile(_ context.Context, path string, max int64) ([]byte, error) {
	f := m.File(path)
	if f.Size > max {
		return nil, fmt.Errorf("%s has %d bytes", path, f.Size)
	}
	return f.Bytes(), nil
}

func (m *memory) ReadAt(_ context.Context, path string, p []byte, off int64) error {
	m.reads += int64(len(p))
	_, err := m.File(path).ReadAt(p, off)
	return err
}

func (m *memory) MaxGather() int64 { return 0 }

func (m *memory) Gather(_ context.Context, reads []plan.Read, _ []plan.Span) error {
	for _, r := range reads {
		m.reads += r.Span.Len()
		if _, err := m.Files[r.Span.File].ReadAt(r.Dst, r.Span.Start); err != nil {
			return fmt.Errorf("file %s [%d, %d): %w", m.Files[r.Span.File].Path, r.Span.Start, r.Span.End, err)
		}
	}
	return nil
}

func (m *memory) listing() *release.Listing {
	l := &release.Listing{Name: "hf://demo/" + m.Name, Revision: "0123456789abcdef0123456789abcdef01234567", Complete: true}
	for i := range m.Files {
		l.Files = append(l.Files, release.Entry{Path: m.Files[i].Path, Size: m.Files[i].Size})
	}
	return l
}

// open makes the tree of a release in memory, and what reads it.
func open(r *testrel.Release) (plan.Dir, *memory) {
	m := &memory{Release: r}
	l := m.listing()
	return Tree(l, func(ctx context.Context) (*release.Release, error) { return release.Open(ctx, l, m) }), m
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
