package plan

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

const (
	drawFiles    = 3
	drawFileSize = 96 << 10
)

// drawSpan is a span of n bytes of one of the files.
func drawSpan(t *rapid.T, n int64) Span {
	start := rapid.Int64Range(0, drawFileSize-n).Draw(t, "start")
	return Span{rapid.IntRange(0, drawFiles-1).Draw(t, "file"), start, start + n}
}

func drawLiteral(t *rapid.T) Piece {
	data := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "literal")
	l := Literal{Name: "some", Size: int64(len(data))}
	if rapid.Bool().Draw(t, "rendered") {
		l.Render = func() []byte { return data }
	} else {
		l.Bytes = append([]byte{}, data...)
	}
	return l
}

func drawRows(t *rapid.T) Piece {
	row := rapid.Int64Range(1, 2000).Draw(t, "row")
	count := rapid.Int64Range(0, 20).Draw(t, "count")
	stride := row * rapid.Int64Range(1, 12).Draw(t, "times")
	if rapid.IntRange(0, 3).Draw(t, "odd") == 0 {
		stride = row + rapid.Int64Range(0, 700).Draw(t, "gap")
	}
	for count > 0 && (count-1)*stride+row > drawFileSize {
		count--
	}
	r := Rows{Stride: stride, Count: count}
	r.First = drawSpan(t, max(0, (count-1)*stride)+row)
	r.First.End = r.First.Start + row
	if count > 1 && rapid.Bool().Draw(t, "backwards") {
		r.First = Span{r.First.File, r.First.Start + (count-1)*stride, r.First.End + (count-1)*stride}
		r.Stride = -stride
	}
	return r
}

func drawDecode(t *rapid.T) Piece {
	c := sumCodec{rows: rapid.Int64Range(1, 40).Draw(t, "rows"), row: rapid.Int64Range(1, 3000).Draw(t, "row")}
	c.tile = c.row
	if rapid.Bool().Draw(t, "packed") {
		c.tile = rapid.Int64Range(keptTile+1, 2*keptTile).Draw(t, "tile")
	}
	lens := c.InputLens()
	d := Decode{Codec: c, Inputs: []Span{drawSpan(t, lens[0]), drawSpan(t, lens[1])}}
	d.Off = rapid.Int64Range(0, c.Len()-1).Draw(t, "off")
	d.Size = rapid.Int64Range(0, c.Len()-d.Off).Draw(t, "size")
	return d
}

func drawRepeat(t *rapid.T) Piece {
	template := drawPlan(t, 0)
	if template.Size == 0 {
		return Zero{}
	}
	// Copy i reads its copies i bytes further on, so that a mixed-up index shows.
	return Repeat{Name: "r", N: rapid.Int64Range(0, 5).Draw(t, "n"), Stride: template.Size, At: func(i int64) *Plan {
		pieces := make([]Piece, len(template.Pieces))
		for k, x := range template.Pieces {
			if c, ok := x.(Copy); ok && c.Span.End+i <= drawFileSize {
				x = Copy{c.Span.Sub(i, c.Span.Len())}
			}
			pieces[k] = x
		}
		return New(pieces...)
	}}
}

func drawPiece(t *rapid.T, depth int) Piece {
	switch rapid.IntRange(0, 5-1+depth).Draw(t, "kind") {
	case 0:
		return drawLiteral(t)
	case 1:
		return Zero{rapid.Int64Range(0, 5000).Draw(t, "zeros")}
	case 2:
		return Copy{drawSpan(t, rapid.Int64Range(0, 40<<10).Draw(t, "copied"))}
	case 3:
		return drawRows(t)
	case 4:
		return drawDecode(t)
	}
	return drawRepeat(t)
}

func drawPlan(t *rapid.T, depth int) *Plan {
	pieces := make([]Piece, rapid.IntRange(0, 6).Draw(t, "pieces"))
	for i := range pieces {
		pieces[i] = drawPiece(t, depth)
	}
	return New(pieces...)
}

// TestReadsEqualWholeFile: any reads, in any order and split, through a store with any limit, are the bytes of the file as
// the dumb writer makes it.
func TestReadsEqualWholeFile(t *testing.T) {
	files := randomFiles(drawFiles, drawFileSize)
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t, 1)
		want := write(p, files)
		if int64(len(want)) != p.Size {
			t.Fatalf("the plan has %d bytes, the file %d", p.Size, len(want))
		}
		r := NewReader(&memStore{files: files, max: rapid.SampledFrom([]int64{0, 1, 1000, 1 << 20}).Draw(t, "max")}, 100<<10)
		for range rapid.IntRange(1, 8).Draw(t, "reads") {
			off := rapid.Int64Range(0, p.Size+10).Draw(t, "off")
			dst := make([]byte, rapid.Int64Range(0, p.Size+10).Draw(t, "len"))
			checkRead(t, r, p, want, dst, off)
		}
		checkRead(t, r, p, want, make([]byte, p.Size), 0)
	})
}

// checkRead compares one read with a bytes.Reader over the same content.
func checkRead(t interface{ Fatalf(string, ...any) }, r *Reader, p *Plan, want, dst []byte, off int64) {
	ref := make([]byte, len(dst))
	wantN, wantErr := bytes.NewReader(want).ReadAt(ref, off)
	if len(dst) == 0 && off >= 0 {
		wantN, wantErr = 0, nil // io.ReaderAt leaves both answers open
	}
	n, err := r.ReadAt(context.Background(), p, dst, off)
	if n != wantN || (err == io.EOF) != (wantErr == io.EOF) || (err == nil) != (wantErr == nil) {
		t.Fatalf("read [%d, +%d) of %d: %d, %v; want %d, %v", off, len(dst), p.Size, n, err, wantN, wantErr)
	}
	if !bytes.Equal(dst[:n], ref[:n]) {
		t.Fatalf("read [%d, +%d) of %d has wrong bytes", off, len(dst), p.Size)
	}
}

// TestUnitsTileTheFile: units follow each other without a gap, do not depend on the byte that is asked for, and their spans together
// are the spans of the file.
func TestUnitsTileTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t, 1)
		p.Block = rapid.Bool().Draw(t, "block")
		var at int64
		var spans []Span
		for u := range p.Units() {
			if u.Start != at || u.End <= u.Start {
				t.Fatalf("unit [%d, %d) after %d", u.Start, u.End, at)
			}
			off := rapid.Int64Range(u.Start, u.End-1).Draw(t, "off")
			if s, e, w := p.Unit(off); s != u.Start || e != u.End || w != u.Whole {
				t.Fatalf("unit of %d is [%d, %d), not [%d, %d)", off, s, e, u.Start, u.End)
			}
			spans = append(spans, p.Spans(u.Start, u.End-u.Start)...)
			at = u.End
		}
		if at != p.Size {
			t.Fatalf("units end at %d of %d", at, p.Size)
		}
		if p.Size > 0 && !equalSpans(join(spans, 0), p.Spans(0, p.Size)) {
			t.Fatalf("units have spans %v, the file %v", join(spans, 0), p.Spans(0, p.Size))
		}
	})
}

func equalSpans(a, b []Span) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// FuzzReadOffset: offsets and lengths of every kind, against a bytes.Reader.
func FuzzReadOffset(f *testing.F) {
	files := randomFiles(1, 1000)
	p := New(Literal{Name: "head", Size: 3, Bytes: []byte("abc")}, Copy{Span{0, 10, 900}}, Zero{7})
	want := write(p, files)
	for _, off := range []int64{0, 1, 2, 3, 892, 893, 899, 900, 901, -1, -1 << 63, 1<<63 - 1} {
		f.Add(off, uint16(0))
		f.Add(off, uint16(1))
		f.Add(off, uint16(900))
		f.Add(off, uint16(65535))
	}
	f.Fuzz(func(t *testing.T, off int64, n uint16) {
		checkRead(t, NewReader(&memStore{files: files}, 0), p, want, make([]byte, n), off)
	})
}

// TestFailureIsWhole: a failing store, a failing codec and a wrong literal give an error and 0 bytes.
func TestFailureIsWhole(t *testing.T) {
	files := randomFiles(1, 1<<20)
	bad := Literal{Name: "bad", Size: 10, Render: func() []byte { return make([]byte, 9) }}
	decode := Decode{Codec: failCodec{sumCodec{4, 100, 100}}, Inputs: []Span{{0, 0, 200}, {0, 0, 4}}, Size: 400}
	for name, test := range map[string]struct {
		p    *Plan
		fail error
		want error
	}{
		"store":   {New(Zero{5}, Copy{Span{0, 0, 100}}), errStore, errStore},
		"codec":   {New(decode), nil, ErrBadInput},
		"literal": {New(Zero{5}, bad), nil, nil},
	} {
		r := NewReader(&memStore{files: files, fail: test.fail}, 0)
		n, err := r.ReadAt(t.Context(), test.p, make([]byte, 8), 0)
		if n != 0 || err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

type failCodec struct{ sumCodec }

func (failCodec) Decode([]byte, int64, [][]byte) error { return ErrBadInput }

// TestAheadFailsNobody: a read is not failed by what was to be fetched ahead of it.
func TestAheadFailsNobody(t *testing.T) {
	p := New(Copy{Span{0, 0, 100 * mib}})
	r := NewReader(aheadFails{}, 0)
	for off := int64(0); off < 20*mib; off += mib {
		if n, err := r.ReadAt(t.Context(), p, make([]byte, mib), off); int64(n) != mib || err != nil {
			t.Fatalf("read at %d: %d, %v", off, n, err)
		}
	}
}

// aheadFails is a store whose gathers without reads fail.
type aheadFails struct{}

func (aheadFails) MaxGather() int64 { return 0 }

func (aheadFails) Gather(_ context.Context, reads []Read, _ []Span) error {
	if len(reads) == 0 {
		return errStore
	}
	return nil
}

// TestCancelledRead: a context that has ended ends a read with its cause.
func TestCancelledRead(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStore)
	r := NewReader(&memStore{files: randomFiles(1, 100)}, 0)
	if n, err := r.ReadAt(ctx, New(Copy{Span{0, 0, 100}}), make([]byte, 10), 0); n != 0 || !errors.Is(err, errStore) {
		t.Errorf("%d, %v", n, err)
	}
}

// TestParallelReads: many goroutines over one reader, with tiles that are shared and evicted.
func TestParallelReads(t *testing.T) {
	files := randomFiles(1, 1<<20)
	c := sumCodec{rows: 100, row: 10000, tile: 100_000}
	p := New(Decode{Codec: c, Inputs: []Span{{0, 0, 500_000}, {0, 500, 600}}, Size: c.Len()}, Copy{Span{0, 77, 9999}})
	want := write(p, files)
	r := NewReader(&memStore{files: files, max: 70_000}, 150_000)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			dst := make([]byte, 33_333)
			for off := int64(g * 1000); off < p.Size; off += 30_000 {
				if n, err := r.ReadAt(context.Background(), p, dst, off); err != nil && err != io.EOF || !bytes.Equal(dst[:n], want[off:off+int64(n)]) {
					t.Errorf("read at %d: %d, %v", off, n, err)
				}
			}
		})
	}
	wg.Wait()
	if kept := r.Kept(); kept > 150_000 {
		t.Errorf("%d bytes are kept, at most 150000 are allowed", kept)
	}
}
