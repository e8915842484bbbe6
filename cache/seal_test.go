package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weightfs/sources"
)

// sealedFile is a source of one file, whose bytes can be made wrong under the right ID, its listing, and its bytes.
func sealedFile() (*fakeSource, *sources.Listing, []byte) {
	data := content0(5, 2<<20+9)
	src := newFake(fakeFile{path: "a.safetensors", data: data, sha: true})
	l := src.listing()
	src.files[0].id = sha256.Sum256(data)
	return src, l, data
}

// lie flips a bit of the source's byte at off.
func lie(src *fakeSource, data []byte, off int64) {
	wrong := bytes.Clone(data)
	wrong[off] ^= 1
	src.files[0].data = wrong
}

func sealOptions(t *testing.T) Options {
	o := diskOptions(t)
	o.Bad = time.Nanosecond
	return o
}

// readSealed reads [off, off+n) and fails the test if what comes is not the truth.
func readSealed(t *testing.T, f *Files, data []byte, off, n int64) error {
	t.Helper()
	p := make([]byte, n)
	err := f.ReadAt(ctxb(), "a.safetensors", p, off)
	if err == nil && !bytes.Equal(p, data[off:off+n]) {
		t.Error("wrong bytes reached a reader")
	}
	return err
}

// emptied is the cache opened again on its directory, of which only seals are left.
func emptied(t *testing.T, c *Cache, o Options) *Cache {
	t.Helper()
	closeCache(t, c)
	files, err := filepath.Glob(filepath.Join(o.Dir, "v1/*/*"))
	must(t, err)
	for _, name := range files {
		if filepath.Ext(name) != ".seal" {
			must(t, os.Remove(name))
		}
	}
	return newCache(t, o)
}

// TestSeal: after one pass over a file, wrong bytes under right headers are found in every part of it that is fetched, in this run and in
// later ones; when the source is right again so are reads.
func TestSeal(t *testing.T) {
	o := sealOptions(t)
	src, l, data := sealedFile()
	c := newCache(t, o)
	must(t, c.Release(src, l).Seal(ctxb(), 0))
	must(t, c.Release(src, l).Seal(ctxb(), 0))
	c = emptied(t, c, o)
	f := c.Release(src, l)

	lie(src, data, 300_000)
	isErr(t, readSealed(t, f, data, 299_000, 2000), sources.ErrCorrupt)
	isErr(t, readSealed(t, f, data, 0, int64(len(data))), sources.ErrCorrupt)
	must(t, readSealed(t, f, data, 1<<20, 1000))
	src.files[0].data = data
	must(t, readSealed(t, f, data, 0, int64(len(data))))
	written(t, c)
	if _, done, ok := f.Complete(0); ok {
		done()
		t.Error("a sealed file is lent to those who do not check it")
	}
}

// TestSealOnDisk: cells on disk with right checksums that are not the sealed ones are misses.
func TestSealOnDisk(t *testing.T) {
	good, planted := sealOptions(t), sealOptions(t)
	src, l, data := sealedFile()
	c := newCache(t, good)
	must(t, c.Release(src, l).Seal(ctxb(), 0))
	closeCache(t, c)
	lie(src, data, 5)
	c = newCache(t, planted)
	p := make([]byte, 1000)
	must(t, c.Release(src, l).ReadAt(ctxb(), "a.safetensors", p, 0))
	written(t, c)
	closeCache(t, c)

	seals, err := filepath.Glob(filepath.Join(good.Dir, "v1/*/*.seal"))
	if err != nil || len(seals) != 1 {
		t.Fatalf("%v, %v", seals, err)
	}
	text, err := os.ReadFile(seals[0])
	must(t, err)
	name, err := filepath.Rel(good.Dir, seals[0])
	must(t, err)
	must(t, os.WriteFile(filepath.Join(planted.Dir, name), text, 0o600))
	src.files[0].data = data
	src.take()
	c = newCache(t, planted)
	f := c.Release(src, l)
	must(t, readSealed(t, f, data, 0, 1000))
	if n := len(src.take()); n != 1 || c.Stats().BadCells != 1 {
		t.Errorf("%d requests, %d bad cells", n, c.Stats().BadCells)
	}
}

// TestSealHeader: the header of a sealed file comes from sealed cells, not from an object or a range of its own.
func TestSealHeader(t *testing.T) {
	o := sealOptions(t)
	data := append([]byte{8, 0, 0, 0, 0, 0, 0, 0}, content0(3, 300_000)...)
	src := newFake(fakeFile{path: "a.safetensors", data: data, sha: true})
	l := src.listing()
	src.files[0].id = sha256.Sum256(data)
	c := newCache(t, o)
	must(t, c.Release(src, l).Seal(ctxb(), 0))
	c = emptied(t, c, o)
	f := c.Release(src, l)
	lie(src, data, 9)
	_, err := f.Header(ctxb(), "a.safetensors", nil)
	isErr(t, err, sources.ErrCorrupt)
	src.files[0].data = data
	h, err := f.Header(ctxb(), "a.safetensors", nil)
	must(t, err)
	if !bytes.Equal(h, data[:16]) {
		t.Errorf("header %x", h)
	}
}

// TestSealRefused: a file that does not have its hash, one without a hash, and one that is read in place are not sealed; where seals are
// asked for they cannot be opened.
func TestSealRefused(t *testing.T) {
	o := sealOptions(t)
	src, l, data := sealedFile()
	lie(src, data, 77)
	c := newCache(t, o)
	isErr(t, c.Release(src, l).Seal(ctxb(), 0), sources.ErrCorrupt)
	for _, x := range []fakeFile{{path: "b", size: 10, named: true}, {path: "b", size: 10, local: true}} {
		other := newFake(x)
		if err := c.Release(other, other.listing()).Seal(ctxb(), 0); err == nil {
			t.Errorf("%+v is sealed", x)
		}
	}
	must(t, c.Close())

	o.Sealed = true
	src, l, data = sealedFile()
	c = newCache(t, o)
	isErr(t, c.Release(src, l).OpenAll(ctxb()), ErrUnsealed)
	isErr(t, readSealed(t, c.Release(src, l), data, 0, 10), ErrUnsealed)
	must(t, c.Close())
	o.Sealed = false
	c = newCache(t, o)
	must(t, c.Release(src, l).Seal(ctxb(), 0))
	must(t, c.Close())
	o.Sealed = true
	c = newCache(t, o)
	must(t, c.Release(src, l).OpenAll(context.Background()))
	must(t, readSealed(t, c.Release(src, l), data, 0, 10))
}

// TestSealFile: a seal of which any byte is another one, of another blob or size, is none.
func TestSealFile(t *testing.T) {
	key, size := sources.ID{1, 2, 3}, int64(3*cellSize+5)
	s := seal{{1}, {2}, {3}, {4}}
	p := s.encode(key, size)
	if got, ok := decodeSeal(p, key, size); !ok || len(got) != 4 || got[3] != s[3] {
		t.Errorf("%v, %v", got, ok)
	}
	for i := range p {
		p[i] ^= 1
		if _, ok := decodeSeal(p, key, size); ok {
			t.Errorf("byte %d may be anything", i)
		}
		p[i] ^= 1
	}
	for n := range p {
		if _, ok := decodeSeal(p[:n], key, size); ok {
			t.Errorf("%d of %d bytes are a seal", n, len(p))
		}
	}
	if _, ok := decodeSeal(p, sources.ID{9}, size); ok {
		t.Error("a seal of another blob")
	}
	if _, ok := decodeSeal(p, key, size+1); ok {
		t.Error("a seal of another size")
	}
}
