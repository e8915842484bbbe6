#!/usr/bin/env python3
"""Records what transformers loads, with dequantize=True, of a tiny Qwen3-MoE whose experts and attention are FP8 in blocks of 32x32:

    pip install torch==2.15.0 transformers==5.24.0 numpy==2.4.6 safetensors==0.8.0 && make.py

The release holds plain tensors too, and expected.safetensors every tensor under the names that transformers saves it with.
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, Qwen3MoeConfig, Qwen3MoeForCausalLM
from record import codes, scales, write

torch.manual_seed(20261130)
config = Qwen3MoeConfig(
    vocab_size=32, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
    moe_intermediate_size=32, num_experts=3, num_experts_per_tok=2, tie_word_embeddings=False, dtype="bfloat16")
with tempfile.TemporaryDirectory() as folder:
    Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, save_original_format=True)
    plain = load_file(f"{folder}/model.safetensors")
    settings = json.loads(pathlib.Path(folder, "config.json").read_text())
release = {}
for name, t in plain.items():
    if "_proj.weight" not in name:
        release[name] = t
        continue
    release[name] = (codes(t.shape) % 0x7F | codes(t.shape) & 0x80).view(torch.float8_e4m3fn)  # no NaN
    release[f"{name}_scale_inv"] = scales((t.shape[0] // 32, t.shape[1] // 32))
settings["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [32, 32], "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}
made_with = f"transformers {transformers.__version__}"
write(__file__, release, plain, made_with, settings)
here = pathlib.Path(__file__).parent
model = AutoModelForCausalLM.from_pretrained(here / "release", quantization_config=FineGrainedFP8Config(weight_block_size=(32, 32), dequantize=True), dtype=torch.bfloat16)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder, save_original_format=True)
    loaded = load_file(f"{folder}/model.safetensors")
assert set(loaded) == set(plain), set(loaded) ^ set(plain)
write(__file__, release, loaded, made_with, settings)
