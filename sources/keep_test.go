package sources_test

import (
	"bytes"
	"reflect"
	"testing"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

// keeper keeps documents in memory.
type keeper map[sources.ID][]byte

func (k keeper) LoadDocument(key sources.ID, limit int64) []byte {
	if d := k[key]; int64(len(d)) <= limit {
		return d
	}
	return nil
}

func (k keeper) StoreDocument(key sources.ID, doc []byte) { k[key] = bytes.Clone(doc) }

// TestKeptListing: a second run asks for the commit alone and lists the same; what was kept and is not whole is asked for again.
func TestKeptListing(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: append(sourcetest.Small(), sourcetest.Bytes("../odd", nil))})
	kept := keeper{}
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
	for key, doc := range kept {
		for _, bad := range [][]byte{nil, doc[:len(doc)/2], []byte(`{"Commit":"0"}`), bytes.Replace(doc, []byte(`"Size":8`), []byte(`"Size":"8"`), 1)} {
			kept[key] = bad
			if l, n := list(); n != 3 || !reflect.DeepEqual(first, l) {
				t.Errorf("%.30q: %d requests, %+v", bad, n, l)
			}
		}
	}
}
