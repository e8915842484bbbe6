// Package release opens a release of model weights: it takes a source's listing, fetches the header of every shard and the few small
// files that matter, and indexes what they say. It reads no weights.
//
// Opening has three phases: listing, headers, facts (small side tensors that shapes depend on). The result, [Release], is immutable
// and is all that views are computed from.
package release

import (
	"context"

	"weightfs/sources"
	"weightfs/sources/safetensors"
)

// Reader gets the bytes that opening needs. The cache implements it.
type Reader interface {
	// Header returns the first 8+N bytes of a safetensors file, N being the header's length, with at most two requests and no
	// byte beyond them. It refuses an N that is over the cap or beyond the file before it allocates.
	Header(ctx context.Context, path string) ([]byte, error)
	// ReadFile returns a whole small file; a larger one than max is an error.
	ReadFile(ctx context.Context, path string, max int64) ([]byte, error)
	// ReadAt fills p from off.
	ReadAt(ctx context.Context, path string, p []byte, off int64) error
}

// Shard is one weight file of the set that was opened.
type Shard struct {
	File   int // position in Listing.Files
	Path   string
	Size   int64
	Header *safetensors.Header
}

// Ref names one tensor: shard number and position in that shard's header.
type Ref struct{ Shard, Index int32 }

// Tensor is one tensor of the release, with its place in the source file.
type Tensor struct {
	Name       string
	DType      safetensors.DType
	Shape      []int64
	File       int   // position in Listing.Files
	Start, End int64 // absolute in the file
}

// Release is an opened release.
type Release struct {
	Listing *sources.Listing
	// Shards is the weight set, sorted by path. LeftOut are weight files that belong to another copy of the weights in the same
	// repository (consolidated.safetensors beside shards, original/), with the reason.
	Shards  []Shard
	LeftOut []sources.Hidden
	// Config is config.json as it stands, nil if there is none.
	Config []byte
	// Experts are the routed experts of the main layers, MTP those of the multi-token-prediction layers; nil if there are none.
	// NoExperts says why Experts is nil ("dense: no routed experts", or the ambiguity with both readings).
	Experts, MTP     *Experts
	NoExperts, NoMTP string
	// Notes are disagreements and oddities that do not stop anything: an index that names a missing tensor, unknown header fields.
	Notes []string
	// unexported: the name index
	names nameIndex
}

// Experts is the layout of one class of routed experts. Every layer has the same number of experts with the same parts, or the
// class is refused.
type Experts struct {
	Family   string // row of the family table
	Layers   []int  // layer numbers as in the names, ascending
	PerLayer int    // experts per layer, numbered 0..PerLayer-1
	Parts    []Part // order of a native block: gate, up, down (or gate_up, down); in each data, scales, zero points, further, bias
}

// Part is one tensor of every expert: one projection's data or one of its side tensors.
type Part struct {
	Projection string // gate, up, down, gate_up
	Suffix     string // as in the name, without the dot: weight, weight_scale_inv, weight_packed; "weight" where a fused name has none
	Tensor     string // the release's name with {layer} and {expert}
	DType      safetensors.DType
	Shape      []int64 // of one expert
	Bytes      int64   // of one expert
	// Fused tensors hold all experts of a layer, axis 0 being the expert. Refs has one entry a layer then, else one a (layer, expert).
	Fused bool
	Refs  []Ref
	// Transposed says that a fused tensor is [E, in, out] rather than [E, out, in]; Interleaved that gate and up rows alternate.
	Transposed, Interleaved bool
}

// Ref is the tensor that holds the part for the i-th layer (position in Layers) and expert e, and the byte offset of the expert in it.
func (p *Part) Ref(i, e, perLayer int) (Ref, int64) {
	if p.Fused {
		return p.Refs[i], int64(e) * p.Bytes
	}
	return p.Refs[i*perLayer+e], 0
}
