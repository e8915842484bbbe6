package testrel

import (
	"fmt"
	"sort"
	"strconv"
)

// Qwen3.8-Max: 92 layers and one of MTP, 512 experts each.
const qwen38Layers, qwen38Experts, qwen38Hidden, qwen38Width, qwen38Vocab = 92, 512, 8192, 2048, 248320

// Qwen38MaxFP8 has Qwen3.8-Max's real shapes in FP8: 2.5 TB.
//
// Known and exact: the expert tensors (285,696 of 287,119), their names, dtypes, shapes and files (two a layer, gate and up, then down,
// layers in text order: files 1 to 186 of 213), hence file 5 to the byte. Fitted: the other 1,423 tensors in files 187 to 213, whose
// count is what Qwen3.5's hybrid layers give (every fourth layer full attention, the others linear) and whose shapes are guesses.
func Qwen38MaxFP8() *Release {
	return qwen38("qwen3.8-max-fp8", `,
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128]
  }`, func(gateUp, down *shard, prefix string) {
		qwenExperts(gateUp, down, prefix, qwen38Experts, qwen38Hidden, qwen38Width)
	})
}

// Qwen38Max is the same model in BF16, 5 TB: all experts of a layer in two tensors, each alone in its file. Known: those tensors, gate_up
// [512, 4096, 8192] and down [512, 8192, 2048], and that there are 1,609 in all. Fitted as in [Qwen38MaxFP8]: the rest.
func Qwen38Max() *Release {
	return qwen38("qwen3.8-max", "", func(gateUp, down *shard, prefix string) {
		gateUp.bf16(prefix+"experts.gate_up_proj", qwen38Experts, 2*qwen38Width, qwen38Hidden)
		down.bf16(prefix+"experts.down_proj", qwen38Experts, qwen38Hidden, qwen38Width)
	})
}

func qwen38(name, quantization string, experts func(gateUp, down *shard, prefix string)) *Release {
	s := numbered(213)
	for i, l := range textOrder(qwen38Layers) {
		experts(s[2*i], s[2*i+1], fmt.Sprintf("model.layers.%d.mlp.", l))
	}
	experts(s[2*qwen38Layers], s[2*qwen38Layers+1], "mtp.layers.0.mlp.")
	qwen38Resident(s[2*qwen38Layers+2:], qwen38Layers, qwen38Experts, qwen38Hidden, qwen38Width)
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
  "vocab_size": %[5]d,
  "torch_dtype": "bfloat16"%[6]s
}
`, qwen38Hidden, qwen38Layers, qwen38Experts, qwen38Width, qwen38Vocab, quantization)
	return headerOnly(sharded(name, s, append(tokenizerFiles(name), text("config.json", config))...))
}

func headerOnly(r *Release) *Release {
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

// KimiK3 has Kimi K3's real shapes: 92 layers of 896 MXFP4 experts in a latent space of 3,584, 1.6 TB in 96 files, 497,220 tensors,
// 2,779,931,837,184 parameters.
//
// Known and exact: the 247,296 pairs of packed weights and scales, their names, shapes and order, so that one expert is one range of
// 17,547,264 bytes; the width of the shared experts; dense layer 0; vision in files 95 and 96; the totals. Fitted to the totals: all else.
func KimiK3() *Release {
	const layers, experts, hidden, latent, width, vocab = 93, 896, 7168, 3584, 3072, 163840
	const prefix = "language_model.model."
	s := numbered(96)
	s[0].bf16(prefix+"embed_tokens.weight", vocab, hidden)
	for l := range layers {
		kimiK3Layer(s[l], fmt.Sprintf("%slayers.%d.", prefix, l), l, experts, hidden, latent, width)
	}
	s[layers].bf16(prefix+"norm.weight", hidden)
	s[layers].bf16("language_model.lm_head.weight", vocab, hidden)
	kimiK3Vision(s[layers+1], s[layers+2], hidden)
	config := fmt.Sprintf(`{
  "architectures": ["KimiK3ForConditionalGeneration"],
  "model_type": "kimi_k3",
  "dtype": "bfloat16",
  "text_config": {
    "model_type": "kimi_k3_text",
    "first_k_dense_replace": 1,
    "hidden_size": %d,
    "moe_intermediate_size": %d,
    "num_experts": %d,
    "num_experts_per_token": 16,
    "num_hidden_layers": %d,
    "num_shared_experts": 2,
    "quantization_config": {
      "config_groups": {
        "group_0": {
          "targets": ["Linear"],
          "weights": {"group_size": 32, "num_bits": 4, "scale_dtype": "torch.uint8", "strategy": "group", "symmetric": true, "type": "float"}
        }
      },
      "format": "mxfp4-pack-quantized",
      "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*routed_expert_.*", "re:.*mlp\\..*", "re:.*lm_head.*", "re:vision_tower.*", "re:mm_projector.*"],
      "quant_method": "compressed-tensors",
      "quantization_status": "compressed"
    },
    "vocab_size": %d
  },
  "vision_config": {"hidden_size": %d, "num_hidden_layers": 40, "patch_size": 14}
}
`, hidden, width, experts, layers, vocab, kimiK3VisionDim)
	return headerOnly(sharded("kimi-k3", s, append(tokenizerFiles("kimi-k3"), text("config.json", config))...))
}

// kimiK3Layer adds one layer: 10 tensors that are neither attention nor routed experts (5 in dense layer 0), 15 of linear attention or, in
// every fourth layer, 7 of latent attention, and the routed experts.
func kimiK3Layer(s *shard, prefix string, layer, experts int, hidden, latent, width int64) {
	const shared, dense = 6144, 16384
	s.bf16(prefix+"input_layernorm.weight", hidden)
	s.bf16(prefix+"post_attention_layernorm.weight", hidden)
	kimiK3Attention(s, prefix+"self_attn.", layer%4 == 3, hidden)
	inner, name := int64(shared), prefix+"block_sparse_moe.shared_experts."
	if layer == 0 {
		inner, name = dense, prefix+"mlp."
	}
	for _, p := range projections {
		out, in := projection(p, hidden, inner)
		s.bf16(name+p+".weight", out, in)
	}
	if layer == 0 {
		return
	}
	moe := prefix + "block_sparse_moe."
	s.bf16(moe+"gate.weight", int64(experts), hidden)
	s.weight(moe+"gate.e_score_correction_bias", f32, int64(experts))
	s.bf16(moe+"routed_expert_down_proj.weight", latent, hidden)
	s.bf16(moe+"routed_expert_up_proj.weight", hidden, latent)
	s.bf16(moe+"routed_expert_norm.weight", latent)
	for e := range experts {
		for _, p := range [3]string{"w1", "w2", "w3"} {
			out, in := projection(p, latent, width)
			s.mxfp4(fmt.Sprintf("%sexperts.%d.%s.weight", moe, e, p), out, in)
		}
	}
}

func kimiK3Attention(s *shard, prefix string, latent bool, hidden int64) {
	const heads, dim, rope, q, kv = 120, 128, 64, 1536, 512
	if latent {
		s.bf16(prefix+"q_a_proj.weight", q, hidden)
		s.bf16(prefix+"q_a_layernorm.weight", q)
		s.bf16(prefix+"q_b_proj.weight", heads*(dim+rope), q)
		s.bf16(prefix+"kv_a_proj_with_mqa.weight", kv+rope, hidden)
		s.bf16(prefix+"kv_a_layernorm.weight", kv)
		s.bf16(prefix+"kv_b_proj.weight", heads*2*dim, kv)
		s.bf16(prefix+"o_proj.weight", hidden, heads*dim)
		return
	}
	for _, p := range [3]string{"q", "k", "v"} {
		s.bf16(prefix+p+"_proj.weight", heads*dim, hidden)
		s.bf16(prefix+p+"_conv1d.weight", heads*dim, 1, 4)
	}
	s.bf16(prefix+"o_proj.weight", hidden, heads*dim)
	s.bf16(prefix+"o_norm.weight", dim)
	s.weight(prefix+"A_log", f32, heads)
	s.weight(prefix+"dt_bias", f32, heads*dim)
	s.bf16(prefix+"b_proj.weight", heads, hidden)
	for _, p := range [2]string{"f", "g"} {
		s.bf16(prefix+p+"_a_proj.weight", dim, hidden)
		s.bf16(prefix+p+"_b_proj.weight", heads*dim, dim)
	}
}

const kimiK3VisionDim = 1792

// kimiK3Vision adds 489 tensors: 40 blocks of 12, and 9 around them. The position embedding takes what the total of parameters leaves.
func kimiK3Vision(first, second *shard, hidden int64) {
	const dim, merged = kimiK3VisionDim, 4 * kimiK3VisionDim
	linear := func(s *shard, name string, out, in int64) {
		s.bf16(name+".weight", out, in)
		s.bf16(name+".bias", out)
	}
	norm := func(s *shard, name string) {
		s.bf16(name+".weight", dim)
		s.bf16(name+".bias", dim)
	}
	for b := range 40 {
		s, prefix := first, fmt.Sprintf("vision_tower.encoder.blocks.%d.", b)
		if b >= 20 {
			s = second
		}
		norm(s, prefix+"norm0")
		norm(s, prefix+"norm1")
		linear(s, prefix+"wqkv", 3*dim, dim)
		linear(s, prefix+"wo", dim, dim)
		linear(s, prefix+"mlp.fc0", merged, dim)
		linear(s, prefix+"mlp.fc1", dim, merged)
	}
	first.bf16("vision_tower.patch_embed.proj.weight", dim, 3, 14, 14)
	first.bf16("vision_tower.patch_embed.proj.bias", dim)
	first.bf16("vision_tower.patch_embed.pos_emb.weight", 418435, 16)
	norm(second, "vision_tower.encoder.final_layernorm")
	linear(second, "mm_projector.linear_1", merged, merged)
	linear(second, "mm_projector.linear_2", hidden, merged)
}

// Qwen3A3B has Qwen3-30B-A3B's shapes in BF16: 48 layers of 128 experts, 18,867 tensors, 61 GB. Fitted: which of the 16 files has what.
func Qwen3A3B() *Release {
	const layers, experts, hidden, width, vocab = 48, 128, 2048, 768, 151936
	s := numbered(16)
	s[0].bf16("model.embed_tokens.weight", vocab, hidden)
	for l := range layers {
		x, prefix := s[l*len(s)/layers], fmt.Sprintf("model.layers.%d.", l)
		x.bf16(prefix+"input_layernorm.weight", hidden)
		x.bf16(prefix+"post_attention_layernorm.weight", hidden)
		x.bf16(prefix+"self_attn.q_proj.weight", 4096, hidden)
		x.bf16(prefix+"self_attn.k_proj.weight", 512, hidden)
		x.bf16(prefix+"self_attn.v_proj.weight", 512, hidden)
		x.bf16(prefix+"self_attn.o_proj.weight", hidden, 4096)
		x.bf16(prefix+"self_attn.q_norm.weight", 128)
		x.bf16(prefix+"self_attn.k_norm.weight", 128)
		x.bf16(prefix+"mlp.gate.weight", experts, hidden)
		for e := range experts {
			for _, p := range projections {
				out, in := projection(p, hidden, width)
				x.bf16(fmt.Sprintf("%smlp.experts.%d.%s.weight", prefix, e, p), out, in)
			}
		}
	}
	last := s[len(s)-1]
	last.bf16("model.norm.weight", hidden)
	last.bf16("lm_head.weight", vocab, hidden)
	config := fmt.Sprintf(`{
  "architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe",
  "decoder_sparse_step": 1,
  "head_dim": 128,
  "hidden_size": %d,
  "mlp_only_layers": [],
  "moe_intermediate_size": %d,
  "num_attention_heads": 32,
  "num_experts": %d,
  "num_experts_per_tok": 8,
  "num_hidden_layers": %d,
  "num_key_value_heads": 4,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": %d
}
`, hidden, width, experts, layers, vocab)
	return headerOnly(sharded("qwen3-30b-a3b", s, append(tokenizerFiles("qwen3-30b-a3b"), text("config.json", config))...))
}
