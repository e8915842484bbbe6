package quant

import (
	"encoding/binary"
	"fmt"
	"slices"

	"weightfs/fs/plan"
)

// hqqFormat is HQQ: W_q holds the weight reshaped to [groups, size] (axis 1) or [size, groups] (axis 0), several far-apart rows in one packed
// row; scale and zero belong to a group; everything else about it is in small tensors. value = f32(code - zero) * scale.
func hqqFormat() format {
	return format{
		name:     "hqq",
		declared: []string{"hqq"},
		data:     []string{"W_q"},
		sides: []string{"scale", "zero", "nbits", "group_size", "shape", "axis", "packing", "unpack_view_dtype", "view_as_float", "quant_scale", "quant_zero",
			"compute_dtype", "offload_meta", "encoded_state_dict", "stores_quant_config", "channel_wise", "optimize", "round_zero"},
		facts: []string{"nbits", "group_size", "shape", "axis", "packing", "quant_scale", "quant_zero", "channel_wise"},
		match: matchHQQ,
	}
}

// hqqPacking is how codes lie in an element of W_q: slab i of count is at the i-th highest place of bits.
type hqqPacking struct{ element, bits, count int }

var hqqPackings = map[string]hqqPacking{
	"8bit_u8": {1, 8, 1}, "4bit_u8": {1, 4, 2}, "2bit_u8": {1, 2, 4}, "1bit_u8": {1, 1, 8}, "3bit_32": {4, 3, 10},
}

// shift is where slab i has its codes.
func (p hqqPacking) shift(i int) int { return p.bits * (p.count - 1 - i) }

// hqqShape is what the small tensors say.
type hqqShape struct {
	shape         []int64
	axis, group   int64
	packing       hqqPacking
	rows, columns int64 // of the grouped matrix
	step          int64 // packed rows
}

// scalar is the one integer of a small tensor (I32, I64, U8); ok is false if it is not there.
func (m *matcher) scalar(suffix string) (int64, bool) {
	t := m.tensor(suffix)
	if t.DType == "U8" && len(t.Data) == 1 {
		return int64(t.Data[0]), true
	}
	if list := integers(t); len(list) == 1 {
		return list[0], true
	}
	return 0, false
}

// hqqShape reads the facts. The reason names what is wrong.
func (m *matcher) hqqShape() (h hqqShape, suffix, reason string) {
	for _, nested := range []string{"quant_scale", "quant_zero"} {
		if v, ok := m.scalar(nested); ok && v != 0 {
			return h, nested, "quantized scales or zero points are not specified"
		}
	}
	if v, ok := m.scalar("channel_wise"); ok && v != 1 {
		return h, "channel_wise", "one scale for the tensor is not specified"
	}
	var ok bool
	if h.packing, ok = hqqPackings[string(m.tensor("packing").Data)]; !ok {
		return h, "packing", fmt.Sprintf("%q is unknown", m.tensor("packing").Data)
	}
	h.shape = integers(m.tensor("shape"))
	n, fits := product(h.shape...)
	if len(h.shape) != 2 || !fits || n > maxBytes/8 {
		return h, "shape", fmt.Sprintf("%v is no matrix", h.shape)
	}
	if h.axis, ok = m.scalar("axis"); !ok || h.axis != 0 && h.axis != 1 {
		return h, "axis", fmt.Sprintf("axis %d is unknown", h.axis)
	}
	if h.group, ok = m.scalar("group_size"); !ok || h.group < 1 || n%h.group != 0 {
		return h, "group_size", fmt.Sprintf("group size %d over %d elements", h.group, n)
	}
	h.rows, h.columns = n/h.group, h.group
	if h.axis == 0 {
		h.rows, h.columns = h.group, n/h.group
	}
	if h.rows%int64(h.packing.count) != 0 && h.packing.bits != 3 {
		return h, "W_q", fmt.Sprintf("%d rows cannot be packed %d in one", h.rows, h.packing.count)
	}
	h.step = ceilDiv(h.rows, int64(h.packing.count))
	return h, "", ""
}

func matchHQQ(m *matcher) (*Match, error) {
	if !m.has("W_q") {
		return nil, nil
	}
	h, suffix, reason := m.hqqShape()
	if reason != "" {
		return m.refuse(suffix, "%s", reason)
	}
	if want := h.step * h.columns * int64(h.packing.element); m.bytes("W_q") != want {
		return m.refuse("W_q", "%d bytes, expected %d", m.bytes("W_q"), want)
	}
	floats := map[string]number{"F32": numF32, "BF16": numBF16, "F16": numF16}
	scale, zero := floats[m.tensor("scale").DType], floats[m.tensor("zero").DType]
	groups := h.shape[0] * h.shape[1] / h.group
	for _, s := range []struct {
		suffix string
		num    number
	}{{"scale", scale}, {"zero", zero}} {
		if s.num == numNone || m.bytes(s.suffix) != groups*s.num.size() {
			return m.refuse(s.suffix, "missing, or not one floating value for each of %d groups: %s%v", groups, m.tensor(s.suffix).DType, m.tensor(s.suffix).Shape)
		}
	}
	codec := make(concat, 0, h.packing.count)
	for i := range h.packing.count {
		if rows := min(h.step, h.rows-int64(i)*h.step); rows > 0 {
			codec = append(codec, h.slab(i, rows, scale, zero))
		}
	}
	how := fmt.Sprintf("%s, axis %d, groups of %d", m.tensor("packing").Data, h.axis, h.group)
	return m.result(codec, slices.Clone(h.shape), []string{"W_q", "scale", "zero"}, how), nil
}

// slab is the codec of the i-th rows of every packed row.
func (h *hqqShape) slab(i int, rows int64, scale, zero number) plan.Codec {
	k := hqq{element: h.packing.element, shift: h.packing.shift(i), mask: 1<<h.packing.bits - 1, scale: scale, zero: zero, perRow: h.axis == 1}
	element := int64(h.packing.element)
	data := rowData(h.columns*element, 1, h.step, element)
	c := &rowCodec{text: k.text(i), experts: 1, out: rows, in: h.columns, size: 2 * rows * h.columns, unit: 1, kernel: k.kernel()}
	c.inputs = []rowInput{data}
	for _, num := range []number{scale, zero} {
		side := rowInput{size: h.columns * num.size(), whole: true, unitBytes: num.size()}
		if h.axis == 1 {
			side = rowInput{rowBytes: num.size(), perExpert: h.rows, num: 1, den: 1, skip: int64(i) * h.step, size: h.rows * num.size()}
		}
		c.inputs = append(c.inputs, side)
	}
	return c
}

// hqq decodes one slab.
type hqq struct {
	element, shift, mask int
	scale, zero          number
	perRow               bool // a scale for the row, else one for each column
}

func (k hqq) text(slab int) string {
	return fmt.Sprintf("hqq(slab=%d,element=%d,shift=%d,mask=%d,scale=%s,zero=%s,rows=%t)", slab, k.element, k.shift, k.mask, k.scale, k.zero, k.perRow)
}

// refHQQ is the reference kernel.
type refHQQ struct{ hqq }

func (k refHQQ) decode(s *strip) error {
	for r := range s.rows {
		dst, data := s.out1(r), s.at(0, r)
		for c := range s.c1 - s.c0 {
			g := c
			if k.perRow {
				g = 0
			}
			code := uint32(data[c*k.element])
			if k.element == 4 {
				code = binary.LittleEndian.Uint32(data[4*c:])
			}
			v := float32(code>>k.shift&uint32(k.mask)) - k.zero.at(s.at(2, r), g)
			putBF16(dst, c, v*k.scale.at(s.at(1, r), g))
		}
	}
	return nil
}
