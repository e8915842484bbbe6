package transform

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
)

// TestGolden has every file of every view of the small releases: names and sizes, and how each file is made.
func TestGolden(t *testing.T) {
	for _, r := range testrel.Small() {
		t.Run(r.Name, func(t *testing.T) {
			dir, m := open(r)
			var list strings.Builder
			for _, f := range files(t, dir, "") {
				fmt.Fprintf(&list, "%12d %s\n", f.node.Size, f.path)
			}
			golden(t, r.Name+"/tree", list.String())
			golden(t, r.Name+"/README", string(at(t, dir, m, "README.md")))
		})
	}
}

func TestAbsentViews(t *testing.T) {
	dir, _ := open(testrel.DenseBF16())
	for _, path := range []string{"experts", "experts/native", "experts/bf16/manifest.json"} {
		_, err := plan.Walk(t.Context(), dir, path)
		var a *Absent
		if !errors.As(err, &a) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
