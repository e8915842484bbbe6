"""ONNX Runtime multiplies with the blocks of experts/q4-*: onnx_blocks.py MOUNT

The parts of a block are handed to MatMulNBits as they stand. Times the unit matrix it must give what dequantizing them with NumPy
gives, (code - zero) * scale, element for element; times random activations, the same as a product in NumPy up to rounding.
"""
import glob
import json
import os
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

mount = sys.argv[1]


def session(rows, cols, block, parts):
    """MatMulNBits of F32 activations [n, cols] with weights [rows, cols] in 4 bits."""
    inputs = ["a", "weight", "scales"] + (["zero_points"] if "zero_points" in parts else [])
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", K=cols, N=rows, bits=4, block_size=block, accuracy_level=0)
    kinds = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.float32): TensorProto.FLOAT}
    tensors = [helper.make_tensor(k, kinds[v.dtype], v.shape, v.tobytes(), raw=True) for k, v in parts.items()]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [None, cols])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, rows])], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def nibbles(packed):
    return np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[:-1] + (2 * packed.shape[-1],))


def dequantize(cols, parts):
    codes = nibbles(parts["weight"])  # [rows, blocks, block]
    blocks = codes.shape[1]
    zeros = nibbles(parts["zero_points"])[:, :blocks] if "zero_points" in parts else np.full(codes.shape[:2], 8, np.uint8)
    values = (codes.astype(np.float32) - zeros[..., None].astype(np.float32)) * parts["scales"][..., None]
    return values.reshape(codes.shape[0], -1)[:, :cols]


checked = 0
rng = np.random.default_rng(1)
plain = json.load(open(mount + "/experts/bf16/manifest.json"))
for directory in sorted(glob.glob(mount + "/experts/q4-*")):
    m = json.load(open(directory + "/manifest.json"))
    data = np.memmap(os.path.join(directory, m["file"]), mode="r", dtype=np.uint8)
    for number in (0, len(m["layers"]) * m["expertsPerLayer"] - 1):
        block = data[number * m["blockByteLength"]:][:m["blockByteLength"]]
        for projection in ("gate", "up", "down"):
            parts = {}
            for p in m["parts"]:
                name, suffix = p["name"].split(".")
                if name == projection and suffix in ("weight", "scales", "zero_points"):
                    kind = {"U8": np.uint8, "F16": np.float16}[p["dtype"]]
                    parts[suffix] = block[p["offset"]:p["offset"] + p["byteLength"]].copy().view(kind).reshape(p["shape"])
            if not parts:
                continue
            parts["scales"] = parts["scales"].astype(np.float32)
            rows, cols = next(p["shape"] for p in plain["parts"] if p["name"] == projection + ".weight")
            size = 2 * parts["weight"].shape[2]
            assert directory.endswith(f"-{'asym' if 'zero_points' in parts else 'sym'}-{size}"), directory
            want, run = dequantize(cols, parts), session(rows, cols, size, parts)
            assert np.array_equal(run.run(None, {"a": np.eye(cols, dtype=np.float32)})[0].T, want), (directory, projection)
            a = rng.standard_normal((3, cols), dtype=np.float32)
            np.testing.assert_allclose(run.run(None, {"a": a})[0], a @ want.T, rtol=1e-4, atol=1e-5 * np.abs(want).max() * cols)
            checked += 1
assert checked, "no experts/q4-* below " + mount
print(f"ok onnxruntime {ort.__version__}: MatMulNBits on {checked} matrices equals dequantizing")
