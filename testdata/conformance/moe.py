"""A mixture of experts that transformers made, out of every view, without PyTorch: moe.py EXPECTED_JSON NAME MOUNT

The views are read with safetensors and put together as transformers does when it loads them (gate above up, experts stacked); every
tensor's SHA-256 is that of the state dict which transformers loaded from the same view when expected.json was recorded.
"""
import hashlib
import json
import os
import re
import sys

import ml_dtypes  # noqa: F401: gives NumPy the dtypes that safetensors names
import numpy as np
from safetensors import safe_open

expected, name, mount = json.load(open(sys.argv[1])), sys.argv[2], sys.argv[3]
want = expected["state"]


def tensors(view):
    """name -> bits of the tensors of a model directory, by its index, or by its only file where it has none."""
    path = os.path.join(mount, view, "model.safetensors.index.json")
    files = set(json.load(open(path))["weight_map"].values()) if os.path.exists(path) else ["model.safetensors"]
    out = {}
    for file in files:
        with safe_open(os.path.join(mount, view, file), framework="numpy") as f:
            assert not set(out) & set(f.keys()), "one tensor in two files"
            out |= {k: f.get_tensor(k).view(np.uint16) for k in f.keys()}
    return out


def state(raw):
    """The tensors as transformers holds them."""
    out = {k: v for k, v in raw.items() if not re.search(r"\.experts\.\d+\.", k)}
    experts = {}
    for k in raw.keys() - out.keys():
        module, number, projection = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", k).groups()
        experts.setdefault(module, {}).setdefault(int(number), {})[projection] = raw[k]
    for module, numbers in experts.items():
        each = [numbers[i] for i in sorted(numbers)]
        out[module + ".gate_up_proj"] = np.stack([np.concatenate([x["gate_proj"], x["up_proj"]]) for x in each])
        out[module + ".down_proj"] = np.stack([x["down_proj"] for x in each])
    return out


def check(view, got, names):
    assert set(got) == set(names), (view, set(got) ^ set(names))
    for n in names:
        assert list(got[n].shape) == want[n]["shape"], (view, n)
        assert hashlib.sha256(np.ascontiguousarray(got[n]).tobytes()).hexdigest() == want[n]["sha256"], (view, n)


loaded = expected["loaded"][name]
checked = 0
for view in sorted(loaded):
    if view == "resident":
        got, names = state(tensors(view)), [n for n in want if ".experts." not in n]
    elif view.startswith("ranks/"):
        ranks = [state(tensors(f"{view}/{r}")) for r in range(int(view.split("/")[1]))]
        got, names = ranks[0], list(want)
        for n in [n for n in want if ".experts." not in n]:
            assert all((r[n] == got[n]).all() for r in ranks), (view, n)
        for n in [n for n in want if ".experts." in n]:
            got[n] = np.concatenate([r[n] for r in ranks])
    else:
        got, names = state(tensors(view)), list(want)
    check(view, got, names)
    checked += len(names)
blocks = np.memmap(mount + "/experts/native/expert_blocks.bin", mode="r", dtype=np.uint8)
manifest = json.load(open(mount + "/experts/native/manifest.json"))
for i, layer in enumerate(manifest["layers"]):
    for part in (p for p in manifest["parts"] if p["name"].startswith("down.")):
        starts = [(i * manifest["expertsPerLayer"] + e) * manifest["blockByteLength"] + part["offset"] for e in range(manifest["expertsPerLayer"])]
        data = b"".join(blocks[s:s + part["byteLength"]].tobytes() for s in starts)
        assert hashlib.sha256(data).hexdigest() == want[f"model.layers.{layer}.mlp.experts.down_proj"]["sha256"], layer
print(f"ok transformers ({expected['made with']}): {name}: {checked} tensors of {', '.join(sorted(loaded))}")
