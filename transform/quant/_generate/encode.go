package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// across reduces the eight values of y to one in place 0.
func across(y reg.VecVirtual, op func(ops ...Op)) reg.VecVirtual {
	x, t := XMM(), XMM()
	VEXTRACTI128(U8(1), y, t)
	op(t, y.AsX(), x)
	VPSHUFD(U8(0x4E), x, t)
	op(t, x, x)
	VPSHUFD(U8(0xB1), x, t)
	op(t, x, x)
	return x
}

// single is a binary32 constant in an XMM register.
func single(bits uint32) reg.VecVirtual {
	g, x := GP32(), XMM()
	MOVL(U32(bits), g)
	VMOVD(g, x)
	return x
}

// roundXMM rounds a value in [0, 15] to the nearest integer, halves up, and leaves it in v.
func roundXMM(v, half, one reg.VecVirtual) {
	t, up := XMM(), XMM()
	VROUNDSS(U8(3), v, v, t)
	VSUBSS(t, v, up)
	VCMPSS(U8(13), half, up, up) // greater or equal
	VANDPS(one, up, up)
	VADDSS(up, t, v)
}

// encode is ONNX Runtime's rule for blocks of units times 32 values.
func encode(name string, units int, symmetric bool, doc string) {
	text(name, "func(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32)", doc,
		"largest is at least 7F80h if a value was infinite or no number, or if a scale was beyond F16.")
	codes, values := Load(Param("codes"), GP64()), Load(Param("values"), GP64())
	scales, zeros, n := Load(Param("scales"), GP64()), Load(Param("zeros"), GP64()), Load(Param("n"), GP64())
	magnitude, largest := broadcast(0x7FFF7FFF), YMM()
	VPXOR(largest, largest, largest)
	c := singles{half: single(0x3F000000), one: single(0x3F800000), fifteen: single(0x41700000), zero: XMM()}
	VXORPS(c.zero, c.zero, c.zero)
	half, fifteen, zero := broadcast(0x3F000000), broadcast(0x41700000), YMM()
	VXORPS(zero, zero, zero)
	bad := GP32()
	XORL(bad, bad)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))

	mn, mx := YMM(), YMM()
	VMOVAPS(zero, mn)
	VMOVAPS(zero, mx)
	for i := range units {
		span(values, 64*i, magnitude, largest, mn, mx)
	}
	var z, r reg.VecVirtual
	if low, high := across(mn, VMINPS), across(mx, VMAXPS); symmetric {
		z, r = chooseSymmetric(low, high, c, scales, zeros, bad)
	} else {
		z, r = chooseScale(low, high, c, scales, zeros, bad)
	}
	ry, zy := YMM(), YMM()
	VBROADCASTSS(r, ry)
	VBROADCASTSS(z, zy)
	for i := range units {
		pack32(quantize(values, 64*i, zy, ry, half, fifteen, zero), Mem{Base: codes, Disp: 16 * i})
	}
	ADDQ(I32(64*units), values)
	ADDQ(U8(16*units), codes)
	ADDQ(U8(2), scales)
	INCQ(zeros)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	Store(largestWord(largest, bad), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// largestWord is the largest 16-bit word, or bad if that is more.
func largestWord(largest reg.VecVirtual, bad reg.GPVirtual) reg.GPVirtual {
	words, ones, minimum, result := XMM(), XMM(), XMM(), GP32()
	VEXTRACTI128(U8(1), largest, words)
	VPMAXUW(words, largest.AsX(), words)
	VPCMPEQD(ones, ones, ones)
	VPXOR(ones, words, words) // the largest is the complement of the smallest complement
	VPHMINPOSUW(words, minimum)
	VPEXTRW(U8(0), minimum, result)
	XORL(U32(0xFFFF), result)
	ORL(bad, result)
	return result
}

// singles are binary32 numbers in XMM registers.
type singles struct{ half, one, fifteen, zero reg.VecVirtual }

// load is 8 values at a byte offset as binary32.
func load(values reg.Register, at int) reg.VecVirtual {
	x := YMM()
	VPMOVZXWD(Mem{Base: values, Disp: at}, x)
	VPSLLD(U8(16), x, x)
	return x
}

// span takes 32 values into the smallest and largest of their block, and notes the largest magnitude seen.
func span(values reg.Register, at int, magnitude, largest, mn, mx reg.VecVirtual) {
	for i := range 2 {
		raw := YMM()
		VPAND(Mem{Base: values, Disp: at + 32*i}, magnitude, raw)
		VPMAXUW(raw, largest, largest)
	}
	for i := range 4 {
		x := load(values, at+16*i)
		VMINPS(mn, x, mn) // of two zeros the second operand, here the first, wins: -0 counts as 0
		VMAXPS(mx, x, mx)
	}
}

// chooseScale stores the scale and zero point of a block and returns the zero point and the reciprocal of the stored scale. bad becomes 7F80h if the
// scale is infinite or no number.
func chooseScale(low, high reg.VecVirtual, c singles, scales, zeros reg.Register, bad reg.GPVirtual) (z, r reg.VecVirtual) {
	s, isZero := XMM(), XMM()
	z = XMM()
	VSUBSS(low, high, s)
	VDIVSS(c.fifteen, s, s)
	VDIVSS(s, low, z)
	VSUBSS(z, c.zero, z)
	VCMPSS(U8(0), c.zero, s, isZero)
	VANDNPS(z, isZero, z) // a scale of 0 has only zeros, and zero point 0
	VMAXSS(c.zero, z, z)
	VMINSS(c.fifteen, z, z)
	roundXMM(z, c.half, c.one)
	r = storeScale(s, c, scales, bad)
	integer := GP32()
	VCVTTSS2SI(z, integer)
	MOVB(integer.As8(), Mem{Base: zeros})
	return z, r
}

// chooseSymmetric does the same for the symmetric rule: the value of larger magnitude, the smallest if equal, becomes code 0; the zero point is 8.
func chooseSymmetric(low, high reg.VecVirtual, c singles, scales, zeros reg.Register, bad reg.GPVirtual) (z, r reg.VecVirtual) {
	s, opposite, isHigh := XMM(), XMM(), XMM()
	VSUBSS(low, c.zero, opposite)
	VCMPSS(U8(14), opposite, high, isHigh) // greater
	VBLENDVPS(isHigh, high, low, s)
	VMULSS(single(0xBE000000), s, s) // by -1/8: exact unless it underflows, and then F16 gives 0 all the same
	z = single(0x41000000)
	MOVB(U8(8), Mem{Base: zeros})
	return z, storeScale(s, c, scales, bad)
}

// storeScale stores the scale as F16 and returns the reciprocal of what is stored, 0 for 0.
func storeScale(s reg.VecVirtual, c singles, scales reg.Register, bad reg.GPVirtual) reg.VecVirtual {
	stored, rounded, r, isZero, word := XMM(), XMM(), XMM(), XMM(), GP32()
	VCVTPS2PH(U8(0), s, stored)
	VPEXTRW(U8(0), stored, Mem{Base: scales})
	VCVTPH2PS(stored, rounded)
	VPEXTRW(U8(0), stored, word)
	ANDL(U32(0x7C00), word)
	CMPL(word, U32(0x7C00))
	JNE(LabelRef("finite"))
	MOVL(U32(0x7F80), bad)
	Label("finite")
	VDIVSS(rounded, c.one, r)
	VCMPSS(U8(0), c.zero, rounded, isZero)
	VANDNPS(r, isZero, r)
	return r
}

// quantize is the codes of 32 values at a byte offset, one in each 32-bit place.
func quantize(values reg.Register, at int, z, r, half, fifteen, zero reg.VecVirtual) (codes [4]reg.VecVirtual) {
	for i := range codes {
		x, t, up := load(values, at+16*i), YMM(), YMM()
		VMULPS(r, x, x)
		VADDPS(z, x, x)
		VMAXPS(zero, x, x)
		VMINPS(fifteen, x, x)
		VROUNDPS(U8(3), x, t)
		VSUBPS(t, x, up)
		VCMPPS(U8(13), half, up, up) // -1 where the fraction is at least a half
		VCVTTPS2DQ(t, t)
		VPSUBD(up, t, x)
		codes[i] = x
	}
	return codes
}

// pack32 stores 32 codes, one in each 32-bit place, as 16 bytes.
func pack32(x [4]reg.VecVirtual, to Mem) {
	a, b := YMM(), YMM()
	VPACKUSDW(x[1], x[0], a) // lanes: 0-3 8-11 | 4-7 12-15
	VPACKUSDW(x[3], x[2], b)
	VPERMQ(U8(0xD8), a, a)
	VPERMQ(U8(0xD8), b, b) // words in order
	t := YMM()
	for _, y := range []reg.VecVirtual{a, b} {
		// The odd word of each pair goes to the high nibble of the even one's byte.
		VPSRLD(U8(12), y, t)
		VPOR(t, y, y)
	}
	mask := broadcast(0x000000FF)
	VPAND(mask, a, a)
	VPAND(mask, b, b)
	VPACKUSDW(b, a, a) // lanes: a0-3 b0-3 | a4-7 b4-7
	VPERMQ(U8(0xD8), a, a)
	high := XMM()
	VEXTRACTI128(U8(1), a, high)
	VPACKUSWB(high, a.AsX(), a.AsX())
	VMOVDQU(a.AsX(), to)
}
