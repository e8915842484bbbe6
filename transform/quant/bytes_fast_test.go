//go:build !purego

package quant

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestBnb8EqualsReference compares all codes under scales of every class.
func TestBnb8EqualsReference(t *testing.T) {
	for _, s := range scaleBytes(numF32) {
		compare(t, func() string { return fmt.Sprintf("SCB %x", s) }, bnb8{}.kernel(), refBnb8{}, 1, 512, allCodes(2), s)
	}
}

// TestBitnetEqualsReference compares all bytes, of which each has codes of four rows, under scales of every class.
func TestBitnetEqualsReference(t *testing.T) {
	for _, num := range []number{numF32, numBF16, numF16} {
		for n, s := range every(scaleBytes(num), 13) {
			k := bitnet{scale: num, divides: n%2 == 0, shift: n / 2 % 4 * 2}
			compare(t, func() string { return fmt.Sprintf("%+v, scale %x", k, s) }, k.kernel(), refBitnet{k}, 1, 512, allCodes(2), s)
		}
	}
}

// TestMXFP6EqualsReference compares all codes under all scales.
func TestMXFP6EqualsReference(t *testing.T) {
	for first := range 256 {
		var scales []byte
		for i := range 16 {
			scales = append(scales, byte(first+i))
		}
		data := make([]byte, 0, 384)
		for c := 0; c < 512; c += 4 {
			word := 0
			for i := range 4 { // a group has half of the codes, under the next first the other half
				word |= ((c + i + 32*first) & 63) << (6 * i)
			}
			data = append(data, byte(word), byte(word>>8), byte(word>>16))
		}
		compare(t, func() string { return fmt.Sprintf("scales from %d", first) }, mxfp6{}.kernel(), refMXFP6{}, 1, 512, data, scales)
	}
}

// TestPairedRowsEqualReference compares all bytes, whose nibbles are of two rows, under scales of every class.
func TestPairedRowsEqualReference(t *testing.T) {
	for _, num := range []number{numF32, numBF16, numF16} {
		k := pairedRows{scale: num, group: 256}
		scales := every(scaleBytes(num), 13)
		for n := 0; n+1 < len(scales); n += 2 {
			s := append(append([]byte{}, scales[n]...), scales[n+1]...)
			compare(t, func() string { return fmt.Sprintf("%+v, scales %x", k, s) }, k.kernel(), refPairedRows{k}, 2, 512, allCodes(2), s)
		}
	}
}

// TestHQQEqualsReference compares all elements of every packing, under scales and zero points of every class, one for the row or one for each column.
func TestHQQEqualsReference(t *testing.T) {
	r := random{rand.New(rand.NewPCG(13, 13))}
	for name, p := range hqqPackings {
		for slab := range p.count {
			for _, num := range []number{numF32, numBF16, numF16} {
				scales := scaleBytes(num)
				k := hqq{element: p.element, shift: p.shift(slab), mask: 1<<p.bits - 1, scale: num, zero: num}
				data := allCodes(2 * p.element)
				if p.element == 4 {
					data = r.bytes(len(data))
				}
				for n := slab; n < len(scales); n += 211 {
					what := func() string { return fmt.Sprintf("%s, slab %d, %s from %d", name, slab, num, n) }
					var columns, zeros []byte
					for c := range 512 {
						columns, zeros = append(columns, scales[(n+37*c)%len(scales)]...), append(zeros, scales[(3*n+101*c)%len(scales)]...)
					}
					k.perRow = false
					compare(t, what, k.kernel(), refHQQ{k}, 1, 512, data, columns, zeros)
					k.perRow = true
					compare(t, what, k.kernel(), refHQQ{k}, 1, 512, data, scales[n], zeros)
				}
			}
		}
	}
}

// TestByteCodecsEqualReference compares whole codecs of odd shapes, one row and one column over random bytes.
func TestByteCodecsEqualReference(t *testing.T) {
	floats := func(r *rapid.T) number {
		return rapid.SampledFrom([]number{numF32, numBF16, numF16}).Draw(r, "scale")
	}
	for name, draw := range map[string]func(r *rapid.T, out, in int64) *rowCodec{
		"bnb8": func(r *rapid.T, out, in int64) *rowCodec {
			return matched(r, map[string]string{"weight": fmt.Sprint("I8 ", out, in), "SCB": fmt.Sprint("F32 ", out)})
		},
		"bitnet": func(r *rapid.T, out, in int64) *rowCodec {
			return bitnet{scale: floats(r), divides: rapid.Bool().Draw(r, "divides"), shift: 2 * rapid.IntRange(0, 3).Draw(r, "shift")}.slab(out, in).(*rowCodec)
		},
		"mxfp6": func(r *rapid.T, out, in int64) *rowCodec {
			groups := ceilDiv(in, 32)
			return matched(r, map[string]string{"weight_packed": fmt.Sprint("U8 ", out, 24*groups), "weight_scale": fmt.Sprint("U8 ", out, groups)})
		},
		"paired rows": func(r *rapid.T, out, in int64) *rowCodec {
			groups := rapid.Int64Range(1, 5).Draw(r, "groups")
			return matched(r, map[string]string{"weight": fmt.Sprint("U8 ", out, groups*ceilDiv(in, groups)), "weight_scale": fmt.Sprint("BF16 ", 2*out, groups)})
		},
		"hqq": func(r *rapid.T, out, in int64) *rowCodec {
			p := hqqPackings[rapid.SampledFrom([]string{"8bit_u8", "4bit_u8", "2bit_u8", "1bit_u8", "3bit_32"}).Draw(r, "packing")]
			h := hqqShape{axis: rapid.Int64Range(0, 1).Draw(r, "axis"), packing: p, rows: out, columns: in, step: ceilDiv(out, int64(p.count))}
			slab, num := rapid.Int64Range(0, ceilDiv(out, h.step)-1).Draw(r, "slab"), floats(r)
			return h.slab(int(slab), min(h.step, out-slab*h.step), num, num).(*rowCodec)
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				compareCodec(r, draw(r, rapid.Int64Range(1, 40).Draw(r, "out"), rapid.Int64Range(1, 700).Draw(r, "in")))
			})
		})
	}
}

// matched is the codec of a group that must be recognised.
func matched(r *rapid.T, tensors map[string]string) *rowCodec {
	m, err := Recognise(shapes(tensors, Config{}))
	if err != nil || m == nil {
		r.Fatalf("%v: match %+v, error %v", tensors, m, err)
	}
	return m.Codec.(*rowCodec)
}
