package cache

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"weightfs/fs/plan"
)

// TestHold: what is lent is the file's bytes, from memory or from disk, pinned until it is given back; reads that do not permit it, and those
// too large for one reservation, are filled as ever.
func TestHold(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 9<<20 + 77, named: true})
	o := diskOptions(t)
	o.Memory = 4 << 20
	c := newCache(t, o)
	defer closeCache(t, c)
	f := c.Release(src, src.listing())
	rnd, lent := rand.New(rand.NewPCG(1, 2)), 0
	for range 200 {
		n := rnd.Int64N(1 << 20)
		if rnd.IntN(20) == 0 {
			n = 3 << 20
		}
		start := rnd.Int64N(9<<20 + 77 - n)
		reads := []plan.Read{
			{Span: span(0, start, start+n), Dst: make([]byte, n), Lend: true},
			{Span: span(0, start/2, start/2+1000), Dst: make([]byte, 1000)},
		}
		release, err := f.Hold(ctxb(), reads, nil)
		must(t, err)
		if len(reads[1].Held) > 0 {
			t.Fatal("lent to a read that does not permit it")
		}
		lent += len(reads[0].Held)
		pinned := c.Stats().Pinned
		if len(reads[0].Held) > 0 && pinned == 0 {
			t.Error("what is lent is not pinned")
		}
		for _, h := range reads[0].Held {
			copy(reads[0].Dst[h.At:], h.Bytes)
		}
		release()
		for _, r := range reads {
			if !bytes.Equal(r.Dst, src.files[0].bytes(r.Span.Start, r.Span.Len())) {
				t.Fatalf("%v has wrong bytes", r.Span)
			}
		}
	}
	if lent == 0 {
		t.Error("nothing was ever lent")
	}
	written(t, c) // nothing is pinned
}
