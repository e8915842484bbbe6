package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// batch is the number of blocks whose scales encodeWide finds together, one in each place of a register.
const batch = 16

// encodeWide is ONNX Runtime's rule for blocks of 16, 32 and 64 values, 16 blocks at a time.
func encodeWide(symmetric bool) {
	rule := "ORT"
	if symmetric {
		rule = "Symmetric"
	}
	for _, block := range []int{16, 32, 64} {
		name := fmt.Sprintf("encode%s%dWide", rule, block)
		text(name, "func(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32)",
			fmt.Sprintf("%s encodes n times 16 blocks of %d BF16 values: their codes (none if codes is nil), an F16 scale and a zero point (one byte) for each.", name, block),
			"largest is at least 7F80h if a value was infinite or no number, or if a scale was beyond F16.")
		encodeBlocks(block, symmetric)
	}
}

// webAI is the rule of webai-at-home, in binary64, for blocks of 32.
func webAI() {
	const block = 32
	text("encodeWebAI32Wide", "func(codes, values *byte, scales *uint16, zeros *byte, n int) (largest uint32)",
		"encodeWebAI32Wide encodes n times 16 blocks of 32 BF16 values by the rule of webai-at-home: their codes (none if codes is nil), an F16 scale and a",
		"zero point (one byte) for each. largest is as above.")
	codes, values := Load(Param("codes"), GP64()), Load(Param("values"), GP64())
	scales, zeros, n := Load(Param("scales"), GP64()), Load(Param("zeros"), GP64()), Load(Param("n"), GP64())
	bad := GP32()
	XORL(bad, bad)
	divisors, points := AllocLocal(8*batch), AllocLocal(4*batch)
	e := wideEncoder{magnitude: broadcastWide(0x7FFF7FFF), ones: broadcastWide(0xFFFFFFFF), high: broadcastWide(0xFFFF0000)}
	d := doubles{half: broadcastDouble(0x3FE0000000000000), one: broadcastDouble(0x3FF0000000000000), fifteen: broadcastDouble(0x402E000000000000),
		most: broadcastDouble(0x4059000000000000), least: broadcastDouble(0xC059000000000000), zero: broadcastWide(0), maximum: broadcastWide(15)}
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	low, high := e.ranges(values, block, bad)
	d.choose(low, high, divisors, points, scales, zeros, bad)
	TESTQ(codes, codes)
	JZ(LabelRef("scalesOnly"))
	i, from := GP64(), GP64()
	XORQ(i, i)
	MOVQ(values, from)
	Label("quantize")
	divisor, point := ZMM(), YMM()
	VBROADCASTSD(Mem{Base: divisors.Base, Disp: divisors.Disp, Index: i, Scale: 8}, divisor)
	VPBROADCASTD(Mem{Base: points.Base, Disp: points.Disp, Index: i, Scale: 4}, point)
	even, odd := ZMM(), ZMM()
	VPSLLD(U8(16), Mem{Base: from}, even)
	VPANDD(Mem{Base: from}, e.high, odd)
	for h := range 2 {
		a, b := d.quantize(even, h, divisor, point), d.quantize(odd, h, divisor, point)
		VPSLLD(U8(4), b, b)
		VPORD(b, a, a)
		VPMOVDB(a, Mem{Base: codes, Disp: 8 * h})
	}
	ADDQ(I32(2*block), from)
	ADDQ(U8(block/2), codes)
	INCQ(i)
	CMPQ(i, U8(batch))
	JLT(LabelRef("quantize"))
	nextBatch(values, scales, zeros, n, bad, block, batch)
}

// broadcastDouble is a ZMM register with a binary64 constant in every place.
func broadcastDouble(bits uint64) reg.VecVirtual {
	g, z := GP64(), ZMM()
	MOVQ(U64(bits), g)
	VPBROADCASTQ(g, z)
	return z
}

// doubles are binary64 constants, but for maximum, which is 15 in every 32-bit place.
type doubles struct{ half, one, fifteen, most, least, zero, maximum reg.VecVirtual }

// round is the nearest integers to x, halves up, what is beyond 100 either way counting as 100: 8 places of 32 bits.
func (d *doubles) round(x reg.VecVirtual) reg.VecVirtual {
	n := YMM()
	VMINPD(d.most, x, x)
	VMAXPD(d.least, x, x)
	VADDPD_RD_SAE(d.half, x, x) // down, so that what is below a half never reaches the next integer
	VCVTPD2DQ_RD_SAE(x, n)
	return n
}

// clamp brings integers within 0 to 15.
func (d *doubles) clamp(n reg.VecVirtual) {
	VPMAXSD(d.zero.AsY(), n, n)
	VPMINSD(d.maximum.AsY(), n, n)
}

// half8 is values 8h to 8h+7 of x as binary64.
func half8(x reg.VecVirtual, h int) reg.VecVirtual {
	z := ZMM()
	if h == 0 {
		VCVTPS2PD(x.AsY(), z)
		return z
	}
	y := YMM()
	VEXTRACTF64X4(U8(1), x, y)
	VCVTPS2PD(y, z)
	return z
}

// choose keeps the divisors and zero points of 16 blocks, and stores scales and zero points. bad becomes 1 where a scale is beyond F16.
func (d *doubles) choose(low, high reg.VecVirtual, divisors, points Mem, scales, zeros reg.Register, bad reg.GPVirtual) {
	for h := range 2 {
		mn, s, equal := half8(low, h), half8(high, h), K()
		VCMPPD(U8(0), mn, s, equal)
		VSUBPD(mn, s, s)
		VDIVPD(d.fifteen, s, s)
		VMOVAPD(d.one, equal, s)
		VMOVUPD(s, Mem{Base: divisors.Base, Disp: divisors.Disp + 64*h})
		single, stored, word, k := YMM(), XMM(), GP32(), K()
		VCVTPD2PS(s, single)
		VCVTPS2PH(U8(0), single, stored)
		VMOVDQU64(stored, Mem{Base: scales, Disp: 16 * h})
		limit := XMM()
		MOVL(U32(0x7C007C00), word)
		VPBROADCASTD(word, limit)
		VPANDD(limit, stored, stored)
		VPCMPEQW(limit, stored, k)
		KMOVD(k, word)
		ORL(word, bad)
		VSUBPD(mn, d.zero, mn)
		VDIVPD(s, mn, mn)
		z := d.round(mn)
		d.clamp(z)
		VMOVDQU64(z, Mem{Base: points.Base, Disp: points.Disp + 32*h})
		VPMOVDB(z, Mem{Base: zeros, Disp: 8 * h})
	}
}

// quantize is the codes of values 8h to 8h+7 of x, one in each 32-bit place.
func (d *doubles) quantize(x reg.VecVirtual, h int, divisor, point reg.VecVirtual) reg.VecVirtual {
	v := half8(x, h)
	VDIVPD(divisor, v, v)
	n := d.round(v)
	VPADDD(point, n, n)
	d.clamp(n)
	return n
}

func encodeBlocks(block int, symmetric bool) {
	codes, values := Load(Param("codes"), GP64()), Load(Param("values"), GP64())
	scales, zeros, n := Load(Param("scales"), GP64()), Load(Param("zeros"), GP64()), Load(Param("n"), GP64())
	bad := GP32()
	XORL(bad, bad)
	reciprocals, points := AllocLocal(4*batch), AllocLocal(4*batch)
	e := wideEncoder{
		magnitude: broadcastWide(0x7FFF7FFF), ones: broadcastWide(0xFFFFFFFF), high: broadcastWide(0xFFFF0000),
		half: broadcastWide(0x3F000000), one: broadcastWide(0x3F800000), fifteen: broadcastWide(0x41700000), eight: broadcastWide(0x41000000), zero: broadcastWide(0),
	}
	upper := K()
	if block == 16 {
		g := GP32()
		MOVL(U32(0xFF00), g)
		KMOVW(g, upper)
	}
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	low, high := e.ranges(values, block, bad)
	VMINPS(e.zero, low, low) // of two zeros the second operand, here the first, wins: +0
	VMAXPS(e.zero, high, high)
	var z, r reg.VecVirtual
	if symmetric {
		z, r = e.chooseSymmetric(low, high, scales, bad)
	} else {
		z, r = e.chooseScale(low, high, scales, zeros, bad)
	}
	VMOVUPS(r, reciprocals)
	VMOVUPS(z, points)
	TESTQ(codes, codes)
	JZ(LabelRef("scalesOnly"))

	i, from := GP64(), GP64()
	XORQ(i, i)
	MOVQ(values, from)
	Label("quantize")
	at := func(m Mem, d int) Mem { m.Index, m.Scale, m.Disp = i, 4, m.Disp+d; return m }
	rz, zz := ZMM(), ZMM()
	VBROADCASTSS(at(reciprocals, 0), rz)
	VBROADCASTSS(at(points, 0), zz)
	if block == 16 { // two blocks in a register
		VBROADCASTSS(at(reciprocals, 4), upper, rz)
		VBROADCASTSS(at(points, 4), upper, zz)
	}
	for u := range max(block/32, 1) {
		e.quantize(Mem{Base: from, Disp: 64 * u}, Mem{Base: codes, Disp: 16 * u}, rz, zz)
	}
	ADDQ(I32(max(2*block, 64)), from)
	ADDQ(I32(max(block/2, 16)), codes)
	ADDQ(U8(max(32/block, 1)), i)
	CMPQ(i, U8(batch))
	JLT(LabelRef("quantize"))

	nextBatch(values, scales, zeros, n, bad, block, batch)
}

// wideEncoder holds constants.
type wideEncoder struct{ magnitude, ones, high, half, one, fifteen, eight, zero reg.VecVirtual }

// sortable makes signed words of BF16 bits that compare as the numbers do, but for zeros: -0 is just below 0. It is its own inverse.
func (e *wideEncoder) sortable(x, magnitude reg.VecVirtual) {
	var t reg.VecVirtual = ZMM()
	if x.Size() == 32 {
		t = YMM()
	}
	VPSRAW(U8(15), x, t)
	VPTERNLOGD(U8(0x78), magnitude, t, x) // x XOR (t AND 7FFFh)
}

// extremes is 16 words whose smallest is that of a block, beside 16 words whose smallest is the complement of its largest.
func (e *wideEncoder) extremes(values reg.Register, at, block int) reg.VecVirtual {
	x := ZMM()
	VMOVDQU64(Mem{Base: values, Disp: at}, x)
	e.sortable(x, e.magnitude)
	mn, mx := x, x
	if block == 64 {
		y := ZMM()
		VMOVDQU64(Mem{Base: values, Disp: at + 64}, y)
		e.sortable(y, e.magnitude)
		mn, mx = ZMM(), ZMM()
		VPMINSW(x, y, mn)
		VPMAXSW(x, y, mx)
	}
	h, low := YMM(), YMM()
	VEXTRACTI64X4(U8(1), mn, h)
	VPMINSW(h, mn.AsY(), low)
	high := YMM()
	VEXTRACTI64X4(U8(1), mx, h)
	VPMAXSW(h, mx.AsY(), high)
	VPXORD(e.ones.AsY(), high, high)
	out := ZMM()
	VINSERTI64X4(U8(1), high, low.AsZ(), out)
	return out
}

// tree reduces eight registers: word i of every lane becomes the smallest word of that lane of register i.
func tree(v [8]reg.VecVirtual) reg.VecVirtual {
	pair := func(a, b reg.VecVirtual) reg.VecVirtual {
		l, h := ZMM(), ZMM()
		VPUNPCKLQDQ(b, a, l)
		VPUNPCKHQDQ(b, a, h)
		VPMINSW(l, h, l)
		return l
	}
	four := func(a, b reg.VecVirtual) reg.VecVirtual {
		l, h := ZMM(), ZMM()
		VSHUFPS(U8(0x88), b, a, l)
		VSHUFPS(U8(0xDD), b, a, h)
		VPMINSW(l, h, l)
		return l
	}
	even, odd := four(pair(v[0], v[2]), pair(v[4], v[6])), four(pair(v[1], v[3]), pair(v[5], v[7]))
	t, u := ZMM(), ZMM()
	VPSRLD(U8(16), even, t)
	VPMINSW(t, even, even) // in the low words
	VPSLLD(U8(16), odd, u)
	VPMINSW(u, odd, odd) // in the high words
	k, g := K(), GP32()
	MOVL(U32(0xAAAAAAAA), g)
	KMOVD(g, k)
	VMOVDQU16(odd, k, even)
	return even
}

// ranges are the smallest and largest values of 16 blocks, as binary32. bad becomes 1 where a value is infinite or no number.
func (e *wideEncoder) ranges(values reg.Register, block int, bad reg.GPVirtual) (low, high reg.VecVirtual) {
	var a, b reg.VecVirtual
	name, order := "blocksInOrder", func(i int) uint16 { return uint16(i%8 + i/8%2*16 + i/16*8) }
	if block == 16 {
		// A register has two blocks, whose smallest and largest words have trees of their own.
		name, order = "blocksInPairs", func(i int) uint16 { return uint16(i/2%8 + i%2*8 + i/16*16) }
		var smallest, largest [8]reg.VecVirtual
		for i := range 8 {
			smallest[i] = ZMM()
			VMOVDQU64(Mem{Base: values, Disp: 64 * i}, smallest[i])
			e.sortable(smallest[i], e.magnitude)
		}
		a = tree(smallest)
		for i := range 8 {
			largest[i] = ZMM()
			VMOVDQU64(Mem{Base: values, Disp: 64 * i}, largest[i])
			e.sortable(largest[i], e.magnitude)
			VPXORD(e.ones, largest[i], largest[i])
		}
		b = tree(largest)
	} else {
		for i, to := range []*reg.VecVirtual{&a, &b} {
			var v [8]reg.VecVirtual
			for j := range v {
				v[j] = e.extremes(values, 2*block*(8*i+j), block)
			}
			*to = tree(v)
		}
	}
	// Lanes 0 and 1 belong together, and 2 and 3.
	l, h := ZMM(), ZMM()
	VSHUFI64X2(U8(0x88), b, a, l)
	VSHUFI64X2(U8(0xDD), b, a, h)
	VPMINSW(l, h, l)
	VPERMW(l, constant(name, order), l)
	smallest, largest := l.AsY().(reg.VecVirtual), YMM()
	VEXTRACTI64X4(U8(1), l, largest)
	VPXORD(e.ones.AsY(), largest, largest)
	e.finite(smallest, largest, bad)
	return e.single(smallest), e.single(largest)
}

// finite makes bad 1 where a word of the smallest or largest is that of an infinity or NaN.
func (e *wideEncoder) finite(smallest, largest reg.VecVirtual, bad reg.GPVirtual) {
	for i, x := range []reg.VecVirtual{smallest, largest} {
		limit, g, k := YMM(), GP32(), K()
		MOVL(U32([]uint32{0x807F807F, 0x7F807F80}[i]), g)
		VPBROADCASTD(g, limit)
		VPCMPW(U8([]uint8{2, 5}[i]), limit, x, k) // at most; at least
		KMOVD(k, g)
		ORL(g, bad)
	}
}

// single is the numbers of 16 sortable words.
func (e *wideEncoder) single(x reg.VecVirtual) reg.VecVirtual {
	e.sortable(x, e.magnitude.AsY().(reg.VecVirtual))
	z := ZMM()
	VPMOVZXWD(x, z)
	VPSLLD(U8(16), z, z)
	return z
}

// zeroWhere clears x where y is 0.
func (e *wideEncoder) zeroWhere(y, x reg.VecVirtual) {
	k := K()
	VCMPPS(U8(0), e.zero, y, k)
	VMOVAPS(e.zero, k, x)
}

// chooseScale stores the scales and zero points and returns the zero points and the reciprocals of the stored scales.
func (e *wideEncoder) chooseScale(low, high reg.VecVirtual, scales, zeros reg.Register, bad reg.GPVirtual) (z, r reg.VecVirtual) {
	s := ZMM()
	z = ZMM()
	VSUBPS(low, high, s)
	VDIVPS(e.fifteen, s, s)
	VDIVPS(s, low, z)
	VSUBPS(z, e.zero, z)
	e.zeroWhere(s, z) // a scale of 0 has only zeros, and zero point 0
	VMAXPS(e.zero, z, z)
	VMINPS(e.fifteen, z, z)
	VADDPS_RZ_SAE(e.half, z, z)
	VCVTTPS2DQ(z, z)
	VPMOVDB(z, Mem{Base: zeros})
	VCVTDQ2PS(z, z)
	return z, e.storeScales(s, scales, bad)
}

// chooseSymmetric does the same for the symmetric rule: the value of larger magnitude, the smallest if equal, becomes code 0; the zero point is 8.
func (e *wideEncoder) chooseSymmetric(low, high reg.VecVirtual, scales reg.Register, bad reg.GPVirtual) (z, r reg.VecVirtual) {
	opposite, isHigh := ZMM(), K()
	VSUBPS(low, e.zero, opposite)
	VCMPPS(U8(14), opposite, high, isHigh) // greater
	VMOVAPS(high, isHigh, low)
	VMULPS(broadcastWide(0xBE000000), low, low) // by -1/8: exact unless it underflows, and then F16 gives 0 all the same
	return e.eight, e.storeScales(low, scales, bad)
}

// storeScales stores the scales as F16 and returns the reciprocals of what is stored, 0 for 0. bad becomes 1 where one is infinite or no number.
func (e *wideEncoder) storeScales(s reg.VecVirtual, scales reg.Register, bad reg.GPVirtual) reg.VecVirtual {
	stored, rounded, r := YMM(), ZMM(), ZMM()
	VCVTPS2PH(U8(0), s, stored)
	VMOVDQU64(stored, Mem{Base: scales})
	VCVTPH2PS(stored, rounded)
	limit, g, k := YMM(), GP32(), K()
	MOVL(U32(0x7C007C00), g)
	VPBROADCASTD(g, limit)
	VPANDD(limit, stored, stored)
	VPCMPEQW(limit, stored, k)
	KMOVD(k, g)
	ORL(g, bad)
	VDIVPS(rounded, e.one, r)
	e.zeroWhere(rounded, r)
	return r
}

// quantize stores the codes of 32 values as 16 bytes.
func (e *wideEncoder) quantize(values, codes Mem, r, z reg.VecVirtual) {
	even, odd := ZMM(), ZMM()
	VPSLLD(U8(16), values, even)
	VPANDD(values, e.high, odd)
	for _, x := range []reg.VecVirtual{even, odd} {
		VMULPS(r, x, x)
		VADDPS(z, x, x)
		VMAXPS(e.zero, x, x)
		VMINPS(e.fifteen, x, x)
		VADDPS_RZ_SAE(e.half, x, x) // toward zero, so that truncation then rounds halves up and nothing else
		VCVTTPS2DQ(x, x)
	}
	VPSLLD(U8(4), odd, odd)
	VPORD(odd, even, even)
	VPMOVDB(even, codes)
}

// nextBatch ends the loop over batches of an encoder. It returns 0x7F80 if a bit of bad is set, else 0.
func nextBatch(values, scales, zeros, n, bad reg.Register, block, batch int) {
	Label("scalesOnly")
	ADDQ(I32(2*block*batch), values)
	ADDQ(U8(2*batch), scales)
	ADDQ(U8(batch), zeros)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	result := GP32()
	XORL(result, result)
	TESTL(bad, bad)
	JZ(LabelRef("good"))
	MOVL(U32(0x7F80), result)
	Label("good")
	Store(result, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
