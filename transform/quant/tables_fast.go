//go:build !purego

package quant

import (
	"encoding/binary"
	"math"
)

// lookup8 replaces every code of src by its table entry.
func lookup8(dst, src []byte, lut *[256]uint16) {
	for len(src) >= 8 && len(dst) >= 16 {
		v := binary.LittleEndian.Uint64(src)
		lo := uint64(lut[v&255]) | uint64(lut[v>>8&255])<<16 | uint64(lut[v>>16&255])<<32 | uint64(lut[v>>24&255])<<48
		hi := uint64(lut[v>>32&255]) | uint64(lut[v>>40&255])<<16 | uint64(lut[v>>48&255])<<32 | uint64(lut[v>>56])<<48
		binary.LittleEndian.PutUint64(dst, lo)
		binary.LittleEndian.PutUint64(dst[8:], hi)
		src, dst = src[8:], dst[16:]
	}
	for i, c := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], lut[c])
	}
}

// byteTable has a result for every byte, also as the vectors want it.
type byteTable struct {
	lut   [256]uint16
	bytes [512]byte
}

// planes makes bytes out of lut.
func (t *byteTable) planes() {
	for i, v := range t.lut {
		t.bytes[i], t.bytes[256+i] = byte(v), byte(v>>8)
	}
}

// lookup replaces every byte of src by its result.
func (t *byteTable) lookup(v *vectors, dst, src []byte) {
	if v == nil || v.lookupTables == nil {
		lookup8(dst, src, &t.lut)
		return
	}
	_ = dst[2*len(src)-1]
	v.lookupTables(&dst[0], &src[0], &t.bytes, len(src), 1)
}

// lookup4 replaces nibbles by their table entries until dst is full.
func lookup4(dst, src []byte, lut *[16]uint16, highFirst bool) {
	for len(dst) >= 32 && len(src) >= 8 {
		lookup16Codes((*[32]byte)(dst), binary.LittleEndian.Uint64(src), lut, highFirst)
		dst, src = dst[32:], src[8:]
	}
	for i := 0; 2*i < len(dst); i++ {
		v := src[i/2]
		if (i%2 == 0) == highFirst {
			v >>= 4
		}
		binary.LittleEndian.PutUint16(dst[2*i:], lut[v&15])
	}
}

// lookup16Codes replaces 16 nibbles.
func lookup16Codes(dst *[32]byte, v uint64, lut *[16]uint16, highFirst bool) {
	if highFirst {
		v = v>>4&0x0F0F0F0F0F0F0F0F | v<<4&0xF0F0F0F0F0F0F0F0
	}
	a := uint64(lut[v&15]) | uint64(lut[v>>4&15])<<16 | uint64(lut[v>>8&15])<<32 | uint64(lut[v>>12&15])<<48
	b := uint64(lut[v>>16&15]) | uint64(lut[v>>20&15])<<16 | uint64(lut[v>>24&15])<<32 | uint64(lut[v>>28&15])<<48
	c := uint64(lut[v>>32&15]) | uint64(lut[v>>36&15])<<16 | uint64(lut[v>>40&15])<<32 | uint64(lut[v>>44&15])<<48
	d := uint64(lut[v>>48&15]) | uint64(lut[v>>52&15])<<16 | uint64(lut[v>>56&15])<<32 | uint64(lut[v>>60])<<48
	binary.LittleEndian.PutUint64(dst[:], a)
	binary.LittleEndian.PutUint64(dst[8:], b)
	binary.LittleEndian.PutUint64(dst[16:], c)
	binary.LittleEndian.PutUint64(dst[24:], d)
}

// planes is a table of 16 entries as the assembly wants it: 16 low bytes, then 16 high bytes.
type planes [32]byte

func (p *planes) set(i int, v uint16) { p[i], p[i+16] = byte(v), byte(v>>8) }

// words is the table as words.
func (p *planes) words() *[16]uint16 {
	var t [16]uint16
	for i := range t {
		t[i] = uint16(p[i]) | uint16(p[i+16])<<8
	}
	return &t
}

// asWords is the table as words in memory.
func (p *planes) asWords() *[32]byte {
	var t [32]byte
	for i := range 16 {
		t[2*i], t[2*i+1] = p[i], p[i+16]
	}
	return &t
}

// plainE4M3 says whether under the scale every code's result is a normal number, so that codes of one mantissa differ by their
// exponent only.
func plainE4M3(scale float32) bool {
	e := math.Float32bits(scale) >> 23 & 255
	return e > 127-100 && e < 127+100
}

// e4m3Planes is the table of a scale for which plainE4M3 holds.
func e4m3Planes(p *planes, scale float32) {
	for m := range 8 {
		p.set(m, bf16(e4m3Values[8|m]*scale)-1<<7) // the exponent is added by the kernel
		p.set(8|m, bf16(e4m3Values[m]*scale))
	}
}

// lookupBytes replaces codes below 16 by their table entries.
func lookupBytes(dst, src []byte, lut *[16]uint16) {
	for len(src) >= 8 && len(dst) >= 16 {
		v := binary.LittleEndian.Uint64(src)
		lo := uint64(lut[v&15]) | uint64(lut[v>>8&15])<<16 | uint64(lut[v>>16&15])<<32 | uint64(lut[v>>24&15])<<48
		hi := uint64(lut[v>>32&15]) | uint64(lut[v>>40&15])<<16 | uint64(lut[v>>48&15])<<32 | uint64(lut[v>>56&15])<<48
		binary.LittleEndian.PutUint64(dst, lo)
		binary.LittleEndian.PutUint64(dst[8:], hi)
		src, dst = src[8:], dst[16:]
	}
	for i, c := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], lut[c&15])
	}
}
