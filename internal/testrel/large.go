package testrel

import (
	"fmt"
	"sort"
	"strconv"
)

// Qwen38MaxFP8 has Qwen3.8-Max's real shapes in FP8: 92 layers and one of MTP, 512 experts each, 2.5 TB.
//
// Known and exact: the expert tensors (285,696 of 287,119), their names, dtypes, shapes and files (two a layer, gate and up, then down,
// layers in text order: files 1 to 186 of 213), hence file 5 to the byte. Fitted: the other 1,423 tensors in files 187 to 213, whose
// count is what Qwen3.5's hybrid layers give (every fourth layer full attention, the others linear) and whose shapes are guesses.
func Qwen38MaxFP8() *Release {
	const layers, experts, hidden, width = 92, 512, 8192, 2048
	s := numbered(213)
	for i, l := range textOrder(layers) {
		qwenExperts(s[2*i], s[2*i+1], fmt.Sprintf("model.layers.%d.mlp.", l), experts, hidden, width)
	}
	qwenExperts(s[2*layers], s[2*layers+1], "mtp.layers.0.mlp.", experts, hidden, width)
	qwen38Resident(s[2*layers+2:], layers, experts, hidden, width)
	config := fmt.Sprintf(`{
  "architectures": ["Qwen3_8MoeForCausalLM"],
  "model_type": "qwen3_8_moe",
  "full_attention_interval": 4,
  "hidden_size": %d,
  "num_hidden_layers": %d,
  "num_experts": %d,
  "num_experts_per_tok": 10,
  "moe_intermediate_size": %d,
  "shared_expert_intermediate_size": %[4]d,
  "mtp_num_hidden_layers": 1,
  "vocab_size": %d,
  "torch_dtype": "bfloat16",
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128]
  }
}
`, hidden, layers, experts, width, qwen38Vocab)
	r := sharded("qwen3.8-max-fp8", s, append(tokenizerFiles("qwen3.8-max-fp8"), text("config.json", config))...)
	r.HeaderOnly = true
	return r
}

// textOrder is 0..n-1 sorted as text: 0, 1, 10, 11, ..., 19, 2, 20, ...
func textOrder(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	sort.Slice(out, func(i, j int) bool { return strconv.Itoa(out[i]) < strconv.Itoa(out[j]) })
	return out
}

const qwen38Vocab = 248320

// qwen38Resident spreads the tensors that are not routed experts over the shards s, in text order of the layers.
func qwen38Resident(s []*shard, layers int, experts, hidden, width int64) {
	for i, l := range textOrder(layers) {
		qwen38Layer(s[i*len(s)/layers], fmt.Sprintf("model.layers.%d.", l), l%4 == 3, experts, hidden, width)
	}
	first, last := s[0], s[len(s)-1]
	qwen38Layer(last, "mtp.layers.0.", true, experts, hidden, width)
	first.bf16("model.embed_tokens.weight", qwen38Vocab, hidden)
	last.bf16("model.norm.weight", hidden)
	last.bf16("lm_head.weight", qwen38Vocab, hidden)
	last.bf16("mtp.fc.weight", hidden, 2*hidden)
	for _, x := range []string{"norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"} {
		last.bf16("mtp."+x+".weight", hidden)
	}
}

// qwen38Layer adds 13 tensors for a layer of full attention, 16 for one of linear attention.
func qwen38Layer(s *shard, prefix string, full bool, experts, hidden, width int64) {
	s.bf16(prefix+"input_layernorm.weight", hidden)
	s.bf16(prefix+"post_attention_layernorm.weight", hidden)
	s.bf16(prefix+"mlp.gate.weight", experts, hidden)
	s.bf16(prefix+"mlp.shared_expert_gate.weight", 1, hidden)
	for _, p := range projections {
		out, in := projection(p, hidden, width)
		s.bf16(prefix+"mlp.shared_expert."+p+".weight", out, in)
	}
	if full {
		const heads, kv, dim = 64, 8, 256
		s.bf16(prefix+"self_attn.q_proj.weight", 2*heads*dim, hidden)
		s.bf16(prefix+"self_attn.k_proj.weight", kv*dim, hidden)
		s.bf16(prefix+"self_attn.v_proj.weight", kv*dim, hidden)
		s.bf16(prefix+"self_attn.o_proj.weight", hidden, heads*dim)
		s.bf16(prefix+"self_attn.q_norm.weight", dim)
		s.bf16(prefix+"self_attn.k_norm.weight", dim)
		return
	}
	const keys, vals, dim = 32, 128, 128
	prefix += "linear_attn."
	s.bf16(prefix+"in_proj_qkv.weight", (2*keys+vals)*dim, hidden)
	s.bf16(prefix+"in_proj_z.weight", vals*dim, hidden)
	s.bf16(prefix+"in_proj_a.weight", vals, hidden)
	s.bf16(prefix+"in_proj_b.weight", vals, hidden)
	s.bf16(prefix+"conv1d.weight", (2*keys+vals)*dim, 1, 4)
	s.bf16(prefix+"out_proj.weight", hidden, vals*dim)
	s.bf16(prefix+"dt_bias", vals)
	s.weight(prefix+"A_log", f32, vals)
	s.weight(prefix+"norm.weight", f32, dim)
}
