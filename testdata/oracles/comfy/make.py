#!/usr/bin/env python3
"""Records what comfy-kitchen makes of ComfyUI's quantized layers, by its eager backend:

    pip install torch==2.15.0 comfy-kitchen==0.2.40 numpy==2.4.6 safetensors==0.8.0 && make.py

Where it makes BF16 it rounds the scale of FP8 to BF16 first (one unit in the last place), and both scales of NVFP4 and their product (up to two). Where
it makes F32 ("float32" in the name) it rounds as weightfs does.
"""
import importlib.metadata
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
from comfy_kitchen.backends.eager import quantization as eager
from comfy_kitchen.float_utils import to_blocked
from record import codes, scales, write

release, expected, ulps = {}, {}, {}
F8, BF16 = torch.float8_e4m3fn, torch.bfloat16


def add(name, format, weight, made, loose=0, marker=True, **sides):
    release[f"{name}.weight"] = weight
    release.update({f"{name}.{side}": tensor for side, tensor in sides.items()})
    if marker:
        release[f"{name}.comfy_quant"] = torch.frombuffer(bytearray(json.dumps({"format": format}).encode()), dtype=torch.uint8)
    expected[f"{name}.weight"] = made
    if loose:
        ulps[f"{name}.weight"] = loose


for format, dtype in (("float8_e4m3fn", F8), ("float8_e5m2", torch.float8_e5m2)):
    for out in (BF16, torch.float32):
        w, s = codes((12, 64)).view(dtype), scales(())
        add(f"{format}.{str(out)[6:]}", format, w, eager.dequantize_per_tensor_fp8(w, s, out), int(out == BF16), weight_scale=s, input_scale=scales(()))
w, s = codes((12, 64)).view(F8), scales((1,))
add("legacy", None, w, eager.dequantize_per_tensor_fp8(w, s, torch.float32), marker=False, scale_weight=s, scale_input=scales((1,)))
w, s = codes((4, 2, 3, 3)).view(F8), scales(())
add("convolution", "float8_e4m3fn", w, eager.dequantize_per_tensor_fp8(w, s, torch.float32), weight_scale=s)

for name, shape in (("tensor", ()), ("row", (10, 1))):
    w, s = codes((10, 52)).view(torch.int8), scales(shape)
    add(f"int8.{name}", "int8_tensorwise", w, eager.dequantize_int8_simple(w, s), weight_scale=s)

for rows, stored, cols, loose in ((144, 144, 80, 1), (40, 48, 48, 2)):
    for out in (BF16, torch.float32):
        w, s, second = codes((stored, cols // 2)), to_blocked(codes((stored, cols // 16)).view(F8), flatten=False), scales(())
        made = eager.dequantize_nvfp4(w, second, s, out)[:rows]
        add(f"nvfp4.{rows}.{str(out)[6:]}", "nvfp4", w, made, loose * (out == BF16), weight_scale=s, weight_scale_2=second, bias=torch.zeros(rows, dtype=BF16))

for rows, stored, cols in ((160, 160, 160), (40, 64, 64)):
    w, s = codes((stored, cols)).view(F8), to_blocked(codes((stored, cols // 32)) % 253 + 1, flatten=False).view(torch.float8_e8m0fnu)
    add(f"mxfp8.{rows}", "mxfp8", w, eager.dequantize_mxfp8(w, s, BF16)[:rows], weight_scale=s, bias=torch.zeros(rows, dtype=BF16))
write(__file__, release, expected, f"comfy-kitchen {importlib.metadata.version('comfy-kitchen')}", ulps=ulps)
