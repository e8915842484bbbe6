package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// fp4 decodes E2M1 codes, two a byte, in groups of consecutive columns that share a one-byte scale:
//
//	MX (E8M0 scale):            value = code * 2^(scale-127)
//	NVFP4, scale multiplied:    value = code * f32(scale * second)
//	NVFP4, scale divided:       value = code * f32(scale / second)
//	MLX's NVFP4:                value = code * f32(scale * f32(second / (448*6)))
//
// Inputs: data, scale, and the second scale (F32, one element for the row) for NVFP4.
type fp4 struct {
	group     int
	highFirst bool // the high nibble is the even column
	scale     number
	second    secondScale
	swizzled  bool // scales lie in 128x4 tiles of 512 bytes
}

// secondScale says what NVFP4's per-tensor scale does.
type secondScale uint8

const (
	secondNone secondScale = iota
	secondMultiplies
	secondDivides
	secondOfMLX // the largest weight, for which the largest scale and code stand, 448*6
)

func (k fp4) params() string {
	order, second, layout := "low", [...]string{"", ",second=multiplies", ",second=divides", ",second=mlx"}[k.second], ""
	if k.highFirst {
		order = "high"
	}
	if k.swizzled {
		layout = ",scales=128x4"
	}
	return fmt.Sprintf("scale=%s,columns=%d,first=%s%s%s", k.scale, k.group, order, second, layout)
}

// refFP4 is the reference kernel.
type refFP4 struct{ fp4 }

func (k refFP4) decode(s *strip) error {
	for r := range s.rows {
		dst, data := s.out1(r), s.at(0, r)
		for c := s.c0; c < s.c1; c++ {
			code := data[(c-s.c0)/2] >> k.shift(c) & 15
			t := k.combine(k.scale.at(s.at(1, r), k.scaleIndex(s, r, c/k.group)), k.secondOf(s, r))
			putBF16(dst, c-s.c0, e2m1Values[code]*t)
		}
	}
	return nil
}

// shift is where column c has its nibble.
func (k fp4) shift(c int) int {
	if (c%2 == 0) == k.highFirst {
		return 4
	}
	return 0
}

// combine is the scale that a code is multiplied by.
func (k fp4) combine(scale, second float32) float32 {
	switch k.second {
	case secondMultiplies:
		return scale * second
	case secondDivides:
		return scale / second
	case secondOfMLX:
		return scale * (second / (448 * 6))
	}
	return scale
}

// secondOf is the second scale of row r.
func (k fp4) secondOf(s *strip, r int) float32 {
	if k.second == secondNone {
		return 1
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(s.at(2, r)))
}

// scaleIndex is the place of the scale of group g in the scale bytes of row r.
func (k fp4) scaleIndex(s *strip, r, g int) int {
	if !k.swizzled {
		return g
	}
	row := int(s.row) + r
	return g/4*512 + row%32*16 + row%128/32*4 + g%4
}
