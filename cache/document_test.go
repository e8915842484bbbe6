package cache

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestBesidePlanted: pipes, directories, links and files without end where notes and seals are kept are none; nobody waits for them, or reads
// them, and what is stored takes the place of those that can be removed.
func TestBesidePlanted(t *testing.T) {
	dir := t.TempDir()
	c := newCache(t, Options{Dir: dir, Size: 1 << 30, Memory: 64 << 20})
	defer c.Close()
	elsewhere := filepath.Join(dir, "elsewhere")
	plant := map[string]func(name string) error{
		"pipe":      func(name string) error { return unix.Mkfifo(name, 0o600) },
		"directory": func(name string) error { return os.MkdirAll(filepath.Join(name, "x"), 0o700) },
		"link":      func(name string) error { return os.Symlink(elsewhere, name) },
		"long":      func(name string) error { return errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, 1<<40)) },
	}
	for i, what := range slices.Sorted(maps.Keys(plant)) {
		key := sources.ID{byte(i)}
		h := hex.EncodeToString(key[:])
		name := filepath.Join(dir, "v1", h[:2], h)
		must(t, os.WriteFile(elsewhere, encodeNote(key, []byte("planted")), 0o600))
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, plant[what](name+".note"))
		must(t, plant[what](name+".seal"))
		if what != "directory" { // which holds something, and so stops all writing
			must(t, plant[what](name+".note.new"))
		}
		if got := c.LoadNote(key, 100); got != nil {
			t.Errorf("%s: note %q", what, got)
		}
		if got := c.disk.loadSeal(key, 3*cellSize); got != nil {
			t.Errorf("%s: a seal", what)
		}
		c.StoreNote(key, []byte("ours"))
		if got := string(c.LoadNote(key, 100)); (got == "ours") != (what != "directory") {
			t.Errorf("%s: the note that was stored is %q", what, got)
		}
		c.disk.own.paused = time.Time{}
		if got, err := os.ReadFile(elsewhere); err != nil || !bytes.Equal(got, encodeNote(key, []byte("planted"))) {
			t.Errorf("%s: written to the end of a link: %q, %v", what, got, err)
		}
	}
}
