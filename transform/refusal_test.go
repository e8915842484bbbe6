package transform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
	"weightfs/sources/release"
)

// handMade is a release of one shard with these tensors; each line is "name dtype shape".
func handMade(config string, lines ...string) *memory {
	var ts []dumbTensor
	for _, line := range lines {
		var name, dtype string
		var shape []int64
		fmt.Sscan(line, &name, &dtype)
		for _, d := range strings.Fields(line)[2:] {
			var n int64
			fmt.Sscan(d, &n)
			shape = append(shape, n)
		}
		data := make([]byte, count(shape)*int64(widths[dtype]))
		for i := range data {
			data[i] = byte(i) & 0x3F
		}
		ts = append(ts, dumbTensor{name, dtype, shape, data})
	}
	files := map[string][]byte{"model.safetensors": dumbShard(ts), "tokenizer.json": []byte("{}")}
	if config != "" {
		files["config.json"] = []byte(config)
	}
	return fromFiles("made", files)
}

// TestRefusals: a view that cannot be exact is absent and says which tensor is to blame; the others are there.
func TestRefusals(t *testing.T) {
	const fp8 = `{"hidden_size":256,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`
	for _, c := range []struct {
		name, config string
		lines        []string
		view, want   []string // views that are absent; words of the reason
		present      []string
	}{
		{
			name: "scale missing", config: fp8, lines: []string{"a.weight F8_E4M3 256 256", "a.weight_scale_inv F32 2 2", "b.weight F8_E4M3 256 256"},
			view: []string{"bf16", "bf16-all", "resident-bf16"}, want: []string{"b.weight"}, present: []string{"resident", "layers", "tensors"},
		},
		{
			name: "scale misshapen", config: fp8, lines: []string{"a.weight F8_E4M3 256 256", "a.weight_scale_inv F32 2 3"},
			view: []string{"bf16", "bf16-all"}, want: []string{"a.weight", "256", "3"}, present: []string{"resident"},
		},
		{
			name: "config malformed", config: `{"hidden_size":256`, lines: []string{"a.weight BF16 4 4"},
			view: []string{"bf16"}, want: []string{"config.json"}, present: []string{"resident"},
		},
		{
			name: "no config", lines: []string{"a.weight BF16 4 4", "odd F9_E9 7"}, present: []string{"bf16", "bf16-all", "resident", "layers"},
		},
		{
			name: "name that is no path", lines: []string{`../../etc/passwd BF16 4 4`, "a.weight BF16 4 4"},
			view: []string{"layers"}, want: []string{"passwd", "path"}, present: []string{"bf16", "tensors", "resident"},
		},
		{
			name: "dense", lines: []string{"a.weight BF16 4 4"}, view: []string{"experts/native", "experts", "ranks", "split", "fused"},
			want: []string{"dense"}, present: []string{"bf16"},
		},
		{
			name: "experts without elements", config: `{"hidden_size":8}`,
			lines: []string{
				"model.layers.1.mlp.gate.weight BF16 1 8", "model.layers.1.mlp.experts.0.gate_proj.weight BF16 4 0", "model.layers.1.mlp.experts.0.up_proj.weight BF16 4 0",
				"model.layers.1.mlp.experts.0.down_proj.weight BF16 0 4",
			},
			view: []string{"experts/bf16", "experts/native"}, present: []string{"bf16", "resident", "tensors"},
		},
		{
			name: "experts of multi-token prediction without a layout", config: `{"hidden_size":8,"num_hidden_layers":2}`,
			lines: []string{
				"model.layers.1.mlp.gate.weight BF16 2 8", "mtp.layers.0.mlp.gate.weight BF16 2 8", "model.layers.1.input_layernorm.weight BF16 8",
				"model.layers.1.mlp.experts.0.gate_proj.weight BF16 4 8", "model.layers.1.mlp.experts.0.up_proj.weight BF16 4 8", "model.layers.1.mlp.experts.0.down_proj.weight BF16 8 4",
				"model.layers.1.mlp.experts.1.gate_proj.weight BF16 4 8", "model.layers.1.mlp.experts.1.up_proj.weight BF16 4 8", "model.layers.1.mlp.experts.1.down_proj.weight BF16 8 4",
				"mtp.layers.0.mlp.experts.0.gate_proj.weight BF16 4 8", "mtp.layers.0.mlp.experts.0.up_proj.weight BF16 4 8", "mtp.layers.0.mlp.experts.0.down_proj.weight BF16 8 4",
				"mtp.layers.0.mlp.experts.1.gate_proj.weight BF16 4 8", "mtp.layers.0.mlp.experts.1.up_proj.weight BF16 6 8", "mtp.layers.0.mlp.experts.1.down_proj.weight BF16 8 4",
			},
			view: []string{"ranks", "split", "fused", "fused-bf16"}, want: []string{"mtp.layers.0"}, present: []string{"experts/native", "bf16", "resident"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := handMade(c.config, c.lines...)
			dir := m.tree()
			readme := string(at(t, dir, m, "README.md"))
			for _, view := range c.view {
				for _, path := range []string{view, view + "/config.json"} {
					_, err := plan.Walk(t.Context(), dir, path)
					var a *Absent
					if !errors.As(err, &a) || !errors.Is(err, fs.ErrNotExist) {
						t.Fatalf("%s: %v", path, err)
					}
					for _, word := range c.want {
						if !strings.Contains(err.Error(), word) {
							t.Errorf("%s: %v, want %q in it", path, err, word)
						}
						if !strings.Contains(readme, word) {
							t.Errorf("README lacks %q", word)
						}
					}
				}
			}
			for _, view := range c.present {
				for _, f := range files(t, dir, view) {
					content(t, m, f)
				}
			}
			for _, f := range files(t, dir, "release") {
				content(t, m, f)
			}
		})
	}
}

// TestUnsafeNames: tensors whose names cannot stand in a path are not in tensors/; README counts them.
func TestUnsafeNames(t *testing.T) {
	m := handMade("", `a\u0000b.weight BF16 4`, "../x BF16 4", "ok.weight BF16 4", "a..b BF16 4", strings.Repeat("x", 201)+".weight BF16 2")
	dir := m.tree()
	got := files(t, dir, "tensors")
	if len(got) != 2 || got[1].path != "tensors/ok.weight.npy" {
		t.Errorf("tensors/ has %v", got)
	}
	if readme := string(at(t, dir, m, "README.md")); !strings.Contains(readme, "4 tensors are not in tensors/") {
		t.Error(readme)
	}
	parse(t, dir, m, "bf16")
}

// TestOpenFails: release/ needs no headers; a failure to open is not remembered; the release is opened once.
func TestOpenFails(t *testing.T) {
	m := fromRelease(testrel.DenseBF16())
	calls := 0
	down := errors.New("no network")
	extra := plan.File(".weightfs", plan.New())
	dir := Tree(m.listing(), func(ctx context.Context) (*release.Release, error) {
		if calls++; calls < 3 {
			return nil, down
		}
		return m.open(ctx)
	}, extra)
	if n := len(files(t, dir, "release")); n != len(m.files) || calls != 0 {
		t.Fatalf("release/ has %d files after %d calls", n, calls)
	}
	if _, err := dir.Lookup(t.Context(), ".weightfs"); err != nil || calls != 0 {
		t.Fatalf("%v after %d calls", err, calls)
	}
	if _, err := dir.List(t.Context()); !errors.Is(err, down) {
		t.Fatal(err)
	}
	if _, err := plan.Walk(t.Context(), dir, "bf16/config.json"); !errors.Is(err, down) {
		t.Fatal(err)
	}
	if _, err := dir.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	files(t, dir, "")
	if calls != 3 {
		t.Errorf("opened %d times", calls)
	}
}

// TestOpenWaits: one caller opens, the others wait for it or for their own contexts.
func TestOpenWaits(t *testing.T) {
	m := fromRelease(testrel.DenseBF16())
	started, finish := make(chan struct{}), make(chan struct{})
	dir := Tree(m.listing(), func(ctx context.Context) (*release.Release, error) {
		close(started)
		<-finish
		return m.open(ctx)
	})
	done := make(chan error)
	go func() {
		_, err := dir.List(context.Background())
		done <- err
	}()
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dir.List(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(finish)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLongHeader: a shard whose header would pass the limit is cut; together the parts are the whole.
func TestLongHeader(t *testing.T) {
	lines := make([]string, 4_000)
	for i := range lines {
		lines[i] = fmt.Sprintf("%s.%d U8 1", strings.Repeat("n", 4_050), i)
	}
	m := handMade("", lines...)
	dir := m.tree()
	shards := 0
	for _, f := range files(t, dir, "resident") {
		if strings.HasSuffix(f.path, ".safetensors") {
			shards++
			if f.node.Size > maxHeader+4_000 {
				t.Errorf("%s has %d bytes", f.path, f.node.Size)
			}
		}
	}
	if got := parse(t, dir, m, "resident"); len(got) != len(lines) || shards != 2 {
		t.Errorf("%d tensors in %d shards", len(got), shards)
	}
	at(t, dir, m, "resident/model.safetensors.index.json")
}

// TestHostileMarkdown: names and dtypes that a README.md quotes are text in it: no HTML, code, link, image or character that is not printable.
func TestHostileMarkdown(t *testing.T) {
	const hostile, shown = "<script>![x](http://x)`\u202e", `\x3cscript>![x]\x28http://x)\x60\u202e`
	m := handMade(`{"quantization_config":{"quant_method":"<script>"}}`,
		hostile+".qweight I32 1 8", hostile+".weight U8 4 4", hostile+".weight_scale F32 1")
	dir := m.tree()
	readme := string(at(t, dir, m, "README.md"))
	if n := strings.Count(readme, shown); n < 3 {
		t.Errorf("the name is quoted %d times in %s", n, readme)
	}
	for _, bad := range []string{"<script", "](", "\u202e"} {
		if strings.Contains(readme, bad) {
			t.Errorf("%q stands in %s", bad, readme)
		}
	}
}
