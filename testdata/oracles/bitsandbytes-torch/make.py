#!/usr/bin/env python3
"""Records what bitsandbytes quantizes, serializes and dequantizes on a CPU, through its PyTorch operators:

    pip install torch==2.15.0 bitsandbytes==0.50.2 numpy==2.4.6 safetensors==0.8.0 && make.py

Tensors whose state says float16 are made in F16 and may differ by one unit in the last place; those of FP4 do not here.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import bitsandbytes
import numpy as np
import torch
from bitsandbytes import functional
from bitsandbytes.nn.parametrize import replace_parameter_4bit
from record import codes, rng, scales, write

release, expected, ulps = {}, {}, {}


def four(name, shape, kind, blocksize, nested, dtype=torch.bfloat16, storage=torch.uint8):
    w = torch.from_numpy((rng.standard_normal(shape) * 0.03).astype(np.float32)).to(dtype)
    packed, state = functional.quantize_4bit(w, blocksize=blocksize, compress_statistics=nested, quant_type=kind, quant_storage=storage)
    release[f"{name}.weight"] = packed
    release.update({f"{name}.weight.{k}": v for k, v in state.as_dict(packed=True).items()})
    expected[f"{name}.weight"] = functional.dequantize_4bit(packed, state)
    if dtype == torch.float16 and kind == "nf4":
        ulps[f"{name}.weight"] = 1


for kind in ("nf4", "fp4"):
    for nested in (False, True):
        word = f"{kind}.{'nested' if nested else 'plain'}"
        four(f"{word}.matrix", (48, 128), kind, 64, nested)
        four(f"{word}.odd", (7, 37), kind, 64, nested)
        four(f"{word}.f32", (6, 128), kind, 128, nested, torch.float32)
        four(f"{word}.f16", (6, 128), kind, 64, nested, torch.float16)
    four(f"{kind}.storage", (6, 128), kind, 64, False, storage=torch.bfloat16)
four("nf4.many", (300, 64), "nf4", 64, True)

for nested in (False, True):  # fused parameters, as its parametrization stores them
    experts = torch.nn.Module()
    experts.gate_up_proj = torch.nn.Parameter(torch.from_numpy((rng.standard_normal((3, 10, 20)) * 0.03).astype(np.float32)).to(torch.bfloat16), requires_grad=False)
    replace_parameter_4bit(experts, "gate_up_proj", compress_statistics=nested, quant_type="nf4", blocksize=64)
    prefix = "nested.experts." if nested else "plain.experts."
    release.update({prefix + k: v.clone() for k, v in experts.state_dict().items()})
    expected[f"{prefix}gate_up_proj"] = experts.gate_up_proj

for name, shape in (("int8.matrix", (12, 100)), ("int8.row", (1, 256)), ("int8.column", (256, 1))):
    w, s = codes(shape).view(torch.int8), scales(shape[:1])
    release[f"{name}.weight"], release[f"{name}.SCB"], release[f"{name}.weight_format"] = w, s, torch.tensor(0, dtype=torch.uint8)
    expected[f"{name}.weight"] = functional.int8_vectorwise_dequant(w, s)
q, s, _ = functional.int8_vectorwise_quant(torch.from_numpy((rng.standard_normal((5, 33)) * 0.03).astype(np.float16)))
release["int8.made.weight"], release["int8.made.SCB"], release["int8.made.weight_format"] = q, s, torch.tensor(0, dtype=torch.uint8)
expected["int8.made.weight"] = functional.int8_vectorwise_dequant(q, s)
write(__file__, release, expected, f"bitsandbytes {bitsandbytes.__version__}", {"quantization_config": {"quant_method": "bitsandbytes"}}, ulps=ulps)
