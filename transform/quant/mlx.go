package quant

import (
	"encoding/json"
	"fmt"
	"slices"
)

// mlxFormat is MLX's quantization: weight U32 [out, in*bits/32] with scales. With biases of the scales' dtype it is affine (2 to 8 bits); with U8
// scales it is mxfp4, mxfp8 or nvfp4, the last with an F32 global_scale, one for each expert, or without. transformers' "metal" calls the biases qbiases. Experts stand in one tensor with an axis more.
func mlxFormat() format {
	return format{
		name:     "mlx",
		declared: []string{"mlx", "metal"},
		data:     []string{"weight"},
		sides:    []string{"scales", "biases", "qbiases", "global_scale"},
		match:    matchMLX,
	}
}

func matchMLX(m *matcher) (*Match, error) {
	if !m.is("weight", "U32") {
		return nil, nil
	}
	if !m.has("scales") {
		if m.group.Config.Method != "" {
			return m.refuse("weight", "packed words without scales")
		}
		return nil, nil
	}
	weight, scales := m.tensor("weight"), m.tensor("scales")
	experts, out, words, ok := dims(weight.Shape)
	_, _, groups, sok := dims(scales.Shape)
	if !ok || !sok || !slices.Equal(scales.Shape, weightShape(len(weight.Shape), experts, out, groups)) {
		return m.refuse("scales", "shape %v does not go with %v", scales.Shape, weight.Shape)
	}
	if scales.DType == "U8" {
		return matchMLXFloat(m, experts, out, words, groups)
	}
	if m.has("global_scale") {
		return m.refuse("global_scale", "a global scale beside %s scales is unknown", scales.DType)
	}
	num, ok := map[string]number{"F32": numF32, "BF16": numBF16, "F16": numF16}[scales.DType]
	bias, bok := m.first("biases", "qbiases")
	if b := m.tensor(bias); !ok || !bok || b.DType != scales.DType || !slices.Equal(b.Shape, scales.Shape) {
		return m.refuse("scales", "affine weights need scales and biases of one dtype and shape, got %s%v and %s%v", scales.DType, scales.Shape, m.tensor(bias).DType, m.tensor(bias).Shape)
	}
	bits, group, ok := m.group.mlxParameters(words, groups)
	if !ok {
		return m.refuse("weight", "%d words and %d groups a row fit no declared bits and group size", words, groups)
	}
	in := groups * int64(group)
	k := packed{bits: bits, group: group, groups: int(groups), scale: num, zero: zeroNone, bias: true}
	columns, bytes := k.unit()
	side := rowData(groups*num.size(), experts, out, 0)
	c := &rowCodec{
		text: "packed(" + k.params() + ")", experts: experts, out: out, in: in, size: 2 * experts * out * in, unit: columns, kernel: k.kernel(),
		inputs: []rowInput{rowData(4*words, experts, out, bytes), side, side},
	}
	return m.result(c, weightShape(len(weight.Shape), experts, out, in), []string{"weight", "scales", bias}, fmt.Sprintf("affine, %d bits in groups of %d", bits, group)), nil
}

// mlxParameters finds bits and group size of a row of words and groups: those declared for the module or for all, else the only ones that
// fit.
func (g *Group) mlxParameters(words, groups int64) (bits, group int, ok bool) {
	fits := func(bits, group int) bool { return groups*int64(group)*int64(bits) == words*32 }
	declared := object(g.Config.members()[g.Module])
	for _, f := range []map[string]json.RawMessage{declared, g.Config.members()} {
		b, s := smallInt(f["bits"], 8), smallInt(f["group_size"], 1<<16)
		if b > 0 && s > 0 && b != 7 && fits(b, s) {
			return b, s, true
		}
	}
	if g.Config.Bits > 0 && g.Config.GroupSize > 0 && fits(g.Config.Bits, g.Config.GroupSize) {
		return g.Config.Bits, g.Config.GroupSize, true
	}
	for _, b := range []int{2, 3, 4, 5, 6, 8} {
		for _, s := range []int{32, 64, 128} {
			if !fits(b, s) {
				continue
			}
			if ok {
				return 0, 0, false
			}
			bits, group, ok = b, s, true
		}
	}
	return bits, group, ok
}

// smallInt is a JSON integer within 1..high, 0 for anything else.
func smallInt(raw json.RawMessage, high int) int {
	var n int
	if json.Unmarshal(raw, &n) != nil || n < 1 || n > high {
		return 0
	}
	return n
}

// matchMLXFloat is the modes with one-byte scales. Bits of the codes and group size follow from the ratio of words to groups.
func matchMLXFloat(m *matcher, experts, out, words, groups int64) (*Match, error) {
	if b, ok := m.first("biases", "qbiases"); ok {
		return m.refuse(b, "biases beside one-byte scales")
	}
	weight := m.tensor("weight")
	inputs := []string{"weight", "scales"}
	bytes := 4 * words
	if m.has("global_scale") && bytes != 8*groups {
		return m.refuse("global_scale", "a global scale is known with 8 bytes a scale (nvfp4) only, these have %d for %d", bytes, groups)
	}
	switch {
	case bytes == 32*groups: // mxfp8, 32 one-byte codes a scale
		weight.DType = "F8_E4M3"
		weight.Shape = weightShape(len(weight.Shape), experts, out, bytes)
		g := grid{experts: experts, rows: out, cols: groups, bm: 1, bn: 32, elements: experts * out * groups}
		return m.result(newScaled8(weight, scaled8{codes: e4m3Values, scale: numE8M0, bn: 32}, g), weight.Shape, inputs, "mxfp8 by 32 bytes a scale"), nil
	case bytes == 16*groups: // mxfp4
		c := newFP4(fp4{group: 32, scale: numE8M0}, experts, out, 2*bytes)
		return m.result(c, weightShape(len(weight.Shape), experts, out, 2*bytes), inputs, "mxfp4 by 16 bytes a scale"), nil
	case bytes == 8*groups: // nvfp4
		k := fp4{group: 16, scale: numE4M3}
		if m.has("global_scale") {
			k.second = secondOfMLX
		}
		c := newFP4(k, experts, out, 2*bytes)
		if k.second != secondNone {
			in, err := secondInput(m.tensor("global_scale"), c)
			if err != nil {
				return m.refuse("global_scale", "%v", err)
			}
			c.inputs, inputs = append(c.inputs, in), append(inputs, "global_scale")
		}
		return m.result(c, weightShape(len(weight.Shape), experts, out, 2*bytes), inputs, "nvfp4 by 8 bytes a scale"), nil
	}
	return m.refuse("scales", "%d bytes and %d one-byte scales a row fit no mode", bytes, groups)
}
