//go:build !purego

package quant

import "encoding/binary"

// codeRow decodes rows of unsigned codes of 1 to 8 bits in a dense stream, the low bits first, in groups of columns:
//
//	bf16(f32(code - second) * scale)      second is the group's zero point
//	bf16(f32(code * scale) + second)      biased: second is its bias
//
// It unpacks codes to bytes and puts them through vectors, or through a table of all codes of the group.
//
// Zero points need not be whole numbers.
type codeRow struct {
	bits, group int
	width       int // bits that a code takes in data: bits, or 8 for codes that are bytes already
	biased      bool
	v           *vectors
	// scales and seconds are those of groups from first on.
	first           int
	scales, seconds []float32
	codes           []byte      // of unpackChunk bytes
	table           [256]uint16 // of all codes of group made
	made            int         // -1: none
}

// unpackChunk is the number of codes that are unpacked at once.
const unpackChunk = 2048

// newCodeRow has room for the parameters of groups [first, end).
func newCodeRow(bits, group int, biased bool, v *vectors, first, end int) *codeRow {
	parameters := make([]float32, 2*(end-first))
	return &codeRow{bits: bits, width: bits, group: group, biased: biased, v: v, first: first, scales: parameters[:end-first], seconds: parameters[end-first:],
		codes: make([]byte, unpackChunk), made: -1}
}

// decode makes columns [c0, c1) of a row; column c0 begins at bit skip of data. The parameters of their groups must be set.
func (k *codeRow) decode(dst, data []byte, skip, c0, c1 int) {
	k.made = -1
	at := func(c int) ([]byte, []byte, int) {
		bit := skip + (c-c0)*k.width
		return dst[2*(c-c0):], data[bit/8:], bit % 8
	}
	c := c0
	if c%k.group != 0 {
		end := min(c1, c-c%k.group+k.group)
		dst, data, skip := at(c)
		k.plain(dst, data, skip, c, end)
		c = end
	}
	if n := (c1 - c) / k.group; n > 0 {
		dst, data, skip := at(c)
		k.whole(dst, data, skip, c, n)
		c += n * k.group
	}
	if c < c1 {
		dst, data, skip := at(c)
		k.plain(dst, data, skip, c, c1)
	}
}

// codeValues are the numbers of the codes of 4 bits.
var codeValues = [16]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// whole decodes n whole groups from column c on.
func (k *codeRow) whole(dst, data []byte, skip, c, n int) {
	g := c/k.group - k.first
	switch {
	case k.v == nil || k.group%16 != 0:
		k.plain(dst, data, skip, c, c+n*k.group)
	case k.width == 4 && k.group%32 == 0 && skip == 0:
		kernel := k.v.subtract4
		if k.biased {
			kernel = k.v.bias4
		}
		_ = dst[2*n*k.group-1]
		kernel(&dst[0], &data[0], &codeValues, &k.scales[g], &k.seconds[g], n, k.group/32)
	default:
		k.vectors(dst, data, skip, c, n)
	}
}

// vectors unpacks the codes of n whole groups and decodes them in vectors: several groups at a time, or a part of one.
func (k *codeRow) vectors(dst, data []byte, skip, c, n int) {
	kernel := k.v.subtract8
	if k.biased {
		kernel = k.v.bias8
	}
	for end := c + n*k.group; c < end; {
		step, groups, units := min(k.group-c%k.group, unpackChunk), 1, 0
		if k.group <= unpackChunk/2 {
			groups = min(end-c, unpackChunk) / k.group
			step = groups * k.group
		}
		units = step / groups / 16
		codes := k.unpack(data, skip, step)
		g := c/k.group - k.first
		_ = dst[2*step-1]
		kernel(&dst[0], &codes[0], &k.scales[g], &k.seconds[g], groups, units)
		bit := skip + step*k.width
		dst, data, skip, c = dst[2*step:], data[bit/8:], bit%8, c+step
	}
}

// plain decodes columns [c, end) without vectors.
func (k *codeRow) plain(dst, data []byte, skip, c, end int) {
	for c < end {
		n := min(end-c, k.group-c%k.group, unpackChunk)
		k.part(dst, data, skip, c/k.group-k.first, n)
		bit := skip + n*k.width
		dst, data, skip, c = dst[2*n:], data[bit/8:], bit%8, c+n
	}
}

// part decodes n codes of group g.
func (k *codeRow) part(dst, data []byte, skip, g, n int) {
	size := 1 << k.bits
	if n < size && k.made != g {
		for i, code := range k.unpack(data, skip, n) {
			putBF16(dst, i, k.value(int(code), g))
		}
		return
	}
	if k.made != g {
		k.fill(g)
		k.made = g
	}
	switch {
	case k.width == 4 && skip == 0:
		lookup4(dst[:2*n], data, (*[16]uint16)(k.table[:]), false)
	case k.bits <= 4:
		lookupBytes(dst, k.unpack(data, skip, n), (*[16]uint16)(k.table[:]))
	default:
		lookup8(dst, k.unpack(data, skip, n), &k.table)
	}
}

// value is the result of a code of group g.
func (k *codeRow) value(code, g int) float32 {
	if k.biased {
		return float32(float32(code)*k.scales[g]) + k.seconds[g]
	}
	return (float32(code) - k.seconds[g]) * k.scales[g]
}

// fill makes the table of group g. Codes as far above the zero point as others are below have the same results but for the sign.
func (k *codeRow) fill(g int) {
	size := 1 << k.bits
	zero, scale := int(k.seconds[g]), k.scales[g]
	if k.biased || float32(zero) != k.seconds[g] || zero < 0 || zero >= size {
		for i := range size {
			k.table[i] = bf16(k.value(i, g))
		}
		return
	}
	for d := range max(zero+1, size-zero) {
		v := bf16(float32(d) * scale)
		if i := zero + d; i < size {
			k.table[i] = v
		}
		if i := zero - d; d > 0 && i >= 0 && i < size {
			if v != nanBF16 {
				k.table[i] = v ^ 0x8000
			} else {
				k.table[i] = v
			}
		}
	}
}

// unpack is n codes from bit skip of data on, as bytes; it may be data itself.
func (k *codeRow) unpack(data []byte, skip, n int) []byte {
	if k.width == 8 && skip == 0 {
		return data[:n]
	}
	codes := k.codes[:n]
	unpackCodes(k.v, codes, data, skip, k.bits)
	return codes
}

// unpackCodes writes codes as bytes, the first from bit skip of data on.
func unpackCodes(v *vectors, dst, data []byte, skip, bits int) {
	for skip != 0 && len(dst) > 0 {
		dst[0] = codeAt(data, skip, bits)
		dst, skip = dst[1:], skip+bits
		data, skip = data[skip/8:], skip%8
	}
	switch {
	case v == nil:
	case v.unpackBits != nil && len(dst) >= 64:
		n := len(dst) / 64
		_ = data[8*bits*n-1]
		v.unpackBits(&dst[0], &data[0], n, bits)
		dst, data = dst[64*n:], data[8*bits*n:]
	case v.unpackNibbles != nil && bits == 4 && len(dst) >= 32:
		n := len(dst) / 32
		_ = data[16*n-1]
		v.unpackNibbles(&dst[0], &data[0], n)
		dst, data = dst[32*n:], data[16*n:]
	}
	spread := newSpreader(bits)
	for len(dst) >= 8 && len(data) >= 8 {
		binary.LittleEndian.PutUint64(dst, spread.spread(binary.LittleEndian.Uint64(data)))
		dst, data = dst[8:], data[bits:]
	}
	for i := range dst {
		dst[i] = codeAt(data, i*bits, bits)
	}
}

// codeAt is the code at a bit of data.
func codeAt(data []byte, bit, bits int) byte {
	v := uint(data[bit/8])
	if bit%8+bits > 8 {
		v |= uint(data[bit/8+1]) << 8
	}
	return byte(v >> (bit % 8) & (1<<bits - 1))
}

// spreader puts the eight lowest codes of a word into its eight bytes, halves first, then quarters, then eighths.
type spreader struct {
	bits, low4, low2, low1 uint64
}

func newSpreader(bits int) spreader {
	ones := func(codes int) uint64 { return 1<<(codes*bits) - 1 }
	return spreader{uint64(bits), ones(4), ones(2) | ones(2)<<32, ones(1) * 0x0001000100010001}
}

func (s *spreader) spread(x uint64) uint64 {
	x = x&s.low4 | x>>(4*s.bits)&s.low4<<32
	x = x&s.low2 | x>>(2*s.bits)&s.low2<<16
	return x&s.low1 | x>>s.bits&s.low1<<8
}
