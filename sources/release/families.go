package release

import (
	"cmp"
	"slices"
	"strings"
)

// Projections in the order of a block.
const (
	gate   = "gate"
	up     = "up"
	down   = "down"
	gateUp = "gate_up"
)

// orientation says how a row's data tensors lie.
type orientation int

const (
	outIn   orientation = iota // [out, in], as nn.Linear; shapes are checked
	byShape                    // shapes decide; refused where they do not
	dbrx                       // 2-D [experts*inner, hidden]: gate and up [out, in], down [in, out]
)

// interleave says how gate and up rows lie in a gate_up tensor.
type interleave int

const (
	halves   interleave = iota // gate rows, then up rows
	biased                     // alternating if the projection has a bias (gpt-oss), else halves
	rowByRow                   // alternating, gate first
)

// projName is how a row spells a projection in names.
type projName struct {
	name, projection string
	upFirst          bool   // a gate_up whose first half is up
	suffix           string // of the bare name, "weight" if empty
}

// row is one naming form of routed experts. A name has the form
//
//	{prefix}.{layer}.{block}.{expert}.{projection}{suffix}   or, fused, without {expert},
//
// where a suffix begins with a dot or an underscore.
type row struct {
	name   string // for people and Experts.Family
	models string // which publish it
	blocks []string
	fused  bool // one tensor for all experts of a layer
	projs  []projName
	orient orientation
	order  interleave
}

var (
	gateUpDown = []projName{{name: "gate_proj", projection: gate}, {name: "up_proj", projection: up}, {name: "down_proj", projection: down}}
	w123       = []projName{{name: "w1", projection: gate}, {name: "w3", projection: up}, {name: "w2", projection: down}}
)

// families is the family table. The first row that knows a name takes it.
//
// Names and orientations are those of the models' own code: transformers, mlx-lm, exllamav3, ktransformers, sglang, and the model
// repositories.
var families = []row{
	{
		name: "mlp.experts", models: "Qwen2/3-MoE, Qwen3-Next, DeepSeek V2/V3, Kimi K2, GLM-4.5, OLMoE, Hunyuan, Ernie 4.5, Ling, dots, AFMoE, Laguna, LongCat",
		blocks: []string{"mlp.experts"}, projs: append([]projName{
			{name: "up_gate_proj", projection: gateUp},                    // Ernie 4.5's Paddle release: [in, out], gate half first
			{name: "gate_and_up_proj", projection: gateUp, upFirst: true}, // Hunyuan-Large
		}, gateUpDown...),
	},
	{name: "block_sparse_moe.experts", models: "Mixtral, MiniMax, Kimi-Linear, Kimi K3, Phi-3.5-MoE, Arctic, Grok-2", blocks: []string{"block_sparse_moe.experts"}, projs: append(w123, gateUpDown...)},
	{name: "ffn.experts", models: "DeepSeek V4", blocks: []string{"ffn.experts"}, projs: append(w123, gateUpDown...)},
	{name: "feed_forward.experts", models: "Jamba, LFM2-MoE, Llama 4 in compressed-tensors", blocks: []string{"feed_forward.experts"}, projs: append(w123, gateUpDown...)},
	{name: "mixer.experts", models: "Nemotron-H, Nemotron 3", blocks: []string{"mixer.experts"}, projs: gateUpDown},
	{name: "moe.experts", models: "Step in per-expert form", blocks: []string{"moe.experts"}, projs: append(w123, gateUpDown...)},
	{name: "experts", models: "Mistral Large 3, Gemma 4 in per-expert form", blocks: []string{"experts"}, projs: append(w123, gateUpDown...)},
	{
		name: "moe", models: "Grok-1", blocks: []string{"moe"},
		projs: []projName{{name: "linear", projection: gate}, {name: "linear_v", projection: up}, {name: "linear_1", projection: down}},
	},
	{
		name: "experts.gate_up_proj fused", models: "Qwen3-VL-MoE, Qwen3.5-MoE, Qwen3.8-Max, gpt-oss, Llama 4, Gemma 4, Mistral Small 4, and what transformers 5 saves",
		blocks: []string{"mlp.experts", "feed_forward.experts", "block_sparse_moe.experts", "mixer.experts", "moe.experts", "ffn.experts", "experts"},
		fused:  true, orient: byShape, order: biased,
		projs: append([]projName{{name: "gate_up_proj", projection: gateUp}}, gateUpDown...),
	},
	{
		name: "switch_mlp fused", models: "MLX conversions",
		blocks: []string{"mlp.switch_mlp", "block_sparse_moe.switch_mlp", "feed_forward.switch_mlp", "mixer.switch_mlp", "moe.switch_mlp", "experts.switch_glu", "mlp.experts.switch_glu"},
		fused:  true,
		projs:  append([]projName{{name: "gate_up_proj", projection: gateUp}, {name: "fc1", projection: up}, {name: "fc2", projection: down}}, gateUpDown...),
	},
	{name: "moe fused", models: "Step-3, Step-3.5", blocks: []string{"moe"}, fused: true, projs: gateUpDown},
	{
		name: "block_sparse_moe.input_linear fused", models: "Granite MoE, GraniteMoeHybrid", blocks: []string{"block_sparse_moe"}, fused: true, orient: byShape,
		projs: []projName{{name: "input_linear", projection: gateUp}, {name: "output_linear", projection: down}},
	},
	{
		name: "ffn.experts.mlp fused", models: "DBRX", blocks: []string{"ffn.experts.mlp"}, fused: true, orient: dbrx,
		projs: []projName{{name: "w1", projection: gate}, {name: "v1", projection: up}, {name: "w2", projection: down}},
	},
	{
		name: "mlp.mlp1_weight fused", models: "gpt-oss, original form", blocks: []string{"mlp"}, fused: true, orient: byShape, order: rowByRow,
		projs: []projName{
			{name: "mlp1_weight", projection: gateUp}, {name: "mlp2_weight", projection: down},
			{name: "mlp1_bias", projection: gateUp, suffix: "bias"}, {name: "mlp2_bias", projection: down, suffix: "bias"},
		},
	},
}

// routers are the names of router weights [experts, hidden] below a layer.
var routers = []string{
	"mlp.gate.weight", "mlp.router.weight", "mlp.gate.wg.weight", "mlp.router.gate.weight", "mlp.router.classifier.weight", "mlp.gate",
	"block_sparse_moe.gate.weight", "block_sparse_moe.router.layer.weight",
	"ffn.gate.weight", "ffn.router.layer.weight", "feed_forward.router.weight", "feed_forward.gate.weight",
	"mixer.gate.weight", "moe.gate.weight", "router.proj.weight", "router.weight", "gate.weight",
}

// norms are the names of normalisation weights [hidden] below a layer.
var norms = []string{
	"input_layernorm.weight", "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight", "attention_norm.weight",
	"attn_norm.weight", "ffn_norm.weight", "operator_norm.weight", "norm.weight", "norm_attn_norm.norm_1.weight", "rms_norm.weight", "mlp.norm.scale",
}

// mtpMarks are tensors that only a multi-token-prediction layer has.
var mtpMarks = []string{"eh_proj.weight", "enorm.weight", "hnorm.weight", "mtp_block.input_layernorm.weight", "shared_head.norm.weight"}

// dataSuffixes are the endings of tensors that hold the weights themselves.
var dataSuffixes = []string{
	"weight", "weight_packed", "qweight", "blocks", "W_q", "_weight_qdata",
	"trellis", "codes", "indices", "Qidxs", "B", // EXL3, AQLM, VPTQ, QuIP#, Marlin
}

// sideSuffixes is the order in which the other tensors of a projection follow in a block: scales, zero points, further side tensors,
// bias. What is not listed comes last, by name.
var sideSuffixes = []string{
	"weight_scale_inv", "scale_inv", "scales_inv", "weight_scale", "scale", "scales", "qscale_weight", "SCB", "weight.absmax", "_weight_scale",
	"weight_scale_2", "weight_global_scale", // scales of scales
	"weight_zero_point", "zero_point", "qzeros", "zero", "biases", "qbiases", "_weight_zero_point", // MLX adds its biases after scaling
	"weight_shape", "g_idx", "weight_g_idx", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
	"weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4", "weight_format",
	"input_scale", "activation_scale", "input_global_scale", "input_zero_point", "qscale_act", "pre_quant_scale",
	"bias",
}

func isData(suffix string) bool { return slices.Contains(dataSuffixes, suffix) }

// suffixRank orders the tensors of a projection.
func suffixRank(suffix string) int {
	if isData(suffix) {
		return -1
	}
	if i := slices.Index(sideSuffixes, suffix); i >= 0 {
		return i
	}
	return len(sideSuffixes)
}

// residentLeaves are the last components of tensors that stand below a component "experts" and belong to the router.
var residentLeaves = []string{"e_score_correction_bias", "expert_bias", "per_expert_scale"}

// match is what a row makes of a name with numbers replaced by "#".
type match struct {
	row    *row
	prefix string // before ".#." and the block
	proj   projName
	suffix string // without its dot or underscore, "weight" if there is none
}

// matchName finds the row that knows a skeleton: a tensor name whose numeric components are "#".
func matchName(skeleton string) (match, bool) {
	for i := range families {
		if m, ok := families[i].match(skeleton); ok {
			return m, true
		}
	}
	return match{}, false
}

// likeExpert says that a name which no row knows is of one routed expert: digits follow "experts", also those of no plain number.
func likeExpert(skeleton string) bool {
	for rest, found := skeleton, true; found; {
		_, rest, found = strings.Cut(rest, "experts.")
		if tail := strings.TrimLeft(rest, "#0123456789"); len(tail) < len(rest) && strings.HasPrefix(tail, ".") {
			return true
		}
	}
	return strings.Contains(skeleton, "experts.expert_")
}

// belowExperts says that a name which no row knows stands below a component "experts" without being the router's.
func belowExperts(skeleton string) bool {
	last := skeleton[strings.LastIndexByte(skeleton, '.')+1:]
	return strings.Contains("."+skeleton, ".experts.") && !slices.Contains(residentLeaves, last)
}

func (r *row) match(skeleton string) (match, bool) {
	for _, b := range r.blocks {
		if !strings.Contains(skeleton, b) {
			continue
		}
		key := ".#." + b + "."
		if !r.fused {
			key += "#."
		}
		at := strings.LastIndex("."+skeleton, key)
		if at < 0 {
			continue
		}
		leaf := skeleton[at+len(key)-1:]
		if p, suffix, ok := r.leaf(leaf); ok {
			return match{r, skeleton[:max(at-1, 0)], p, suffix}, true
		}
	}
	return match{}, false
}

// leaf takes a projection's name off what follows the block.
func (r *row) leaf(leaf string) (p projName, suffix string, ok bool) {
	for _, p := range r.projs {
		rest, found := strings.CutPrefix(leaf, p.name)
		switch {
		case !found || strings.Contains(rest, "#"):
		case rest == "":
			return p, cmp.Or(p.suffix, "weight"), true
		case rest[0] == '.', rest[0] == '_' && r.fused:
			return p, rest[1:], true
		}
	}
	return projName{}, "", false
}
