#!/usr/bin/env python3
"""Records what GPTQModel makes of its FP8 weights, which it divides by weight_scale_inv:

    pip install torch==2.15.0 gptqmodel==7.7.0 numpy==2.4.6 safetensors==0.8.0 && make.py
"""
import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
from gptqmodel.nn_modules.qlinear.fp8 import TorchFP8Linear, quantize_fp8_weight
from record import codes, rng, scales, write

release, expected = {}, {}


def add(name, format, method, shape, weight, scale, block=None):
    layer = TorchFP8Linear(bits=8, group_size=-1, sym=True, desc_act=False, in_features=shape[1], out_features=shape[0], bias=False,
                           format=format, weight_scale_method=method, weight_block_size=block)
    layer.weight, layer.weight_scale_inv = weight, scale
    release[f"{name}.weight"], release[f"{name}.weight_scale_inv"] = weight.clone(), scale.clone()
    expected[f"{name}.weight"] = layer.dequantize_weight(dtype=torch.float32).T


for format, dtype in (("float8_e4m3fn", torch.float8_e4m3fn), ("float8_e5m2", torch.float8_e5m2)):
    add(f"{format}.tensor", format, "tensor", (6, 50), codes((6, 50)).view(dtype), scales((), 2, 12))
    add(f"{format}.row", format, "row", (6, 50), codes((6, 50)).view(dtype), scales((6,), 2, 12))
    add(f"{format}.block", format, "block", (64, 96), codes((64, 96)).view(dtype), scales((2, 3), 2, 12), (32, 32))
w = torch.from_numpy(rng.standard_normal((8, 40))).float() * 0.03
add("made", "float8_e4m3fn", "row", (8, 40), *quantize_fp8_weight(w, format="float8_e4m3fn", weight_scale_method="row"))
assert (expected["made.weight"] - w).abs().max() < 0.01
write(__file__, release, expected, f"gptqmodel {importlib.metadata.version('gptqmodel')}",
      {"quantization_config": {"quant_method": "fp8", "format": "float8_e4m3fn", "weight_scale_method": "row", "weight_block_size": None, "weight_scale_semantics": "inverse"}})
