package plan

import (
	"context"
	"testing"
)

// tensors are parts of 900,000 bytes behind a header of 1,000, up to 40 MB; then one of 30 MiB.
func tensors(off int64) (start, end int64) {
	const head, size, small = 1000, 900_000, 40_000_000
	switch {
	case off < head:
		return 0, 0
	case off < small:
		start = head + (off-head)/size*size
		return start, min(start+size, small)
	}
	return small, small + 30*mib
}

// TestParts: a lone touch of a part of moderate size fetches it, a larger one no more than is asked for.
func TestParts(t *testing.T) {
	for _, x := range []struct {
		name  string
		reads [][2]int64 // offset and length
		want  [][2]int64 // what is asked ahead
	}{
		{"without neighbours", [][2]int64{{8_990_000, 4096}}, [][2]int64{{8_101_000, 9_132_072}}},
		{"read around", [][2]int64{{8_050_000, 131072}}, [][2]int64{{8_101_000, 9_132_072}}},
		{"read on in", [][2]int64{{8_101_000, 131072}, {8_232_072, 131072}, {8_363_144, 131072}, {8_494_216, 131072}}, [][2]int64{{8_101_000, 9_132_072}}},
		{"into the next", [][2]int64{{8_101_000, 890_000}, {8_991_000, 30_000}, {9_021_000, 300_000}, {9_321_000, 131072}}, [][2]int64{{8_101_000, 9_132_072}, {9_001_000, 10_032_072}}},
		{"too large", [][2]int64{{50_000_000, 4096}}, nil},
		{"the header", [][2]int64{{500, 100}}, nil},
	} {
		p := New(Copy{Span{0, 0, 80_000_000}})
		p.SetParts(tensors)
		store := &asked{}
		r := NewReader(store, 0)
		for _, at := range x.reads {
			if _, err := r.ReadAt(ByKernel(context.Background()), p, make([]byte, at[1]), at[0]); err != nil {
				t.Fatal(err)
			}
		}
		if len(store.ahead) != len(x.want) {
			t.Errorf("%s: asked for %v, not %v", x.name, store.ahead, x.want)
			continue
		}
		for i, s := range store.ahead {
			if s.Start != x.want[i][0] || s.End != x.want[i][1] {
				t.Errorf("%s: asked for %v, not %v", x.name, store.ahead, x.want)
			}
		}
	}
}

// TestExactParts: who reads without a kernel's page cache asks for the parts that are read, and no more.
func TestExactParts(t *testing.T) {
	p := New(Copy{Span{0, 0, 80_000_000}})
	p.SetParts(tensors)
	store := &asked{}
	r := NewReader(store, 0)
	for _, off := range []int64{8_050_000, 8_101_000} {
		if _, err := r.ReadAt(context.Background(), p, make([]byte, 4096), off); err != nil {
			t.Fatal(err)
		}
	}
	if len(store.ahead) != 2 || store.ahead[0].End != 8_101_000 || store.ahead[1] != (Span{0, 8_101_000, 9_001_000}) {
		t.Errorf("asked for %v", store.ahead)
	}
}

// TestPartsAreGivenUp: touches that nobody reads on from stop fetching parts, and somebody who reads on starts it again.
func TestPartsAreGivenUp(t *testing.T) {
	p := New(Copy{Span{0, 0, 1 << 40}})
	const size = 10 << 20
	p.SetParts(func(off int64) (start, end int64) { return off / size * size, off/size*size + size })
	store := &asked{}
	r := NewReader(store, 0)
	read := func(off int64, n int) {
		if _, err := r.ReadAt(context.Background(), p, make([]byte, n), off); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(100) {
		read((i*7+3)*size+5000, 4096)
	}
	if n := len(store.ahead); n != 7 { // the seventh passes 64 MiB
		t.Fatalf("%d parts are fetched for 100 touches", n)
	}
	for off := int64(5000); off < 3<<20; off += 131072 {
		read(900*size+off, 131072)
	}
	store.ahead = nil
	read(2000*size+5000, 4096)
	if len(store.ahead) != 1 || store.ahead[0].Len() != size {
		t.Errorf("after somebody read on: %v", store.ahead)
	}
}

// asked is a store of zeros that remembers what it is asked for ahead.
type asked struct{ ahead []Span }

func (s *asked) Gather(_ context.Context, _ []Read, ahead []Span) error {
	s.ahead = append(s.ahead, ahead...)
	return nil
}

func (s *asked) MaxGather() int64 { return 1 << 30 }
