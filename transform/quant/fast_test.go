//go:build !purego

package quant

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weightfs/fs/plan"
)

// reference is the reference kernel of a fast one; others are references themselves.
func reference(k kernel) kernel {
	switch k := k.(type) {
	case fastScaled8:
		return refScaled8{k.scaled8}
	case fastFP4:
		return refFP4{k.fp4}
	case fastPacked:
		return refPacked{k.packed}
	case fastBnb4:
		return refBnb4{k.bnb4}
	case fastHQQ:
		return refHQQ{k.hqq}
	case fastPairedRows:
		return refPairedRows{k.pairedRows}
	case fastBnb8:
		return refBnb8{k.bnb8}
	case fastBitnet:
		return refBitnet{k.bitnet}
	case fastMXFP6:
		return refMXFP6{k.mxfp6}
	case castF32:
		return refCast{castKinds["F32"]}
	case castF16:
		return refCast{castKinds["F16"]}
	case castF8:
		for dtype, codes := range codes8 {
			if codes == k.codes {
				return refCast{castKinds[dtype]}
			}
		}
	}
	return k
}

// at is a fast kernel with the assembly of a level, nil for none; ok is false if the kernel has no assembly.
func at(k kernel, v *vectors) (kernel, bool) {
	switch k := k.(type) {
	case fastScaled8:
		return fastScaled8{k.scaled8, v}, true
	case fastFP4:
		return fastFP4{k.fp4, v}, true
	case fastPacked:
		return fastPacked{k.packed, v}, true
	case fastBnb4:
		return fastBnb4{k.bnb4, v}, true
	case fastHQQ:
		return fastHQQ{k.hqq, v}, true
	case fastPairedRows:
		return fastPairedRows{k.pairedRows, v}, true
	case fastBnb8:
		return fastBnb8{k.bnb8, v}, true
	case fastBitnet:
		return fastBitnet{k.bitnet, v}, true
	case fastMXFP6:
		return fastMXFP6{k.mxfp6, v}, true
	case castF32:
		return castF32{v}, true
	case castF16:
		return castF16{v}, true
	case castF8:
		return newCastF8(k.codes, v), true
	}
	return k, false
}

// levelName is the name of a level, nil being none.
func levelName(v *vectors) string {
	if v == nil {
		return "plain Go"
	}
	return v.name
}

// runnable are the levels of this machine, plain Go among them.
func runnable() []*vectors {
	list := []*vectors{nil}
	for _, v := range levels() {
		if v.missing == "" {
			list = append(list, v)
		}
	}
	return list
}

// TestLevels lists the levels that this machine cannot run: for those the comparisons of this file say nothing. The best of the others is used.
func TestLevels(t *testing.T) {
	list := levels()
	for _, v := range list {
		t.Run(v.name, func(t *testing.T) {
			if v.missing != "" {
				t.Skipf("%s kernels are not compared: the processor lacks %s", v.name, v.missing)
			}
			if slices.Index(list, best) > slices.Index(list, v) {
				t.Errorf("%s is used, not %s", best.name, v.name)
			}
		})
	}
}

// compare runs a kernel at every level, and its reference, over one strip of columns, with every row the same data.
func compare(t *testing.T, what func() string, fast, ref kernel, rows, columns int, in ...[]byte) {
	t.Helper()
	run := func(k kernel) []byte {
		s := strip{dst: make([]byte, 2*rows*columns), dstStride: 2 * columns, rows: rows, c1: columns, in: in, stride: make([]int, len(in))}
		if err := k.decode(&s); err != nil {
			t.Fatal(err)
		}
		return s.dst
	}
	want := run(ref)
	for _, v := range runnable() {
		k, ok := at(fast, v)
		if !ok && v != nil {
			continue
		}
		if got := run(k); !bytes.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%s, %s: element %d is %s, the reference has %s", what(), levelName(v), i/2, bf16Hex(got[i&^1:][:2]), bf16Hex(want[i&^1:][:2]))
				}
			}
		}
	}
}

// scaleClasses are binary32 scales of every kind: all powers of two and neighbours, zeros, infinities, NaNs, both signs, subnormal results, random ones.
func scaleClasses() []float32 {
	list := []float32{0, float32(math.Inf(1)), float32(math.NaN()), math.Float32frombits(0x7FFFFFFF), math.Float32frombits(0x7F800001),
		math.MaxFloat32, math.SmallestNonzeroFloat32, math.Float32frombits(0x007FFFFF), math.Float32frombits(0x7F7F8000), math.Float32frombits(0x7F7F7FFF)}
	for e := -149; e <= 127; e++ {
		p := float32(math.Ldexp(1, e))
		list = append(list, p, math.Nextafter32(p, 0), math.Nextafter32(p, 2*p), float32(float64(p)*1.2345678), float32(float64(p)*1.9921875))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		list = append(list, math.Float32frombits(r.Uint32()), math.Float32frombits(0x39000000+r.Uint32N(1<<25)))
	}
	for _, f := range list {
		list = append(list, -f)
	}
	return list
}

// every is every step-th element.
func every[T any](list []T, step int) []T {
	var out []T
	for i := 0; i < len(list); i += step {
		out = append(out, list[i])
	}
	return out
}

// scaleBytes are scales in a dtype: all of them but for F32.
func scaleBytes(n number) [][]byte {
	var list [][]byte
	switch n {
	case numF32:
		for _, f := range scaleClasses() {
			list = append(list, le32(math.Float32bits(f)))
		}
	case numBF16, numF16:
		for b := range 1 << 16 {
			list = append(list, le16(uint16(b)))
		}
	default:
		for b := range 256 {
			list = append(list, []byte{byte(b)})
		}
	}
	return list
}

func allCodes(repeat int) []byte {
	out := make([]byte, 256*repeat)
	for i := range out {
		out[i] = byte(i)
	}
	return out
}

func TestScaled8EqualsReference(t *testing.T) {
	data := allCodes(2)
	for dtype, codes := range codes8 {
		for _, num := range []number{numF32, numBF16, numF16, numE8M0} {
			k := scaled8{codes: codes, scale: num, bn: 512}
			scales := scaleBytes(num)
			switch {
			case len(scales) <= 256:
			case dtype == "F8_E4M3" && num == numBF16:
				scales = every(scales, 3)
			default:
				scales = every(scales, 31)
			}
			for _, s := range scales {
				compare(t, func() string { return fmt.Sprintf("%s with %s scale %x", dtype, num, s) }, k.kernel(), refScaled8{k}, 1, 512, data, s)
			}
		}
	}
	for first := 0; first < 256; first += 16 {
		scales := allCodes(1)[first:][:16]
		for dtype, codes := range codes8 {
			k := scaled8{codes: codes, scale: numE8M0, bn: 32}
			compare(t, func() string { return fmt.Sprintf("%s, groups with scales from %d", dtype, first) }, k.kernel(), refScaled8{k}, 1, 512, data, scales)
		}
	}
	for zero := range 256 {
		k := scaled8{codes: i8Values, scale: numF32, bn: 512, zero: numI8}
		compare(t, func() string { return fmt.Sprintf("zero %d", zero) }, k.kernel(), refScaled8{k}, 1, 512, data, le32(0x3C23D70A), []byte{byte(zero)})
	}
}

func TestFP4EqualsReference(t *testing.T) {
	var data []byte
	for b := range 256 {
		data = append(data, byte(b))
	}
	scales := make([]byte, 32)
	for _, k := range []fp4{
		{group: 32, scale: numE8M0}, {group: 16, scale: numE4M3}, {group: 16, scale: numE4M3, second: secondMultiplies},
		{group: 16, scale: numE4M3, second: secondDivides}, {group: 16, scale: numE4M3, second: secondMultiplies, highFirst: true},
		{group: 16, scale: numE4M3, second: secondOfMLX},
	} {
		seconds, rows := every(scaleBytes(numF32), 61), fillAll/512
		if k.second == secondNone {
			seconds, rows = seconds[:1], 1
		}
		for _, second := range seconds {
			for first := 0; first < 256; first += len(scales) {
				for i := range scales {
					scales[i] = byte(first + i)
				}
				compare(t, func() string { return fmt.Sprintf("%s, scales from %02x, second %x", k.params(), first, second) }, k.kernel(), refFP4{k}, rows, 512, data, scales, second)
			}
		}
	}
}

func TestPackedEqualsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for bits := 1; bits <= 8; bits++ {
		const columns = 512 // one group; of 4 and 8 bits every byte, under each scale at other places
		data := make([]byte, columns*bits/8)
		for _, k := range []packed{
			{bits: bits, group: columns, groups: 1, scale: numF32},
			{bits: bits, group: columns, groups: 1, scale: numF32, zero: zeroPacked},
			{bits: bits, group: columns, groups: 1, scale: numF32, zero: zeroNone, bias: true},
		} {
			for n, s := range every(scaleClasses(), 23) {
				for i := range data {
					data[i] = byte(i*(2*n+1) + n)
				}
				extra := le32(r.Uint32())
				if k.zero == zeroPacked {
					extra = append(extra, le32(r.Uint32())...)
				}
				compare(t, func() string { return fmt.Sprintf("%s, scale %x", k.params(), math.Float32bits(s)) }, k.kernel(), refPacked{k}, 1, columns, data, le32(math.Float32bits(s)), extra)
			}
		}
	}
}

func TestBnb4EqualsReference(t *testing.T) {
	scales := scaleClasses()
	for _, k := range []bnb4{{table: nf4Values}, {table: bnbFP4}} {
		for _, s := range scales {
			compare(t, func() string { return fmt.Sprintf("absmax %x", math.Float32bits(s)) }, k.kernel(), refBnb4{k}, 1, 512, allCodes(1), le32(math.Float32bits(s)))
		}
		// As rows of blocks, one absmax each, and a last one that is short.
		for _, in := range []int64{32, 64, 96, 256} {
			n := in*int64(len(scales)) - 6
			c := &rowCodec{experts: 1, out: ceilDiv(n, in), in: in, size: 2 * n, unit: 2, kernel: k.kernel(), inputs: []rowInput{
				{rowBytes: in / 2, perExpert: ceilDiv(n, in), num: 1, den: 1, size: n / 2, unitBytes: 1}, rowData(4, 1, ceilDiv(n, in), 0)}}
			inputs := [][]byte{random{rand.New(rand.NewPCG(11, 11))}.bytes(int(n / 2)), nil}
			for _, s := range scales {
				inputs[1] = append(inputs[1], le32(math.Float32bits(s))...)
			}
			ref := *c
			ref.kernel = refBnb4{k}
			want := whole(t, &ref, inputs)
			for _, v := range runnable() {
				fast := *c
				fast.kernel, _ = at(c.kernel, v)
				if !bytes.Equal(whole(t, &fast, inputs), want) {
					t.Errorf("%s: blocks of %d differ from the reference", levelName(v), in)
				}
			}
		}
	}
}

func TestCastsEqualReference(t *testing.T) {
	var half, single []byte
	for b := range 1 << 16 {
		half = append(half, le16(uint16(b))...)
	}
	for _, f := range scaleClasses() {
		u := math.Float32bits(f)
		for _, v := range []uint32{u, u&0xFFFF0000 | 0x8000, u | 0x18000&0x1FFFF, u + 0x7FFF, u ^ 0x8001} {
			single = append(single, le32(v)...)
		}
	}
	compare(t, func() string { return "F16" }, castKernel("F16"), refCast{castKinds["F16"]}, 1, len(half)/2, half)
	for odd := range 20 {
		compare(t, func() string { return "F32" }, castKernel("F32"), refCast{castKinds["F32"]}, 1, len(single)/4-odd, single[4*odd:])
	}
	for dtype := range codes8 {
		if kind, ok := castKinds[dtype]; ok {
			compare(t, func() string { return dtype }, castKernel(dtype), refCast{kind}, 1, 256, allCodes(1))
		}
	}
}

// randomBytes are n bytes of which r decides the seed.
func randomBytes(r *rapid.T, n int64) []byte {
	src := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(src.Uint32())
	}
	return out
}

// TestFastCodecsEqualReference compares whole codecs of odd shapes, partial blocks, one row and one column over random bytes.
func TestFastCodecsEqualReference(t *testing.T) {
	for name, draw := range map[string]func(r *rapid.T, experts, out, in int64) *rowCodec{"one byte": drawScaled8, "fp4": drawFP4, "packed": drawPacked, "cast": drawCast} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				experts, out := rapid.Int64Range(1, 3).Draw(r, "experts"), rapid.Int64Range(1, 70).Draw(r, "out")
				compareCodec(r, draw(r, experts, out, rapid.Int64Range(1, 700).Draw(r, "in")))
			})
		})
	}
}

func drawScaled8(r *rapid.T, experts, out, in int64) *rowCodec {
	block := [2]int{rapid.IntRange(1, 64).Draw(r, "bm"), rapid.IntRange(1, 300).Draw(r, "bn")}
	num := rapid.SampledFrom([]number{numF32, numBF16, numF16, numE8M0}).Draw(r, "scale")
	shape := []int64{experts, ceilDiv(out, int64(block[0])), ceilDiv(in, int64(block[1]))}
	g, err := findGrid([]int64{experts, out, in}, shape, block)
	if err != nil {
		r.Fatal(err)
	}
	dtype := rapid.SampledFrom([]string{"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "I8"}).Draw(r, "dtype")
	return newScaled8(Tensor{DType: dtype, Shape: []int64{experts, out, in}}, scaled8{codes: codes8[dtype], scale: num, bn: int(g.bn)}, g)
}

func drawFP4(r *rapid.T, experts, out, in int64) *rowCodec {
	k := rapid.SampledFrom([]fp4{{group: 32, scale: numE8M0}, {group: 16, scale: numE4M3}, {group: 16, scale: numE4M3, highFirst: true}}).Draw(r, "fp4")
	k.second = rapid.SampledFrom([]secondScale{secondNone, secondMultiplies, secondDivides, secondOfMLX}).Draw(r, "second")
	c := newFP4(k, experts, out, 2*in)
	if k.second != secondNone {
		c.inputs = append(c.inputs, rowInput{rowBytes: 4, perExpert: 1, num: 1, den: out, size: 4 * experts})
	}
	return c
}

func drawPacked(r *rapid.T, experts, out, in int64) *rowCodec {
	bits := rapid.IntRange(1, 8).Draw(r, "bits")
	group := min(in, rapid.OneOf(rapid.Int64Range(1, in), rapid.SampledFrom([]int64{32, 64, 96})).Draw(r, "group"))
	k := packed{bits: bits, group: int(group), groups: int(ceilDiv(in, group)), scale: numBF16, zero: rapid.SampledFrom([]packedZero{zeroMiddle, zeroPacked, zeroNone}).Draw(r, "zero")}
	columns, bytes := k.unit()
	c := &rowCodec{experts: experts, out: out, in: in, size: 2 * experts * out * in, unit: columns, kernel: k.kernel(), inputs: []rowInput{
		rowData(4*ceilDiv(in*int64(bits), 32), experts, out, bytes), rowData(2*int64(k.groups), experts, out, 0)}}
	if k.zero == zeroPacked {
		rows := ceilDiv(out*int64(bits), 32)
		c.inputs = append(c.inputs, rowInput{rowBytes: 4 * int64(k.groups), perExpert: rows, num: int64(bits), den: 32, size: experts * rows * 4 * int64(k.groups)})
	}
	return c
}

func drawCast(r *rapid.T, experts, out, in int64) *rowCodec {
	return Cast(rapid.SampledFrom([]string{"F16", "F32", "F64", "F8_E4M3"}).Draw(r, "dtype"), []int64{experts * out * in}).(*rowCodec)
}

// compareCodec compares a codec at every level with its reference over random bytes, as a whole and in a window.
func compareCodec(r *rapid.T, c *rowCodec) {
	r.Helper()
	inputs := make([][]byte, len(c.inputs))
	for i, n := range c.InputLens() {
		inputs[i] = randomBytes(r, n)
	}
	ref := *c
	ref.kernel = reference(c.kernel)
	want := whole(r, &ref, inputs)
	off := rapid.Int64Range(0, c.Len()-1).Draw(r, "off")
	n := rapid.Int64Range(1, c.Len()-off).Draw(r, "n")
	for _, v := range runnable() {
		fast := *c
		fast.kernel, _ = at(c.kernel, v)
		if !bytes.Equal(whole(r, &fast, inputs), want) {
			r.Fatalf("%s, %s: differs from its reference", c, levelName(v))
		}
		if !bytes.Equal(decode(r, &fast, inputs, off, n), want[off:off+n]) {
			r.Fatalf("%s, %s: window [%d, +%d) differs from its reference", c, levelName(v), off, n)
		}
	}
}

// TestFastColumnsEqualReference compares GPTQ and AWQ of random shapes, with groups in order and permuted.
func TestFastColumnsEqualReference(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		bits := rapid.SampledFrom([]int{2, 3, 4, 5, 6, 7, 8}).Draw(r, "bits")
		in, out := 32*rapid.Int64Range(1, 8).Draw(r, "in"), 32*rapid.Int64Range(1, 5).Draw(r, "out")
		group := rapid.Int64Range(1, in).Draw(r, "group")
		tensors := map[string]string{"scales": fmt.Sprintf("F16 %d %d", ceilDiv(in, group), out)}
		format := rapid.SampledFrom([]string{`{"packing_format": "auto_round:auto_gptq"}`, `{"packing_format": "auto_round"}`, `{"checkpoint_format": "gptq_p"}`}).Draw(r, "format")
		config := Config{Method: "gptq", GroupSize: int(group), Raw: []byte(format)}
		permuted := false
		if rapid.Bool().Draw(r, "awq") {
			config.Raw = nil
			tensors["qweight"], tensors["qzeros"] = fmt.Sprintf("I32 %d %d", in, out/8), fmt.Sprintf("I32 %d %d", ceilDiv(in, group), out/8)
		} else {
			tensors["qweight"] = fmt.Sprintf("I32 %d %d", in*int64(bits)/32, out)
			tensors["qzeros"] = fmt.Sprintf("I32 %d %d", ceilDiv(in, group), out*int64(bits)/32)
			if permuted = rapid.Bool().Draw(r, "permuted"); permuted {
				tensors["g_idx"] = fmt.Sprintf("I32 %d", in)
			}
		}
		m, err := Recognise(shapes(tensors, config))
		if err != nil {
			r.Fatal(err)
		}
		inputs := make([][]byte, len(m.Inputs))
		for i, n := range m.Codec.InputLens() {
			inputs[i] = randomBytes(r, n)
		}
		if permuted {
			for k := range in {
				copy(inputs[3][4*k:], le32(uint32(rapid.Int64Range(0, ceilDiv(in, group)-1).Draw(r, "group of"))))
			}
		}
		c := m.Codec.(*columns)
		ref := *c
		k := c.kernel.(fastGPTQ)
		ref.kernel = refGPTQ{k.gptq}
		want := whole(r, &ref, inputs)
		off := rapid.Int64Range(0, c.Len()-1).Draw(r, "off")
		n := rapid.Int64Range(1, c.Len()-off).Draw(r, "n")
		for _, v := range runnable() {
			fast := *c
			fast.kernel = fastGPTQ{k.gptq, v}
			if !bytes.Equal(whole(r, &fast, inputs), want) {
				r.Fatalf("%s, %s: differs from its reference", c, levelName(v))
			}
			if !bytes.Equal(decode(r, &fast, inputs, off, n), want[off:off+n]) {
				r.Fatalf("%s, %s: window [%d, +%d) differs from the whole", c, levelName(v), off, n)
			}
		}
	})
}

// TestTurnColumns compares transposes in vectors with those of single columns, at all places that fit and some that do not.
func TestTurnColumns(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rows, k := rapid.SampledFrom([]int{16, 32, 48, 64, 63, 8}).Draw(r, "rows"), rapid.IntRange(1, 70).Draw(r, "k")
		stride := k + rapid.IntRange(0, 9).Draw(r, "beyond")
		rb := 2 * int64(rows+rapid.IntRange(0, 40).Draw(r, "apart"))
		at := rapid.Int64Range(-5, 20).Draw(r, "at")
		src := randomBytes(r, int64(2*rows*stride))
		want := make([]byte, max(0, at+int64(k)*rb-rapid.Int64Range(0, 60).Draw(r, "short")))
		for i := range k {
			writeColumn(want, at+int64(i)*rb, src[2*i:], rows, 2*stride)
		}
		for _, v := range runnable() {
			got := make([]byte, len(want))
			n := 0
			if v != nil {
				n = v.turnColumns(got, at, rb, src, rows, k, stride)
			}
			for i := n; i < k; i++ {
				writeColumn(got, at+int64(i)*rb, src[2*i:], rows, 2*stride)
			}
			if !bytes.Equal(got, want) {
				r.Fatalf("%s: %d columns of %d rows at %d differ", levelName(v), k, rows, at)
			}
			clear(got)
			if writeColumns(got, at, rb, src, rows, k, stride); !bytes.Equal(got, want) {
				r.Fatalf("%d columns of %d rows at %d differ", k, rows, at)
			}
		}
	})
}

// TestEncodeEqualsReference compares the vectors' blocks with those of plain Go: zeros, single values, one sign, halves between codes, subnormals, random ones.
func TestEncodeEqualsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var values []byte
	block := func(value func(i int) float32) {
		for i := range 32 {
			values = append(values, le16(bf16(value(i)))...)
		}
	}
	block(func(int) float32 { return 0 })
	block(func(int) float32 { return float32(math.Copysign(0, -1)) })
	for e := -140; e < 13; e++ {
		p := float32(math.Ldexp(1, e))
		block(func(i int) float32 { return p * float32(i) })
		block(func(i int) float32 { return -p * float32(i) })
		block(func(i int) float32 { return p * float32(i-16) / 2 })
		block(func(i int) float32 { return p })
		block(func(i int) float32 { return p * float32(r.NormFloat64()) })
		block(func(i int) float32 { return p * float32(r.IntN(31)) / 30 })
	}
	for len(values) < 4000*64 {
		low, span := uint16(0x3800+r.IntN(0x400)), 1+r.IntN(0x300)
		block(func(int) float32 { return bf16Value(low + uint16(r.IntN(span)) | uint16(r.IntN(2))<<15) })
	}
	for _, rule := range []Rule{RuleORT, RuleORTSymmetric, RuleWebAI} {
		for _, block := range []int64{16, 32, 64, 128} {
			for _, cols := range []int64{128, 1408, 32*31 + 7} {
				rows := int64(len(values)) / 2 / cols
				e := encode4(t, values[:2*rows*cols], rows, cols, block, rule)
				for _, c := range []plan.Codec{e.Data, e.Scales, e.Zeros} {
					if c != nil {
						compareEncoded(t, c.(*encoded), values[:2*rows*cols])
					}
				}
			}
		}
	}
}

// compareEncoded compares a codec at every level with itself without assembly.
func compareEncoded(t *testing.T, c *encoded, values []byte) {
	t.Helper()
	plain := *c
	plain.kernel = nil
	want := whole(t, &plain, [][]byte{values})
	for _, v := range runnable() {
		if v == nil || v.blocks(c.rule, c.block) == nil {
			continue
		}
		fast := *c
		fast.kernel = v.blocks(c.rule, c.block)
		got := whole(t, &fast, [][]byte{values})
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s, %s: byte %d is %02x, the reference has %02x", c, v.name, i, got[i], want[i])
			}
		}
	}
}
