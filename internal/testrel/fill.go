package testrel

import (
	"encoding/binary"
	"hash/fnv"

	"weightfs/sources/safetensors"
)

// Fill is the closed form of a tensor's bytes. Word w (eight bytes, little-endian) of the tensor named n is
//
//	(splitmix64(FNV-1a-64(n) + w) & And) + Add
//
// And and Add are the same in every lane of an element's width and chosen so that no lane carries into the next. So the byte at any
// offset of any tensor is known without the bytes before it.
type Fill struct{ And, Add uint64 }

// raw is every byte value: codes of FP8 and packed FP4, NaN codes included.
var raw = Fill{And: ^uint64(0)}

// finite is the codes of F8_E4M3 below 2, NaN not among them: experts have it, so that 4-bit formats can be computed from them.
var finite = Fill{And: 0xBFBFBFBFBFBFBFBF}

// values are signed numbers of moderate size with every mantissa, one fill for each dtype; a dtype that is missing is raw.
var values = map[safetensors.DType]Fill{
	safetensors.BF16: {And: 0x83FF83FF83FF83FF, Add: 0x3A003A003A003A00},
	safetensors.F16:  {And: 0x8FFF8FFF8FFF8FFF, Add: 0x2800280028002800},
	safetensors.F32:  {And: 0x83FFFFFF83FFFFFF, Add: 0x3A0000003A000000},
	safetensors.F64:  {And: 0x803FFFFFFFFFFFFF, Add: 0x3F40000000000000},
	safetensors.I32:  {And: 0x000000FF000000FF},
	safetensors.I64:  {And: 0x00000000000000FF},
	safetensors.BOOL: {And: 0x0101010101010101},
}

// scales are positive, finite and not zero, one fill for each dtype: U8 and F8_E8M0 are exponents from 2^-15 to 1.
var scales = map[safetensors.DType]Fill{
	safetensors.BF16:    {And: 0x03FF03FF03FF03FF, Add: 0x3900390039003900},
	safetensors.F16:     {And: 0x0FFF0FFF0FFF0FFF, Add: 0x1C001C001C001C00},
	safetensors.F32:     {And: 0x01FFFFFF01FFFFFF, Add: 0x3900000039000000},
	safetensors.U8:      {And: 0x0F0F0F0F0F0F0F0F, Add: 0x7070707070707070},
	safetensors.F8_E8M0: {And: 0x0F0F0F0F0F0F0F0F, Add: 0x7070707070707070},
}

// seed is the FNV-1a hash of a tensor's name.
func seed(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// splitmix64 is the output function of the generator of that name (Steele, Lea, Flood 2014), of the counter x.
func splitmix64(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

func (f Fill) word(seed uint64, w int64) uint64 { return splitmix64(seed+uint64(w))&f.And + f.Add }

// read fills p with the bytes [off, off+len(p)) of a tensor.
func (f Fill) read(p []byte, seed uint64, off int64) {
	var w [8]byte
	if n := off & 7; n != 0 && len(p) > 0 {
		binary.LittleEndian.PutUint64(w[:], f.word(seed, off>>3))
		k := copy(p, w[n:])
		p, off = p[k:], off+int64(k)
	}
	for ; len(p) >= 8; p, off = p[8:], off+8 {
		binary.LittleEndian.PutUint64(p, f.word(seed, off>>3))
	}
	if len(p) > 0 {
		binary.LittleEndian.PutUint64(w[:], f.word(seed, off>>3))
		copy(p, w[:])
	}
}
