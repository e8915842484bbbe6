//go:build !purego

package quant

import (
	"encoding/binary"
	"math"
)

// lookup8 replaces every code of src by its table entry.
func lookup8(dst, src []byte, lut *[256]uint16) {
	for len(src) >= 16 && len(dst) >= 32 {
		s, d := (*[16]byte)(src), (*[32]byte)(dst)
		v, w := binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:])
		binary.LittleEndian.PutUint64(d[:8], four(lut, uint32(v)))
		binary.LittleEndian.PutUint64(d[8:16], four(lut, uint32(v>>32)))
		binary.LittleEndian.PutUint64(d[16:24], four(lut, uint32(w)))
		binary.LittleEndian.PutUint64(d[24:], four(lut, uint32(w>>32)))
		src, dst = src[16:], dst[32:]
	}
	for i, c := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], lut[c])
	}
}

// four is the table entries of four codes.
func four(lut *[256]uint16, v uint32) uint64 {
	return uint64(lut[v&255]) | uint64(lut[v>>8&255])<<16 | uint64(lut[v>>16&255])<<32 | uint64(lut[v>>24])<<48
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

// e4m3Word is the results of mantissa m, for a scale for which plainE4M3 holds: as if at exponent 0 with a leading one, to which kernels add the exponent,
// and of the code at exponent 0.
func e4m3Word(m int, scale float32) (normal, subnormal uint16) {
	return bf16(e4m3Values[8|m]*scale) - 1<<7, bf16(e4m3Values[m] * scale)
}

// e4m3Table is those of all mantissas, first the normal ones, as vectors want them: as words or as planes.
func e4m3Table(t *[32]byte, scale float32, words bool) {
	for m := range 8 {
		v, u := e4m3Word(m, scale)
		if words {
			t[2*m], t[2*m+1], t[2*m+16], t[2*m+17] = byte(v), byte(v>>8), byte(u), byte(u>>8)
		} else {
			t[m], t[m+16], t[m+8], t[m+24] = byte(v), byte(v>>8), byte(u), byte(u>>8)
		}
	}
}

// fillE4M3 makes a table of all codes out of those results: the exponent is added, the sign set, four codes at a time.
func fillE4M3(lut *[256]uint16, scale float32) {
	var w [16]uint16
	for m := range 8 {
		w[m], w[8|m] = e4m3Word(m, scale)
	}
	const each, sign = 0x0001_0001_0001_0001, 0x8000_8000_8000_8000
	quad := func(i int) uint64 {
		return uint64(w[i]) | uint64(w[i+1])<<16 | uint64(w[i+2])<<32 | uint64(w[i+3])<<48
	}
	put := func(i int, v uint64) {
		q := lut[i : i+4 : i+4]
		q[0], q[1], q[2], q[3] = uint16(v), uint16(v>>16), uint16(v>>32), uint16(v>>48)
	}
	for m := 0; m < 8; m += 4 {
		v := quad(8 + m)
		put(m, v)
		put(128+m, v^sign)
		v = quad(m)
		for c := 8 + m; c < 128; c += 8 {
			v += each << 7
			put(c, v)
			put(128+c, v^sign)
		}
	}
	lut[0x7F], lut[0xFF] = nanBF16, nanBF16
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
