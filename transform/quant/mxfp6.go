package quant

import "fmt"

// mxfp6Format is compressed-tensors' MXFP6 (mxfp6-pack-quantized): E2M3 codes, four in three little-endian bytes, one E8M0 exponent for 32 columns; exact.
// No other format has 24 bytes of weight_packed to a scale.
func mxfp6Format() format {
	return format{
		name:     "mxfp6",
		declared: []string{"compressed-tensors", "quark"},
		data:     []string{"weight_packed"},
		sides:    append([]string{"weight_scale"}, activationSuffixes...),
		match:    matchMXFP6,
	}
}

func matchMXFP6(m *matcher) (*Match, error) {
	if !m.is("weight_packed", "U8") || !m.is("weight_scale", "U8", "F8_E8M0") || m.has("weight_global_scale") {
		return nil, nil
	}
	weight, scale := m.tensor("weight_packed"), m.tensor("weight_scale")
	experts, out, rowBytes, ok := dims(weight.Shape)
	if !ok || rowBytes%24 != 0 || !sameShape(scale.Shape, weightShape(len(weight.Shape), experts, out, rowBytes/24)) {
		return nil, nil
	}
	in := rowBytes / 3 * 4
	c := &rowCodec{
		text: "mxfp6(e2m3)", experts: experts, out: out, in: in, size: 2 * experts * out * in, unit: 4, kernel: mxfp6{}.kernel(),
		inputs: []rowInput{rowData(rowBytes, experts, out, 3), rowData(rowBytes/24, experts, out, 0)},
	}
	return m.result(c, weightShape(len(weight.Shape), experts, out, in), []string{"weight_packed", "weight_scale"}, fmt.Sprintf("E2M3 codes with %s scales", scale.DType)), nil
}

// mxfp6 decodes E2M3 codes: value = code * 2^(scale-127).
type mxfp6 struct{}

// refMXFP6 is the reference kernel.
type refMXFP6 struct{ mxfp6 }

func (refMXFP6) decode(s *strip) error {
	for r := range s.rows {
		dst, data, scales := s.out1(r), s.at(0, r), s.at(1, r)
		for c := s.c0; c < s.c1; c += 4 {
			b := data[(c-s.c0)/4*3:]
			word := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
			scale := e8m0Values[scales[c/32]]
			for i := range 4 {
				putBF16(dst, c-s.c0+i, e2m3Values[word>>(6*i)&63]*scale)
			}
		}
	}
	return nil
}
