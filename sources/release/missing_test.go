package release

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"weightfs/sources"
)

// texts is a Reader of small files.
type texts map[string]string

func (r texts) ReadFile(_ context.Context, path string, _ int64) ([]byte, error) {
	if text, ok := r[path]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}
func (texts) Header(context.Context, string, []byte) ([]byte, error) { panic("a header is read") }
func (texts) ReadAt(context.Context, string, []byte, int64) error    { panic("a shard is read") }

// TestMissing: the shards that the index names and the listing has not, from the index alone.
func TestMissing(t *testing.T) {
	const index = "model.safetensors.index.json"
	for _, c := range []struct {
		name, index string
		want        []string
	}{
		{"whole", `{"weight_map":{"a":"a.safetensors","b":"b.safetensors"}}`, nil},
		{"holes", `{"weight_map":{"z":"z.safetensors","a":"a.safetensors","y":"y.safetensors","y2":"y.safetensors"}}`, []string{"y.safetensors", "z.safetensors"}},
		{"names of nothing", `{"weight_map":{"z":"../../etc/passwd","a":"a.safetensors"}}`, nil},
		{"no JSON", `{"weight_map":{"z":"z.safetensors"`, nil},
		{"no index", "", nil},
	} {
		l := &sources.Listing{Files: []sources.Entry{{Path: "a.safetensors"}, {Path: "b.safetensors"}}}
		if c.index != "" {
			l.Files = append(l.Files, sources.Entry{Path: index})
		}
		got, err := Missing(t.Context(), l, texts{index: c.index})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	l := &sources.Listing{Files: []sources.Entry{{Path: index}}}
	if _, err := Missing(t.Context(), l, texts{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an index that cannot be read: %v", err)
	}
}
