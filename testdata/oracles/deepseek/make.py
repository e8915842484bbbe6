#!/usr/bin/env python3
"""Records what DeepSeek's weight_dequant makes of FP8 blocks, its Triton kernel run by Triton's interpreter on a CPU:

    pip install torch==2.15.0 numpy==2.4.6 safetensors==0.8.0 && make.py INFERENCE

INFERENCE is the folder `inference` of github.com/deepseek-ai/DeepSeek-V3 at 9b4e9788e4a3a731f7567338ed15d3ec549ce03b; its kernel.py is imported.
The kernel gets the codes' values from PyTorch and stores F32, which PyTorch rounds: Triton's interpreter reads E4M3 NaNs as 480 and cuts F32 down to
BF16 without rounding, as no GPU does.
"""
import os
import pathlib
import sys

os.environ["TRITON_INTERPRET"] = "1"
sys.path[:0] = [sys.argv[1], str(pathlib.Path(__file__).parent.parent)]

import torch
import triton
from kernel import weight_dequant
from record import codes, scales, write

release, expected = {}, {}


def add(name, out, cols, block, *, low=-12, high=-2, extremes=()):
    w = codes((out, cols)).view(torch.float8_e4m3fn)
    s = scales((-(-out // block), -(-cols // block)), low, high)
    s.view(-1)[:len(extremes)] = torch.tensor(extremes)
    release[f"{name}.weight"], release[f"{name}.weight_scale_inv"] = w, s
    expected[f"{name}.weight"] = weight_dequant(w.float(), s, block)


for out, cols in ((128, 128), (129, 140), (1, 129), (130, 1), (50, 257)):
    add(f"block128.{out}x{cols}", out, cols, 128)
add("block32", 70, 100, 32)
add("block64", 65, 100, 64)
add("extremes", 33, 100, 32, extremes=(float("inf"), float("nan"), -0.75, 0.0, 1e-45, 2.0**-133, 3e38, 2.0**120))
write(__file__, release, expected, f"DeepSeek-V3, commit 9b4e978, triton {triton.__version__}",
      {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}})
