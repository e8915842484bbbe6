package quant

import (
	"encoding/json"
	"fmt"
	"slices"
)

// mxfp4Format is OCP MXFP4: E2M1 codes, the low nibble the even column, one E8M0 exponent for 32 columns; exact. compressed-tensors calls the
// tensors weight_packed and weight_scale (mxfp4-pack-quantized), Quark and ModelOpt weight and weight_scale.
func mxfp4Format() format {
	return format{
		name:     "mxfp4",
		declared: []string{"mxfp4", "compressed-tensors", "modelopt", "quark", "auto-round"},
		data:     []string{"weight_packed", "weight", ""},
		sides:    append([]string{"weight_scale", "_weight_scale", "_scale"}, activationSuffixes...),
		match:    matchMXFP4,
	}
}

func matchMXFP4(m *matcher) (*Match, error) {
	data, ok := m.first("weight_packed", "weight", "")
	if !ok || !m.is(data, "U8") || m.has("weight_global_scale") || m.has("weight_scale_2") || m.has("comfy_quant") {
		return nil, nil
	}
	side, ok := m.first("weight_scale", "_weight_scale", "_scale")
	if !ok || !m.is(side, "U8", "F8_E8M0") {
		return nil, nil
	}
	if what := m.group.Config.quarkScales(); what != "" {
		return m.refuse(side, "Quark declares %s: its scales are no E8M0 exponents", what)
	}
	return m.fp4(data, side, fp4{group: 32, scale: numE8M0}, "E2M1 codes with E8M0 scales")
}

// quarkScales says which weights of a Quark release have scales of one byte that are not E8M0: those of dtype "mx" hold exponents without a bias, and
// scale_format "e5m3" is a small float. It is "" if there are none.
func (c *Config) quarkScales() string {
	if c.Method != "quark" {
		return ""
	}
	layers := []map[string]json.RawMessage{object(c.members()["global_quant_config"])}
	for _, key := range []string{"layer_type_quant_config", "layer_quant_config"} {
		for _, raw := range object(c.members()[key]) {
			layers = append(layers, object(raw))
		}
	}
	for _, layer := range layers {
		weight := object(layer["weight"])
		switch dtype, scale := text(weight, "dtype"), text(weight, "scale_format"); {
		case dtype == "mx":
			return "dtype mx"
		case dtype == "fp4" && scale != "" && scale != "e8m0":
			return "scale_format " + scale
		}
	}
	return ""
}

// deepseekFP4Format is the routed experts of DeepSeek-V4: MXFP4 in a weight typed I8 (F4 and U8 are read alike) with an E8M0 scale.
func deepseekFP4Format() format {
	return format{
		name:     "deepseek-fp4",
		declared: []string{"fp8"},
		data:     []string{"weight"},
		sides:    []string{"scale"},
		match: func(m *matcher) (*Match, error) {
			if !m.is("weight", "I8", "U8", "F4") || !m.is("scale", "F8_E8M0") {
				return nil, nil
			}
			return m.fp4("weight", "scale", fp4{group: 32, scale: numE8M0}, "E2M1 codes with E8M0 scales")
		},
	}
}

// packedShape is the shape of a weight of two codes a byte: as it stands for F4, whose shape counts codes, else with twice the columns.
func packedShape(t Tensor) (experts, out, in int64, ok bool) {
	shape := slices.Clone(t.Shape)
	if t.DType != "F4" && len(shape) > 0 && shape[len(shape)-1] < maxBytes {
		shape[len(shape)-1] *= 2
	}
	experts, out, in, ok = dims(shape)
	return experts, out, in, ok && in%2 == 0
}

// fp4 is the match of E2M1 codes with one scale for k.group columns in a matrix of scales.
func (m *matcher) fp4(data, side string, k fp4, how string) (*Match, error) {
	weight, scale := m.tensor(data), m.tensor(side)
	experts, out, in, ok := packedShape(weight)
	if !ok {
		return m.refuse(data, "%s%v is no matrix of packed codes", weight.DType, weight.Shape)
	}
	if want := weightShape(len(weight.Shape), experts, out, ceilDiv(in, int64(k.group))); !slices.Equal(want, scale.Shape) {
		return m.refuse(side, "scale shape %v, expected %v: one for %d columns of %d", scale.Shape, want, k.group, in)
	}
	inputs := []string{data, side}
	c := newFP4(k, experts, out, in)
	return m.result(c, weightShape(len(weight.Shape), experts, out, in), inputs, how), nil
}

// newFP4 is the codec of packed E2M1 codes with linear scales.
func newFP4(k fp4, experts, out, in int64) *rowCodec {
	cols := ceilDiv(in, int64(k.group))
	return &rowCodec{
		text: fmt.Sprintf("fp4(%s)", k.params()), experts: experts, out: out, in: in, size: 2 * experts * out * in,
		unit: 2, kernel: k.kernel(),
		inputs: []rowInput{rowData(in/2, experts, out, 1), rowData(cols, experts, out, 0)},
	}
}
