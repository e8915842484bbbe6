//go:build !purego

package quant

import "encoding/binary"

func (k packed) kernel() kernel { return fastPacked{k} }

// fastPacked unpacks a group's codes and puts them through a table of all codes under the group's scale. Permuted groups and padded words,
// which are rare, go to the reference.
type fastPacked struct{ packed }

func (k fastPacked) decode(s *strip) error {
	index, err := k.groupsOf(s)
	if err != nil {
		return err
	}
	if index != nil || k.perWord > 0 {
		return refPacked{k.packed}.decode(s)
	}
	for r := range s.rows {
		k.row(s, r)
	}
	return nil
}

func (k fastPacked) row(s *strip, r int) {
	var lut [256]uint16
	var codes [256]byte
	dst, data := s.out1(r), s.at(0, r)
	for c := s.c0; c < s.c1; {
		g := c / k.group
		end := min(s.c1, (g+1)*k.group)
		k.build(&lut, s, r, g, end-c)
		if k.bits == 4 && (c-s.c0)%2 == 0 {
			lookup4(dst[2*(c-s.c0):2*(end-s.c0)], data[(c-s.c0)/2:], (*[16]uint16)(lut[:]), false)
			c = end
			continue
		}
		for c < end {
			n := min(end-c, len(codes))
			k.unpack(codes[:n], data, c-s.c0)
			lookup8(dst[2*(c-s.c0):2*(c-s.c0+n)], codes[:n], &lut)
			c += n
		}
	}
}

// build fills the table for the codes of group g.
func (k fastPacked) build(lut *[256]uint16, s *strip, r, g, n int) {
	scale, zero := k.scale.at(s.at(1, r), g), k.zeroOf(s, r, g)
	var bias float32
	if k.bias {
		bias = k.scale.at(s.at(2, r), g)
	}
	for i := range 1 << k.bits {
		v := float32(float32(i-zero) * scale)
		if k.bias {
			v += bias
		}
		lut[i] = bf16(v)
	}
}

// unpack writes the codes of columns [c, c+len(dst)) of data as bytes.
func (k fastPacked) unpack(dst, data []byte, c int) {
	mask := uint64(1<<k.bits - 1)
	for len(dst) >= 8 && c%8 == 0 && c*k.bits/8+8 <= len(data) {
		v := binary.LittleEndian.Uint64(data[c*k.bits/8:])
		for i := range 8 {
			dst[i] = byte(v >> (i * k.bits) & mask)
		}
		dst, c = dst[8:], c+8
	}
	for i := range dst {
		dst[i] = byte(k.code(data, c+i))
	}
}
