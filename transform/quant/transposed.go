package quant

import (
	"encoding/binary"
	"fmt"

	"weightfs/fs/plan"
)

// transposed is the output of a rowCodec with the last two axes exchanged: [experts, in, out]. One of its rows needs a column of every row of
// the inner codec, so it decodes in bands of rows: a band's inputs are one range for each inner row, unless the band is the whole expert.
type transposed struct {
	inner            *rowCodec
	experts, out, in int64 // of the inner codec
	band             int64 // rows of a tile
}

// bandBytes is about the number of bytes of a band's output, a band has at least minBandRows rows, and minStrip is the fewest bytes that it takes of a row
// of packed data.
const (
	bandBytes   = 1 << 20
	minBandRows = 64
	minStrip    = 64
)

// bandRows is the number of rows of rowBytes output bytes that decode best together, of packed data that has bits bits of each row beside each other: a
// multiple of 64.
func bandRows(rowBytes, rows, bits int64) int64 {
	least := max(minBandRows, ceilDiv(8*minStrip, bits*minBandRows)*minBandRows)
	return min(max(bandBytes/rowBytes/minBandRows*minBandRows, least), rows)
}

func newTransposed(inner *rowCodec) *transposed {
	return &transposed{inner: inner, experts: inner.experts, out: inner.out, in: inner.in, band: bandRows(2*inner.out, inner.in, 8*inner.inputs[0].unitBytes/inner.unit)}
}

func (t *transposed) String() string     { return "transposed(" + t.inner.String() + ")" }
func (t *transposed) Len() int64         { return t.inner.Len() }
func (t *transposed) InputLens() []int64 { return t.inner.InputLens() }
func (t *transposed) Tile() int64        { return t.band * 2 * t.out }

// part is a run of output rows [k0, k1) of one expert, cut to inner rows [o0, o1).
type part struct{ expert, k0, k1, o0, o1 int64 }

// parts cuts an output range by experts. A range within one row needs some inner rows only.
func (t *transposed) parts(off, n int64) []part {
	var list []part
	rb := 2 * t.out
	for end := off + n; off < end; {
		e, k := off/rb/t.in, off/rb%t.in
		last := min((end-1)/rb, e*t.in+t.in-1)
		p := part{expert: e, k0: k, k1: last%t.in + 1, o1: t.out}
		if p.k1 == p.k0+1 {
			p.o0, p.o1 = off%rb/2, min(rb, off%rb+end-off+1)/2
		}
		list, off = append(list, p), min(end, (last+1)*rb)
	}
	return list
}

// dense says whether the data of the part's inner rows is one range: whole rows, or rows of which no part can be taken.
func (t *transposed) dense(p part) bool {
	return p.k0 == 0 && p.k1 == t.in || t.inner.inputs[0].unitBytes == 0 || p.o1 == p.o0+1
}

// spans are the byte ranges that a part needs: those of the data first, then one of each side input.
func (t *transposed) spans(p part) []plan.Need {
	c, base := t.inner, p.expert*t.out
	data := &c.inputs[0]
	var list []plan.Need
	if t.dense(p) {
		start, end := c.span(data, base+p.o0, p.k0, base+p.o1-1, p.k1)
		list = append(make([]plan.Need, 0, len(c.inputs)), plan.Need{Start: start, End: end})
	} else {
		// Each inner row has one row of data.
		list = make([]plan.Need, p.o1-p.o0, p.o1-p.o0+int64(len(c.inputs)))
		start, end := c.span(data, base+p.o0, p.k0, base+p.o0, p.k1)
		for i := range list {
			at := int64(i) * data.rowBytes
			list[i] = plan.Need{Start: start + at, End: end + at}
		}
	}
	for i := 1; i < len(c.inputs); i++ {
		start, end := c.span(&c.inputs[i], base+p.o0, 0, base+p.o1-1, t.in)
		list = append(list, plan.Need{Input: i, Start: start, End: end})
	}
	return list
}

func (t *transposed) Needs(off, n int64) []plan.Need {
	parts := t.parts(off, n)
	if len(parts) == 1 {
		return t.spans(parts[0])
	}
	var list []plan.Need
	for _, p := range parts {
		list = append(list, t.spans(p)...)
	}
	return list
}

func (t *transposed) Decode(dst []byte, off int64, in [][]byte) error {
	for _, p := range t.parts(off, int64(len(dst))) {
		needs := t.spans(p)
		n, err := t.decode(dst, off, p, needs, in[:len(needs)])
		if err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		dst, off, in = dst[n:], off+n, in[len(needs):]
	}
	return nil
}

// stripeRows is the number of inner rows that are decoded before they are written out as columns: 128 bytes of every output row.
const stripeRows = 64

// decode fills the part's share of dst, which begins at output offset off, and returns its length.
func (t *transposed) decode(dst []byte, off int64, p part, needs []plan.Need, in [][]byte) (int64, error) {
	rb := 2 * t.out
	begin := (p.expert*t.in + p.k0) * rb // of the part's first row in the output
	end := min(off+int64(len(dst)), (p.expert*t.in+p.k1)*rb)
	w := t.stripes(p, needs, in)
	for o := p.o0; o < p.o1; o += stripeRows {
		rows := min(stripeRows, p.o1-o)
		if err := w.stripe(p.expert*t.out+o, o-p.o0, rows); err != nil {
			return 0, err
		}
		k := int(w.k1 - w.k0)
		writeColumns(dst[:end-off], begin+2*o-off, rb, w.out[2*(p.k0-w.k0):2*k*int(rows)], int(rows), int(p.k1-p.k0), k)
	}
	return end - off, nil
}

// stripes decodes inner rows of one part, several at a time.
type stripes struct {
	c      *rowCodec
	k0, k1 int64 // columns: the part's, rounded out to units
	rowLen int64 // bytes of a row's data
	data   [][]byte
	packed []byte // data of the rows at hand
	sides  window // the side inputs; input 0 is not there
	out    []byte // the rows at hand
}

func (t *transposed) stripes(p part, needs []plan.Need, in [][]byte) *stripes {
	c := t.inner
	u := c.unit
	w := &stripes{c: c, k0: p.k0 - p.k0%u, k1: min((p.k1+u-1)/u*u, t.in)}
	ranges := len(needs) - len(c.inputs) + 1 // of the data
	w.data = in[:ranges]
	start, end := c.span(&c.inputs[0], 0, w.k0, 0, w.k1)
	w.rowLen = end - start
	if ranges == 1 && p.o1 > p.o0+1 {
		w.data = make([][]byte, p.o1-p.o0)
		base := p.expert*t.out + p.o0
		for i := range w.data {
			start, end := c.span(&c.inputs[0], base+int64(i), w.k0, base+int64(i), w.k1)
			w.data[i] = in[0][start-needs[0].Start : end-needs[0].Start]
		}
	}
	w.packed, w.out = make([]byte, stripeRows*w.rowLen), make([]byte, 2*stripeRows*(w.k1-w.k0))
	w.sides = window{c: c, needs: make([]plan.Need, len(c.inputs)), in: make([][]byte, len(c.inputs))}
	copy(w.sides.needs[1:], needs[ranges:])
	copy(w.sides.in[1:], in[ranges:])
	return w
}

// stripe decodes inner rows from row on, counted over all experts, of which the first has data i, to out.
func (w *stripes) stripe(row, i, rows int64) error {
	for r := range rows {
		copy(w.packed[r*w.rowLen:(r+1)*w.rowLen], w.data[i+r])
	}
	size := 2 * (w.k1 - w.k0)
	for done := int64(0); done < rows; {
		n := min(rows-done, w.c.shared(row+done))
		if err := w.sides.stripOf(w.packed[done*w.rowLen:], w.rowLen, w.out[size*done:size*(done+n)], row+done, int(n), w.k0, w.k1); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// writeColumns writes the transpose of src, rows of k elements that lie stride elements apart, to rows of dst that lie rb bytes apart, the first from byte
// at on. at may lie before dst, and rows reach beyond it; what does is left out.
func writeColumns(dst []byte, at, rb int64, src []byte, rows, k, stride int) {
	for i := turnColumns(dst, at, rb, src, rows, k, stride); i < k; i++ {
		to := at + int64(i)*rb
		if i+4 <= k && rows%4 == 0 && to >= 0 && to+3*rb+2*int64(rows) <= int64(len(dst)) {
			for r := 0; r < rows; r += 4 {
				square(dst[to+2*int64(r):], rb, src[2*(r*stride+i):], 2*stride)
			}
			i += 3
			continue
		}
		writeColumn(dst, to, src[2*i:], rows, 2*stride)
	}
}

// square transposes 4 rows of 4 elements.
func square(dst []byte, dstStride int64, src []byte, stride int) {
	a, b := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[stride:])
	c, d := binary.LittleEndian.Uint64(src[2*stride:]), binary.LittleEndian.Uint64(src[3*stride:])
	const even, low = 0x0000FFFF0000FFFF, 0xFFFFFFFF
	// Exchange within pairs of rows, then between the pairs.
	ab, ba := a&even|b&even<<16, a>>16&even|b&^even
	cd, dc := c&even|d&even<<16, c>>16&even|d&^even
	binary.LittleEndian.PutUint64(dst, ab&low|cd<<32)
	binary.LittleEndian.PutUint64(dst[dstStride:], ba&low|dc<<32)
	binary.LittleEndian.PutUint64(dst[2*dstStride:], ab>>32|cd&^low)
	binary.LittleEndian.PutUint64(dst[3*dstStride:], ba>>32|dc&^low)
}

// writeColumn copies n elements of src, stride bytes apart, to consecutive elements of dst from byte at on; at may lie before dst or the
// elements reach beyond it, whose bytes are left out.
func writeColumn(dst []byte, at int64, src []byte, n, stride int) {
	if at >= 0 && at+2*int64(n) <= int64(len(dst)) {
		out := dst[at:]
		for i := range n {
			binary.LittleEndian.PutUint16(out[2*i:], binary.LittleEndian.Uint16(src[i*stride:]))
		}
		return
	}
	for i := range 2 * n {
		if x := at + int64(i); x >= 0 && x < int64(len(dst)) {
			dst[x] = src[i/2*stride+i%2]
		}
	}
}
