package quant

import (
	"fmt"

	"weightfs/fs/plan"
)

// rowCodec is the codec of every format whose output rows are computed one by one: [experts, out, in] BF16, each row from one row of
// packed data and the rows of side tensors that belong to it.
type rowCodec struct {
	text             string // name and parameters but for the shape
	experts, out, in int64
	size             int64 // output bytes: experts*out*in*2, or less where the last row is short
	inputs           []rowInput
	// unit is the number of columns that the kernel decodes together; a kernel is asked for whole units or up to the end of a row.
	unit   int64
	kernel kernel
	cast   string // the dtype that a codec of Cast rounds, "" for others
}

// rowInput is one input of a rowCodec: rows of rowBytes bytes. Output row i of an expert uses its rows from floor(i*num/den) up to
// ceil((i+1)*num/den); every expert has rows of its own, perExpert many.
type rowInput struct {
	rowBytes, perExpert int64
	num, den            int64
	size                int64 // of the whole input in bytes
	skip                int64 // rows of the input before the first expert's
	// unitBytes are the bytes of one unit of columns, for data of which a window inside a row needs only a part; 0: whole rows.
	unitBytes int64
	// whole inputs are needed as they are for every row; with unitBytes they are one row that all rows share.
	whole bool
}

// strip is the work of a kernel: columns [c0, c1) of consecutive rows of one expert. Whole inputs and inputs that several
// rows share are the same for all rows of a strip; the others advance by stride.
type strip struct {
	dst       []byte
	dstStride int
	row       int64 // of the first row, in its expert
	rows      int
	c0, c1    int
	in        [][]byte // in[i] begins at the first row (data at its column c0)
	stride    []int    // bytes between rows of in[i], 0 if the rows share it
}

// kernel decodes strips. It is pure.
type kernel interface{ decode(s *strip) error }

// out1 is row r of the strip's output.
func (s *strip) out1(r int) []byte { return s.dst[r*s.dstStride:][:2*(s.c1-s.c0)] }

// at is the part of input i that row r of the strip begins with.
func (s *strip) at(i, r int) []byte { return s.in[i][r*s.stride[i]:] }

func (c *rowCodec) String() string {
	return fmt.Sprintf("%s[%d,%d,%d]", c.text, c.experts, c.out, c.in)
}
func (c *rowCodec) Len() int64 { return c.size }

func (c *rowCodec) InputLens() []int64 {
	lens := make([]int64, len(c.inputs))
	for i, in := range c.inputs {
		lens[i] = in.size
	}
	return lens
}

// maxTile bounds a tile: what is decoded row by row gains nothing from larger ones.
const maxTile = 64 << 10

func (c *rowCodec) Tile() int64 { return min(2*c.in, maxTile) }

// first and end are the rows of the input that output row i, counted over all experts, begins and ends with.
func (in *rowInput) first(i, out int64) int64 {
	return in.skip + i/out*in.perExpert + i%out*in.num/in.den
}
func (in *rowInput) end(i, out int64) int64 {
	return in.skip + i/out*in.perExpert + ((i%out+1)*in.num+in.den-1)/in.den
}

// span is the byte range of the input for output rows r0 (from column c0) to r1 (up to column c1), inclusive.
func (c *rowCodec) span(in *rowInput, r0, c0, r1, c1 int64) (int64, int64) {
	if in.whole && (in.unitBytes == 0 || r0 != r1) {
		return 0, in.size
	}
	if in.whole {
		return c0 / c.unit * in.unitBytes, min((c1+c.unit-1)/c.unit*in.unitBytes, in.size)
	}
	start, end := in.first(r0, c.out)*in.rowBytes, in.end(r1, c.out)*in.rowBytes
	if in.unitBytes > 0 {
		start += c0 / c.unit * in.unitBytes
		end = min(end, (in.end(r1, c.out)-1)*in.rowBytes+(c1+c.unit-1)/c.unit*in.unitBytes)
	}
	return start, min(end, in.size)
}

func (c *rowCodec) Needs(off, n int64) []plan.Need {
	if n <= 0 {
		return nil
	}
	rb := 2 * c.in
	r0, r1 := off/rb, (off+n-1)/rb
	c0, c1 := off%rb/2, (off+n-1)%rb/2+1
	needs := make([]plan.Need, len(c.inputs))
	for i := range c.inputs {
		start, end := c.span(&c.inputs[i], r0, c0, r1, c1)
		needs[i] = plan.Need{Input: i, Start: start, End: end}
	}
	return needs
}

func (c *rowCodec) Decode(dst []byte, off int64, in [][]byte) error {
	w := window{c: c, in: in, needs: c.Needs(off, int64(len(dst)))}
	rb := 2 * c.in
	for len(dst) > 0 {
		row, x := off/rb, off%rb
		n := rb - x
		var err error
		if x == 0 && int64(len(dst)) >= rb {
			k := min(int64(len(dst))/rb, c.shared(row))
			n = k * rb
			err = w.strip(dst[:n], row, int(k), 0, c.in)
		} else {
			n = min(n, int64(len(dst)))
			err = w.partial(dst[:n], row, x)
		}
		if err != nil {
			return fmt.Errorf("row %d of %s: %w", row, c, err)
		}
		dst, off = dst[n:], off+n
	}
	return nil
}

// shared is the number of rows from row on that one strip can hold: those of its expert for which no shared input changes.
func (c *rowCodec) shared(row int64) int64 {
	i := row % c.out
	k := c.out - i
	for _, in := range c.inputs {
		switch {
		case in.whole || in.num == 1 && in.den == 1:
		case in.num == 1:
			k = min(k, in.den-i%in.den)
		default:
			k = 1
		}
	}
	return k
}

// window is one call of Decode: the codec, the bytes it was given, and the strip at hand.
type window struct {
	c     *rowCodec
	in    [][]byte
	needs []plan.Need
	s     strip
}

// strip decodes columns [c0, c1) of k rows from row on into dst.
func (w *window) strip(dst []byte, row int64, k int, c0, c1 int64) error {
	s := w.prepare(dst, row, k, c0, c1)
	for i := range w.c.inputs {
		w.bind(i, row, k, c0, c1)
	}
	return w.c.kernel.decode(s)
}

// stripOf does the same where the data (input 0) of the rows is at hand, stride bytes apart.
func (w *window) stripOf(data []byte, stride int64, dst []byte, row int64, k int, c0, c1 int64) error {
	s := w.prepare(dst, row, k, c0, c1)
	s.in[0], s.stride[0] = data, int(stride)
	for i := 1; i < len(w.c.inputs); i++ {
		w.bind(i, row, k, c0, c1)
	}
	return w.c.kernel.decode(s)
}

// prepare is the strip, but for its inputs.
func (w *window) prepare(dst []byte, row int64, k int, c0, c1 int64) *strip {
	s := &w.s
	if s.in == nil {
		s.in, s.stride = make([][]byte, len(w.c.inputs)), make([]int, len(w.c.inputs))
	}
	s.dst, s.dstStride, s.row, s.rows, s.c0, s.c1 = dst, int(2*(c1-c0)), row%w.c.out, k, int(c0), int(c1)
	return s
}

// bind is input i of the strip.
func (w *window) bind(i int, row int64, k int, c0, c1 int64) {
	in, s := &w.c.inputs[i], &w.s
	start, end := w.c.span(in, row, c0, row+int64(k)-1, c1)
	s.in[i] = w.in[i][start-w.needs[i].Start : end-w.needs[i].Start]
	s.stride[i] = 0
	if !in.whole && in.num == 1 && in.den == 1 {
		s.stride[i] = int(in.rowBytes)
	}
}

// partial decodes bytes [x, x+len(dst)) of one row: whole units in place, what is left of a unit at either end through scratch space.
func (w *window) partial(dst []byte, row, x int64) error {
	u, rb := 2*w.c.unit, 2*w.c.in
	for y := x + int64(len(dst)); x < y; {
		end := y - y%u
		if y == rb {
			end = y
		}
		if x%u == 0 && x < end {
			if err := w.strip(dst[:end-x], row, 1, x/2, end/2); err != nil {
				return err
			}
			dst, x = dst[end-x:], end
			continue
		}
		a := x - x%u
		b := min(a+u, rb)
		scratch := make([]byte, b-a)
		if err := w.strip(scratch, row, 1, a/2, b/2); err != nil {
			return err
		}
		n := copy(dst, scratch[x-a:])
		dst, x = dst[n:], x+int64(n)
	}
	return nil
}
