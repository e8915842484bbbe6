package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"weightfs/fs/plan"
)

// castKind is how a plain dtype becomes BF16.
type castKind struct {
	columns, bytes int64 // of a unit: codes that share bytes
	value          func(data []byte, i int) float32
}

// castKinds are the floating dtypes other than BF16.
var castKinds = map[string]castKind{
	"F16": {1, 2, func(b []byte, i int) float32 { return float16.Frombits(binary.LittleEndian.Uint16(b[2*i:])).Float32() }},
	"F32": {1, 4, func(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }},
	// binary64 is rounded to binary32 first, as PyTorch does.
	"F64": {1, 8, func(b []byte, i int) float32 {
		return float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
	}},
	"F8_E4M3":     {1, 1, func(b []byte, i int) float32 { return e4m3Values[b[i]] }},
	"F8_E5M2":     {1, 1, func(b []byte, i int) float32 { return e5m2Values[b[i]] }},
	"F8_E4M3FNUZ": {1, 1, func(b []byte, i int) float32 { return e4m3fnuzValues[b[i]] }},
	"F8_E5M2FNUZ": {1, 1, func(b []byte, i int) float32 { return e5m2fnuzValues[b[i]] }},
	"F8_E8M0":     {1, 1, func(b []byte, i int) float32 { return e8m0Values[b[i]] }},
	"F4":          {2, 1, func(b []byte, i int) float32 { return e2m1Values[b[i/2]>>(i%2*4)&15] }},
	"F6_E2M3":     {4, 3, func(b []byte, i int) float32 { return e2m3Values[sixBits(b, i)] }},
	"F6_E3M2":     {4, 3, func(b []byte, i int) float32 { return e3m2Values[sixBits(b, i)] }},
}

// sixBits is code i of a dense little-endian stream of 6-bit codes.
func sixBits(b []byte, i int) byte { return byte(packed{bits: 6}.code(b, i)) }

// castRow is the number of elements that are decoded as one row; a tensor's shape does not matter to a cast.
const castRow = 4096

// Cast is the codec that turns a plain tensor of a floating dtype (F16, F32, F64, F8_*, F6_*, F4) into BF16; nil for every other dtype, BF16 among
// them, whose bytes stay as they are, for empty tensors, and for sizes that no file has. Sub-byte codes lie low bits first; their shape counts codes.
func Cast(dtype string, shape []int64) plan.Codec {
	kind, ok := castKinds[dtype]
	n, fits := product(append([]int64{1}, shape...)...)
	if !ok || !fits || n%kind.columns != 0 || n > maxBytes/8 {
		return nil
	}
	in := min(n, castRow)
	rows := ceilDiv(n, in)
	data := rowData(in/kind.columns*kind.bytes, 1, rows, kind.bytes)
	data.size = n / kind.columns * kind.bytes
	return &rowCodec{
		text: fmt.Sprintf("cast(%s,%d)", dtype, n), experts: 1, out: rows, in: in, size: 2 * n, unit: kind.columns,
		kernel: castKernel(dtype), inputs: []rowInput{data}, cast: dtype,
	}
}

// CastFrom is the dtype of the plain elements that a codec made by [Cast] rounds, "" for any other codec.
func CastFrom(c plan.Codec) string {
	if c, ok := c.(*rowCodec); ok {
		return c.cast
	}
	return ""
}

// refCast is the reference kernel.
type refCast struct{ castKind }

func (k refCast) decode(s *strip) error {
	for r := range s.rows {
		dst, data := s.out1(r), s.at(0, r)
		for c := range s.c1 - s.c0 {
			putBF16(dst, c, k.value(data, c))
		}
	}
	return nil
}
