package quant

import (
	"fmt"
	"slices"
)

// grid is how scales lie over a weight [experts, out, in]: one for every bm rows and bn columns, blocks at the edges being shorter.
type grid struct {
	experts  int64 // that have scales of their own; 1 if all share them
	rows     int64 // of scales in one expert
	cols     int64
	bm, bn   int64
	how      string
	shared   bool // one scale for the whole tensor
	elements int64
}

// candidates are the block sizes tried in order when config names none that fits. A zero stands for the exact quotient.
var candidates = [][2]int64{{1, 32}, {32, 32}, {128, 128}, {64, 64}, {1, 128}, {1, 16}, {0, 0}}

// findGrid reads a scale's shape against its weight's. block is config's block size, or zeros.
func findGrid(weight, scale []int64, block [2]int) (grid, error) {
	experts, out, in, ok := dims(weight)
	if !ok {
		return grid{}, fmt.Errorf("a weight of shape %v has no rows and columns", weight)
	}
	if n, ok := product(append([]int64{1}, scale...)...); !ok {
		return grid{}, fmt.Errorf("scale shape %v is empty or too large", scale)
	} else if n == 1 && experts == 1 || n == 1 && len(scale) < 2 || n == 1 && experts > 1 && scale[0] == 1 {
		return grid{experts: 1, rows: 1, cols: 1, bm: out, bn: in, shared: true, elements: 1, how: "one scale for the tensor"}, nil
	}
	per, err := scaleMatrix(scale, experts, out, len(weight))
	if err != nil {
		return grid{}, err
	}
	g := grid{experts: experts, rows: per[0], cols: per[1], elements: experts * per[0] * per[1]}
	return g, g.fit(out, in, block)
}

// scaleMatrix is the scale's shape in one expert: [rows, cols].
func scaleMatrix(scale []int64, experts, out int64, rank int) ([2]int64, error) {
	if rank == 3 {
		if len(scale) == 0 || scale[0] != experts {
			return [2]int64{}, fmt.Errorf("scale shape %v does not begin with the %d experts", scale, experts)
		}
		scale = scale[1:]
	}
	switch {
	case len(scale) == 0:
		return [2]int64{1, 1}, nil
	case len(scale) == 1 && scale[0] == 1:
		return [2]int64{1, 1}, nil
	case len(scale) == 1 && scale[0] == out:
		return [2]int64{out, 1}, nil
	case len(scale) == 2:
		return [2]int64{scale[0], scale[1]}, nil
	case len(scale) == 4 && scale[1] == 1 && scale[3] == 1: // ModelOpt FP8_PB_WO
		return [2]int64{scale[0], scale[2]}, nil
	}
	return [2]int64{}, fmt.Errorf("scale shape %v fits no grid over %d rows", scale, out)
}

// fit finds the block size.
func (g *grid) fit(out, in int64, block [2]int) error {
	configured := [2]int64{int64(block[0]), int64(block[1])}
	if configured[0] > 0 && configured[1] > 0 && g.fits(out, in, configured) {
		g.bm, g.bn, g.how = configured[0], configured[1], fmt.Sprintf("blocks %dx%d by grid and config", configured[0], configured[1])
		return nil
	}
	if g.rows == out && g.cols == 1 {
		g.bm, g.bn, g.how = 1, in, "one scale a row"
		return nil
	}
	if g.rows == 1 && g.cols == 1 {
		g.bm, g.bn, g.how = out, in, "one scale an expert"
		return nil
	}
	for _, c := range candidates {
		if c == [2]int64{} {
			if out%g.rows != 0 || in%g.cols != 0 {
				continue
			}
			c = [2]int64{out / g.rows, in / g.cols}
			if blocks := g.rows != out && g.rows != 1; blocks && (c[0]%16 != 0 || c[1]%16 != 0) {
				continue // no format has blocks of such sizes: the scale is misshapen
			}
		}
		if g.fits(out, in, c) {
			g.bm, g.bn, g.how = c[0], c[1], fmt.Sprintf("blocks %dx%d by grid", c[0], c[1])
			return nil
		}
	}
	return fmt.Errorf("scale grid [%d, %d] fits no block size over [%d, %d]", g.rows, g.cols, out, in)
}

// fits says whether blocks of the size make the grid.
func (g *grid) fits(out, in int64, block [2]int64) bool {
	return ceilDiv(out, block[0]) == g.rows && ceilDiv(in, block[1]) == g.cols
}

// input is the rowCodec input of scales of elem bytes each.
func (g *grid) input(elem int64) rowInput {
	if g.shared {
		return wholeInput(elem)
	}
	return rowInput{rowBytes: g.cols * elem, perExpert: g.rows, num: 1, den: g.bm, size: g.elements * elem}
}

// sameShape compares shapes, ones at the end aside.
func sameShape(a, b []int64) bool { return slices.Equal(trimOnes(a), trimOnes(b)) }

func trimOnes(s []int64) []int64 {
	for len(s) > 0 && s[len(s)-1] == 1 {
		s = s[:len(s)-1]
	}
	return s
}
