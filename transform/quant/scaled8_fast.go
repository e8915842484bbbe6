//go:build !purego

package quant

import "encoding/binary"

func (k scaled8) kernel() kernel { return fastScaled8{k} }

// fastScaled8 decodes through a table of all 256 codes for each scale, built by the reference's arithmetic, wherever enough elements share
// the scale to pay for it.
type fastScaled8 struct{ scaled8 }

// lutMinimum is the number of elements under one scale from which on a table is worth building.
const lutMinimum = 512

// lutBlocks is the number of tables held at once: with blocks of 128 columns, runs of 4096 columns.
const lutBlocks = 32

func (k fastScaled8) decode(s *strip) error {
	rows := 1
	if s.stride[1] == 0 {
		rows = s.rows
	}
	if rows*min(k.bn, s.c1-s.c0) < lutMinimum {
		return refScaled8{k.scaled8}.decode(s)
	}
	for r := 0; r < s.rows; r += rows {
		k.band(s, r, rows)
	}
	return nil
}

// band decodes rows [r, r+rows), which share their scales.
func (k fastScaled8) band(s *strip, r, rows int) {
	var luts [lutBlocks][256]uint16
	for c := s.c0; c < s.c1; {
		first := c / k.bn
		end := min(s.c1, (first+lutBlocks)*k.bn)
		for j := first; j*k.bn < end; j++ {
			k.build(&luts[j-first], s, r, j)
		}
		for i := r; i < r+rows; i++ {
			dst, data := s.out1(i), s.at(0, i)
			for x := c; x < end; {
				j := x / k.bn
				y := min(end, (j+1)*k.bn)
				lookup8(dst[2*(x-s.c0):2*(y-s.c0)], data[x-s.c0:y-s.c0], &luts[j-first])
				x = y
			}
		}
		c = end
	}
}

// build fills the table for scale j of row r.
func (k fastScaled8) build(lut *[256]uint16, s *strip, r, j int) {
	scale := k.scale.at(s.at(1, r), j)
	var zero float32
	if k.zero != numNone {
		zero = k.zero.at(s.at(2, r), j)
	}
	for i, v := range k.codes {
		lut[i] = bf16((v - zero) * scale)
	}
}

// lookup8 replaces every code of src by its table entry.
func lookup8(dst, src []byte, lut *[256]uint16) {
	for len(src) >= 8 && len(dst) >= 16 {
		v := binary.LittleEndian.Uint64(src)
		lo := uint64(lut[v&255]) | uint64(lut[v>>8&255])<<16 | uint64(lut[v>>16&255])<<32 | uint64(lut[v>>24&255])<<48
		hi := uint64(lut[v>>32&255]) | uint64(lut[v>>40&255])<<16 | uint64(lut[v>>48&255])<<32 | uint64(lut[v>>56])<<48
		binary.LittleEndian.PutUint64(dst, lo)
		binary.LittleEndian.PutUint64(dst[8:], hi)
		src, dst = src[8:], dst[16:]
	}
	for i, c := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], lut[c])
	}
}
