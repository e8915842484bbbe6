// Command generate writes the assembly kernels of transform/quant for amd64: simd_amd64.s and its declarations. Run it in this directory:
//
//	go run . -out ../simd_amd64.s -stubs ../simd_amd64.go -pkg quant
//
// Every kernel does what a Go kernel of the package does, bit for bit; the tests of the package compare them over all codes and classes of scales.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	fp4("fp4Groups32", 32, false, "fp4Groups32 decodes n times 32 codes, the low nibble first, one scale byte for 32.")
	fp4("fp4Groups16", 16, false, "fp4Groups16 decodes n times 32 codes, the low nibble first, one scale byte for 16.")
	fp4("fp4Groups16High", 16, true, "fp4Groups16High decodes n times 32 codes, the high nibble first, one scale byte for 16.")
	lookup16("lookup16High", true, "lookup16High decodes n times 32 codes through one table, the high nibble first.")
	groupsBytes("subtract8", subtract, false, "subtract8 makes bf16((code-second)*scale) of unsigned one-byte codes in groups of units times 16, each with its own parameters.")
	groupsBytes("bias8", addBias, false, "bias8 makes bf16(f32(code*scale)+second) in the same way.")
	groupsBytes("signed8", subtract, true, "signed8 makes bf16((code-second)*scale) of signed codes.")
	affineGroups("subtract4", subtract, "subtract4 makes bf16((code-second)*scale) of 4-bit codes, the low nibble first, in groups of units times 32 codes, each with",
		"its own parameters.")
	affineGroups("bias4", addBias, "bias4 makes bf16(f32(code*scale)+second) in the same way.")
	unpack4()
	castF32()
	castF16()
	e4m3("lookupE4M3", false, "lookupE4M3 decodes blocks times n times 32 E4M3 codes, each block through a table of its own.")
	e4m3("e4m3Groups32", true, "e4m3Groups32 decodes n times 32 E4M3 codes, each 32 through the table of their scale byte.")
	encode("encodeORT32", 1, false, "encodeORT32 encodes n blocks of 32 BF16 values: 16 bytes of codes, an F16 scale and a zero point (one byte) for each.")
	encode("encodeORT64", 2, false, "encodeORT64 encodes n blocks of 64 BF16 values in the same way.")
	encode("encodeSymmetric32", 1, true, "encodeSymmetric32 encodes n blocks of 32 BF16 values by the symmetric rule; every zero point is 8.")
	encode("encodeSymmetric64", 2, true, "encodeSymmetric64 encodes n blocks of 64 BF16 values by the symmetric rule.")
	columnsBytes("columns8", "columns8 makes bf16((code-zero)*scale) of n times 16 unsigned one-byte codes, each with its own scale and zero point.")
	transpose()
	wide()
	for _, symmetric := range []bool{false, true} {
		encodeWide(symmetric)
	}
	webAI()
	Generate()
}

// text begins a function whose pointers do not escape.
func text(name, signature string, doc ...string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(doc...)
}

// rounding holds the constants that every rounding needs.
type rounding struct{ one, bias, nan reg.VecVirtual }

// broadcast is a YMM register with a 32-bit constant in every place.
func broadcast(v uint32) reg.VecVirtual {
	g, y := GP32(), YMM()
	MOVL(U32(v), g)
	x := XMM()
	VMOVD(g, x)
	VPBROADCASTD(x, y)
	return y
}

func newRounding() rounding {
	return rounding{one: broadcast(1), bias: broadcast(0x7FFF), nan: broadcast(0x7FC00000)}
}

// round leaves the BF16 bits of each binary32 of v in its low half, the high half being 0.
func (r rounding) round(v reg.VecVirtual) {
	t, unordered := YMM(), YMM()
	VCMPPS(U8(3), v, v, unordered)
	VPSRLD(U8(16), v, t)
	VPAND(r.one, t, t)
	VPADDD(r.bias, t, t)
	VPADDD(t, v, v)
	VBLENDVPS(unordered, r.nan, v, v)
	VPSRLD(U8(16), v, v)
}

// store packs the low halves of a and b in order and stores 32 bytes.
func store(a, b reg.VecVirtual, to Mem) {
	VPACKUSDW(b, a, a)
	VPERMQ(U8(0xD8), a, a)
	VMOVDQU(a, to)
}

// nibbles spreads 16 bytes at src to 32 codes in order: lane 0 has the first 16.
func nibbles(src Mem, mask reg.VecVirtual, high bool) reg.VecVirtual {
	v, lo, hi, a, b := XMM(), XMM(), XMM(), XMM(), XMM()
	VMOVDQU(src, v)
	VPAND(mask.AsX(), v, lo)
	VPSRLW(U8(4), v, hi)
	VPAND(mask.AsX(), hi, hi)
	if high {
		lo, hi = hi, lo
	}
	VPUNPCKLBW(hi, lo, a)
	VPUNPCKHBW(hi, lo, b)
	codes := YMM()
	VINSERTI128(U8(1), b, a.AsY(), codes)
	return codes
}

// emit looks 32 codes up in the byte planes and stores 64 bytes at dst.
func emit(codes, lo, hi reg.VecVirtual, dst reg.Register) {
	l, h, first, second, out := YMM(), YMM(), YMM(), YMM(), YMM()
	VPSHUFB(codes, lo, l)
	VPSHUFB(codes, hi, h)
	VPUNPCKLBW(h, l, first)
	VPUNPCKHBW(h, l, second)
	VPERM2I128(U8(0x20), second, first, out)
	VMOVDQU(out, Mem{Base: dst})
	VPERM2I128(U8(0x31), second, first, first)
	VMOVDQU(first, Mem{Base: dst, Disp: 32})
}

// fp4 applies the table of the scale byte of every group. Tables have 16 low bytes, then 16 high bytes.
func fp4(name string, group int, high bool, doc string) {
	text(name, "func(dst, src, scales *byte, tables *[256][32]byte, n int)", doc)
	dst, src, scales := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("scales"), GP64())
	tables, n := Load(Param("tables"), GP64()), Load(Param("n"), GP64())
	mask := broadcast(0x0F0F0F0F)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	a := GP64()
	MOVBQZX(Mem{Base: scales}, a)
	SHLQ(U8(5), a)
	lo, hi := YMM(), YMM()
	if group == 32 {
		VBROADCASTI128(Mem{Base: tables, Index: a, Scale: 1}, lo)
		VBROADCASTI128(Mem{Base: tables, Index: a, Scale: 1, Disp: 16}, hi)
	} else {
		b := GP64()
		MOVBQZX(Mem{Base: scales, Disp: 1}, b)
		SHLQ(U8(5), b)
		VMOVDQU(Mem{Base: tables, Index: a, Scale: 1}, lo.AsX())
		VMOVDQU(Mem{Base: tables, Index: a, Scale: 1, Disp: 16}, hi.AsX())
		VINSERTI128(U8(1), Mem{Base: tables, Index: b, Scale: 1}, lo, lo)
		VINSERTI128(U8(1), Mem{Base: tables, Index: b, Scale: 1, Disp: 16}, hi, hi)
	}
	emit(nibbles(Mem{Base: src}, mask, high), lo, hi, dst)
	ADDQ(U8(16), src)
	ADDQ(U8(64), dst)
	ADDQ(U8(32/group), scales)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

func lookup16(name string, high bool, doc string) {
	text(name, "func(dst, src *byte, table *[32]byte, n int)", doc)
	dst, src, table, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("table"), GP64()), Load(Param("n"), GP64())
	mask := broadcast(0x0F0F0F0F)
	lo, hi := YMM(), YMM()
	VBROADCASTI128(Mem{Base: table}, lo)
	VBROADCASTI128(Mem{Base: table, Disp: 16}, hi)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	emit(nibbles(Mem{Base: src}, mask, high), lo, hi, dst)
	ADDQ(U8(16), src)
	ADDQ(U8(64), dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// affineGroups decodes nibbles of whole groups. The second parameter of a group is its zero, or its bias.
func affineGroups(name string, arith arithmetic, doc ...string) {
	text(name, "func(dst, src *byte, values *[16]float32, scales, seconds *float32, groups, units int)", doc...)
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	scales, seconds := Load(Param("scales"), GP64()), Load(Param("seconds"), GP64())
	groups, units := Load(Param("groups"), GP64()), Load(Param("units"), GP64())
	mask, r := broadcast(0x0F0F0F0F), newRounding()
	Label("group")
	TESTQ(groups, groups)
	JZ(LabelRef("done"))
	scale, second, n := YMM(), YMM(), GP64()
	VBROADCASTSS(Mem{Base: scales}, scale)
	VBROADCASTSS(Mem{Base: seconds}, second)
	MOVQ(units, n)
	Label("unit")
	codes := nibbles(Mem{Base: src}, mask, false)
	upper := XMM()
	VEXTRACTI128(U8(1), codes, upper)
	for i, x := range []reg.VecVirtual{codes.AsX().(reg.VecVirtual), upper} {
		a, b, high := YMM(), YMM(), XMM()
		VPSRLDQ(U8(8), x, high)
		VPMOVZXBD(x, a)
		VPMOVZXBD(high, b)
		for _, v := range []reg.VecVirtual{a, b} {
			VCVTDQ2PS(v, v)
			arith.apply(v, scale, second)
			r.round(v)
		}
		store(a, b, Mem{Base: dst, Disp: 32 * i})
	}
	ADDQ(U8(16), src)
	ADDQ(U8(64), dst)
	DECQ(n)
	JNZ(LabelRef("unit"))
	ADDQ(U8(4), scales)
	ADDQ(U8(4), seconds)
	DECQ(groups)
	JMP(LabelRef("group"))
	Label("done")
	VZEROUPPER()
	RET()
}

func unpack4() {
	text("unpackNibbles", "func(dst, src *byte, n int)", "unpackNibbles writes n times 32 codes of 4 bits as bytes, the low nibble first.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	mask := broadcast(0x0F0F0F0F)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	VMOVDQU(nibbles(Mem{Base: src}, mask, false), Mem{Base: dst})
	ADDQ(U8(16), src)
	ADDQ(U8(32), dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

func castF32() {
	text("castSingles", "func(dst, src *byte, n int)", "castSingles rounds n times 16 binary32 values.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	r := newRounding()
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	a, b := YMM(), YMM()
	VMOVUPS(Mem{Base: src}, a)
	VMOVUPS(Mem{Base: src, Disp: 32}, b)
	r.round(a)
	r.round(b)
	store(a, b, Mem{Base: dst})
	ADDQ(U8(64), src)
	ADDQ(U8(32), dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

func castF16() {
	text("castHalves", "func(dst, src *byte, n int)", "castHalves rounds n times 16 binary16 values.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	r := newRounding()
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	a, b := YMM(), YMM()
	VCVTPH2PS(Mem{Base: src}, a)
	VCVTPH2PS(Mem{Base: src, Disp: 16}, b)
	r.round(a)
	r.round(b)
	store(a, b, Mem{Base: dst})
	ADDQ(U8(32), src)
	ADDQ(U8(32), dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// e4m3 uses that under one scale all codes of the same mantissa differ by their exponent only, as long as every result is a normal number: an entry for
// each mantissa, plus the exponent. Codes of exponent 0 have entries of their own.
func e4m3(name string, grouped bool, doc string) {
	text(name, map[bool]string{false: "func(dst, src *byte, tables *[32]byte, n, blocks int)", true: "func(dst, src, scales *byte, tables *[256][32]byte, n int)"}[grouped],
		doc+" A table has, in 16 low and 16 high bytes,",
		"the results of the 8 mantissas as if at exponent 0 with a leading one, then those of the 8 codes of exponent 0.")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	lo, hi, n := YMM(), YMM(), GP64()
	tables := Load(Param("tables"), GP64())
	var scales, blocks, size reg.Register
	if grouped {
		scales = Load(Param("scales"), GP64())
		Load(Param("n"), n)
	} else {
		blocks, size = Load(Param("blocks"), GP64()), Load(Param("n"), GP64())
	}
	mantissa, eight, magnitude := broadcast(0x07070707), broadcast(0x08080808), broadcast(0x7F7F7F7F)
	exponent, nan := broadcast(0x00780078), broadcast(0x7FC07FC0)
	zero := YMM()
	VPXOR(zero, zero, zero)
	end := "done"
	if !grouped {
		Label("block")
		TESTQ(blocks, blocks)
		JZ(LabelRef("done"))
		VBROADCASTI128(Mem{Base: tables}, lo)
		VBROADCASTI128(Mem{Base: tables, Disp: 16}, hi)
		ADDQ(U8(32), tables)
		MOVQ(size, n)
		end = "next"
	}
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef(end))
	if grouped {
		at := GP64()
		MOVBQZX(Mem{Base: scales}, at)
		SHLQ(U8(5), at)
		VBROADCASTI128(Mem{Base: tables, Index: at, Scale: 1}, lo)
		VBROADCASTI128(Mem{Base: tables, Index: at, Scale: 1, Disp: 16}, hi)
		INCQ(scales)
	}
	codes, index, t, isNaN := YMM(), YMM(), YMM(), YMM()
	VPERMQ(U8(0xD8), Mem{Base: src}, codes) // so that unpacking in lanes gives words in order
	VPAND(magnitude, codes, t)
	VPCMPEQB(magnitude, t, isNaN)
	VPCMPGTB(t, eight, index) // magnitude < 8: exponent 0
	VPAND(eight, index, index)
	VPAND(mantissa, codes, t)
	VPOR(t, index, index)
	l, h := YMM(), YMM()
	VPSHUFB(index, lo, l)
	VPSHUFB(index, hi, h)
	for i := range 2 {
		word, code, mask := YMM(), YMM(), YMM()
		if i == 0 {
			VPUNPCKLBW(h, l, word)
			VPUNPCKLBW(zero, codes, code)
			VPUNPCKLBW(isNaN, isNaN, mask)
		} else {
			VPUNPCKHBW(h, l, word)
			VPUNPCKHBW(zero, codes, code)
			VPUNPCKHBW(isNaN, isNaN, mask)
		}
		add := YMM()
		VPAND(exponent, code, add)
		VPSLLW(U8(4), add, add)
		VPADDW(add, word, word)
		VPSRLW(U8(7), code, code) // the sign
		VPSLLW(U8(15), code, code)
		VPXOR(code, word, word)
		VPBLENDVB(mask, nan, word, word)
		VMOVDQU(word, Mem{Base: dst, Disp: 32 * i})
	}
	ADDQ(U8(32), src)
	ADDQ(U8(64), dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	if !grouped {
		Label("next")
		DECQ(blocks)
		JMP(LabelRef("block"))
	}
	Label("done")
	VZEROUPPER()
	RET()
}
