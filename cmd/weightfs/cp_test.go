package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// crowd is a store of zeros that answers nobody until so many ask at once.
type crowd struct {
	size    int
	mu      sync.Mutex // guards waiting
	waiting int
	full    chan struct{}
}

func (s *crowd) MaxGather() int64 { return 0 }

func (s *crowd) Gather(ctx context.Context, reads []plan.Read, _ []plan.Span) error {
	if len(reads) == 0 {
		return nil
	}
	s.mu.Lock()
	if s.waiting++; s.waiting == s.size {
		close(s.full)
	}
	s.mu.Unlock()
	select {
	case <-s.full:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyOf is a copy of files of those sizes, read through store.
func copyOf(store plan.Store, jobs int, dest string, sizes ...int64) (*copier, []*copyFile) {
	o := &opened{reader: plan.NewReader(store, 0), listing: &sources.Listing{Name: "x"}}
	c := newCopier(o, jobs)
	c.bar = (&ui{}).bar(0, true)
	var files []*copyFile
	for i, n := range sizes {
		o.listing.Files = append(o.listing.Files, sources.Entry{Path: fmt.Sprint(i), Size: n})
		p := plan.New(plan.Copy{Span: plan.Span{File: i, End: n}})
		node := plan.Node{Size: n, Open: func(context.Context) (*plan.Plan, error) { return p, nil }}
		files = append(files, &copyFile{path: fmt.Sprint(i), dest: filepath.Join(dest, fmt.Sprint(i)), node: node})
	}
	return c, files
}

// TestCopySmallFiles: small files are waited for together, not jobs at a time.
func TestCopySmallFiles(t *testing.T) {
	const jobs, each = 2, 4096
	sizes := make([]int64, 3*16*jobs)
	for i := range sizes {
		sizes[i] = each
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // what hangs fails
	defer cancel()
	dest := t.TempDir()
	c, files := copyOf(&crowd{size: 16 * jobs, full: make(chan struct{})}, jobs, dest, sizes...)
	if err := c.run(ctx, files); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f.dest); err != nil || !bytes.Equal(b, make([]byte, each)) {
			t.Fatalf("%s: %d bytes, %v", f.dest, len(b), err)
		}
	}
}

// TestCopyRoom: no more segments are under way than jobs, however many there are.
func TestCopyRoom(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s := &crowd{size: 3, full: make(chan struct{})} // a third one would let all go on
	c, files := copyOf(s, 2, t.TempDir(), 5*segment)
	if err := c.run(ctx, files); !errors.Is(err, context.DeadlineExceeded) || s.waiting != 2 {
		t.Errorf("%d segments at once, %v", s.waiting, err)
	}
}

// TestCopyMemory: the memory of a segment is used for the next ones.
func TestCopyMemory(t *testing.T) {
	c, files := copyOf(&crowd{size: 1, full: make(chan struct{})}, 1, t.TempDir(), 6*segment)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := c.run(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 2*segment {
		t.Errorf("%d bytes allocated for 6 segments, expected those of one", n)
	}
}
