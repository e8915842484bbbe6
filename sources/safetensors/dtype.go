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

// dtypes is the format's table: name and bits of one element.
var dtypes = [Opaque]struct {
	name string
	bits int
}{
	BOOL: {"BOOL", 8}, F4: {"F4", 4}, F6_E2M3: {"F6_E2M3", 6}, F6_E3M2: {"F6_E3M2", 6}, U8: {"U8", 8}, I8: {"I8", 8},
	F8_E5M2: {"F8_E5M2", 8}, F8_E4M3: {"F8_E4M3", 8}, F8_E8M0: {"F8_E8M0", 8}, F8_E4M3FNUZ: {"F8_E4M3FNUZ", 8},
	F8_E5M2FNUZ: {"F8_E5M2FNUZ", 8}, I16: {"I16", 16}, U16: {"U16", 16}, F16: {"F16", 16}, BF16: {"BF16", 16},
	I32: {"I32", 32}, U32: {"U32", 32}, F32: {"F32", 32}, C64: {"C64", 64}, F64: {"F64", 64}, I64: {"I64", 64}, U64: {"U64", 64},
}

// String is the format's name of d: "F8_E4M3".
func (d DType) String() string {
	if d >= Opaque {
		return "opaque"
	}
	return dtypes[d].name
}

// Bits is the number of bits of one element, 0 for Opaque.
func (d DType) Bits() int {
	if d >= Opaque {
		return 0
	}
	return dtypes[d].bits
}

// ParseDType finds a dtype by its name, which is case-sensitive; ok is false and the dtype Opaque if nobody knows it.
func ParseDType(name string) (d DType, ok bool) {
	for d := range Opaque {
		if dtypes[d].name == name {
			return d, true
		}
	}
	return Opaque, false
}
