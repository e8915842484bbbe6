//go:build !purego

package quant

import (
	"encoding/binary"
	"math/bits"
)

func (k hqq) kernel() kernel        { return fastHQQ{k, best} }
func (k pairedRows) kernel() kernel { return fastPairedRows{k, best} }
func (k bnb8) kernel() kernel       { return fastBnb8{k, best} }
func (k bitnet) kernel() kernel     { return fastBitnet{k, best} }
func (k mxfp6) kernel() kernel      { return fastMXFP6{k, best} }

// fastHQQ makes a byte of every code and decodes whole rows as groups; where every column has its own scale, one by one.
type fastHQQ struct {
	hqq
	v *vectors
}

// byteCodes is the number of codes of which bytes are made at once.
const byteCodes = 4096

func (k fastHQQ) decode(s *strip) error {
	columns := s.c1 - s.c0
	if !k.perRow || s.dstStride != 2*columns {
		k.columns(s)
		return nil
	}
	step := max(byteCodes/columns, 1)
	row := newCodeRow(bits.Len(uint(k.mask)), columns, false, k.v, 0, step)
	row.width = 8
	codes := make([]byte, step*columns)
	for r := 0; r < s.rows; r += step {
		n := min(step, s.rows-r)
		for i := range n {
			k.codes(codes[i*columns:(i+1)*columns], s.at(0, r+i))
			row.scales[i], row.seconds[i] = k.scale.at(s.at(1, r+i), 0), k.zero.at(s.at(2, r+i), 0)
		}
		row.decode(s.dst[r*s.dstStride:], codes, 0, 0, n*columns)
	}
	return nil
}

// codes makes a byte of every code.
func (k *fastHQQ) codes(dst, data []byte) {
	if k.element == 1 {
		shiftBytes(dst, data, k.shift, byte(k.mask), 0)
		return
	}
	for c := range dst {
		dst[c] = byte(binary.LittleEndian.Uint32(data[4*c:]) >> k.shift & uint32(k.mask))
	}
}

// shiftBytes makes data>>shift AND mask XOR flip of every byte. mask leaves out what comes from the next byte.
func shiftBytes(dst, data []byte, shift int, mask, flip byte) {
	const ones = 0x0101010101010101
	masks, flips := ones*uint64(mask), ones*uint64(flip)
	data = data[:len(dst)]
	for len(dst) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(data)>>shift&masks^flips)
		dst, data = dst[8:], data[8:]
	}
	for c := range dst {
		dst[c] = data[c]>>shift&mask ^ flip
	}
}

// columns decodes rows under scales that are read once.
func (k *fastHQQ) columns(s *strip) {
	n := s.c1 - s.c0
	parameters := make([]float32, 2*n)
	scales, zeros, codes := parameters[:n], parameters[n:], make([]byte, n)
	for r := range s.rows {
		if k.perRow {
			fillFloats(scales, k.scale.at(s.at(1, r), 0))
			fillFloats(zeros, k.zero.at(s.at(2, r), 0))
		} else if r == 0 {
			k.scale.read(scales, s.at(1, r))
			k.zero.read(zeros, s.at(2, r))
		}
		k.codes(codes, s.at(0, r))
		dst, done := s.out1(r), 0
		if k.v != nil && n >= 16 {
			done = n &^ 15
			k.v.columns8(&dst[0], &codes[0], &scales[0], &zeros[0], n/16)
		}
		for c := done; c < n; c++ {
			putBF16(dst, c, (float32(codes[c])-zeros[c])*scales[c])
		}
	}
}

func fillFloats(list []float32, v float32) {
	for i := range list {
		list[i] = v
	}
}

// fastPairedRows makes a byte of every code, with the sign bit flipped, and decodes them in groups with zero point 8.
type fastPairedRows struct {
	pairedRows
	v *vectors
}

func (k fastPairedRows) decode(s *strip) error {
	first, end := s.c0/k.group, (s.c1-1)/k.group+1
	row := newCodeRow(4, k.group, false, k.v, first, end)
	row.width = 8
	fillFloats(row.seconds, 8)
	codes := make([]byte, s.c1-s.c0)
	for r := range s.rows {
		shiftBytes(codes, s.in[0][s.c0:s.c1], int(4*((s.row+int64(r))%2)), 15, 8)
		k.scale.read(row.scales, s.at(1, r)[int64(first)*k.scale.size():])
		row.decode(s.out1(r), codes, 0, s.c0, s.c1)
	}
	return nil
}

// fastBnb8 decodes through a table of all codes under the row's scale.
type fastBnb8 struct {
	bnb8
	v *vectors
}

func (k fastBnb8) decode(s *strip) error {
	if s.c1-s.c0 < lutMinimum {
		return refBnb8{k.bnb8}.decode(s)
	}
	table := new(byteTable)
	for r := range s.rows {
		scb := numF32.at(s.at(1, r), 0)
		for i := range table.lut {
			table.lut[i] = bf16(k.value(int8(i), scb))
		}
		if k.v != nil {
			table.planes()
		}
		table.lookup(k.v, s.out1(r), s.at(0, r)[:s.c1-s.c0])
	}
	return nil
}

// fastBitnet decodes whole bytes through a table, although each has codes of four rows.
type fastBitnet struct {
	bitnet
	v *vectors
}

func (k fastBitnet) decode(s *strip) error {
	scale, table := k.scale.at(s.in[1], 0), new(byteTable)
	var results [4]uint16
	for code := range results {
		results[code] = bf16(k.value(byte(code), scale))
	}
	for i := range table.lut {
		table.lut[i] = results[i>>k.shift&3]
	}
	table.planes()
	for r := range s.rows {
		table.lookup(k.v, s.out1(r), s.at(0, r)[:s.c1-s.c0])
	}
	return nil
}

// fastMXFP6 makes a byte of every code and decodes them through a table for each scale that occurs.
type fastMXFP6 struct {
	mxfp6
	v *vectors
}

func (k fastMXFP6) decode(s *strip) error {
	var tables [256]*byteTable
	codes := make([]byte, s.c1-s.c0)
	for r := range s.rows {
		unpackCodes(k.v, codes, s.at(0, r), 0, 6)
		dst, scales := s.out1(r), s.at(1, r)
		for c := s.c0; c < s.c1; {
			end := min(s.c1, c-c%32+32)
			t := tables[scales[c/32]]
			if t == nil {
				t = new(byteTable)
				for i, v := range e2m3Values {
					t.lut[i] = bf16(v * e8m0Values[scales[c/32]])
				}
				t.planes()
				tables[scales[c/32]] = t
			}
			t.lookup(k.v, dst[2*(c-s.c0):2*(end-s.c0)], codes[c-s.c0:end-s.c0])
			c = end
		}
	}
	return nil
}
