package quant

import (
	"fmt"

	"weightfs/fs/plan"
)

// bitnetFormat is BitNet b1.58 (quant_method "bitnet"): U8 [out/4, in], bits 2i of byte row r belong to row i*out/4 + r, code 1 is zero. One
// scale, by which BitLinear divides and AutoBitLinear multiplies; with quantization_mode "online" the file holds plain masters.
func bitnetFormat() format {
	return format{
		name:     "bitnet",
		declared: []string{"bitnet"},
		data:     []string{"weight"},
		sides:    []string{"weight_scale"},
		match:    matchBitNet,
	}
}

func matchBitNet(m *matcher) (*Match, error) {
	c := &m.group.Config
	if c.Method != "bitnet" || !m.is("weight", "U8") {
		return nil, nil
	}
	scale := m.tensor("weight_scale")
	num, ok := map[string]number{"F32": numF32, "BF16": numBF16, "F16": numF16}[scale.DType]
	if n, fits := product(append([]int64{1}, scale.Shape...)...); !ok || !fits || n != 1 {
		return m.refuse("weight_scale", "missing or not one floating scale: %s%v", scale.DType, scale.Shape)
	}
	shape := m.tensor("weight").Shape
	_, rows, in, ok := dims(shape)
	if !ok || len(shape) != 2 {
		return m.refuse("weight", "shape %v is no matrix", shape)
	}
	k := bitnet{scale: num}
	switch class := c.str("linear_class"); {
	case class == "" || class == "bitlinear":
		k.divides = true
	case class != "autobitlinear" || c.str("quantization_mode") != "offline":
		return m.refuse("weight", "linear_class %q with quantization_mode %q is unknown for packed weights", class, c.str("quantization_mode"))
	}
	codec := make(concat, 4)
	for i := range codec {
		k.shift = 2 * i
		codec[i] = k.slab(rows, in)
	}
	return m.result(codec, []int64{4 * rows, in}, []string{"weight", "weight_scale"}, "four rows a byte, "+map[bool]string{true: "scale divides", false: "scale multiplies"}[k.divides]), nil
}

// bitnet decodes one of the four rows of a byte: value = (code-1) / scale, or times scale.
type bitnet struct {
	scale   number
	divides bool
	shift   int
}

func (k bitnet) slab(rows, in int64) plan.Codec {
	return &rowCodec{
		text: fmt.Sprintf("bitnet(scale=%s,divides=%t,shift=%d)", k.scale, k.divides, k.shift), experts: 1, out: rows, in: in, size: 2 * rows * in,
		unit: 1, kernel: k.kernel(), inputs: []rowInput{rowData(in, 1, rows, 1), wholeInput(k.scale.size())},
	}
}

// value is the result of a code.
func (k bitnet) value(code byte, scale float32) float32 {
	if k.divides {
		return (float32(code) - 1) / scale
	}
	return (float32(code) - 1) * scale
}

// refBitnet is the reference kernel.
type refBitnet struct{ bitnet }

func (k refBitnet) decode(s *strip) error {
	scale := k.scale.at(s.in[1], 0)
	for r := range s.rows {
		dst, data := s.out1(r), s.at(0, r)
		for c := range s.c1 - s.c0 {
			putBF16(dst, c, k.value(data[c]>>k.shift&3, scale))
		}
	}
	return nil
}
