#!/usr/bin/env python3
"""Records what torchao makes of its own tensors, as its safetensors serialisation stores them:

    pip install torch==2.15.0 torchao==0.18.0 numpy==2.4.6 safetensors==0.8.0 && make.py

Tensors named "made" come from torchao's quantize_; the others hold every code. Int4Tensor cannot be made or read without mslk's CUDA kernels.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
import torchao
from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig, NVFP4WeightOnlyConfig
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
from torchao.prototype.mx_formats.utils import to_blocked
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (
    Float8Tensor, Float8WeightOnlyConfig, Int8Tensor, Int8WeightOnlyConfig, IntxUnpackedToInt8Tensor, IntxWeightOnlyConfig, MappingType, PerGroup, quantize_)
from torchao.quantization.quantize_.common import KernelPreference
from record import codes, rng, scales, write

tensors = {}
BF16, F8, EMULATED = torch.bfloat16, torch.float8_e4m3fn, KernelPreference.EMULATED


def made(name, config, shape=(16, 128)):
    torch.manual_seed(20261130)
    linear = torch.nn.Linear(shape[1], shape[0], bias=False, dtype=BF16)
    model = torch.nn.Sequential(linear)
    quantize_(model, config)
    tensors[f"{name}.made.weight"] = model[0].weight.data


def exponents(*shape, low=1, high=255):
    return (codes(shape) % (high - low) + low).view(torch.float8_e8m0fnu)


made("float8", Float8WeightOnlyConfig())
made("int8", Int8WeightOnlyConfig())
for bits in (1, 2, 4, 7):
    made(f"intx{bits}", IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), granularity=PerGroup(32)))
made("intx4.asymmetric", IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32), mapping_type=MappingType.ASYMMETRIC))
made("mxfp8", MXDynamicActivationMXWeightConfig(), (40, 160))
made("nvfp4", NVFP4WeightOnlyConfig(), (48, 80))

tensors["float8.row.weight"] = Float8Tensor(codes((7, 100)).view(F8), scales((7, 1)), [1, 100], dtype=BF16)
tensors["float8.tensor.weight"] = Float8Tensor(codes((7, 100)).view(F8), scales((1, 1)), [7, 100], dtype=BF16)
tensors["float8.block.weight"] = Float8Tensor(codes((64, 128)).view(F8), scales((1, 2)), [64, 64], dtype=BF16)
tensors["float8.e5m2.weight"] = Float8Tensor(codes((7, 100)).view(torch.float8_e5m2), scales((7, 1)), [1, 100], dtype=BF16)
tensors["float8.experts.weight"] = Float8Tensor(codes((2, 5, 64)).view(F8), scales((2, 5, 1)), [1, 1, 64], dtype=BF16)
int8 = lambda *shape: codes(shape).view(torch.int8)
for dtype in (BF16, torch.float32):
    kind = str(dtype)[6:]
    tensors[f"int8.{kind}.weight"] = Int8Tensor(int8(6, 80), scales((6, 1)).to(dtype), block_size=[1, 80], dtype=BF16)
    tensors[f"int8.zero.{kind}.weight"] = Int8Tensor(int8(6, 96), scales((6, 3)).to(dtype), block_size=[1, 32], dtype=BF16, zero_point=int8(6, 3))
    tensors[f"intx.{kind}.weight"] = IntxUnpackedToInt8Tensor(int8(6, 96), scales((6, 3)).to(dtype), int8(6, 3), torch.int8, [1, 32], dtype, None)
for swizzled in (False, True):
    kind, tiles = "swizzled" if swizzled else "linear", (lambda s: to_blocked(s.view(torch.uint8)).view(s.dtype)) if swizzled else lambda s: s
    for elem in (F8, torch.float8_e5m2):
        rows = 130 if swizzled and elem == F8 else 6
        q, s = codes((rows, 160)).view(elem), exponents(rows, 5)
        s = tiles(s).view(-1, 32) if swizzled else s
        tensors[f"mx.{kind}.{str(elem)[6:]}.weight"] = MXTensor(q, s, elem, 32, BF16, EMULATED, None, swizzled)
    q, s = codes((6, 80)), exponents(6, 5)
    s = tiles(s).view(-1, 32) if swizzled else s
    tensors[f"mx.{kind}.fp4.weight"] = MXTensor(q, s, torch.float4_e2m1fn_x2, 32, BF16, EMULATED, None, swizzled)
    for second in (None, torch.tensor(0.00123456)):
        rows = 130 if swizzled and second is not None else 52
        q, s = codes((rows, 40)), codes((rows, 5)).view(F8)
        s = tiles(s).view(-1, 32) if swizzled else s
        tensors[f"nvfp4.{kind}{'.second' if second is not None else ''}.weight"] = NVFP4Tensor(q, s, 16, BF16, second, is_swizzled_scales=swizzled)
q, s = codes((2, 128, 16)), codes((256, 2)).view(F8)
s = to_blocked(s.view(torch.uint8)).view(F8).view(2, 32, 16)
tensors["nvfp4.experts.weight"] = NVFP4Tensor(q, s, 16, BF16, torch.tensor([0.00123456, 0.0334567]).view(2, 1, 1), is_swizzled_scales=True)

release, metadata = flatten_tensor_state_dict(tensors)
expected = {name: t.dequantize() for name, t in tensors.items()}
assert all(t.dtype in (BF16, torch.float32) for t in expected.values())
write(__file__, release, expected, f"torchao {torchao.__version__}", {"quantization_config": {"quant_method": "torchao"}}, metadata)
