#!/usr/bin/env python3
"""Records what transformers makes of BitNet's packed weights:

    pip install torch==2.15.0 transformers==5.24.0 numpy==2.4.6 safetensors==0.8.0 && make_bitnet.py

pack_weights packs, unpack_weights unpacks. BitLinear divides by the scale (post_quant_process, here of an input scale of 1), AutoBitLinear's output is
multiplied by it: the weight that either applies is recorded. The folders are one release each, as linear_class is a setting of the whole release.
"""
import os

os.environ["TORCH_COMPILE_DISABLE"] = "1"

import torch
import transformers
from transformers.integrations.bitnet import AutoBitLinear, BitLinear, BitNetDeserialize, pack_weights, unpack_weights
from record import codes, scales, write


def packed(rows, cols):
    ternary = (codes((rows, cols)).to(torch.int32) % 3 - 1).float()
    return pack_weights(ternary.clone())


for kind, settings in (("bitlinear", {}), ("autobitlinear", {"linear_class": "autobitlinear", "quantization_mode": "offline"})):
    release, expected = {}, {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for rows, cols in ((64, 48), (4, 7)):
            name = f"{str(dtype)[6:]}.{rows}"
            w, s = packed(rows, cols), scales((1,)).to(dtype)
            release[f"{name}.weight"], release[f"{name}.weight_scale"] = w, s
            if kind == "bitlinear":
                linear = BitLinear(cols, rows, False, dtype=torch.float32)
                made = linear.post_quant_process(unpack_weights(w, torch.float32), 1, s)
            else:
                linear = AutoBitLinear(cols, rows, False, dtype=torch.float32)
                model = torch.nn.Sequential(linear)
                linear.weight.data = BitNetDeserialize(None).convert({"weight": [w]}, model=model, full_layer_name="0.weight")["weight"]
                linear.weight_scale = s
                made = (torch.eye(cols) @ linear.weight.T * linear.weight_scale).T
            expected[f"{name}.weight"] = made.detach()
    write(__file__, release, expected, f"transformers {transformers.__version__}", {"quantization_config": {"quant_method": "bitnet", **settings}}, name=f"bitnet-{kind}")
