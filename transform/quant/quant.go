// Package quant has the weight formats of safetensors releases: how to recognise each from the tensors of a module, and a codec
// ([plan.Codec]) that dequantizes it to BF16. It does no I/O.
//
// The arithmetic is the same for every format: exact element value, binary32 operations rounded once each in the order the format
// gives, then BF16 by round-to-nearest-even; NaN is 7FC0, -0 is kept, nothing is flushed to zero.
//
// How a caller uses it: split every tensor name with [Split] into module and suffix; make a [Group] of each module's tensors;
// fetch the content of those that [Facts] names; call [Recognise].
package quant

import "weightfs/fs/plan"

// Tensor is what a header says of one tensor.
type Tensor struct {
	Name  string
	DType string // safetensors' name: F8_E4M3, U8, BF16
	Shape []int64
	// Data is the content of a small tensor that the format's shapes depend on (a fact), nil if it was not fetched.
	Data []byte
}

// Group is the tensors of one module by suffix ("weight", "weight_scale_inv"; "" for a fused parameter without one), and what
// the release says beside them.
type Group struct {
	Module  string // model.layers.0.mlp.down_proj
	Tensors map[string]Tensor
	Config  Config
	// Metadata is the shard's __metadata__, for formats that keep their description there.
	Metadata map[string]string
}

// Match is a recognised group.
type Match struct {
	Format string   // name of the table's row
	How    string   // what settled it, for people: "siblings weight + weight_scale_inv, blocks 128x128 by grid and config"
	Name   string   // of the dequantized tensor
	Shape  []int64  // of the dequantized tensor
	Inputs []string // suffixes of the codec's inputs, in order
	Drop   []string // suffixes that a BF16 view leaves out: the inputs and what only they use, sorted
	// Codec makes the dequantized tensor. It is nil for a group that only has tensors to drop (scales of activations, markers);
	// Name and Shape are empty then.
	Codec plan.Codec
	// Rows is set where Codec's output is transposed against the packed data (gpt-oss): the same values as [experts, out, in],
	// whose shape is RowsShape. Its inputs are Inputs too.
	Rows      plan.Codec
	RowsShape []int64
	// Warnings say what the release holds beside the exact values ("pre_quant_scale is kept: the effective weight is ...").
	Warnings []string
}

// Refused says why a group that is quantized cannot be dequantized exactly.
type Refused struct {
	Tensor string // the tensor to name
	Format string // as far as it is known
	Reason string
}

func (r *Refused) Error() string { return r.Tensor + " (" + r.Format + "): " + r.Reason }

// Suffix is one ending of a tensor name that marks a tensor of a group.
type Suffix struct {
	// Suffix is as in Group.Tensors; [TensorName] says how it is joined to the module's name.
	Suffix string
	// Data marks the tensor that holds the weights themselves, Fact one whose content [Recognise] may need (see [Facts]).
	Data, Fact bool
	// Formats are the rows of the table that know it.
	Formats []string
}
