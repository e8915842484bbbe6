package release

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"weightfs/sources"
	"weightfs/sources/safetensors"
)

// ten describes a tensor of a test release.
type ten struct {
	name  string
	dtype safetensors.DType
	shape []int64
}

// bf16 is a tensor of that dtype.
func bf16(name string, shape ...int64) ten { return ten{name, safetensors.BF16, shape} }

// fake is a release in memory: files whose data, beyond the headers, is a function of the offset.
type fake struct {
	files map[string][]byte // a header for a shard, else the whole content
	sizes map[string]int64

	mu    sync.Mutex
	asked []string
}

func newFake() *fake { return &fake{files: map[string][]byte{}, sizes: map[string]int64{}} }

// file adds a file that is not a shard.
func (f *fake) file(path, content string) *fake {
	f.files[path], f.sizes[path] = []byte(content), int64(len(content))
	return f
}

// shard adds a shard with these tensors in this order.
func (f *fake) shard(t testing.TB, path string, tensors ...ten) *fake {
	t.Helper()
	var at int64
	var list []safetensors.Tensor
	for _, x := range tensors {
		n, err := safetensors.Bytes(x.shape, x.dtype)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, safetensors.Tensor{Name: x.name, DType: x.dtype, Shape: x.shape, Begin: at, End: at + n})
		at += n
	}
	head, err := safetensors.Encode(list, nil, 8)
	if err != nil {
		t.Fatal(err)
	}
	f.files[path], f.sizes[path] = head, int64(len(head))+at
	return f
}

func (f *fake) listing() *sources.Listing {
	l := &sources.Listing{Name: "fake", Complete: true}
	for _, p := range slices.Sorted(maps.Keys(f.files)) {
		l.Files = append(l.Files, sources.Entry{Path: p, Size: f.sizes[p]})
	}
	return l
}

func (f *fake) ask(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, what)
}

func (f *fake) Header(_ context.Context, path string, buf []byte) ([]byte, error) {
	f.ask("header " + path)
	return append(buf[:0], f.files[path]...), nil
}

func (f *fake) ReadFile(_ context.Context, path string, max int64) ([]byte, error) {
	f.ask("file " + path)
	if f.sizes[path] > max {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, f.sizes[path], max)
	}
	return f.files[path], nil
}

func (f *fake) ReadAt(_ context.Context, path string, p []byte, off int64) error {
	f.ask(fmt.Sprintf("read %s [%d, %d)", path, off, off+int64(len(p))))
	if off < int64(len(f.files[path])) || off+int64(len(p)) > f.sizes[path] {
		return fmt.Errorf("read outside the data: %s [%d, %d)", path, off, off+int64(len(p)))
	}
	for i := range p {
		p[i] = dataByte(off + int64(i))
	}
	return nil
}

func dataByte(off int64) byte { return byte(off*7 + off>>8) }

func (f *fake) open(t testing.TB) *Release {
	t.Helper()
	rel, err := Open(context.Background(), f.listing(), f)
	if err != nil {
		t.Fatal(err)
	}
	return rel
}

// one opens a release of one shard.
func one(t testing.TB, config string, tensors ...ten) *Release {
	t.Helper()
	f := newFake().shard(t, "model.safetensors", tensors...)
	if config != "" {
		f.file("config.json", config)
	}
	return f.open(t)
}

// index reads a compressed index of testdata.
func index(t testing.TB, name string) map[string]string {
	t.Helper()
	file, err := os.Open("testdata/indexes/" + name + ".index.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var x struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &x); err != nil {
		t.Fatal(err)
	}
	return x.WeightMap
}

// published is a release with the names and shards of a published index and shapes of two by three.
func published(t testing.TB, name string) *fake {
	t.Helper()
	byShard := map[string][]ten{}
	weights := index(t, name)
	for _, n := range slices.Sorted(maps.Keys(weights)) {
		shape := []int64{2, 3}
		if strings.Contains(n, "down_proj") || strings.Contains(n, ".w2.") {
			shape = []int64{3, 2}
		}
		byShard[weights[n]] = append(byShard[weights[n]], bf16(n, shape...))
	}
	f := newFake()
	for shard, tensors := range byShard {
		f.shard(t, shard, tensors...)
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{}, "weight_map": weights})
	if err != nil {
		t.Fatal(err)
	}
	return f.file("model.safetensors.index.json", string(text))
}

// TestPublishedIndexes counts roles over real indexes.
func TestPublishedIndexes(t *testing.T) {
	for _, c := range []struct {
		name                string
		tensors, routed     int
		layers, perLayer    int
		prefix              string
		split               int // experts in more than one shard
		oneShard, twoShards int // MoE layers by number of shards
	}{
		{"mixtral_8x7b", 995, 768, 32, 8, "model.layers", 12, 15, 17},
		{"mixtral_wizardlm2_8x22b", 1739, 1344, 56, 8, "model.layers", 33, 8, 48},
		{"qwen3_5_moe_reap25b", 22213, 21600, 40, 180, "model.language_model.layers", 181, 30, 10},
		{name: "devstral_small_2507", tensors: 363},
		{name: "molmo7b_nf4_bnb", tensors: 921},
	} {
		t.Run(c.name, func(t *testing.T) {
			rel := published(t, c.name).open(t)
			routed := 0
			for ref := range rel.All() {
				if rel.Role(ref) != Resident {
					routed++
				}
			}
			if rel.Len() != c.tensors || routed != c.routed {
				t.Errorf("%d tensors, %d routed; want %d, %d", rel.Len(), routed, c.tensors, c.routed)
			}
			if c.routed == 0 {
				if rel.Experts != nil || !strings.HasPrefix(rel.NoExperts, "dense") {
					t.Errorf("experts %v, reason %q", rel.Experts, rel.NoExperts)
				}
				return
			}
			x := rel.Experts
			if x == nil {
				t.Fatal(rel.NoExperts)
			}
			if len(x.Layers) != c.layers || x.PerLayer != c.perLayer || x.Prefix != c.prefix || len(x.Parts) != 3 {
				t.Errorf("%d layers, %d experts, prefix %s, %d parts", len(x.Layers), x.PerLayer, x.Prefix, len(x.Parts))
			}
			checkParts(t, rel, x)
			s := Summarise(rel).Experts
			if want := []Count{{1, c.oneShard}, {2, c.twoShards}}; s.Split != c.split || !slices.Equal(s.ShardsPerLayer, want) {
				t.Errorf("%d experts split, layers by shards %v; want %d, %v", s.Split, s.ShardsPerLayer, c.split, want)
			}
		})
	}
}
