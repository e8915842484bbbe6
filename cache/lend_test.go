package cache

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestLend: a blob is lent once it is complete and verified, also by a later process that has not read it; one without a SHA-256 never is. It
// has the bytes of the file.
func TestLend(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 3<<20 + 1, sha: true}, fakeFile{path: "b", size: 1 << 20, named: true})
	o := diskOptions(t)
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	if !f.Completes(0) || f.Completes(1) {
		t.Error("what may become complete is the file with a hash")
	}
	lend := func(i int) bool { _, done, ok := f.Lend(ctxb(), i); finish(done); return ok }
	must(t, readBack(ctxb(), f, src, 0, 0, 2<<20))
	must(t, readBack(ctxb(), f, src, 1, 0, 1<<20))
	written(t, c)
	if lend(0) || lend(1) || !f.Completes(0) {
		t.Error("lent before it is complete, or without a hash")
	}
	must(t, readBack(ctxb(), f, src, 0, 0, 3<<20+1))
	waitFor(t, func() bool { return lend(0) })
	if f.Completes(0) {
		t.Error("it is complete")
	}
	closeCache(t, c)

	c = newCache(t, o)
	f = c.Release(src, src.listing())
	fd, done, ok := f.Lend(ctxb(), 0)
	if !ok {
		t.Fatal("not lent by the second process")
	}
	got := make([]byte, 3<<20+1)
	if n, err := unix.Pread(int(fd), got, 0); n != len(got) || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if string(got) != string(src.files[0].bytes(0, 3<<20+1)) {
		t.Error("the lent file has other bytes")
	}
	if _, err := c.Prune(0); err != nil || !lend(0) {
		t.Errorf("pruned while it is lent: %v", err)
	}
	done()
	if _, err := c.Prune(0); err != nil || lend(0) {
		t.Errorf("not pruned after it was given back: %v", err)
	}
	closeCache(t, c)
}
