//go:build !purego

package quant

func (k scaled8) kernel() kernel { return fastScaled8{k, vector()} }

// fastScaled8 decodes through tables built by the reference's arithmetic, one for each scale, wherever enough elements share the scale to pay for
// them; signed integers go through the same arithmetic in vectors.
type fastScaled8 struct {
	scaled8
	vector bool
}

// lutMinimum is the number of elements under one scale from which on a table of 256 entries is worth building.
const lutMinimum = 512

// lutBlocks is the number of tables held at once: with blocks of 128 columns, runs of 4096 columns.
const lutBlocks = 32

// scaleTable is what decodes the codes of one scale.
type scaleTable struct {
	how         scaleHow
	scale, zero float32
	vector      bool
	planes      planes
	lut         [256]uint16
}

type scaleHow uint8

const (
	byTable      scaleHow = iota // lut
	byPlanes                     // planes, in vectors of 32 codes, what is left by scale
	byArithmetic                 // scale and zero, in vectors of 16 codes if there are any, what is left one by one
)

func (k fastScaled8) decode(s *strip) error {
	rows := 1
	if s.stride[1] == 0 {
		rows = s.rows
	}
	switch {
	case k.vector && k.bn == 32 && k.codes == e4m3Values && k.scale == numE8M0 && k.zero == numNone && s.c0%32 == 0:
		return k.mx(s)
	case k.integers():
	case k.scale == numE8M0 && k.zero == numNone && rows*k.bn < lutMinimum:
		k.byScale(s)
		return nil
	case rows*min(k.bn, s.c1-s.c0) < lutMinimum:
		return refScaled8{k.scaled8}.decode(s)
	}
	for r := 0; r < s.rows; r += rows {
		k.band(s, r, rows)
	}
	return nil
}

// integers says whether the codes are integers, which need no table.
func (k *fastScaled8) integers() bool {
	return k.codes == i8Values && (k.zero == numNone || k.zero == numI8)
}

// band decodes rows [r, r+rows), which share their scales.
func (k fastScaled8) band(s *strip, r, rows int) {
	var tables [lutBlocks]scaleTable
	for c := s.c0; c < s.c1; {
		first := c / k.bn
		end := min(s.c1, (first+lutBlocks)*k.bn)
		for j := first; j*k.bn < end; j++ {
			k.build(&tables[j-first], s, r, j)
		}
		for i := r; i < r+rows; i++ {
			dst, data := s.out1(i), s.at(0, i)
			for x := c; x < end; {
				j := x / k.bn
				y := min(end, (j+1)*k.bn)
				tables[j-first].apply(dst[2*(x-s.c0):2*(y-s.c0)], data[x-s.c0:y-s.c0])
				x = y
			}
		}
		c = end
	}
}

// build fills the table for scale j of row r.
func (k fastScaled8) build(t *scaleTable, s *strip, r, j int) {
	t.scale, t.zero = k.scale.at(s.at(1, r), j), 0
	if k.zero != numNone {
		t.zero = k.zero.at(s.at(2, r), j)
	}
	if k.integers() {
		t.how, t.vector = byArithmetic, k.vector
		return
	}
	t.how = byTable
	if k.codes == e4m3Values && k.zero == numNone && plainE4M3(t.scale) {
		e4m3Planes(&t.planes, t.scale)
		if t.how = byPlanes; !k.vector {
			t.fillE4M3()
			t.how = byTable
		}
		return
	}
	for i, v := range k.codes {
		t.lut[i] = bf16((v - t.zero) * t.scale)
	}
}

// fillE4M3 fills lut from planes: the exponent is added, the sign set.
func (t *scaleTable) fillE4M3() {
	words := t.planes.words()
	for m := range 8 {
		t.lut[m], t.lut[128|m] = words[8|m], words[8|m]^0x8000
		for e := 1; e < 16; e++ {
			v := words[m] + uint16(e)<<7
			t.lut[e<<3|m], t.lut[128|e<<3|m] = v, v^0x8000
		}
	}
	t.lut[0x7F], t.lut[0xFF] = nanBF16, nanBF16
}

// apply decodes codes.
func (t *scaleTable) apply(dst, src []byte) {
	switch n := len(src); t.how {
	case byPlanes:
		if n >= 32 {
			lookupE4M3(&dst[0], &src[0], (*[32]byte)(&t.planes), n/32)
		}
		for i := n &^ 31; i < n; i++ {
			putBF16(dst, i, e4m3Values[src[i]]*t.scale)
		}
	case byArithmetic:
		if v := n / 16; t.vector && v > 0 {
			affineSigned(&dst[0], &src[0], v, t.zero, t.scale, 0)
			dst, src = dst[32*v:], src[16*v:]
		}
		for i, code := range src {
			putBF16(dst, i, (float32(int8(code))-t.zero)*t.scale)
		}
	default:
		lookup8(dst, src, &t.lut)
	}
}

// byScale decodes small groups with one-byte scales through a table for each scale that occurs.
func (k fastScaled8) byScale(s *strip) {
	var tables [256]*scaleTable
	for r := range s.rows {
		dst, data, scales := s.out1(r), s.at(0, r), s.at(1, r)
		for c := s.c0; c < s.c1; {
			j := c / k.bn
			n := min(s.c1, (j+1)*k.bn) - c
			t := tables[scales[j]]
			if t == nil {
				t = new(scaleTable)
				k.build(t, s, r, j)
				tables[scales[j]] = t
			}
			t.apply(dst[:2*n], data[:n])
			dst, data, c = dst[2*n:], data[n:], c+n
		}
	}
}

// mxE4M3 are the tables of the E8M0 scales for which plainE4M3 holds.
var mxE4M3 = func() *[256][32]byte {
	t := new([256][32]byte)
	for i, scale := range e8m0Values {
		if plainE4M3(scale) {
			e4m3Planes((*planes)(&t[i]), scale)
		}
	}
	return t
}()

// mx decodes groups of 32 E4M3 codes with E8M0 scales, from a whole group on.
func (k fastScaled8) mx(s *strip) error {
	groups := (s.c1 - s.c0) / 32
	tail := s.c0 + 32*groups
	for r := range s.rows {
		scales := s.at(1, r)[s.c0/32:][:groups]
		if groups > 0 && allPlain(scales) {
			e4m3Groups32(&s.out1(r)[0], &s.at(0, r)[0], &scales[0], mxE4M3, groups)
		} else {
			k.reference(s, r, s.c0, tail)
		}
		k.reference(s, r, tail, s.c1)
	}
	return nil
}

// allPlain says whether plainE4M3 holds for all scales.
func allPlain(scales []byte) bool {
	for _, e := range scales {
		if e <= 127-100 || e >= 127+100 {
			return false
		}
	}
	return true
}

// reference decodes columns [c0, c1) of row r by the reference kernel.
func (k fastScaled8) reference(s *strip, r, c0, c1 int) {
	for c := c0; c < c1; c++ {
		putBF16(s.out1(r), c-s.c0, k.codes[s.at(0, r)[c-s.c0]]*k.scale.at(s.at(1, r), c/k.bn))
	}
}
