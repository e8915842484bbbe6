package testrel

import (
	"encoding/binary"
	"math"
	"sort"
	"strings"

	"weightfs/sources/safetensors"
)

// Truth is a tensor as the bf16 view must have it: dequantized if it is quantized, else as it stands.
type Truth struct {
	Name  string
	DType safetensors.DType
	Shape []int64
	row   func(r int64) []uint16 // of a dequantized tensor
	same  *Tensor                // the release's own tensor, if it is not dequantized
}

// Quantized reports whether the truth is a dequantized tensor.
func (t *Truth) Quantized() bool { return t.row != nil }

// Bytes is the whole tensor.
func (t *Truth) Bytes() []byte { return t.Range(0, count(t.Shape)*int64(t.DType.Bits())/8) }

// Range is the bytes [from, to) of the tensor.
func (t *Truth) Range(from, to int64) []byte {
	p := make([]byte, to-from)
	if t.row == nil {
		t.same.ReadAt(p, from)
		return p
	}
	stride := 2 * t.Shape[1]
	row := make([]byte, stride)
	for r := from / stride; r*stride < to; r++ {
		for c, v := range t.row(r) {
			binary.LittleEndian.PutUint16(row[2*c:], v)
		}
		first := max(from-r*stride, 0)
		copy(p[r*stride+first-from:], row[first:])
	}
	return p
}

func count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// Truths are the names of all tensors of the bf16 view, sorted.
func (r *Release) Truths() []string {
	var out []string
	for name := range r.byName() {
		if base, ok := strings.CutSuffix(name, "_packed"); ok {
			out = append(out, base)
		} else if !r.isSide(name) {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

// isSide reports whether the tensor belongs to another one's quantization.
func (r *Release) isSide(name string) bool {
	if base, ok := strings.CutSuffix(name, "_scale_inv"); ok {
		return r.Tensor(base) != nil
	}
	base, ok := strings.CutSuffix(name, "_scale")
	return ok && r.Tensor(base+"_packed") != nil
}

// Truth is the tensor of that name as the bf16 view must have it, or nil if there is none. It is computed element by element from
// the formats' definitions, with nothing of transform/quant.
func (r *Release) Truth(name string) *Truth {
	if r.Digests != nil {
		return nil
	}
	if p, s := r.Tensor(name+"_packed"), r.Tensor(name+"_scale"); p != nil && s != nil {
		return mxfp4Truth(name, p, s)
	}
	w := r.Tensor(name)
	if w == nil {
		return nil
	}
	if s := r.Tensor(name + "_scale_inv"); s != nil {
		return fp8Truth(w, s)
	}
	return &Truth{Name: name, DType: w.DType, Shape: w.Shape, same: w}
}

// fp8Truth: element (r, c) is E4M3(w[r, c]) * s[r/128, c/128], rounded once to binary32 and once to BF16.
func fp8Truth(w, s *Tensor) *Truth {
	return &Truth{Name: w.Name, DType: safetensors.BF16, Shape: w.Shape, row: func(r int64) []uint16 {
		codes, scales := w.rowBytes(r), s.rowBytes(r/128)
		out := make([]uint16, len(codes))
		for c, code := range codes {
			out[c] = toBF16(e4m3(code) * fromBF16(binary.LittleEndian.Uint16(scales[c/128*2:])))
		}
		return out
	}}
}

// mxfp4Truth: element (r, c) is E2M1(nibble) * 2^(s[r, c/32] - 127); the low nibble is the even column.
func mxfp4Truth(name string, p, s *Tensor) *Truth {
	shape := []int64{p.Shape[0], 2 * p.Shape[1]}
	return &Truth{Name: name, DType: safetensors.BF16, Shape: shape, row: func(r int64) []uint16 {
		codes, scales := p.rowBytes(r), s.rowBytes(r)
		out := make([]uint16, 2*len(codes))
		for c := range out {
			code := codes[c/2] >> (4 * (c & 1)) & 15
			out[c] = toBF16(e2m1(code) * float32(math.Ldexp(1, int(scales[c/32])-127)))
		}
		return out
	}}
}

// rowBytes is row r of a tensor of two axes.
func (t *Tensor) rowBytes(r int64) []byte {
	p := make([]byte, (t.End-t.Start)/t.Shape[0])
	t.ReadAt(p, r*int64(len(p)))
	return p
}

// e4m3 is the value of an F8_E4M3 code: bias 7, no infinities, 7F and FF are NaN.
func e4m3(c byte) float32 {
	sign, e, m := 1.0, int(c>>3&15), float64(c&7)
	if c&0x80 != 0 {
		sign = -1
	}
	switch {
	case c&0x7F == 0x7F:
		return float32(math.NaN())
	case e == 0:
		return float32(math.Copysign(math.Ldexp(m, -9), sign))
	}
	return float32(math.Copysign(math.Ldexp(8+m, e-10), sign))
}

// e2m1 is the value of an FP4 code; code 8 is -0.
func e2m1(c byte) float32 {
	v := [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[c&7]
	return float32(math.Copysign(v, 1-2*float64(c>>3)))
}

func fromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// toBF16 rounds to nearest, ties to even; NaN is 7FC0.
func toBF16(x float32) uint16 {
	u := math.Float32bits(x)
	if x != x {
		return 0x7FC0
	}
	return uint16((u + 0x7FFF + u>>16&1) >> 16)
}
