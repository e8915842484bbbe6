//go:build !purego

package quant

// affineCode is the arithmetic of a group of unsigned codes: f32(code - zero) * scale, or f32(that) + bias.
type affineCode struct {
	bits        int
	zero        int
	scale, bias float32
	biased      bool
	vector      bool
}

// decode decodes unpacked codes: in vectors of 16, the rest through a table if there are many, else one by one.
func (a *affineCode) decode(dst, codes []byte) {
	if n := len(codes) / 16; a.vector && n > 0 {
		if a.biased {
			affineBytesBias(&dst[0], &codes[0], n, float32(a.zero), a.scale, a.bias)
		} else {
			affineBytes(&dst[0], &codes[0], n, float32(a.zero), a.scale, 0)
		}
		dst, codes = dst[32*n:], codes[16*n:]
	}
	switch {
	case a.bits <= 4 && len(codes) >= 16:
		var lut [16]uint16
		for i := range 1 << a.bits {
			lut[i] = bf16(a.value(i))
		}
		lookupBytes(dst, codes, &lut)
	case len(codes) >= 512:
		var lut [256]uint16
		for i := range 1 << a.bits {
			lut[i] = bf16(a.value(i))
		}
		lookup8(dst, codes, &lut)
	default:
		for i, code := range codes {
			putBF16(dst, i, a.value(int(code)))
		}
	}
}

// value is the result of a code.
func (a *affineCode) value(code int) float32 {
	v := float32(float32(code-a.zero) * a.scale)
	if a.biased {
		v += a.bias
	}
	return v
}

// spreadNibbles puts nibble i of v into byte i.
func spreadNibbles(v uint32) uint64 {
	x := uint64(v)
	x = (x | x<<16) & 0x0000FFFF0000FFFF
	x = (x | x<<8) & 0x00FF00FF00FF00FF
	return (x | x<<4) & 0x0F0F0F0F0F0F0F0F
}
