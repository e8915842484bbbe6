package cache

import (
	"bytes"
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
