package safetensors

// DType is a tensor's element type. The order is the format's own ("increasing alignment"); writers sort by it, descending.
// Opaque is any type whose name nobody knows: its length comes from the offsets.
type DType uint8

// The element types of the format, in its order.
const (
	BOOL DType = iota
	F4
	F6_E2M3
	F6_E3M2
	U8
	I8
	F8_E5M2
	F8_E4M3
	F8_E8M0
	F8_E4M3FNUZ
	F8_E5M2FNUZ
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	C64
	F64
	I64
	U64
	Opaque
)

// Tensor is one entry of a header. Begin and End are relative to the data section, as in the header.
type Tensor struct {
	Name       string
	DType      DType
	Shape      []int64
	Begin, End int64
}

// Header is the index of one file. It is immutable, compact, and safe for parallel use.
type Header struct{}
