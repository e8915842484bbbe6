package quant

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// comfyFormat is ComfyUI's mixed precision: a U8 tensor X.comfy_quant holds JSON that names the layer's format, or the file's metadata
// _quantization_metadata does for all layers. Scaled FP8 is ordinary; NVFP4 has the high nibble first; NVFP4 and MXFP8 pad rows and columns and keep
// their scales in the 128x4 tiles that cuBLAS wants. Legacy files have X.scale_weight and a file-level scaled_fp8.
func comfyFormat() format {
	return format{
		name:  "comfy",
		data:  []string{"weight"},
		sides: append([]string{"weight_scale", "weight_scale_2", "comfy_quant", "scale_weight", "scale_input", "scaled_fp8"}, activationSuffixes...),
		kept:  []string{"pre_quant_scale", "bias"},
		facts: []string{"comfy_quant"},
		match: matchComfy,
	}
}

// comfyLayer is the description of one layer.
type comfyLayer struct {
	Format  string `json:"format"`
	ConvRot bool   `json:"convrot"`
}

// maxFact bounds the content of a fact that is parsed.
const maxFact = 1 << 16

// comfyLayer finds the description of the group's module, in its own tensor or in the file's metadata. found is false if there is none.
func (m *matcher) comfyLayer() (layer comfyLayer, found bool, err error) {
	raw := m.tensor("comfy_quant").Data
	if !m.has("comfy_quant") {
		layers := object(object(json.RawMessage(m.group.Metadata["_quantization_metadata"]))["layers"])
		if raw, found = layers[m.group.Module]; !found {
			for name, content := range layers { // names may lack the file's prefix
				if strings.HasSuffix(m.group.Module, "."+name) {
					raw, found = content, true
				}
			}
		}
		if !found {
			return layer, false, nil
		}
	}
	if len(raw) == 0 || len(raw) > maxFact || json.Unmarshal(raw, &layer) != nil {
		return layer, true, fmt.Errorf("the layer's description is missing or malformed: %.60q", raw)
	}
	return layer, true, nil
}

func matchComfy(m *matcher) (*Match, error) {
	if len(m.group.Tensors) == 1 && m.has("scaled_fp8") {
		return &Match{Format: m.format.name, How: "marker of legacy scaled FP8 files", Drop: []string{"scaled_fp8"}}, nil
	}
	if m.has("scale_weight") && m.has("weight") && isF8(m.tensor("weight").DType) {
		return m.comfyFP8("scale_weight")
	}
	if !m.is("weight", "U8", "I8", "F8_E4M3", "F8_E5M2", "I32") {
		return nil, nil
	}
	layer, found, err := m.comfyLayer()
	if !found {
		return nil, nil
	}
	if err != nil {
		return m.refuse("comfy_quant", "%v", err)
	}
	if layer.ConvRot {
		return m.refuse("weight", "rotated weights (convrot): the order of the sums that undo it is not fixed")
	}
	switch layer.Format {
	case "float8_e4m3fn", "float8_e5m2", "int8_tensorwise":
		return m.comfyFP8("weight_scale")
	case "mxfp8":
		return m.comfyMXFP8()
	case "nvfp4":
		return m.comfyNVFP4()
	}
	return m.refuse("weight", "layer format %q has no exact decoding here", layer.Format)
}

// comfyFP8 is one-byte codes with one scale, or one a row.
func (m *matcher) comfyFP8(side string) (*Match, error) {
	weight, scale := m.tensor("weight"), m.tensor(side)
	num := numbers[scale.DType]
	if codes8[weight.DType] == nil || num != numF32 && num != numBF16 && num != numF16 {
		return m.refuse("weight", "%s with %s of dtype %q", weight.DType, side, scale.DType)
	}
	shape := weight.Shape
	if len(shape) > 3 && len(trimOnes(scale.Shape)) == 0 { // convolutions: one scale, the axes do not matter
		n, ok := product(shape[1:]...)
		if !ok {
			return m.refuse("weight", "shape %v is empty or too large", shape)
		}
		weight.Shape = []int64{shape[0], n}
	}
	g, err := findGrid(weight.Shape, scale.Shape, [2]int{})
	if err != nil {
		return m.refuse(side, "%v", err)
	}
	k := scaled8{codes: codes8[weight.DType], scale: num, bn: int(g.bn)}
	return m.result(newScaled8(weight, k, g), shape, []string{"weight", side}, g.how), nil
}

// padding describes a stored matrix whose rows and columns were padded, and the swizzled scales over it.
type padding struct {
	out, in           int64 // logical; in is the padded length, which nothing in the file shortens
	rows              int64 // stored
	scaleRows, scales int64 // stored scale shape: a multiple of 128 by a multiple of 4
}

// padded reads the stored shapes of a swizzled format with a scale for group columns. The length of the bias, if there is one, is the number of rows.
func (m *matcher) padded(rows, in, group int64) (padding, error) {
	p := padding{out: rows, in: in, rows: rows, scaleRows: ceilDiv(rows, 128) * 128, scales: ceilDiv(ceilDiv(in, group), 4) * 4}
	if bias := m.tensor("bias").Shape; len(bias) == 1 && bias[0] > 0 && bias[0] <= rows && rows-bias[0] < 32 {
		p.out = bias[0]
	} else if len(bias) > 0 {
		return p, fmt.Errorf("bias %v does not go with %d rows", bias, rows)
	}
	want, got := []int64{p.scaleRows, p.scales}, m.tensor("weight_scale").Shape
	if n, ok := product(append([]int64{1}, got...)...); !ok || n != p.scaleRows*p.scales || len(got) == 2 && !slices.Equal(got, want) {
		return p, fmt.Errorf("scale shape %v, expected %v", got, want)
	}
	return p, nil
}

// tiledScales is the input of scales in 128x4 tiles, of which every row of a weight [experts, out] has cols: 128 rows share a row of tiles.
func tiledScales(experts, out, cols int64) rowInput {
	bands, rowBytes := ceilDiv(out, 128), 128*4*ceilDiv(cols, 4)
	return rowInput{rowBytes: rowBytes, perExpert: bands, num: 1, den: 128, size: experts * bands * rowBytes}
}

// warn says what nothing in the file tells.
func (p padding) warn(m *matcher) []string {
	out := m.altered()
	if p.out == p.rows && !m.has("bias") {
		out = append(out, fmt.Sprintf("the stored shape [%d, %d] is taken as it is: padding rows or columns would not show", p.rows, p.in))
	}
	return out
}

func (m *matcher) comfyNVFP4() (*Match, error) {
	weight := m.tensor("weight")
	if weight.DType != "U8" || len(weight.Shape) != 2 || !m.is("weight_scale", "F8_E4M3", "U8") {
		return m.refuse("weight", "nvfp4 needs U8 codes and F8_E4M3 scales")
	}
	_, rows, in, ok := packedShape(weight)
	if !ok {
		return m.refuse("weight", "shape %v is no matrix", weight.Shape)
	}
	p, err := m.padded(rows, in, 16)
	if err != nil {
		return m.refuse("weight_scale", "%v", err)
	}
	k := fp4{group: 16, highFirst: true, scale: numE4M3, second: secondMultiplies, swizzled: true}
	c := newFP4(k, 1, p.out, p.in)
	c.inputs = []rowInput{rowData(in/2, 1, rows, 1), tiledScales(1, rows, p.scales)}
	second, err := secondInput(m.tensor("weight_scale_2"), c)
	if err != nil {
		return m.refuse("weight_scale_2", "%v", err)
	}
	c.inputs = append(c.inputs, second)
	match := m.result(c, []int64{p.out, p.in}, []string{"weight", "weight_scale", "weight_scale_2"}, "nvfp4, high nibble first, swizzled scales")
	match.Warnings = p.warn(m)
	return match, nil
}

func (m *matcher) comfyMXFP8() (*Match, error) {
	weight := m.tensor("weight")
	_, rows, in, ok := dims(weight.Shape)
	if weight.DType != "F8_E4M3" || len(weight.Shape) != 2 || !ok || !m.is("weight_scale", "F8_E8M0", "U8") {
		return m.refuse("weight", "mxfp8 needs F8_E4M3 codes and E8M0 scales")
	}
	p, err := m.padded(rows, in, 32)
	if err != nil {
		return m.refuse("weight_scale", "%v", err)
	}
	c := newSwizzled8(weight.DType, 1, p.out, p.in)
	c.inputs = []rowInput{rowData(in, 1, rows, 1), tiledScales(1, rows, p.scales)}
	match := m.result(c, []int64{p.out, p.in}, []string{"weight", "weight_scale"}, "mxfp8, swizzled scales")
	match.Warnings = p.warn(m)
	return match, nil
}

// newSwizzled8 is the codec of MXFP8 with scales in 128x4 tiles.
func newSwizzled8(dtype string, experts, out, in int64) *rowCodec {
	return &rowCodec{
		text: fmt.Sprintf("mxfp8(%s,scales=128x4)", dtype), experts: experts, out: out, in: in, size: 2 * experts * out * in, unit: 1,
		kernel: swizzled8{codes8[dtype]}, inputs: []rowInput{rowData(in, experts, out, 1), tiledScales(experts, out, ceilDiv(in, 32))},
	}
}

// swizzled8 decodes MXFP8 whose scales lie in 128x4 tiles: value = code * 2^(scale-127).
type swizzled8 struct{ codes *[256]float32 }

func (k swizzled8) decode(s *strip) error {
	at := fp4{swizzled: true}
	for r := range s.rows {
		dst, data := s.out1(r), s.at(0, r)
		for c := s.c0; c < s.c1; c++ {
			scale := e8m0Values[s.at(1, r)[at.scaleIndex(s, r, c/32)]]
			putBF16(dst, c-s.c0, k.codes[data[c-s.c0]]*scale)
		}
	}
	return nil
}
