#!/usr/bin/env python3
"""Records what NVIDIA ModelOpt makes of its own quantized tensors, with the names of its unified export:

    pip install torch==2.15.0 nvidia-modelopt==0.47.0 numpy==2.4.6 safetensors==0.8.0 && make.py

Its FP8 and INT8 tensors round the scale to BF16 first when they make BF16 (one unit in the last place); asked for F32 ("float32" in the name) they round as
weightfs does. ModelOpt packs INT4 for export but never unpacks it: the expected values are those that were packed, in F32.
"""
import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
from modelopt.torch.export.quant_utils import pack_int4_in_uint8
from modelopt.torch.quantization.qtensor import FP8QTensor, INT8QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor
from record import codes, scales, write

release, expected, ulps = {}, {}, {}
BF16, F8 = torch.bfloat16, torch.float8_e4m3fn


def add(name, weight, made, loose=0, **sides):
    release[f"{name}.weight"] = weight
    release.update({f"{name}.{side}": tensor for side, tensor in sides.items()})
    expected[f"{name}.weight"] = made
    if loose:
        ulps[f"{name}.weight"] = loose


for dtype in (BF16, torch.float32):
    loose, kind = int(dtype == BF16), str(dtype)[6:]
    w, s = codes((8, 96)).view(F8), scales(())
    add(f"fp8.tensor.{kind}", w, FP8QTensor(w.shape, dtype, w).dequantize(scale=s), loose, weight_scale=s, input_scale=scales(()))
    w, s = codes((8, 96)).view(F8), scales((8,))
    add(f"fp8.channel.{kind}", w, FP8QTensor(w.shape, dtype, w).dequantize(scale=s[:, None]), loose, weight_scale=s)
    w, s = codes((64, 96)).view(F8), scales((2, 3))
    made = FP8QTensor(w.shape, dtype, w).dequantize(scale=s, block_sizes={-1: 32, -2: 32})
    add(f"fp8.block.{kind}", w, made, loose, weight_scale=s[:, None, :, None])
    w, s = codes((8, 96)).view(torch.int8), scales((8,))
    add(f"int8.{kind}", w, INT8QTensor(w.shape, dtype, w).dequantize(scale=s[:, None]), loose, weight_scale=s)

w, exponents = codes((7, 96)).view(F8), codes((7, 3)) % 253 + 1
add("mxfp8", w, MXFP8QTensor(w.shape, BF16, w).dequantize(scale=exponents), weight_scale=exponents)
w, exponents = codes((7, 48)), codes((7, 3)) % 253 + 1
add("mxfp4", w, MXFP4QTensor(torch.Size((7, 96)), BF16, w).dequantize(scale=exponents, block_sizes={-1: 32}), weight_scale=exponents)

for name, shape in (("matrix", (17, 40)), ("experts", (3, 5, 24))):
    w, s = codes(shape), codes((*shape[:-1], shape[-1] // 8)).view(F8)
    second = scales(shape[:-2])
    broad = second.reshape(*shape[:-2], 1, 1) if shape[:-2] else second
    made = NVFP4QTensor(torch.Size((*shape[:-1], 2 * shape[-1])), BF16, w).dequantize(scale=s, double_scale=broad, block_sizes={-1: 16})
    add(f"nvfp4.{name}", w, made, weight_scale=s, weight_scale_2=second, input_scale=scales(()))

for dtype in (BF16, torch.float32):
    q, s = codes((6, 256), 4).to(torch.int32) - 8, scales((6, 2)).to(dtype).float()
    values = q * s.repeat_interleave(128, 1)
    add(f"int4.{str(dtype)[6:]}", pack_int4_in_uint8(values, s, 128), values, weight_scale=s.to(dtype))
write(__file__, release, expected, f"nvidia-modelopt {importlib.metadata.version('nvidia-modelopt')}",
      {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}}, ulps=ulps)
