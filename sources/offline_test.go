package sources_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

// TestOffline: a listing is the one of the last run, and every byte that would have to be asked for is an error at once, with not one request; by
// the option, and for the Hub by the variables of huggingface_hub.
func TestOffline(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: withIndex(sourcetest.Small())})
	hub := func(o *sources.Options) sources.Source { return newHub(t, s, o) }
	dir := func(o *sources.Options) sources.Source { return newHTTP(t, s.HubURL+"/plain", o) }
	one := func(o *sources.Options) sources.Source {
		return newHTTP(t, s.HubURL+"/plain/"+shard+"?key=hushhush", o)
	}
	for _, c := range []struct {
		name    string
		make    func(o *sources.Options) sources.Source
		option  bool
		env     []string
		offline bool
	}{
		{"hub", hub, true, nil, true}, {"directory", dir, true, nil, true}, {"one file", one, true, nil, true},
		{"HF_HUB_OFFLINE", hub, false, []string{"HF_HUB_OFFLINE", "1"}, true},
		{"TRANSFORMERS_OFFLINE", hub, false, []string{"TRANSFORMERS_OFFLINE", "yes"}, true},
		{"0", hub, false, []string{"HF_HUB_OFFLINE", "0", "TRANSFORMERS_OFFLINE", "1"}, false},
		{"not the hub", dir, false, []string{"HF_HUB_OFFLINE", "1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept := newKeeper()
			first := options(t)
			first.Keep = kept
			online, err := c.make(first).List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			mark := len(s.Log(0))
			o := options(t, c.env...)
			o.Keep, o.Offline = kept, c.option
			src := c.make(o)
			l, err := src.List(t.Context())
			if err != nil || !reflect.DeepEqual(l, online) {
				t.Fatalf("got %+v, %v", l, err)
			}
			b, err := src.Open(t.Context(), shard)
			if err != nil {
				t.Fatal(err)
			}
			err = sources.Retry(t.Context(), func(ctx context.Context) error { return sources.ReadAt(ctx, b, make([]byte, 10), 0) })
			if errors.Is(err, sources.ErrOffline) != c.offline || c.offline && !strings.Contains(err.Error(), "read "+shard+" [0, 10): not on disk") {
				t.Errorf("read: %v", err)
			}
			if n := len(s.Log(mark)); c.offline != (n == 0) {
				t.Errorf("%d requests", n)
			}
			for _, note := range kept.notes {
				if strings.Contains(string(note), "hushhush") {
					t.Errorf("a secret is kept: %s", note)
				}
			}
			if !c.offline {
				return
			}
			o = options(t, c.env...)
			o.Offline, o.Keep = c.option, newKeeper()
			if _, err := c.make(o).List(t.Context()); !errors.Is(err, sources.ErrOffline) {
				t.Errorf("nothing is kept: %v", err)
			}
			if n := len(s.Log(mark)); n != 0 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestKeptNotes: a note that is not what was written is none.
func TestKeptNotes(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small()})
	kept := newKeeper()
	o := options(t)
	o.Keep = kept
	if _, err := newHub(t, s, o).List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(kept.notes) != 2 { // of main, and of the commit
		t.Errorf("%d notes", len(kept.notes))
	}
	for _, bad := range []string{"", "{", `{"Commit":""}`, `{"Commit":"../x"}`, `{"Commit":"` + strings.ToUpper(sourcetest.Commit) + `"}`} {
		for key := range kept.notes {
			kept.notes[key] = []byte(bad)
		}
		o := options(t)
		o.Keep, o.Offline = kept, true
		if _, err := newHub(t, s, o).List(t.Context()); !errors.Is(err, sources.ErrOffline) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
