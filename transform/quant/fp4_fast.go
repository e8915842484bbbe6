//go:build !purego

package quant

import "encoding/binary"

func (k fp4) kernel() kernel { return fastFP4{k} }

// fastFP4 decodes through a table of the 16 codes for every scale byte, built by the reference's arithmetic.
type fastFP4 struct{ fp4 }

// fp4Tables holds the 16 codes under each of the 256 scale bytes, as far as they were needed.
type fp4Tables struct {
	lut  [256][16]uint16
	made [256]bool
}

func (k fastFP4) decode(s *strip) error {
	var t fp4Tables
	second := k.secondOf(s, 0)
	for r := range s.rows {
		if next := k.secondOf(s, r); next != second {
			t.made, second = [256]bool{}, next
		}
		k.row(s, r, &t, second)
	}
	return nil
}

func (k fastFP4) row(s *strip, r int, t *fp4Tables, second float32) {
	dst, data, scales := s.out1(r), s.at(0, r), s.at(1, r)
	for c := s.c0; c < s.c1; {
		g := c / k.group
		end := min(s.c1, (g+1)*k.group)
		scale := scales[k.scaleIndex(s, r, g)]
		if !t.made[scale] {
			k.build(&t.lut[scale], k.combine(k.scale.at(scales, k.scaleIndex(s, r, g)), second))
			t.made[scale] = true
		}
		lookup4(dst[2*(c-s.c0):2*(end-s.c0)], data[(c-s.c0)/2:], &t.lut[scale], k.highFirst)
		c = end
	}
}

func (k fastFP4) build(lut *[16]uint16, t float32) {
	for i := range lut {
		lut[i] = bf16(e2m1Values[i] * t)
	}
}

// lookup4 replaces nibbles by their table entries until dst is full.
func lookup4(dst, src []byte, lut *[16]uint16, highFirst bool) {
	for len(dst) >= 16 && len(src) >= 4 {
		v := uint64(binary.LittleEndian.Uint32(src))
		if highFirst {
			v = v>>4&0x0F0F0F0F | v<<4&0xF0F0F0F0
		}
		lo := uint64(lut[v&15]) | uint64(lut[v>>4&15])<<16 | uint64(lut[v>>8&15])<<32 | uint64(lut[v>>12&15])<<48
		hi := uint64(lut[v>>16&15]) | uint64(lut[v>>20&15])<<16 | uint64(lut[v>>24&15])<<32 | uint64(lut[v>>28&15])<<48
		binary.LittleEndian.PutUint64(dst, lo)
		binary.LittleEndian.PutUint64(dst[8:], hi)
		dst, src = dst[16:], src[4:]
	}
	for i := 0; 2*i < len(dst); i++ {
		v := src[i/2]
		if (i%2 == 0) == highFirst {
			v >>= 4
		}
		binary.LittleEndian.PutUint16(dst[2*i:], lut[v&15])
	}
}
