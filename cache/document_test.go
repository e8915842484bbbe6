package cache

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"weightfs/sources"
)

// TestDocuments: what is stored is there in the next run, unless it is longer than asked for, and without a disk there is nothing.
func TestDocuments(t *testing.T) {
	dir := t.TempDir()
	key, doc := sources.ID{1}, bytes.Repeat([]byte("listing "), 40_000)
	for run := range 2 {
		c, err := New(Options{Dir: dir, Size: 1 << 30, Memory: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.LoadDocument(key, 1<<20); run == 1 != bytes.Equal(got, doc) {
			t.Errorf("run %d: %d bytes", run, len(got))
		}
		if c.StoreDocument(key, doc); c.LoadDocument(key, 1000) != nil {
			t.Error("a document longer than the limit")
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if c.StoreDocument(key, doc); c.LoadDocument(key, 1<<20) != nil {
			t.Error("a closed cache gives a document")
		}
	}
	c, err := New(Options{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.StoreDocument(key, doc); c.LoadDocument(key, 1<<20) != nil {
		t.Error("a cache without a disk gives a document")
	}
}

// TestNotes: the last note of a key is there in the next run, also after everything was pruned; a damaged or foreign one is none.
func TestNotes(t *testing.T) {
	dir := t.TempDir()
	key, other := sources.ID{1}, sources.ID{2}
	open := func() *Cache { return newCache(t, Options{Dir: dir, Size: 1 << 30, Memory: 64 << 20}) }
	load := func(c *Cache, want string) {
		t.Helper()
		if got := c.LoadNote(key, 10); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c := open()
	load(c, "")
	c.StoreNote(key, []byte("one"))
	c.StoreNote(key, []byte("two"))
	load(c, "two")
	second := open() // another process reads the directory, and keeps no note that outlives it
	load(second, "two")
	second.StoreNote(key, []byte("three"))
	load(second, "three")
	must(t, second.Close())
	if _, err := c.Prune(0); err != nil {
		t.Fatal(err)
	}
	must(t, c.Close())
	c.StoreNote(key, []byte("closed"))
	c = open()
	load(c, "two")
	c.StoreNote(key, []byte("longer than ten"))
	load(c, "")
	c.StoreNote(key, []byte("four"))
	must(t, c.Close())

	name := func(key sources.ID) string {
		h := hex.EncodeToString(key[:])
		return filepath.Join(dir, "v1", h[:2], h+".note")
	}
	whole, err := os.ReadFile(name(key))
	if err != nil {
		t.Fatal(err)
	}
	c = open()
	load(c, "four")
	for i := range whole {
		bad := bytes.Clone(whole)
		bad[i] ^= 1
		must(t, os.WriteFile(name(key), bad, 0o600))
		load(c, "")
		must(t, os.WriteFile(name(key), whole[:i], 0o600))
		load(c, "")
	}
	must(t, os.MkdirAll(filepath.Dir(name(other)), 0o700))
	must(t, os.WriteFile(name(other), whole, 0o600))
	if got := c.LoadNote(other, 10); got != nil {
		t.Errorf("the note of another key: %q", got)
	}
	none := newCache(t, Options{Memory: 64 << 20})
	if none.StoreNote(key, []byte("x")); none.LoadNote(key, 10) != nil {
		t.Error("a cache without a disk gives a note")
	}
}
