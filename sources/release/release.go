// Package release opens a release of model weights: it takes a source's listing, fetches the header of every shard and the few small
// files that matter, and indexes what they say. It reads no weights.
//
// Opening has three phases: listing, headers, facts (small side tensors that shapes depend on). The result, [Release], is immutable
// and is all that views are computed from.
//
// Which tensors are routed experts is decided by names and shapes, with a table of naming forms (families.go); config.json is only
// checked against. What is ambiguous is refused with every reading named.
package release

import (
	"context"
	"errors"
	"iter"

	"weightfs/sources"
	"weightfs/sources/safetensors"
)

// ErrBadRelease is wrapped by errors of [Open] that lie in the release's own files: a malformed header or index, a missing shard, one
// tensor in two shards, no weights at all. Another try would end the same. Other errors are the Reader's.
var ErrBadRelease = errors.New("the release cannot be opened as one set of weights")

// Reader gets the bytes that opening needs. The cache implements it.
type Reader interface {
	// Header returns the first 8+N bytes of a safetensors file, N being the header's length, with at most two requests and no
	// byte beyond them, in the memory of buf where that is enough. It refuses an N that is over the cap or beyond the file before it
	// allocates.
	Header(ctx context.Context, path string, buf []byte) ([]byte, error)
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

// Ref names one tensor: shard number and position in that shard's header, which is in the order of its data.
type Ref struct{ Shard, Index int32 }

// Tensor is one tensor of the release, with its place in the source file.
type Tensor struct {
	Name       string
	DType      safetensors.DType
	DTypeName  string // as the header spells it, also of a dtype that nobody knows
	Shape      []int64
	File       int   // position in Listing.Files
	Start, End int64 // absolute in the file
}

// Role says which part of the model a tensor belongs to.
type Role uint8

// Roles. A tensor whose name is that of a routed expert has that role also where its class was refused, so that Resident is exact.
const (
	Resident  Role = iota // everything that is not a routed expert
	Routed                // of a routed expert in a main layer
	MTPRouted             // of a routed expert in a multi-token-prediction layer
)

// Release is an opened release.
type Release struct {
	Listing *sources.Listing
	// Index is the path of the index that names the shards, "" if there is none.
	Index string
	// Shards is the weight set, sorted by path. LeftOut are weight files that belong to another copy of the weights in the same
	// repository (consolidated.safetensors beside shards, original/), with the reason.
	Shards  []Shard
	LeftOut []sources.Hidden
	// Files are the small files that were read, by path, as they stand: config.json, params.json and the quantization side files, those
	// that are there. Config is config.json, nil if there is none. Declared is what they say.
	Files    map[string][]byte
	Config   []byte
	Declared Declared
	// Experts are the routed experts of the main layers, MTP those of the multi-token-prediction layers; nil if there are none.
	// NoExperts says why Experts is nil ("dense: no routed experts", or the ambiguity with both readings); NoMTP likewise.
	Experts, MTP     *Experts
	NoExperts, NoMTP string
	// Notes are disagreements and oddities that do not stop anything: an index that names a missing tensor, unknown header fields.
	Notes []string

	names  nameIndex
	roles  []Role // by global number
	reader Reader // of Facts
}

// Experts is the layout of one class of routed experts. Every layer has the same number of experts with the same parts, or the
// class is refused.
type Experts struct {
	Family   string // row of the family table
	Prefix   string // what stands before the layer number: "model.layers", "mtp.layers", "mtp"
	Layers   []int  // layer numbers as in the names, ascending
	PerLayer int    // experts per layer, numbered 0..PerLayer-1
	Parts    []Part // order of a native block: gate, up, down (or gate_up, down); in each data, scales, zero points, further, bias, unknown by name
	// Hidden is the width that experts read and write, Intermediate their inner width; 0 where packed shapes do not say.
	Hidden, Intermediate int64
}

// Part is one tensor of every expert: one projection's data or one of its side tensors.
type Part struct {
	Projection string // gate, up, down, gate_up
	Suffix     string // as in the name, without the dot or underscore: weight, weight_scale_inv, blocks; "weight" where a fused name has none
	Tensor     string // the release's name with {layer} and {expert}
	DType      safetensors.DType
	DTypeName  string
	Shape      []int64 // of one expert
	Bytes      int64   // of one expert
	// Fused tensors hold all experts of a layer, axis 0 being the expert (or blocks of rows, in a 2-D tensor of E*rows). Refs has one
	// entry a layer then, else one a (layer, expert).
	Fused bool
	Refs  []Ref
	// Shared says of a fused side tensor that it has no expert axis: all experts of the layer use the whole of it.
	Shared bool
	// Transposed says that one expert is [in, out] rather than [out, in].
	Transposed bool
	// Interleaved and UpFirst tell the order in a gate_up part where it is not gate rows, then up rows: they alternate, gate first;
	// or all up rows come first.
	Interleaved, UpFirst bool
}

// Ref is the tensor that holds the part for the i-th layer (position in Layers) and expert e, and the byte offset of the expert in it.
func (p *Part) Ref(i, e, perLayer int) (Ref, int64) {
	switch {
	case p.Shared:
		return p.Refs[i], 0
	case p.Fused:
		return p.Refs[i], int64(e) * p.Bytes
	}
	return p.Refs[i*perLayer+e], 0
}

// BlockBytes is the sum of the parts of one expert, without padding.
func (x *Experts) BlockBytes() int64 {
	var n int64
	for i := range x.Parts {
		n += x.Parts[i].Bytes
	}
	return n
}

// Len is the number of tensors in all shards.
func (r *Release) Len() int { return r.names.total() }

// Bytes is the sum of the bytes of all tensors.
func (r *Release) Bytes() int64 {
	var n int64
	for _, s := range r.Shards {
		n += s.Size - s.Header.DataStart()
	}
	return n
}

// Lookup finds a tensor by name.
func (r *Release) Lookup(name string) (Ref, bool) { return r.names.lookup(r.Shards, name) }

// Tensor is the tensor at ref.
func (r *Release) Tensor(ref Ref) Tensor {
	s := &r.Shards[ref.Shard]
	t := s.Header.At(int(ref.Index))
	return Tensor{
		Name: t.Name, DType: t.DType, DTypeName: t.DTypeName, Shape: t.Shape,
		File: s.File, Start: s.Header.DataStart() + t.Begin, End: s.Header.DataStart() + t.End,
	}
}

// Role is the role of the tensor at ref.
func (r *Release) Role(ref Ref) Role { return r.roles[r.names.number(ref)] }

// All is every tensor, shard by shard, in the order of the data.
func (r *Release) All() iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for s := range r.Shards {
			for i := range r.Shards[s].Header.Len() {
				if !yield(Ref{int32(s), int32(i)}) {
					return
				}
			}
		}
	}
}
