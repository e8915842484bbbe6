package release

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"weightfs/sources/safetensors"
)

// noParameters are last components, beside those of sideSuffixes, of tensors that only describe the weights beside them.
var noParameters = []string{
	"absmax", "quant_map", "nested_absmax", "nested_quant_map", "bitsandbytes__nf4", "bitsandbytes__fp4", "k_scale", "v_scale",
}

// describes says whether a suffix is of a tensor that only describes the weights beside it.
func describes(suffix string) bool {
	return suffix != "bias" && (slices.Contains(sideSuffixes, suffix) || slices.Contains(noParameters, suffix))
}

// packing is one way to hold several weights in one element.
type packing struct {
	suffix, sibling string // the tensor's ending and that of one beside it
	dtype           []safetensors.DType
	// perElement is how many weights an element holds; 0: 32 over the declared bits.
	perElement int64
	// ratio of the two tensors' last axes, where two packings share names; 0: any.
	ratio int64
}

var (
	u8  = []safetensors.DType{safetensors.U8}
	i8  = []safetensors.DType{safetensors.U8, safetensors.I8}
	i32 = []safetensors.DType{safetensors.I32, safetensors.U32}
)

// packings are the known ones, the first that fits wins. Elements that none of them knows are one weight each.
var packings = []packing{
	{suffix: "weight_packed", sibling: "weight_scale", dtype: u8, perElement: 2},       // compressed-tensors MXFP4, NVFP4
	{suffix: "weight_packed", sibling: "weight_scale", dtype: i32},                     // compressed-tensors INT4, INT8
	{suffix: "blocks", sibling: "scales", dtype: u8, perElement: 2},                    // gpt-oss MXFP4
	{suffix: "weight", sibling: "scale", dtype: i8, perElement: 2, ratio: 16},          // DeepSeek-V4 FP4
	{suffix: "weight", sibling: "weight_scale", dtype: u8, perElement: 2, ratio: 16},   // Quark MXFP4
	{suffix: "weight", sibling: "weight_scale", dtype: u8, perElement: 2, ratio: 8},    // ModelOpt NVFP4
	{suffix: "weight", sibling: "weight.absmax", dtype: u8, perElement: 2},             // bitsandbytes 4-bit
	{suffix: "weight", sibling: "scales", dtype: []safetensors.DType{safetensors.U32}}, // MLX
	{suffix: "qweight", sibling: "scales", dtype: i32},                                 // GPTQ, AWQ
}

// parameterCounter counts weights. Names that differ only in numbers are judged once.
type parameterCounter struct {
	rel     *Release
	known   map[string]int64 // by skeleton: weights per element, 0 for side tensors, -1 for unknown packing
	unknown string           // the first tensor that could not be counted
	buf     []byte
	numbers []int32
}

func (c *parameterCounter) of(t Tensor) int64 {
	c.buf, c.numbers = skeletonOf(t.Name, c.buf[:0], c.numbers[:0])
	per, ok := c.known[string(c.buf)]
	if !ok || len(c.buf) == 0 {
		per = c.judge(t)
		if len(c.known) < maxSkeletons {
			c.known[string(c.buf)] = per
		}
	}
	if per < 0 {
		if c.unknown == "" {
			c.unknown = t.Name
		}
		return 0
	}
	return per * elements(t.Shape)
}

// judge is the number of weights in an element of t.
func (c *parameterCounter) judge(t Tensor) int64 {
	if t.DType == safetensors.Opaque {
		return -1
	}
	module, joint, suffix := cutSuffix(t.Name)
	for _, p := range packings {
		if p.suffix != suffix || !slices.Contains(p.dtype, t.DType) {
			continue
		}
		ref, ok := c.rel.Lookup(module + joint + p.sibling)
		if !ok || (p.ratio != 0 && lastAxis(t) != p.ratio*lastAxis(c.rel.Tensor(ref))) {
			continue
		}
		if p.perElement != 0 {
			return p.perElement
		}
		bits := c.rel.Declared.bits()
		if bits <= 0 || 32%bits != 0 {
			return -1
		}
		return 32 / bits
	}
	if describes(suffix) && c.hasWeights(module, joint) {
		return 0
	}
	return 1
}

// cutSuffix takes the last component, or what follows one of the known side suffixes' underscore, off a name. The side tensors of
// bitsandbytes hang below "weight".
func cutSuffix(name string) (module, joint, suffix string) {
	dot := strings.LastIndexByte(name, '.')
	last := name[dot+1:]
	for _, s := range append([]string{"blocks"}, sideSuffixes...) {
		if cut, ok := strings.CutSuffix(last, "_"+s); ok && strings.HasSuffix(cut, "proj") {
			return name[:dot+1] + cut, "_", s
		}
	}
	if dot < 0 {
		return "", "", last
	}
	module = name[:dot]
	for _, below := range []string{".weight.quant_state", ".weight"} {
		if cut, ok := strings.CutSuffix(module, below); ok {
			return cut, ".", last
		}
	}
	return module, ".", last
}

// hasWeights says whether a module has weights that a side tensor can describe.
func (c *parameterCounter) hasWeights(module, joint string) bool {
	if joint == "_" {
		if _, ok := c.rel.Lookup(module); ok {
			return true
		}
	}
	return slices.ContainsFunc(dataSuffixes, func(s string) bool {
		_, ok := c.rel.Lookup(module + joint + s)
		return ok
	})
}

func lastAxis(t Tensor) int64 {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// bits is the first width that a description of a quantization gives, 0 if none does.
func (d *Declared) bits() int64 {
	for _, q := range d.Quantization {
		for _, key := range []string{`"num_bits"`, `"bits"`} {
			_, rest, found := bytes.Cut(q.Raw, []byte(key))
			if !found {
				continue
			}
			rest = bytes.TrimLeft(rest, " \t\r\n:")
			end := bytes.IndexAny(rest, ",} \t\r\n")
			if n, err := strconv.ParseInt(string(rest[:max(end, 0)]), 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
