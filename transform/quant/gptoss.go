package quant

import (
	"fmt"
	"slices"
)

// gptOSSFormat is the experts of gpt-oss: MXFP4 in X_blocks U8 [experts, out, in/32, 16] and X_scales U8 [experts, out, in/32]. transformers' parameter X is
// [experts, in, out], and that is what the codec makes; Match.Rows keeps [experts, out, in]. The original files (X.blocks, X.scales) are
// loaded as [experts, out, in].
func gptOSSFormat() format {
	return format{
		name:     "gpt-oss",
		declared: []string{"mxfp4"},
		data:     []string{"_blocks", "blocks"},
		sides:    []string{"_scales", "scales"},
		match:    matchGPTOSS,
	}
}

func matchGPTOSS(m *matcher) (*Match, error) {
	data, ok := m.first("_blocks", "blocks")
	if !ok {
		return nil, nil
	}
	side := map[string]string{"_blocks": "_scales", "blocks": "scales"}[data]
	if !m.is(data, "U8") || !m.is(side, "U8", "F8_E8M0") {
		return m.refuse(data, "needs U8 codes with U8 scales in %s", TensorName(m.group.Module, side))
	}
	blocks, scales := m.tensor(data).Shape, m.tensor(side).Shape
	n := len(blocks)
	if n < 3 || n > 4 || blocks[n-1] != 16 || !slices.Equal(blocks[:n-1], scales) || scales[n-2] > maxBytes/32 {
		return m.refuse(data, "blocks %v with scales %v, expected [experts, out, in/32, 16] and [experts, out, in/32]", blocks, scales)
	}
	shape := slices.Clone(scales)
	shape[n-2] *= 32
	experts, out, in, ok := dims(shape)
	if !ok {
		return m.refuse(data, "shape %v is empty or too large", blocks)
	}
	rows := newFP4(fp4{group: 32, scale: numE8M0}, experts, out, in)
	match := m.result(rows, shape, []string{data, side}, "[experts, out, in]")
	match.Name = m.group.Module
	if data == "_blocks" {
		match.How = fmt.Sprintf("siblings %s, transposed to [experts, in, out]", joinSuffixes(match.Inputs))
		match.Rows, match.RowsShape = rows, shape
		match.Codec, match.Shape = newTransposed(rows), append(slices.Clone(shape[:n-3]), in, out)
	}
	return match, nil
}
