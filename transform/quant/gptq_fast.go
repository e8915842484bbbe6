//go:build !purego

package quant

import "encoding/binary"

func (k gptq) kernel() colKernel { return fastGPTQ{k, best} }

// fastGPTQ turns strips of packed columns into packed rows, several output rows at a time, and decodes those as fastPacked does.
type fastGPTQ struct {
	gptq
	v *vectors
}

// tileRows is the number of output rows that are turned at once: 128 bytes of every row of GPTQ's words.
const tileRows = 32

// tile is some output rows as packed rows.
type tile struct {
	n0, n1 int64 // output rows
	skip   int   // bits before the first element
	stride int
	data   []byte    // rows of stride bytes; each has 8 bytes beyond its last code
	scales []float32 // of n1-n0 rows, then zero points, by group
	zeros  []float32
	bytes  []byte // planar: the codes of a row as bytes
}

func (k fastGPTQ) decode(s *colStrip) error {
	var groups []int32
	size := int(k.group)
	if k.index {
		list, err := k.groupsOf(s)
		if err != nil {
			return err
		}
		if size = inOrder(list); size == 0 {
			groups = list
		}
	}
	rows := min(tileRows, int(s.n1-s.n0))
	n := rows * int(k.groups)
	t := &tile{scales: make([]float32, n), zeros: make([]float32, n)}
	t.stride = int((s.k1-s.k0+64)*int64(k.bits)/8+24)&^7 | 64 // not a multiple of a page
	t.data = make([]byte, rows*t.stride)
	row := &codeRow{bits: k.bits, width: k.bits, group: max(size, 1), v: k.v, codes: make([]byte, unpackChunk)}
	if k.planar {
		row.width = 8
	}
	var lut []uint16
	if groups != nil {
		row.codes = make([]byte, s.k1-s.k0)
		if size := int(k.groups) << k.bits; 4*size <= len(row.codes) {
			lut = make([]uint16, size)
		}
	}
	for t.n0 = s.n0; t.n0 < s.n1; t.n0 = t.n1 {
		t.n1 = min(t.n0-t.n0%tileRows+tileRows, s.n1)
		k.parameters(t, s)
		if k.awq {
			k.turnNibbles(t, s)
		} else {
			k.turnWords(t, s)
		}
		for n := t.n0; n < t.n1; n++ {
			i := int(n - t.n0)
			data := t.data[i*t.stride:][:t.stride]
			row.scales, row.seconds = t.scales[i*int(k.groups):][:k.groups], t.zeros[i*int(k.groups):][:k.groups]
			if k.planar {
				data = k.planes(t, data)
			}
			if groups == nil {
				row.decode(s.out(n), data, t.skip, int(s.k0), int(s.k1))
			} else {
				unpackCodes(k.v, row.codes, data, t.skip, row.width)
				k.scattered(s.out(n), row, groups[s.k0:], lut)
			}
		}
	}
	return nil
}

// inOrder is the size of the groups if they are consecutive and of one size, but for a last one that may be shorter; else 0.
func inOrder(groups []int32) int {
	size := 1
	for size < len(groups) && groups[size] == groups[0] {
		size++
	}
	for i, g := range groups {
		if int(g) != i/size {
			return 0
		}
	}
	return size
}

// parameters reads the scales and zero points of the tile's rows.
func (k *fastGPTQ) parameters(t *tile, s *colStrip) {
	var scales [tileRows]float32
	for g := range k.groups {
		k.scale.read(scales[:t.n1-t.n0], s.in[2].row(g)[t.n0*k.scale.size()-s.in[2].from:])
		for n := t.n0; n < t.n1; n++ {
			at := (n-t.n0)*k.groups + g
			t.scales[at] = scales[n-t.n0]
			t.zeros[at] = float32(k.zero(&s.in[1], g, n))
		}
	}
}

// planes makes bytes of a row of planar codes: in each block of 32, planes of 4, 2 and 1 bits as far as a code has them (see fromPlanes).
func (k *fastGPTQ) planes(t *tile, data []byte) []byte {
	for at := 0; at < len(t.bytes); at += 32 {
		codes, done := t.bytes[at:at+32], 0
		for _, width := range []int{4, 2, 1} {
			if width > k.bits-done {
				continue
			}
			var plane [32]byte
			unpackCodes(nil, plane[:], data[:4*width], 0, width)
			for i, p := range plane {
				if done == 0 {
					codes[i] = p
				} else {
					codes[i] |= p << done
				}
			}
			data, done = data[4*width:], done+width
		}
	}
	return t.bytes
}

// turnWords turns GPTQ's words: word w of output row n is in row w.
func (k *fastGPTQ) turnWords(t *tile, s *colStrip) {
	v := &s.in[0]
	first := s.k0 * int64(k.bits) / 32
	end := (s.k1*int64(k.bits) + 31) / 32
	t.skip = int(s.k0*int64(k.bits) - 32*first)
	if k.planar {
		first, end = s.k0/32*int64(k.bits), (s.k1+31)/32*int64(k.bits)
		t.skip = 8 * int(s.k0%32)
		if t.bytes == nil {
			t.bytes = make([]byte, (end-first)/int64(k.bits)*32)
		}
	}
	from, n := 4*t.n0-v.from, int(t.n1-t.n0)
	for w := first; w < end; w += 2 {
		a := v.row(w)[from:][:4*n]
		b := a
		if w+1 < end {
			b = v.row(w + 1)[from:][:4*n]
		}
		at := int(4 * (w - first))
		for i := range n {
			x := uint64(binary.LittleEndian.Uint32(a[4*i:])) | uint64(binary.LittleEndian.Uint32(b[4*i:]))<<32
			binary.LittleEndian.PutUint64(t.data[i*t.stride+at:], x)
		}
	}
}

// turnNibbles turns AWQ's words, each of which holds a code of eight output rows: eight words become a word of each of the eight rows.
func (k *fastGPTQ) turnNibbles(t *tile, s *colStrip) {
	v, size := &s.in[0], int(s.k1-s.k0)
	t.skip = 0
	word0, words := t.n0/8, int((t.n1+7)/8-t.n0/8)
	none := make([]byte, 4*words)
	for e := 0; e < size; e += 8 {
		var rows [8][]byte
		for i := range rows {
			if rows[i] = none; e+i < size {
				rows[i] = v.row(s.k0 + int64(e+i))[4*word0-v.from:][:4*words]
			}
		}
		for w := range words {
			var x [8]uint32
			for i := range x {
				x[i] = binary.LittleEndian.Uint32(rows[i][4*w:])
			}
			y := transposeNibbles(&x)
			n := 8*(int(word0)+w) - int(t.n0) // of the first of the eight rows, in the tile
			for i := max(-n, 0); i < min(8, int(t.n1-t.n0)-n); i++ {
				binary.LittleEndian.PutUint32(t.data[(n+i)*t.stride+e/2:], y[k.order[i]&7])
			}
		}
	}
}

// transposeNibbles makes nibble j of word i nibble i of word j.
func transposeNibbles(x *[8]uint32) [8]uint32 {
	// Pairs of words, the first in the low half: exchanged are single nibbles within pairs, then pairs of nibbles, then fours.
	a, b := uint64(x[0])|uint64(x[1])<<32, uint64(x[2])|uint64(x[3])<<32
	c, d := uint64(x[4])|uint64(x[5])<<32, uint64(x[6])|uint64(x[7])<<32
	a, b, c, d = swapNibbles(a), swapNibbles(b), swapNibbles(c), swapNibbles(d)
	const eights, sixteens = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF
	t, u := (a>>8^b)&eights, (c>>8^d)&eights
	a, b, c, d = a^t<<8, b^t, c^u<<8, d^u
	t, u = (a>>16^c)&sixteens, (b>>16^d)&sixteens
	a, b, c, d = a^t<<16, b^u<<16, c^t, d^u
	return [8]uint32{uint32(a), uint32(a >> 32), uint32(b), uint32(b >> 32), uint32(c), uint32(c >> 32), uint32(d), uint32(d >> 32)}
}

// swapNibbles exchanges the odd nibbles of the low word with the even ones of the high word.
func swapNibbles(v uint64) uint64 {
	t := (v>>28 ^ v) & 0xF0F0F0F0
	return v ^ t ^ t<<28
}

// scattered decodes an output row whose elements have groups in any order, through a table of all groups if there is room for one.
func (k *fastGPTQ) scattered(dst []byte, row *codeRow, groups []int32, lut []uint16) {
	codes := row.codes
	if lut == nil {
		for i, code := range codes {
			putBF16(dst, i, row.value(int(code), int(groups[i])))
		}
		return
	}
	for g := range row.scales {
		row.fill(g)
		copy(lut[g<<k.bits:][:1<<k.bits], row.table[:])
	}
	groups, bits := groups[:len(codes)], k.bits
	for len(codes) >= 4 && len(groups) >= 4 && len(dst) >= 8 {
		at := func(i int) uint64 { return uint64(lut[uint32(groups[i])<<bits|uint32(codes[i])]) }
		binary.LittleEndian.PutUint64(dst, at(0)|at(1)<<16|at(2)<<32|at(3)<<48)
		codes, groups, dst = codes[4:], groups[4:], dst[8:]
	}
	for i, code := range codes {
		binary.LittleEndian.PutUint16(dst[2*i:], lut[uint32(groups[i])<<bits|uint32(code)])
	}
}
