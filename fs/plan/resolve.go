package plan

import (
	"fmt"
	"io"
)

// job is what one read of a plan comes to: reads from the store, and what is to be made of their bytes afterwards. It is made without
// any I/O. Jobs are reused, so that a read allocates next to nothing.
type job struct {
	reads   []Read
	decodes []decode
	picks   []pick
	tiles   []tile
	renders []render
	scratch []byte // holds the inputs of decodes and picks
	used    int64
	inputs  [][]byte // of the decode at hand
}

// decode is a call of a codec straight into the destination.
type decode struct {
	codec Codec
	off   int64 // of the codec's output
	dst   []byte
	need  int // its inputs are reads[need : need+count]
	count int
}

// pick copies rows out of a stretch of the source that was read whole: reads[read] starts at row byte skip.
type pick struct {
	rows Rows
	off  int64 // in the piece
	dst  []byte
	read int
}

// tile is a part of a decoded tile that is worth keeping: the window [off, off+size) of the codec's output, of which dst wants the
// bytes from skip. at is where the window begins in the file.
type tile struct {
	codec  Codec
	inputs []Span
	off    int64
	size   int64
	at     int64
	skip   int64
	dst    []byte
}

// render is a part of a literal that has to be rendered; at is where the literal begins in the file.
type render struct {
	lit  Literal
	at   int64
	skip int64
	dst  []byte
}

const (
	// keptTile is the size of a codec's tile beyond which partial tiles are decoded whole and kept. Smaller ones are decoded straight
	// into the destination.
	keptTile = 64 << 10
	// Rows shorter than pickRow and at most pickGap row lengths apart are read as one stretch and picked out of it.
	pickRow = 1 << 10
	pickGap = 8
)

// clamp is the number of bytes that a read of n bytes at off of a file of the given size returns, with [io.EOF] if those are
// less than n: the rule of [io.ReaderAt].
func clamp(size, off int64, n int) (int64, error) {
	switch {
	case off < 0:
		return 0, fmt.Errorf("read at negative offset %d", off)
	case n == 0:
		return 0, nil
	case off >= size:
		return 0, io.EOF
	case int64(n) > size-off:
		return size - off, io.EOF
	}
	return int64(n), nil
}

// resolve adds what it takes to fill dst with the bytes of p from off, which must all exist. base is where p begins in the file. Zeros
// and literals in memory are filled at once.
func (j *job) resolve(p *Plan, base, off int64, dst []byte) {
	for i := p.find(off); len(dst) > 0; i++ {
		x, start := p.Pieces[i], p.starts[i]
		n := min(int64(len(dst)), start+x.Len()-off)
		j.piece(x, base+start, off-start, dst[:n:n])
		dst, off = dst[n:], off+n
	}
}

// piece adds the bytes of x from off; at is where x begins in the file.
func (j *job) piece(x Piece, at, off int64, dst []byte) {
	switch x := x.(type) {
	case Zero:
		clear(dst)
	case Literal:
		if x.Bytes != nil {
			copy(dst, x.Bytes[off:])
		} else {
			j.renders = append(j.renders, render{x, at, off, dst})
		}
	case Copy:
		j.reads = append(j.reads, Read{Span: x.Span.Sub(off, int64(len(dst))), Dst: dst, Lend: true, at: at + off})
	case Rows:
		j.rows(x, off, dst)
	case Decode:
		j.decode(x, at, off, dst)
	case Repeat:
		j.repeat(x, at, off, dst)
	}
}

func (j *job) repeat(x Repeat, at, off int64, dst []byte) {
	for len(dst) > 0 {
		i, in := off/x.Stride, off%x.Stride
		n := min(int64(len(dst)), x.Stride-in)
		j.resolve(x.At(i), at+i*x.Stride, in, dst[:n:n])
		dst, off = dst[n:], off+n
	}
}

func (j *job) rows(x Rows, off int64, dst []byte) {
	row, n := x.First.Len(), int64(len(dst))
	if x.close() {
		span := x.stretch(off, n)
		j.picks = append(j.picks, pick{x, off, dst, j.need(span)})
		return
	}
	for len(dst) > 0 {
		i, in := off/row, off%row
		n := min(int64(len(dst)), row-in)
		j.reads = append(j.reads, Read{Span: x.row(i).Sub(in, n), Dst: dst[:n:n]})
		dst, off = dst[n:], off+n
	}
}

// row is the source span of row i.
func (r Rows) row(i int64) Span {
	return Span{r.First.File, r.First.Start + i*r.Stride, r.First.End + i*r.Stride}
}

// close says that the rows are short and near each other, so that they are better read as one stretch.
func (r Rows) close() bool {
	row := r.First.Len()
	return r.Stride >= row && (r.Stride == row || row < pickRow && r.Stride <= pickGap*row)
}

// stretch is the span from the source of byte off of the piece to that of byte off+n-1.
func (r Rows) stretch(off, n int64) Span {
	row, last := r.First.Len(), off+n-1
	return Span{
		File:  r.First.File,
		Start: r.First.Start + off/row*r.Stride + off%row,
		End:   r.First.Start + last/row*r.Stride + last%row + 1,
	}
}

// fill copies the rows of the pick out of the stretch that holds them.
func (k pick) fill(stretch []byte) {
	row := k.rows.First.Len()
	for dst, off, pos := k.dst, k.off, int64(0); len(dst) > 0; {
		n := min(int64(len(dst)), row-off%row)
		copy(dst, stretch[pos:pos+n])
		dst, off = dst[n:], off+n
		pos += n + k.rows.Stride - row
	}
}

func (j *job) decode(x Decode, at, off int64, dst []byte) {
	size := x.Codec.Tile()
	if size <= keptTile {
		j.decodeInto(x, x.Off+off, dst)
		return
	}
	for len(dst) > 0 {
		pos := x.Off + off
		start := max(x.Off, pos-pos%size)
		end := min(x.Off+x.Size, pos-pos%size+size)
		n := min(int64(len(dst)), end-pos)
		if n == end-start {
			j.decodeInto(x, pos, dst[:n:n])
		} else {
			j.tiles = append(j.tiles, tile{x.Codec, x.Inputs, start, end - start, at + start - x.Off, pos - start, dst[:n:n]})
		}
		dst, off = dst[n:], off+n
	}
}

func (j *job) decodeInto(x Decode, off int64, dst []byte) {
	needs := x.Codec.Needs(off, int64(len(dst)))
	d := decode{x.Codec, off, dst, len(j.reads), len(needs)}
	for _, n := range needs {
		j.need(x.Inputs[n.Input].Sub(n.Start, n.End-n.Start))
	}
	j.decodes = append(j.decodes, d)
}

// need adds a read into scratch memory, which place provides, and gives its number.
func (j *job) need(s Span) int {
	j.reads = append(j.reads, Read{Span: s})
	j.used += s.Len()
	return len(j.reads) - 1
}

// place gives every read that has no destination its part of the scratch memory.
func (j *job) place() {
	if int64(cap(j.scratch)) < j.used {
		j.scratch = make([]byte, j.used)
	}
	free := j.scratch[:j.used]
	for i := range j.reads {
		if r := &j.reads[i]; r.Dst == nil {
			n := r.Span.Len()
			r.Dst, free = free[:n:n], free[n:]
		}
	}
}

// fill makes the destination's bytes out of what was read.
func (j *job) fill() error {
	for _, k := range j.picks {
		k.fill(j.reads[k.read].Dst)
	}
	for _, d := range j.decodes {
		j.inputs = j.inputs[:0]
		for _, r := range j.reads[d.need : d.need+d.count] {
			j.inputs = append(j.inputs, r.Dst)
		}
		if err := d.codec.Decode(d.dst, d.off, j.inputs); err != nil {
			return fmt.Errorf("decode %s at output byte %d: %w", d.codec, d.off, err)
		}
	}
	return nil
}

// keptScratch is the largest scratch memory that a job at rest keeps.
const keptScratch = 4 << 20

// reset makes the job empty and lets go of everything but its own memory.
func (j *job) reset() {
	clear(j.reads)
	clear(j.decodes)
	clear(j.picks)
	clear(j.tiles)
	clear(j.renders)
	clear(j.inputs)
	j.reads, j.decodes, j.picks = j.reads[:0], j.decodes[:0], j.picks[:0]
	j.tiles, j.renders, j.inputs, j.used = j.tiles[:0], j.renders[:0], j.inputs[:0], 0
	if cap(j.scratch) > keptScratch {
		j.scratch = nil
	}
}
