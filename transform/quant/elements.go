package quant

import "math"

// special says which codes of a small float are not numbers.
type special uint8

const (
	finite  special = iota // every code is a number
	ieee                   // the highest exponent holds infinities and NaNs
	onlyNaN                // the highest code of each sign is NaN, no infinities ("fn")
	noMinus                // the code of -0 is NaN, no infinities ("fnuz")
)

// minifloat is the exact value of a code of 1 sign bit, e exponent bits and m mantissa bits.
func minifloat(code, e, m, bias int, kind special) float32 {
	exp, man := code>>m&(1<<e-1), code&(1<<m-1)
	negative := code>>(e+m)&1 == 1
	switch {
	case kind == noMinus && code == 1<<(e+m):
		return float32(math.NaN())
	case kind == onlyNaN && exp == 1<<e-1 && man == 1<<m-1:
		return float32(math.NaN())
	case kind == ieee && exp == 1<<e-1 && man != 0:
		return float32(math.NaN())
	}
	v := math.Ldexp(float64(man), 1-bias-m)
	if exp > 0 {
		v = math.Ldexp(float64(int(1)<<m+man), exp-bias-m)
	}
	if kind == ieee && exp == 1<<e-1 {
		v = math.Inf(1)
	}
	if negative {
		v = math.Copysign(v, -1)
	}
	return float32(v)
}

// codeTable is the value of every code of a format of up to 8 bits. Tables of fewer than 256 codes repeat.
func codeTable(bits int, value func(code int) float32) *[256]float32 {
	t := new([256]float32)
	for i := range t {
		t[i] = value(i & (1<<bits - 1))
	}
	return t
}

// The values of every element code (OCP 8-bit floating point and OCP microscaling formats; FNUZ as in ONNX and MLIR).
var (
	e4m3Values     = codeTable(8, func(c int) float32 { return minifloat(c, 4, 3, 7, onlyNaN) })
	e5m2Values     = codeTable(8, func(c int) float32 { return minifloat(c, 5, 2, 15, ieee) })
	e4m3fnuzValues = codeTable(8, func(c int) float32 { return minifloat(c, 4, 3, 8, noMinus) })
	e5m2fnuzValues = codeTable(8, func(c int) float32 { return minifloat(c, 5, 2, 16, noMinus) })
	e2m1Values     = codeTable(4, func(c int) float32 { return minifloat(c, 2, 1, 1, finite) })
	e2m3Values     = codeTable(6, func(c int) float32 { return minifloat(c, 2, 3, 1, finite) })
	e3m2Values     = codeTable(6, func(c int) float32 { return minifloat(c, 3, 2, 3, finite) })
	i8Values       = codeTable(8, func(c int) float32 { return float32(int8(c)) })
	e8m0Values     = codeTable(8, func(c int) float32 {
		if c == 255 {
			return float32(math.NaN())
		}
		return float32(math.Ldexp(1, c-127))
	})
)

// codes8 are the one-byte element dtypes by safetensors' name.
var codes8 = map[string]*[256]float32{
	"F8_E4M3": e4m3Values, "F8_E5M2": e5m2Values, "F8_E4M3FNUZ": e4m3fnuzValues, "F8_E5M2FNUZ": e5m2fnuzValues, "I8": i8Values,
}
