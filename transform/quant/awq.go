package quant

import "strings"

// awqFormat is AWQ's GEMM layout: qweight I32 [in, out/8], qzeros I32 [groups, out/8], scales [groups, out]; column j of eight is nibble
// 0 4 1 5 2 6 3 7 of its word.
func awqFormat() format {
	return format{
		name:     "awq",
		declared: []string{"awq", "auto-round"},
		data:     []string{"qweight"},
		sides:    []string{"qzeros", "scales"},
		match:    matchAWQ,
	}
}

func matchAWQ(m *matcher) (*Match, error) {
	qweight, qzeros, scales, num, ok := m.columnShapes()
	if !ok || qweight[1]*8 != scales[1] || qzeros[1] != qweight[1] {
		return nil, nil
	}
	c := &m.group.Config
	for _, key := range []string{"version", "checkpoint_format", "format"} { // AutoAWQ's word and GPTQModel's
		if v := strings.ToLower(c.str(key)); v != "" && v != "gemm" {
			return m.refuse("qweight", "AWQ version %q is packed in another way", v)
		}
	}
	if c.Bits != 0 && c.Bits != 4 {
		return m.refuse("qweight", "AWQ of %d bits is unknown", c.Bits)
	}
	if m.has("g_idx") {
		return m.refuse("g_idx", "a group index beside AWQ's packing is unknown")
	}
	in, out, groups := qweight[0], scales[1], scales[0]
	k := gptq{bits: 4, groups: groups, in: in, scale: num, awq: true, order: []int{0, 4, 1, 5, 2, 6, 3, 7}}
	if k.group, ok = c.columnGroup(in, groups); !ok {
		return m.refuse("scales", "%d groups over %d columns fit no group size", groups, in)
	}
	codec := &columns{
		text: k.text(), out: out, in: in, band: bandRows(2*in, out, 4), kernel: k.kernel(),
		inputs: []colInput{
			{rows: in, rowBytes: out / 2, bits: 4, align: 4, num: 1, den: 1},
			{rows: groups, rowBytes: out / 2, bits: 4, align: 4},
			{rows: groups, rowBytes: out * num.size(), bits: 8 * num.size(), align: num.size()},
		},
	}
	return m.result(codec, []int64{out, in}, []string{"qweight", "qzeros", "scales"}, "columns of qweight are an eighth of those of scales"), nil
}
