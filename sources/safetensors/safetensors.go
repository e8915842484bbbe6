// Package safetensors parses, validates and encodes safetensors headers. It reads no tensor data and imports only the standard
// library.
//
// A file is an 8-byte little-endian length N, N bytes of JSON, and the data section. The JSON is an object of tensors,
//
//	"name": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}
//
// with offsets relative to the data section, and an optional "__metadata__" object of strings. The tensors tile the data section
// and the data section ends where the file ends.
//
// Acceptance is that of the reference (huggingface/safetensors, safetensors/src/tensor.rs) with these differences. Stricter, because
// two readers could see different tensors: a key that occurs twice in any object, a tensor given as an array and a dtype given as an
// object are refused, and so are dimensions above 2^63-1 and what is beyond the limits below, which keep memory and time in proportion
// to the header. Laxer: a dtype nobody knows does not fail the file; such a tensor is [Opaque] and its length comes from its offsets.
package safetensors

import "errors"

// Limits of a header.
const (
	MaxHeader  = 100_000_000 // bytes of JSON, the format's own limit
	MaxName    = 4096        // bytes of a tensor's name, unescaped
	MaxRank    = 64          // dimensions of a tensor; neither NumPy nor PyTorch has more
	maxKeys    = 10_000      // of __metadata__, and of one object in a value that is ignored
	maxFields  = 100         // unknown fields of one tensor
	maxDType   = 64          // bytes of the name of an unknown dtype
	maxUnknown = 200         // different unknown dtypes
	maxDepth   = 64          // of a value that is ignored
	longName   = 512         // names above are noted
)

// What can be wrong with a header, in the order it is checked; the reference's name in brackets. Errors wrap one of these and say
// which tensor and which numbers.
var (
	ErrHeaderTooSmall = errors.New("file is too small for a safetensors header")        // [HeaderTooSmall]
	ErrHeaderTooLarge = errors.New("header is longer than the format allows")           // [HeaderTooLarge]
	ErrHeaderLength   = errors.New("header is longer than the file")                    // [InvalidHeaderLength]
	ErrHeaderUTF8     = errors.New("header is not UTF-8")                               // [InvalidHeader]
	ErrHeaderJSON     = errors.New("header is not what safetensors allows")             // [InvalidHeaderDeserialization]
	ErrDuplicate      = errors.New("key occurs twice (another reader may take either)") // no such error: the last one wins there
	ErrLimit          = errors.New("header is beyond a limit of this program")          // no such error
	ErrOffset         = errors.New("tensors do not tile the data section")              // [InvalidOffset]
	ErrOverflow       = errors.New("tensor is larger than can be counted")              // [ValidationOverflow]
	ErrMisaligned     = errors.New("tensor does not fill whole bytes")                  // [MisalignedSlice]
	ErrTensorSize     = errors.New("shape and offsets disagree")                        // [TensorInvalidInfo]
	ErrFileLength     = errors.New("data section does not end where the file ends")     // [MetadataIncompleteBuffer]
)

// Tensor is one entry of a header. Begin and End are relative to the data section, as in the header. Shape is shared by all
// tensors of that shape and must not be changed.
type Tensor struct {
	Name       string
	DType      DType
	Shape      []int64
	Begin, End int64
	// DTypeName is the dtype as it stands in the header, for every tensor that was parsed. [Encode] needs it only with Opaque.
	DTypeName string
}
