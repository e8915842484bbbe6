// Package plan describes virtual files as data and reads them.
//
// A virtual file is a [Plan]: a size and an ordered list of pieces that tile [0, Size). There are six kinds of piece:
//
//   - [Literal]: bytes in memory, or rendered when needed; the length is known beforehand
//   - [Zero]: padding
//   - [Copy]: one span of one source file
//   - [Rows]: many equal rows of a source tensor at a stride
//   - [Decode]: a window of the output of a [Codec] over source spans
//   - [Repeat]: n copies of a template at a stride, parameters by index
//
// Views are pure functions from a release's index to a tree ([Dir]) of plans. One executor, [Reader.ReadAt], serves every file:
// resolve (pure), gather (all spans at once through a [Store]), fill (pure). The package imports only the standard library.
package plan

import (
	"fmt"
	"sort"
	"sync/atomic"
)

// Span is the half-open byte range [Start, End) of one source file. File is the position of the file in the release's
// listing, whose files are sorted by path.
type Span struct {
	File       int
	Start, End int64
}

// Len is the number of bytes of the span.
func (s Span) Len() int64 { return s.End - s.Start }

// Sub is the sub-span [off, off+n) of s.
func (s Span) Sub(off, n int64) Span {
	return Span{File: s.File, Start: s.Start + off, End: s.Start + off + n}
}

// Piece is one of Literal, Zero, Copy, Rows, Decode, Repeat: consecutive bytes of a virtual file.
type Piece interface {
	// Len is the number of bytes of the piece in the virtual file.
	Len() int64
	piece()
}

// Literal is bytes known to the plan: a header, a config, a manifest. Bytes wins over Render; Render must return exactly Size
// bytes, always the same ones. Name says what it is in a plan's text form.
type Literal struct {
	Name   string
	Size   int64
	Bytes  []byte
	Render func() []byte
}

// Zero is n zero bytes.
type Zero struct{ Size int64 }

// Copy is one span of one source file.
type Copy struct{ Span Span }

// Rows is Count rows of RowLen bytes each, the i-th starting at First.Start + i*Stride of First.File. First is the first row.
type Rows struct {
	First  Span
	Stride int64
	Count  int64
}

// Decode is the window [Off, Off+Size) of the output of Codec applied to Inputs (whole tensors, or whole experts of one).
type Decode struct {
	Codec  Codec
	Inputs []Span
	Off    int64
	Size   int64
}

// Repeat is N copies of a template plan, each Stride bytes long. At builds copy i: the template with the parameters of i. Every
// plan it returns has Size Stride. At is pure: the same i gives the same plan.
type Repeat struct {
	Name   string
	N      int64
	Stride int64
	At     func(i int64) *Plan
}

func (l Literal) Len() int64 { return l.Size }
func (z Zero) Len() int64    { return z.Size }
func (c Copy) Len() int64    { return c.Span.Len() }
func (r Rows) Len() int64    { return r.First.Len() * r.Count }
func (d Decode) Len() int64  { return d.Size }
func (r Repeat) Len() int64  { return r.N * r.Stride }

func (Literal) piece() {}
func (Zero) piece()    {}
func (Copy) piece()    {}
func (Rows) piece()    {}
func (Decode) piece()  {}
func (Repeat) piece()  {}

// Plan is a virtual file: pieces that tile [0, Size). Plans are immutable once they are read, and made by [New] only.
type Plan struct {
	Size   int64
	Pieces []Piece
	// Block says that the file is one block, such as one expert's: touching it is reason to fetch all of it.
	Block  bool
	starts []int64                 // starts[i] is where Pieces[i] begins
	groups atomic.Pointer[[]group] // made by layout
	parts  atomic.Pointer[Parts]
	lone   atomic.Int64 // bytes of parts that were fetched for one touch, since somebody last read on in one
}

// Parts says which part of a plain file, such as a tensor of a shard, byte off is in: [start, end), or an empty one if it is in none.
type Parts func(off int64) (start, end int64)

// SetParts says what a plain source file is made of, once that is known. A lone touch of a part then fetches it whole if it is of
// moderate size, as long as readers read on in most of them.
func (p *Plan) SetParts(parts Parts) { p.parts.Store(&parts) }

// PartMax is the largest part that is fetched at a touch.
const PartMax = unitStep

// partTrust is how many bytes of parts may turn out not to be read on in.
const partTrust = 64 << 20

// part is the part that a touch of off is reason to fetch.
func (p *Plan) part(off int64) (start, end int64, ok bool) {
	parts := p.parts.Load()
	if parts == nil || p.lone.Load() >= partTrust {
		return 0, 0, false
	}
	start, end = (*parts)(off)
	return start, end, start <= off && off < end && end <= p.Size && end-start <= PartMax
}

// New makes a plan of the pieces in order. Pieces of no bytes are left out. A piece of negative length, or a total beyond
// 2^62, is a bug of the caller and panics.
func New(pieces ...Piece) *Plan {
	p := &Plan{Pieces: make([]Piece, 0, len(pieces)), starts: make([]int64, 0, len(pieces))}
	for _, x := range pieces {
		n := x.Len()
		if n < 0 || p.Size > 1<<62-n {
			panic(fmt.Sprintf("plan: piece %T has length %d at offset %d", x, n, p.Size))
		}
		if n == 0 {
			continue
		}
		p.Pieces = append(p.Pieces, x)
		p.starts = append(p.starts, p.Size)
		p.Size += n
	}
	return p
}

// NewBlock is [New] for a file that is one block.
func NewBlock(pieces ...Piece) *Plan {
	p := New(pieces...)
	p.Block = true
	return p
}

// Memory is about how many bytes of memory the plan holds.
func (p *Plan) Memory() int64 {
	n := int64(256)
	for _, x := range p.Pieces {
		n += 64
		switch x := x.(type) {
		case Literal:
			n += int64(len(x.Bytes) + len(x.Name))
		case Decode:
			n += int64(24*len(x.Inputs)) + 128
		}
	}
	return n
}

// find is the index of the piece that holds byte off, which must be in [0, Size).
func (p *Plan) find(off int64) int {
	return sort.Search(len(p.starts), func(i int) bool { return p.starts[i] > off }) - 1
}

// Codec computes bytes from the bytes of one or more inputs. It is pure and safe for parallel use; its parameters (shapes, dtypes,
// block sizes) are fixed when it is made.
type Codec interface {
	// String is the codec's text form with every parameter, as it stands in a plan's text and digest.
	String() string
	// Len is the number of output bytes, InputLens the number of bytes of each input.
	Len() int64
	InputLens() []int64
	// Tile is the output unit that decodes best in one call: any call may ask for less, but a codec whose inputs must be together in
	// memory (column-packed, transposed) costs about as much for one byte as for a whole tile. Row-local codecs return the bytes
	// of one row.
	Tile() int64
	// Needs says which ranges of the inputs the output range [off, off+n) depends on.
	Needs(off, n int64) []Need
	// Decode fills dst with the output range [off, off+len(dst)); in[i] holds the bytes of Needs(off, len(dst))[i]. An error names
	// what in the input is impossible (an index out of range); it wraps [ErrBadInput].
	Decode(dst []byte, off int64, in [][]byte) error
}

// Need is the range [Start, End) of input number Input.
type Need struct {
	Input      int
	Start, End int64
}
