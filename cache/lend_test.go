package cache

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	if !f.Completes(0) {
		t.Error("what is complete may be evicted, and become complete again")
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

// TestLendChanged: a verified blob whose data file somebody changed is not lent until it was verified again. What was flipped is fetched anew;
// a copy of the directory, and a change of the mode, cost the verification only.
func TestLendChanged(t *testing.T) {
	const size = 3<<20 + 1
	for _, test := range []struct {
		name    string
		change  func(t *testing.T, name string)
		fetched bool
	}{
		{"flipped", func(t *testing.T, name string) { flipByte(t, name, 2<<20+5) }, true},
		{"flipped, times put back", func(t *testing.T, name string) {
			info, err := os.Stat(name)
			must(t, err)
			flipByte(t, name, size-1)
			must(t, os.Chtimes(name, info.ModTime(), info.ModTime()))
		}, true},
		{"mode", func(t *testing.T, name string) { must(t, os.Chmod(name, 0o400)); must(t, os.Chmod(name, 0o600)) }, false},
		{"copied", func(t *testing.T, name string) {
			p, err := os.ReadFile(name)
			must(t, err)
			must(t, os.Rename(name, name+".old"))
			must(t, os.WriteFile(name, p, 0o600))
			must(t, os.Remove(name+".old"))
		}, false},
	} {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, ", open ", open), func(t *testing.T) {
				src := newFake(fakeFile{path: "a", size: size, sha: true})
				o := diskOptions(t)
				c := newCache(t, o)
				f := c.Release(src, src.listing())
				lend := func() bool { _, done, ok := f.Lend(ctxb(), 0); finish(done); return ok }
				must(t, readBack(ctxb(), f, src, 0, 0, size))
				waitFor(t, lend)
				if !open {
					closeCache(t, c)
				}
				test.change(t, filesOf(t, o.Dir, ".data")[0])
				src.take()
				if !open {
					c = newCache(t, o)
					f = c.Release(src, src.listing())
				}
				if lend() {
					t.Fatal("lent as it was not verified")
				}
				waitFor(t, func() bool {
					forget(c) // what is read comes from disk
					must(t, readBack(ctxb(), f, src, 0, 0, size))
					return lend()
				})
				fd, done, ok := f.Lend(ctxb(), 0)
				got := make([]byte, size)
				if _, err := unix.Pread(int(fd), got, 0); !ok || err != nil || !bytes.Equal(got, src.files[0].bytes(0, size)) {
					t.Errorf("the lent file has other bytes: %v, %v", ok, err)
				}
				finish(done)
				if n := len(src.take()); (n > 0) != test.fetched {
					t.Errorf("%d requests", n)
				}
				closeCache(t, c)
			})
		}
	}
}

// TestLendTells: who wrote to a file while it was lent is not kept from its readers, but told in the log and counted; one whose directory was
// removed meanwhile is as right as before.
func TestLendTells(t *testing.T) {
	for _, flip := range []bool{true, false} {
		var log bytes.Buffer
		src := newFake(fakeFile{path: "a", size: 1 << 20, sha: true})
		o := diskOptions(t)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		c := newCache(t, o)
		f := c.Release(src, src.listing())
		must(t, readBack(ctxb(), f, src, 0, 0, 1<<20))
		var done func()
		waitFor(t, func() (ok bool) { _, done, ok = f.Lend(ctxb(), 0); return ok })
		if flip {
			flipByte(t, filesOf(t, o.Dir, ".data")[0], 1000)
		} else {
			must(t, os.RemoveAll(filepath.Join(o.Dir, version)))
		}
		done()
		if told := strings.Contains(log.String(), "written to while the kernel read it"); told != flip || c.Stats().CorruptBlobs > 0 != flip {
			t.Errorf("flipped %v, told %v: %s", flip, told, log.String())
		}
		closeCache(t, c)
	}
}

// flipByte flips a bit in place.
func flipByte(t *testing.T, name string, at int64) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	must(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], at)
	must(t, err)
}
