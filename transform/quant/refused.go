package quant

import (
	"fmt"
	"slices"
	"strings"
)

// marker is siblings that give a format away which is recognised and refused.
type marker struct {
	name   string
	all    []string // suffixes that must all be there
	reason string
	dtype  string // that the first must have, if any
}

// markers lists the refused formats. Their releases stay readable; only views that would need the values are absent.
func markers() []marker {
	trellis := "its codes are a trellis over vectors, decoded with tables that are not in the release"
	books := "its weights are entries of vector code books with rotations or scales of their own"
	tiled := "its words are permuted for one kernel's tiles"
	return []marker{
		{name: "exl3", all: []string{"trellis"}, reason: trellis},
		{name: "aqlm", all: []string{"codes", "codebooks"}, reason: books},
		{name: "vptq", all: []string{"indices", "centroids"}, reason: books},
		{name: "quip#", all: []string{"Qidxs"}, reason: books},
		{name: "fp-quant", all: []string{"qweight", "forward_hadamard_matrix"}, reason: "its weights are rotated, and undoing it is a sum whose order is not fixed"},
		{name: "paroquant", all: []string{"qweight", "theta", "pairs"}, reason: "its weights are rotated pair by pair, and undoing it is a sum whose order is not fixed"},
		{name: "sinq", all: []string{"W_q", "meta.scale"}, reason: "its columns have scales of their own, and how it is packed is in a file beside the weights"},
		{name: "fouroversix", all: []string{"quantized_weight_values", "quantized_weight_scale_factors"}, reason: "its scales follow a rule of its own and lie in tiles"},
		{name: "svdquant", all: []string{"qweight", "wscales"}, reason: "its weights are permuted for tiles and lack a low-rank part"},
		{name: "marlin", all: []string{"B", "s"}, reason: tiled},
		{name: "marlin", all: []string{"B", "workspace"}, reason: tiled},
		{name: "quanto", all: []string{"weight._data", "weight._scale"}, reason: "its packing is not specified here"},
		{name: "eetq", all: []string{"qweight", "weight_scales"}, reason: tiled},
		{name: "eetq", all: []string{"weight", "weight_scales"}, reason: tiled, dtype: "I8"},
		{name: "bitblas", all: []string{"qweight", "scales"}, reason: tiled, dtype: "I8"},
		{name: "gemv-fast", all: []string{"qweight", "scales"}, reason: tiled, dtype: "I16"},
		{name: "qqq", all: []string{"B", "s_channel"}, reason: tiled},
		{name: "spqr", all: []string{"dense_weights", "row_offsets"}, reason: "its outliers are kept in a sparse matrix of its own layout"},
		{name: "higgs", all: []string{"weight", "tables", "scales"}, reason: books, dtype: "U8"},
		{name: "sparse-bitmask", all: []string{"compressed", "bitmask"}, reason: "sparse weights without fixed places: a row's bytes cannot be found without reading all before"},
		{name: "sparse-24", all: []string{"weight_packed", "meta"}, reason: tiled},
		{name: "dfloat11", all: []string{"encoded_exponent", "sign_mantissa"}, reason: "the shapes of its weights are in the model's code, not in the release"},
	}
}

// refusedFormat is what is recognised by its siblings and refused by name.
func refusedFormat() format {
	f := format{name: "refused", match: matchRefused}
	for _, k := range markers() {
		for _, s := range k.all {
			if !slices.Contains(f.sides, s) {
				f.sides = append(f.sides, s)
			}
		}
	}
	return f
}

func matchRefused(m *matcher) (*Match, error) {
	for _, k := range markers() {
		there := !slices.ContainsFunc(k.all, func(s string) bool { return !m.has(s) })
		if there && (k.dtype == "" || m.is(k.all[0], k.dtype)) {
			return nil, &Refused{Tensor: m.tensor(k.all[0]).Name, Format: k.name, Reason: k.reason}
		}
	}
	return nil, nil
}

// refusedMethod says why a group is refused whose format is known but whose release declares a method that changes what the tensors mean. It is "" for all
// other methods.
func refusedMethod(method string) string {
	switch method {
	case "paroquant":
		return "paroquant rotates weights pair by pair, and the rotation does not stand beside these"
	case "sinq":
		return "sinq scales columns too, and those scales do not stand beside these"
	}
	return ""
}

// zipNN is the metadata key under which ZipNN lists its compressed tensors.
const zipNN = "znn_compressed_vectors"

// leftoverFormat is packed weights that no row of the table accepted: they are refused rather than passed on as if they were plain.
func leftoverFormat() format {
	return format{name: "unknown", match: matchLeftover}
}

// packedOnly are suffixes that only quantized weights have.
var packedOnly = []string{"qweight", "weight_packed", "W_q", "weight_scale_inv", "_scale_inv", "qzeros", "SCB", "weight_scale", "_weight_scale"}

func matchLeftover(m *matcher) (*Match, error) {
	if compressed := object([]byte(m.group.Metadata[zipNN])); compressed != nil {
		for suffix := range m.group.Tensors {
			if name := m.tensor(suffix).Name; compressed[name] != nil {
				return nil, &Refused{Tensor: name, Format: "zipnn", Reason: "compressed without fixed places: no byte can be had without decoding a whole chunk"}
			}
		}
	}
	for _, t := range m.group.Tensors {
		if p := aoParameter(m.group.Metadata, t.Name); p != "" {
			return nil, &Refused{Tensor: t.Name, Format: "torchao", Reason: "it is a part of " + p + ", and only parameters called weight are decoded"}
		}
	}
	data, ok := m.first("weight", "")
	integer := ok && m.is(data, "U8", "I8", "U32", "I32", "I16", "U16", "F4") && len(m.tensor(data).Shape) >= 2
	side, packed := m.first(packedOnly...)
	switch {
	case packed && ok && !integer && !isF8(m.tensor(data).DType):
		return nil, nil // floating weights with a scale beside them are what they are
	case packed:
		return m.refuse(side, "no known format has these tensors: %s", m.describe())
	case integer && data == "weight" && m.group.Config.Method != "":
		return m.refuse(data, "an integer weight without a scale in a quantized release: %s", m.describe())
	}
	return nil, nil
}

// describe lists the group's tensors with dtypes and shapes.
func (m *matcher) describe() string {
	var list []string
	for suffix, t := range m.group.Tensors {
		list = append(list, fmt.Sprintf("%s %s%v", suffix, t.DType, t.Shape))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
