#!/usr/bin/env python3
"""Records what transformers makes of fine-grained FP8, MXFP8 and DeepSeek's FP4 when it loads them with dequantize=True:

    pip install torch==2.15.0 transformers==5.24.0 numpy==2.4.6 safetensors==0.8.0 && make.py

Its conversion takes whole blocks only, and the block size from the grid alone.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
import transformers
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from record import codes, scales, write

release, expected = {}, {}
op = Fp8Dequantize(None)


def add(name, weight, scale, side="weight_scale_inv"):
    release[f"{name}.weight"], release[f"{name}.{side}"] = weight, scale
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.empty(0, dtype=torch.bfloat16))
    made = op.convert({"weight": weight, "weight_scale_inv": scale}, full_layer_name="weight", model=model)
    expected[f"{name}.weight"] = made["weight"]


def f8(*shape):
    return codes(shape).view(torch.float8_e4m3fn)


def exponents(*shape, low=100, high=150):
    return codes(shape) % (high - low) + low


for dtype in (torch.float32, torch.bfloat16, torch.float16):
    word = str(dtype)[6:]
    add(f"{word}.block32", f8(64, 96), scales((2, 3)).to(dtype))
    add(f"{word}.tensor", f8(3, 100), scales(()).to(dtype))
    add(f"{word}.one", f8(5, 64), scales((1,)).to(dtype))
    add(f"{word}.row", f8(7, 100), scales((7, 1)).to(dtype))
add("block128", f8(128, 256), scales((1, 2)))
add("e8m0.block32", f8(64, 96), exponents(2, 3).view(torch.float8_e8m0fnu), "scale")
add("mxfp8.u8", f8(8, 64), exponents(8, 2, low=2, high=254))
add("mxfp8.e8m0", f8(8, 64), exponents(8, 2, low=2, high=254).view(torch.float8_e8m0fnu))
add("e5m2", codes((4, 128)).view(torch.float8_e5m2), scales((4, 1)))
add("experts.0.w1", codes((6, 64)).view(torch.int8), exponents(6, 4, low=1, high=255).view(torch.float8_e8m0fnu), "scale")
add("extremes", f8(6, 256), torch.tensor([[float("inf")], [float("nan")], [-0.75], [0.0], [1e-45], [3e38]]))
write(__file__, release, expected, f"transformers {transformers.__version__}",
      {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}})
