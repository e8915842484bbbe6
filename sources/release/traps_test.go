package release

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"weightfs/sources/safetensors"
)

// TestRefused has releases whose experts are refused, with what the reason must say.
func TestRefused(t *testing.T) {
	const m = "model.layers.{L}.mlp.experts."
	both := []string{"could be [out, in]", "or [in, out]"}
	for _, c := range []struct {
		name    string
		config  string
		tensors []ten
		says    []string
	}{
		{"layers with different expert counts", "",
			append(expand([]int{1}, 3, pw("model.layers.{L}.mlp.experts.{E}.")...), expand([]int{2}, 4, pw("model.layers.{L}.mlp.experts.{E}.")...)...),
			[]string{"different numbers of experts", "layer 1 has 3", "layer 2 has 4"}},
		{"fused layers with different expert counts", "",
			append(expand([]int{1}, 1, bf(m+"gate_up_proj", 3, 12, 8), bf(m+"down_proj", 3, 8, 6)), expand([]int{2}, 1, bf(m+"gate_up_proj", 4, 12, 8), bf(m+"down_proj", 4, 8, 6))...),
			[]string{"experts differ", "model.layers.1.mlp.experts.gate_up_proj", "[3 12 8]", "model.layers.2.mlp.experts.gate_up_proj", "[4 12 8]"}},
		{"layers with different shapes", "",
			append(expand([]int{1}, 3, pw("model.layers.{L}.mlp.experts.{E}.")...), expand([]int{2}, 3, bf(m+"{E}.gate_proj.weight", 4, 8), bf(m+"{E}.up_proj.weight", 4, 8), bf(m+"{E}.down_proj.weight", 8, 4))...),
			[]string{"experts differ", "model.layers.1.mlp.experts.0.gate_proj.weight", "[6 8]", "model.layers.2.mlp.experts.0.gate_proj.weight", "[4 8]"}},
		{"layers with different shapes of equal size", "",
			append(expand([]int{1}, 3, pw("model.layers.{L}.mlp.experts.{E}.")...), expand([]int{2}, 3, bf(m+"{E}.gate_proj.weight", 8, 6), bf(m+"{E}.up_proj.weight", 8, 6), bf(m+"{E}.down_proj.weight", 6, 8))...),
			[]string{"experts differ", `"BF16"[6 8]`, `"BF16"[8 6]`}},
		{"layers with different dtypes", "",
			append(expand([]int{1}, 3, pw("model.layers.{L}.mlp.experts.{E}.")...),
				expand([]int{2}, 3, typed(safetensors.F16, m+"{E}.gate_proj.weight", 6, 8), bf(m+"{E}.up_proj.weight", 6, 8), bf(m+"{E}.down_proj.weight", 8, 6))...),
			[]string{"experts differ", `"BF16"[6 8]`, `"F16"[6 8]`}},
		{"an expert is missing", "",
			expand([]int{1}, 1, bf("model.layers.{L}.mlp.experts.0.gate_proj.weight", 6, 8), bf("model.layers.{L}.mlp.experts.2.gate_proj.weight", 6, 8)),
			[]string{"without gaps", "2 a layer", "expert 2"}},
		{"a projection of one expert is missing", "",
			expand([]int{1, 2}, 3, pw("model.layers.{L}.mlp.experts.{E}.")...)[:17],
			[]string{`"model.layers.{layer}.mlp.experts.{expert}.down_proj.weight" is missing for layer 2, expert 2`}},
		{"a scale of one expert is missing", "",
			append(expand([]int{1, 2}, 3, pw("model.layers.{L}.mlp.experts.{E}.")...), bf16("model.layers.2.mlp.experts.1.gate_proj.weight_scale_inv", 1, 1)),
			[]string{"weight_scale_inv", "layer 1, expert 0"}},
		{"no down", "", expand([]int{1}, 2, bf(m+"{E}.gate_proj.weight", 6, 8), bf(m+"{E}.up_proj.weight", 6, 8)), []string{"projections [gate up]", "expected gate, up and down"}},
		{"gate_up and gate", "", expand([]int{1}, 1, bf(m+"gate_up_proj", 2, 12, 8), bf(m+"gate_proj", 2, 6, 8), bf(m+"down_proj", 2, 8, 6)), []string{"projections [gate gate_up down]"}},
		{"scales without weights", "", expand([]int{1}, 2, bf(m+"{E}.gate_proj.weight_scale", 1)), []string{"side tensors but no weights"}},
		{"two tensors of weights", "", append(expand([]int{1}, 2, pw("model.layers.{L}.mlp.experts.{E}.")...), expand([]int{1}, 2, typed(safetensors.I32, m+"{E}.up_proj.qweight", 2, 2))...),
			[]string{"two tensors of weights for up", "up_proj.weight", "up_proj.qweight"}},
		{"an unknown tensor of an expert", "", append(expand([]int{1}, 2, pw("model.layers.{L}.mlp.experts.{E}.")...), bf16("model.layers.1.mlp.experts.0.surprise.weight", 2)),
			[]string{`"model.layers.1.mlp.experts.0.surprise.weight"`, "no known naming form"}},
		{"an expert's number with a zero before it", "", append(expand([]int{1}, 2, pw("model.layers.{L}.mlp.experts.{E}.")...), bf16("model.layers.1.mlp.experts.02.gate_proj.weight", 6, 8)),
			[]string{`"model.layers.1.mlp.experts.02.gate_proj.weight"`, "no known naming form"}},
		{"an expert's number beyond every count", "", append(expand([]int{1}, 2, pw("model.layers.{L}.mlp.experts.{E}.")...), bf16("model.layers.1.mlp.experts.99999999999999999999.gate_proj.weight", 6, 8)),
			[]string{`"model.layers.1.mlp.experts.99999999999999999999.gate_proj.weight"`, "no known naming form"}},
		{"no number is plain", "", append(expand([]int{1}, 2, pw("model.layers.{L}.mlp.experts.{E}.")...), bf16("model.layers.01.mlp.experts.02.gate_proj.weight", 6, 8)),
			[]string{`"model.layers.01.mlp.experts.02.gate_proj.weight"`, "no known naming form"}},
		{"a family nobody knows", "", []ten{bf16("net.7.mix.experts.0.first", 2, 3)}, []string{`"net.7.mix.experts.0.first"`, "no known naming form"}},
		{"a family nobody knows, experts numbered otherwise", "", []ten{bf16("encoder.block.1.layer.1.mlp.experts.expert_0.wi.weight", 2, 3)}, []string{`"encoder.block.1.layer.1.mlp.experts.expert_0.wi.weight"`, "no known naming form"}},
		{"two sets", "", append(expand([]int{1}, 2, pw("thinker.model.layers.{L}.mlp.experts.{E}.")...), expand([]int{1}, 2, pw("talker.model.layers.{L}.mlp.experts.{E}.")...)...),
			[]string{"several sets", "mlp.experts under thinker.model.layers", "mlp.experts under talker.model.layers"}},
		{"one model in two forms", "", append(expand([]int{1}, 2, pw("model.layers.{L}.mlp.experts.{E}.")...), expand([]int{2}, 2, bf(m+"gate_up_proj", 2, 12, 8), bf(m+"down_proj", 2, 8, 6))...),
			[]string{"several sets", "mlp.experts under model.layers", "experts.gate_up_proj fused under model.layers"}},
		{"gate and up apart, square, nothing decides", "", expand([]int{1}, 1, bf(m+"gate_proj", 2, 8, 8), bf(m+"up_proj", 2, 8, 8), bf(m+"down_proj", 2, 8, 8), bf("model.layers.{L}.mlp.gate.weight", 2, 8)),
			append(both, "(hidden size 8) or [in, out] (hidden size 8)")},
		{"gate and up apart, no router and no norm", "", expand([]int{1}, 1, bf(m+"gate_proj", 2, 6, 8), bf(m+"up_proj", 2, 6, 8), bf(m+"down_proj", 2, 8, 6)),
			append(both, "(hidden size 8) or [in, out] (hidden size 6)", "router and norm do not say")},
		{"packed fused, no router and no norm", `{"hidden_size": 64}`, expand([]int{1}, 1, typed(safetensors.U8, m+"gate_up_proj", 2, 24, 32), typed(safetensors.U8, m+"down_proj", 2, 64, 6)),
			append(both, "router and norm do not say")},
		{"fused shapes fit neither way", "", expand([]int{1}, 1, bf(m+"gate_up_proj", 2, 10, 8), bf(m+"down_proj", 2, 8, 6)), []string{"do not fit each other", "[10 8]", "[8 6]"}},
		{"expert shapes do not fit", "", expand([]int{1}, 2, bf(m+"{E}.gate_proj.weight", 6, 8), bf(m+"{E}.up_proj.weight", 6, 8), bf(m+"{E}.down_proj.weight", 6, 8)), []string{"do not fit each other"}},
		{"Step fused the other way", "", expand([]int{1}, 1, bf("model.layers.{L}.moe.gate_proj.weight", 2, 8, 6), bf("model.layers.{L}.moe.up_proj.weight", 2, 8, 6), bf("model.layers.{L}.moe.down_proj.weight", 2, 6, 8), bf("model.layers.{L}.moe.gate.weight", 2, 8)),
			append(both, "hidden size of [8]")},
		{"gpt-oss without bias", `{"model_type": "gpt_oss"}`, expand([]int{1}, 1, bf(m+"gate_up_proj", 2, 8, 12), bf(m+"down_proj", 2, 6, 8)), []string{"gate rows, then up rows", "alternating rows"}},
		{"fused tensor without expert axis", "", expand([]int{1}, 1, bf(m+"gate_up_proj", 12, 8), bf(m+"down_proj", 8, 6)), []string{"gate_up_proj", "[12 8]", "[experts, out, in]"}},
		{"fused stack of four axes", "", expand([]int{1}, 1, bf(m+"gate_up_proj", 2, 12, 8, 2), bf(m+"down_proj", 2, 8, 6, 2)), []string{"gate_up_proj", "[12 8 2] for each expert", "[experts, out, in]"}},
		{"fused stack of four axes, down alone", "", expand([]int{1}, 1, bf(m+"gate_up_proj", 2, 12, 8), bf(m+"down_proj", 2, 8, 6, 1)), []string{"down_proj", "[8 6 1] for each expert"}},
		{"packed fused stack of four axes", "", expand([]int{1}, 1, typed(safetensors.U8, m+"gate_up_proj.weight_packed", 2, 12, 4, 2), typed(safetensors.U8, m+"down_proj.weight_packed", 2, 8, 3, 2), bf("model.layers.{L}.mlp.gate.weight", 2, 8)),
			[]string{"gate_up_proj.weight_packed", "[12 4 2] for each expert"}},
		{"blocks of five axes", "", expand([]int{1}, 1, typed(safetensors.U8, m+"gate_up_proj_blocks", 2, 64, 1, 4, 4), typed(safetensors.U8, m+"down_proj_blocks", 2, 32, 1, 4, 4)), []string{"gate_up_proj_blocks", "[64 1 4 4]"}},
		{"an expert's own tensor of three axes", "", expand([]int{1}, 2, bf(m+"{E}.gate_proj.weight", 6, 8, 1), bf(m+"{E}.up_proj.weight", 6, 8, 1), bf(m+"{E}.down_proj.weight", 8, 6, 1)), []string{"gate_proj.weight", "[6 8 1] for each expert", "expected [out, in]"}},
		{"an expert's own tensor without axes", "", expand([]int{1}, 2, typed(safetensors.U8, m+"{E}.up_gate_proj.weight"), typed(safetensors.U8, m+"{E}.down_proj.weight")), []string{"up_gate_proj.weight", "[] for each expert"}},
		{"fused side tensor of another count", "", expand([]int{1}, 1, bf(m+"gate_up_proj", 2, 12, 8), bf(m+"down_proj", 2, 8, 6), bf(m+"down_proj_scale_inv", 3, 1, 1)),
			[]string{"down_proj_scale_inv", "[3 1 1]", "first axis is not the 2 experts"}},
		{"half a byte an expert", "", expand([]int{1}, 1, typed(safetensors.F4, m+"gate_up_proj", 2, 2, 2), typed(safetensors.F4, m+"down_proj", 2, 1, 1)), []string{"down_proj", "does not begin on a byte"}},
		{"DBRX without router", "", expand([]int{1}, 1, bf("transformer.blocks.{L}.ffn.experts.mlp.w1", 12, 8), bf("transformer.blocks.{L}.ffn.experts.mlp.v1", 12, 8), bf("transformer.blocks.{L}.ffn.experts.mlp.w2", 12, 8)),
			[]string{"12 rows", "neither router nor config"}},
		{"layer numbers that nest", "", []ten{bf16("a.0.layers.1.mlp.experts.0.gate_proj.weight", 6, 8)}, []string{"a.0.layers.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rel := one(t, c.config, c.tensors...)
			if rel.Experts != nil {
				t.Fatalf("not refused: %s", layout(rel.Experts, ""))
			}
			for _, s := range c.says {
				if !strings.Contains(rel.NoExperts, s) {
					t.Errorf("reason %q does not say %q", rel.NoExperts, s)
				}
			}
			for _, x := range c.tensors {
				ref, _ := rel.Lookup(x.name)
				if strings.Contains(x.name, "experts") && rel.Role(ref) != Routed {
					t.Errorf("%s has role %d although it is a routed expert's", x.name, rel.Role(ref))
				}
			}
		})
	}
}

// TestUnknownFused has experts that no row knows without a number of their own: they are resident, and nothing says that the model is dense.
func TestUnknownFused(t *testing.T) {
	rel := one(t, "", bf16("encoder.layers.1.mlp.experts.mlp.w1", 12, 8))
	if want := `tensor "encoder.layers.1.mlp.experts.mlp.w1" looks like routed experts, and no known naming form has it`; rel.Experts != nil || rel.NoExperts != want {
		t.Errorf("reason %q", rel.NoExperts)
	}
	rel = one(t, `{"num_experts": 8}`, bf16("model.layers.1.mlp.strange", 8, 12, 8))
	if want := "config says 8 experts, and no tensor has a name that is known of routed experts"; rel.Experts != nil || rel.NoExperts != want {
		t.Errorf("reason %q", rel.NoExperts)
	}
	rel = one(t, "", append(expand([]int{1}, 2, pw("model.layers.{L}.mlp.experts.{E}.")...), bf16("model.layers.1.mlp.experts.strange", 3))...)
	if rel.Experts == nil || len(rel.Notes) != 1 || !strings.Contains(rel.Notes[0], `resident: "model.layers.1.mlp.experts.strange"`) {
		t.Errorf("%s, notes %q", layout(rel.Experts, rel.NoExperts), rel.Notes)
	}
}

// TestOrientation decides between [out, in] and [in, out] where one of the two is easily mistaken.
func TestOrientation(t *testing.T) {
	const m = "model.layers.{L}.mlp.experts."
	for _, c := range []struct {
		name    string
		tensors []spec
		want    bool // transposed
	}{
		{"H = 2I, [out, in]", []spec{bf(m+"gate_up_proj", 3, 8, 8), bf(m+"down_proj", 3, 8, 4)}, false},
		{"H = 2I, [in, out]", []spec{bf(m+"gate_up_proj", 3, 8, 8), bf(m+"down_proj", 3, 4, 8)}, true},
		{"H = I, [out, in]", []spec{bf(m+"gate_up_proj", 3, 16, 8), bf(m+"down_proj", 3, 8, 8)}, false},
		{"H = I, [in, out]", []spec{bf(m+"gate_up_proj", 3, 8, 16), bf(m+"down_proj", 3, 8, 8)}, true},
		{"I > H, no router", []spec{bf(m+"gate_up_proj", 3, 40, 8), bf(m+"down_proj", 3, 8, 20)}, false},
		{"the router says another width (latent experts)", []spec{bf(m+"gate_up_proj", 3, 12, 4), bf(m+"down_proj", 3, 4, 6), bf("model.layers.{L}.mlp.gate.weight", 3, 8)}, false},
		{"apart, by router", []spec{bf(m+"gate_proj", 3, 6, 8), bf(m+"up_proj", 3, 6, 8), bf(m+"down_proj", 3, 8, 6), bf("model.layers.{L}.mlp.gate.weight", 3, 8)}, false},
		{"apart, by router, transposed", []spec{bf(m+"gate_proj", 3, 8, 6), bf(m+"up_proj", 3, 8, 6), bf(m+"down_proj", 3, 6, 8), bf("model.layers.{L}.mlp.gate.weight", 3, 8)}, true},
		{"apart, by norm", []spec{bf(m+"gate_proj", 3, 8, 6), bf(m+"up_proj", 3, 8, 6), bf(m+"down_proj", 3, 6, 8), bf("model.layers.{L}.input_layernorm.weight", 8)}, true},
		{"packed, by router", []spec{typed(safetensors.U8, m+"gate_up_proj", 3, 12, 4), typed(safetensors.U8, m+"down_proj", 3, 8, 3), bf("model.layers.{L}.mlp.gate.weight", 3, 8)}, false},
		{"packed, by router, transposed", []spec{typed(safetensors.U8, m+"gate_up_proj", 3, 8, 6), typed(safetensors.U8, m+"down_proj", 3, 6, 4), bf("model.layers.{L}.mlp.gate.weight", 3, 8)}, true},
		{"no gate, by router", []spec{bf(m+"up_proj", 3, 6, 8), bf(m+"down_proj", 3, 8, 6), bf("model.layers.{L}.mlp.gate.weight", 3, 8)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rel := one(t, "", expand([]int{0, 1}, 1, c.tensors...)...)
			if rel.Experts == nil {
				t.Fatal(rel.NoExperts)
			}
			for _, p := range rel.Experts.Parts {
				if p.Transposed != c.want {
					t.Errorf("%s.%s: transposed %t, want %t", p.Projection, p.Suffix, p.Transposed, c.want)
				}
			}
		})
	}
}

// TestConfigDecidesNothing opens one layout under configs that contradict it.
func TestConfigDecidesNothing(t *testing.T) {
	tensors := expand([]int{0, 1}, 1, bf("model.layers.{L}.mlp.experts.gate_up_proj", 3, 12, 8), bf("model.layers.{L}.mlp.experts.down_proj", 3, 8, 6))
	want := layout(one(t, "", tensors...).Experts, "")
	for _, config := range []string{
		`{"model_type": "qwen3_vl_moe", "hidden_size": 12, "num_experts": 7, "moe_intermediate_size": 4, "num_hidden_layers": 2}`,
		`{"hidden_size": NaN, "num_experts": -Infinity}`,
		`{"hidden_size": "8"`,
		`[]`,
		"\xff\xfe",
		strings.Repeat(`{"a":`, 100000),
		`{"num_hidden_layers": 0}`,
	} {
		rel := one(t, config, tensors...)
		if got := layout(rel.Experts, rel.NoExperts); got != want {
			t.Errorf("config %.60q\n got %s\nwant %s", config, got, want)
		}
		if !strings.Contains(config, `_layers": 0`) && len(rel.Notes) == 0 {
			t.Errorf("config %.60q: nothing noted", config)
		}
	}
}

// TestNameInTwoShards is Grok-2's case: tensors cut for tensor parallelism have one name in several files.
func TestNameInTwoShards(t *testing.T) {
	f := newFake().
		shard(t, "pytorch_model-00000-TP-000.safetensors", bf16("model.layers.0.block_sparse_moe.experts.0.w1.weight", 6, 8)).
		shard(t, "pytorch_model-00000-TP-001.safetensors", bf16("model.layers.0.block_sparse_moe.experts.0.w1.weight", 6, 8))
	_, err := Open(context.Background(), f.listing(), f)
	if !errors.Is(err, ErrBadRelease) {
		t.Fatalf("error %v", err)
	}
	for _, s := range []string{`"model.layers.0.block_sparse_moe.experts.0.w1.weight"`, `"pytorch_model-00000-TP-000.safetensors"`, `"pytorch_model-00000-TP-001.safetensors"`} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not name %s", err, s)
		}
	}
}

// TestHostileNames has names that look like experts without being a row's.
func TestHostileNames(t *testing.T) {
	var tensors []ten
	for i, n := range []string{
		"", ".", "..", "#", "a.#.b", "model.layers.#.mlp.experts.#.gate_proj.weight", "model.layers.01.mlp.experts.0.gate_proj.weights", "model.layers.1.mlp.gate.weight\x00",
		"model.layers.99999999999.mlp.gate.weight", "1", "1.2", ".1.", "\u202emodel", "experts", "../../etc/passwd",
	} {
		tensors = append(tensors, bf16(n, int64(i+1)))
	}
	rel := one(t, "", tensors...)
	if rel.Experts != nil || !strings.HasPrefix(rel.NoExperts, "tensor \"model.layers.01.mlp.experts.0") {
		t.Errorf("%v %q", rel.Experts, rel.NoExperts)
	}
	for _, x := range tensors {
		if ref, ok := rel.Lookup(x.name); !ok || rel.Tensor(ref).Name != x.name {
			t.Errorf("%q is not found", x.name)
		}
	}
	if _, ok := rel.Lookup("model"); ok {
		t.Error("found a tensor that is not there")
	}
}

// TestManyKinds bounds what a header of many classes and kinds makes the classifier hold.
func TestManyKinds(t *testing.T) {
	var tensors []ten
	for i := range 1000 {
		tensors = append(tensors, bf16(fmt.Sprintf("a.layers.0.mlp.experts.0.up_proj.s%d", i), 2), bf16(fmt.Sprintf("p%d.layers.0.mlp.experts.0.up_proj.weight", i), 2))
	}
	rel := one(t, "", tensors...)
	if rel.Experts != nil || rel.NoExperts == "" {
		t.Errorf("not refused")
	}
	c := rel.sortTensors()
	columns := 0
	for _, cl := range c.classes {
		columns = max(columns, len(cl.cols))
	}
	if len(c.classes) > maxClasses+1 || columns > maxColumns {
		t.Errorf("%d classes of up to %d columns", len(c.classes), columns)
	}
}

// TestLatentExperts has experts of another width than the model's, which is by chance their inner width.
func TestLatentExperts(t *testing.T) {
	rel := one(t, "", append(expand([]int{0}, 2, bf("backbone.layers.{L}.mixer.experts.{E}.up_proj.weight", 8, 4), bf("backbone.layers.{L}.mixer.experts.{E}.down_proj.weight", 4, 8)), bf16("backbone.layers.0.mixer.gate.weight", 2, 8))...)
	if rel.Experts == nil || rel.Experts.Hidden != 4 || rel.Experts.Parts[0].Transposed {
		t.Error(layout(rel.Experts, rel.NoExperts))
	}
}
