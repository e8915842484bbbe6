package plan

import (
	"iter"
	"slices"
	"sort"
)

// The sizes of units. They count source bytes, which is what a fetch costs.
const (
	// unitMax is the largest block, or piece, that is fetched as one.
	unitMax = 64 << 20
	// unitStep is what larger pieces are cut into, and the largest unit of a plain file.
	unitStep = 16 << 20
	// unitLast is the shortest unit at the end of a plain file.
	unitLast = 2 << 20
	// unitSmall is up to where small neighbours are joined.
	unitSmall = 1 << 20
	// unitBundle is up to where the small neighbours that a stream has before it are asked for at once: one fetch.
	unitBundle = 8 << 20
	// unitCell is what stores round out to: the first unit of a plain file, and the grid that steps of a copy keep to.
	unitCell = 128 << 10
)

// group is a stretch of a plan that is one unit or is cut by one rule. The next group's start is its end.
type group struct {
	start int64
	kind  groupKind
	// step is the length of the units of a group cut into steps; shift is how much the first one is shorter.
	step, shift int64
	repeat      Repeat
	// lead is the first group of the bundle that a oneUnit group is in; copies is how many copies of an inCopies group are a bundle.
	lead   int
	copies int64
}

type groupKind uint8

const (
	oneUnit    groupKind = iota
	inSteps              // a piece with more than unitMax of source
	inCopies             // a Repeat whose copies are one unit each
	insideCopy           // a Repeat whose copies are cut as plans of their own
	inStream             // a plain source file
)

// Unit is the part of the file that is fetched together with byte off, which must be in [0, Size). Units tile the file and depend on
// nothing but the plan. whole says that touching any byte is reason to fetch all of it; else a lone touch is served alone, and the
// unit is fetched when a reader arrives from the bytes before.
func (p *Plan) Unit(off int64) (start, end int64, whole bool) {
	gs := p.layout()
	i := sort.Search(len(gs), func(i int) bool { return gs[i].start > off }) - 1
	g, limit := &gs[i], p.Size
	if i+1 < len(gs) {
		limit = gs[i+1].start
	}
	at := off - g.start
	switch g.kind {
	case inSteps:
		k := (at + g.shift) / g.step
		start, end = max(0, k*g.step-g.shift), (k+1)*g.step-g.shift
	case inCopies:
		start = at / g.repeat.Stride * g.repeat.Stride
		end, whole = start+g.repeat.Stride, true
	case insideCopy:
		i := at / g.repeat.Stride
		base := i * g.repeat.Stride
		start, end, whole = g.repeat.At(i).Unit(at - base)
		start, end = start+base, end+base
	case inStream:
		start, end = streamUnit(at, p.Size)
	default:
		return g.start, limit, true
	}
	return g.start + start, min(g.start+end, limit), whole
}

// copied says whether off is in a copy of a [Repeat] that is one unit: a block of an expert among others.
func (p *Plan) copied(off int64) bool {
	gs := p.layout()
	i := sort.Search(len(gs), func(i int) bool { return gs[i].start > off }) - 1
	return gs[i].kind == inCopies
}

// bundle is the units around off that a stream asks for at once: small neighbours, such as tensors, together have up to unitBundle of source.
// Bundles tile the file.
func (p *Plan) bundle(off int64) (start, end int64) {
	gs := p.layout()
	i := sort.Search(len(gs), func(i int) bool { return gs[i].start > off }) - 1
	g := &gs[i]
	switch g.kind {
	case oneUnit:
		next := i
		for next < len(gs) && gs[next].kind == oneUnit && gs[next].lead == g.lead {
			next++
		}
		return gs[g.lead].start, p.groupEnd(gs, next-1)
	case inCopies:
		n := g.copies * g.repeat.Stride
		start = g.start + (off-g.start)/n*n
		return start, min(start+n, p.groupEnd(gs, i))
	}
	start, end, _ = p.Unit(off)
	return start, end
}

func (p *Plan) groupEnd(gs []group, i int) int64 {
	if i+1 < len(gs) {
		return gs[i+1].start
	}
	return p.Size
}

// Unit is one entry of [Plan.Units].
type Unit struct {
	Start, End int64
	Whole      bool
}

// Gathers is what a reader of the whole file asks for, in order: the first units one by one, until it is seen to go on, then bundles.
// They overlap. touched says that the unit is asked for together with what is read of it.
func (p *Plan) Gathers() iter.Seq2[Unit, bool] {
	return func(yield func(u Unit, touched bool) bool) {
		n := 0
		for u := range p.Units() {
			if !yield(u, n < streamBorders) {
				return
			}
			if n++; n > streamBorders {
				break
			}
		}
		for off := int64(0); off < p.Size; {
			start, end := p.bundle(off)
			if !yield(Unit{Start: start, End: end}, false) {
				return
			}
			off = end
		}
	}
}

// Units is every unit of the file in order.
func (p *Plan) Units() iter.Seq[Unit] {
	return func(yield func(Unit) bool) {
		for off := int64(0); off < p.Size; {
			start, end, whole := p.Unit(off)
			if !yield(Unit{start, end, whole}) {
				return
			}
			off = end
		}
	}
}

// streamUnit cuts a plain file: after the first cell a unit is as long as all before it, up to unitStep. So units begin where large pages do. At the end
// they are no longer than a 16th of what is left, but for unitLast, so that as many connections end together.
func streamUnit(at, size int64) (start, end int64) {
	if at < unitCell {
		return 0, unitCell
	}
	for start = unitCell; start < unitStep && 2*start <= at; start *= 2 {
	}
	n := min(start, unitStep)
	start += (at - start) / n * n
	for rest := size - start; n > unitLast && 16*n > rest; n /= 2 {
	}
	start += (at - start) / n * n
	return start, start + n
}

// layout is the plan's groups, made when they are first asked for. Two goroutines may both make them; they are the same.
func (p *Plan) layout() []group {
	if gs := p.groups.Load(); gs != nil {
		return *gs
	}
	gs := p.group()
	p.groups.Store(&gs)
	return gs
}

func (p *Plan) group() []group {
	if p.Block && p.source() <= unitMax {
		return []group{{}} // the only bundle
	}
	if len(p.Pieces) == 1 {
		if c, ok := p.Pieces[0].(Copy); ok && c.Span.Start == 0 {
			return []group{{kind: inStream}}
		}
	}
	return p.groupPieces()
}

// groupPieces joins small neighbours. A literal stands alone, so that a header can be read without what follows it; zeros belong to what
// they follow.
func (p *Plan) groupPieces() []group {
	var gs []group
	var joined, bundled int64     // source bytes of the last group, and of the groups before it in its bundle
	literal, open := false, false // what the last group holds, and whether it may grow
	for i, x := range p.Pieces {
		n := sourceBytes(x)
		_, isLiteral := x.(Literal)
		_, isZero := x.(Zero)
		switch {
		case isZero && len(gs) > 0 && gs[len(gs)-1].kind == oneUnit:
		case open && literal == isLiteral && joined+n <= unitSmall && plain(x):
			joined += n
		default:
			g := newGroup(x, p.starts[i], n)
			bundled += joined
			if g.lead = len(gs); len(gs) > 0 && g.kind == oneUnit && gs[len(gs)-1].kind == oneUnit && bundled+n <= unitBundle {
				g.lead = gs[len(gs)-1].lead
			} else {
				bundled = 0
			}
			gs = append(gs, g)
			joined, literal, open = n, isLiteral || isZero, n <= unitSmall && plain(x)
		}
	}
	return slices.Clip(gs)
}

// plain says that x is not a Repeat, whose copies are units.
func plain(x Piece) bool {
	_, ok := x.(Repeat)
	return !ok
}

func newGroup(x Piece, start, source int64) group {
	if r, ok := x.(Repeat); ok {
		kind := inCopies
		if r.At(0).source() > unitMax {
			kind = insideCopy
		}
		return group{start: start, kind: kind, repeat: r, copies: max(1, unitBundle/max(1, source/max(1, r.N)))}
	}
	if source <= unitMax {
		return group{start: start}
	}
	g := group{start: start, kind: inSteps}
	g.step, g.shift = steps(x, source)
	return g
}

// steps is the length of the units of a large piece: as many tiles as have at most unitStep of source. Rounding out to cells may
// add a cell on either side, which is left room for; copies keep to the cells themselves.
func steps(x Piece, source int64) (step, shift int64) {
	tile := int64(1)
	switch x := x.(type) {
	case Copy:
		return unitStep, x.Span.Start % unitCell
	case Rows:
		tile = x.First.Len()
	case Decode:
		tile = x.Codec.Tile()
		shift = x.Off % tile
	}
	perTile := max(1, int64(float64(tile)*float64(source)/float64(x.Len())))
	return tile * max(1, (unitStep-2*unitCell)/perTile), shift
}

// source is the number of source bytes that the plan's bytes are made of.
func (p *Plan) source() int64 {
	var n int64
	for _, x := range p.Pieces {
		n += sourceBytes(x)
	}
	return n
}

// sourceBytes is the number of source bytes that a fetch of the piece takes, nearly: gaps between rows that are shorter than a cell
// count, and a window of a Decode has its share of the inputs.
func sourceBytes(x Piece) int64 {
	switch x := x.(type) {
	case Copy:
		return x.Len()
	case Rows:
		if x.Stride > 0 && x.Stride-x.First.Len() < unitCell {
			return x.Stride * x.Count
		}
		return x.Len()
	case Decode:
		var in int64
		for _, s := range x.Inputs {
			in += s.Len()
		}
		return int64(float64(in) * (float64(x.Size) / float64(x.Codec.Len())))
	case Repeat:
		return x.N * x.At(0).source()
	}
	return 0
}
