package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weightfs/sources"
)

// TestHeader fetches headers at their exact length with two requests, and never again.
func TestHeader(t *testing.T) {
	head := append(binary.LittleEndian.AppendUint64(nil, 300_000), content0(9, 300_000)...)
	src := newFake(fakeFile{path: "a", data: append(head, make([]byte, 1<<20)...), named: true}, fakeFile{path: "b", data: head, local: true})
	o := diskOptions(t)
	c := newCache(t, o)
	for _, path := range []string{"a", "b"} {
		got, err := c.Release(src, src.listing()).Header(ctxb(), path, nil)
		must(t, err)
		if !bytes.Equal(got, head) {
			t.Errorf("%s: wrong header", path)
		}
	}
	wantRequests(t, src, request{"a", 0, 8}, request{"a", 8, 300_008})
	c = reopened(t, c, o)
	got, err := c.Release(src, src.listing()).Header(ctxb(), "a", make([]byte, 1, 400_000))
	must(t, err)
	if !bytes.Equal(got, head) || cap(got) != 400_000 {
		t.Errorf("wrong header from disk, or in other memory: %d bytes of %d", len(got), cap(got))
	}
	if n := c.Stats().BytesDisk; n != int64(len(head)) {
		t.Errorf("%d bytes from disk", n)
	}
	wantRequests(t, src)
	for _, p := range filesOf(t, o.Dir, ".data") {
		flip(".data", 200_000, 1)(t, p, "")
	}
	c = reopened(t, c, o)
	got, err = c.Release(src, src.listing()).Header(ctxb(), "a", nil)
	must(t, err)
	if !bytes.Equal(got, head) {
		t.Error("wrong header after a flip")
	}
	wantRequests(t, src, request{"a", 0, 8}, request{"a", 8, 300_008})
}

// TestBadHeader refuses lengths before it allocates.
func TestBadHeader(t *testing.T) {
	for name, data := range map[string][]byte{
		"short":  make([]byte, 7),
		"beyond": binary.LittleEndian.AppendUint64(nil, 1),
		"huge":   append(binary.LittleEndian.AppendUint64(nil, 1<<63), make([]byte, 100)...),
	} {
		src := newFake(fakeFile{path: "a", data: data})
		c := newCache(t, Options{})
		if _, err := c.Release(src, src.listing()).Header(ctxb(), "a", nil); err == nil || !strings.Contains(err.Error(), "a") {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(src.take()); n > 1 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// TestReadFile checks small files against the listing's hash; one that is wrong is fetched once more.
func TestReadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := content0(3, 5000)
		src := newFake(fakeFile{path: "config.json", data: data, sha: true})
		l := src.listing()
		src.files[0].id = sha256.Sum256(data)
		wrong := append([]byte{data[0] ^ 1}, data[1:]...)
		src.files[0].data = wrong
		c := newCache(t, Options{})
		f := c.Release(src, l)
		_, err := f.ReadFile(ctxb(), "config.json", 1<<20)
		isErr(t, err, sources.ErrCorrupt)
		if n := len(src.take()); n != 2 {
			t.Errorf("%d requests", n)
		}
		src.files[0].data = data
		got, err := f.ReadFile(ctxb(), "config.json", 1<<20)
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Error("wrong bytes")
		}
		_, err = f.ReadFile(ctxb(), "config.json", 4999)
		if err == nil {
			t.Error("the limit is not kept")
		}
		_, err = f.ReadFile(ctxb(), "nowhere", 10)
		isErr(t, err, sources.ErrNotFound)
	})
}

// TestSharedContent has two files with one ID: what one fetched is there for the other.
func TestSharedContent(t *testing.T) {
	id := sources.ID{1}
	src := newFake(fakeFile{path: "a", size: 1 << 20, seed: 1, id: id}, fakeFile{path: "b", size: 1 << 20, seed: 1, id: id})
	c := newCache(t, diskOptions(t))
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 1<<20))
	must(t, readBack(ctxb(), f, src, 1, 0, 1<<20))
	wantRequests(t, src, request{"a", 0, 1 << 20})
}

// TestOpenFails remembers for a moment that a file could not be opened.
func TestOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFake(fakeFile{path: "a", size: 1000})
		l := src.listing()
		l.Files = append(l.Files, sources.Entry{Path: "b", Size: 10})
		c := newCache(t, Options{})
		f := c.Release(src, l)
		p := make([]byte, 10)
		isErr(t, f.ReadAt(context.Background(), "b", p, 0), sources.ErrNotFound)
		src.files = append(src.files, fakeFile{path: "b", size: 10})
		isErr(t, f.ReadAt(context.Background(), "b", p, 0), sources.ErrNotFound)
		time.Sleep(4 * time.Second)
		must(t, f.ReadAt(context.Background(), "b", p, 0))
		l.Files[0].Size = 999
		isErr(t, f.ReadAt(context.Background(), "a", p, 0), sources.ErrChanged)
	})
}
