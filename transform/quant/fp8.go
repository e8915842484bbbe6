package quant

import "fmt"

// fp8Format is one-byte codes (F8 of every kind, I8) with scales that multiply: one for the tensor, a row, a group of columns or a
// block. It covers DeepSeek and Qwen ("fp8", weight_scale_inv), DeepSeek-V4 (scale), compressed-tensors float-quantized, naive-quantized
// and int-quantized, mxfp8, ModelOpt FP8 and MXFP8, fbgemm, Quark, Mistral's native qscale_weight. A U8 scale of an F8 weight is always an
// E8M0 exponent. GPTQModel's FP8 declares that its weight_scale_inv divides.
func fp8Format() format {
	return format{
		name:     "fp8",
		declared: []string{"fp8", "fbgemm_fp8", "mxfp8", "compressed-tensors", "modelopt", "quark", "auto-round"},
		data:     []string{"weight", ""},
		sides:    append(append([]string{}, scaleSuffixes...), append([]string{"weight_zero_point", "weight_g_idx"}, activationSuffixes...)...),
		match:    matchFP8,
	}
}

// scaleSuffixes are the names of a scale that multiplies, in the order in which they are looked for.
var scaleSuffixes = []string{"weight_scale_inv", "weight_scale", "scale", "qscale_weight", "_scale_inv", "_scales_inv", "_weight_scale", "_weight_scale_inv", "_scale"}

// activationSuffixes are side tensors that concern activations only.
var activationSuffixes = []string{"input_scale", "input_zero_point", "input_global_scale", "activation_scale", "input_scale_ub", "qscale_act", "k_scale", "v_scale", "q_scale",
	"_input_scale", "_input_scale_inv", "_activation_scale", "_input_global_scale"}

func isF8(dtype string) bool { return codes8[dtype] != nil && dtype != "I8" }

func matchFP8(m *matcher) (*Match, error) {
	data, ok := m.first("weight", "")
	if !ok || codes8[m.tensor(data).DType] == nil {
		return nil, nil
	}
	weight := m.tensor(data)
	side, ok := m.first(scaleSuffixes...)
	if !ok {
		return matchBareF8(m, data)
	}
	scale := m.tensor(side)
	num, ok := scaleNumber(weight.DType, scale.DType)
	if !ok {
		return m.refuse(side, "a scale of dtype %s over %s is unknown", scale.DType, weight.DType)
	}
	if second, ok := m.first("weight_scale_2", "weight_global_scale"); ok {
		return m.refuse(second, "a second scale over %s weights is unknown", weight.DType)
	}
	if m.has("weight_g_idx") {
		return m.refuse("weight_g_idx", "a group index over %s weights is unknown", weight.DType)
	}
	g, err := findGrid(weight.Shape, scale.Shape, m.group.Config.Block)
	if err != nil {
		return m.refuse(side, "%v", err)
	}
	k := scaled8{codes: codes8[weight.DType], scale: num, bn: int(g.bn)}
	inputs := []string{data, side}
	if semantics := m.group.Config.str("weight_scale_semantics"); semantics == "inverse" && side == "weight_scale_inv" {
		k.divides, g.how = true, g.how+", scale divides by weight_scale_semantics"
	} else if semantics != "" {
		return m.refuse(side, "weight_scale_semantics %q is unknown", semantics)
	}
	if m.has("weight_zero_point") {
		zp := m.tensor("weight_zero_point")
		if k.zero, ok = map[string]number{"I8": numI8, "F8_E4M3": numE4M3}[zp.DType]; !ok || !sameShape(zp.Shape, scale.Shape) {
			return m.refuse("weight_zero_point", "zero points %s%v do not go with scales %v", zp.DType, zp.Shape, scale.Shape)
		}
		inputs = append(inputs, "weight_zero_point")
	}
	return m.result(newScaled8(weight, k, g), weight.Shape, inputs, fmt.Sprintf("%s with %s scales, %s", weight.DType, num, g.how)), nil
}

// matchBareF8 judges a one-byte weight without a scale. F8 is a plain dtype in a release where nothing is quantized; elsewhere the scale is missing.
func matchBareF8(m *matcher, data string) (*Match, error) {
	c := m.group.Config
	if isF8(m.tensor(data).DType) && (c.Method != "" || c.ScaledF8) {
		return m.refuse(data, "%s without a scale in a quantized release", m.tensor(data).DType)
	}
	return nil, nil
}

// scaleNumber says how a scale's dtype is read over a weight's.
func scaleNumber(weight, scale string) (number, bool) {
	switch scale {
	case "F32", "BF16", "F16", "F8_E8M0":
		return numbers[scale], true
	case "U8":
		return numE8M0, isF8(weight)
	}
	return numNone, false
}

// newScaled8 is the codec of one-byte codes under a grid of scales.
func newScaled8(weight Tensor, k scaled8, g grid) *rowCodec {
	experts, out, in, _ := dims(weight.Shape)
	kernel := k.kernel()
	if k.divides {
		kernel = refScaled8{k}
	}
	c := &rowCodec{
		text: fmt.Sprintf("scaled8(%s,rows=%d,%s)", weight.DType, g.bm, k.params()), experts: experts, out: out, in: in, size: 2 * experts * out * in,
		unit: 1, kernel: kernel,
		inputs: []rowInput{rowData(in, experts, out, 1), g.input(k.scale.size())},
	}
	if k.zero != numNone {
		c.inputs = append(c.inputs, g.input(k.zero.size()))
	}
	return c
}

// activationFormat is a group that has nothing but scales of activations or of the KV cache, in a release that declares quantization: they
// are dropped.
func activationFormat() format {
	return format{
		name:  "activation-scales",
		sides: activationSuffixes,
		match: func(m *matcher) (*Match, error) {
			var drop []string
			for suffix := range m.group.Tensors {
				if !contains(activationSuffixes, suffix) {
					return nil, nil
				}
				drop = append(drop, suffix)
			}
			if len(drop) == 0 || m.group.Config.Method == "" {
				return nil, nil
			}
			return &Match{Format: m.format.name, How: "scales of activations or the KV cache, nothing to decode", Drop: sorted(drop)}, nil
		},
	}
}
