package quant

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Suffixes of torchao's flattened tensors for a parameter called weight.
const (
	aoData      = "._weight_qdata"
	aoScale     = "._weight_scale"
	aoZero      = "._weight_zero_point"
	aoPerTensor = "._weight_per_tensor_scale"
)

// torchaoFormat is torchao's safetensors serialisation: the parameter X.weight is flattened to X._weight_qdata, X._weight_scale and so on, and the
// file's metadata holds a JSON description under "X.weight". Types whose arithmetic is in kernels elsewhere or whose layout is tiled are refused.
func torchaoFormat() format {
	return format{
		name:     "torchao",
		declared: []string{"torchao"},
		data:     []string{aoData},
		sides:    []string{aoScale, aoZero, aoPerTensor, "._weight_act_per_tensor_scale", "._weight_act_quant_scale", "._weight_act_quant_zero_point"},
		kept:     []string{"._weight_act_pre_scale"},
		match:    matchTorchAO,
	}
}

// aoType is the description of one tensor.
type aoType struct {
	Type string `json:"_type"`
	Data struct {
		BlockSize json.RawMessage `json:"block_size"`
		ElemDType json.RawMessage `json:"elem_dtype"`
		Swizzled  bool            `json:"is_swizzled_scales"`
	} `json:"_data"`
}

// block is the block size over the last two axes, zeros if it is not a list.
func (a *aoType) block() [2]int {
	var list []int
	if json.Unmarshal(a.Data.BlockSize, &list) != nil || len(list) < 2 {
		return [2]int{}
	}
	return [2]int{max(list[len(list)-2], 0), max(list[len(list)-1], 0)}
}

func matchTorchAO(m *matcher) (*Match, error) {
	if !m.has(aoData) {
		return nil, nil
	}
	name := TensorName(m.group.Module, "weight")
	var t aoType
	if raw := m.group.Metadata[name]; raw == "" || len(raw) > maxFact || json.Unmarshal([]byte(raw), &t) != nil {
		return m.refuse(aoData, "the file's metadata does not describe %s", name)
	}
	match, err := m.torchAO(&t)
	if err != nil {
		return nil, err
	}
	match.Name = name
	if m.has("._weight_act_pre_scale") {
		match.Warnings = []string{"_weight_act_pre_scale is kept: activations are multiplied by it"}
	}
	return match, nil
}

// aoParameter is the parameter that a tensor is a flattened part of, by the file's metadata (experts.gate_up_proj of experts._gate_up_proj_qdata); "" if it
// is none.
func aoParameter(metadata map[string]string, name string) string {
	i := strings.LastIndex(name, "._")
	if i < 0 || metadata["tensor_names"] == "" {
		return ""
	}
	module, part := name[:i], name[i+2:]
	for j := range part {
		parameter := module + "." + part[:j]
		if kind := text(object([]byte(metadata[parameter])), "_type"); part[j] == '_' && kind != "" && kind != "Tensor" {
			return parameter
		}
	}
	return ""
}

func (m *matcher) torchAO(t *aoType) (*Match, error) {
	switch t.Type {
	case "Float8Tensor":
		return m.aoScaled(t, isF8(m.tensor(aoData).DType))
	case "Int8Tensor", "IntxUnpackedToInt8Tensor":
		return m.aoScaled(t, m.is(aoData, "I8"))
	case "MXTensor":
		return m.aoMX(t)
	case "NVFP4Tensor":
		return m.aoNVFP4(t)
	}
	return m.refuse(aoData, "torchao type %q is tiled or computed by kernels elsewhere", t.Type)
}

// aoScaled is one-byte codes by blocks: f32(code - zero) * scale.
func (m *matcher) aoScaled(t *aoType, known bool) (*Match, error) {
	weight, scale := m.tensor(aoData), m.tensor(aoScale)
	num := map[string]number{"F32": numF32, "BF16": numBF16, "F16": numF16}[scale.DType]
	if !known || num == numNone {
		return m.refuse(aoData, "%s of dtype %s with scales of dtype %q", t.Type, weight.DType, scale.DType)
	}
	g, err := findGrid(weight.Shape, scale.Shape, t.block())
	if err != nil {
		return m.refuse(aoScale, "%v", err)
	}
	k := scaled8{codes: codes8[weight.DType], scale: num, bn: int(g.bn)}
	inputs := []string{aoData, aoScale}
	if m.has(aoZero) {
		z := m.tensor(aoZero)
		if z.DType != "I8" || !sameShape(z.Shape, scale.Shape) {
			return m.refuse(aoZero, "zero points %s%v do not go with scales %v", z.DType, z.Shape, scale.Shape)
		}
		k.zero = numI8
		inputs = append(inputs, aoZero)
	}
	return m.result(newScaled8(weight, k, g), weight.Shape, inputs, t.Type+" by metadata, "+g.how), nil
}

// aoMX is MX blocks of 32 with F8 or E2M1 elements.
func (m *matcher) aoMX(t *aoType) (*Match, error) {
	weight, scale := m.tensor(aoData), m.tensor(aoScale)
	if string(t.Data.BlockSize) != "32" || !m.is(aoScale, "F8_E8M0", "U8") {
		return m.refuse(aoScale, "MX blocks of %s with scales %s", t.Data.BlockSize, scale.DType)
	}
	if isF8(weight.DType) {
		return m.aoMXFP8(t)
	}
	elem := text(object(t.Data.ElemDType), "_data")
	if elem != "float4_e2m1fn_x2" || !m.is(aoData, "U8", "F4") {
		return m.refuse(aoData, "MX elements %q in %s", elem, weight.DType)
	}
	return m.aoFP4(t, fp4{group: 32, scale: numE8M0}, "MXTensor by metadata")
}

// aoMXFP8 is MX blocks of F8 elements.
func (m *matcher) aoMXFP8(t *aoType) (*Match, error) {
	weight, inputs := m.tensor(aoData), []string{aoData, aoScale}
	if !t.Data.Swizzled {
		g, err := findGrid(weight.Shape, m.tensor(aoScale).Shape, [2]int{1, 32})
		if err != nil {
			return m.refuse(aoScale, "%v", err)
		}
		return m.result(newScaled8(weight, scaled8{codes: codes8[weight.DType], scale: numE8M0, bn: int(g.bn)}, g), weight.Shape, inputs, "MXTensor by metadata"), nil
	}
	experts, out, in, ok := dims(weight.Shape)
	if !ok {
		return m.refuse(aoData, "shape %v is no matrix", weight.Shape)
	}
	if err := m.aoTiled(experts, out, in, 32); err != nil {
		return m.refuse(aoScale, "%v", err)
	}
	return m.result(newSwizzled8(weight.DType, experts, out, in), weight.Shape, inputs, "MXTensor by metadata, swizzled scales"), nil
}

// aoFP4 is E2M1 codes with a scale for k.group columns.
func (m *matcher) aoFP4(t *aoType, k fp4, how string) (*Match, error) {
	if !t.Data.Swizzled {
		return m.fp4(aoData, aoScale, k, how)
	}
	weight := m.tensor(aoData)
	experts, out, in, ok := packedShape(weight)
	if !ok {
		return m.refuse(aoData, "%s%v is no matrix of packed codes", weight.DType, weight.Shape)
	}
	if err := m.aoTiled(experts, out, in, int64(k.group)); err != nil {
		return m.refuse(aoScale, "%v", err)
	}
	k.swizzled = true
	c := newFP4(k, experts, out, in)
	c.inputs[1] = tiledScales(experts, out, ceilDiv(in, int64(k.group)))
	return m.result(c, weightShape(len(weight.Shape), experts, out, in), []string{aoData, aoScale}, how+", swizzled scales"), nil
}

// aoTiled checks the shape of scales in 128x4 tiles, one for group columns: a tile of 512 bytes counts as [32, 16]. Tiles do not span experts.
func (m *matcher) aoTiled(experts, out, in, group int64) error {
	shape := m.tensor(aoScale).Shape
	want := weightShape(len(m.tensor(aoData).Shape), experts, 32*ceilDiv(out, 128), 16*ceilDiv(in, 4*group))
	if !slices.Equal(shape, want) || experts > 1 && out%128 != 0 {
		return fmt.Errorf("scale shape %v, expected %v in tiles over %d experts of %d rows", shape, want, experts, out)
	}
	return nil
}

// aoNVFP4 is NVFP4 whose per-tensor scale, if there is one, multiplies.
func (m *matcher) aoNVFP4(t *aoType) (*Match, error) {
	if string(t.Data.BlockSize) != "16" || !m.is(aoScale, "F8_E4M3") || !m.is(aoData, "U8", "F4") {
		return m.refuse(aoScale, "NVFP4 blocks of %s with scales %s", t.Data.BlockSize, m.tensor(aoScale).DType)
	}
	k := fp4{group: 16, scale: numE4M3}
	if m.has(aoPerTensor) {
		k.second = secondMultiplies
	}
	match, err := m.aoFP4(t, k, "NVFP4Tensor by metadata")
	if err != nil || k.second == secondNone {
		return match, err
	}
	c := match.Codec.(*rowCodec)
	in, err := secondInput(m.tensor(aoPerTensor), c)
	if err != nil {
		return m.refuse(aoPerTensor, "%v", err)
	}
	c.inputs, match.Inputs = append(slices.Clone(c.inputs), in), append(match.Inputs, aoPerTensor)
	return match, nil
}
