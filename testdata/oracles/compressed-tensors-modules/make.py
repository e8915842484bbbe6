#!/usr/bin/env python3
"""Records what compressed-tensors' own compressors make of the tensors of a module, format by format:

    pip install torch==2.15.0 compressed-tensors==0.20.1 numpy==2.4.6 safetensors==0.8.0 && make.py

They compute in the dtype of the scale: with F16 scales the result may differ by one unit in the last place.
"""
import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from record import codes, scales, write

release, expected, ulps = {}, {}, {}
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
F8 = torch.float8_e4m3fn


def add(name, format, args, loose=0, **tensors):
    """Records what the format's compressor decompresses."""
    release.update({f"{name}.{suffix}": t.clone() for suffix, t in tensors.items()})
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    expected[f"{name}.weight"] = BaseCompressor.get_value_from_registry(format).decompress(dict(tensors), scheme)["weight"]
    if loose:
        ulps[f"{name}.weight"] = loose


def exponents(*shape):
    return codes(shape) % 253 + 1


group = {"strategy": "group", "group_size": 32, "symmetric": True}
add("mxfp4", "mxfp4-pack-quantized", {"num_bits": 4, "type": "float", **group}, weight_packed=codes((7, 48)), weight_scale=exponents(7, 3))
add("mxfp6", "mxfp6-pack-quantized", {"num_bits": 6, "type": "float", **group}, weight_packed=codes((9, 96)), weight_scale=exponents(9, 4))
add("mxfp6.narrow", "mxfp6-pack-quantized", {"num_bits": 6, "type": "float", **group}, weight_packed=codes((1, 24)), weight_scale=exponents(1, 1))
add("mxfp8", "mxfp8-quantized", {"num_bits": 8, "type": "float", **group}, weight=codes((7, 96)).view(F8), weight_scale=exponents(7, 3))
add("nvfp4", "nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    weight_packed=codes((17, 40)), weight_scale=codes((17, 5)).view(F8), weight_global_scale=torch.tensor([384.7]))
for dtype in (BF16, F16, F32):
    loose, kind = int(dtype == F16), str(dtype)[6:]
    s = lambda *shape: scales(shape, *((-4, 0) if dtype == F16 else ())).to(dtype)  # no F16 result is subnormal
    args = {"num_bits": 8, "type": "float"}
    add(f"float.tensor.{kind}", "float-quantized", {**args, "strategy": "tensor"}, loose, weight=codes((6, 50)).view(F8), weight_scale=s(1))
    add(f"float.channel.{kind}", "float-quantized", {**args, "strategy": "channel"}, loose, weight=codes((6, 50)).view(F8), weight_scale=s(6, 1))
    add(f"float.group.{kind}", "naive-quantized", {**args, **group}, loose, weight=codes((6, 64)).view(F8), weight_scale=s(6, 2))
    args = {"num_bits": 8, "type": "int"}
    int8 = lambda *shape: codes(shape).view(torch.int8)
    add(f"int.channel.{kind}", "int-quantized", {**args, "strategy": "channel"}, loose, weight=int8(6, 50), weight_scale=s(6, 1))
    add(f"int.zero.{kind}", "int-quantized", {**args, "strategy": "channel", "symmetric": False}, loose,
        weight=int8(6, 50), weight_scale=s(6, 1), weight_zero_point=int8(6, 1))
    add(f"int.group.{kind}", "naive-quantized", {**args, **group, "symmetric": False}, loose, weight=int8(6, 96), weight_scale=s(6, 3), weight_zero_point=int8(6, 3))
    args = {"num_bits": 4, "type": "int"}
    int4 = lambda *shape: (codes(shape, 4).to(torch.int8) - 8)
    for columns, strategy, side in ((96, group, (10, 3)), (45, {"strategy": "channel"}, (10, 1))):
        tensors = dict(weight_packed=pack_to_int32(int4(10, columns), 4), weight_scale=s(*side), weight_shape=torch.tensor([10, columns]))
        add(f"packed.{columns}.{kind}", "pack-quantized", {**args, **strategy}, loose, **tensors)
        tensors |= dict(weight_packed=pack_to_int32(int4(10, columns), 4), weight_zero_point=pack_to_int32(int4(*side), 4, packed_dim=0).contiguous())
        add(f"packed.zero.{columns}.{kind}", "pack-quantized", {**args, **strategy, "symmetric": False}, loose, **tensors)
write(__file__, release, expected, f"compressed-tensors {importlib.metadata.version('compressed-tensors')}",
      {"quantization_config": {"quant_method": "compressed-tensors", "format": "mixed-precision"}}, ulps=ulps)
