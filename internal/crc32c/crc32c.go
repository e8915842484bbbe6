// Package crc32c is CRC-32C (Castagnoli; RFC 3720, appendix B.4), as [hash/crc32] has it, and twice as fast where the processor multiplies
// polynomials 512 bits at a time.
package crc32c

import (
	"hash/crc32"
	"math/bits"
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the checksum of p.
func Checksum(p []byte) uint32 { return Update(0, p) }

// Update is the checksum of the bytes that crc is the checksum of, followed by p.
func Update(crc uint32, p []byte) uint32 {
	if n := len(p) / block; wide && n > 1 {
		var rest [16]byte
		fold(&p[0], n, ^crc, &multipliers, &rest)
		crc = ^uint32(0) // of a remainder that begins with 0
		crc, p = crc32.Update(crc, table, rest[:]), p[n*block:]
	}
	return crc32.Update(crc, table, p)
}

// block is the bytes that are folded at once.
const block = 256

// multipliers are x^(d+32) and x^(d-32) modulo the polynomial, where d is the bits of 256, 64 and 16 bytes: what the halves of 128 bits are multiplied by
// to be added to those d bits further on (Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel 2009).
var multipliers = func() (k [6]uint64) {
	for i, bytes := range []int{block, 64, 16} {
		k[2*i], k[2*i+1] = power(8*bytes+32), power(8*bytes-32)
	}
	return k
}()

// power is x^n modulo the polynomial, the lowest power in the highest of 33 bits: a product of reflected numbers is one bit short.
func power(n int) uint64 {
	r := uint32(1) // x^0, the highest power in the highest bit
	const poly = 0x1EDC6F41
	for range n {
		r = r<<1 ^ poly*(r>>31)
	}
	return uint64(bits.Reverse32(r)) << 1
}
