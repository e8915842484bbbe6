//go:build !purego

package quant

import "slices"

func (k scaled8) kernel() kernel { return fastScaled8{k, best} }

// fastScaled8 decodes through tables built by the reference's arithmetic, one for each scale, wherever enough elements share the scale to pay for
// them; small groups of signed integers go through the same arithmetic in vectors.
type fastScaled8 struct {
	scaled8
	v *vectors
}

// The number of elements under one scale from which on a table is worth building: of 256 entries here, of E4M3 codes under usual scales here, of 256 entries
// in vectors or of 16 entries for them.
const (
	lutMinimum       = 512
	lutMinimumE4M3   = 128
	lutMinimumVector = 64
)

// The number of tables held at once: a run of columns that has tables is decoded row by row. Those for vectors are enough for 32,768 columns in blocks of
// 128, since rows in pieces are half as fast; tables of 256 words that one row alone uses, or plain Go, must leave the first cache to what is decoded.
const (
	lutsAtOnce   = 8
	rowsAtOnce   = 32
	tablesAtOnce = 256
)

// scaleTables are what decodes the codes of some scales: if plain is set tables of E4M3, in vectors of 32 codes and what is left by scale; else bytes, in
// vectors, or lut.
type scaleTables struct {
	v      *vectors
	wide   bool // none is plain
	scale  []float32
	plain  []bool
	tables [][32]byte
	bytes  [][512]byte   // made when there is a scale that needs it, where there are vectors for it
	lut    [][256]uint16 // the same where there are none
}

// e4m3 says that the codes are E4M3's and only scaled.
func (k fastScaled8) e4m3() bool { return k.codes == e4m3Values && k.zero == numNone }

func (k fastScaled8) newTables(n int, wide bool) *scaleTables {
	return &scaleTables{v: k.v, wide: wide || !k.e4m3(), scale: make([]float32, n), plain: make([]bool, n), tables: make([][32]byte, n)}
}

func (k fastScaled8) decode(s *strip) error {
	rows := 1
	if s.stride[1] == 0 {
		rows = s.rows
	}
	e4m3 := k.e4m3()
	minimum := lutMinimum
	switch {
	case k.v != nil && (k.v.buildTable != nil || e4m3):
		minimum = lutMinimumVector
	case e4m3:
		minimum = lutMinimumE4M3
	}
	shared := rows * min(k.bn, s.c1-s.c0)
	integers := k.codes == i8Values && (k.zero == numNone || k.zero == numI8)
	switch {
	case k.v != nil && k.bn == 32 && e4m3 && k.scale == numE8M0 && s.c0%32 == 0:
		return k.mx(s)
	case integers && k.v != nil && k.bn%16 == 0 && (k.v.buildTable == nil || shared < minimum):
		k.integers(s)
		return nil
	case k.scale == numE8M0 && k.zero == numNone && rows*k.bn < minimum:
		k.byScale(s)
		return nil
	case shared < minimum:
		for r := range s.rows {
			k.arithmetic(s, r, s.c0, s.c1)
		}
		return nil
	}
	// For one row, or one that is not in vectors of 32, a table of all codes is worth its making where that is in vectors.
	wide := k.v != nil && k.v.buildTable != nil && (!e4m3 || rows == 1 || k.bn%32 != 0)
	atOnce := tablesAtOnce
	switch {
	case k.v == nil:
		atOnce = lutsAtOnce
	case rows == 1:
		atOnce = rowsAtOnce
	}
	t := k.newTables(min(atOnce, (s.c1-1)/k.bn-s.c0/k.bn+1), wide)
	for r := 0; r < s.rows; r += rows {
		k.band(s, t, r, rows)
	}
	return nil
}

// band decodes rows [r, r+rows), which share their scales, in runs of columns for which there are tables.
func (k fastScaled8) band(s *strip, t *scaleTables, r, rows int) {
	n := len(t.tables)
	for c := s.c0; c < s.c1; {
		first := c / k.bn
		end := min(s.c1, (first+n)*k.bn)
		for j := first; j*k.bn < end; j++ {
			k.build(t, j-first, s, r, j)
		}
		for i := r; i < r+rows; i++ {
			t.run(s.out1(i)[2*(c-s.c0):2*(end-s.c0)], s.at(0, i)[c-s.c0:end-s.c0], c-first*k.bn, k.bn)
		}
		c = end
	}
}

// run decodes consecutive codes, of which the first has place c in the block of table 0; blocks have bn codes.
func (t *scaleTables) run(dst, src []byte, c, bn int) {
	for i := 0; len(src) > 0; c = 0 {
		n, blocks := min(bn-c, len(src)), 1
		if n == bn {
			blocks = t.alike(i, len(src)/bn, bn)
			n *= blocks
		}
		t.apply(i, blocks, dst, src[:n])
		dst, src, i = dst[2*n:], src[n:], i+blocks
	}
}

// alike is how many of n tables from i on decode whole blocks in the same vectors.
func (t *scaleTables) alike(i, n, bn int) int {
	plain := t.plain[i]
	if t.v == nil || plain && bn%32 != 0 || !plain && t.bytes == nil {
		return 1
	}
	if m := slices.Index(t.plain[i:i+n], !plain); m >= 0 {
		return m
	}
	return n
}

// build makes table i for scale j of row r.
func (k fastScaled8) build(t *scaleTables, i int, s *strip, r, j int) {
	var zero float32
	scale := k.scale.at(s.at(1, r), j)
	if k.zero != numNone {
		zero = k.zero.at(s.at(2, r), j)
	}
	t.scale[i] = scale
	t.plain[i] = !t.wide && plainE4M3(scale)
	switch {
	case t.plain[i] && t.v != nil:
		e4m3Table(&t.tables[i], scale, t.v.words)
	case t.v != nil && t.v.buildTable != nil:
		if t.bytes == nil {
			t.bytes = make([][512]byte, len(t.tables))
		}
		t.v.buildTable(&t.bytes[i], k.codes, zero, scale)
	default:
		if t.lut == nil {
			t.lut = make([][256]uint16, len(t.tables))
		}
		k.fill(&t.lut[i], scale, zero, t.plain[i])
	}
}

// fill makes a table of all codes.
func (k fastScaled8) fill(lut *[256]uint16, scale, zero float32, plain bool) {
	if plain {
		fillE4M3(lut, scale)
		return
	}
	for c, v := range k.codes {
		lut[c] = bf16((v - zero) * scale)
	}
}

// apply decodes blocks of codes, all of one length, by tables from i on; several only if they are alike.
func (t *scaleTables) apply(i, blocks int, dst, src []byte) {
	n := len(src) / blocks
	_ = dst[2*len(src)-1]
	switch {
	case t.v != nil && t.plain[i]:
		if n >= 32 {
			t.v.lookupE4M3(&dst[0], &src[0], &t.tables[i], n/32, blocks)
		}
		for c := n &^ 31; c < n; c++ {
			putBF16(dst, c, e4m3Values[src[c]]*t.scale[i])
		}
	case t.bytes != nil:
		t.v.lookupTables(&dst[0], &src[0], &t.bytes[i], n, blocks)
	default:
		lookup8(dst, src, &t.lut[i])
	}
}

// integers decodes signed integers by arithmetic in vectors: whole groups, what is left of a row at either end one by one.
func (k fastScaled8) integers(s *strip) {
	first, end := (s.c0+k.bn-1)/k.bn, s.c1/k.bn
	n := max(end-first, 0)
	parameters := make([]float32, 2*n)
	scales, zeros := parameters[:n], parameters[n:]
	head, tail := first*k.bn, end*k.bn
	if n == 0 {
		head, tail = s.c1, s.c1
	}
	for r := range s.rows {
		k.arithmetic(s, r, s.c0, head)
		k.arithmetic(s, r, tail, s.c1)
		if n == 0 {
			continue
		}
		k.scale.read(scales, s.at(1, r)[int64(first)*k.scale.size():])
		if k.zero != numNone {
			k.zero.read(zeros, s.at(2, r)[int64(first)*k.zero.size():])
		}
		dst, data := s.out1(r)[2*(head-s.c0):2*(tail-s.c0)], s.at(0, r)[head-s.c0:tail-s.c0]
		k.v.signed8(&dst[0], &data[0], &scales[0], &zeros[0], n, k.bn/16)
	}
}

// byScale decodes small groups with one-byte scales through a table for each scale that occurs.
func (k fastScaled8) byScale(s *strip) {
	t := k.newTables(256, k.v != nil && k.v.buildTable != nil)
	var made [256]bool
	for r := range s.rows {
		dst, data, scales := s.out1(r), s.at(0, r), s.at(1, r)
		for c := s.c0; c < s.c1; {
			j := c / k.bn
			n := min(s.c1, (j+1)*k.bn) - c
			i := int(scales[j])
			if !made[i] {
				k.build(t, i, s, r, j)
				made[i] = true
			}
			t.apply(i, 1, dst[:2*n], data[:n])
			dst, data, c = dst[2*n:], data[n:], c+n
		}
	}
}

// mxTables are the tables of the E8M0 scales for which plainE4M3 holds, as planes and as words.
var mxTables = func() *[2][256][32]byte {
	t := new([2][256][32]byte)
	for i, scale := range e8m0Values {
		if plainE4M3(scale) {
			e4m3Table(&t[0][i], scale, false)
			e4m3Table(&t[1][i], scale, true)
		}
	}
	return t
}()

// mx decodes groups of 32 E4M3 codes with E8M0 scales, from a whole group on.
func (k fastScaled8) mx(s *strip) error {
	groups := (s.c1 - s.c0) / 32
	tail := s.c0 + 32*groups
	tables := &mxTables[0]
	if k.v.words {
		tables = &mxTables[1]
	}
	for r := range s.rows {
		scales := s.at(1, r)[s.c0/32:][:groups]
		if groups > 0 && allPlain(scales) {
			k.v.e4m3Groups32(&s.out1(r)[0], &s.at(0, r)[0], &scales[0], tables, groups)
		} else {
			k.arithmetic(s, r, s.c0, tail)
		}
		k.arithmetic(s, r, tail, s.c1)
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

// arithmetic decodes columns [c0, c1) of row r one by one, group by group.
func (k fastScaled8) arithmetic(s *strip, r, c0, c1 int) {
	dst, data := s.out1(r), s.at(0, r)
	for c := c0; c < c1; {
		j := c / k.bn
		end := min(c1, (j+1)*k.bn)
		var zero float32
		scale := k.scale.at(s.at(1, r), j)
		if k.zero != numNone {
			zero = k.zero.at(s.at(2, r), j)
		}
		for ; c < end; c++ {
			putBF16(dst, c-s.c0, (k.codes[data[c-s.c0]]-zero)*scale)
		}
	}
}
