//go:build !purego

package quant

import "encoding/binary"

func (k packed) kernel() kernel { return fastPacked{k, vector()} }

// fastPacked unpacks a group's codes and puts them through a table of all codes under the group's scale, or through the reference's arithmetic in
// vectors. Permuted groups and padded words, which are rare, go to the reference.
type fastPacked struct {
	packed
	vector bool
}

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

// chunk is the number of codes that are unpacked at once.
const chunk = 1024

func (k fastPacked) row(s *strip, r int) {
	var codes [chunk]byte
	dst, data := s.out1(r), s.at(0, r)
	for c := s.c0; c < s.c1; {
		n := min(s.c1-c, chunk)
		packed := codes[:n]
		if k.bits == 8 {
			packed = data[c-s.c0:][:n]
		} else {
			k.unpack(packed, data, c-s.c0)
		}
		for x := c; x < c+n; {
			g := x / k.group
			end := min(c+n, (g+1)*k.group)
			k.apply(dst[2*(x-s.c0):2*(end-s.c0)], packed[x-c:end-c], s, r, g)
			x = end
		}
		c += n
	}
}

// apply decodes the codes of group g.
func (k fastPacked) apply(dst, codes []byte, s *strip, r, g int) {
	a := affineCode{bits: k.bits, zero: k.zeroOf(s, r, g), scale: k.scale.at(s.at(1, r), g), biased: k.bias, vector: k.vector}
	if k.bias {
		a.bias = k.scale.at(s.at(2, r), g)
	}
	a.decode(dst, codes)
}

// unpack writes the codes of columns [c, c+len(dst)) of data as bytes.
func (k fastPacked) unpack(dst, data []byte, c int) {
	if n := len(dst) / 32; k.vector && k.bits == 4 && c%2 == 0 && n > 0 {
		unpackNibbles(&dst[0], &data[c/2], n)
		dst, c = dst[32*n:], c+32*n
	}
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
