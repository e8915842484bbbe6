package quant

import (
	"encoding/binary"
	"fmt"
	"slices"

	"weightfs/fs/plan"
)

// columns is the codec of formats that pack a weight transposed: output row n (of [out, in]) lies in column n of every input, so a window of
// rows needs a strip of every row of every input. It decodes in bands of rows; reading bands in order touches every input byte once, as
// long as what holds them keeps whole cells of the tensor.
type columns struct {
	text    string
	out, in int64
	band    int64 // rows of a tile
	inputs  []colInput
	kernel  colKernel
}

// colInput is one input: rows of rowBytes bytes, of which output row n uses bits [n*bits, (n+1)*bits), rounded out to align bytes.
type colInput struct {
	rows, rowBytes int64
	bits, align    int64
	// perRow is the number of elements of an output row that one row of the input holds, for data of which a part of an output row
	// needs only some rows, as num/den; 0: all rows.
	num, den int64
	whole    bool
}

// colStrip is the work of a kernel: elements [k0, k1) of output rows [n0, n1), which it appends to out(n).
type colStrip struct {
	dst    []byte // rows n0.. of 2*(k1-k0) bytes
	n0, n1 int64
	k0, k1 int64
	in     []colView
}

// colView is the strip of an input: rows [first, ...), each beginning at byte from of the input's row.
type colView struct {
	first, from int64
	stride      int64 // of rows in dense
	dense       []byte
	rows        [][]byte
}

// colKernel decodes strips. It is pure.
type colKernel interface{ decode(s *colStrip) error }

// row is the bytes of row r of the input from the view's first column on.
func (v *colView) row(r int64) []byte {
	if v.rows != nil {
		return v.rows[r-v.first]
	}
	return v.dense[(r-v.first)*v.stride:]
}

// word is the 32-bit word w of row r, counted in the whole row.
func (v *colView) word(r, w int64) uint32 {
	return binary.LittleEndian.Uint32(v.row(r)[4*w-v.from:])
}

func (s *colStrip) out(n int64) []byte {
	size := 2 * (s.k1 - s.k0)
	return s.dst[(n-s.n0)*size:][:size]
}

func (c *columns) String() string { return fmt.Sprintf("%s[%d,%d]", c.text, c.out, c.in) }
func (c *columns) Len() int64     { return 2 * c.out * c.in }
func (c *columns) Tile() int64    { return c.band * 2 * c.in }

func (c *columns) InputLens() []int64 {
	lens := make([]int64, len(c.inputs))
	for i, in := range c.inputs {
		lens[i] = in.rows * in.rowBytes
	}
	return lens
}

// colPart is rows [n0, n1), whole or cut to elements [k0, k1).
type colPart struct{ n0, n1, k0, k1 int64 }

// part is what an output range touches: one row in part, or whole rows.
func (c *columns) part(off, n int64) colPart {
	rb := 2 * c.in
	p := colPart{n0: off / rb, n1: (off+n-1)/rb + 1, k1: c.in}
	if p.n1 == p.n0+1 {
		p.k0, p.k1 = off%rb/2, (off%rb+n+1)/2
	}
	return p
}

// bytes is the byte range of the part in a row of the input, rows its range of rows.
func (in *colInput) bytes(p colPart) (int64, int64) {
	if in.whole {
		return 0, in.rowBytes
	}
	unit := 8 * in.align
	return p.n0 * in.bits / unit * in.align, min((p.n1*in.bits+unit-1)/unit*in.align, in.rowBytes)
}

func (in *colInput) rowRange(p colPart) (int64, int64) {
	if in.den == 0 {
		return 0, in.rows
	}
	return p.k0 * in.num / in.den, (p.k1*in.num + in.den - 1) / in.den
}

func (c *columns) Needs(off, n int64) []plan.Need {
	if n <= 0 {
		return nil
	}
	p := c.part(off, n)
	var list []plan.Need
	for i := range c.inputs {
		in := &c.inputs[i]
		from, to := in.bytes(p)
		r0, r1 := in.rowRange(p)
		if from == 0 && to == in.rowBytes {
			list = append(list, plan.Need{Input: i, Start: r0 * in.rowBytes, End: r1 * in.rowBytes})
			continue
		}
		list = slices.Grow(list, int(r1-r0)+len(c.inputs))
		for r := r0; r < r1; r++ {
			list = append(list, plan.Need{Input: i, Start: r*in.rowBytes + from, End: r*in.rowBytes + to})
		}
	}
	return list
}

func (c *columns) Decode(dst []byte, off int64, in [][]byte) error {
	if len(dst) == 0 {
		return nil
	}
	p := c.part(off, int64(len(dst)))
	s := colStrip{dst: dst, n0: p.n0, n1: p.n1, k0: p.k0, k1: p.k1, in: make([]colView, len(c.inputs))}
	for i := range c.inputs {
		n := s.in[i].bind(&c.inputs[i], p, in)
		in = in[n:]
	}
	start := p.n0*2*c.in + 2*p.k0
	if start == off && int64(len(dst)) == (p.n1-p.n0)*2*(p.k1-p.k0) {
		return c.run(&s)
	}
	s.dst = make([]byte, (p.n1-p.n0)*2*(p.k1-p.k0))
	if err := c.run(&s); err != nil {
		return err
	}
	copy(dst, s.dst[off-start:])
	return nil
}

func (c *columns) run(s *colStrip) error {
	if err := c.kernel.decode(s); err != nil {
		return fmt.Errorf("rows %d to %d of %s: %w", s.n0, s.n1, c, err)
	}
	return nil
}

// bind takes the view's ranges from the front of in and returns their number.
func (v *colView) bind(input *colInput, p colPart, in [][]byte) int {
	from, to := input.bytes(p)
	r0, r1 := input.rowRange(p)
	v.first, v.from = r0, from
	if from == 0 && to == input.rowBytes {
		v.dense, v.stride = in[0], input.rowBytes
		return 1
	}
	v.rows = in[:r1-r0]
	return int(r1 - r0)
}
