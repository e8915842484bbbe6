#!/usr/bin/env python3
"""Records what AutoRound makes of its packings on a CPU:

    pip install torch==2.15.0 auto-round==0.16.1 numpy==2.4.6 safetensors==0.8.0 && make_autoround.py

Its layers are run over an identity matrix, with scales in F32. Words of weights are random; stored zero points are those that its packing writes: where
they are minus one, the highest code does not occur (AutoRound would read it as 2^bits, weightfs as 0).
"""
import importlib.metadata

import torch
from auto_round.export.export_to_autoround.qlinear_fp import QuantLinear as FloatLinear
from auto_round.export.export_to_awq.utils import WQLinear_GEMM, dequantize_gemm
from auto_round_extension.torch.qlinear_torch import QuantLinear as PlainLinear
from auto_round_extension.torch.qlinear_torch_zp import QuantLinear as MinusOneLinear
from record import codes, scales, words, write

IN, OUT, GROUP = 96, 32, 32
VERSION = f"auto-round {importlib.metadata.version('auto-round')}"
SIDES = ("qweight", "qzeros", "scales", "g_idx")


def packed(cls, bits, **how):
    """A layer that AutoRound packed from weights and zero points of every code that it can store."""
    layer = cls(bits, GROUP, IN, OUT, False, **how)
    layer.device = "cpu"
    s = scales((OUT, IN // GROUP)).half().float()
    low = int(cls is MinusOneLinear)
    z = (codes((OUT, IN // GROUP), bits).clamp(min=low)).float()
    linear = torch.nn.Linear(IN, OUT, bias=False)
    linear.weight.data = (codes((OUT, IN), bits).float() - z.repeat_interleave(GROUP, 1)) * s.repeat_interleave(GROUP, 1)
    layer.pack(linear, s, z.clone(), None, device="cpu")
    return layer


for name, cls, packing, how in (("autoround", PlainLinear, "auto_round", {}), ("autoround-gptqmodel", PlainLinear, "auto_round:gptqmodel", {"g_idx": True}),
                                ("autoround-autogptq", MinusOneLinear, "auto_round:auto_gptq", {})):
    release, expected = {}, {}
    for bits in (2, 3, 4, 5, 6, 7, 8):
        layer = packed(cls, bits, **how)
        release.update({f"bits{bits}.{side}": getattr(layer, side) for side in SIDES if hasattr(layer, side)})
        layer.scales = layer.scales.float()
        expected[f"bits{bits}.weight"] = layer(torch.eye(IN)).T
        layer = cls(bits, GROUP, IN, OUT, False, **how)
        layer.qweight, layer.scales = words(layer.qweight.shape), scales(layer.scales.shape).half()
        layer.qzeros = packed(cls, bits, **how).qzeros
        release.update({f"bits{bits}.random.{side}": getattr(layer, side) for side in SIDES if hasattr(layer, side)})
        layer.scales = layer.scales.float()
        expected[f"bits{bits}.random.weight"] = layer(torch.eye(IN)).T
    config = {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "group_size": GROUP, "sym": False,
              "extra_config": {f"bits{bits}": {"bits": bits} for bits in (2, 3, 5, 6, 7, 8)}}
    write(__file__, release, expected, VERSION, {"quantization_config": config}, name=name)

release, expected = {}, {}
s, z = scales((IN // GROUP, OUT)).half().float(), codes((IN // GROUP, OUT), 4)
linear = torch.nn.Linear(IN, OUT, bias=False)
linear.weight.data = ((codes((IN, OUT), 4).float() - z.repeat_interleave(GROUP, 0)) * s.repeat_interleave(GROUP, 0)).T.contiguous()
layer = WQLinear_GEMM.from_linear(linear, 4, GROUP, scales=s, zeros=z, device="cpu")
release.update({f"m.{side}": getattr(layer, side) for side in ("qweight", "qzeros", "scales")})
expected["m.weight"] = dequantize_gemm(layer.qweight, layer.qzeros, layer.scales.float(), 4, GROUP).T
config = {"quant_method": "auto-round", "packing_format": "auto_round:auto_awq", "bits": 4, "group_size": GROUP, "sym": False}
write(__file__, release, expected, VERSION, {"quantization_config": config}, name="autoround-awq")
