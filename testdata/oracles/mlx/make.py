#!/usr/bin/env python3
"""Records what MLX makes of its own quantized weights. Run beside this file's folder release/ with:

    pip install mlx==0.32.4 mlx-cpu==0.32.4 numpy==2.4.6 safetensors==0.8.0 ml-dtypes==0.6.0 && python make.py

mx.dequantize gets scales and biases as float32, so that it computes in float32 as its Metal kernels do; its BF16 arithmetic on a CPU rounds
after every operation.
"""
import json
import pathlib

import ml_dtypes
import mlx.core as mx
import numpy as np
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(20261130)
release, expected, config = {}, {}, {"group_size": 64, "bits": 4}


def array(a):
    """An MLX array as NumPy; NumPy has no bfloat16 of its own."""
    if a.dtype == mx.bfloat16:
        return np.array(a.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(a)


def add(name, shape, bits, group, mode, dtype):
    w = mx.array((rng.standard_normal(shape) * 0.02).astype(np.float32)).astype(dtype)
    parts = mx.quantize(w, group_size=group, bits=bits, mode=mode)
    for suffix, part in zip(("weight", "scales", "biases"), parts):
        release[f"{name}.{suffix}"] = array(part)
    if mode == "affine":
        parts = [parts[0]] + [p.astype(mx.float32) for p in parts[1:]]
    out = mx.dequantize(*parts, group_size=group, bits=bits, mode=mode).astype(mx.bfloat16)
    expected[f"{name}.weight"] = array(out)
    config[name] = {"group_size": group, "bits": bits, "mode": mode}


for dtype, word in ((mx.bfloat16, "bf16"), (mx.float16, "f16"), (mx.float32, "f32")):
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            add(f"affine.{word}.b{bits}.g{group}", (3, 256), bits, group, "affine", dtype)
add("experts.switch_mlp.gate_proj", (2, 3, 128), 4, 64, "affine", mx.bfloat16)
add("mx.fp4", (3, 128), 4, 32, "mxfp4", mx.bfloat16)
add("mx.fp8", (3, 128), 8, 32, "mxfp8", mx.bfloat16)
add("nv.fp4", (3, 128), 4, 16, "nvfp4", mx.bfloat16)

experts = {"weight": [], "scales": [], "global_scale": [], "expected": []}
for i in range(4):
    w = mx.array((rng.standard_normal((3, 64)) * 0.02 * 2**i).astype(np.float32))
    g = mx.max(mx.abs(w))
    q, s = mx.quantize(w, group_size=16, bits=4, mode="nvfp4", global_scale=g)
    out = mx.dequantize(q, s, group_size=16, bits=4, mode="nvfp4", global_scale=g, dtype=mx.float32).astype(mx.bfloat16)
    for key, part in zip(experts, (q, s, g, out)):
        experts[key].append(part)
name = "global.switch_mlp.up_proj"
for key, parts in experts.items():
    (expected if key == "expected" else release)[f"{name}.{'weight' if key == 'expected' else key}"] = array(mx.stack(parts))
    (expected if key == "expected" else release)[f"one.{'weight' if key == 'expected' else key}"] = array(parts[0])
config[name] = config["one"] = {"group_size": 16, "bits": 4, "mode": "nvfp4"}

save_file(release, here / "release" / "model.safetensors", metadata={"format": "mlx", "made with": f"mlx {mx.__version__}"})
save_file(expected, here / "expected.safetensors", metadata={"made with": f"mlx {mx.__version__}"})
(here / "release" / "config.json").write_text(json.dumps({"quantization": config}, indent=1) + "\n")
