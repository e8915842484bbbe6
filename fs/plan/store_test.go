package plan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
)

// memStore is a store over files in memory. It writes down every gather.
type memStore struct {
	files [][]byte
	max   int64
	fail  error // returned by every gather with reads, after spoiling their destinations

	mu  sync.Mutex // guards log
	log []string
}

func (s *memStore) MaxGather() int64 { return s.max }

func (s *memStore) Gather(ctx context.Context, reads []Read, ahead []Span) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	line, total := describeGather(reads, ahead)
	s.mu.Lock()
	s.log = append(s.log, line)
	s.mu.Unlock()
	if s.max > 0 && total > s.max {
		return fmt.Errorf("gather of %d bytes, at most %d are allowed", total, s.max)
	}
	for _, r := range reads {
		if err := s.read(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *memStore) read(r Read) error {
	if int64(len(r.Dst)) != r.Span.Len() {
		return fmt.Errorf("read of %v into %d bytes", r.Span, len(r.Dst))
	}
	if s.fail != nil {
		for i := range r.Dst {
			r.Dst[i] = 0xEE
		}
		return s.fail
	}
	if r.Span.Start < 0 || r.Span.End > int64(len(s.files[r.Span.File])) {
		return fmt.Errorf("read of %v beyond the file", r.Span)
	}
	copy(r.Dst, s.files[r.Span.File][r.Span.Start:])
	return nil
}

func describeGather(reads []Read, ahead []Span) (line string, total int64) {
	var b strings.Builder
	b.WriteString("gather")
	for _, r := range reads {
		fmt.Fprintf(&b, " %s", spanText(r.Span))
		total += r.Span.Len()
	}
	if len(ahead) > 0 {
		b.WriteString(" ahead")
	}
	for _, x := range ahead {
		fmt.Fprintf(&b, " %s", spanText(x))
	}
	return b.String(), total
}

func spanText(s Span) string { return fmt.Sprintf("%d[%d,%d)", s.File, s.Start, s.End) }

func (s *memStore) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// randomFiles has n files of the given size, of bytes that do not repeat in a pattern.
func randomFiles(n, size int) [][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	files := make([][]byte, n)
	for i := range files {
		files[i] = make([]byte, size)
		for k := range files[i] {
			files[i][k] = byte(rnd.Uint32())
		}
	}
	return files
}

// sumCodec is a toy: output byte i is input 0's byte i/2 plus input 1's byte i/row. Its rows are independent; with a tile of more than a
// row it stands for formats that decode nothing smaller.
type sumCodec struct {
	rows, row, tile int64
}

func (c sumCodec) String() string     { return fmt.Sprintf("sum(%dx%d,%d)", c.rows, c.row, c.tile) }
func (c sumCodec) Len() int64         { return c.rows * c.row }
func (c sumCodec) InputLens() []int64 { return []int64{(c.Len() + 1) / 2, c.rows} }
func (c sumCodec) Tile() int64        { return c.tile }

func (c sumCodec) Needs(off, n int64) []Need {
	return []Need{{0, off / 2, (off+n-1)/2 + 1}, {1, off / c.row, (off+n-1)/c.row + 1}}
}

func (c sumCodec) Decode(dst []byte, off int64, in [][]byte) error {
	needs := c.Needs(off, int64(len(dst)))
	for k, need := range needs {
		if int64(len(in[k])) != need.End-need.Start {
			return fmt.Errorf("%w: input %d has %d bytes, not %d", ErrBadInput, k, len(in[k]), need.End-need.Start)
		}
	}
	for i := range dst {
		pos := off + int64(i)
		dst[i] = in[0][pos/2-needs[0].Start] + in[1][pos/c.row-needs[1].Start]
	}
	return nil
}

// whole is the codec's output written down from its definition.
func (c sumCodec) whole(data, side []byte) []byte {
	var out []byte
	for r := range c.rows {
		for k := range c.row {
			out = append(out, data[(r*c.row+k)/2]+side[r])
		}
	}
	return out
}

// write is the file of a plan, made the dumb way: piece after piece, each as a whole.
func write(p *Plan, files [][]byte) []byte {
	var out []byte
	for _, x := range p.Pieces {
		switch x := x.(type) {
		case Literal:
			if x.Bytes != nil {
				out = append(out, x.Bytes...)
			} else {
				out = append(out, x.Render()...)
			}
		case Zero:
			out = append(out, make([]byte, x.Size)...)
		case Copy:
			out = append(out, files[x.Span.File][x.Span.Start:x.Span.End]...)
		case Rows:
			for i := range x.Count {
				at := x.First.Start + i*x.Stride
				out = append(out, files[x.First.File][at:at+x.First.End-x.First.Start]...)
			}
		case Decode:
			data, side := x.Inputs[0], x.Inputs[1]
			all := x.Codec.(sumCodec).whole(files[data.File][data.Start:data.End], files[side.File][side.Start:side.End])
			out = append(out, all[x.Off:x.Off+x.Size]...)
		case Repeat:
			for i := range x.N {
				out = append(out, write(x.At(i), files)...)
			}
		}
	}
	return out
}

var errStore = errors.New("the store fails")

// fileNames names file i "f<i>".
func fileNames(i int) string { return fmt.Sprintf("f%d", i) }
