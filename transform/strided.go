package transform

import (
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
	src := make([]byte, hi-lo)
	if err := c.inner.Decode(src, lo, in); err != nil {
		return err
	}
	row := c.cols * c.width
	for at := off; at < off+n; {
		r, begin := at/row, at%row
		end := min(row, begin+off+n-at)
		c.fill(dst[at-off:at-off+end-begin], src[(c.base+r*c.rowStep)*c.width-lo:], begin)
		at += end - begin
	}
	return nil
}

// fill copies bytes [begin, begin+len(dst)) of a row whose first element is at src[0].
func (c strided) fill(dst, src []byte, begin int64) {
	if c.colStep == 1 {
		copy(dst, src[begin:])
		return
	}
	step := c.colStep * c.width
	if c.width == 2 && begin%2 == 0 && len(dst)%2 == 0 {
		src = src[begin/2*step:]
		for at := 0; at < len(dst); at += 2 {
			dst[at], dst[at+1] = src[0], src[1]
			src = src[min(step, int64(len(src))):]
		}
		return
	}
	for at := int64(0); at < int64(len(dst)); {
		e, within := (begin+at)/c.width, (begin+at)%c.width
		at += int64(copy(dst[at:], src[e*step+within:e*step+c.width]))
	}
}
