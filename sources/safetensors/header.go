package safetensors

import "maps"

// Header is the index of one file. It is immutable, compact (16 bytes a tensor and the name) and safe for parallel use.
type Header struct {
	fileSize  int64
	dataStart int64
	digest    [32]byte
	metadata  map[string]string
	notes     []string

	// Tensor i, in the order of the data section, lies at [begins[i], begins[i+1]); its name is names[nameAt[i]:nameAt[i+1]].
	begins []uint64
	names  string
	nameAt []uint32
	// kinds[i] is the dtype of tensor i in the upper 8 bits (from Opaque on: unknown[dtype-Opaque]), the number of its shape in the
	// lower 24. (No header of MaxHeader bytes holds 2,000,000 tensors: the shortest with a name of its own takes 51.) Shape k is
	// dims[shapeAt[k]:shapeAt[k+1]].
	kinds   []uint32
	unknown []string
	dims    []int64
	shapeAt []uint32
}

const (
	kindShape = 1<<24 - 1
	kindDType = 24
)

// Len is the number of tensors.
func (h *Header) Len() int { return len(h.kinds) }

// At is the i-th tensor in the order of the data section.
func (h *Header) At(i int) Tensor {
	k := h.kinds[i]
	shape := k & kindShape
	lo, hi := h.shapeAt[shape], h.shapeAt[shape+1]
	t := Tensor{
		Name:  h.name(i),
		Shape: h.dims[lo:hi:hi],
		Begin: int64(h.begins[i]),
		End:   int64(h.begins[i+1]),
	}
	if d := k >> kindDType; d < uint32(Opaque) {
		t.DType, t.DTypeName = DType(d), dtypes[d].name
	} else {
		t.DType, t.DTypeName = Opaque, h.unknown[d-uint32(Opaque)]
	}
	return t
}

// Name is the name of the i-th tensor.
func (h *Header) Name(i int) string { return h.name(i) }

// Bytes is the length of the i-th tensor.
func (h *Header) Bytes(i int) int64 { return int64(h.begins[i+1] - h.begins[i]) }

// Kind is a number that tensors of this header have in common exactly if they have dtype and shape in common (as the text has it).
func (h *Header) Kind(i int) uint32 { return h.kinds[i] }

func (h *Header) name(i int) string { return h.names[h.nameAt[i]:h.nameAt[i+1]] }

// DataStart is 8+N: where the data section begins in the file.
func (h *Header) DataStart() int64 { return h.dataStart }

// FileSize is the size of the file.
func (h *Header) FileSize() int64 { return h.fileSize }

// Metadata is a copy of __metadata__, nil if there is none.
func (h *Header) Metadata() map[string]string { return maps.Clone(h.metadata) }

// Digest is the SHA-256 of the first 8+N bytes of the file.
func (h *Header) Digest() [32]byte { return h.digest }

// Notes are oddities that stop nothing, one sentence each: unknown fields that were ignored, unknown dtypes, very long names.
func (h *Header) Notes() []string { return h.notes }
