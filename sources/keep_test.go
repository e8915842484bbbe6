package sources_test

import (
	"bytes"
	"reflect"
	"testing"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

// keeper keeps documents and notes in memory.
type keeper struct{ docs, notes map[sources.ID][]byte }

func newKeeper() keeper { return keeper{map[sources.ID][]byte{}, map[sources.ID][]byte{}} }

func within(limit int64, p []byte) []byte {
	if int64(len(p)) <= limit {
		return p
	}
	return nil
}

func (k keeper) LoadDocument(key sources.ID, limit int64) []byte { return within(limit, k.docs[key]) }
func (k keeper) StoreDocument(key sources.ID, doc []byte)        { k.docs[key] = bytes.Clone(doc) }
func (k keeper) LoadNote(key sources.ID, limit int64) []byte     { return within(limit, k.notes[key]) }
func (k keeper) StoreNote(key sources.ID, note []byte)           { k.notes[key] = bytes.Clone(note) }

// TestKeptListing: a second run asks for the commit alone and lists the same; what was kept and is not whole is asked for again.
func TestKeptListing(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: append(sourcetest.Small(), sourcetest.Bytes("../odd", nil))})
	kept := newKeeper()
	list := func() (*sources.Listing, int) {
		o := options(t)
		o.Keep = kept
		mark := len(s.Log(0))
		l, err := newHub(t, s, o).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l, len(s.Log(mark))
	}
	first, n := list()
	if len(first.Hidden) != 1 || n != 3 {
		t.Fatalf("%+v after %d requests", first, n)
	}
	if second, n := list(); n != 1 || !reflect.DeepEqual(first, second) {
		t.Errorf("the second List took %d requests and gave %+v", n, second)
	}
	for key, doc := range kept.docs {
		for _, bad := range [][]byte{nil, doc[:len(doc)/2], []byte(`{"Commit":"0"}`), bytes.Replace(doc, []byte(`"Size":8`), []byte(`"Size":"8"`), 1)} {
			kept.docs[key] = bad
			if l, n := list(); n != 3 || !reflect.DeepEqual(first, l) {
				t.Errorf("%.30q: %d requests, %+v", bad, n, l)
			}
		}
	}
}
