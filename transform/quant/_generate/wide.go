package main

import (
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The kernels of this file need AVX-512 F, BW, DQ, VL and VBMI. Where they look up tables of 16 entries, the entries are words, twice in a register:
// the fifth bit of an index does not matter.

// broadcastWide is a ZMM register with a 32-bit constant in every place.
func broadcastWide(v uint32) reg.VecVirtual {
	g, z := GP32(), ZMM()
	MOVL(U32(v), g)
	VPBROADCASTD(g, z)
	return z
}

// roundingWide holds the constants that every rounding needs.
type roundingWide struct{ one, bias, nan reg.VecVirtual }

func newRoundingWide() roundingWide {
	return roundingWide{one: broadcastWide(1), bias: broadcastWide(0x7FFF), nan: broadcastWide(0x7FC0)}
}

// round leaves the BF16 bits of each binary32 of v in its low half, the high half being 0.
func (r roundingWide) round(v reg.VecVirtual) {
	t, unordered := ZMM(), K()
	VCMPPS(U8(3), v, v, unordered)
	VPSRLD(U8(16), v, t)
	VPANDD(r.one, t, t)
	VPADDD(r.bias, t, t)
	VPADDD(t, v, v)
	VPSRLD(U8(16), v, v)
	VMOVDQA32(r.nan, unordered, v)
}

// nibbleIndexes spreads 16 bytes at src to 32 words in order, of which the low four bits are a code and the others of no use.
func nibbleIndexes(src Mem, high bool) reg.VecVirtual {
	x, y := ZMM(), ZMM()
	VPMOVZXBD(src, x)
	if high {
		VPSLLD(U8(16), x, y)
		VPSRLD(U8(4), x, x)
	} else {
		VPSLLD(U8(12), x, y)
	}
	VPORD(y, x, x)
	return x
}

// fp4Wide applies the table of the scale byte of every group.
func fp4Wide(name string, group int, high bool, doc string) {
	text(name, "func(dst, src, scales *byte, tables *[256][32]byte, n int)", doc+" Tables have 16 words.")
	dst, src, scales := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("scales"), GP64())
	tables, n := Load(Param("tables"), GP64()), Load(Param("n"), GP64())
	var mask, second reg.VecVirtual
	if group == 16 { // indexes of the second 16 words point to the second table
		mask, second = broadcastWide(0x000F000F), ZMM()
		VPXORD(second, second, second)
		half := YMM()
		g := GP32()
		MOVL(U32(0x00100010), g)
		VPBROADCASTD(g, half)
		VINSERTI64X4(U8(1), half, second, second)
	}
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	a, table := GP64(), ZMM()
	MOVBQZX(Mem{Base: scales}, a)
	SHLQ(U8(5), a)
	index := nibbleIndexes(Mem{Base: src}, high)
	if group == 32 {
		VBROADCASTI64X4(Mem{Base: tables, Index: a, Scale: 1}, table)
	} else {
		b := GP64()
		MOVBQZX(Mem{Base: scales, Disp: 1}, b)
		SHLQ(U8(5), b)
		VMOVDQU64(Mem{Base: tables, Index: a, Scale: 1}, table.AsY())
		VINSERTI64X4(U8(1), Mem{Base: tables, Index: b, Scale: 1}, table, table)
		VPTERNLOGD(U8(0xEA), second, mask, index) // index AND mask OR second
	}
	VPERMW(table, index, table)
	VMOVDQU64(table, Mem{Base: dst})
	ADDQ(U8(16), src)
	ADDQ(U8(64), dst)
	ADDQ(U8(32/group), scales)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// arithmetic is what a group's parameters do to a code.
type arithmetic int

const (
	subtract arithmetic = iota // f32(code - second) * scale
	addBias                    // f32(code * scale) + second
	multiply                   // code * scale
)

// apply does it to 16 values.
func (a arithmetic) apply(v, scale, second reg.VecVirtual) {
	if a == subtract {
		VSUBPS(second, v, v)
	}
	VMULPS(scale, v, v)
	if a == addBias {
		VADDPS(second, v, v)
	}
}

// groupsNibbles decodes nibbles of whole groups through a table that it makes for each group out of the values of the 16 codes.
func groupsNibbles(name string, a arithmetic, high bool, doc ...string) {
	text(name, "func(dst, src *byte, values *[16]float32, scales, seconds *float32, groups, units int)", doc...)
	dst, src, p := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("values"), GP64())
	scales, seconds := Load(Param("scales"), GP64()), Load(Param("seconds"), GP64())
	groups, units := Load(Param("groups"), GP64()), Load(Param("units"), GP64())
	values := ZMM()
	VMOVUPS(Mem{Base: p}, values)
	r := newRoundingWide()
	Label("group")
	TESTQ(groups, groups)
	JZ(LabelRef("done"))
	table, scale, second := ZMM(), ZMM(), ZMM()
	VMOVAPS(values, table)
	VBROADCASTSS(Mem{Base: scales}, scale)
	if a != multiply {
		VBROADCASTSS(Mem{Base: seconds}, second)
	}
	a.apply(table, scale, second)
	r.round(table)
	VPMOVDW(table, table.AsY())
	VINSERTI64X4(U8(1), table.AsY(), table, table)
	n := GP64()
	MOVQ(units, n)
	Label("unit")
	index := nibbleIndexes(Mem{Base: src}, high)
	VPERMW(table, index, index)
	VMOVDQU64(index, Mem{Base: dst})
	ADDQ(U8(16), src)
	ADDQ(U8(64), dst)
	DECQ(n)
	JNZ(LabelRef("unit"))
	ADDQ(U8(4), scales)
	if a != multiply {
		ADDQ(U8(4), seconds)
	}
	DECQ(groups)
	JMP(LabelRef("group"))
	Label("done")
	VZEROUPPER()
	RET()
}

// groupsBytes decodes one-byte codes of whole groups by arithmetic.
func groupsBytes(name string, a arithmetic, signed bool, doc ...string) {
	text(name, "func(dst, codes *byte, scales, seconds *float32, groups, units int)", doc...)
	dst, codes := Load(Param("dst"), GP64()), Load(Param("codes"), GP64())
	scales, seconds := Load(Param("scales"), GP64()), Load(Param("seconds"), GP64())
	groups, units := Load(Param("groups"), GP64()), Load(Param("units"), GP64())
	wide := strings.HasSuffix(name, "Wide")
	register := YMM
	if wide {
		register = ZMM
	}
	var narrow rounding
	var r roundingWide
	if wide {
		r = newRoundingWide()
	} else {
		narrow = newRounding()
	}
	Label("group")
	TESTQ(groups, groups)
	JZ(LabelRef("done"))
	scale, second := register(), register()
	VBROADCASTSS(Mem{Base: scales}, scale)
	VBROADCASTSS(Mem{Base: seconds}, second)
	n := GP64()
	MOVQ(units, n)
	Label("unit")
	value := func(at int) reg.VecVirtual {
		v := register()
		if signed {
			VPMOVSXBD(Mem{Base: codes, Disp: at}, v)
		} else {
			VPMOVZXBD(Mem{Base: codes, Disp: at}, v)
		}
		VCVTDQ2PS(v, v)
		a.apply(v, scale, second)
		return v
	}
	if wide {
		v := value(0)
		r.round(v)
		VPMOVDW(v, Mem{Base: dst})
	} else {
		v, w := value(0), value(8)
		narrow.round(v)
		narrow.round(w)
		store(v, w, Mem{Base: dst})
	}
	ADDQ(U8(16), codes)
	ADDQ(U8(32), dst)
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

// columnsBytes decodes unsigned one-byte codes of which each has a scale and a zero point of its own.
func columnsBytes(name string, doc string) {
	text(name, "func(dst, codes *byte, scales, zeros *float32, n int)", doc)
	dst, codes := Load(Param("dst"), GP64()), Load(Param("codes"), GP64())
	scales, zeros, n := Load(Param("scales"), GP64()), Load(Param("zeros"), GP64()), Load(Param("n"), GP64())
	r := newRounding()
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	var v [2]reg.VecVirtual
	for i := range v {
		v[i] = YMM()
		VPMOVZXBD(Mem{Base: codes, Disp: 8 * i}, v[i])
		VCVTDQ2PS(v[i], v[i])
		VSUBPS(Mem{Base: zeros, Disp: 32 * i}, v[i], v[i])
		VMULPS(Mem{Base: scales, Disp: 32 * i}, v[i], v[i])
		r.round(v[i])
	}
	store(v[0], v[1], Mem{Base: dst})
	ADDQ(U8(16), codes)
	ADDQ(U8(32), dst)
	ADDQ(U8(64), scales)
	ADDQ(U8(64), zeros)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// broadcastParam is a binary32 parameter in every place.
func broadcastParam(name string) reg.VecVirtual {
	c, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	z := ZMM()
	VBROADCASTSS(c.Addr, z)
	return z
}

// buildTable makes the table of all codes under a scale and a zero point.
func buildTable() {
	text("buildTableWide", "func(table *[512]byte, values *[256]float32, zero, scale float32)",
		"buildTableWide makes bf16(f32(value-zero)*scale) of 256 values: 256 low bytes, then 256 high bytes.")
	table, values := Load(Param("table"), GP64()), Load(Param("values"), GP64())
	zero, scale := broadcastParam("zero"), broadcastParam("scale")
	r := newRoundingWide()
	for i := range 16 {
		v := ZMM()
		VMOVUPS(Mem{Base: values, Disp: 64 * i}, v)
		subtract.apply(v, scale, zero)
		r.round(v)
		VPMOVDB(v, Mem{Base: table, Disp: 16 * i})
		VPSRLD(U8(8), v, v)
		VPMOVDB(v, Mem{Base: table, Disp: 256 + 16*i})
	}
	VZEROUPPER()
	RET()
}

// constants are the read-only data that constant has made.
var constants = map[string]Mem{}

// constant is 64 bytes of read-only data in a register.
func constant(name string, words func(i int) uint16) reg.VecVirtual {
	data, made := constants[name]
	if !made {
		data = GLOBL(name, attr.RODATA|attr.NOPTR)
		for i := range 32 {
			DATA(2*i, U16(words(i)))
		}
		constants[name] = data
	}
	z := ZMM()
	VMOVDQU64(data, z)
	return z
}

// lookupTables replaces one-byte codes by their entries of tables of buildTable.
func lookupTables() {
	text("lookupTablesWide", "func(dst, src *byte, tables *[512]byte, n, blocks int)",
		"lookupTablesWide replaces blocks times n codes by their entries in the table of their block: 256 low bytes and 256 high bytes.")
	dst, src, table := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("tables"), GP64())
	size, blocks := Load(Param("n"), GP64()), Load(Param("blocks"), GP64())
	// Eight-byte places 0 4 1 5 2 6 3 7, so that unpacking within lanes gives words in order.
	order := constant("order8", func(i int) uint16 {
		if i%4 != 0 {
			return 0
		}
		return uint16(i/8 + i/4%2*4)
	})
	mask, k, low, high := GP64(), K(), K(), K()
	rest := GP64()
	MOVQ(size, rest)
	ANDQ(U8(63), rest)
	MOVQ(I64(-1), mask)
	BZHIQ(rest, mask, mask)
	KMOVQ(mask, k)
	KMOVQ(mask, low)
	KSHIFTRQ(U8(32), k, high)
	var t [8]reg.VecVirtual
	for i := range t {
		t[i] = ZMM()
	}
	words := func(codes reg.VecVirtual) (first, second reg.VecVirtual) {
		VPERMQ(codes, order, codes)
		upper := K()
		VPMOVB2M(codes, upper)
		var plane [2]reg.VecVirtual
		for i := range plane {
			a, b := ZMM(), ZMM()
			VMOVDQA64(codes, a)
			VMOVDQA64(codes, b)
			VPERMI2B(t[4*i+1], t[4*i], a)
			VPERMI2B(t[4*i+3], t[4*i+2], b)
			VMOVDQU8(b, upper, a)
			plane[i] = a
		}
		first, second = ZMM(), ZMM()
		VPUNPCKLBW(plane[1], plane[0], first)
		VPUNPCKHBW(plane[1], plane[0], second)
		return first, second
	}
	Label("block")
	TESTQ(blocks, blocks)
	JZ(LabelRef("done"))
	for i := range t {
		VMOVDQU64(Mem{Base: table, Disp: 64 * i}, t[i])
	}
	ADDQ(I32(512), table)
	n := GP64()
	MOVQ(size, n)
	Label("loop")
	CMPQ(n, U8(64))
	JLT(LabelRef("tail"))
	codes := ZMM()
	VMOVDQU64(Mem{Base: src}, codes)
	first, second := words(codes)
	VMOVDQU64(first, Mem{Base: dst})
	VMOVDQU64(second, Mem{Base: dst, Disp: 64})
	ADDQ(I32(64), src)
	ADDQ(I32(128), dst)
	SUBQ(I32(64), n)
	JMP(LabelRef("loop"))
	Label("tail")
	TESTQ(n, n)
	JZ(LabelRef("next"))
	codes = ZMM()
	VMOVDQU8_Z(Mem{Base: src}, k, codes)
	first, second = words(codes)
	VMOVDQU16(first, low, Mem{Base: dst})
	VMOVDQU16(second, high, Mem{Base: dst, Disp: 64})
	ADDQ(n, src)
	LEAQ(Mem{Base: dst, Index: n, Scale: 2}, dst)
	Label("next")
	DECQ(blocks)
	JMP(LabelRef("block"))
	Label("done")
	VZEROUPPER()
	RET()
}

// e4m3Wide is e4m3 with tables of 16 words.
func e4m3Wide(name string, grouped bool, doc string) {
	text(name, map[bool]string{false: "func(dst, src *byte, tables *[32]byte, n, blocks int)", true: "func(dst, src, scales *byte, tables *[256][32]byte, n int)"}[grouped],
		doc+" A table has 16 words: as e4m3Groups32 has them.")
	dst, src, tables := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("tables"), GP64())
	n, table, end := GP64(), ZMM(), "done"
	var scales, blocks, size reg.Register
	if grouped {
		scales = Load(Param("scales"), GP64())
		Load(Param("n"), n)
	} else {
		blocks, size = Load(Param("blocks"), GP64()), Load(Param("n"), GP64())
	}
	mantissa, eight, exponent := broadcastWide(0x00070007), broadcastWide(0x00080008), broadcastWide(0x00780078)
	magnitude, sign, nan := broadcastWide(0x007F007F), broadcastWide(0x80008000), broadcastWide(0x7FC07FC0)
	if !grouped {
		Label("block")
		TESTQ(blocks, blocks)
		JZ(LabelRef("done"))
		VBROADCASTI64X4(Mem{Base: tables}, table)
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
		VBROADCASTI64X4(Mem{Base: tables, Index: at, Scale: 1}, table)
		INCQ(scales)
	}
	x, t, isZero, isNaN := ZMM(), ZMM(), K(), K()
	VPMOVZXBW(Mem{Base: src}, x)
	VPTESTNMW(exponent, x, isZero)
	VPANDD(magnitude, x, t)
	VPCMPEQW(magnitude, t, isNaN)
	index, word := ZMM(), ZMM()
	VPANDD(mantissa, x, index)
	VPADDW(eight, index, isZero, index)
	VPERMW(table, index, word)
	VPANDD(exponent, x, t)
	VPSLLW(U8(4), t, t)
	VPADDW(t, word, word)
	VPSLLW(U8(8), x, x)
	VPTERNLOGD(U8(0x78), sign, x, word) // word XOR (x AND sign)
	VMOVDQU16(nan, isNaN, word)
	VMOVDQU64(word, Mem{Base: dst})
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

// unpackBits spreads dense codes of any width to bytes.
func unpackBits() {
	text("unpackBitsWide", "func(dst, src *byte, n, bits int)", "unpackBitsWide writes n times 64 codes of 1 to 8 bits as bytes, the low bits first.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	bits, step := GP64(), GP64()
	Load(Param("bits"), bits)
	MOVQ(bits, step)
	SHLQ(U8(3), step) // bytes of 64 codes
	mask, k := GP64(), K()
	MOVQ(I64(-1), mask)
	BZHIQ(step, mask, mask)
	KMOVQ(mask, k)
	// Eight codes begin at byte q*bits: qword q gets bytes q*bits to q*bits+7, of which code i begins at bit i*bits.
	place := constant("bytePlaces", func(i int) uint16 { return uint16(2*i%8) | uint16(2*i%8+1)<<8 })
	lane := constant("qwordNumbers", func(i int) uint16 { return uint16(i/4) | uint16(i/4)<<8 })
	// bits*lane fits a byte: 8*7; bits*i for i in 0..7 too.
	b16 := ZMM()
	VPBROADCASTW(bits.As32(), b16)
	shift := ZMM()
	multiplyBytes(lane, b16, lane)
	multiplyBytes(place, b16, shift)
	VPADDB(lane, place, place)
	low, g := ZMM(), GP32()
	MOVL(I32(-1), g)
	BZHIL(bits.As32(), g, g)
	VPBROADCASTB(g, low)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	x := ZMM()
	VMOVDQU8_Z(Mem{Base: src}, k, x)
	VPERMB(x, place, x)
	VPMULTISHIFTQB(x, shift, x)
	VPANDD(low, x, x)
	VMOVDQU64(x, Mem{Base: dst})
	ADDQ(step, src)
	ADDQ(I32(64), dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// multiplyBytes multiplies each byte of x by the low byte of the words of factor; products are below 256.
func multiplyBytes(x, factor, to reg.VecVirtual) {
	even, odd := ZMM(), ZMM()
	VPSRLW(U8(8), x, odd)
	VPMULLW(factor, odd, odd)
	VPSLLW(U8(8), odd, odd)
	VPSLLW(U8(8), x, even)
	VPSRLW(U8(8), even, even)
	VPMULLW(factor, even, even)
	VPORD(odd, even, to)
}

// castWide rounds 16 values at a time.
func castWide(name string, bytes int, doc string, load func(src Mem, v reg.VecVirtual)) {
	text(name, "func(dst, src *byte, n int)", doc)
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	r := newRoundingWide()
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	v := ZMM()
	load(Mem{Base: src}, v)
	r.round(v)
	VPMOVDW(v, Mem{Base: dst})
	ADDQ(U8(16*bytes), src)
	ADDQ(U8(32), dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// wide makes all kernels for AVX-512.
func wide() {
	fp4Wide("fp4Groups32Wide", 32, false, "fp4Groups32Wide decodes n times 32 codes, the low nibble first, one scale byte for 32.")
	fp4Wide("fp4Groups16Wide", 16, false, "fp4Groups16Wide decodes n times 32 codes, the low nibble first, one scale byte for 16.")
	fp4Wide("fp4Groups16HighWide", 16, true, "fp4Groups16HighWide decodes n times 32 codes, the high nibble first, one scale byte for 16.")
	groupsNibbles("subtract4Wide", subtract, false, "subtract4Wide makes bf16((value-second)*scale) of 4-bit codes, the low nibble first, in groups of units times 32 codes, each with",
		"its own parameters.")
	groupsNibbles("bias4Wide", addBias, false, "bias4Wide makes bf16(f32(value*scale)+second) in the same way.")
	groupsNibbles("multiply4HighWide", multiply, true, "multiply4HighWide makes bf16(value*scale), the high nibble first.")
	groupsBytes("subtract8Wide", subtract, false, "subtract8Wide makes bf16((code-second)*scale) of unsigned one-byte codes in groups of units times 16, each with its own parameters.")
	groupsBytes("bias8Wide", addBias, false, "bias8Wide makes bf16(f32(code*scale)+second) in the same way.")
	groupsBytes("signed8Wide", subtract, true, "signed8Wide makes bf16((code-second)*scale) of signed codes.")
	buildTable()
	lookupTables()
	e4m3Wide("lookupE4M3Wide", false, "lookupE4M3Wide decodes blocks times n times 32 E4M3 codes, each block through a table of its own.")
	e4m3Wide("e4m3Groups32Wide", true, "e4m3Groups32Wide decodes n times 32 E4M3 codes, each 32 through the table of their scale byte.")
	unpackBits()
	castWide("castSinglesWide", 4, "castSinglesWide rounds n times 16 binary32 values.", func(src Mem, v reg.VecVirtual) { VMOVUPS(src, v) })
	castWide("castHalvesWide", 2, "castHalvesWide rounds n times 16 binary16 values.", func(src Mem, v reg.VecVirtual) { VCVTPH2PS(src, v) })
}
