#!/usr/bin/env python3
"""Records what HQQ's own layer stores and dequantizes, in F16 and BF16 as it runs:

    pip install torch==2.15.0 hqq==0.2.8.post1 numpy==2.4.6 safetensors==0.8.0 && make.py

It rounds every step to its dtype, so that tensors may differ by one unit in the last place.
"""
import importlib.metadata
import os
import pathlib
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQBackend, HQQLinear
from record import rng, write

HQQLinear.set_backend(HQQBackend.PYTORCH)
release, expected, ulps = {}, {}, {}
for dtype in (torch.float16, torch.bfloat16):
    for bits in (1, 2, 3, 4, 8):
        for axis in (0, 1):
            name = f"{str(dtype)[6:]}.b{bits}.axis{axis}"
            linear = torch.nn.Linear(48, 32, bias=False)
            linear.weight.data = torch.from_numpy(rng.standard_normal((32, 48)) * 0.05).to(dtype)
            config = BaseQuantizeConfig(nbits=bits, group_size=16, axis=axis)
            layer = HQQLinear(linear, quant_config=config, compute_dtype=dtype, device="cpu", del_orig=False)
            release.update({f"{name}.{k}": v.clone() for k, v in layer.state_dict().items() if isinstance(v, torch.Tensor)})
            expected[f"{name}.weight"] = layer.dequantize()
            ulps[f"{name}.weight"] = 1
write(__file__, release, expected, f"hqq {importlib.metadata.version('hqq')}", {"quantization_config": {"quant_method": "hqq"}}, ulps=ulps)
