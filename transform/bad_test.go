package transform

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// TestBadRelease: a release whose files are no set of weights stands there all the same; README and every view say what is wrong, and it is
// not looked for again.
func TestBadRelease(t *testing.T) {
	whole := dumbShard([]dumbTensor{{"a.weight", "F32", []int64{2, 2}, make([]byte, 16)}})
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  []string
	}{
		{"truncated shard", map[string][]byte{"model.safetensors": whole[:len(whole)-1]}, []string{"model.safetensors", "1 bytes are missing"}},
		{"missing shard", map[string][]byte{
			"model-00001-of-00002.safetensors": whole,
			"model.safetensors.index.json":     []byte(`{"weight_map":{"a.weight":"model-00001-of-00002.safetensors","b.weight":"model-00002-of-00002.safetensors"}}`),
		}, []string{"model-00002-of-00002.safetensors"}},
		{"malformed index", map[string][]byte{"model.safetensors": whole, "model.safetensors.index.json": []byte(`{"weight_map":`)}, []string{"model.safetensors.index.json"}},
		{"two shards with one tensor", map[string][]byte{
			"model-00001-of-00002.safetensors": whole, "model-00002-of-00002.safetensors": whole,
		}, []string{"a.weight", "model-00001-of-00002", "model-00002-of-00002"}},
		{"no weights", map[string][]byte{"config.json": []byte("{}")}, []string{"safetensors"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := fromFiles("bad", c.files)
			opens := 0
			dir := Tree(m.listing(), func(ctx context.Context) (*release.Release, error) { opens++; return m.open(ctx) })
			readme := string(at(t, dir, m, "README.md"))
			for _, word := range append(c.want, "release/", "views", "Mount a revision that is whole") {
				if !strings.Contains(readme, word) {
					t.Errorf("README lacks %q:\n%s", word, readme)
				}
			}
			for name, data := range c.files {
				if got := at(t, dir, m, "release/"+name); string(got) != string(data) {
					t.Errorf("release/%s is not itself", name)
				}
			}
			for _, path := range []string{"bf16", "bf16/config.json", "experts", "experts/native/manifest.json", "ranks/2/0"} {
				_, err := plan.Walk(t.Context(), dir, path)
				var a *Absent
				if !errors.As(err, &a) || !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, release.ErrBadRelease) || !strings.Contains(err.Error(), c.want[0]) {
					t.Errorf("%s: %v", path, err)
				}
			}
			if _, err := plan.Walk(t.Context(), dir, "nonesuch"); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, release.ErrBadRelease) {
				t.Errorf("nonesuch: %v", err)
			}
			if opens != 1 {
				t.Errorf("opened %d times", opens)
			}
		})
	}
}

// TestFailedOpen: a failure to get what opening needs is told, and forgotten.
func TestFailedOpen(t *testing.T) {
	m := handMade("", "a.weight BF16 4 4")
	failure := errors.New("no connection")
	dir := Tree(m.listing(), func(ctx context.Context) (*release.Release, error) {
		if failure != nil {
			return nil, failure
		}
		return m.open(ctx)
	})
	for _, path := range []string{"README.md", "bf16", "nonesuch"} {
		if _, err := plan.Walk(t.Context(), dir, path); err != failure {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := dir.List(t.Context()); err != failure {
		t.Errorf("listing: %v", err)
	}
	if _, err := plan.Walk(t.Context(), dir, "release/model.safetensors"); err != nil {
		t.Error(err)
	}
	failure = nil
	if _, err := plan.Walk(t.Context(), dir, "bf16"); err != nil {
		t.Error(err)
	}
}
