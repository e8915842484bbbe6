package transform

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// TestQuoted: names that are plain are quoted as encoding/json quotes all others, and as long as was said.
func TestQuoted(t *testing.T) {
	check := func(s string) bool {
		want, err := json.Marshal(s)
		return err == nil && string(appendQuoted([]byte("x"), s)) == "x"+string(want) && quotedLen(s) == len(want)
	}
	for c := range 0x3000 {
		if !check("a" + string(rune(c)) + "b") {
			t.Errorf("%q", rune(c))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		if s := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9_.]*[\x00-\x7f]?[a-z]*`)).Draw(t, "name"); !check(s) {
			t.Fatalf("%q", s)
		}
	})
}
