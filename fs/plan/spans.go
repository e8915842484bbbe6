package plan

import (
	"cmp"
	"slices"
)

// Spans is the source bytes that the bytes [off, off+n) of the file depend on: sorted by file and offset, joined where they touch or
// overlap. A codec that needs whole tiles is asked for what the range itself needs.
func (p *Plan) Spans(off, n int64) []Span { return join(p.spans(nil, off, n, 0), 0) }

// ahead is Spans as advice to a store that rounds out to cells: rows less than a cell apart are one span.
func (p *Plan) ahead(off, n int64) []Span { return join(p.spans(nil, off, n, unitCell-1), 0) }

// spans appends the spans of a range, unsorted. Rows that are at most gap bytes apart become one span.
func (p *Plan) spans(out []Span, off, n, gap int64) []Span {
	for i := p.find(off); n > 0; i++ {
		x, start := p.Pieces[i], p.starts[i]
		k := min(n, start+x.Len()-off)
		out = pieceSpans(out, x, off-start, k, gap)
		off, n = off+k, n-k
	}
	return out
}

func pieceSpans(out []Span, x Piece, off, n, gap int64) []Span {
	switch x := x.(type) {
	case Copy:
		return append(out, x.Span.Sub(off, n))
	case Rows:
		return rowSpans(out, x, off, n, gap)
	case Decode:
		for _, need := range x.Codec.Needs(x.Off+off, n) {
			out = append(out, x.Inputs[need.Input].Sub(need.Start, need.End-need.Start))
		}
	case Repeat:
		for n > 0 {
			i, in := off/x.Stride, off%x.Stride
			k := min(n, x.Stride-in)
			out = x.At(i).spans(out, in, k, gap)
			off, n = off+k, n-k
		}
	}
	return out
}

func rowSpans(out []Span, x Rows, off, n, gap int64) []Span {
	row := x.First.Len()
	if x.Stride >= row && x.Stride-row <= gap {
		return append(out, x.stretch(off, n))
	}
	for n > 0 {
		i, in := off/row, off%row
		k := min(n, row-in)
		out = append(out, x.row(i).Sub(in, k))
		off, n = off+k, n-k
	}
	return out
}

// join sorts spans and joins those at most gap bytes apart, in place.
func join(s []Span, gap int64) []Span {
	slices.SortFunc(s, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Start, b.Start))
	})
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && out[n-1].File == x.File && x.Start-out[n-1].End <= gap {
			out[n-1].End = max(out[n-1].End, x.End)
		} else if x.Start < x.End {
			out = append(out, x)
		}
	}
	return out
}
