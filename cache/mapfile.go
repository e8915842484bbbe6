package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"weightfs/internal/crc32c"
	"weightfs/sources"
)

// A map file says which cells of the data file beside it are there. It is a header of 64 bytes and records that are only ever appended,
// each in one write and after the data that it speaks of. Integers are little-endian, checksums CRC32C.
//
//	header: magic "WFSMAP1\0", version u32, cell log2 u32, size u64, key [32], zero u32, checksum of the 60 bytes before u32
//	record: kind u32, count u32, first cell u64, for fill: checksum of each cell u32 × count, for verified: mtime and ctime of the data file
//	        in nanoseconds i64 each, checksum of the record so far u32
//
// The last record about a cell wins. What does not parse at the end is the tail of a write that was cut off; everything from there on is
// ignored. Nothing here is trusted without the checksum of the cell itself, so no order of writes to the medium is needed.
const (
	mapMagic    = "WFSMAP1\x00"
	mapVersion  = 1
	mapHeader   = 64
	maxMap      = 256 << 20 // longer is none of ours: cells of 8 TB take that much
	recordBase  = 20        // a record of its fixed fields alone
	recordFill  = 1
	recordTomb  = 2 // the cells are gone
	recordPlain = 3 // the SHA-256 was right once, of a data file in a state that is not noted: it says nothing
	recordWhole = 4 // all cells were there and the SHA-256 of the whole was right, the data file being in that state
)

var errMap = errors.New("not a map of this blob")

func checksum(b []byte) uint32 { return crc32c.Checksum(b) }

// mapHead is the header's content.
type mapHead struct {
	key  sources.ID
	size int64
}

func (h mapHead) encode() []byte {
	b := make([]byte, 0, mapHeader)
	b = append(b, mapMagic...)
	b = binary.LittleEndian.AppendUint32(b, mapVersion)
	b = binary.LittleEndian.AppendUint32(b, cellLog2)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.size))
	b = append(b, h.key[:]...)
	b = append(b, 0, 0, 0, 0)
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

func decodeHead(b []byte) (h mapHead, err error) {
	le := binary.LittleEndian
	if len(b) < mapHeader || string(b[:8]) != mapMagic || le.Uint32(b[60:]) != checksum(b[:60]) {
		return h, errMap
	}
	if v, c := le.Uint32(b[8:]), le.Uint32(b[12:]); v != mapVersion || c != cellLog2 {
		return h, fmt.Errorf("%w: version %d with cells of 2^%d bytes", errMap, v, c)
	}
	h.size = int64(le.Uint64(b[16:]))
	copy(h.key[:], b[24:])
	if h.size < 0 || h.size > 1<<62 {
		return h, errMap
	}
	return h, nil
}

// record is one record of a map file.
type record struct {
	kind  uint32
	first int64
	count uint32
	sums  []uint32  // of fill, one a cell
	state fileState // of verified
}

// fileState is when a file was last written and last changed in any way, in nanoseconds since 1970. Whoever writes to it later changes it.
// (Linux before 6.13 tells times only to the tick of its clock, at most 10 ms.)
type fileState struct{ mtime, ctime int64 }

func (r record) append(b []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, r.kind)
	b = binary.LittleEndian.AppendUint32(b, r.count)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.first))
	for _, s := range r.sums {
		b = binary.LittleEndian.AppendUint32(b, s)
	}
	if r.kind == recordWhole {
		b = binary.LittleEndian.AppendUint64(b, uint64(r.state.mtime))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.state.ctime))
	}
	return binary.LittleEndian.AppendUint32(b, checksum(b[at:]))
}

// decodeRecord reads the record at the start of b, for a blob of so many cells, and its length; ok is false where none is.
func decodeRecord(b []byte, cells int64) (r record, n int, ok bool) {
	le := binary.LittleEndian
	if len(b) < recordBase {
		return r, 0, false
	}
	r = record{kind: le.Uint32(b), count: le.Uint32(b[4:]), first: int64(le.Uint64(b[8:]))}
	if r.kind < recordFill || r.kind > recordWhole || r.first < 0 || r.first > cells || int64(r.count) > cells-r.first {
		return r, 0, false
	}
	n = recordBase
	switch r.kind {
	case recordFill:
		n += 4 * int(r.count)
	case recordWhole:
		n += 16
	}
	if len(b) < n || le.Uint32(b[n-4:]) != checksum(b[:n-4]) {
		return r, 0, false
	}
	switch r.kind {
	case recordFill:
		r.sums = make([]uint32, r.count)
		for i := range r.sums {
			r.sums[i] = le.Uint32(b[16+4*i:])
		}
	case recordWhole:
		r.state = fileState{int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:]))}
	}
	return r, n, true
}

// index is what a map file says.
type index struct {
	groups map[int64]*stored
	cells  int64     // present
	whole  bool      // verified, and complete since
	state  fileState // of the data file when it was verified
}

// stored is 16 cells of an index.
type stored struct {
	have uint16
	busy uint16 // being written or evicted: whoever set the bit owns the cell
	used int64  // unix time of the last use, in nanoseconds
	pins int    // readers that may be reading any of the cells
	sums [pieceCells]uint32
}

// parseMap reads a map file and returns the length of its good part, at least the header's.
func parseMap(b []byte, want mapHead) (x index, good int, err error) {
	h, err := decodeHead(b)
	if err != nil {
		return x, 0, err
	}
	if h.key != want.key || want.size >= 0 && h.size != want.size {
		return x, 0, fmt.Errorf("%w: it speaks of %x with %d bytes", errMap, h.key[:4], h.size)
	}
	x.groups = map[int64]*stored{}
	return x, mapHeader + x.replay(b[mapHeader:], cellsOf(h.size)), nil
}

// replay applies records, up to the first that is none, and returns their length.
func (x *index) replay(b []byte, cells int64) (good int) {
	for {
		r, n, ok := decodeRecord(b[good:], cells)
		if !ok {
			return good
		}
		x.apply(r)
		good += n
	}
}

func cellsOf(size int64) int64 { return (size + cellSize - 1) >> cellLog2 }

func (x *index) apply(r record) {
	switch r.kind {
	case recordFill:
		for i, s := range r.sums {
			x.set(r.first+int64(i), s)
		}
	case recordTomb:
		x.clear(r.first, int64(r.count))
	case recordWhole:
		x.whole, x.state = true, r.state
	}
}

func (x *index) set(i int64, sum uint32) {
	g := x.groups[i/pieceCells]
	if g == nil {
		g = &stored{}
		x.groups[i/pieceCells] = g
	}
	bit := uint16(1) << (i % pieceCells)
	if g.have&bit == 0 {
		g.have |= bit
		x.cells++
	}
	g.sums[i%pieceCells] = sum
}

// clear forgets cells. It goes over what is there or over the range, whichever is less.
func (x *index) clear(first, count int64) {
	x.whole = false
	if count/pieceCells > int64(len(x.groups)) {
		for k, g := range x.groups {
			x.clearGroup(k, g, first, first+count)
		}
		return
	}
	for k := first / pieceCells; k*pieceCells < first+count; k++ {
		if g := x.groups[k]; g != nil {
			x.clearGroup(k, g, first, first+count)
		}
	}
}

func (x *index) clearGroup(k int64, g *stored, first, end int64) {
	for i := max(first, k*pieceCells); i < min(end, (k+1)*pieceCells); i++ {
		if bit := uint16(1) << (i % pieceCells); g.have&bit != 0 {
			g.have &^= bit
			x.cells--
		}
	}
}

// encode writes the map that says the same in the fewest records.
func (x *index) encode(h mapHead) []byte {
	b := h.encode()
	for _, k := range slices.Sorted(maps.Keys(x.groups)) {
		g := x.groups[k]
		for left := g.have; left != 0; {
			at := bits.TrailingZeros16(left)
			n := bits.TrailingZeros16(^(left >> at))
			left &^= (1<<n - 1) << at
			b = record{kind: recordFill, first: k*pieceCells + int64(at), count: uint32(n), sums: g.sums[at : at+n]}.append(b)
		}
	}
	if x.whole {
		b = record{kind: recordWhole, state: x.state}.append(b)
	}
	return b
}
