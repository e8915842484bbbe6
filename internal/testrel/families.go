package testrel

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"weightfs/sources/safetensors"
)

// Family is a small release in the naming form of one model family: layers 1 and 3 have routed experts, five each; a hidden size of
// 96 and an inner width of 64. Its shards cut the tensors, sorted by name, in two halves, so that experts are split.
type Family struct {
	*Release
	Resident []string // names of the tensors that are no routed experts, sorted
	Experts  int      // tensors of routed experts in main layers
	MTP      int      // tensors of routed experts in multi-token-prediction layers
}

// family is one row: tensors, one a line, as "name dtype shape", ending in "scale" for numbers that scale others. In names {L} is each
// layer, {E} each expert, {P} gate_proj, up_proj and down_proj, {W} w1, w3 and w2; in shapes H, I, E are the sizes above, V a
// vocabulary, O and N out and in of the projection; a factor may stand before and a divisor behind: 2I, N/32.
type family struct {
	name, config           string
	experts, mtp, resident string
	original               string // tensors of original/model.safetensors, another copy in other names
	consolidated           bool   // files are named consolidated-..., the configuration is params.json
}

const (
	familyHidden, familyWidth, familyExperts, familyVocab = 96, 64, 5, 40

	textModel = `
model.embed_tokens.weight BF16 VxH
model.layers.0.input_layernorm.weight BF16 H
model.layers.0.mlp.{P}.weight BF16 OxN
model.layers.{L}.input_layernorm.weight BF16 H
model.layers.{L}.self_attn.o_proj.weight BF16 HxH
model.norm.weight BF16 H
lm_head.weight BF16 VxH`
	multimodal = `
model.language_model.embed_tokens.weight BF16 VxH
model.language_model.layers.{L}.input_layernorm.weight BF16 H
model.visual.blocks.0.mlp.fc1.weight BF16 16x16
lm_head.weight BF16 VxH`
	nested = `
language_model.model.embed_tokens.weight BF16 VxH
language_model.model.layers.0.mlp.{P}.weight BF16 OxN
language_model.model.layers.{L}.input_layernorm.weight BF16 H
vision_tower.blocks.0.mlp.fc1.weight BF16 16x16
language_model.lm_head.weight BF16 VxH`
)

// families are the naming forms of published mixtures of experts; which model has which is told by transformers, mlx-lm, exllamav3,
// ktransformers, sglang and the model repositories.
var families = []family{
	{name: "qwen2-moe", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN",
		resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight BF16 ExH\nmodel.layers.{L}.mlp.shared_expert.{P}.weight BF16 OxN\nmodel.layers.{L}.mlp.shared_expert_gate.weight BF16 1xH"},
	{name: "qwen3-moe", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight BF16 ExH"},
	{name: "qwen3-next", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN", mtp: "mtp.layers.0.mlp.experts.{E}.{P}.weight BF16 OxN",
		resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight BF16 ExH\nmtp.layers.0.mlp.gate.weight BF16 ExH\nmtp.fc.weight BF16 Hx2H\nmtp.norm.weight BF16 H"},
	{name: "qwen3-vl-moe", experts: "model.language_model.layers.{L}.mlp.experts.gate_up_proj BF16 ExHx2I\nmodel.language_model.layers.{L}.mlp.experts.down_proj BF16 ExIxH",
		resident: multimodal + "\nmodel.language_model.layers.{L}.mlp.gate.weight BF16 ExH"},
	{name: "qwen3.5-moe", experts: "model.language_model.layers.{L}.mlp.experts.gate_up_proj BF16 Ex2IxH\nmodel.language_model.layers.{L}.mlp.experts.down_proj BF16 ExHxI",
		mtp:      "mtp.layers.0.mlp.experts.gate_up_proj BF16 Ex2IxH\nmtp.layers.0.mlp.experts.down_proj BF16 ExHxI",
		resident: multimodal + "\nmodel.language_model.layers.{L}.mlp.gate.weight BF16 ExH\nmodel.language_model.layers.{L}.mlp.shared_expert.{P}.weight BF16 OxN\nmtp.fc.weight BF16 Hx2H"},
	{name: "qwen3.5-reap", experts: "model.language_model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN", resident: multimodal + "\nmodel.language_model.layers.{L}.mlp.gate.weight BF16 ExH"},
	{name: "mixtral", experts: "model.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.block_sparse_moe.gate.weight BF16 ExH"},
	{name: "deepseek-v3", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight F8_E4M3 OxN\nmodel.layers.{L}.mlp.experts.{E}.{P}.weight_scale_inv F32 1x1 scale",
		mtp: "model.layers.4.mlp.experts.{E}.{P}.weight F8_E4M3 OxN\nmodel.layers.4.mlp.experts.{E}.{P}.weight_scale_inv F32 1x1 scale",
		resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight BF16 ExH\nmodel.layers.{L}.mlp.gate.e_score_correction_bias F32 E\nmodel.layers.{L}.mlp.shared_experts.{P}.weight F8_E4M3 OxN\n" +
			"model.layers.{L}.mlp.shared_experts.{P}.weight_scale_inv F32 1x1 scale\nmodel.layers.4.eh_proj.weight BF16 Hx2H\nmodel.layers.4.enorm.weight BF16 H\nmodel.layers.4.hnorm.weight BF16 H\nmodel.layers.4.mlp.gate.weight BF16 ExH",
		config: `"num_hidden_layers": 4, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},`},
	{name: "deepseek-v4", experts: "layers.{L}.ffn.experts.{E}.{W}.weight I8 OxN/2\nlayers.{L}.ffn.experts.{E}.{W}.scale F8_E8M0 OxN/32 scale",
		mtp: "mtp.0.ffn.experts.{E}.{W}.weight I8 OxN/2\nmtp.0.ffn.experts.{E}.{W}.scale F8_E8M0 OxN/32 scale",
		resident: "embed.weight BF16 VxH\nhead.weight BF16 VxH\nnorm.weight BF16 H\nlayers.{L}.attn_norm.weight BF16 H\nlayers.{L}.ffn.gate.weight BF16 ExH\nlayers.{L}.ffn.gate.bias F32 E\n" +
			"layers.1.ffn.gate.tid2eid I64 Vx2\nlayers.{L}.ffn.shared_experts.{W}.weight BF16 OxN\nmtp.0.ffn.gate.weight BF16 ExH\nmtp.0.e_proj.weight BF16 HxH"},
	{name: "kimi-k2", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight F8_E4M3 OxN\nmodel.layers.{L}.mlp.experts.{E}.{P}.weight_scale_inv F32 1x1 scale",
		resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight BF16 ExH\nmodel.layers.{L}.mlp.shared_experts.{P}.weight BF16 OxN", config: `"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},`},
	{name: "kimi-linear", experts: "model.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight BF16 OxN",
		resident: textModel + "\nmodel.layers.{L}.block_sparse_moe.gate.weight BF16 ExH\nmodel.layers.{L}.block_sparse_moe.gate.e_score_correction_bias F32 E\nmodel.layers.{L}.block_sparse_moe.shared_experts.{P}.weight BF16 OxN"},
	{name: "kimi-k3", experts: "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight_packed U8 OxN/2\nlanguage_model.model.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight_scale U8 OxN/32 scale",
		resident: nested + "\nlanguage_model.model.layers.{L}.block_sparse_moe.gate.weight BF16 Ex128\nlanguage_model.model.layers.{L}.block_sparse_moe.routed_expert_down_proj.weight BF16 Hx128\n" +
			"language_model.model.layers.{L}.block_sparse_moe.routed_expert_up_proj.weight BF16 128xH\nlanguage_model.model.layers.{L}.block_sparse_moe.routed_expert_norm.weight BF16 H\nlanguage_model.model.layers.{L}.block_sparse_moe.shared_experts.{P}.weight BF16 OxN",
		config: `"quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"},`},
	{name: "glm4-moe", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight F8_E4M3 OxN\nmodel.layers.{L}.mlp.experts.{E}.{P}.weight_scale BF16 Ox1 scale",
		resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight BF16 ExH\nmodel.layers.{L}.mlp.gate.e_score_correction_bias F32 E\nmodel.layers.{L}.mlp.shared_experts.{P}.weight BF16 OxN",
		config:   `"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized"},`},
	{name: "minimax-m2", experts: "model.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight F8_E4M3 OxN\nmodel.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight_scale_inv F32 1x1 scale",
		resident: textModel + "\nmodel.layers.{L}.block_sparse_moe.gate.weight BF16 ExH\nmodel.layers.{L}.block_sparse_moe.e_score_correction_bias F32 E", config: `"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},`},
	{name: "minimax-m3", experts: "language_model.model.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight F8_E4M3 OxN\nlanguage_model.model.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight_scale_inv U8 OxN/32 scale",
		resident: nested + "\nlanguage_model.model.layers.{L}.block_sparse_moe.gate.weight BF16 ExH", config: `"quantization_config": {"quant_method": "mxfp8", "weight_block_size": [1, 32]},`},
	{name: "gpt-oss", experts: "model.layers.{L}.mlp.experts.gate_up_proj_blocks U8 Ex2IxH/32x16\nmodel.layers.{L}.mlp.experts.gate_up_proj_scales U8 Ex2IxH/32 scale\nmodel.layers.{L}.mlp.experts.gate_up_proj_bias BF16 Ex2I\n" +
		"model.layers.{L}.mlp.experts.down_proj_blocks U8 ExHxI/32x16\nmodel.layers.{L}.mlp.experts.down_proj_scales U8 ExHxI/32 scale\nmodel.layers.{L}.mlp.experts.down_proj_bias BF16 ExH",
		resident: textModel + "\nmodel.layers.{L}.mlp.router.weight BF16 ExH\nmodel.layers.{L}.mlp.router.bias BF16 E",
		original: "block.{L}.mlp.mlp1_weight.blocks U8 Ex2IxH/32x16\nblock.{L}.mlp.mlp1_weight.scales U8 Ex2IxH/32 scale\nblock.{L}.mlp.mlp1_bias BF16 Ex2I", config: `"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"},`},
	{name: "gpt-oss-original", experts: "block.{L}.mlp.mlp1_weight.blocks U8 Ex2IxH/32x16\nblock.{L}.mlp.mlp1_weight.scales U8 Ex2IxH/32 scale\nblock.{L}.mlp.mlp1_bias BF16 Ex2I\n" +
		"block.{L}.mlp.mlp2_weight.blocks U8 ExHxI/32x16\nblock.{L}.mlp.mlp2_weight.scales U8 ExHxI/32 scale\nblock.{L}.mlp.mlp2_bias BF16 ExH",
		resident: "embedding.weight BF16 VxH\nblock.{L}.mlp.norm.scale F32 H\nblock.{L}.mlp.gate.weight BF16 ExH\nblock.{L}.mlp.gate.bias BF16 E\nunembedding.weight BF16 VxH"},
	{name: "gpt-oss-bf16", experts: "model.layers.{L}.mlp.experts.gate_up_proj BF16 ExHx2I\nmodel.layers.{L}.mlp.experts.gate_up_proj_bias BF16 Ex2I\nmodel.layers.{L}.mlp.experts.down_proj BF16 ExIxH\nmodel.layers.{L}.mlp.experts.down_proj_bias BF16 ExH",
		resident: textModel + "\nmodel.layers.{L}.mlp.router.weight BF16 ExH\nmodel.layers.{L}.mlp.router.bias BF16 E", config: `"model_type": "gpt_oss",`},
	{name: "llama4", experts: "language_model.model.layers.{L}.feed_forward.experts.gate_up_proj BF16 ExHx2I\nlanguage_model.model.layers.{L}.feed_forward.experts.down_proj BF16 ExIxH",
		resident: nested + "\nlanguage_model.model.layers.{L}.feed_forward.router.weight BF16 ExH\nlanguage_model.model.layers.{L}.feed_forward.shared_expert.{P}.weight BF16 OxN"},
	{name: "granite-moe", experts: "model.layers.{L}.block_sparse_moe.input_linear.weight BF16 Ex2IxH\nmodel.layers.{L}.block_sparse_moe.output_linear.weight BF16 ExHxI",
		resident: textModel + "\nmodel.layers.{L}.block_sparse_moe.router.layer.weight BF16 ExH\nmodel.layers.{L}.shared_mlp.input_linear.weight BF16 2IxH\nmodel.layers.{L}.shared_mlp.output_linear.weight BF16 HxI"},
	{name: "olmoe", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight F32 OxN", resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight F32 ExH"},
	{name: "jamba", experts: "model.layers.{L}.feed_forward.experts.{E}.{P}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.feed_forward.router.weight BF16 ExH\nmodel.layers.0.mamba.A_log BF16 Hx16"},
	{name: "dbrx", experts: "transformer.blocks.{L}.ffn.experts.mlp.w1 BF16 320xH\ntransformer.blocks.{L}.ffn.experts.mlp.v1 BF16 320xH\ntransformer.blocks.{L}.ffn.experts.mlp.w2 BF16 320xH",
		resident: "transformer.wte.weight BF16 VxH\ntransformer.blocks.{L}.ffn.router.layer.weight BF16 ExH\ntransformer.blocks.{L}.norm_attn_norm.norm_1.weight BF16 H\nlm_head.weight BF16 VxH", config: `"model_type": "dbrx", "ffn_config": {"moe_num_experts": 5},`},
	{name: "hunyuan-a13b", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.mlp.gate.wg.weight F32 ExH\nmodel.layers.{L}.mlp.shared_mlp.{P}.weight BF16 OxN"},
	{name: "hunyuan-large", experts: "model.layers.{L}.mlp.experts.{E}.gate_and_up_proj.weight BF16 2IxH\nmodel.layers.{L}.mlp.experts.{E}.down_proj.weight BF16 HxI", resident: textModel + "\nmodel.layers.{L}.mlp.gate.wg.weight F32 ExH"},
	{name: "hy3", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.mlp.router.gate.weight BF16 ExH\nmodel.layers.{L}.mlp.expert_bias F32 E"},
	{name: "ernie-4.5", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN",
		resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight F32 ExH\nmodel.layers.{L}.mlp.moe_statics.e_score_correction_bias F32 1xE\nmodel.layers.{L}.mlp.shared_experts.{P}.weight BF16 OxN\nmodel.mtp_block.0.mlp.{P}.weight BF16 OxN"},
	{name: "ernie-4.5-paddle", experts: "ernie.layers.{L}.mlp.experts.{E}.up_gate_proj.weight BF16 Hx2I\nernie.layers.{L}.mlp.experts.{E}.down_proj.weight BF16 IxH", resident: "ernie.embed_tokens.weight BF16 VxH\nernie.layers.{L}.mlp.gate.weight F32 HxE"},
	{name: "bailing-moe", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN",
		resident: "model.word_embeddings.weight BF16 VxH\nmodel.layers.{L}.input_layernorm.weight BF16 H\nmodel.layers.{L}.mlp.gate.weight BF16 ExH\nmodel.layers.{L}.mlp.gate.expert_bias F32 E\nmodel.layers.{L}.mlp.shared_experts.{P}.weight BF16 OxN"},
	{name: "step3", experts: "model.layers.{L}.moe.gate_proj.weight BF16 ExIxH\nmodel.layers.{L}.moe.up_proj.weight BF16 ExIxH\nmodel.layers.{L}.moe.down_proj.weight BF16 ExHxI",
		resident: textModel + "\nmodel.layers.{L}.moe.gate.weight F32 ExH\nmodel.layers.{L}.moe.router_bias F32 E\nmodel.layers.{L}.share_expert.{P}.weight BF16 OxN"},
	{name: "longcat", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN",
		resident: textModel + "\nmodel.layers.{L}.mlp.router.classifier.weight F32 9xH\nmodel.layers.{L}.mlp.router.e_score_correction_bias F32 9\nmodel.layers.{L}.mlps.0.{P}.weight BF16 OxN\nmodel.layers.{L}.mlps.1.{P}.weight BF16 OxN\nmodel.mtp.norm.weight BF16 H"},
	{name: "nemotron-h", experts: "backbone.layers.{L}.mixer.experts.{E}.up_proj.weight BF16 Ix32\nbackbone.layers.{L}.mixer.experts.{E}.down_proj.weight BF16 32xI",
		mtp: "mtp.layers.0.mixer.experts.{E}.up_proj.weight BF16 Ix32\nmtp.layers.0.mixer.experts.{E}.down_proj.weight BF16 32xI",
		resident: "backbone.embeddings.weight BF16 VxH\nbackbone.layers.0.mixer.A_log F32 16\nbackbone.layers.{L}.norm.weight BF16 H\nbackbone.layers.{L}.mixer.gate.weight BF16 ExH\nbackbone.layers.{L}.mixer.gate.e_score_correction_bias F32 E\n" +
			"backbone.layers.{L}.mixer.shared_experts.up_proj.weight BF16 IxH\nbackbone.layers.{L}.mixer.shared_experts.down_proj.weight BF16 HxI\nbackbone.layers.{L}.mixer.fc1_latent_proj.weight BF16 32xH\nbackbone.layers.{L}.mixer.fc2_latent_proj.weight BF16 Hx32\nlm_head.weight BF16 VxH"},
	{name: "arctic", experts: "model.layers.{L}.block_sparse_moe.experts.{E}.{W}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.block_sparse_moe.gate.weight BF16 ExH\nmodel.layers.{L}.residual_mlp.{W}.weight BF16 OxN"},
	{name: "grok-1", experts: "transformer.decoder_layer.{L}.moe.{E}.linear.weight BF16 IxH\ntransformer.decoder_layer.{L}.moe.{E}.linear_v.weight BF16 IxH\ntransformer.decoder_layer.{L}.moe.{E}.linear_1.weight BF16 HxI",
		resident: "transformer.in_out_embed.weight BF16 VxH\ntransformer.decoder_layer.{L}.router.weight F32 ExH\ntransformer.decoder_layer.{L}.rms_norm.weight BF16 H"},
	{name: "gemma4", experts: "model.language_model.layers.{L}.experts.gate_up_proj BF16 Ex2IxH\nmodel.language_model.layers.{L}.experts.down_proj BF16 ExHxI",
		resident: multimodal + "\nmodel.language_model.layers.{L}.mlp.{P}.weight BF16 OxN\nmodel.language_model.layers.{L}.router.proj.weight BF16 ExH\nmodel.language_model.layers.{L}.router.scale BF16 H\nmodel.language_model.layers.{L}.router.per_expert_scale BF16 E"},
	{name: "mistral-large-3", consolidated: true, experts: "layers.{L}.experts.{E}.{W}.weight F8_E4M3 OxN\nlayers.{L}.experts.{E}.{W}.qscale_weight F32 - scale\nlayers.{L}.experts.{E}.{W}.qscale_act F32 - scale",
		resident: "tok_embeddings.weight BF16 VxH\nlayers.0.feed_forward.{W}.weight BF16 OxN\nlayers.{L}.attention_norm.weight BF16 H\nlayers.{L}.gate.weight BF16 ExH\nlayers.{L}.shared_experts.{W}.weight BF16 OxN\noutput.weight BF16 VxH", config: `"dim": 96, "moe": {"num_experts": 5},`},
	{name: "mistral-small-4", experts: "model.language_model.layers.{L}.mlp.experts.gate_up_proj F8_E4M3 Ex2IxH\nmodel.language_model.layers.{L}.mlp.experts.gate_up_proj_scale_inv F32 Ex1x1 scale\n" +
		"model.language_model.layers.{L}.mlp.experts.down_proj F8_E4M3 ExHxI\nmodel.language_model.layers.{L}.mlp.experts.down_proj_scale_inv F32 Ex1x1 scale",
		resident: multimodal + "\nmodel.language_model.layers.{L}.mlp.gate.weight BF16 ExH\nmodel.language_model.layers.{L}.mlp.shared_experts.{P}.weight BF16 OxN", config: `"quantization_config": {"quant_method": "fp8", "weight_block_size": null},`},
	{name: "lfm2-moe", experts: "model.layers.{L}.feed_forward.experts.{E}.{W}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.feed_forward.gate.weight BF16 ExH\nmodel.layers.{L}.feed_forward.expert_bias F32 E\nmodel.layers.0.feed_forward.{W}.weight BF16 OxN"},
	{name: "afmoe", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.mlp.router.gate.weight BF16 ExH\nmodel.layers.{L}.mlp.expert_bias F32 E\nmodel.layers.{L}.mlp.shared_experts.{P}.weight BF16 OxN"},
	{name: "laguna", experts: "model.layers.{L}.mlp.experts.{E}.{P}.weight BF16 OxN", resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight BF16 ExH\nmodel.layers.{L}.mlp.experts.e_score_correction_bias F32 E\nmodel.layers.{L}.mlp.shared_expert.{P}.weight BF16 OxN"},
	{name: "mlx-4bit", experts: "model.layers.{L}.mlp.switch_mlp.{P}.weight U32 ExOxN/8\nmodel.layers.{L}.mlp.switch_mlp.{P}.scales BF16 ExOxN/32 scale\nmodel.layers.{L}.mlp.switch_mlp.{P}.biases BF16 ExOxN/32",
		resident: textModel + "\nmodel.layers.{L}.mlp.gate.weight BF16 ExH", config: `"quantization": {"group_size": 32, "bits": 4}, "quantization_config": {"group_size": 32, "bits": 4},`},
	{name: "mlx-gemma4", experts: "language_model.model.layers.{L}.experts.switch_glu.{P}.weight BF16 ExOxN", resident: nested + "\nlanguage_model.model.layers.{L}.router.proj.weight BF16 ExH"},
}

// Families makes a release in every naming form, sorted by name ("family-mixtral").
func Families() []Family {
	out := make([]Family, len(families))
	for i := range families {
		out[i] = families[i].make()
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// familyEntries are the families as releases by name.
func familyEntries() (out []entry) {
	for _, f := range families {
		out = append(out, entry{name: "family-" + f.name, group: "families", make: func() *Release {
			r := f.make().Release
			r.Digests = map[string]string{} // of their weight formats nothing is known here
			return r
		}})
	}
	return out
}

func (f family) make() Family {
	experts, mtp, resident := f.tensors(f.experts), f.tensors(f.mtp), f.tensors(f.resident)
	out := Family{Experts: len(experts), MTP: len(mtp)}
	for _, t := range resident {
		out.Resident = append(out.Resident, t.Name)
	}
	sort.Strings(out.Resident)
	name := "family-" + f.name
	out.Release = sharded(name, f.shards(append(append(experts, mtp...), resident...)), append(tokenizerFiles(name), f.others()...)...)
	return out
}

// shards cuts the tensors into two halves.
func (f family) shards(tensors []Tensor) []*shard {
	sort.Slice(tensors, func(i, j int) bool { return tensors[i].Name < tensors[j].Name })
	s := numbered(2)
	for i := range tensors {
		to := s[2*i/len(tensors)]
		if f.consolidated {
			to.path = strings.Replace(to.path, "model-", "consolidated-", 1)
		}
		tensors[i].Path = to.path
		to.tensors = append(to.tensors, tensors[i])
	}
	return s
}

// others are the configuration, and the files of other copies of the weights.
func (f family) others() []File {
	config := fmt.Sprintf("{\n  %s\n  \"hidden_size\": %d\n}\n", f.config, familyHidden)
	if f.consolidated {
		return []File{text("params.json", config)}
	}
	out := []File{text("config.json", config)}
	if f.original != "" {
		s := newShard("original/model.safetensors")
		for _, t := range f.tensors(f.original) {
			t.Path = s.path
			s.tensors = append(s.tensors, t)
		}
		out = append(out, s.file(), text("metal/model.bin", "a third copy\n"))
	}
	return out
}

// tensors reads the lines of a row.
func (f family) tensors(lines string) (out []Tensor) {
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		part := strings.Fields(line)
		for _, p := range projectionsOf(part[0]) {
			for _, name := range f.numbers(strings.NewReplacer("{P}", p, "{W}", p).Replace(part[0])) {
				out = append(out, familyTensor(name, p, part))
			}
		}
	}
	return out
}

// projectionsOf is what {P} or {W} in a name stand for; one empty name if there is neither.
func projectionsOf(name string) []string {
	switch {
	case strings.Contains(name, "{P}"):
		return projections[:]
	case strings.Contains(name, "{W}"):
		return []string{"w1", "w2", "w3"}
	}
	return []string{""}
}

// numbers is name for each layer and expert.
func (f family) numbers(name string) []string {
	names := []string{name}
	each := func(mark string, values ...int) {
		var out []string
		for _, n := range names {
			for _, v := range values {
				out = append(out, strings.ReplaceAll(n, mark, strconv.Itoa(v)))
			}
		}
		names = out
	}
	if strings.Contains(name, "{L}") {
		each("{L}", 1, 3)
	}
	if strings.Contains(name, "{E}") {
		each("{E}", 0, 1, 2, 3, 4)
	}
	return names
}

// familyTensor makes a tensor of projection p from the parts of a line.
func familyTensor(name, p string, part []string) Tensor {
	d, ok := safetensors.ParseDType(part[1])
	if !ok {
		panic("testrel: " + name + ": dtype " + part[1])
	}
	t := Tensor{Name: name, DType: d, Fill: raw}
	if f, ok := values[d]; ok {
		t.Fill = f
	}
	if d == safetensors.F8_E4M3 {
		t.Fill = finite
	}
	if len(part) > 3 {
		t.Fill = scales[d]
	}
	if part[2] == "-" {
		return t
	}
	for _, dim := range strings.Split(part[2], "x") {
		t.Shape = append(t.Shape, familyDim(dim, p))
	}
	return t
}

// familyDim reads one axis of a shape.
func familyDim(text, p string) int64 {
	out, in := projection(p, familyHidden, familyWidth)
	sizes := map[string]int64{"H": familyHidden, "I": familyWidth, "E": familyExperts, "V": familyVocab, "O": out, "N": in, "": 1}
	whole, by, divided := strings.Cut(text, "/")
	factor := strings.TrimRight(whole, "HIEVON")
	n, err := sizes[whole[len(factor):]], error(nil)
	if factor != "" {
		var k int64
		k, err = strconv.ParseInt(factor, 10, 64)
		n *= k
	}
	if divided && err == nil {
		var k int64
		if k, err = strconv.ParseInt(by, 10, 64); err == nil {
			n /= k
		}
	}
	if err != nil || n == 0 {
		panic("testrel: axis " + text)
	}
	return n
}
