package quant

import (
	"encoding/binary"
	"fmt"

	"weightfs/fs/plan"
)

// packed decodes unsigned codes of 1 to 8 bits, packed along the row from the low bits of little-endian words up:
//
//	zero points:  value = f32(code - zero) * scale
//	bias:         value = f32(code * scale) + bias
//
// with one scale (and zero or bias) for a group of columns. Inputs in order: data, scale, then zeros, bias and group index as far as there
// are any.
type packed struct {
	bits    int
	perWord int // codes in a 32-bit word with nothing straddling; 0: a dense stream of bits
	group   int // columns; ignored where a group index says otherwise
	groups  int
	scale   number
	zero    packedZero
	bias    bool // of the scale's dtype
	index   bool // an I32 for every column says its group
}

// packedZero says where zero points come from.
type packedZero uint8

const (
	zeroMiddle packedZero = iota // 2^(bits-1) for all
	zeroPacked                   // packed over the rows: bit row*bits of column g of I32 [ceil(out*bits/32), groups]
	zeroNone                     // 0
)

func (k packed) params() string {
	return fmt.Sprintf("bits=%d,word=%d,columns=%d,groups=%d,scale=%s,zero=%s,bias=%t,index=%t",
		k.bits, k.perWord, k.group, k.groups, k.scale, [...]string{"middle", "packed", "none"}[k.zero], k.bias, k.index)
}

// unit is the number of columns and bytes after which packing starts anew on a byte.
func (k packed) unit() (columns, bytes int64) {
	if k.perWord > 0 {
		return int64(k.perWord), 4
	}
	gcd := k.bits & -k.bits // of bits and 8
	return int64(8 / gcd), int64(k.bits / gcd)
}

// code is the code of column c of data, which begins at column 0 of a unit.
func (k packed) code(data []byte, c int) int {
	bit := c * k.bits
	if k.perWord > 0 {
		bit = c/k.perWord*32 + c%k.perWord*k.bits
	}
	v := int(data[bit/8])
	if bit%8+k.bits > 8 {
		v |= int(data[bit/8+1]) << 8
	}
	return v >> (bit % 8) & (1<<k.bits - 1)
}

// zeroOf is the zero point of row r (of the strip) and group g.
func (k packed) zeroOf(s *strip, r, g int) int {
	switch k.zero {
	case zeroMiddle:
		return 1 << (k.bits - 1)
	case zeroNone:
		return 0
	}
	bit := int((s.row + int64(r)) * int64(k.bits) % 32)
	v := uint64(binary.LittleEndian.Uint32(s.at(2, r)[4*g:]))
	if bit+k.bits > 32 {
		v |= uint64(binary.LittleEndian.Uint32(s.at(2, r)[4*(k.groups+g):])) << 32
	}
	return int(v >> bit & (1<<k.bits - 1))
}

// groupsOf is the group of every column of the strip, from the group index; nil if columns are grouped in order. An index in which an entry
// is -1 was not filled in.
func (k packed) groupsOf(s *strip) ([]int32, error) {
	if !k.index {
		return nil, nil
	}
	raw := s.in[len(s.in)-1]
	list := make([]int32, s.c1)
	for c := range len(raw) / 4 {
		g := int32(binary.LittleEndian.Uint32(raw[4*c:]))
		if g == -1 {
			return nil, nil
		}
		if g < 0 || int(g) >= k.groups {
			return nil, fmt.Errorf("g_idx[%d] is %d with %d groups: %w", c, g, k.groups, plan.ErrBadInput)
		}
		if c < s.c1 {
			list[c] = g
		}
	}
	return list, nil
}

// refPacked is the reference kernel.
type refPacked struct{ packed }

func (k refPacked) decode(s *strip) error {
	index, err := k.groupsOf(s)
	if err != nil {
		return err
	}
	for r := range s.rows {
		dst, data := s.out1(r), s.at(0, r)
		for c := s.c0; c < s.c1; c++ {
			g := c / k.group
			if index != nil {
				g = int(index[c])
			}
			scale := k.scale.at(s.at(1, r), g)
			v := float32(float32(k.code(data, c-s.c0)-k.zeroOf(s, r, g)) * scale)
			if k.bias {
				v += k.scale.at(s.at(2, r), g)
			}
			putBF16(dst, c-s.c0, v)
		}
	}
	return nil
}
