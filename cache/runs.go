package cache

import (
	"cmp"
	"slices"

	"weightfs/fs/plan"
)

// extent is the cells [first, end) of one file of a listing.
type extent struct {
	file       int
	first, end int64
}

func (x extent) len() int { return int(x.end - x.first) }

// extentOf rounds a span that is not empty out to cells.
func extentOf(s plan.Span) extent {
	return extent{s.File, s.Start >> cellLog2, (s.End + cellSize - 1) >> cellLog2}
}

// joined sorts extents and joins what touches or overlaps. It works in place.
func joined(xs []extent) []extent {
	slices.SortFunc(xs, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.first, b.first))
	})
	out := xs[:0]
	for _, x := range xs {
		if n := len(out); n > 0 && out[n-1].file == x.file && x.first <= out[n-1].end {
			out[n-1].end = max(out[n-1].end, x.end)
			continue
		}
		out = append(out, x)
	}
	return out
}

// cut cuts joined extents into runs.
func cut(xs []extent, most int64) []extent {
	var runs []extent
	for _, x := range xs {
		for x.first < x.end {
			next := min(runEnd(x.first, most), x.end)
			runs = append(runs, extent{x.file, x.first, next})
			x.first = next
		}
	}
	return runs
}

// runEnd is where the longest run from a cell on ends: most cells further, at the next border of 2 MiB. So every run but the first of an extent begins where
// a piece does, and only the first and the last piece of an extent are written in parts.
func runEnd(first, most int64) int64 {
	return (first + most + pieceCells - 1) / pieceCells * pieceCells
}

// longestRun is how many cells a fetch is for, at most, of a gather that asks for n. What a reader waits for, such as a block of an expert, comes over as
// many connections as it has pieces of 2 MiB; what is fetched ahead only keeps connections busy.
func longestRun(n int, demanded bool) int64 {
	if !demanded {
		return runCells
	}
	const step = unitRuns * pieceCells
	return min(runCells, int64((n+step-1)/step*pieceCells))
}

// split divides extents, in order, into batches of at most n cells.
func split(xs []extent, n int) [][]extent {
	var out [][]extent
	var batch []extent
	left := n
	for _, x := range xs {
		for x.first < x.end {
			k := min(left, x.len())
			batch = append(batch, extent{x.file, x.first, x.first + int64(k)})
			x.first += int64(k)
			if left -= k; left == 0 {
				out, batch, left = append(out, batch), nil, n
			}
		}
	}
	if len(batch) > 0 {
		out = append(out, batch)
	}
	return out
}

// Asker says which requests a series of gathers sends when nothing is cached at its start and everything it fetched stays held.
// It does no I/O.
type Asker struct {
	sizes []int64
	asked map[int][]uint64 // by file, one bit a cell
}

// NewAsker makes an Asker for files of these sizes, by position in the listing.
func NewAsker(sizes []int64) *Asker {
	return &Asker{sizes: sizes, asked: map[int][]uint64{}}
}

// Ask is the requests of the next gather, in the order in which they start: the missing cells of both lists, joined where they
// touch, cut at borders of 2 MiB, 8 MiB at most, less if something is demanded; those with demanded cells first, else by file and offset.
func (a *Asker) Ask(demanded, ahead []plan.Span) []plan.Span {
	var want, all []extent
	for _, s := range demanded {
		if s.Len() > 0 {
			want = append(want, extentOf(s))
		}
	}
	all = append(all, want...)
	for _, s := range ahead {
		if s.Len() > 0 {
			all = append(all, extentOf(s))
		}
	}
	want = joined(want)
	missing, n, isWanted := a.missing(joined(all)), 0, false
	for _, x := range missing {
		n += x.len()
		isWanted = isWanted || overlaps(want, x)
	}
	var first, rest []plan.Span
	for _, r := range cut(missing, longestRun(n, isWanted)) {
		if overlaps(want, r) {
			first = append(first, a.span(r))
		} else {
			rest = append(rest, a.span(r))
		}
	}
	return append(first, rest...)
}

// missing is the parts of joined extents that were not asked for, which now are.
func (a *Asker) missing(xs []extent) []extent {
	var out []extent
	for _, x := range xs {
		bits := a.asked[x.file]
		if bits == nil {
			cells := (a.sizes[x.file] + cellSize - 1) >> cellLog2
			bits = make([]uint64, (cells+63)/64)
			a.asked[x.file] = bits
		}
		for i := x.first; i < x.end; i++ {
			if bits[i/64]>>(i%64)&1 != 0 {
				continue
			}
			bits[i/64] |= 1 << (i % 64)
			if n := len(out); n > 0 && out[n-1].file == x.file && out[n-1].end == i {
				out[n-1].end++
			} else {
				out = append(out, extent{x.file, i, i + 1})
			}
		}
	}
	return out
}

func (a *Asker) span(x extent) plan.Span {
	return plan.Span{File: x.file, Start: x.first << cellLog2, End: min(x.end<<cellLog2, a.sizes[x.file])}
}

// overlaps says whether a joined list has a cell of x.
func overlaps(xs []extent, x extent) bool {
	i := reach(xs, x)
	return i < len(xs) && xs[i].file == x.file && xs[i].first < x.end
}

// contains says whether a joined list has all cells of x.
func contains(xs []extent, x extent) bool {
	i := reach(xs, x)
	return i < len(xs) && xs[i].file == x.file && xs[i].first <= x.first && x.end <= xs[i].end
}

// reach is the first of a joined list that does not end before x begins.
func reach(xs []extent, x extent) int {
	i, _ := slices.BinarySearchFunc(xs, x, func(e, x extent) int {
		if c := cmp.Compare(e.file, x.file); c != 0 {
			return c
		}
		if e.end <= x.first {
			return -1
		}
		return 1
	})
	return i
}

// Runs is the requests that one gather of the spans sends when nothing is cached.
func Runs(sizes []int64, spans []plan.Span) []plan.Span {
	return NewAsker(sizes).Ask(spans, nil)
}
