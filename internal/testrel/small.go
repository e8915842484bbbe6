package testrel

import (
	"fmt"

	"weightfs/sources/safetensors"
)

const f32 = safetensors.F32

var projections = [3]string{"gate_proj", "up_proj", "down_proj"}

// projection is the shape of an expert's projection p: gate and up [width, hidden], down [hidden, width].
func projection(p string, hidden, width int64) (out, in int64) {
	if p == "down_proj" || p == "w2" {
		return hidden, width
	}
	return width, hidden
}

// tokenizerFiles are the files that every model directory has beside its weights. One is empty and one lies in a folder.
func tokenizerFiles(model string) []File {
	return []File{
		text(".gitattributes", "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"),
		text("LICENSE", "Synthetic data. Free for any use.\n"),
		text("README.md", "---\nlicense: apache-2.0\n---\n# "+model+"\n\nA synthetic release: real structure, numbers in closed form.\n"),
		text("assets/chat_template.jinja", "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}\n"),
		text("assets/empty.txt", ""),
		text("generation_config.json", "{\n  \"do_sample\": true,\n  \"eos_token_id\": 2,\n  \"temperature\": 0.6\n}\n"),
		text("modeling_demo.py", "\"\"\"Placeholder for the model's own code.\"\"\"\n"),
		text("tokenizer.json", "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2},\"merges\":[]}}\n"),
		text("tokenizer_config.json", "{\n  \"model_max_length\": 4096,\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n"),
	}
}

// QwenFP8 is a Qwen3-style MoE in FP8: experts one tensor a projection, 128x128 blocks with BF16 scales, short last blocks in both
// directions; gate and up of a layer in one shard, down in the next, everything else in the last two; layers in text order; an F32
// router bias; attention in FP8 too, one scale in another shard than its weight; MTP experts.
func QwenFP8() *Release {
	const layers, experts, hidden, width = 3, 12, 320, 144
	s := numbered(2*(layers+1) + 2)
	for l := range layers {
		qwenExperts(s[2*l], s[2*l+1], fmt.Sprintf("model.layers.%d.mlp.", l), experts, hidden, width)
		qwenLayer(s[2*layers+2+l/2], fmt.Sprintf("model.layers.%d.", l), experts, hidden, width)
	}
	qwenExperts(s[2*layers], s[2*layers+1], "mtp.layers.0.mlp.", experts, hidden, width)
	first, last := s[2*layers+2], s[2*layers+3]
	qwenLayer(last, "mtp.layers.0.", experts, hidden, width)
	last.bf16("mtp.fc.weight", hidden, 2*hidden)
	last.bf16("mtp.norm.weight", hidden)
	first.bf16("model.embed_tokens.weight", 256, hidden)
	last.bf16("model.norm.weight", hidden)
	last.bf16("lm_head.weight", 256, hidden)
	first.weight("model.layers.1.self_attn.o_proj.weight", safetensors.F8_E4M3, hidden, 384)
	last.scale("model.layers.1.self_attn.o_proj.weight_scale_inv", safetensors.BF16, 3, 3)
	config := fmt.Sprintf(`{
  "architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe",
  "hidden_size": %d,
  "num_hidden_layers": %d,
  "num_attention_heads": 6,
  "num_key_value_heads": 1,
  "head_dim": 64,
  "num_experts": %d,
  "num_experts_per_tok": 4,
  "moe_intermediate_size": %d,
  "shared_expert_intermediate_size": %[4]d,
  "num_nextn_predict_layers": 1,
  "vocab_size": 256,
  "rms_norm_eps": 1e-06,
  "torch_dtype": "bfloat16",
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "model.embed_tokens", "mtp.fc"]
  },
  "tie_word_embeddings": false
}
`, hidden, layers, experts, width)
	return sharded("qwen-fp8", s, append(tokenizerFiles("qwen-fp8"), text("config.json", config))...)
}

func qwenExperts(gateUp, down *shard, prefix string, experts int, hidden, width int64) {
	for e := range experts {
		for _, p := range projections {
			s := gateUp
			if p == "down_proj" {
				s = down
			}
			out, in := projection(p, hidden, width)
			s.fp8(fmt.Sprintf("%sexperts.%d.%s.weight", prefix, e, p), out, in)
		}
	}
}

func qwenLayer(s *shard, prefix string, experts, hidden, width int64) {
	s.bf16(prefix+"input_layernorm.weight", hidden)
	s.bf16(prefix+"post_attention_layernorm.weight", hidden)
	s.bf16(prefix+"self_attn.q_norm.weight", 64)
	s.bf16(prefix+"self_attn.k_norm.weight", 64)
	s.fp8(prefix+"self_attn.q_proj.weight", 384, hidden)
	s.fp8(prefix+"self_attn.k_proj.weight", 64, hidden)
	s.fp8(prefix+"self_attn.v_proj.weight", 64, hidden)
	if prefix != "model.layers.1." { // that one's scale is in another shard
		s.fp8(prefix+"self_attn.o_proj.weight", hidden, 384)
	}
	s.bf16(prefix+"mlp.gate.weight", experts, hidden)
	s.weight(prefix+"mlp.gate.e_score_correction_bias", f32, experts)
	s.bf16(prefix+"mlp.shared_expert_gate.weight", 1, hidden)
	for _, p := range projections {
		out, in := projection(p, hidden, width)
		s.bf16(prefix+"mlp.shared_expert."+p+".weight", out, in)
	}
}

// KimiMXFP4 has Kimi K3's names: MXFP4 experts as compressed-tensors packs them, all six parts of an expert adjacent because they are
// all U8, experts in text order (0, 1, 10, 11, 2, ...) since that is how names sort; experts in a latent space of their own, whose
// projections are resident in spite of their names; a dense layer 0, shared experts, a vision tower; the quantization description
// nested in text_config, and an Infinity in config.json.
func KimiMXFP4() *Release {
	const layers, experts, hidden, latent, width = 4, 12, 192, 224, 160
	const prefix = "language_model.model."
	s := numbered(layers + 2)
	s[0].bf16(prefix+"embed_tokens.weight", 256, hidden)
	for l := range layers {
		kimiLayer(s[l], fmt.Sprintf("%slayers.%d.", prefix, l), l == 0, experts, hidden, latent, width)
	}
	s[layers].bf16(prefix+"norm.weight", hidden)
	s[layers].bf16("language_model.lm_head.weight", 256, hidden)
	s[layers+1].bf16("vision_tower.patch_embed.proj.weight", 64, 3, 14, 14)
	s[layers+1].bf16("mm_projector.linear_1.weight", hidden, 64)
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
    "num_experts_per_token": 4,
    "num_hidden_layers": %d,
    "num_shared_experts": 1,
    "time_step_limit": [0.0, Infinity],
    "quantization_config": {
      "config_groups": {
        "group_0": {
          "format": "mxfp4-pack-quantized",
          "input_activations": null,
          "output_activations": null,
          "targets": ["Linear"],
          "weights": {
            "actorder": null, "block_structure": null, "dynamic": false, "group_size": 32, "num_bits": 4,
            "scale_dtype": "torch.uint8", "strategy": "group", "symmetric": true, "type": "float"
          }
        }
      },
      "format": "mxfp4-pack-quantized",
      "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*routed_expert_.*", "re:.*mlp\\..*", "re:.*lm_head.*", "re:vision_tower.*"],
      "kv_cache_scheme": null,
      "quant_method": "compressed-tensors",
      "quantization_status": "compressed"
    },
    "vocab_size": 256
  },
  "vision_config": {"hidden_size": 64, "patch_size": 14}
}
`, hidden, width, experts, layers)
	return sharded("kimi-mxfp4", s, append(tokenizerFiles("kimi-mxfp4"), text("config.json", config))...)
}

func kimiLayer(s *shard, prefix string, dense bool, experts int, hidden, latent, width int64) {
	s.bf16(prefix+"input_layernorm.weight", hidden)
	s.bf16(prefix+"post_attention_layernorm.weight", hidden)
	s.bf16(prefix+"self_attn.o_proj.weight", hidden, hidden)
	s.weight(prefix+"self_attn.A_log", f32, 6)
	if dense {
		for _, p := range projections {
			out, in := projection(p, hidden, 2*width)
			s.bf16(prefix+"mlp."+p+".weight", out, in)
		}
		return
	}
	moe := prefix + "block_sparse_moe."
	s.bf16(moe+"gate.weight", int64(experts), hidden)
	s.weight(moe+"gate.e_score_correction_bias", f32, int64(experts))
	s.bf16(moe+"routed_expert_down_proj.weight", latent, hidden)
	s.bf16(moe+"routed_expert_up_proj.weight", hidden, latent)
	s.bf16(moe+"routed_expert_norm.weight", latent)
	for _, p := range projections {
		out, in := projection(p, hidden, width)
		s.bf16(moe+"shared_experts."+p+".weight", out, in)
	}
	for e := range experts {
		for _, p := range [3]string{"w1", "w2", "w3"} {
			out, in := projection(p, latent, width)
			s.mxfp4(fmt.Sprintf("%sexperts.%d.%s.weight", moe, e, p), out, in)
		}
	}
}

// DenseBF16 is a dense model in one file without an index: no experts, nothing quantized, one F32 and one I64 tensor, a scalar and an
// empty tensor.
func DenseBF16() *Release {
	const layers, hidden, width = 2, 160, 416
	s := newShard("model.safetensors")
	s.metadata = map[string]string{"format": "pt"}
	s.bf16("model.embed_tokens.weight", 200, hidden)
	for l := range layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		s.weight(prefix+"input_layernorm.weight", f32, hidden)
		s.bf16(prefix+"self_attn.q_proj.weight", hidden, hidden)
		s.bf16(prefix+"self_attn.q_proj.bias", hidden)
		for _, p := range projections {
			out, in := projection(p, hidden, width)
			s.bf16(prefix+"mlp."+p+".weight", out, in)
		}
	}
	s.bf16("model.norm.weight", hidden)
	s.weight("model.position_ids", safetensors.I64, 1, 64)
	s.bf16("model.logit_scale")
	s.bf16("model.prefix_tokens", 0, hidden)
	config := fmt.Sprintf(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,"tie_word_embeddings":true,"torch_dtype":"bfloat16","vocab_size":200}`, hidden, width, layers)
	return newRelease("dense-bf16", append(tokenizerFiles("dense-bf16"), text("config.json", config), s.file())...)
}

// QwenFused is a Qwen3.5-style MoE in BF16: all experts of a layer in two tensors, [E, out, in] with the gate rows first, MTP as well.
func QwenFused() *Release {
	return fused("qwen-fused", "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", true, true)
}

// VLFused is a Qwen3-VL-style MoE in BF16: the same two names as [QwenFused], but [E, in, out].
func VLFused() *Release {
	return fused("vl-fused", "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", false, false)
}

func fused(name, modelType, architecture string, outIn, mtp bool) *Release {
	const layers, experts, hidden, width = 3, 6, 192, 80
	const prefix = "model.language_model."
	s := numbered(layers)
	for l := range layers {
		fusedLayer(s[l], fmt.Sprintf("%slayers.%d.", prefix, l), experts, hidden, width, outIn)
	}
	s[0].bf16(prefix+"embed_tokens.weight", 256, hidden)
	s[0].bf16("model.visual.patch_embed.proj.weight", 64, 3, 2, 14, 14)
	last := s[layers-1]
	last.bf16(prefix+"norm.weight", hidden)
	last.bf16("lm_head.weight", 256, hidden)
	if mtp {
		fusedLayer(last, "mtp.layers.0.", experts, hidden, width, outIn)
		last.bf16("mtp.fc.weight", hidden, 2*hidden)
	}
	config := fmt.Sprintf(`{
  "architectures": [%q],
  "model_type": %q,
  "text_config": {
    "dtype": "bfloat16",
    "hidden_size": %d,
    "model_type": "%[2]s_text",
    "moe_intermediate_size": %[4]d,
    "num_experts": %[5]d,
    "num_experts_per_tok": 2,
    "num_hidden_layers": %[6]d,
    "vocab_size": 256
  },
  "vision_config": {"hidden_size": 64}
}
`, architecture, modelType, hidden, width, experts, layers)
	return sharded(name, s, append(tokenizerFiles(name), text("config.json", config))...)
}

func fusedLayer(s *shard, prefix string, experts, hidden, width int64, outIn bool) {
	s.bf16(prefix+"input_layernorm.weight", hidden)
	s.bf16(prefix+"post_attention_layernorm.weight", hidden)
	s.bf16(prefix+"self_attn.q_proj.weight", hidden, hidden)
	s.bf16(prefix+"mlp.gate.weight", experts, hidden)
	gateUp, down := []int64{experts, 2 * width, hidden}, []int64{experts, hidden, width}
	if outIn {
		for _, p := range projections {
			out, in := projection(p, hidden, width)
			s.bf16(prefix+"mlp.shared_expert."+p+".weight", out, in)
		}
	} else {
		gateUp, down = []int64{experts, hidden, 2 * width}, []int64{experts, width, hidden}
	}
	s.bf16(prefix+"mlp.experts.gate_up_proj", gateUp...)
	s.bf16(prefix+"mlp.experts.down_proj", down...)
}

// TwinBF16 holds two complete copies of a dense model: shards with an index under transformers' names, and consolidated.safetensors
// with params.json under Mistral's own.
func TwinBF16() *Release {
	const layers, hidden, width = 2, 128, 352
	s, c := numbered(2), newShard("consolidated.safetensors")
	s[0].bf16("model.embed_tokens.weight", 128, hidden)
	c.bf16("tok_embeddings.weight", 128, hidden)
	for l := range layers {
		twinLayer(s[l], c, l, hidden, width)
	}
	s[1].bf16("model.norm.weight", hidden)
	c.bf16("norm.weight", hidden)
	s[1].bf16("lm_head.weight", 128, hidden)
	c.bf16("output.weight", 128, hidden)
	config := fmt.Sprintf("{\n  \"architectures\": [\"MistralForCausalLM\"],\n  \"model_type\": \"mistral\",\n  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n  \"num_hidden_layers\": %d,\n  \"torch_dtype\": \"bfloat16\",\n  \"vocab_size\": 128\n}\n", hidden, width, layers)
	params := fmt.Sprintf("{\"dim\": %d, \"n_layers\": %d, \"hidden_dim\": %d, \"vocab_size\": 128}\n", hidden, layers, width)
	others := append(tokenizerFiles("twin-bf16"), text("config.json", config), text("params.json", params), c.file())
	return sharded("twin-bf16", s, others...)
}

func twinLayer(s, c *shard, layer int, hidden, width int64) {
	theirs, ours := fmt.Sprintf("model.layers.%d.", layer), fmt.Sprintf("layers.%d.", layer)
	for _, x := range []struct {
		hf, native string
		out, in    int64
	}{
		{"self_attn.q_proj", "attention.wq", hidden, hidden},
		{"self_attn.o_proj", "attention.wo", hidden, hidden},
		{"mlp.gate_proj", "feed_forward.w1", width, hidden},
		{"mlp.down_proj", "feed_forward.w2", hidden, width},
		{"mlp.up_proj", "feed_forward.w3", width, hidden},
	} {
		s.bf16(theirs+x.hf+".weight", x.out, x.in)
		c.bf16(ours+x.native+".weight", x.out, x.in)
	}
	s.bf16(theirs+"input_layernorm.weight", hidden)
	c.bf16(ours+"attention_norm.weight", hidden)
}

// MixtralSingle is a Mixtral-style MoE in BF16 in one file without an index, without metadata.
func MixtralSingle() *Release {
	const layers, experts, hidden, width = 2, 8, 96, 224
	s := newShard("model.safetensors")
	s.bf16("model.embed_tokens.weight", 128, hidden)
	for l := range layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		s.bf16(prefix+"input_layernorm.weight", hidden)
		s.bf16(prefix+"post_attention_layernorm.weight", hidden)
		s.bf16(prefix+"self_attn.q_proj.weight", hidden, hidden)
		s.bf16(prefix+"block_sparse_moe.gate.weight", experts, hidden)
		for e := range experts {
			for _, p := range [3]string{"w1", "w2", "w3"} {
				out, in := projection(p, hidden, width)
				s.bf16(fmt.Sprintf("%sblock_sparse_moe.experts.%d.%s.weight", prefix, e, p), out, in)
			}
		}
	}
	s.bf16("model.norm.weight", hidden)
	s.bf16("lm_head.weight", 128, hidden)
	config := fmt.Sprintf(`{
  "architectures": ["MixtralForCausalLM"],
  "model_type": "mixtral",
  "hidden_size": %d,
  "intermediate_size": %d,
  "num_hidden_layers": %d,
  "num_local_experts": %d,
  "num_experts_per_tok": 2,
  "torch_dtype": "bfloat16",
  "vocab_size": 128
}
`, hidden, width, layers, experts)
	return newRelease("mixtral-single", append(tokenizerFiles("mixtral-single"), text("config.json", config), s.file())...)
}
