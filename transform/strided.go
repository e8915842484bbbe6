package transform

import (
	"encoding/binary"
	"fmt"

	"weightfs/fs/plan"
)

// raw is the codec of bytes that stay as they are.
type raw struct{ size int64 }

func (c raw) String() string                 { return fmt.Sprintf("raw(%d)", c.size) }
func (c raw) Len() int64                     { return c.size }
func (c raw) InputLens() []int64             { return []int64{c.size} }
func (c raw) Tile() int64                    { return 1 }
func (c raw) Needs(off, n int64) []plan.Need { return []plan.Need{{Start: off, End: off + n}} }
func (c raw) Decode(dst []byte, _ int64, in [][]byte) error {
	copy(dst, in[0])
	return nil
}

// strided is the codec of a matrix picked from the output of another codec: element (r, c) is element base + r*rowStep + c*colStep
// there. It takes halves of fused projections, every second row, and transposes.
type strided struct {
	inner                              plan.Codec
	width                              int64 // bytes of an element
	base, rows, cols, rowStep, colStep int64 // in elements
}

func (c strided) String() string {
	return fmt.Sprintf("strided(%d x %d at %d by %d, %d of %d-byte elements of %s)", c.rows, c.cols, c.base, c.rowStep, c.colStep, c.width, c.inner)
}

func (c strided) Len() int64         { return c.rows * c.cols * c.width }
func (c strided) InputLens() []int64 { return c.inner.InputLens() }

// Tile is a row where rows are contiguous; where columns are, any element of the output needs nearly all of the input.
func (c strided) Tile() int64 {
	if c.colStep == 1 {
		return c.cols * c.width
	}
	return c.Len()
}

// window is the range of the inner output that rows [r0, r1) lie in.
func (c strided) window(off, n int64) (lo, hi int64) {
	row := c.cols * c.width
	r0, r1 := off/row, (off+n-1)/row
	lo = c.base + r0*c.rowStep
	hi = c.base + r1*c.rowStep + (c.cols-1)*c.colStep + 1
	return lo * c.width, hi * c.width
}

func (c strided) Needs(off, n int64) []plan.Need {
	if n == 0 {
		return nil
	}
	lo, hi := c.window(off, n)
	return c.inner.Needs(lo, hi-lo)
}

func (c strided) Decode(dst []byte, off int64, in [][]byte) error {
	n := int64(len(dst))
	if n == 0 {
		return nil
	}
	lo, hi := c.window(off, n)
	src, err := c.source(lo, hi, in)
	if err != nil {
		return err
	}
	row := c.cols * c.width
	for at := off; at < off+n; {
		r, begin := at/row, at%row
		src := src[(c.base+r*c.rowStep)*c.width-lo:]
		out := dst[at-off:]
		if rows := int64(len(out)) / row; begin == 0 && rows > 1 && c.width == 2 && c.colStep != 1 {
			rows = min(rows, turnRows)
			c.turn(out, src, rows)
			at += rows * row
			continue
		}
		out = out[:min(row-begin, int64(len(out)))]
		c.fill(out, src, begin)
		at += int64(len(out))
	}
	return nil
}

// source is the inner output [lo, hi).
func (c strided) source(lo, hi int64, in [][]byte) ([]byte, error) {
	if _, ok := c.inner.(raw); ok {
		return in[0], nil
	}
	src := make([]byte, hi-lo)
	return src, c.inner.Decode(src, lo, in)
}

// turnRows is how many rows are filled at a time, and how many columns of them: a square whose cache lines are all touched once.
const turnRows = 32

// turn fills rows whole rows, turnRows at most, of 2-byte elements; the first element of the first is at src[0].
func (c strided) turn(dst, src []byte, rows int64) {
	var square [turnRows * turnRows]uint16 // column by column
	for k0 := int64(0); k0 < c.cols; k0 += turnRows {
		cols := min(c.cols-k0, turnRows)
		for k := range cols {
			in := src[2*(k0+k)*c.colStep:]
			for r := range rows {
				square[k*turnRows+r] = binary.LittleEndian.Uint16(in[2*r*c.rowStep:])
			}
		}
		for r := range rows {
			out := dst[2*(r*c.cols+k0):]
			for k := range cols {
				binary.LittleEndian.PutUint16(out[2*k:], square[k*turnRows+r])
			}
		}
	}
}

// fill copies bytes [begin, begin+len(dst)) of a row whose first element is at src[0].
func (c strided) fill(dst, src []byte, begin int64) {
	if c.colStep == 1 {
		copy(dst, src[begin:])
		return
	}
	step := c.colStep * c.width
	for at := int64(0); at < int64(len(dst)); {
		e, within := (begin+at)/c.width, (begin+at)%c.width
		at += int64(copy(dst[at:], src[e*step+within:e*step+c.width]))
	}
}
