package plan

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// fetches is a store of zeros that remembers what it would fetch: of each call the parts of file 0 that no call before it asked for, on a
// grid of 1,000 bytes, in order.
type fetches struct {
	have map[int64]bool
	got  []string
}

func (s *fetches) Gather(_ context.Context, reads []Read, ahead []Span) error {
	for _, r := range reads {
		ahead = append(ahead, r.Span)
	}
	slices.SortFunc(ahead, func(a, b Span) int { return int(a.Start - b.Start) })
	last := int64(-2)
	start := last
	for _, x := range ahead {
		for i := x.Start / 1000; i*1000 < x.End; i++ {
			if s.have[i] {
				continue
			}
			s.have[i] = true
			if i != last+1 {
				s.flush(start, last)
				start = i
			}
			last = i
		}
	}
	s.flush(start, last)
	return nil
}

func (s *fetches) flush(start, last int64) {
	if last >= start && start >= 0 {
		s.got = append(s.got, fmt.Sprintf("[%d,%d)", start*1000, (last+1)*1000))
	}
}

func (s *fetches) MaxGather() int64 { return 1 << 30 }

// TestBundles: whoever reads a file of small tensors from its beginning fetches what Gathers says, in steps of any size, and few fetches are
// as small as one tensor.
func TestBundles(t *testing.T) {
	const source, n = 600_000, 60
	var pieces []Piece
	for i := range int64(n) {
		codec := sumCodec{rows: 12, row: 100_000, tile: 100_000}
		pieces = append(pieces, Decode{Codec: codec, Inputs: []Span{{0, i * source, (i + 1) * source}, {1, 0, 12}}, Size: codec.Len()})
	}
	p := New(pieces...)
	want := &fetches{have: map[int64]bool{}}
	for u := range p.Gathers() {
		want.Gather(context.Background(), nil, slices.DeleteFunc(p.Spans(u.Start, u.End-u.Start), func(s Span) bool { return s.File != 0 }))
	}
	if len(want.got) > 10 {
		t.Errorf("%d fetches for %d bytes: %v", len(want.got), p.Size, want.got)
	}
	for _, step := range []int64{4096, 131_072, 1 << 20, 5_000_000, 16 << 20} {
		store := &fetches{have: map[int64]bool{}}
		r := NewReader(onlyFile0{store}, 0)
		for off := int64(0); off < p.Size; off += step {
			if _, err := r.ReadAt(context.Background(), p, make([]byte, min(step, p.Size-off)), off); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(store.got)
		sorted := slices.Sorted(slices.Values(want.got))
		if !slices.Equal(store.got, sorted) {
			t.Errorf("in steps of %d: %v\nnot %v", step, store.got, sorted)
		}
	}
}

// onlyFile0 hides other files from the store.
type onlyFile0 struct{ *fetches }

func (s onlyFile0) Gather(ctx context.Context, reads []Read, ahead []Span) error {
	of := func(x Span) bool { return x.File != 0 }
	return s.fetches.Gather(ctx, slices.DeleteFunc(slices.Clone(reads), func(r Read) bool { return of(r.Span) }), slices.DeleteFunc(slices.Clone(ahead), of))
}
