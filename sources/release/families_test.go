package release

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weightfs/sources/safetensors"
)

// spec is tensors of one shape; {L} and {E} in the name run over the layers and experts of a case.
type spec struct {
	name  string
	dtype safetensors.DType
	shape []int64
}

func bf(name string, shape ...int64) spec { return spec{name, safetensors.BF16, shape} }

func typed(d safetensors.DType, name string, shape ...int64) spec { return spec{name, d, shape} }

// expand makes the tensors of specs for these layers and experts 0..experts-1.
func expand(layers []int, experts int, specs ...spec) (out []ten) {
	for _, s := range specs {
		ls, es := []int{0}, 1
		if strings.Contains(s.name, "{L}") {
			ls = layers
		}
		if strings.Contains(s.name, "{E}") {
			es = experts
		}
		for _, l := range ls {
			for e := range es {
				name := strings.ReplaceAll(strings.ReplaceAll(s.name, "{L}", strconv.Itoa(l)), "{E}", strconv.Itoa(e))
				out = append(out, ten{name, s.dtype, s.shape})
			}
		}
	}
	return out
}

// layout is Experts in one line: family, prefix, layers, experts, and the parts with T for transposed, I for interleaved, U for up first,
// S for shared.
func layout(x *Experts, reason string) string {
	if x == nil {
		return "none: " + reason
	}
	var parts []string
	for _, p := range x.Parts {
		flags := ""
		for _, f := range []struct {
			on   bool
			name string
		}{{p.Transposed, "T"}, {p.Interleaved, "I"}, {p.UpFirst, "U"}, {p.Shared, "S"}} {
			if f.on {
				flags += f.name
			}
		}
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s.%s %s%v %s", p.Projection, p.Suffix, p.DTypeName, p.Shape, flags)))
	}
	return fmt.Sprintf("%s under %s, layers %v x %d, H %d I %d: %s", x.Family, x.Prefix, x.Layers, x.PerLayer, x.Hidden, x.Intermediate, strings.Join(parts, ", "))
}

// residentNames are the tensors that are no routed experts.
func residentNames(rel *Release) (names []string) {
	for ref := range rel.All() {
		if rel.Role(ref) == Resident {
			names = append(names, rel.Tensor(ref).Name)
		}
	}
	slices.Sort(names)
	return names
}

// The shapes below have a hidden size of 8 and an inner width of 6, unless said otherwise.
var (
	pw = func(base string) []spec { // gate, up, down as nn.Linear
		return []spec{bf(base+"gate_proj.weight", 6, 8), bf(base+"up_proj.weight", 6, 8), bf(base+"down_proj.weight", 8, 6)}
	}
	ww = func(base string) []spec { // w1 gate, w3 up, w2 down
		return []spec{bf(base+"w1.weight", 6, 8), bf(base+"w2.weight", 8, 6), bf(base+"w3.weight", 6, 8)}
	}
	router = func(name string) spec { return bf(name, 3, 8) }
)

const (
	threeParts = "gate.weight BF16[6 8], up.weight BF16[6 8], down.weight BF16[8 6]"
	fusedOI    = "gate_up.weight BF16[12 8], down.weight BF16[8 6]"
	fusedIO    = "gate_up.weight BF16[8 12] T, down.weight BF16[6 8] T"
	noMTP      = "none: no routed experts in multi-token-prediction layers"
	twoLayers  = ", layers [1 2] x 3, H 8 I 6: "
	fusedName  = "experts.gate_up_proj fused under "
	twoByThree = "layers [1 2] x 3"
)

// TestFamilies has every naming form of the family table: layers 1 and 2, three experts.
func TestFamilies(t *testing.T) {
	U8, I8, I32, U32, F32, E8M0, E4M3 := safetensors.U8, safetensors.I8, safetensors.I32, safetensors.U32, safetensors.F32, safetensors.F8_E8M0, safetensors.F8_E4M3
	for _, c := range []struct {
		name     string
		experts  []spec // of layers 1 and 2
		resident []spec
		want     string
		mtp      string // noMTP if empty
		config   string
	}{
		{name: "qwen3_moe", experts: pw("model.layers.{L}.mlp.experts.{E}."), resident: []spec{router("model.layers.{L}.mlp.gate.weight")},
			want: "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "qwen2_moe", experts: pw("model.layers.{L}.mlp.experts.{E}."),
			resident: append(pw("model.layers.{L}.mlp.shared_expert."), bf("model.layers.{L}.mlp.shared_expert_gate.weight", 1, 8), router("model.layers.{L}.mlp.gate.weight")),
			want:     "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "qwen3_moe fp8", experts: []spec{
			typed(E4M3, "model.layers.{L}.mlp.experts.{E}.gate_proj.weight", 6, 8), bf("model.layers.{L}.mlp.experts.{E}.gate_proj.weight_scale_inv", 1, 1),
			typed(E4M3, "model.layers.{L}.mlp.experts.{E}.up_proj.weight", 6, 8), bf("model.layers.{L}.mlp.experts.{E}.up_proj.weight_scale_inv", 1, 1),
			typed(E4M3, "model.layers.{L}.mlp.experts.{E}.down_proj.weight", 8, 6), bf("model.layers.{L}.mlp.experts.{E}.down_proj.weight_scale_inv", 1, 1)},
			want: "mlp.experts under model.layers" + twoLayers + "gate.weight F8_E4M3[6 8], gate.weight_scale_inv BF16[1 1], up.weight F8_E4M3[6 8], up.weight_scale_inv BF16[1 1], down.weight F8_E4M3[8 6], down.weight_scale_inv BF16[1 1]"},
		{name: "qwen3_next", experts: append(pw("model.layers.{L}.mlp.experts.{E}."), pw("mtp.layers.0.mlp.experts.{E}.")...),
			resident: []spec{bf("mtp.fc.weight", 8, 16), bf("mtp.norm.weight", 8)},
			want:     "mlp.experts under model.layers" + twoLayers + threeParts, mtp: "mlp.experts under mtp.layers, layers [0] x 3, H 8 I 6: " + threeParts},
		{name: "qwen3_vl_moe", experts: []spec{bf("model.language_model.layers.{L}.mlp.experts.gate_up_proj", 3, 8, 12), bf("model.language_model.layers.{L}.mlp.experts.down_proj", 3, 6, 8)},
			resident: []spec{router("model.language_model.layers.{L}.mlp.gate.weight")},
			want:     fusedName + "model.language_model.layers" + twoLayers + fusedIO},
		{name: "qwen3_5_moe", experts: []spec{bf("model.language_model.layers.{L}.mlp.experts.gate_up_proj", 3, 12, 8), bf("model.language_model.layers.{L}.mlp.experts.down_proj", 3, 8, 6),
			bf("mtp.layers.0.mlp.experts.gate_up_proj", 3, 12, 8), bf("mtp.layers.0.mlp.experts.down_proj", 3, 8, 6)},
			resident: append(pw("model.language_model.layers.{L}.mlp.shared_expert."), router("model.language_model.layers.{L}.mlp.gate.weight"), bf("model.language_model.layers.{L}.mlp.shared_expert_gate.weight", 1, 8)),
			want:     fusedName + "model.language_model.layers" + twoLayers + fusedOI, mtp: fusedName + "mtp.layers, layers [0] x 3, H 8 I 6: " + fusedOI},
		{name: "qwen3_5_moe fused fp8", experts: []spec{typed(E4M3, "model.layers.{L}.mlp.experts.gate_up_proj", 3, 12, 8), bf("model.layers.{L}.mlp.experts.gate_up_proj_scale_inv", 3, 1, 1),
			typed(E4M3, "model.layers.{L}.mlp.experts.down_proj", 3, 8, 6), bf("model.layers.{L}.mlp.experts.down_proj_scale_inv", 3, 1, 1)},
			want: fusedName + "model.layers" + twoLayers + "gate_up.weight F8_E4M3[12 8], gate_up.scale_inv BF16[1 1], down.weight F8_E4M3[8 6], down.scale_inv BF16[1 1]"},
		{name: "fused with one scale a layer", experts: []spec{typed(E4M3, "model.layers.{L}.mlp.experts.gate_up_proj", 3, 12, 8), typed(F32, "model.layers.{L}.mlp.experts.gate_up_proj_weight_scale"),
			typed(E4M3, "model.layers.{L}.mlp.experts.down_proj", 3, 8, 6), typed(F32, "model.layers.{L}.mlp.experts.down_proj_weight_scale", 1)},
			want: fusedName + "model.layers" + twoLayers + "gate_up.weight F8_E4M3[12 8], gate_up.weight_scale F32[] S, down.weight F8_E4M3[8 6], down.weight_scale F32[1] S"},
		{name: "mixtral", experts: ww("model.layers.{L}.block_sparse_moe.experts.{E}."), resident: []spec{router("model.layers.{L}.block_sparse_moe.gate.weight")},
			want: "block_sparse_moe.experts under model.layers" + twoLayers + threeParts},
		{name: "deepseek_v3", experts: append(pw("model.layers.{L}.mlp.experts.{E}."), pw("model.layers.3.mlp.experts.{E}.")...),
			resident: append(pw("model.layers.{L}.mlp.shared_experts."), append(pw("model.layers.0.mlp."), bf("model.layers.{L}.mlp.gate.e_score_correction_bias", 3),
				bf("model.layers.3.eh_proj.weight", 8, 16), bf("model.layers.3.enorm.weight", 8))...),
			want: "mlp.experts under model.layers" + twoLayers + threeParts, mtp: "mlp.experts under model.layers, layers [3] x 3, H 8 I 6: " + threeParts},
		{name: "deepseek_v3 by config alone", experts: append(pw("model.layers.{L}.mlp.experts.{E}."), pw("model.layers.3.mlp.experts.{E}.")...), config: `{"num_hidden_layers": 3}`,
			want: "mlp.experts under model.layers" + twoLayers + threeParts, mtp: "mlp.experts under model.layers, layers [3] x 3, H 8 I 6: " + threeParts},
		{name: "deepseek_v4", experts: []spec{
			typed(I8, "layers.{L}.ffn.experts.{E}.w1.weight", 64, 32), typed(E8M0, "layers.{L}.ffn.experts.{E}.w1.scale", 64, 2),
			typed(I8, "layers.{L}.ffn.experts.{E}.w2.weight", 64, 32), typed(E8M0, "layers.{L}.ffn.experts.{E}.w2.scale", 64, 2),
			typed(I8, "layers.{L}.ffn.experts.{E}.w3.weight", 64, 32), typed(E8M0, "layers.{L}.ffn.experts.{E}.w3.scale", 64, 2)},
			resident: append(ww("layers.{L}.ffn.shared_experts."), bf("layers.{L}.ffn.gate.weight", 3, 64), typed(F32, "layers.{L}.ffn.gate.bias", 3), typed(safetensors.I64, "layers.{L}.ffn.gate.tid2eid", 4, 2),
				bf("embed.weight", 4, 64), bf("head.weight", 4, 64)),
			want: "ffn.experts under layers, " + twoByThree + ", H 0 I 0: gate.weight I8[64 32], gate.scale F8_E8M0[64 2], up.weight I8[64 32], up.scale F8_E8M0[64 2], down.weight I8[64 32], down.scale F8_E8M0[64 2]"},
		{name: "deepseek_v4 mtp", experts: append(ww("layers.{L}.ffn.experts.{E}."), ww("mtp.0.ffn.experts.{E}.")...), resident: ww("mtp.0.ffn.shared_experts."),
			want: "ffn.experts under layers" + twoLayers + threeParts, mtp: "ffn.experts under mtp, layers [0] x 3, H 8 I 6: " + threeParts},
		{name: "kimi_k25", experts: []spec{
			typed(I32, "language_model.model.layers.{L}.mlp.experts.{E}.gate_proj.weight_packed", 6, 1), bf("language_model.model.layers.{L}.mlp.experts.{E}.gate_proj.weight_scale", 6, 1), typed(I32, "language_model.model.layers.{L}.mlp.experts.{E}.gate_proj.weight_shape", 2),
			typed(I32, "language_model.model.layers.{L}.mlp.experts.{E}.up_proj.weight_packed", 6, 1), bf("language_model.model.layers.{L}.mlp.experts.{E}.up_proj.weight_scale", 6, 1), typed(I32, "language_model.model.layers.{L}.mlp.experts.{E}.up_proj.weight_shape", 2),
			typed(I32, "language_model.model.layers.{L}.mlp.experts.{E}.down_proj.weight_packed", 8, 1), bf("language_model.model.layers.{L}.mlp.experts.{E}.down_proj.weight_scale", 8, 1), typed(I32, "language_model.model.layers.{L}.mlp.experts.{E}.down_proj.weight_shape", 2)},
			want: "mlp.experts under language_model.model.layers, " + twoByThree + ", H 0 I 0: gate.weight_packed I32[6 1], gate.weight_scale BF16[6 1], gate.weight_shape I32[2], up.weight_packed I32[6 1], up.weight_scale BF16[6 1], up.weight_shape I32[2], down.weight_packed I32[8 1], down.weight_scale BF16[8 1], down.weight_shape I32[2]"},
		{name: "kimi_linear", experts: append(ww("model.layers.{L}.block_sparse_moe.experts.{E}."), ww("model.mtp.layers.0.block_sparse_moe.experts.{E}.")...),
			resident: append(pw("model.layers.{L}.block_sparse_moe.shared_experts."), router("model.layers.{L}.block_sparse_moe.gate.weight"), bf("model.layers.{L}.block_sparse_moe.gate.e_score_correction_bias", 3)),
			want:     "block_sparse_moe.experts under model.layers" + twoLayers + threeParts, mtp: "block_sparse_moe.experts under model.mtp.layers, layers [0] x 3, H 8 I 6: " + threeParts},
		{name: "kimi_k3", experts: []spec{
			typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight_packed", 64, 32), typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight_scale", 64, 2),
			typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w2.weight_packed", 64, 32), typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w2.weight_scale", 64, 2),
			typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w3.weight_packed", 64, 32), typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w3.weight_scale", 64, 2)},
			resident: append(pw("language_model.model.layers.{L}.block_sparse_moe.shared_experts."), bf("language_model.model.layers.{L}.block_sparse_moe.routed_expert_down_proj.weight", 4, 8),
				bf("language_model.model.layers.{L}.block_sparse_moe.routed_expert_up_proj.weight", 8, 4), bf("language_model.model.layers.{L}.block_sparse_moe.routed_expert_norm.weight", 4),
				router("language_model.model.layers.{L}.block_sparse_moe.gate.weight"), bf("language_model.model.layers.0.mlp.gate_proj.weight", 6, 8), bf("vision_tower.blocks.0.mlp.fc1.weight", 4, 4)),
			want: "block_sparse_moe.experts under language_model.model.layers, " + twoByThree + ", H 0 I 0: gate.weight_packed U8[64 32], gate.weight_scale U8[64 2], up.weight_packed U8[64 32], up.weight_scale U8[64 2], down.weight_packed U8[64 32], down.weight_scale U8[64 2]"},
		{name: "glm4_moe fp8 per channel", experts: []spec{
			typed(E4M3, "model.language_model.layers.{L}.mlp.experts.{E}.gate_proj.weight", 6, 8), bf("model.language_model.layers.{L}.mlp.experts.{E}.gate_proj.weight_scale", 6, 1),
			typed(E4M3, "model.language_model.layers.{L}.mlp.experts.{E}.up_proj.weight", 6, 8), bf("model.language_model.layers.{L}.mlp.experts.{E}.up_proj.weight_scale", 6, 1),
			typed(E4M3, "model.language_model.layers.{L}.mlp.experts.{E}.down_proj.weight", 8, 6), bf("model.language_model.layers.{L}.mlp.experts.{E}.down_proj.weight_scale", 8, 1)},
			want: "mlp.experts under model.language_model.layers" + twoLayers + "gate.weight F8_E4M3[6 8], gate.weight_scale BF16[6 1], up.weight F8_E4M3[6 8], up.weight_scale BF16[6 1], down.weight F8_E4M3[8 6], down.weight_scale BF16[8 1]"},
		{name: "minimax_m2", experts: ww("model.layers.{L}.block_sparse_moe.experts.{E}."), resident: []spec{router("model.layers.{L}.block_sparse_moe.gate.weight"), bf("model.layers.{L}.block_sparse_moe.e_score_correction_bias", 3)},
			want: "block_sparse_moe.experts under model.layers" + twoLayers + threeParts},
		{name: "minimax_m3", experts: []spec{
			typed(E4M3, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight", 6, 32), typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight_scale_inv", 6, 1),
			typed(E4M3, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w2.weight", 32, 6), typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w2.weight_scale_inv", 32, 1),
			typed(E4M3, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w3.weight", 6, 32), typed(U8, "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.w3.weight_scale_inv", 6, 1)},
			want: "block_sparse_moe.experts under language_model.model.layers, " + twoByThree + ", H 32 I 6: gate.weight F8_E4M3[6 32], gate.weight_scale_inv U8[6 1], up.weight F8_E4M3[6 32], up.weight_scale_inv U8[6 1], down.weight F8_E4M3[32 6], down.weight_scale_inv U8[32 1]"},
		{name: "gpt_oss", experts: []spec{
			typed(U8, "model.layers.{L}.mlp.experts.gate_up_proj_blocks", 3, 64, 2, 16), typed(U8, "model.layers.{L}.mlp.experts.gate_up_proj_scales", 3, 64, 2), bf("model.layers.{L}.mlp.experts.gate_up_proj_bias", 3, 64),
			typed(U8, "model.layers.{L}.mlp.experts.down_proj_blocks", 3, 64, 1, 16), typed(U8, "model.layers.{L}.mlp.experts.down_proj_scales", 3, 64, 1), bf("model.layers.{L}.mlp.experts.down_proj_bias", 3, 64)},
			resident: []spec{bf("model.layers.{L}.mlp.router.weight", 3, 64), bf("model.layers.{L}.mlp.router.bias", 3)}, config: `{"model_type": "gpt_oss"}`,
			want: fusedName + "model.layers, " + twoByThree + ", H 0 I 0: gate_up.blocks U8[64 2 16] I, gate_up.scales U8[64 2] I, gate_up.bias BF16[64] I, down.blocks U8[64 1 16], down.scales U8[64 1], down.bias BF16[64]"},
		{name: "gpt_oss original", experts: []spec{
			typed(U8, "block.{L}.mlp.mlp1_weight.blocks", 3, 64, 2, 16), typed(U8, "block.{L}.mlp.mlp1_weight.scales", 3, 64, 2), bf("block.{L}.mlp.mlp1_bias", 3, 64),
			typed(U8, "block.{L}.mlp.mlp2_weight.blocks", 3, 64, 1, 16), typed(U8, "block.{L}.mlp.mlp2_weight.scales", 3, 64, 1), bf("block.{L}.mlp.mlp2_bias", 3, 64)},
			resident: []spec{bf("block.{L}.mlp.gate.weight", 3, 64), bf("block.{L}.mlp.gate.bias", 3)},
			want:     "mlp.mlp1_weight fused under block, " + twoByThree + ", H 0 I 0: gate_up.blocks U8[64 2 16] I, gate_up.scales U8[64 2] I, gate_up.bias BF16[64] I, down.blocks U8[64 1 16], down.scales U8[64 1], down.bias BF16[64]"},
		{name: "gpt_oss bf16", experts: []spec{
			bf("model.layers.{L}.mlp.experts.gate_up_proj", 3, 6, 12), bf("model.layers.{L}.mlp.experts.gate_up_proj_bias", 3, 12), bf("model.layers.{L}.mlp.experts.down_proj", 3, 6, 6), bf("model.layers.{L}.mlp.experts.down_proj_bias", 3, 6)},
			want: fusedName + "model.layers, " + twoByThree + ", H 6 I 6: gate_up.weight BF16[6 12] TI, gate_up.bias BF16[12] I, down.weight BF16[6 6] T, down.bias BF16[6]"},
		{name: "llama4", experts: []spec{bf("language_model.model.layers.{L}.feed_forward.experts.gate_up_proj", 3, 8, 12), bf("language_model.model.layers.{L}.feed_forward.experts.down_proj", 3, 6, 8)},
			resident: append(pw("language_model.model.layers.{L}.feed_forward.shared_expert."), router("language_model.model.layers.{L}.feed_forward.router.weight")),
			want:     fusedName + "language_model.model.layers" + twoLayers + fusedIO},
		{name: "granitemoe", experts: []spec{bf("model.layers.{L}.block_sparse_moe.input_linear.weight", 3, 12, 8), bf("model.layers.{L}.block_sparse_moe.output_linear.weight", 3, 8, 6)},
			resident: []spec{router("model.layers.{L}.block_sparse_moe.router.layer.weight"), bf("model.layers.{L}.shared_mlp.input_linear.weight", 12, 8), bf("model.layers.{L}.shared_mlp.output_linear.weight", 8, 6)},
			want:     "block_sparse_moe.input_linear fused under model.layers" + twoLayers + fusedOI},
		{name: "jamba", experts: pw("model.layers.{L}.feed_forward.experts.{E}."), resident: []spec{router("model.layers.{L}.feed_forward.router.weight")},
			want: "feed_forward.experts under model.layers" + twoLayers + threeParts},
		{name: "dbrx", experts: []spec{bf("transformer.blocks.{L}.ffn.experts.mlp.w1", 18, 8), bf("transformer.blocks.{L}.ffn.experts.mlp.v1", 18, 8), bf("transformer.blocks.{L}.ffn.experts.mlp.w2", 18, 8)},
			resident: []spec{router("transformer.blocks.{L}.ffn.router.layer.weight")},
			want:     "ffn.experts.mlp fused under transformer.blocks" + twoLayers + "gate.weight BF16[6 8], up.weight BF16[6 8], down.weight BF16[6 8] T"},
		{name: "hunyuan a13b", experts: pw("model.layers.{L}.mlp.experts.{E}."), resident: append(pw("model.layers.{L}.mlp.shared_mlp."), router("model.layers.{L}.mlp.gate.wg.weight")),
			want: "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "hunyuan large", experts: []spec{bf("model.layers.{L}.mlp.experts.{E}.gate_and_up_proj.weight", 12, 8), bf("model.layers.{L}.mlp.experts.{E}.down_proj.weight", 8, 6)},
			want: "mlp.experts under model.layers" + twoLayers + "gate_up.weight BF16[12 8] U, down.weight BF16[8 6]"},
		{name: "hy3", experts: pw("model.layers.{L}.mlp.experts.{E}."), resident: []spec{router("model.layers.{L}.mlp.router.gate.weight"), bf("model.layers.{L}.mlp.expert_bias", 3)},
			want: "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "ernie 4.5", experts: pw("model.layers.{L}.mlp.experts.{E}."),
			resident: append(pw("model.layers.{L}.mlp.shared_experts."), bf("model.layers.{L}.mlp.moe_statics.e_score_correction_bias", 1, 3), bf("model.mtp_block.0.mlp.gate_proj.weight", 6, 8), bf("model.mtp_linear_proj.0.weight", 8, 16)),
			want:     "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "ernie 4.5 paddle", experts: []spec{bf("ernie.layers.{L}.mlp.experts.{E}.up_gate_proj.weight", 8, 12), bf("ernie.layers.{L}.mlp.experts.{E}.down_proj.weight", 6, 8)},
			want: "mlp.experts under ernie.layers" + twoLayers + fusedIO},
		{name: "ernie 4.5 paddle, U16", experts: []spec{typed(safetensors.U16, "ernie.layers.{L}.mlp.experts.{E}.up_gate_proj.weight", 8, 12), typed(safetensors.U16, "ernie.layers.{L}.mlp.experts.{E}.down_proj.weight", 6, 8)},
			want: "mlp.experts under ernie.layers" + twoLayers + "gate_up.weight U16[8 12] T, down.weight U16[6 8] T"},
		{name: "exl3", experts: []spec{
			typed(safetensors.I16, "model.layers.{L}.mlp.experts.{E}.gate_proj.trellis", 1, 1, 64), typed(safetensors.F16, "model.layers.{L}.mlp.experts.{E}.gate_proj.svh", 16), typed(safetensors.F16, "model.layers.{L}.mlp.experts.{E}.gate_proj.suh", 16),
			typed(safetensors.I16, "model.layers.{L}.mlp.experts.{E}.up_proj.trellis", 1, 1, 64), typed(safetensors.F16, "model.layers.{L}.mlp.experts.{E}.up_proj.svh", 16), typed(safetensors.F16, "model.layers.{L}.mlp.experts.{E}.up_proj.suh", 16),
			typed(safetensors.I16, "model.layers.{L}.mlp.experts.{E}.down_proj.trellis", 1, 1, 64), typed(safetensors.F16, "model.layers.{L}.mlp.experts.{E}.down_proj.svh", 16), typed(safetensors.F16, "model.layers.{L}.mlp.experts.{E}.down_proj.suh", 16)},
			want: "mlp.experts under model.layers, " + twoByThree + ", H 0 I 0: gate.trellis I16[1 1 64], gate.suh F16[16], gate.svh F16[16], up.trellis I16[1 1 64], up.suh F16[16], up.svh F16[16], down.trellis I16[1 1 64], down.suh F16[16], down.svh F16[16]"},
		{name: "bailing", experts: pw("model.layers.{L}.mlp.experts.{E}."), resident: []spec{bf("model.layers.{L}.mlp.gate.expert_bias", 3), bf("model.word_embeddings.weight", 5, 8)},
			want: "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "step3", experts: []spec{bf("model.layers.{L}.moe.gate_proj.weight", 3, 6, 8), bf("model.layers.{L}.moe.up_proj.weight", 3, 6, 8), bf("model.layers.{L}.moe.down_proj.weight", 3, 8, 6)},
			resident: append(pw("model.layers.{L}.share_expert."), router("model.layers.{L}.moe.gate.weight"), bf("model.layers.{L}.moe.router_bias", 3)),
			want:     "moe fused under model.layers" + twoLayers + threeParts},
		{name: "longcat", experts: pw("model.layers.{L}.mlp.experts.{E}."),
			resident: append(pw("model.layers.{L}.mlps.0."), bf("model.layers.{L}.mlp.router.classifier.weight", 5, 8), bf("model.layers.{L}.mlp.router.e_score_correction_bias", 5), bf("model.mtp.layers.0.mlp.gate_proj.weight", 6, 8)),
			want:     "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "nemotron_h", experts: []spec{bf("backbone.layers.{L}.mixer.experts.{E}.up_proj.weight", 6, 4), bf("backbone.layers.{L}.mixer.experts.{E}.down_proj.weight", 4, 6),
			bf("mtp.layers.0.mixer.experts.{E}.up_proj.weight", 6, 4), bf("mtp.layers.0.mixer.experts.{E}.down_proj.weight", 4, 6)},
			resident: []spec{router("backbone.layers.{L}.mixer.gate.weight"), bf("backbone.layers.{L}.mixer.shared_experts.up_proj.weight", 6, 8), bf("backbone.layers.{L}.mixer.fc1_latent_proj.weight", 4, 8), bf("backbone.layers.{L}.mixer.gate.e_score_correction_bias", 3)},
			want:     "mixer.experts under backbone.layers, " + twoByThree + ", H 4 I 6: up.weight BF16[6 4], down.weight BF16[4 6]",
			mtp:      "mixer.experts under mtp.layers, layers [0] x 3, H 4 I 6: up.weight BF16[6 4], down.weight BF16[4 6]"},
		{name: "arctic", experts: ww("model.layers.{L}.block_sparse_moe.experts.{E}."), resident: ww("model.layers.{L}.residual_mlp."),
			want: "block_sparse_moe.experts under model.layers" + twoLayers + threeParts},
		{name: "grok-1", experts: []spec{bf("transformer.decoder_layer.{L}.moe.{E}.linear.weight", 6, 8), bf("transformer.decoder_layer.{L}.moe.{E}.linear_v.weight", 6, 8), bf("transformer.decoder_layer.{L}.moe.{E}.linear_1.weight", 8, 6)},
			resident: []spec{router("transformer.decoder_layer.{L}.router.weight")},
			want:     "moe under transformer.decoder_layer" + twoLayers + threeParts},
		{name: "gemma4", experts: []spec{bf("model.language_model.layers.{L}.experts.gate_up_proj", 3, 12, 8), bf("model.language_model.layers.{L}.experts.down_proj", 3, 8, 6)},
			resident: append(pw("model.language_model.layers.{L}.mlp."), router("model.language_model.layers.{L}.router.proj.weight"), bf("model.language_model.layers.{L}.router.scale", 8), bf("model.language_model.layers.{L}.router.per_expert_scale", 3)),
			want:     fusedName + "model.language_model.layers" + twoLayers + fusedOI},
		{name: "mistral large 3", experts: []spec{
			typed(E4M3, "layers.{L}.experts.{E}.w1.weight", 6, 8), typed(F32, "layers.{L}.experts.{E}.w1.qscale_weight"), typed(F32, "layers.{L}.experts.{E}.w1.qscale_act"),
			typed(E4M3, "layers.{L}.experts.{E}.w2.weight", 8, 6), typed(F32, "layers.{L}.experts.{E}.w2.qscale_weight"), typed(F32, "layers.{L}.experts.{E}.w2.qscale_act"),
			typed(E4M3, "layers.{L}.experts.{E}.w3.weight", 6, 8), typed(F32, "layers.{L}.experts.{E}.w3.qscale_weight"), typed(F32, "layers.{L}.experts.{E}.w3.qscale_act")},
			resident: append(ww("layers.{L}.shared_experts."), router("layers.{L}.gate.weight"), bf("layers.0.feed_forward.w1.weight", 6, 8)),
			want:     "experts under layers" + twoLayers + "gate.weight F8_E4M3[6 8], gate.qscale_weight F32[], gate.qscale_act F32[], up.weight F8_E4M3[6 8], up.qscale_weight F32[], up.qscale_act F32[], down.weight F8_E4M3[8 6], down.qscale_weight F32[], down.qscale_act F32[]"},
		{name: "lfm2_moe", experts: ww("model.layers.{L}.feed_forward.experts.{E}."), resident: []spec{router("model.layers.{L}.feed_forward.gate.weight"), bf("model.layers.{L}.feed_forward.expert_bias", 3), bf("model.layers.0.feed_forward.w1.weight", 6, 8)},
			want: "feed_forward.experts under model.layers" + twoLayers + threeParts},
		{name: "lfm2_moe fused", experts: []spec{bf("model.layers.{L}.feed_forward.experts.gate_up_proj", 3, 12, 8), bf("model.layers.{L}.feed_forward.experts.down_proj", 3, 8, 6)},
			want: fusedName + "model.layers" + twoLayers + fusedOI},
		{name: "afmoe", experts: pw("model.layers.{L}.mlp.experts.{E}."), resident: []spec{router("model.layers.{L}.mlp.router.gate.weight"), bf("model.layers.{L}.mlp.expert_bias", 3)},
			want: "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "laguna", experts: pw("model.layers.{L}.mlp.experts.{E}."), resident: []spec{bf("model.layers.{L}.mlp.experts.e_score_correction_bias", 3)},
			want: "mlp.experts under model.layers" + twoLayers + threeParts},
		{name: "mlx 4-bit", experts: []spec{
			typed(U32, "language_model.model.layers.{L}.mlp.switch_mlp.gate_proj.weight", 3, 64, 8), bf("language_model.model.layers.{L}.mlp.switch_mlp.gate_proj.scales", 3, 64, 1), bf("language_model.model.layers.{L}.mlp.switch_mlp.gate_proj.biases", 3, 64, 1),
			typed(U32, "language_model.model.layers.{L}.mlp.switch_mlp.up_proj.weight", 3, 64, 8), bf("language_model.model.layers.{L}.mlp.switch_mlp.up_proj.scales", 3, 64, 1), bf("language_model.model.layers.{L}.mlp.switch_mlp.up_proj.biases", 3, 64, 1),
			typed(U32, "language_model.model.layers.{L}.mlp.switch_mlp.down_proj.weight", 3, 64, 8), bf("language_model.model.layers.{L}.mlp.switch_mlp.down_proj.scales", 3, 64, 1), bf("language_model.model.layers.{L}.mlp.switch_mlp.down_proj.biases", 3, 64, 1)},
			want: "switch_mlp fused under language_model.model.layers, " + twoByThree + ", H 0 I 0: gate.weight U32[64 8], gate.scales BF16[64 1], gate.biases BF16[64 1], up.weight U32[64 8], up.scales BF16[64 1], up.biases BF16[64 1], down.weight U32[64 8], down.scales BF16[64 1], down.biases BF16[64 1]"},
		{name: "mlx gemma4", experts: []spec{bf("language_model.model.layers.{L}.experts.switch_glu.gate_proj.weight", 3, 6, 8), bf("language_model.model.layers.{L}.experts.switch_glu.up_proj.weight", 3, 6, 8), bf("language_model.model.layers.{L}.experts.switch_glu.down_proj.weight", 3, 8, 6)},
			want: "switch_mlp fused under language_model.model.layers" + twoLayers + threeParts},
		{name: "gptq", experts: []spec{
			typed(I32, "model.layers.{L}.mlp.experts.{E}.gate_proj.qweight", 4, 8), typed(I32, "model.layers.{L}.mlp.experts.{E}.gate_proj.qzeros", 1, 1), bf("model.layers.{L}.mlp.experts.{E}.gate_proj.scales", 1, 8), typed(I32, "model.layers.{L}.mlp.experts.{E}.gate_proj.g_idx", 32),
			typed(I32, "model.layers.{L}.mlp.experts.{E}.up_proj.qweight", 4, 8), typed(I32, "model.layers.{L}.mlp.experts.{E}.up_proj.qzeros", 1, 1), bf("model.layers.{L}.mlp.experts.{E}.up_proj.scales", 1, 8), typed(I32, "model.layers.{L}.mlp.experts.{E}.up_proj.g_idx", 32),
			typed(I32, "model.layers.{L}.mlp.experts.{E}.down_proj.qweight", 1, 32), typed(I32, "model.layers.{L}.mlp.experts.{E}.down_proj.qzeros", 1, 4), bf("model.layers.{L}.mlp.experts.{E}.down_proj.scales", 1, 32), bf("model.layers.{L}.mlp.experts.{E}.down_proj.bias", 32), bf("model.layers.{L}.mlp.experts.{E}.down_proj.zebra", 1), bf("model.layers.{L}.mlp.experts.{E}.down_proj.ant", 1)},
			want: "mlp.experts under model.layers, " + twoByThree + ", H 0 I 0: gate.qweight I32[4 8], gate.scales BF16[1 8], gate.qzeros I32[1 1], gate.g_idx I32[32], up.qweight I32[4 8], up.scales BF16[1 8], up.qzeros I32[1 1], up.g_idx I32[32], " +
				"down.qweight I32[1 32], down.scales BF16[1 32], down.qzeros I32[1 4], down.bias BF16[32], down.ant BF16[1], down.zebra BF16[1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			layers := []int{1, 2}
			resident := expand(layers, 3, c.resident...)
			rel := one(t, c.config, append(expand(layers, 3, c.experts...), resident...)...)
			if got := layout(rel.Experts, rel.NoExperts); got != c.want {
				t.Errorf("experts\n got %s\nwant %s", got, c.want)
			}
			mtp := c.mtp
			if mtp == "" {
				mtp = noMTP
			}
			if got := layout(rel.MTP, rel.NoMTP); got != mtp {
				t.Errorf("MTP\n got %s\nwant %s", got, mtp)
			}
			var want []string
			for _, x := range resident {
				want = append(want, x.name)
			}
			slices.Sort(want)
			if got := residentNames(rel); !slices.Equal(got, want) {
				t.Errorf("resident\n got %v\nwant %v", got, want)
			}
			checkParts(t, rel, rel.Experts)
			checkParts(t, rel, rel.MTP)
		})
	}
}

// checkParts finds every part's tensor by its template and compares it with Ref.
func checkParts(t *testing.T, rel *Release, x *Experts) {
	t.Helper()
	if x == nil {
		return
	}
	for i := range x.Parts {
		p := &x.Parts[i]
		for li, l := range x.Layers {
			for e := range x.PerLayer {
				name := strings.ReplaceAll(strings.ReplaceAll(p.Tensor, "{layer}", strconv.Itoa(l)), "{expert}", strconv.Itoa(e))
				want, ok := rel.Lookup(name)
				ref, off := p.Ref(li, e, x.PerLayer)
				if !ok || ref != want {
					t.Fatalf("part %s.%s of layer %d, expert %d: ref %v, tensor %q is %v %t", p.Projection, p.Suffix, l, e, ref, name, want, ok)
				}
				tensor := rel.Tensor(ref)
				if off+p.Bytes > tensor.End-tensor.Start {
					t.Errorf("part %s.%s of expert %d reaches %d in a tensor of %d bytes", p.Projection, p.Suffix, e, off+p.Bytes, tensor.End-tensor.Start)
				}
				if n, err := safetensors.Bytes(p.Shape, p.DType); err != nil || n != p.Bytes {
					t.Errorf("part %s.%s has %d bytes, its shape %v %d (%v)", p.Projection, p.Suffix, p.Bytes, p.Shape, n, err)
				}
			}
		}
	}
}
