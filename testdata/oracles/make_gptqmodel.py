#!/usr/bin/env python3
"""Records what GPTQModel makes of GPTQ tensors of its three formats on a CPU:

    pip install torch==2.15.0 gptqmodel==7.7.0 numpy==2.4.6 safetensors==0.8.0 && make_gptqmodel.py

dequantize_weight works in the dtype of the scales, which are given in F32. The words of weights and zero points are random, so that stored zero points
wrap; those of "made" come from GPTQModel's packing. Zero points of the first format go through its conversion to the second.
"""
import importlib.metadata
import os

os.environ["GPTQMODEL_DISABLE_PACK_EXT"] = os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization import FORMAT, QuantizeConfig
from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module, convert_gptq_v2_to_v1_format_module
from record import codes, rng, scales, words, write

IN, OUT = 96, 32


def linear(bits, group, desc_act, format):
    return TorchLinear(
        bits=bits, group_size=group, sym=False, desc_act=desc_act, in_features=IN, out_features=OUT, bias=False, register_buffers=True, format=format)


def add(release, expected, name, module, format):
    """Records a module whose zero points are stored as the format says."""
    for side in ("qweight", "qzeros", "scales", "g_idx"):
        if side != "g_idx" or not name.endswith("ordered"):
            release[f"{name}.{side}"] = getattr(module, side).data.clone()
    release[f"{name}.scales"] = module.scales.data.to(torch.float16)
    if format == FORMAT.GPTQ:
        convert_gptq_v1_to_v2_format_module(module, module.bits, torch.int32)
    module.scales = module.scales.to(torch.float16).float()
    module.post_init()
    module.eval()
    expected[f"{name}.weight"] = module.dequantize_weight().T


def made(release, expected, name, bits, format):
    """Records what GPTQModel packs."""
    module = linear(bits, 32, True, format)
    s, z = scales((OUT, IN // 32)).half().float(), codes((OUT, IN // 32), bits).float()
    index = (torch.arange(IN) // 32)[torch.from_numpy(rng.permutation(IN))]
    original = torch.nn.Linear(IN, OUT, bias=False)
    original.weight.data = (codes((OUT, IN), bits).float() - z[:, index]) * s[:, index]
    module.pack(original, s, z, index.to(torch.int32))
    if format == FORMAT.GPTQ:
        convert_gptq_v2_to_v1_format_module(module, QuantizeConfig(bits=bits, group_size=32))
    add(release, expected, name, module, format)
    assert torch.equal(expected[f"{name}.weight"], original.weight.data)


def random(release, expected, name, bits, group, shuffled, format):
    """Records random words."""
    module = linear(bits, group, shuffled, format)
    module.qweight.data, module.qzeros.data = words(module.qweight.shape), words((IN // group, OUT * bits // 32))
    module.scales.data = scales((IN // group, OUT))
    index = torch.arange(IN) // group
    module.g_idx.data = (index[torch.from_numpy(rng.permutation(IN))] if shuffled else index).to(torch.int32)
    add(release, expected, name, module, format)


for name, format, widths in (("v1", FORMAT.GPTQ, (2, 3, 4, 8)), ("v2", FORMAT.GPTQ_V2, (2, 3, 4, 8)), ("planar", FORMAT.GPTQ_P, (2, 3, 4, 5, 6, 7, 8))):
    release, expected = {}, {}
    for bits in widths:
        random(release, expected, f"bits{bits}.ordered", bits, 32, False, format)
        random(release, expected, f"bits{bits}.index", bits, 32, False, format)
        random(release, expected, f"bits{bits}.shuffled", bits, 32, True, format)
        random(release, expected, f"bits{bits}.row.ordered", bits, IN, False, format)
        made(release, expected, f"bits{bits}.made", bits, format)
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False, "checkpoint_format": format.value,
              "dynamic": {f"+:^bits{bits}\\.": {"bits": bits} for bits in widths if bits != 4}}
    write(__file__, release, expected, f"gptqmodel {importlib.metadata.version('gptqmodel')}", {"quantization_config": config}, name=f"gptqmodel-{name}")
