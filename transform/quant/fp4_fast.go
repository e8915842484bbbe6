//go:build !purego

package quant

import "encoding/binary"

func (k fp4) kernel() kernel { return fastFP4{k, best} }

// fastFP4 decodes through a table of the 16 codes for every scale byte, built by the reference's arithmetic.
type fastFP4 struct {
	fp4
	v *vectors
}

// fp4Tables holds the 16 codes under each of the 256 scale bytes, as far as they were needed.
type fp4Tables struct {
	lut  [256][16]uint16
	made [256]bool
}

// fillAll is the number of elements from which on it is worth making the tables of all scale bytes at once.
const fillAll = 8192

func (k fastFP4) decode(s *strip) error {
	columns := s.c1 - s.c0
	if k.v != nil && !k.swizzled && s.c0%32 == 0 && columns >= 32 && (k.second == secondNone && k.scale == numE8M0 || s.rows*columns >= fillAll) {
		k.vectors(s)
		return nil
	}
	var t fp4Tables
	second := k.secondOf(s, 0)
	for r := range s.rows {
		if next := k.secondOf(s, r); next != second {
			t.made, second = [256]bool{}, next
		}
		k.row(s, r, s.c0, &t, second)
	}
	return nil
}

// row decodes row r from column c on.
func (k *fastFP4) row(s *strip, r, c int, t *fp4Tables, second float32) {
	dst, data, scales := s.out1(r), s.at(0, r), s.at(1, r)
	dst, data = dst[2*(c-s.c0):], data[(c-s.c0)/2:]
	for c < s.c1 {
		g := c / k.group
		n := min(s.c1, (g+1)*k.group) - c
		at := g
		if k.swizzled {
			at = k.scaleIndex(s, r, g)
		}
		scale := scales[at]
		if !t.made[scale] {
			t.make(&k.fp4, scale, second)
		}
		if n == 16 {
			lookup16Codes((*[32]byte)(dst), binary.LittleEndian.Uint64(data), &t.lut[scale], k.highFirst)
		} else {
			lookup4(dst[:2*n], data, &t.lut[scale], k.highFirst)
		}
		dst, data, c = dst[2*n:], data[n/2:], c+n
	}
}

// make makes the table of a scale byte.
func (t *fp4Tables) make(k *fp4, scale byte, second float32) {
	combined := k.combine(k.scale.at([]byte{scale}, 0), second)
	for i := range t.lut[scale] {
		t.lut[scale][i] = bf16(e2m1Values[i] * combined)
	}
	t.made[scale] = true
}

// mxFP4 are the tables of all E8M0 scales, as planes and as words.
var mxFP4 = func() *[2][256][32]byte {
	t := new([2][256][32]byte)
	fp4{scale: numE8M0}.fill(&t[0], 1, false)
	fp4{scale: numE8M0}.fill(&t[1], 1, true)
	return t
}()

// fill makes the tables of all scale bytes under a second scale, as planes or as words.
func (k fp4) fill(tables *[256][32]byte, second float32, words bool) {
	for b := range tables {
		if k.scale == numE4M3 && b >= 128 {
			k.negate(&tables[b], &tables[b-128], words)
			continue
		}
		t := k.combine(k.scale.at([]byte{byte(b)}, 0), second)
		p := (*planes)(&tables[b])
		for i := range 8 {
			v := bf16(e2m1Values[i] * t)
			p.set(i, v)
			if v != nanBF16 {
				v ^= 0x8000
			}
			p.set(i+8, v)
		}
		if words {
			tables[b] = *p.asWords()
		}
	}
}

// negate makes the table of the scale of the other sign: each code has the result of its opposite.
func (k fp4) negate(to, from *[32]byte, words bool) {
	opposite := 8
	if words {
		opposite = 16
	}
	for i := range to {
		to[i] = from[i^opposite]
	}
}

// vectors decodes strips that begin on a group and have at least one.
func (k fastFP4) vectors(s *strip) {
	tables := &mxFP4[0]
	if k.v.words {
		tables = &mxFP4[1]
	}
	second := k.secondOf(s, 0)
	if k.second != secondNone || k.scale != numE8M0 {
		tables = new([256][32]byte)
		k.fill(tables, second, k.v.words)
	}
	kernel := k.v.fp4Groups16
	switch {
	case k.group == 32:
		kernel = k.v.fp4Groups32
	case k.highFirst:
		kernel = k.v.fp4Groups16High
	}
	n := (s.c1 - s.c0) / 32
	var tail fp4Tables
	for r := range s.rows {
		if next := k.secondOf(s, r); next != second {
			second = next
			k.fill(tables, second, k.v.words)
			tail.made = [256]bool{}
		}
		dst, data, scales := s.out1(r), s.at(0, r), s.at(1, r)[s.c0/k.group:]
		_, _, _ = dst[64*n-1], data[16*n-1], scales[32/k.group*n-1]
		kernel(&dst[0], &data[0], &scales[0], tables, n)
		if rest := s.c0 + 32*n; rest < s.c1 {
			k.tail(s, r, rest, &tail, second)
		}
	}
}

// tail decodes what is left of a row's columns from column c on.
func (k fastFP4) tail(s *strip, r, c int, t *fp4Tables, second float32) {
	cut := *s
	cut.dst, cut.rows, cut.row, cut.c0 = s.out1(r)[2*(c-s.c0):], 1, s.row+int64(r), c
	cut.dstStride = 2 * (s.c1 - c)
	cut.in = [][]byte{s.at(0, r)[(c-s.c0)/2:], s.at(1, r), nil}
	cut.stride = []int{0, 0, 0}
	k.row(&cut, 0, c, t, second)
}
