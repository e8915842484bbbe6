package quant

import (
	"fmt"
	"slices"

	"weightfs/fs/plan"
)

// matcher is one group against one row of the table.
type matcher struct {
	group  *Group
	format *format
}

// has says whether the group has a tensor of the suffix.
func (m *matcher) has(suffix string) bool { _, ok := m.group.Tensors[suffix]; return ok }

func (m *matcher) tensor(suffix string) Tensor { return m.group.Tensors[suffix] }

// is says whether the group has the suffix with one of the dtypes.
func (m *matcher) is(suffix string, dtypes ...string) bool {
	t, ok := m.group.Tensors[suffix]
	return ok && slices.Contains(dtypes, t.DType)
}

// first is the first of the suffixes that the group has.
func (m *matcher) first(suffixes ...string) (string, bool) {
	for _, s := range suffixes {
		if m.has(s) {
			return s, true
		}
	}
	return "", false
}

// refuse names the tensor of a suffix and why it cannot be dequantized.
func (m *matcher) refuse(suffix, reason string, args ...any) (*Match, error) {
	name := m.tensor(suffix).Name
	if name == "" {
		name = TensorName(m.group.Module, suffix)
	}
	return nil, &Refused{Tensor: name, Format: m.format.name, Reason: fmt.Sprintf(reason, args...)}
}

// result is the match for a codec over the inputs. Everything of the group that the format's row lists is dropped, and the data's name
// becomes that of the dequantized tensor.
func (m *matcher) result(codec plan.Codec, shape []int64, inputs []string, how string) *Match {
	name := TensorName(m.group.Module, "weight")
	if inputs[0] == "" || inputs[0][0] == '_' {
		name = m.group.Module
	}
	return &Match{
		Format: m.format.name, How: "siblings " + joinSuffixes(inputs) + ", " + how, Name: name, Shape: shape,
		Inputs: inputs, Drop: m.drop(inputs), Codec: codec,
	}
}

// drop is what a BF16 view leaves out: the inputs and every other tensor of the group that the format's row lists as a side.
func (m *matcher) drop(inputs []string) []string {
	out := slices.Clone(inputs)
	for _, s := range m.format.sides {
		if m.has(s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// Bounds on what a header may claim.
const (
	maxBytes  = 1 << 50 // of one dequantized tensor
	maxGrowth = 64      // dequantized bytes for one source byte
)

// dims is a weight's shape as [experts, out, in], experts being 1 for a matrix. ok is false for other ranks, empty tensors and sizes beyond
// all bounds.
func dims(shape []int64) (experts, out, in int64, ok bool) {
	switch len(shape) {
	case 2:
		experts, out, in = 1, shape[0], shape[1]
	case 3:
		experts, out, in = shape[0], shape[1], shape[2]
	default:
		return 0, 0, 0, false
	}
	_, ok = product(experts, out, in)
	return experts, out, in, ok
}

// product multiplies positive numbers; ok is false if one is not positive or the product exceeds maxBytes.
func product(factors ...int64) (int64, bool) {
	n := int64(1)
	for _, f := range factors {
		if f <= 0 || f > maxBytes/n {
			return 0, false
		}
		n *= f
	}
	return n, true
}

// weightShape is [out, in] or [experts, out, in], as the rank of the data says.
func weightShape(rank int, experts, out, in int64) []int64 {
	if rank == 2 {
		return []int64{out, in}
	}
	return []int64{experts, out, in}
}

// ceilDiv is ceil(a/b) for positive numbers.
func ceilDiv(a, b int64) int64 { return (a-1)/b + 1 }

// rowData is the data input of a rowCodec whose unit of columns takes unitBytes bytes.
func rowData(rowBytes, experts, out, unitBytes int64) rowInput {
	return rowInput{rowBytes: rowBytes, perExpert: out, num: 1, den: 1, size: experts * out * rowBytes, unitBytes: unitBytes}
}

// wholeInput is an input that every row needs as it is.
func wholeInput(size int64) rowInput { return rowInput{size: size, whole: true} }

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func sorted(list []string) []string { slices.Sort(list); return list }
