// Package quant has the weight formats of safetensors releases: how to recognise each from the tensors of a module, and a codec
// ([plan.Codec]) that dequantizes it to BF16. It does no I/O.
//
// The arithmetic is the same for every format: exact element value, binary32 operations rounded once each in the order the format
// gives, then BF16 by round-to-nearest-even; NaN is 7FC0, -0 is kept, nothing is flushed to zero.
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
	Drop   []string // suffixes that a BF16 view leaves out: the inputs and what only they use
	Codec  plan.Codec
}

// Refused says why a group that is quantized cannot be dequantized exactly.
type Refused struct {
	Tensor string // the tensor to name
	Format string // as far as it is known
	Reason string
}

func (r *Refused) Error() string { return r.Tensor + " (" + r.Format + "): " + r.Reason }

// Config is what the release's configuration declares about quantization. Shapes and sibling tensors come first; Config only settles
// what they cannot. Zero values mean "not said".
type Config struct {
	Method    string // quant_method: fp8, compressed-tensors, gptq, awq, ...
	Bits      int
	GroupSize int // -1: the whole row
	Block     [2]int
	// Raw is the quantization_config object (JSON), for what only one format asks.
	Raw []byte
}
