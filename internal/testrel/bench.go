package testrel

import (
	"fmt"

	"weightfs/sources/safetensors"
)

// benchGroup is what make bench reads: most a gigabyte each, in one file, so that streams are as long as those of real shards.
const benchGroup = "bench"

// BenchFP8 is a Qwen3-style MoE of two layers with 156 experts of 2,752,896 bytes each, FP8 with BF16 scales for 128x128 blocks (the last
// rows of a projection are half a block), beside 134 MB of embeddings.
func BenchFP8() *Release {
	const layers, experts, hidden, width, vocab = 2, 156, 2048, 448, 16384
	s := numbered(1)
	for l := range layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		qwenExperts(s[0], s[0], prefix+"mlp.", experts, hidden, width)
		s[0].bf16(prefix+"input_layernorm.weight", hidden)
		s[0].bf16(prefix+"post_attention_layernorm.weight", hidden)
		s[0].fp8(prefix+"self_attn.q_proj.weight", hidden, hidden)
		s[0].fp8(prefix+"self_attn.k_proj.weight", 256, hidden)
		s[0].fp8(prefix+"self_attn.v_proj.weight", 256, hidden)
		s[0].fp8(prefix+"self_attn.o_proj.weight", hidden, hidden)
		s[0].bf16(prefix+"mlp.gate.weight", experts, hidden)
	}
	s[0].bf16("model.embed_tokens.weight", vocab, hidden)
	s[0].bf16("model.norm.weight", hidden)
	s[0].bf16("lm_head.weight", vocab, hidden)
	config := fmt.Sprintf(`{
  "architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe",
  "hidden_size": %d,
  "num_hidden_layers": %d,
  "num_experts": %d,
  "num_experts_per_tok": 8,
  "moe_intermediate_size": %d,
  "vocab_size": %d,
  "torch_dtype": "bfloat16",
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "model.embed_tokens"]
  }
}
`, hidden, layers, experts, width, vocab)
	return sharded("bench-fp8", s, append(tokenizerFiles("bench-fp8"), text("config.json", config))...)
}

// BenchMXFP4 has two layers of 28 experts of Kimi K3's size, 17,547,264 bytes, each in one range.
func BenchMXFP4() *Release {
	const layers, experts, hidden, latent, width = 2, 28, 1024, 3584, 3072
	const prefix = "language_model.model."
	s := numbered(1)
	s[0].bf16(prefix+"embed_tokens.weight", 256, hidden)
	for l := range layers {
		kimiLayer(s[0], fmt.Sprintf("%slayers.%d.", prefix, l), false, experts, hidden, latent, width)
	}
	s[0].bf16(prefix+"norm.weight", hidden)
	s[0].bf16("language_model.lm_head.weight", 256, hidden)
	config := fmt.Sprintf(`{
  "architectures": ["KimiK3ForConditionalGeneration"],
  "model_type": "kimi_k3",
  "dtype": "bfloat16",
  "text_config": {
    "model_type": "kimi_k3_text",
    "first_k_dense_replace": 0,
    "hidden_size": %d,
    "moe_intermediate_size": %d,
    "num_experts": %d,
    "num_experts_per_token": 16,
    "num_hidden_layers": %d,
    "num_shared_experts": 1,
    "quantization_config": {
      "config_groups": {
        "group_0": {
          "targets": ["Linear"],
          "weights": {"group_size": 32, "num_bits": 4, "scale_dtype": "torch.uint8", "strategy": "group", "symmetric": true, "type": "float"}
        }
      },
      "format": "mxfp4-pack-quantized",
      "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*routed_expert_.*", "re:.*lm_head.*"],
      "quant_method": "compressed-tensors",
      "quantization_status": "compressed"
    },
    "vocab_size": 256
  }
}
`, hidden, width, experts, layers)
	return sharded("bench-mxfp4", s, append(tokenizerFiles("bench-mxfp4"), text("config.json", config))...)
}

// BenchGPTQ is a dense model of two layers whose projections are packed by columns, 4 bits in groups of 128: 29 MB each.
func BenchGPTQ() *Release {
	const layers, hidden, width, group = 2, 4096, 14336, 128
	s := numbered(1)
	for l := range layers {
		for _, p := range projections {
			name := fmt.Sprintf("model.layers.%d.mlp.%s.", l, p)
			out, in := projection(p, hidden, width)
			s[0].add(name+"qweight", safetensors.I32, raw, in/8, out)
			s[0].add(name+"qzeros", safetensors.I32, raw, in/group, out/8)
			s[0].scale(name+"scales", safetensors.F16, in/group, out)
		}
	}
	s[0].bf16("model.norm.weight", hidden)
	config := fmt.Sprintf(`{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": %d,
  "num_hidden_layers": %d,
  "intermediate_size": %d,
  "torch_dtype": "float16",
  "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": %d, "desc_act": false, "sym": false, "checkpoint_format": "gptq"}
}
`, hidden, layers, width, group)
	return sharded("bench-gptq", s, append(tokenizerFiles("bench-gptq"), text("config.json", config))...)
}
