package transform

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
)

// splitBases says, by family with stacked experts, what stands before the expert's number in split/.
var splitBases = map[string]string{
	"family-dbrx":             "transformer.blocks.{L}.ffn.experts.mlp.experts.",
	"family-gemma4":           "model.language_model.layers.{L}.experts.",
	"family-gpt-oss":          "model.layers.{L}.mlp.experts.",
	"family-gpt-oss-bf16":     "model.layers.{L}.mlp.experts.",
	"family-gpt-oss-original": "block.{L}.mlp.experts.",
	"family-granite-moe":      "model.layers.{L}.block_sparse_moe.experts.",
	"family-llama4":           "language_model.model.layers.{L}.feed_forward.experts.",
	"family-mistral-small-4":  "model.language_model.layers.{L}.mlp.experts.",
	"family-mlx-4bit":         "model.layers.{L}.mlp.experts.",
	"family-mlx-gemma4":       "language_model.model.layers.{L}.experts.",
	"family-qwen3-vl-moe":     "model.language_model.layers.{L}.mlp.experts.",
	"family-qwen3.5-moe":      "model.language_model.layers.{L}.mlp.experts.",
	"family-step3":            "model.layers.{L}.moe.experts.",
}

// computedOnly are the families whose experts have no native form in the other layout: 4-bit blocks, and scales that no loader knows
// there or that cannot be cut between gate and up.
var computedOnly = []string{"family-deepseek-v3", "family-deepseek-v4", "family-glm4-moe", "family-gpt-oss", "family-gpt-oss-original",
	"family-kimi-k2", "family-kimi-k3", "family-minimax-m2", "family-mistral-large-3", "family-mistral-small-4"}

// suffixes are the tensors of a module: how they are spelled in a release, and under the names of either form.
var suffixes = []struct{ source, split, fused string }{
	{"", ".weight", ""}, {".weight", ".weight", ""}, {"_bias", ".bias", "_bias"}, {".scales", ".scales", "_scales"}, {".biases", ".biases", "_biases"},
	{".weight_scale_inv", ".weight_scale_inv", "_scale_inv"}, {"_scale_inv", ".weight_scale_inv", "_scale_inv"},
}

// regrouper makes the tensors of split and fused views out of whole ones, by shard.
type regrouper struct {
	form
	base    string // of split names
	experts int
	shards  map[string][]dumbTensor
	all     map[string]dumbTensor
	shardOf map[string]string
	used    map[string]bool
	out     map[string][]dumbTensor
}

func newRegrouper(f form, base string, shards map[string][]dumbTensor) *regrouper {
	g := &regrouper{form: f, base: base, experts: 5, shards: shards, all: map[string]dumbTensor{}, shardOf: map[string]string{}, used: map[string]bool{}, out: map[string][]dumbTensor{}}
	for path, ts := range shards {
		for _, t := range ts {
			g.all[t.name], g.shardOf[t.name] = t, path
		}
	}
	return g
}

// shows are the tensors of the view: experts of layers 1 and 3 and of multi-token prediction in the other form, the rest as it is.
func (g *regrouper) shows() map[string][]dumbTensor {
	for _, layer := range []int{1, 3, 4} {
		g.layer(layer)
	}
	if _, rest, ok := strings.Cut(g.prefix, "layers."); ok {
		_, base, _ := strings.Cut(g.base, "layers.")
		for _, mtp := range []string{"mtp.layers.", "mtp."} {
			g.prefix, g.base = mtp+rest, mtp+base
			g.layer(0)
		}
	}
	for path, ts := range g.shards {
		for _, t := range ts {
			if !g.used[t.name] {
				g.out[path] = append(g.out[path], t)
			}
		}
	}
	return g.out
}

func (g *regrouper) layer(layer int) {
	for _, s := range suffixes {
		if g.fused {
			g.split(layer, s.source, s.split)
		} else {
			g.fuse(layer, s.source, s.fused)
		}
	}
}

// tensor is the tensor with that suffix of the module that has a projection, of one expert where experts are numbered.
func (g *regrouper) tensor(p, suffix string, layer, e int) (dumbTensor, bool) {
	last := map[string]string{"gate": g.gate, "up": g.up, "down": g.down}[p]
	if g.joint != "" && p != "down" {
		last = g.joint
	}
	if last == "" {
		return dumbTensor{}, false
	}
	module := strings.TrimSuffix(last, ".weight")
	if before, ok := strings.CutSuffix(module, "_weight"); ok && suffix == "_bias" {
		module = before
	}
	t, ok := g.all[g.name(module+suffix, layer, e)]
	return t, ok
}

// split makes three tensors of each expert.
func (g *regrouper) split(layer int, from, to string) {
	for _, p := range []string{"gate", "up", "down"} {
		t, ok := g.tensor(p, from, layer, 0)
		if !ok {
			continue
		}
		g.used[t.name] = true
		for e := range g.experts {
			x := g.projection(t, p, e)
			x.name = fmt.Sprint(strings.ReplaceAll(g.base, "{L}", fmt.Sprint(layer)), e, ".", p, "_proj", to)
			g.out[g.shardOf[t.name]] = append(g.out[g.shardOf[t.name]], x)
		}
	}
}

// fuse stacks the experts of a layer: gate and up of each beside each other, and down. A stack is in the shard of its first matrix.
func (g *regrouper) fuse(layer int, from, to string) {
	for _, projections := range [][]string{{"gate", "up"}, {"down"}} {
		var stack dumbTensor
		var words []string
		shard := ""
		for e := range g.experts {
			for _, p := range projections {
				t, ok := g.tensor(p, from, layer, e)
				if !ok {
					continue
				}
				g.used[t.name] = true
				x := g.projection(t, p, e)
				if stack.shape == nil {
					shard, stack.shape = g.shardOf[t.name], append([]int64{int64(g.experts), 0}, x.shape[1:]...)
				}
				if e == 0 {
					words = append(words, p)
					stack.shape[1] += x.shape[0]
				}
				stack.dtype, stack.data = x.dtype, append(stack.data, x.data...)
			}
		}
		if shard != "" {
			stack.name = strings.TrimSuffix(g.name("", layer, 0), "0.") + strings.Join(words, "_") + "_proj" + to
			g.out[shard] = append(g.out[shard], stack)
		}
	}
}

// projection is gate, up or down of one expert as [out, in], element by element; a vector stays one.
func (g *regrouper) projection(t dumbTensor, p string, expert int) dumbTensor {
	shape, data := t.shape, t.data
	if g.fused {
		each := len(data) / g.experts
		data = data[expert*each : (expert+1)*each]
		if shape[0] == int64(g.experts) {
			shape = shape[1:]
		} else {
			shape = []int64{shape[0] / int64(g.experts), shape[1]}
		}
	}
	rows, cols, width := int(shape[0]), 1, widths[t.dtype]
	if len(shape) == 2 {
		cols = int(shape[1])
	}
	joint, letter := g.joint != "" && p != "down", p[:1]
	if joint {
		letter = "j"
	}
	element := func(r, c int) []byte { k := (r*cols + c) * width; return data[k : k+width] }
	height, across := rows, cols
	if len(shape) == 2 && strings.Contains(g.inOut, letter) {
		height, across = cols, rows
		element = func(r, c int) []byte { k := (c*cols + r) * width; return data[k : k+width] }
	}
	out := dumbTensor{dtype: t.dtype, shape: []int64{0}}
	for r := range height {
		second := r >= height/2
		if g.alternate {
			second = r%2 == 1
		}
		if joint && (p == "up") != (second != g.upFirst) {
			continue
		}
		out.shape[0]++
		for c := range across {
			out.data = append(out.data, element(r, c)...)
		}
	}
	if len(shape) == 2 {
		out.shape = append(out.shape, int64(across))
	}
	return out
}

// checkRegrouped compares all of a view with what the regrouper makes.
func checkRegrouped(t *testing.T, dir plan.Dir, m *memory, view string, shows map[string][]dumbTensor, others string) {
	t.Helper()
	want := dumbDir(shows)
	for _, f := range files(t, dir, others) {
		if path := strings.TrimPrefix(f.path, others+"/"); !strings.HasSuffix(path, ".safetensors") && want[path] == nil {
			want[path] = content(t, m, f)
		}
	}
	checkDir(t, dir, m, view, want)
}

// TestNativeRegrouped: split/ and fused/ of a release in every naming form, byte for byte.
func TestNativeRegrouped(t *testing.T) {
	for _, f := range testrel.Families() {
		t.Run(f.Name, func(t *testing.T) {
			dir, m := open(f.Release)
			base, stacked := splitBases[f.Name]
			view, other := "fused", "split"
			if stacked {
				view, other = other, view
			}
			for _, v := range []string{view, other} {
				if absent := v == other || slices.Contains(computedOnly, f.Name); absent != absentView(t, dir, v) {
					t.Fatalf("%s: absent should be %v", v, absent)
				} else if absent {
					continue
				}
				shows := newDumbFamily(f).shows
				checkRegrouped(t, dir, m, v, newRegrouper(formOf(t, f.Name, flatten(shows)), base, shows).shows(), "resident")
			}
		})
	}
}

// checkComputedRegrouped: split-bf16/ or fused-bf16/ is what the regrouper makes of the tensors of bf16/.
func checkComputedRegrouped(t *testing.T, dir plan.Dir, m *memory, f testrel.Family) {
	shows := map[string][]dumbTensor{}
	for _, x := range files(t, dir, "bf16") {
		if !strings.HasSuffix(x.path, ".safetensors") {
			continue
		}
		for name, d := range parse(t, dir, m, x.path) {
			if d.dtype == "F32" && !slices.Contains(f.Resident, name) {
				d.dtype, d.data = "BF16", roundF32(d.data)
			}
			shows[x.path] = append(shows[x.path], d)
		}
	}
	base, stacked := splitBases[f.Name]
	view, other := "fused-bf16", "split-bf16"
	if stacked {
		view, other = other, view
	}
	if !absentView(t, dir, other) {
		t.Errorf("%s is there", other)
	}
	checkRegrouped(t, dir, m, view, newRegrouper(formOf(t, f.Name, flatten(shows)), base, shows).shows(), "bf16")
}

func flatten(shows map[string][]dumbTensor) parsed {
	out := parsed{}
	for _, ts := range shows {
		for _, d := range ts {
			out[d.name] = d
		}
	}
	return out
}

// distinct makes a release of one shard whose bytes differ from tensor to tensor.
func distinct(config string, lines []string) (*memory, map[string][]dumbTensor) {
	var ts []dumbTensor
	for _, line := range lines {
		part := strings.Fields(line)
		d := dumbTensor{name: part[0], dtype: part[1]}
		for _, n := range part[2:] {
			d.shape = append(d.shape, int64(atoi(n)))
		}
		for k := uint32(0); int64(len(d.data)) < count(d.shape)*int64(widths[d.dtype]); k++ {
			sum := sha256.Sum256(binary.LittleEndian.AppendUint32([]byte(d.name), k))
			d.data = append(d.data, sum[:]...)
		}
		d.data = d.data[:count(d.shape)*int64(widths[d.dtype])]
		ts = append(ts, d)
	}
	return fromFiles("made", map[string][]byte{"model.safetensors": dumbShard(ts), "config.json": []byte(config)}), map[string][]dumbTensor{"model.safetensors": ts}
}

// TestNativeBlockScales: FP8 experts whose blocks of 128 rows end where gate does are regrouped with their scales, both ways.
func TestNativeBlockScales(t *testing.T) {
	const config = `{"hidden_size":384,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`
	numbered := []string{"model.layers.1.mlp.gate.weight BF16 5 384"}
	for e := range 5 {
		at := fmt.Sprintf("model.layers.1.mlp.experts.%d.", e)
		numbered = append(numbered,
			at+"gate_proj.weight F8_E4M3 256 384", at+"gate_proj.weight_scale_inv F32 2 3", at+"up_proj.weight F8_E4M3 256 384",
			at+"up_proj.weight_scale_inv F32 2 3", at+"down_proj.weight F8_E4M3 384 256", at+"down_proj.weight_scale_inv F32 3 2")
	}
	m, shows := distinct(config, numbered)
	f := form{prefix: "model.layers.{L}.mlp.experts.{E}.", gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight"}
	checkRegrouped(t, m.tree(), m, "fused", newRegrouper(f, "", shows).shows(), "resident")

	const base = "model.layers.{L}.mlp.experts."
	m, shows = distinct(config, []string{"model.layers.1.mlp.gate.weight BF16 5 384",
		"model.layers.1.mlp.experts.gate_up_proj F8_E4M3 5 512 384", "model.layers.1.mlp.experts.gate_up_proj_scale_inv F32 5 4 3",
		"model.layers.1.mlp.experts.down_proj F8_E4M3 5 384 256", "model.layers.1.mlp.experts.down_proj_scale_inv F32 5 3 2"})
	f = form{prefix: base, joint: "gate_up_proj", down: "down_proj", fused: true}
	checkRegrouped(t, m.tree(), m, "split", newRegrouper(f, base, shows).shows(), "resident")
}

// TestBlockScalesRefused: block scales that have no exact form beside gate and up alone are refused by name.
func TestBlockScalesRefused(t *testing.T) {
	config := func(model string, block int) string {
		return fmt.Sprintf(`{"hidden_size":384,"model_type":%q,"quantization_config":{"quant_method":"fp8","weight_block_size":[%d,128]}}`, model, block)
	}
	const at = "model.layers.1.mlp.experts."
	oriented := []string{"model.layers.1.mlp.router.weight BF16 5 384", at + "gate_up_proj F8_E4M3 5 512 384", at + "gate_up_proj_scale_inv F32 5 4 3",
		at + "down_proj F8_E4M3 5 384 256", at + "down_proj_scale_inv F32 5 3 2"}
	biased := append(slices.Clone(oriented), at+"gate_up_proj_bias BF16 5 512", at+"down_proj_bias BF16 5 384")
	for _, c := range []struct {
		name, config, want string
		lines              []string
	}{
		{"gate and up alternate", config("gpt_oss", 128), "alternate", biased},
		{"in, out", config("made", 128), "[in, out]", []string{oriented[0], at + "gate_up_proj F8_E4M3 5 384 512", at + "gate_up_proj_scale_inv F32 5 3 4",
			at + "down_proj F8_E4M3 5 256 384", at + "down_proj_scale_inv F32 5 2 3"}},
		{"a block has both", config("made", 128), "straddle", []string{oriented[0], at + "gate_up_proj F8_E4M3 5 384 384", at + "gate_up_proj_scale_inv F32 5 3 3",
			at + "down_proj F8_E4M3 5 384 192", at + "down_proj_scale_inv F32 5 3 2"}},
	} {
		m, _ := distinct(c.config, c.lines)
		var a *Absent
		if _, err := plan.Walk(t.Context(), m.tree(), "split"); !errors.As(err, &a) || !strings.Contains(err.Error(), at+"gate_up_proj_scale_inv") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
