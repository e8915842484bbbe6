package quant

import (
	"fmt"
	"slices"
)

// nvfp4Format is NVIDIA's NVFP4: E2M1 codes, the low nibble the even column, an E4M3 scale for 16 columns, and an F32 scale for the tensor (or each
// expert). compressed-tensors stores that one as a divisor (weight_packed, weight_scale, weight_global_scale), ModelOpt as a factor (weight,
// weight_scale, weight_scale_2); the two are not interchangeable.
func nvfp4Format() format {
	return format{
		name:     "nvfp4",
		declared: []string{"nvfp4", "mxfp8", "compressed-tensors", "modelopt", "auto-round"},
		data:     []string{"weight_packed", "weight", ""},
		sides:    append([]string{"weight_scale", "weight_scale_2", "weight_global_scale", "_weight_scale", "_weight_scale_2", "_scale", "_scale_2", "_global_scale"}, activationSuffixes...),
		kept:     []string{"pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b"},
		match:    matchNVFP4,
	}
}

func matchNVFP4(m *matcher) (*Match, error) {
	data, ok := m.first("weight_packed", "weight", "")
	if !ok || !m.is(data, "U8", "F4") {
		return nil, nil
	}
	side, ok := m.first("weight_scale", "_weight_scale", "_scale")
	if !ok || !m.is(side, "F8_E4M3") {
		return nil, nil
	}
	k := fp4{group: 16, scale: numE4M3, second: secondDivides}
	second, ok := m.first("weight_global_scale", "_global_scale")
	if !ok {
		k.second = secondMultiplies
		if second, ok = m.first("weight_scale_2", "_weight_scale_2", "_scale_2"); !ok {
			return m.refuse(data, "E2M1 codes with E4M3 scales, but neither weight_scale_2 nor weight_global_scale")
		}
	}
	match, err := m.fp4(data, side, k, [...]string{"", "scale_2 multiplies", "global scale divides"}[k.second])
	if err != nil {
		return nil, err
	}
	codec := match.Codec.(*rowCodec)
	in, err := secondInput(m.tensor(second), codec)
	if err != nil {
		return m.refuse(second, "%v", err)
	}
	codec.inputs = append(codec.inputs, in)
	match.Inputs = append(match.Inputs, second)
	match.Warnings = m.altered()
	return match, nil
}

// secondInput is the rowCodec input of an F32 scale: one for the tensor or one an expert.
func secondInput(t Tensor, c *rowCodec) (rowInput, error) {
	n, ok := product(append([]int64{1}, t.Shape...)...)
	switch {
	case t.DType != "F32" || !ok:
	case n == 1:
		return wholeInput(4), nil
	case n == c.experts && t.Shape[0] == n:
		return rowInput{rowBytes: 4, perExpert: 1, num: 1, den: c.out, size: 4 * n}, nil
	}
	return rowInput{}, fmt.Errorf("second scale %s%v, expected one F32 or one for each of %d experts", t.DType, t.Shape, c.experts)
}

// altered warns of tensors that change what the weight means.
func (m *matcher) altered() []string {
	var out []string
	if m.has("pre_quant_scale") {
		out = append(out, "pre_quant_scale is kept: the effective weight is the dequantized one with column k multiplied by it, if the activation is")
	}
	if m.has("svdquant_lora_a") || m.has("svdquant_lora_b") {
		out = append(out, "svdquant_lora_a and _b are kept: their product is a part of the effective weight")
	}
	return out
}

// modelOptInt4Format is ModelOpt's INT4 (W4A16_AWQ): U8 [out/2, in], the low nibble the even row, two's complement, times weight_scale [out, in/128].
func modelOptInt4Format() format {
	return format{
		name:     "modelopt-int4",
		declared: []string{"modelopt"},
		data:     []string{"weight"},
		sides:    append([]string{"weight_scale"}, activationSuffixes...),
		kept:     []string{"pre_quant_scale"},
		match:    matchModelOptInt4,
	}
}

func matchModelOptInt4(m *matcher) (*Match, error) {
	weight, scale := m.tensor("weight"), m.tensor("weight_scale")
	num, ok := map[string]number{"F32": numF32, "BF16": numBF16, "F16": numF16}[scale.DType]
	if weight.DType != "U8" || !ok || len(weight.Shape) != len(scale.Shape) {
		return nil, nil
	}
	experts, half, in, ok := dims(weight.Shape)
	_, out, groups, sok := dims(scale.Shape)
	if !ok || !sok || out != 2*half || in%groups != 0 {
		return nil, nil
	}
	if m.has("weight_scale_2") {
		return m.refuse("weight_scale_2", "INT4 with a second scale is not specified")
	}
	if want := weightShape(len(weight.Shape), experts, out, groups); !slices.Equal(want, scale.Shape) {
		return m.refuse("weight_scale", "scale shape %v, expected %v", scale.Shape, want)
	}
	k := pairedRows{scale: num, group: int(in / groups)}
	data := rowInput{rowBytes: in, perExpert: half, num: 1, den: 2, size: experts * half * in}
	c := &rowCodec{
		text: fmt.Sprintf("int4-row-pairs(scale=%s,columns=%d)", num, k.group), experts: experts, out: out, in: in, size: 2 * experts * out * in,
		unit: 1, kernel: k.kernel(), inputs: []rowInput{data, rowData(groups*num.size(), experts, out, 0)},
	}
	match := m.result(c, weightShape(len(weight.Shape), experts, out, in), []string{"weight", "weight_scale"}, fmt.Sprintf("two rows a byte, groups of %d", k.group))
	match.Warnings = m.altered()
	return match, nil
}

// pairedRows decodes signed nibbles, two rows a byte: value = code * scale.
type pairedRows struct {
	scale number
	group int
}

// refPairedRows is the reference kernel.
type refPairedRows struct{ pairedRows }

func (k refPairedRows) decode(s *strip) error {
	for r := range s.rows {
		row := s.row + int64(r)
		dst, data := s.out1(r), s.in[0]
		for c := s.c0; c < s.c1; c++ {
			code := int8(data[c]<<(4-4*(row%2))) >> 4
			putBF16(dst, c-s.c0, float32(code)*k.scale.at(s.at(1, r), c/k.group))
		}
	}
	return nil
}
