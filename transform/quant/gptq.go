package quant

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"weightfs/fs/plan"
)

// gptqFormat is GPTQ: qweight I32 [in*bits/32, out] whose columns are bit streams over in, qzeros I32 [groups, out*bits/32] whose rows are bit streams over
// out, scales [groups, out], optionally g_idx I32 [in]. The first format ("gptq", AutoGPTQ) stores zero points minus one, the second
// ("gptq_v2") as they are. AutoRound's packings are either of them, and also of 5, 6 and 7 bits. GPTQModel's third format ("gptq_p") stores zero points
// as they are and codes of 3, 5, 6 and 7 bits in planes.
func gptqFormat() format {
	return format{
		name:     "gptq",
		declared: []string{"gptq", "auto-round"},
		data:     []string{"qweight"},
		sides:    []string{"qzeros", "scales", "g_idx"},
		match:    matchGPTQ,
	}
}

// columnShapes are the shapes that GPTQ and AWQ share: the two are told apart by the columns of qweight.
func (m *matcher) columnShapes() (qweight, qzeros, scales []int64, num number, ok bool) {
	if !m.is("qweight", "I32") || !m.is("qzeros", "I32") || !m.is("scales", "F16", "BF16", "F32") {
		return nil, nil, nil, 0, false
	}
	qweight, qzeros, scales = m.tensor("qweight").Shape, m.tensor("qzeros").Shape, m.tensor("scales").Shape
	for _, s := range [][]int64{qweight, qzeros, scales} {
		if _, fits := product(s...); len(s) != 2 || !fits || s[0] > maxBytes/1024 || s[1] > maxBytes/1024 {
			return nil, nil, nil, 0, false
		}
	}
	return qweight, qzeros, scales, numbers[m.tensor("scales").DType], qzeros[0] == scales[0]
}

func matchGPTQ(m *matcher) (*Match, error) {
	qweight, qzeros, scales, num, ok := m.columnShapes()
	if !ok || qweight[1] != scales[1] {
		return nil, nil
	}
	if embedding(m.group.Module) {
		return m.refuse("qweight", "a quantized embedding has its rows where other weights have columns: its decoding is not specified")
	}
	groups, out := scales[0], scales[1]
	bits := int(qzeros[1] * 32 / out)
	layout, err := m.group.Config.gptqLayout()
	if err != nil {
		return m.refuse("qzeros", "%v", err)
	}
	if !slices.Contains(layout.widths, bits) || ceilDiv(out*int64(bits), 32) != qzeros[1] {
		return m.refuse("qzeros", "shape %v gives no known width of codes over %d columns", qzeros, out)
	}
	if declared := m.group.Config.Bits; declared != 0 && declared != bits && !m.mixedBits() {
		return m.refuse("qzeros", "shapes say %d bits, the configuration %d", bits, declared)
	}
	if qweight[0]*32%int64(bits) != 0 {
		return m.refuse("qweight", "%d rows hold no whole number of %d-bit codes", qweight[0], bits)
	}
	in := qweight[0] * 32 / int64(bits)
	k := gptq{bits: bits, groups: groups, in: in, scale: num, minusOne: layout.minusOne, planar: layout.planar && 32%bits != 0, order: []int{0, 1, 2, 3, 4, 5, 6, 7}}
	inputs := []string{"qweight", "qzeros", "scales"}
	codec := &columns{
		out: out, in: in, band: bandRows(2*in, out, 32),
		inputs: []colInput{
			{rows: qweight[0], rowBytes: 4 * out, bits: 32, align: 4, num: int64(bits), den: 32},
			{rows: groups, rowBytes: 4 * qzeros[1], bits: int64(bits), align: 4},
			{rows: groups, rowBytes: out * num.size(), bits: 8 * num.size(), align: num.size()},
		},
	}
	if k.planar { // blocks of 32 codes stand or fall together
		if in%32 != 0 || out%32 != 0 {
			return m.refuse("qweight", "[%d, %d] is no whole number of planar blocks of 32 codes", out, in)
		}
		codec.inputs[0].num, codec.inputs[0].den, codec.inputs[1].align = 0, 0, int64(4*bits)
	}
	if m.has("g_idx") {
		if g := m.tensor("g_idx"); g.DType != "I32" || !slices.Equal(g.Shape, []int64{in}) {
			return m.refuse("g_idx", "%s%v, expected I32[%d]", g.DType, g.Shape, in)
		}
		k.index = true
		inputs = append(inputs, "g_idx")
		codec.inputs = append(codec.inputs, colInput{rows: 1, rowBytes: 4 * in, whole: true})
	} else if k.group, ok = m.group.Config.columnGroup(in, groups); !ok {
		return m.refuse("scales", "%d groups over %d columns fit no group size", groups, in)
	}
	codec.kernel, codec.text = k.kernel(), k.text()
	return m.result(codec, []int64{out, in}, inputs, fmt.Sprintf("%d bits, %d groups, zero points %s", bits, groups, map[bool]string{true: "minus one", false: "as they are"}[layout.minusOne])), nil
}

// embedding says whether a module is an embedding by its name. GPTQModel packs them along the vocabulary, and looks rows up in what it decodes.
func embedding(module string) bool {
	name := module[strings.LastIndexByte(module, '.')+1:]
	return slices.Contains([]string{"embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "embedding", "embeddings"}, name)
}

// mixedBits says whether the configuration allows other widths for some modules.
func (m *matcher) mixedBits() bool {
	f := m.group.Config.members()
	return len(object(f["dynamic"])) > 0 || len(object(f["extra_config"])) > 0
}

// columnGroup is the group size of in columns in groups: the declared one if it fits, else the exact quotient.
func (c *Config) columnGroup(in, groups int64) (int64, bool) {
	if c.GroupSize > 0 && ceilDiv(in, int64(c.GroupSize)) == groups {
		return int64(c.GroupSize), true
	}
	return in / groups, in%groups == 0
}

// gptqLayout is what only the configuration says of a GPTQ release.
type gptqLayout struct {
	minusOne bool // zero points are stored minus one
	planar   bool
	widths   []int // of codes
}

// gptqLayout reads the names of the formats.
func (c *Config) gptqLayout() (gptqLayout, error) {
	format, packing := c.str("checkpoint_format"), c.str("packing_format")
	if format == "" {
		format = c.str("format")
	}
	usual, stream := []int{2, 3, 4, 8}, []int{2, 3, 4, 5, 6, 7, 8}
	switch {
	case strings.HasPrefix(packing, "auto_round:auto_gptq"):
		return gptqLayout{minusOne: true, widths: stream}, nil
	case packing == "auto_round" || strings.HasPrefix(packing, "auto_round:gptqmodel") || strings.HasPrefix(packing, "auto_round:exllamav2"):
		return gptqLayout{widths: stream}, nil
	case packing != "":
		return gptqLayout{}, fmt.Errorf("packing_format %q is unknown over qweight", packing)
	case format == "gptq_v2":
		return gptqLayout{widths: usual}, nil
	case format == "gptq_p":
		return gptqLayout{planar: true, widths: stream}, nil
	case format == "gptq" || format == "" && c.Method == "gptq":
		return gptqLayout{minusOne: true, widths: usual}, nil
	case format == "" && c.backend() != "":
		return gptqLayout{minusOne: strings.Contains(c.backend(), "auto_gptq"), widths: usual}, nil
	}
	return gptqLayout{}, fmt.Errorf("quant_method %q with checkpoint_format %q does not say how zero points are stored", c.Method, format)
}

// backend is older AutoRound's word for its packing.
func (c *Config) backend() string {
	if b := c.str("backend"); strings.HasPrefix(b, "auto_round") {
		return b
	}
	return ""
}

// gptq decodes columns: value = f32(code - zero) * scale. AWQ is the same with words along the other axis (see awq).
type gptq struct {
	bits     int
	group    int64 // columns, where there is no index
	groups   int64
	in       int64
	scale    number
	minusOne bool
	planar   bool
	index    bool
	awq      bool
	order    []int // AWQ: the place in a word of each of 8 columns
}

func (k gptq) text() string {
	name := "gptq"
	if k.awq {
		name = "awq"
	} else if k.planar {
		name = "gptq-planar"
	}
	return fmt.Sprintf("%s(bits=%d,columns=%d,groups=%d,scale=%s,minus-one=%t,index=%t)", name, k.bits, k.group, k.groups, k.scale, k.minusOne, k.index)
}

// code is the code of element k of output row n.
func (k *gptq) code(v *colView, n, e int64) int {
	if k.awq {
		return int(v.word(e, n/8)>>(4*k.order[n%8])) & 15
	}
	if k.planar {
		return k.fromPlanes(e%32, func(w int64) uint32 { return v.word(e/32*int64(k.bits)+w, n) })
	}
	bit := e * int64(k.bits)
	w := uint64(v.word(bit/32, n))
	if bit%32+int64(k.bits) > 32 {
		w |= uint64(v.word(bit/32+1, n)) << 32
	}
	return int(w >> (bit % 32) & (1<<k.bits - 1))
}

// zero is the zero point of group g for output row n. Where it is stored minus one, one is added to every code of the word together, carries
// and all, which undoes the writers' subtraction; 3-bit codes, which straddle words, wrap one by one.
func (k *gptq) zero(v *colView, g, n int64) int {
	if k.awq {
		return int(v.word(g, n/8)>>(4*k.order[n%8])) & 15
	}
	if k.planar {
		return k.fromPlanes(n%32, func(w int64) uint32 { return v.word(g, n/32*int64(k.bits)+w) })
	}
	bit := n * int64(k.bits)
	w := uint64(v.word(g, bit/32))
	mask := 1<<k.bits - 1
	if 32%k.bits != 0 {
		if bit%32+int64(k.bits) > 32 {
			w |= uint64(v.word(g, bit/32+1)) << 32
		}
		z := int(w >> (bit % 32))
		if k.minusOne {
			z++
		}
		return z & mask
	}
	if k.minusOne {
		w = uint64(uint32(w) + uint32(0xFFFFFFFF/mask)) // 0xFFFFFFFF/15 = 0x11111111
	}
	return int(w>>(bit%32)) & mask
}

// fromPlanes is code i of a block of 32, which takes as many words as a code has bits: first four bits of every code (two for 3-bit codes), then two bits,
// then one, as far as there are any left.
func (k *gptq) fromPlanes(i int64, word func(w int64) uint32) int {
	code, first, done := 0, int64(0), 0
	for _, width := range []int{4, 2, 1} {
		if width > k.bits-done {
			continue
		}
		per := int64(32 / width) // codes in a word
		code |= int(word(first+i/per)>>(int(i%per)*width)&(1<<width-1)) << done
		first, done = first+int64(width), done+width
	}
	return code
}

// scaleOf is the scale of group g for output row n.
func (k *gptq) scaleOf(v *colView, g, n int64) float32 {
	return k.scale.at(v.row(g)[n*k.scale.size()-v.from:], 0)
}

// groupsOf is the group of every element of a row.
func (k *gptq) groupsOf(s *colStrip) ([]int32, error) {
	list := make([]int32, k.in)
	for e := range list {
		if !k.index {
			list[e] = int32(int64(e) / k.group)
			continue
		}
		g := int32(binary.LittleEndian.Uint32(s.in[3].row(0)[4*e:]))
		if g < 0 || int64(g) >= k.groups {
			return nil, fmt.Errorf("g_idx[%d] is %d with %d groups: %w", e, g, k.groups, plan.ErrBadInput)
		}
		list[e] = g
	}
	return list, nil
}

// refGPTQ is the reference kernel.
type refGPTQ struct{ gptq }

func (k refGPTQ) decode(s *colStrip) error {
	groups, err := k.groupsOf(s)
	if err != nil {
		return err
	}
	for n := s.n0; n < s.n1; n++ {
		dst := s.out(n)
		for e := s.k0; e < s.k1; e++ {
			g := int64(groups[e])
			v := float32(k.code(&s.in[0], n, e)-k.zero(&s.in[1], g, n)) * k.scaleOf(&s.in[2], g, n)
			putBF16(dst, int(e-s.k0), v)
		}
	}
	return nil
}
