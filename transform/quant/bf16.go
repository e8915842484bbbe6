package quant

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// nanBF16 is the one NaN that codecs give.
const nanBF16 = 0x7FC0

// bf16 rounds a binary32 value to BF16, to nearest, ties to even. Finite values from 7F7F8000 up become infinite, as IEEE 754 has it.
func bf16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7FFFFFFF > 0x7F800000 {
		return nanBF16
	}
	return uint16((u + 0x7FFF + u>>16&1) >> 16)
}

// putBF16 stores bf16(f) at element i of dst.
func putBF16(dst []byte, i int, f float32) {
	binary.LittleEndian.PutUint16(dst[2*i:], bf16(f))
}

// bf16Value is the value of BF16 bits.
func bf16Value(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// number is a dtype whose elements are read as binary32 values: scales, zero points, biases.
type number uint8

const (
	numNone number = iota
	numF32
	numBF16
	numF16
	numE8M0
	numE4M3
	numI8
	numE5M2
)

var numbers = map[string]number{"F32": numF32, "BF16": numBF16, "F16": numF16, "F8_E8M0": numE8M0, "F8_E4M3": numE4M3, "I8": numI8, "F8_E5M2": numE5M2}

func (n number) String() string {
	return [...]string{"none", "f32", "bf16", "f16", "e8m0", "e4m3", "i8", "e5m2"}[n]
}

// size is the number of bytes of one element.
func (n number) size() int64 {
	return [...]int64{0, 4, 2, 2, 1, 1, 1, 1}[n]
}

// at is the exact value of element i of b.
func (n number) at(b []byte, i int) float32 {
	switch n {
	case numF32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	case numBF16:
		return bf16Value(binary.LittleEndian.Uint16(b[2*i:]))
	case numF16:
		return float16.Frombits(binary.LittleEndian.Uint16(b[2*i:])).Float32()
	case numE8M0:
		return e8m0Values[b[i]]
	case numE4M3:
		return e4m3Values[b[i]]
	case numE5M2:
		return e5m2Values[b[i]]
	case numI8:
		return float32(int8(b[i]))
	}
	return 0
}

// read is the exact values of the first elements of b.
func (n number) read(dst []float32, b []byte) {
	b = b[:int64(len(dst))*n.size()]
	switch n {
	case numF32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case numBF16:
		for i := range dst {
			dst[i] = bf16Value(binary.LittleEndian.Uint16(b[2*i:]))
		}
	case numF16:
		for i := 0; 2*i+1 < len(b) && i < len(dst); i++ {
			dst[i] = halfValue(binary.LittleEndian.Uint16(b[2*i:]))
		}
	default:
		for i := range dst {
			dst[i] = n.at(b, i)
		}
	}
}

// halfValue is the value of binary16 bits: those of a binary32 number whose exponent is 112 too small, but for infinities and NaNs.
func halfValue(h uint16) float32 {
	sign, magnitude := uint32(h&0x8000)<<16, uint32(h&0x7FFF)<<13
	if magnitude >= 0x0F800000 {
		return math.Float32frombits(sign | magnitude | 0x7F800000)
	}
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(magnitude)*0x1p112))
}
