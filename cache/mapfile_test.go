package cache

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weightfs/sources"
)

// castagnoli is CRC32C written as its definition says: reflected polynomial 0x82f63b78, all ones in and out.
func castagnoli(p []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range p {
		crc ^= uint32(b)
		for range 8 {
			low := crc & 1
			crc >>= 1
			if low != 0 {
				crc ^= 0x82f63b78
			}
		}
	}
	return ^crc
}

// TestMapGolden holds the format: a map file written by hand, byte for byte.
func TestMapGolden(t *testing.T) {
	key := sources.ID{0xab, 1, 2, 3, 31: 0xcd}
	h := mapHead{key, 0x123456}
	b := h.encode()
	b = record{kind: recordFill, first: 2, count: 2, sums: []uint32{0x11223344, 0x55667788}}.append(b)
	b = record{kind: recordTomb, first: 3, count: 1}.append(b)
	b = record{kind: recordPlain}.append(b)
	plain := len(b)
	b = record{kind: recordWhole, state: fileState{0x0102030405060708, -2}}.append(b)

	head := "5746534d41503100" + "01000000" + "11000000" + "5634120000000000" + hex.EncodeToString(key[:]) + "00000000"
	fill := "01000000" + "02000000" + "0200000000000000" + "44332211" + "88776655"
	tomb := "02000000" + "01000000" + "0300000000000000"
	unnoted := "03000000" + "00000000" + "0000000000000000"
	whole := "04000000" + "00000000" + "0000000000000000" + "0807060504030201" + "feffffffffffffff"
	var want []byte
	for _, part := range []string{head, fill, tomb, unnoted, whole} {
		p, err := hex.DecodeString(part)
		must(t, err)
		want = append(want, binary.LittleEndian.AppendUint32(p, castagnoli(p))...)
	}
	if !bytes.Equal(b, want) {
		t.Fatalf("map file\n%x\nwant\n%x", b, want)
	}
	x, good, err := parseMap(want, h)
	must(t, err)
	if good != len(want) || x.cells != 1 || !x.whole || x.groups[0].have != 1<<2 || x.groups[0].sums[2] != 0x11223344 {
		t.Errorf("parsed %+v, good part %d of %d", x, good, len(want))
	}
	if x.state != (fileState{0x0102030405060708, -2}) {
		t.Errorf("verified in the state %v", x.state)
	}
	if x, good, err := parseMap(want[:plain], h); err != nil || good != plain || x.whole {
		t.Errorf("a verification without a state: good part %d of %d, %+v, %v", good, plain, x, err)
	}
}

func TestChecksum(t *testing.T) {
	if got := checksum([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("the check value of CRC32C is e3069283, got %x", got)
	}
	p := make([]byte, cellSize)
	for i := range p {
		p[i] = byte(i * i / 3)
	}
	if checksum(p) != castagnoli(p) {
		t.Error("checksum of a cell is not CRC32C")
	}
}

// mapOps are records and what they should leave, cell by cell.
func randomMap(r *rand.Rand, cells int64) (raw []byte, sums map[int64]uint32, h mapHead) {
	h = mapHead{sources.ID{7}, cells<<cellLog2 - 5}
	raw, sums = h.encode(), map[int64]uint32{}
	for range r.IntN(20) {
		first := r.Int64N(cells)
		n := 1 + r.Int64N(min(pieceCells, cells-first))
		rec := record{kind: recordTomb, first: first, count: uint32(n)}
		for i := range n {
			delete(sums, first+i)
		}
		if r.IntN(3) > 0 {
			rec.kind = recordFill
			for i := range n {
				rec.sums = append(rec.sums, r.Uint32())
				sums[first+i] = rec.sums[i]
			}
		}
		raw = rec.append(raw)
	}
	return raw, sums, h
}

// subset says whether the index has no cell or checksum that is not in sums.
func subset(x index, sums map[int64]uint32) bool {
	for k, g := range x.groups {
		for m := g.have; m != 0; m &= m - 1 {
			i := bits.TrailingZeros16(m)
			if s, ok := sums[k*pieceCells+int64(i)]; !ok || s != g.sums[i] {
				return false
			}
		}
	}
	return true
}

// TestMapReplay replays random records, and the same with every kind of cut at the end.
func TestMapReplay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		raw, sums, h := randomMap(r, 1+r.Int64N(100))
		x, good, err := parseMap(raw, h)
		must(t, err)
		if good != len(raw) || x.cells != int64(len(sums)) || !subset(x, sums) {
			t.Fatalf("replay: %d cells, want %d; good %d of %d", x.cells, len(sums), good, len(raw))
		}
		short := x.encode(h)
		if y, _, err := parseMap(short, h); err != nil || len(short) > len(raw)+recordBase*len(sums) || y.cells != x.cells || !subset(y, sums) {
			t.Fatalf("the rewritten map says something else: %v", err)
		}
		if len(raw) == mapHeader {
			continue
		}
		cut := mapHeader + r.IntN(len(raw)-mapHeader)
		for _, tail := range [][]byte{nil, make([]byte, r.IntN(100)), []byte("tail of something else")} {
			torn := append(append([]byte(nil), raw[:cut]...), tail...)
			_, good, err := parseMap(torn, h)
			must(t, err)
			if good > cut || !bytes.Equal(torn[:good], raw[:good]) {
				t.Fatalf("good part %d after a cut at %d", good, cut)
			}
		}
	}
}

// TestMapHeader refuses maps of something else.
func TestMapHeader(t *testing.T) {
	h := mapHead{sources.ID{1}, 1 << 20}
	b := h.encode()
	for i := range b {
		flipped := append([]byte(nil), b...)
		flipped[i] ^= 1
		if _, _, err := parseMap(flipped, h); err == nil {
			t.Errorf("byte %d of the header may be anything", i)
		}
	}
	for _, want := range []mapHead{{sources.ID{2}, 1 << 20}, {sources.ID{1}, 1<<20 + 1}} {
		if _, _, err := parseMap(b, want); err == nil {
			t.Errorf("%v was accepted for %v", h, want)
		}
	}
	if _, _, err := parseMap(b, mapHead{h.key, -1}); err != nil {
		t.Errorf("a map of unknown size: %v", err)
	}
	for n := range mapHeader {
		if _, _, err := parseMap(b[:n], h); err == nil {
			t.Errorf("a header of %d bytes was accepted", n)
		}
	}
}

// FuzzMap feeds anything to the parser: it must not fail otherwise than by an error, hold cells beyond the blob, or claim more than it read.
func FuzzMap(f *testing.F) {
	h := mapHead{sources.ID{7}, 40<<cellLog2 - 5}
	r := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		raw, _, _ := randomMap(r, 40)
		f.Add(raw)
	}
	f.Add(record{kind: recordWhole, state: fileState{1, 2}}.append(h.encode()))
	f.Add(record{kind: recordFill, first: 1 << 62, count: 1 << 31}.append(h.encode()))
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkMap(t, raw, h)
		checkMap(t, summed(raw, h), h)
	})
}

// summed is raw with a right header and right checksums of what could be records, so that chance gets past them.
func summed(raw []byte, h mapHead) []byte {
	out := append(h.encode(), raw[min(len(raw), mapHeader):]...)
	for at := mapHeader; len(out)-at >= recordBase; {
		n := recordBase
		switch kind, count := binary.LittleEndian.Uint32(out[at:])%6, binary.LittleEndian.Uint32(out[at+4:]); {
		case kind == recordFill:
			n += 4 * int(count%64)
		case kind == recordWhole:
			n += 16
		}
		if len(out)-at < n {
			break
		}
		binary.LittleEndian.PutUint32(out[at+n-4:], checksum(out[at:at+n-4]))
		at += n
	}
	return out
}

func checkMap(t *testing.T, raw []byte, h mapHead) {
	x, good, err := parseMap(raw, h)
	if err != nil {
		return
	}
	if good > len(raw) || x.cells > cellsOf(h.size) || x.cells < 0 {
		t.Fatalf("good %d of %d, %d cells", good, len(raw), x.cells)
	}
	var n int64
	for k, g := range x.groups {
		n += int64(bits.OnesCount16(g.have))
		if g.have != 0 && k*pieceCells+int64(bits.Len16(g.have)) > cellsOf(h.size) {
			t.Fatalf("group %d has cells %b beyond the blob", k, g.have)
		}
	}
	if n != x.cells {
		t.Fatalf("%d cells counted as %d", n, x.cells)
	}
	again, good2, err := parseMap(raw[:good], h)
	if err != nil || good2 != good || again.cells != x.cells || again.whole != x.whole || again.state != x.state {
		t.Fatalf("the good part parses differently: %d, %v", good2, err)
	}
	short, _, err := parseMap(x.encode(h), h)
	if err != nil || short.cells != x.cells || short.whole != x.whole {
		t.Fatalf("what was rewritten says something else: %d cells of %d, %v", short.cells, x.cells, err)
	}
}

// filesOf is the paths in a cache directory that end in ext.
func filesOf(t testing.TB, dir, ext string) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ext) {
			out = append(out, p)
		}
		return nil
	}))
	return out
}
