package sources

import (
	"reflect"
	"testing"
)

func TestAlike(t *testing.T) {
	l := &Listing{}
	for _, p := range []string{"CONFIG.json", "a/\u00e9.txt", "a/e\u0301.txt", "b.txt", "config.json", "config.jsonl", "Ω", "ω"} {
		l.Files = append(l.Files, Entry{Path: p})
	}
	want := [][2]string{{"a/\u00e9.txt", "a/e\u0301.txt"}, {"CONFIG.json", "config.json"}, {"Ω", "ω"}}
	if got := l.Alike(); !reflect.DeepEqual(got, want) {
		t.Errorf("alike: %q, want %q", got, want)
	}
	if got := (&Listing{Files: []Entry{{Path: "a"}, {Path: "b/a"}}}).Alike(); got != nil {
		t.Errorf("alike: %q", got)
	}
}
