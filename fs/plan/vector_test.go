package plan

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// lender is a store that lends parts of what is read, and spoils the destination there.
type lender struct {
	memStore
	t     *rapid.T
	lent  int
	given int // holds that were given back
	holds int
}

func (s *lender) Hold(ctx context.Context, reads []Read, ahead []Span) (func(), error) {
	s.holds++
	if err := s.Gather(ctx, reads, ahead); err != nil {
		return func() { s.given++ }, err
	}
	for i := range reads {
		r := &reads[i]
		if !r.Lend {
			continue
		}
		for at := int64(0); at < r.Span.Len(); {
			at += rapid.Int64Range(0, 3000).Draw(s.t, "skip")
			n := min(rapid.Int64Range(1, 5000).Draw(s.t, "lent"), r.Span.Len()-at)
			if n <= 0 {
				break
			}
			r.Held = append(r.Held, Held{At: at, Bytes: bytes.Clone(r.Dst[at : at+n])})
			clear(r.Dst[at : at+n])
			s.lent++
			at += n
		}
	}
	return func() { s.given++ }, nil
}

// TestVectors: a read by vector is the bytes of a read, whatever the store lends, and everything is given back.
func TestVectors(t *testing.T) {
	files := randomFiles(drawFiles, drawFileSize)
	lent := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t, 1)
		want := write(p, files)
		s := &lender{memStore: memStore{files: files, max: rapid.SampledFrom([]int64{0, 1000, 1 << 20}).Draw(t, "max")}, t: t}
		r := NewReader(s, 100<<10)
		for range rapid.IntRange(1, 5).Draw(t, "reads") {
			off := rapid.Int64Range(0, p.Size+10).Draw(t, "off")
			dst := make([]byte, rapid.Int64Range(0, p.Size+10).Draw(t, "len"))
			n, eof := clamp(p.Size, off, len(dst))
			v, err := r.ReadVector(context.Background(), p, dst, off)
			if err != eof {
				t.Fatalf("read [%d, +%d) of %d: %v", off, len(dst), p.Size, err)
			}
			if got := bytes.Join(v.Parts, nil); v.Len() != len(got) || n > 0 && !bytes.Equal(got, want[off:off+n]) || int64(len(got)) != n {
				t.Fatalf("read [%d, +%d) of %d: %d bytes, or wrong ones", off, len(dst), p.Size, len(got))
			}
			v.Release()
		}
		if s.given != s.holds {
			t.Fatalf("%d of %d holds were given back", s.given, s.holds)
		}
		lent += s.lent
	})
	if lent == 0 {
		t.Error("nothing was ever lent")
	}
}

// TestVectorFails: an error comes with nothing to release.
func TestVectorFails(t *testing.T) {
	s := &lender{memStore: memStore{files: randomFiles(1, 1000), fail: errors.New("no luck")}}
	v, err := NewReader(s, 0).ReadVector(context.Background(), New(Copy{Span{0, 0, 1000}}), make([]byte, 100), 0)
	if err == nil || err == io.EOF || v.Len() != 0 || s.given != s.holds || s.holds != 1 {
		t.Errorf("%v, %d bytes, %d of %d given back", err, v.Len(), s.given, s.holds)
	}
}
