#!/usr/bin/env python3
"""Records what ONNX Runtime's own quantizer makes of matrices, as experts/q4-* must. Run with:

    pip install onnxruntime==1.32.0 numpy==2.4.6 safetensors==0.8.0 ml-dtypes==0.6.0 && python make.py

The quantizer takes the scales' type from the weights', so the weights of blocks.safetensors are chosen that BF16 and F16 both hold exactly; those of
halves.safetensors are any F16 ones. It wants them as [K, N].
"""
import pathlib

import ml_dtypes
import numpy as np
import onnxruntime
from onnxruntime.capi._pybind_state import quantize_matmul_4bits
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(20261130)
out = {}


def matrices(rows, cols):
    """Weights [rows, cols] of several kinds; values are BF16 within F16's normal range, or zero."""
    normal = rng.standard_normal((rows, cols)) * 0.05
    yield "normal", normal
    yield "positive", np.abs(normal) + 0.01
    yield "negative", -np.abs(normal) - 0.01
    yield "constant", np.full((rows, cols), 0.3)
    yield "zeros", np.where(rng.random((rows, cols)) < 0.9, 0, normal)
    yield "outlier", np.where(rng.random((rows, cols)) < 0.02, normal * 400, normal)
    yield "halves", rng.integers(-30, 31, (rows, cols)) / 2.0


def quantized(out, name, w, half, block):
    """Adds the weights w, whose F16 form is half, and what the quantizer makes of them by both schemes."""
    rows, cols = half.shape
    for symmetric in (False, True):
        blocks = -(-cols // block)
        data = np.zeros((rows, blocks, block // 2), np.uint8)
        scales = np.zeros((rows, blocks), np.float16)
        zeros = np.zeros((rows, -(-blocks // 2)), np.uint8)
        quantize_matmul_4bits(data, np.ascontiguousarray(half.T), scales, zeros, block, rows, cols, symmetric)
        key = f"{name}.{block}.{cols}.{'sym' if symmetric else 'asym'}"
        out[f"{key}.weight"], out[f"{key}.data"], out[f"{key}.scales"] = w, data, scales
        if not symmetric:
            out[f"{key}.zeros"] = zeros


made = {"made with": f"onnxruntime {onnxruntime.__version__}"}
for block in (16, 32, 64, 128):
    for cols in (128, 80, 33):
        for kind, w in matrices(5, cols):
            w = w.astype(ml_dtypes.bfloat16)
            w[np.abs(w.astype(np.float32)) < 2.0**-14] = 0
            half = w.astype(np.float16)
            assert (half.astype(np.float32) == w.astype(np.float32)).all()
            quantized(out, kind, w, half, block)
save_file(out, here / "blocks.safetensors", metadata=made)

out = {}
for block in (16, 32, 64):
    for cols in (128, 33):
        for kind, w in matrices(7, cols):
            half = w.astype(np.float16)
            quantized(out, kind, half, half, block)
save_file(out, here / "halves.safetensors", metadata=made)
