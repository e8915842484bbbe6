//go:build !purego

package quant

import (
	"encoding/binary"
	"math"
)

func castKernel(dtype string) kernel {
	switch dtype {
	case "F32":
		return castF32{best}
	case "F16":
		return castF16{best}
	}
	if codes := codes8[dtype]; codes != nil {
		return newCastF8(codes, best)
	}
	return refCast{castKinds[dtype]}
}

// castF32 rounds 16 elements at a time, or two.
type castF32 struct{ v *vectors }

func (k castF32) decode(s *strip) error {
	for r := range s.rows {
		dst, src := s.out1(r), s.at(0, r)[:4*(s.c1-s.c0)]
		if n := len(src) / 64; k.v != nil && n > 0 {
			k.v.castSingles(&dst[0], &src[0], n)
			dst, src = dst[32*n:], src[64*n:]
		}
		for len(src) >= 8 && len(dst) >= 4 {
			v := binary.LittleEndian.Uint64(src)
			lo, hi := bf16(math.Float32frombits(uint32(v))), bf16(math.Float32frombits(uint32(v>>32)))
			binary.LittleEndian.PutUint32(dst, uint32(lo)|uint32(hi)<<16)
			src, dst = src[8:], dst[4:]
		}
		if len(src) >= 4 {
			putBF16(dst, 0, math.Float32frombits(binary.LittleEndian.Uint32(src)))
		}
	}
	return nil
}

// halfValues is every F16 code as BF16.
var halfValues = func() *[1 << 16]uint16 {
	t := new([1 << 16]uint16)
	for i := range t {
		t[i] = bf16(castKinds["F16"].value([]byte{byte(i), byte(i >> 8)}, 0))
	}
	return t
}()

// castF16 rounds 16 elements at a time, or looks up every code.
type castF16 struct{ v *vectors }

func (k castF16) decode(s *strip) error {
	for r := range s.rows {
		dst, src := s.out1(r), s.at(0, r)[:2*(s.c1-s.c0)]
		if n := len(src) / 32; k.v != nil && n > 0 {
			k.v.castHalves(&dst[0], &src[0], n)
			dst, src = dst[32*n:], src[32*n:]
		}
		for len(src) >= 8 && len(dst) >= 8 {
			v := binary.LittleEndian.Uint64(src)
			t := halfValues
			out := uint64(t[uint16(v)]) | uint64(t[uint16(v>>16)])<<16 | uint64(t[uint16(v>>32)])<<32 | uint64(t[uint16(v>>48)])<<48
			binary.LittleEndian.PutUint64(dst, out)
			src, dst = src[8:], dst[8:]
		}
		for i := 0; i+1 < len(src); i += 2 {
			binary.LittleEndian.PutUint16(dst[i:], halfValues[binary.LittleEndian.Uint16(src[i:])])
		}
	}
	return nil
}

// castF8 looks up every code.
type castF8 struct {
	codes *[256]float32
	v     *vectors
	table *byteTable
}

func newCastF8(codes *[256]float32, v *vectors) castF8 {
	k := castF8{codes, v, new(byteTable)}
	for i, v := range codes {
		k.table.lut[i] = bf16(v)
	}
	k.table.planes()
	return k
}

func (k castF8) decode(s *strip) error {
	for r := range s.rows {
		k.table.lookup(k.v, s.out1(r), s.at(0, r)[:s.c1-s.c0])
	}
	return nil
}
