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
		k.row(s, r, s.c0+k.groups4(s, r))
	}
	return nil
}

// runGroups is the number of groups whose parameters are held at once.
const runGroups = 128

// groups4 decodes the whole groups of a row of 4-bit codes, as far as they begin on a group and are made of 32 codes, and returns the number of
// columns.
func (k fastPacked) groups4(s *strip, r int) int {
	if !k.vector || k.bits != 4 || k.group%32 != 0 || s.c0%k.group != 0 {
		return 0
	}
	var scales, seconds [runGroups]float32
	first, end := s.c0/k.group, s.c1/k.group
	dst, data := s.out1(r), s.at(0, r)
	for g := first; g < end; {
		n := min(end-g, runGroups)
		for i := range n {
			scales[i] = k.scale.at(s.at(1, r), g+i)
			if k.bias {
				seconds[i] = k.scale.at(s.at(2, r), g+i)
			} else {
				seconds[i] = float32(k.zeroOf(s, r, g+i))
			}
		}
		at := (g - first) * k.group
		if k.bias {
			affineGroups4Bias(&dst[2*at], &data[at/2], &scales[0], &seconds[0], n, k.group/32)
		} else {
			affineGroups4(&dst[2*at], &data[at/2], &scales[0], &seconds[0], n, k.group/32)
		}
		g += n
	}
	return max(end-first, 0) * k.group
}

// chunk is the number of codes that are unpacked at once.
const chunk = 1024

// row decodes row r from column c on.
func (k fastPacked) row(s *strip, r, c int) {
	var codes [chunk]byte
	dst, data := s.out1(r), s.at(0, r)
	for c < s.c1 {
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
