package quant

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
)

// ctPackFormat is compressed-tensors' pack-quantized: weight_packed I32 [out, ceil(in*bits/32)], weight_scale [out, groups], weight_shape [2], optionally
// weight_zero_point I32 packed along the rows and weight_g_idx I32 [in]. Codes are stored with 2^(bits-1) added. Since May 2026 rows are a dense
// bit stream; before, words of floor(32/bits) codes. The number of words tells them apart.
func ctPackFormat() format {
	return format{
		name:     "pack-quantized",
		declared: []string{"compressed-tensors", "auto-round"},
		data:     []string{"weight_packed"},
		sides:    append([]string{"weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"}, activationSuffixes...),
		facts:    []string{"weight_shape"},
		match:    matchCTPack,
		needs: func(m *matcher) []string {
			if _, _, err := m.ctColumns(); err != nil && m.is("weight_packed", "I32") {
				return []string{"weight_shape"}
			}
			return nil
		},
	}
}

// packing is bits a code and whether words are padded.
type packing struct {
	bits    int
	perWord int // 0: dense
}

// words is the number of 32-bit words of a row.
func (p packing) words(in int64) int64 {
	if p.perWord > 0 {
		return ceilDiv(in, int64(p.perWord))
	}
	return ceilDiv(in*int64(p.bits), 32)
}

// ctColumns finds the row length and the packing of a pack-quantized weight.
func (m *matcher) ctColumns() (in int64, p packing, err error) {
	w, s := m.tensor("weight_packed").Shape, m.tensor("weight_scale").Shape
	if len(w) < 2 || len(w) != len(s) {
		return 0, p, fmt.Errorf("packed %v and scales %v differ in rank", w, s)
	}
	words, groups := w[len(w)-1], s[len(s)-1]
	var found []packing
	for _, n := range m.ctLengths(words, groups) {
		for _, bits := range m.ctBits() {
			for _, p := range []packing{{bits, 0}, {bits, 32 / bits}} {
				if p.words(n) != words || n%groups != 0 || p.perWord > 0 && (32%bits == 0 || words == 1) {
					continue // in one word, and where nothing straddles, both ways are one
				}
				in, found = n, append(found, p)
			}
		}
	}
	if len(found) != 1 {
		return 0, p, fmt.Errorf("%d words and %d groups a row fit %d ways of packing", words, groups, len(found))
	}
	return in, found[0], nil
}

// ctLengths are the possible row lengths: what weight_shape says; else groups times the declared group size.
func (m *matcher) ctLengths(words, groups int64) []int64 {
	if shape := integers(m.tensor("weight_shape")); len(shape) >= 2 && shape[len(shape)-1] > 0 && shape[len(shape)-1] < maxBytes/8 {
		return []int64{shape[len(shape)-1]}
	}
	var list []int64
	for _, size := range m.group.Config.ctIntegers("group_size", 1<<20) {
		if n, ok := product(groups, int64(size)); ok && groups > 1 {
			list = append(list, n)
		}
	}
	return list
}

// ctBits are the declared bit widths, or all.
func (m *matcher) ctBits() []int {
	if list := m.group.Config.ctIntegers("num_bits", 8); len(list) > 0 {
		return list
	}
	return []int{1, 2, 3, 4, 5, 6, 7, 8}
}

// ctIntegers are the different values of a member of the config groups' weight descriptions, within 1..high.
func (c *Config) ctIntegers(key string, high int) []int {
	var list []int
	for _, w := range c.ctWeights() {
		var n int
		if json.Unmarshal(w[key], &n) == nil && n >= 1 && n <= high && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// integers is the content of a small I32 or I64 tensor, nil if it is not there.
func integers(t Tensor) []int64 {
	size := map[string]int{"I32": 4, "I64": 8}[t.DType]
	if size == 0 || len(t.Data)%size != 0 || len(t.Data) > 1<<16 {
		return nil
	}
	list := make([]int64, len(t.Data)/size)
	for i := range list {
		if size == 4 {
			list[i] = int64(int32(binary.LittleEndian.Uint32(t.Data[4*i:])))
		} else {
			list[i] = int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
		}
	}
	return list
}

func matchCTPack(m *matcher) (*Match, error) {
	if !m.is("weight_packed", "I32") {
		return nil, nil
	}
	num, ok := map[string]number{"F32": numF32, "BF16": numBF16, "F16": numF16}[m.tensor("weight_scale").DType]
	if !ok {
		return m.refuse("weight_scale", "missing, or of dtype %q over packed integers", m.tensor("weight_scale").DType)
	}
	in, p, err := m.ctColumns()
	if err != nil {
		return m.refuse("weight_packed", "%v; weight_shape and the declared bits do not settle it", err)
	}
	packedShape, scaleShape := m.tensor("weight_packed").Shape, m.tensor("weight_scale").Shape
	experts, out, words, ok := dims(packedShape)
	groups := scaleShape[len(scaleShape)-1]
	if _, fits := product(experts, out, in); !ok || !fits {
		return m.refuse("weight_packed", "shape %v is no matrix", packedShape)
	}
	if want := weightShape(len(packedShape), experts, out, groups); !slices.Equal(want, scaleShape) {
		return m.refuse("weight_scale", "shape %v, expected %v", scaleShape, want)
	}
	if fact := integers(m.tensor("weight_shape")); len(packedShape) == 2 && len(fact) == 2 && fact[0] != out {
		return m.refuse("weight_shape", "says %v for %d packed rows", fact, out)
	}
	return m.ctCodec(p, num, experts, out, in, words)
}

// ctCodec is the match of a weight whose shapes are known to fit.
func (m *matcher) ctCodec(p packing, num number, experts, out, in, words int64) (*Match, error) {
	packedShape, scaleShape := m.tensor("weight_packed").Shape, m.tensor("weight_scale").Shape
	groups := scaleShape[len(scaleShape)-1]
	k := packed{bits: p.bits, perWord: p.perWord, group: int(in / groups), groups: int(groups), scale: num}
	columns, bytes := k.unit()
	c := &rowCodec{experts: experts, out: out, in: in, size: 2 * experts * out * in, unit: columns}
	c.inputs = []rowInput{rowData(4*words, experts, out, bytes), rowData(groups*num.size(), experts, out, 0)}
	inputs := []string{"weight_packed", "weight_scale"}
	if m.has("weight_zero_point") {
		rows := ceilDiv(out*int64(p.bits), 32)
		if want, zp := weightShape(len(packedShape), experts, rows, groups), m.tensor("weight_zero_point"); zp.DType != "I32" || !slices.Equal(want, zp.Shape) {
			return m.refuse("weight_zero_point", "%s%v, expected I32%v", zp.DType, zp.Shape, want)
		}
		k.zero = zeroPacked
		c.inputs = append(c.inputs, rowInput{rowBytes: 4 * groups, perExpert: rows, num: int64(p.bits), den: 32, size: experts * rows * 4 * groups})
		inputs = append(inputs, "weight_zero_point")
	}
	if k.index = m.has("weight_g_idx"); k.index {
		if g := m.tensor("weight_g_idx"); g.DType != "I32" || !slices.Equal(g.Shape, []int64{in}) {
			return m.refuse("weight_g_idx", "%s%v, expected I32[%d]", g.DType, g.Shape, in)
		}
		c.inputs = append(c.inputs, wholeInput(4*in))
		inputs = append(inputs, "weight_g_idx")
	}
	c.kernel, c.text = k.kernel(), "packed("+k.params()+")"
	return m.result(c, weightShape(len(packedShape), experts, out, in), inputs, k.how()), nil
}

// how says what the numbers of words and groups came to.
func (k packed) how() string {
	if k.perWord > 0 {
		return fmt.Sprintf("%d bits in groups of %d by the number of words and groups, padded words", k.bits, k.group)
	}
	return fmt.Sprintf("%d bits in groups of %d by the number of words and groups", k.bits, k.group)
}
