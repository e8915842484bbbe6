"""Programs nobody here wrote read a mounted release: readers.py RELEASE_ON_DISK MOUNT

safetensors (with NumPy) opens every safetensors file of every view; NumPy maps the blocks by the manifest; ml_dtypes and NumPy
recompute dequantized tensors and compare bit for bit; tinygrad's safe_load maps files of the bf16 view.
"""
import glob
import json
import os
import struct
import sys

import ml_dtypes
import numpy as np
from safetensors import safe_open

DTYPES = {
    "BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32, "F64": np.float64, "U8": np.uint8, "I8": np.int8,
    "I16": np.int16, "I32": np.int32, "I64": np.int64, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64, "BOOL": np.bool_,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
NUMPY_HAS = ("BF16", "F16", "F32", "F64", "U8", "I8", "I16", "I32", "I64", "U16", "U32", "U64", "BOOL")  # what safetensors can hand to NumPy


def index(directory):
    """name -> (file, dtype, shape, start, end), by reading headers with struct and json alone."""
    out = {}
    for path in sorted(glob.glob(directory + "/*.safetensors")):
        with open(path, "rb") as f:
            (n,) = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(n))
        header.pop("__metadata__", None)
        for name, t in header.items():
            a, b = t["data_offsets"]
            out[name] = (path, t["dtype"], t["shape"], 8 + n + a, 8 + n + b)
    return out


def array(entry):
    path, dtype, shape, start, _ = entry
    return np.memmap(path, mode="r", dtype=np.uint8, offset=start, shape=(entry[4] - start,)).view(DTYPES[dtype]).reshape(shape)


def open_with_safetensors(mount):
    """The package opens every file; its view of names, shapes, dtypes and bytes is the raw file's."""
    files = tensors = 0
    for root, _, names in os.walk(mount):
        for name in sorted(n for n in names if n.endswith(".safetensors")):
            raw, path = index(root), os.path.join(root, name)
            with safe_open(path, framework="numpy") as f:
                for key in f.keys():
                    _, dtype, shape, _, _ = raw[key]
                    s = f.get_slice(key)
                    assert s.get_dtype() == dtype and list(s.get_shape()) == shape, (path, key)
                    if dtype in NUMPY_HAS and raw[key][4] > raw[key][3]:
                        assert f.get_tensor(key).tobytes() == array(raw[key]).tobytes(), (path, key)
                    tensors += 1
            files += 1
    assert files, "no safetensors file below " + mount
    print(f"ok safetensors: {files} files, {tensors} tensors")


def bf16(x):
    """binary32 -> bits of BF16 by ml_dtypes' round-to-nearest-even, NaN as 7FC0."""
    bits = x.astype(ml_dtypes.bfloat16).view(np.uint16).copy()
    bits[np.isnan(x)] = 0x7FC0
    return bits


def expand(scale, shape, rows, cols):
    return np.repeat(np.repeat(scale, rows, 0), cols, 1)[: shape[0], : shape[1]]


def dequantize(release, name):
    """name is the dequantized tensor's; None if the release's tensor is not quantized."""
    if name + "_scale_inv" in release:
        w = array(release[name]).astype(np.float32)
        s = array(release[name + "_scale_inv"]).astype(np.float32)
        return bf16(w * expand(s, w.shape, 128, 128))
    if name + "_packed" in release:
        p, s = array(release[name + "_packed"]), array(release[name + "_scale"])
        codes = np.empty((p.shape[0], p.shape[1] * 2), np.uint8)
        codes[:, ::2], codes[:, 1::2] = p & 15, p >> 4
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
        return bf16(values * np.repeat(s.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), 32, 1))
    return None


def recompute(release_dir, mount):
    release, view = index(release_dir), index(mount + "/bf16")
    checked = 0
    for name, entry in view.items():
        want = dequantize(release, name)
        if want is None:
            assert entry[1:3] == release[name][1:3] and array(entry).tobytes() == array(release[name]).tobytes(), name
            continue
        assert entry[1] == "BF16", name
        got = array(entry).view(np.uint16)
        assert got.shape == want.shape and (got == want).all(), name
        checked += 1
    print(f"ok ml_dtypes: {checked} dequantized tensors equal, {len(view) - checked} others untouched")


def blocks(release_dir, mount):
    """NumPy maps expert_blocks.bin by the manifest of experts/native."""
    d = mount + "/experts/native"
    if not os.path.isdir(d):
        print("no expert views")
        return
    release, m = index(release_dir), json.load(open(d + "/manifest.json"))
    size = m["blockByteLength"]
    data = np.memmap(d + "/expert_blocks.bin", mode="r", dtype=np.uint8)
    assert data.size == len(m["layers"]) * m["expertsPerLayer"] * size
    for i, layer in enumerate(m["layers"]):
        for e in range(m["expertsPerLayer"]):
            block = data[(i * m["expertsPerLayer"] + e) * size:][:size]
            for p in m["parts"]:
                name = p["tensor"].replace("{layer}", str(layer)).replace("{expert}", str(e))
                if name not in release:
                    continue
                part = block[p["offset"]: p["offset"] + p["byteLength"]]
                want = array(release[name])
                want = want[e] if "{expert}" not in p["tensor"] else want
                assert part.tobytes() == want.tobytes(), (layer, e, p["name"])
    print(f"ok blocks: {len(m['layers'])} x {m['expertsPerLayer']} by the manifest")


def with_tinygrad(mount):
    """tinygrad opens every path for writing, which no read-only file system allows: safe_load is given the file's mapping instead.
    Its Python device needs no compiler."""
    os.environ["DEV"] = "PYTHON"
    from tinygrad import Tensor, dtypes
    from tinygrad.nn.state import safe_load
    unsigned = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
    n = 0
    for path in sorted(glob.glob(mount + "/bf16/*.safetensors")):
        raw = {k: v for k, v in index(mount + "/bf16").items() if v[0] == path}
        state = safe_load(Tensor(np.memmap(path, mode="r", dtype=np.uint8).view(np.ndarray)))
        assert set(state) == set(raw), path
        for name, t in state.items():
            assert list(t.shape) == raw[name][2], name
            if t.nbytes() and n % 8 == 0:
                got = t.bitcast(unsigned[t.dtype.itemsize]).contiguous().numpy().tobytes()
                assert got == array(raw[name]).tobytes(), name
            n += 1
    print(f"ok tinygrad: {n} tensors")


if __name__ == "__main__":
    source, mounted = sys.argv[1:3]
    open_with_safetensors(mounted)
    recompute(source, mounted)
    blocks(source, mounted)
    with_tinygrad(mounted)
