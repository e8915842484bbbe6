package sourcetest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"weightfs/sources"
)

// Run checks that a source keeps the promises of [sources.Source], [sources.Blob] and [sources.Local]. fresh makes a source with the files of
// the truth that nobody has used yet; it may list only some of them, but at least one that is not empty.
func Run(t *testing.T, fresh func(t *testing.T) (sources.Source, Truth)) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, sources.Source, Truth)
	}{
		{"List", testList}, {"ListTogether", testListTogether}, {"Missing", testMissing}, {"Read", testRead}, {"Reader", testReader},
		{"Bounds", testBounds}, {"Parallel", testParallel}, {"Cancel", testCancel}, {"Close", testClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, truth := fresh(t)
			c.run(t, src, truth)
		})
	}
}

// opened opens every file of the listing.
func opened(t *testing.T, src sources.Source, truth Truth, do func(f *File, b sources.Blob)) {
	t.Helper()
	for _, e := range list(t, src).Files {
		f := truth.Find(e.Path)
		if f == nil {
			t.Fatalf("%s is listed and is no file of the release", e.Path)
		}
		b, err := src.Open(t.Context(), e.Path)
		if err != nil {
			t.Fatalf("Open(%s): %v", e.Path, err)
		}
		do(f, b)
		if err := b.Close(); err != nil {
			t.Errorf("Close(%s): %v", e.Path, err)
		}
	}
}

func list(t *testing.T, src sources.Source) *sources.Listing {
	t.Helper()
	l, err := src.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return l
}

func testList(t *testing.T, src sources.Source, truth Truth) {
	l := list(t, src)
	if l.Name == "" || !slices.IsSortedFunc(l.Files, func(a, b sources.Entry) int { return strings.Compare(a.Path, b.Path) }) {
		t.Errorf("listing %q: no name, or not sorted by path: %v", l.Name, l.Files)
	}
	content := int64(0)
	for i, e := range l.Files {
		if f := truth.Find(e.Path); f == nil || f.Size != e.Size {
			t.Errorf("%s is listed with %d bytes, truth %+v", e.Path, e.Size, f)
		}
		if l.Find(e.Path) != i {
			t.Errorf("Find(%s) = %d, want %d", e.Path, l.Find(e.Path), i)
		}
		content += e.Size
	}
	if content == 0 || l.Complete && len(l.Files) != len(truth) {
		t.Errorf("%d bytes and %d files listed (complete: %v), the truth has %d files", content, len(l.Files), l.Complete, len(truth))
	}
	if again := list(t, src); !reflect.DeepEqual(l, again) {
		t.Errorf("a second List gives another listing")
	}
}

func testListTogether(t *testing.T, src sources.Source, _ Truth) {
	all := make([]*sources.Listing, 8)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], _ = src.List(t.Context()) })
	}
	wg.Wait()
	for _, l := range all {
		if l == nil || !reflect.DeepEqual(l, all[0]) {
			t.Fatalf("eight Lists at once give different listings or fail")
		}
	}
}

func testMissing(t *testing.T, src sources.Source, _ Truth) {
	list(t, src)
	for _, path := range []string{"no such file", "", ".", "..", "../x", "/etc/passwd", "config.json/", "./config.json"} {
		b, err := src.Open(t.Context(), path)
		var named *sources.Error
		if b != nil || !errors.Is(err, sources.ErrNotFound) || !errors.As(err, &named) {
			t.Errorf("Open(%q) = %v, %v; want an *Error that is ErrNotFound", path, b, err)
		}
	}
}

func testRead(t *testing.T, src sources.Source, truth Truth) {
	rng := rand.New(rand.NewPCG(1, 2))
	opened(t, src, truth, func(f *File, b sources.Blob) {
		if b.Size() != f.Size {
			t.Fatalf("%s: Size() = %d, want %d", f.Path, b.Size(), f.Size)
		}
		check(t, f, b, 0, f.Size)
		for range 20 {
			off := rng.Int64N(f.Size + 1)
			check(t, f, b, off, rng.Int64N(min(f.Size-off, 100_000)+1))
		}
		again, err := src.Open(t.Context(), f.Path)
		if err != nil || again.ID() != b.ID() {
			t.Errorf("%s: a second Open gives %v, or another ID", f.Path, err)
		} else {
			again.Close()
		}
	})
}

// check reads [off, off+n) both ways and compares.
func check(t *testing.T, f *File, b sources.Blob, off, n int64) {
	t.Helper()
	p := make([]byte, n)
	if err := sources.ReadAt(t.Context(), b, p, off); err != nil {
		t.Fatalf("ReadAt(%s, %d at %d): %v", f.Path, n, off, err)
	}
	if d := f.Diff(p, off); d != "" {
		t.Fatal(d)
	}
	r, err := b.Stream(t.Context(), off, n)
	if err != nil {
		t.Fatalf("Stream(%s, %d at %d): %v", f.Path, n, off, err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || int64(len(got)) != n {
		t.Fatalf("Stream(%s, %d at %d) yields %d bytes, %v", f.Path, n, off, len(got), err)
	}
	if d := f.Diff(got, off); d != "" {
		t.Fatal(d)
	}
}

func testReader(t *testing.T, src sources.Source, truth Truth) {
	opened(t, src, truth, func(f *File, b sources.Blob) {
		n := min(f.Size, 1000)
		r, err := b.Stream(t.Context(), f.Size-n, n)
		if err != nil {
			t.Fatalf("Stream(%s): %v", f.Path, err)
		}
		defer r.Close()
		if err := iotest.TestReader(r, f.Slice(f.Size-n, n)); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	})
}

func testBounds(t *testing.T, src sources.Source, truth Truth) {
	opened(t, src, truth, func(f *File, b sources.Blob) {
		for _, r := range [][2]int64{{-1, 1}, {0, -1}, {0, f.Size + 1}, {f.Size, 1}, {f.Size + 1, 0}, {1<<63 - 1, 1}, {1, 1<<63 - 1}} {
			s, err := b.Stream(t.Context(), r[0], r[1])
			var named *sources.Error
			if !errors.As(err, &named) || errors.Is(err, sources.ErrTemporary) {
				t.Errorf("%s: Stream(%d, %d) = %v, want an *Error for good", f.Path, r[0], r[1], err)
			}
			if s != nil {
				s.Close()
			}
		}
		if err := sources.ReadAt(t.Context(), b, make([]byte, 2), f.Size-1); err == nil {
			t.Errorf("%s: a read across the end succeeds", f.Path)
		}
		if l, ok := b.(sources.Local); ok && l.Fd() == ^uintptr(0) {
			t.Errorf("%s: no descriptor", f.Path)
		}
	})
}

func testParallel(t *testing.T, src sources.Source, truth Truth) {
	opened(t, src, truth, func(f *File, b sources.Blob) {
		var wg sync.WaitGroup
		for i := range int64(32) {
			wg.Go(func() {
				off := f.Size * i / 33
				p := make([]byte, min(f.Size-off, 20_000))
				if err := sources.ReadAt(t.Context(), b, p, off); err != nil {
					t.Errorf("ReadAt(%s at %d): %v", f.Path, off, err)
				} else if d := f.Diff(p, off); d != "" {
					t.Error(d)
				}
			})
		}
		wg.Wait()
	})
}

func testCancel(t *testing.T, src sources.Source, truth Truth) {
	opened(t, src, truth, func(f *File, b sources.Blob) {
		if f.Size == 0 {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := sources.ReadAt(ctx, b, make([]byte, 1), 0)
		if !errors.Is(err, context.Canceled) || errors.Is(err, sources.ErrTemporary) {
			t.Errorf("%s: a read with a cancelled context gives %v", f.Path, err)
		}
		check(t, f, b, 0, f.Size)
	})
}

// testClose closes streams early and blobs while others of the same file are open.
func testClose(t *testing.T, src sources.Source, truth Truth) {
	opened(t, src, truth, func(f *File, b sources.Blob) {
		other, err := src.Open(t.Context(), f.Path)
		if err != nil {
			t.Fatalf("Open(%s): %v", f.Path, err)
		}
		for range 40 { // more than any limit of connections
			r, err := other.Stream(t.Context(), 0, f.Size)
			if err != nil {
				t.Fatalf("Stream(%s): %v", f.Path, err)
			}
			io.ReadFull(r, make([]byte, 1))
			if err := r.Close(); err != nil {
				t.Errorf("closing a stream of %s early: %v", f.Path, err)
			}
		}
		other.Close()
		check(t, f, b, 0, f.Size)
	})
}
