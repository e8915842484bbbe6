package cache

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPrune drops the older half.
func TestPrune(t *testing.T) {
	now := &clock{t: time.Unix(1e9, 0)}
	src := newFake(fakeFile{path: "a", size: 4 << 20, named: true}, fakeFile{path: "b", size: 4 << 20, named: true})
	o := diskOptions(t)
	o.Now = now.Now
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	for i := range 2 {
		must(t, readBack(ctxb(), f, src, i, 0, 4<<20))
		c = reopened(t, c, o)
		f = c.Release(src, src.listing())
		now.add(time.Hour)
	}
	freed, err := c.Prune(4 << 20)
	must(t, err)
	if freed < 4<<20 || c.Stats().DiskUsed > 4<<20 {
		t.Errorf("freed %d, %d left", freed, c.Stats().DiskUsed)
	}
	src.take()
	must(t, readBack(ctxb(), f, src, 1, 0, 4<<20))
	wantRequests(t, src)
	must(t, readBack(ctxb(), f, src, 0, 0, 4<<20))
	second := newCache(t, o)
	_, err = second.Prune(0)
	isErr(t, err, ErrInUse)
	_, err = second.CheckDisk(ctxb(), nil)
	isErr(t, err, ErrInUse)
	if _, err := newCache(t, Options{}).Prune(0); err == nil {
		t.Error("pruned no directory")
	}
}

// TestPruneAll leaves the lock and empty directories, and nothing on the books, of files of odd sizes, parts of files, headers, maps that cannot
// be read, and what processes left that were cut off.
func TestPruneAll(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 300_001, named: true}, fakeFile{path: "b", size: 1, named: true}, fakeFile{path: "c", size: 4<<20 + 77, sha: true},
		fakeFile{path: "d", size: 5000, named: true})
	o := diskOptions(t)
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 300_001))
	must(t, readBack(ctxb(), f, src, 1, 0, 1))
	must(t, readBack(ctxb(), f, src, 2, 3<<20, 4<<20+77))
	must(t, readBack(ctxb(), f, src, 3, 0, 5000))
	closeCache(t, c)
	maps := filesOf(t, o.Dir, ".map")
	must(t, os.WriteFile(maps[0], []byte("no map"), 0o600))
	must(t, os.Remove(strings.TrimSuffix(maps[1], ".map")+".data"))
	must(t, os.WriteFile(maps[1]+".new", []byte("cut off"), 0o600))
	c = newCache(t, o)
	if _, err := c.Prune(0); err != nil || c.Stats().DiskUsed != 0 {
		t.Errorf("%d bytes are left on the books, %v", c.Stats().DiskUsed, err)
	}
	if left := filesOf(t, filepath.Join(o.Dir, version), ""); slices.ContainsFunc(left, isFile) {
		t.Errorf("left: %q", left)
	}
	closeCache(t, c)
}

func isFile(name string) bool {
	info, err := os.Lstat(name)
	return err != nil || !info.IsDir()
}

// TestCheckDisk finds flipped bits, and a blob whose checksums are right but whose hash is not.
func TestCheckDisk(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 4<<20 + 1, named: true}, fakeFile{path: "b", size: 1 << 20, sha: true})
	o := diskOptions(t)
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 3<<20))
	must(t, readBack(ctxb(), f, src, 1, 0, 1<<20))
	waitFor(t, func() bool { _, done, ok := f.Complete(1); finish(done); return ok })
	written(t, c)
	var read int64
	got, err := c.CheckDisk(ctxb(), func(n int64) { read += n })
	must(t, err)
	if want := (DiskCheck{Blobs: 2, Cells: 32}); got != want || read != 4<<20 {
		t.Errorf("%+v after %d bytes", got, read)
	}
	closeCache(t, c)
	for _, p := range filesOf(t, o.Dir, ".data") {
		if info, err := os.Stat(p); err == nil && info.Size() > 1<<20 {
			flip(".data", 2<<20+5, 0)(t, p, "")
		}
	}
	c = newCache(t, o)
	got, err = c.CheckDisk(ctxb(), func(int64) {})
	must(t, err)
	if want := (DiskCheck{Blobs: 2, Cells: 32, Bad: 1}); got != want {
		t.Errorf("after a flip %+v", got)
	}
	closeCache(t, c)
	c = newCache(t, o)
	if got, err = c.CheckDisk(ctxb(), func(int64) {}); err != nil || got != (DiskCheck{Blobs: 2, Cells: 31}) {
		t.Errorf("what was dropped is found again: %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(ctxb())
	cancel()
	_, err = c.CheckDisk(ctx, func(int64) {})
	isErr(t, err, context.Canceled)
}

// TestCheckDiskVerifies lets a check find a blob that is complete, but was touched since it was verified: it is verified again then and there.
func TestCheckDiskVerifies(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 3<<20 + 1, sha: true})
	o := diskOptions(t)
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 3<<20+1))
	written(t, c)
	closeCache(t, c)
	must(t, os.Chtimes(filesOf(t, o.Dir, ".data")[0], time.Unix(1, 0), time.Unix(1, 0)))
	c = newCache(t, o)
	got, err := c.CheckDisk(ctxb(), func(int64) {})
	must(t, err)
	if want := (DiskCheck{Blobs: 1, Cells: 25}); got != want {
		t.Errorf("%+v", got)
	}
	closeCache(t, c)
	b := newCache(t, o).disk.open(sha256.Sum256(src.files[0].bytes(0, 3<<20+1)), 3<<20+1)[0]
	_, done, ok := b.lend()
	if finish(done); !ok {
		t.Error("it is not verified")
	}
}

// TestCheckDiskWrong: a blob that was taken for verified, has every checksum right and is not what it is named after, is dropped.
func TestCheckDiskWrong(t *testing.T) {
	data := content0(7, 2<<20+3)
	o := diskOptions(t)
	c := newCache(t, o)
	b := c.disk.own.open(sha256.Sum256([]byte("something else")), int64(len(data)))
	for first := 0; first < len(data); first += pieceCells << cellLog2 {
		b.write(int64(first)>>cellLog2, cellsIn(data[first:min(first+pieceCells<<cellLog2, len(data))]), buffered)
	}
	state, err := b.state()
	must(t, err)
	b.verified(state)
	c.disk.own.release(b)
	for _, want := range []DiskCheck{{Blobs: 1, Cells: 17, Wrong: 1}, {}} {
		closeCache(t, c)
		c = newCache(t, o)
		if got, err := c.CheckDisk(ctxb(), func(int64) {}); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

// TestClockJumps moves the clock of the cache about, years at a time: bytes stay right and the directory under its size.
func TestClockJumps(t *testing.T) {
	now := &clock{t: time.Unix(1e9, 0)}
	src := newFake(fakeFile{path: "a", size: 12 << 20, named: true})
	o := diskOptions(t)
	o.Size, o.Memory, o.Now = 6<<20, 2<<20, now.Now
	c := newCache(t, o)
	for i, jump := range []time.Duration{1e17, -2e17, time.Second, 3e17, -1e17} {
		now.add(jump)
		f := c.Release(src, src.listing())
		must(t, readBack(ctxb(), f, src, 0, 0, 12<<20))
		must(t, f.Gather(ctxb(), nil, nil))
		if s := c.Stats(); s.DiskUsed > 6<<20 {
			t.Errorf("jump %d: %d bytes on disk", i, s.DiskUsed)
		}
		c = reopened(t, c, o)
	}
}

// TestOpenShards opens the 213 shards of a terabyte: less than a megabyte of heap.
func TestOpenShards(t *testing.T) {
	var files []fakeFile
	for i := range 213 {
		files = append(files, fakeFile{path: fmt.Sprintf("model-%05d-of-00213.safetensors", i), size: 5 << 30, named: true})
	}
	src := newFake(files...)
	c := newCache(t, diskOptions(t))
	l := src.listing()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := c.Release(src, l)
	for i := range files {
		if _, err := f.files[i].get(ctxb()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	runtime.KeepAlive(f)
}

// TestFewDescriptors reads a release of 213 files, all of which are on disk in part, with 64 descriptors: nothing is wrong or lost, what cannot be kept on
// disk is fetched, and a third of the descriptors is left to connections.
func TestFewDescriptors(t *testing.T) {
	child(t, "TestFewDescriptors", func(dir string) error {
		var files []fakeFile
		for i := range 213 {
			files = append(files, fakeFile{path: fmt.Sprintf("f%03d", i), size: 3 * cellSize, named: true})
		}
		readAll := func(from, to int64, during func() error) error {
			src := newFake(files...)
			c, err := New(Options{Dir: dir, Size: 1 << 30, Memory: 8 << 20})
			if err != nil {
				return err
			}
			f := c.Release(src, src.listing())
			for i := range files {
				if err := readBack(ctxb(), f, src, i, from, to-from); err != nil {
					return err
				}
			}
			return errors.Join(during(), c.Close())
		}
		nothing := func() error { return nil }
		if err := readAll(0, 10, nothing); err != nil { // with enough of them: a cell of every file is kept
			return err
		}
		kept := blobFiles(dir)
		if err := limitDescriptors(64); err != nil {
			return err
		}
		for range 2 {
			if err := readAll(cellSize, 2*cellSize, freeDescriptors(20)); err != nil { // others are for the network
				return err
			}
		}
		if now := blobFiles(dir); len(kept) != 2*len(files) || !slices.Equal(now, kept) {
			return fmt.Errorf("%d files were kept, now %d", len(kept), len(now))
		}
		return nil
	})
}

// blobFiles is the names of data and map files.
func blobFiles(dir string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, version, "*", "*"))
	return names
}

// freeDescriptors fails if fewer than n descriptors are free.
func freeDescriptors(n int) func() error {
	return func() error {
		for range n {
			f, err := os.Open(os.DevNull)
			if err != nil {
				return err
			}
			defer f.Close()
		}
		return nil
	}
}

func TestMostBlobs(t *testing.T) {
	for _, c := range []struct {
		descriptors int64
		two         bool
		want        int64
	}{{1 << 20, false, (1<<20 - 128) / 3}, {1024, false, 298}, {1024, true, 179}, {256, false, 42}, {64, false, 10}, {64, true, 6}, {4, false, 1}, {0, true, 1}} {
		if got := mostBlobs(c.descriptors, c.two); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
