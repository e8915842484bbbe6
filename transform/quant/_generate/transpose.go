package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose turns squares of 8 by 8 words, two at a time: rows r to r+7 in the low lanes, r+8 to r+15 in the high ones.
func transpose() {
	text("transposeWords", "func(dst, src *byte, dstStride, srcStride, rows, columns int)",
		"transposeWords writes the transpose of a matrix of words, of which rows is a multiple of 16 and columns one of 8. Strides are bytes between rows.")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	dstStride, srcStride := Load(Param("dstStride"), GP64()), Load(Param("srcStride"), GP64())
	rows, columns := Load(Param("rows"), GP64()), Load(Param("columns"), GP64())
	n, low, high, out, to := GP64(), GP64(), GP64(), GP64(), GP64()
	Label("columns")
	TESTQ(columns, columns)
	JZ(LabelRef("done"))
	MOVQ(src, low)
	MOVQ(dst, out)
	MOVQ(rows, n)
	Label("rows")
	TESTQ(n, n)
	JZ(LabelRef("next"))
	LEAQ(Mem{Base: low, Index: srcStride, Scale: 8}, high)
	var x [8]reg.VecVirtual
	for i := range x {
		x[i] = YMM()
		VMOVDQU(Mem{Base: low}, x[i].AsX())
		VINSERTI128(U8(1), Mem{Base: high}, x[i], x[i])
		ADDQ(srcStride, low)
		ADDQ(srcStride, high)
	}
	MOVQ(high, low)
	var spare reg.VecVirtual = YMM()
	// Words of pairs of rows, pairs of words of those, then fours.
	x = interleave(x, &spare, VPUNPCKLWD, VPUNPCKHWD, [4][2]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}})
	x = interleave(x, &spare, VPUNPCKLDQ, VPUNPCKHDQ, [4][2]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}})
	x = interleave(x, &spare, VPUNPCKLQDQ, VPUNPCKHQDQ, [4][2]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}})
	MOVQ(out, to)
	for i := range x {
		VMOVDQU(x[i], Mem{Base: to})
		if i < 7 {
			ADDQ(dstStride, to)
		}
	}
	ADDQ(U8(32), out)
	SUBQ(U8(16), n)
	JMP(LabelRef("rows"))
	Label("next")
	ADDQ(U8(16), src)
	LEAQ(Mem{Base: dst, Index: dstStride, Scale: 8}, dst)
	SUBQ(U8(8), columns)
	JMP(LabelRef("columns"))
	Label("done")
	VZEROUPPER()
	RET()
}

// interleave puts the low halves of each pair together, and the high halves: register 2i and 2i+1 of the result are of pair i. One register beside the
// eight is enough.
func interleave(x [8]reg.VecVirtual, spare *reg.VecVirtual, low, high func(ops ...Op), pairs [4][2]int) [8]reg.VecVirtual {
	var y [8]reg.VecVirtual
	for i, p := range pairs {
		a, b := x[p[0]], x[p[1]]
		low(b, a, *spare)
		high(b, a, a)
		y[2*i], y[2*i+1], *spare = *spare, a, b
	}
	return y
}
