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

// encode is ONNX Runtime's asymmetric rule for blocks of 32 values.
func encode() {
	text("encodeORT32", "func(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32)",
		"encodeORT32 encodes n blocks of 32 BF16 values: 16 bytes of codes, an F16 scale and a zero point (one byte) for each. largest is at least 7F80h if a value was",
		"infinite or no number, or if a scale was beyond F16.")
	codes, values := Load(Param("codes"), GP64()), Load(Param("values"), GP64())
	scales, zeros, n := Load(Param("scales"), GP64()), Load(Param("zeros"), GP64()), Load(Param("n"), GP64())
	magnitude, largest := broadcast(0x7FFF7FFF), YMM()
	VPXOR(largest, largest, largest)
	halfX, oneX, fifteenX, zeroX := single(0x3F000000), single(0x3F800000), single(0x41700000), XMM()
	VXORPS(zeroX, zeroX, zeroX)
	half, fifteen, zero := broadcast(0x3F000000), broadcast(0x41700000), YMM()
	VXORPS(zero, zero, zero)
	bad := GP32()
	XORL(bad, bad)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))

	x, low, high := loadBlock(values, magnitude, largest, zero)
	z, r := chooseScale(low, high, constants{half: halfX, one: oneX, fifteen: fifteenX, zero: zeroX}, scales, zeros, bad)
	quantize(x, z, r, half, fifteen, zero)
	pack32(x, codes)
	ADDQ(U8(64), values)
	ADDQ(U8(16), codes)
	ADDQ(U8(2), scales)
	INCQ(zeros)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")

	words := XMM()
	VEXTRACTI128(U8(1), largest, words)
	VPMAXUW(words, largest.AsX(), words)
	ones, minimum, result := XMM(), XMM(), GP32()
	VPCMPEQD(ones, ones, ones)
	VPXOR(ones, words, words) // the largest is the complement of the smallest complement
	VPHMINPOSUW(words, minimum)
	VPEXTRW(U8(0), minimum, result)
	XORL(U32(0xFFFF), result)
	ORL(bad, result)
	Store(result, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// constants are binary32 numbers in XMM registers.
type constants struct{ half, one, fifteen, zero reg.VecVirtual }

// loadBlock loads 32 values as binary32, their smallest and largest with 0, and notes the largest magnitude seen.
func loadBlock(values reg.Register, magnitude, largest, zero reg.VecVirtual) (x [4]reg.VecVirtual, low, high reg.VecVirtual) {
	for i := range 2 {
		raw := YMM()
		VPAND(Mem{Base: values, Disp: 32 * i}, magnitude, raw)
		VPMAXUW(raw, largest, largest)
	}
	mn, mx := YMM(), YMM()
	for i := range x {
		x[i] = YMM()
		VPMOVZXWD(Mem{Base: values, Disp: 16 * i}, x[i])
		VPSLLD(U8(16), x[i], x[i])
		if i == 0 {
			VMINPS(x[i], zero, mn)
			VMAXPS(x[i], zero, mx)
		} else {
			VMINPS(x[i], mn, mn)
			VMAXPS(x[i], mx, mx)
		}
	}
	return x, across(mn, VMINPS), across(mx, VMAXPS)
}

// chooseScale stores the scale and zero point of a block and returns the zero point and the reciprocal of the stored scale. bad becomes 7F80h if the
// scale is infinite or no number.
func chooseScale(low, high reg.VecVirtual, c constants, scales, zeros reg.Register, bad reg.Register) (z, r reg.VecVirtual) {
	s, isZero := XMM(), XMM()
	z, r = XMM(), XMM()
	VSUBSS(low, high, s)
	VDIVSS(c.fifteen, s, s)
	VDIVSS(s, low, z)
	VSUBSS(z, c.zero, z)
	VCMPSS(U8(0), c.zero, s, isZero)
	VANDNPS(z, isZero, z) // a scale of 0 has only zeros, and zero point 0
	VMAXSS(c.zero, z, z)
	VMINSS(c.fifteen, z, z)
	roundXMM(z, c.half, c.one)
	stored, rounded := XMM(), XMM()
	VCVTPS2PH(U8(0), s, stored)
	VPEXTRW(U8(0), stored, Mem{Base: scales})
	VCVTPH2PS(stored, rounded)
	word := GP32()
	VPEXTRW(U8(0), stored, word)
	ANDL(U32(0x7C00), word)
	CMPL(word, U32(0x7C00))
	JNE(LabelRef("finite"))
	MOVL(U32(0x7F80), bad)
	Label("finite")
	VDIVSS(rounded, c.one, r)
	VCMPSS(U8(0), c.zero, rounded, isZero)
	VANDNPS(r, isZero, r)
	integer := GP32()
	VCVTTSS2SI(z, integer)
	MOVB(integer.As8(), Mem{Base: zeros})
	return z, r
}

// quantize leaves the codes of the values in their places.
func quantize(x [4]reg.VecVirtual, z, r, half, fifteen, zero reg.VecVirtual) {
	ry, zy := YMM(), YMM()
	VBROADCASTSS(r, ry)
	VBROADCASTSS(z, zy)
	for i := range x {
		t, up := YMM(), YMM()
		VMULPS(ry, x[i], x[i])
		VADDPS(zy, x[i], x[i])
		VMAXPS(zero, x[i], x[i])
		VMINPS(fifteen, x[i], x[i])
		VROUNDPS(U8(3), x[i], t)
		VSUBPS(t, x[i], up)
		VCMPPS(U8(13), half, up, up) // -1 where the fraction is at least a half
		VCVTTPS2DQ(t, t)
		VPSUBD(up, t, x[i])
	}
}

// pack32 stores 32 codes, one in each 32-bit place, as 16 bytes.
func pack32(x [4]reg.VecVirtual, to reg.Register) {
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
	VMOVDQU(a.AsX(), Mem{Base: to})
}
