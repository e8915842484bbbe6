#!/usr/bin/env python3
"""Records what AMD Quark makes of its exported MXFP4, FP8 and INT8 tensors:

    pip install torch==2.15.0 amd-quark==0.13 numpy==2.4.6 safetensors==0.8.0 && make.py

The real quantizers of its export read the tensors back; the names are those of its export. Quark compiles its CPU operators when it is imported.
"""
import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import torch
from quark.torch.export.nn.modules.realquantizer import StaticScaledRealQuantizer
from quark.torch.quantization.config.config import FP4PerGroupSpec, FP8E4M3PerChannelSpec, FP8E4M3PerTensorSpec, Int8PerChannelSpec, Int8PerTensorSpec
from record import codes, scales, write

release, expected = {}, {}


def add(name, spec, weight, scale):
    quantizer = StaticScaledRealQuantizer(spec, None, False, True, torch.float32, torch.device("cpu"))
    quantizer.scale = scale
    if hasattr(quantizer, "zero_point"):
        quantizer.zero_point = torch.zeros(scale.shape, dtype=torch.int8)
        release[f"{name}.weight_zero_point"] = quantizer.zero_point.clone()
    release[f"{name}.weight"], release[f"{name}.weight_scale"] = weight.clone(), scale.clone()
    expected[f"{name}.weight"] = quantizer(weight)


mxfp4 = FP4PerGroupSpec(ch_axis=-1, group_size=32, scale_format="e8m0", scale_calculation_mode="even", is_dynamic=False).to_quantization_spec()
add("mxfp4", mxfp4, codes((9, 64)), codes((9, 4)) % 253 + 1)
add("mxfp4.row", mxfp4, codes((1, 128)), codes((1, 8)) % 253 + 1)
finite = lambda *shape: codes(shape).view(torch.float8_e4m3fn)
add("fp8.tensor", FP8E4M3PerTensorSpec(observer_method="min_max", is_dynamic=False).to_quantization_spec(), finite(6, 50), scales(()))
add("fp8.channel", FP8E4M3PerChannelSpec(ch_axis=0, is_dynamic=False).to_quantization_spec(), finite(6, 50), scales((6,)))
add("int8.tensor", Int8PerTensorSpec(observer_method="min_max", symmetric=True, scale_type="float", round_method="half_even", is_dynamic=False).to_quantization_spec(),
    codes((6, 50)).view(torch.int8), scales(()))
add("int8.channel", Int8PerChannelSpec(symmetric=True, scale_type="float", round_method="half_even", ch_axis=0, is_dynamic=False).to_quantization_spec(),
    codes((6, 50)).view(torch.int8), scales((6,)))
write(__file__, release, expected, f"amd-quark {importlib.metadata.version('amd-quark')}", {"quantization_config": {"quant_method": "quark", "global_quant_config": {"weight": mxfp4.to_dict()}}})
