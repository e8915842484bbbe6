package quant

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Suffixes of bitsandbytes' 4-bit tensors; a fused parameter has them without "weight.".
const (
	bnbAbsmax       = "weight.absmax"
	bnbMap          = "weight.quant_map"
	bnbNestedAbsmax = "weight.nested_absmax"
	bnbNestedMap    = "weight.nested_quant_map"
	bnbStateNF4     = "weight.quant_state.bitsandbytes__nf4"
	bnbStateFP4     = "weight.quant_state.bitsandbytes__fp4"
)

// bnb4Format is bitsandbytes' NF4 and FP4: the weight flat, two codes a byte, the high nibble first, one absmax for a block of codes. The absmaxes
// themselves may be quantized ("nested"). The shape is in a JSON tensor.
func bnb4Format() format {
	f := format{
		name:     "bitsandbytes-4bit",
		declared: []string{"bitsandbytes"},
		data:     []string{"weight", ""},
		sides:    []string{bnbAbsmax, bnbMap, bnbNestedAbsmax, bnbNestedMap, bnbStateNF4, bnbStateFP4},
		facts:    []string{bnbStateNF4, bnbStateFP4},
		match:    matchBnb4,
	}
	for _, s := range f.sides {
		f.sides = append(f.sides, bnbFused(s))
	}
	f.facts = append(f.facts, bnbFused(bnbStateNF4), bnbFused(bnbStateFP4))
	return f
}

// bnbFused is a suffix as a fused parameter has it.
func bnbFused(suffix string) string { return strings.TrimPrefix(suffix, "weight.") }

// bnbState is the content of the quant_state tensor.
type bnbState struct {
	QuantType       string   `json:"quant_type"`
	BlockSize       int64    `json:"blocksize"`
	Shape           []int64  `json:"shape"`
	NestedBlockSize int64    `json:"nested_blocksize"`
	NestedOffset    *float64 `json:"nested_offset"`
}

// The tables of bitsandbytes (binary32 bits); a stored quant_map says the same.
var (
	nf4Values = valuesOf(0xBF800000, 0xBF3239B1, 0xBF066B30, 0xBECA32A0, 0xBE91A24D, 0xBE3D353F, 0xBDBA7871, 0x00000000,
		0x3DA2FAFF, 0x3E24CAE3, 0x3E7C04DD, 0x3EAD033A, 0x3EE1A4B8, 0x3F1007AB, 0x3F3913B3, 0x3F800000)
	fp4Twelfths = []float32{0, .0625, 8, 12, 4, 6, 2, 3} // times 12
	bnbFP4      = func() *[16]float32 {
		t := new([16]float32)
		for i, v := range fp4Twelfths {
			t[i] = v / 12
			t[i+8] = -t[i]
		}
		t[8] = float32(math.Copysign(0, -1))
		return t
	}()
)

func valuesOf(bits ...uint32) *[16]float32 {
	t := new([16]float32)
	for i, b := range bits {
		t[i] = math.Float32frombits(b)
	}
	return t
}

func matchBnb4(m *matcher) (*Match, error) {
	data, suffix := "weight", func(s string) string { return s }
	if m.has("") {
		data, suffix = "", bnbFused
	}
	absmax, nestedAbsmax, nestedMap := suffix(bnbAbsmax), suffix(bnbNestedAbsmax), suffix(bnbNestedMap)
	side, ok := m.first(suffix(bnbStateNF4), suffix(bnbStateFP4))
	if !ok {
		if m.has(absmax) && m.has(data) {
			return m.refuse(absmax, "without a quant_state")
		}
		return nil, nil
	}
	var st bnbState
	if raw := m.tensor(side).Data; len(raw) == 0 || len(raw) > maxFact || json.Unmarshal(raw, &st) != nil {
		return m.refuse(side, "the quantization state is not there or not JSON")
	}
	k := bnb4{table: map[string]*[16]float32{"nf4": nf4Values, "fp4": bnbFP4}[st.QuantType], name: st.QuantType, offset: 0}
	n, ok := product(append([]int64{1}, st.Shape...)...)
	switch {
	case k.table == nil:
		return m.refuse(side, "quant_type %q is unknown", st.QuantType)
	case !ok || n > maxBytes/8:
		return m.refuse(side, "shape %v is empty or too large", st.Shape)
	case st.BlockSize < 2 || st.BlockSize > 1<<16 || st.BlockSize%2 != 0:
		return m.refuse(side, "blocksize %d is unknown", st.BlockSize)
	case m.bytes(data) != ceilDiv(n, 2):
		return m.refuse(data, "%d bytes for %d codes", m.bytes(data), n)
	}
	blocks := ceilDiv(n, st.BlockSize)
	in := min(n, st.BlockSize)
	codes := rowInput{rowBytes: ceilDiv(in, 2), perExpert: blocks, num: 1, den: 1, size: ceilDiv(n, 2), unitBytes: 1}
	c := &rowCodec{experts: 1, out: blocks, in: in, size: 2 * n, unit: 2, inputs: []rowInput{codes}}
	inputs := []string{data, absmax}
	if m.has(nestedAbsmax) || m.is(absmax, "U8") {
		if reason := m.nested(&st, blocks, absmax, nestedAbsmax, nestedMap); reason != "" {
			return m.refuse(nestedAbsmax, "%s", reason)
		}
		k.nested, k.offset = true, float32(*st.NestedOffset)
		inputs = append(inputs, nestedAbsmax, nestedMap)
		c.inputs = append(c.inputs, rowData(1, 1, blocks, 0),
			rowInput{rowBytes: 4, perExpert: 1, num: 1, den: st.NestedBlockSize, size: 4 * ceilDiv(blocks, st.NestedBlockSize)}, wholeInput(4*256))
	} else if !m.is(absmax, "F32") || m.bytes(absmax) != 4*blocks {
		return m.refuse(absmax, "missing, or not F32 with %d blocks: %s%v", blocks, m.tensor(absmax).DType, m.tensor(absmax).Shape)
	} else {
		c.inputs = append(c.inputs, rowData(4, 1, blocks, 0))
	}
	c.text = fmt.Sprintf("bnb4(%s,block=%d,nested=%t/%d,offset=%08X)", k.name, st.BlockSize, k.nested, st.NestedBlockSize, math.Float32bits(k.offset))
	c.kernel = k.kernel()
	return m.result(c, slices.Clone(st.Shape), inputs, fmt.Sprintf("%s in blocks of %d by quant_state", k.name, st.BlockSize)), nil
}

// nested says what is wrong with the tensors of quantized absmaxes, "" if nothing is.
func (m *matcher) nested(st *bnbState, blocks int64, absmax, nestedAbsmax, nestedMap string) string {
	switch {
	case st.NestedOffset == nil || st.NestedBlockSize < 1 || st.NestedBlockSize > 1<<16:
		return fmt.Sprintf("nested_offset is missing or nested_blocksize %d impossible", st.NestedBlockSize)
	case m.bytes(absmax) != blocks || !m.is(absmax, "U8"):
		return fmt.Sprintf("absmax is not U8 with %d blocks", blocks)
	case !m.is(nestedAbsmax, "F32") || m.bytes(nestedAbsmax) != 4*ceilDiv(blocks, st.NestedBlockSize):
		return "nested_absmax is not F32 with one value for each of its blocks"
	case !m.is(nestedMap, "F32") || m.bytes(nestedMap) != 4*256:
		return "nested_quant_map is not F32[256]"
	}
	return ""
}

// bytes is the number of bytes of a tensor by its header, -1 if it has none or an unknown dtype.
func (m *matcher) bytes(suffix string) int64 {
	t, ok := m.group.Tensors[suffix]
	size, known := dtypeBytes[t.DType]
	n, fits := product(append([]int64{size}, t.Shape...)...)
	if !ok || !known || !fits {
		return -1
	}
	return n
}

// dtypeBytes are the dtypes of whole bytes.
var dtypeBytes = map[string]int64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
	"I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "C64": 8, "F64": 8, "I64": 8, "U64": 8,
}

// bnb4 decodes blocks as rows: value = table[code] * absmax; nested: absmax = f32(f32(map[byte] * nested absmax) + offset). Inputs: data, absmax,
// and for nested ones nested absmax and its map.
type bnb4 struct {
	name   string
	table  *[16]float32
	nested bool
	offset float32
}

// absmax is the scale of row r of the strip.
func (k *bnb4) absmax(s *strip, r int) float32 {
	if !k.nested {
		return numF32.at(s.at(1, r), 0)
	}
	return float32(numF32.at(s.in[3], int(s.at(1, r)[0]))*numF32.at(s.at(2, r), 0)) + k.offset
}

// refBnb4 is the reference kernel.
type refBnb4 struct{ bnb4 }

func (k refBnb4) decode(s *strip) error {
	for r := range s.rows {
		dst, data, absmax := s.out1(r), s.at(0, r), k.absmax(s, r)
		for c := s.c0; c < s.c1; c++ {
			code := data[(c-s.c0)/2] >> (4 - 4*(c%2)) & 15
			putBF16(dst, c-s.c0, k.table[code]*absmax)
		}
	}
	return nil
}

// bnb8Format is LLM.int8: I8 [out, in] and SCB F32 [out]; value = f32(code * SCB) / 127, by the binary32 next to 1/127.
func bnb8Format() format {
	return format{
		name:     "bitsandbytes-int8",
		declared: []string{"bitsandbytes"},
		data:     []string{"weight"},
		sides:    []string{"SCB", "weight_format"},
		facts:    []string{"weight_format"},
		match:    matchBnb8,
	}
}

func matchBnb8(m *matcher) (*Match, error) {
	if !m.has("SCB") || !m.is("weight", "I8") {
		return nil, nil
	}
	weight := m.tensor("weight")
	experts, out, in, ok := dims(weight.Shape)
	if !ok || len(weight.Shape) != 2 {
		return m.refuse("weight", "shape %v is no matrix", weight.Shape)
	}
	if !m.is("SCB", "F32") || m.bytes("SCB") != 4*out {
		return m.refuse("SCB", "%s%v, expected F32[%d]", m.tensor("SCB").DType, m.tensor("SCB").Shape, out)
	}
	if data := m.tensor("weight_format").Data; m.has("weight_format") && slices.ContainsFunc(data, func(b byte) bool { return b != 0 }) {
		return m.refuse("weight_format", "layout %v is not row-major", data)
	}
	c := &rowCodec{
		text: "bnb8", experts: experts, out: out, in: in, size: 2 * out * in, unit: 1, kernel: bnb8{}.kernel(),
		inputs: []rowInput{rowData(in, 1, out, 1), rowData(4, 1, out, 0)},
	}
	return m.result(c, weight.Shape, []string{"weight", "SCB"}, "I8 with one SCB a row"), nil
}

// inverse127 is the binary32 nearest to 1/127.
var inverse127 = math.Float32frombits(0x3C010204)

// bnb8 is LLM.int8's arithmetic.
type bnb8 struct{}

// value is the result of a code.
func (bnb8) value(code int8, scb float32) float32 { return float32(float32(code)*scb) * inverse127 }

// refBnb8 is the reference kernel.
type refBnb8 struct{ bnb8 }

func (k refBnb8) decode(s *strip) error {
	for r := range s.rows {
		dst, data, scb := s.out1(r), s.at(0, r), numF32.at(s.at(1, r), 0)
		for c := range s.c1 - s.c0 {
			putBF16(dst, c, k.value(int8(data[c]), scb))
		}
	}
	return nil
}
