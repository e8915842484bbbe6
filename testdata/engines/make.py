#!/usr/bin/env python3
"""Records tiny mixtures of experts that transformers made, and that transformers loads their views through mounts. Run with:

    pip install torch==2.15.0 transformers==5.24.0 && make && testdata/engines/make.py build/weightfs

`per-expert` and `fused` are one Qwen3-MoE with random weights, saved by transformers in either form. Of every tensor of its state dict
expected.json has the SHA-256. `loaded` says which views transformers loaded through a mount, and how many tensors were equal; where one
was not, this program fails. testdata/conformance/moe.py checks the same through a mount without PyTorch.
"""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

here = pathlib.Path(__file__).parent
weightfs = pathlib.Path(sys.argv[1]).resolve()
EXPERTS = 6


def make():
    torch.manual_seed(20261130)
    config = Qwen3MoeConfig(
        vocab_size=64, hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        moe_intermediate_size=24, num_experts=EXPERTS, num_experts_per_tok=2, mlp_only_layers=[0], tie_word_embeddings=False, dtype="bfloat16")
    model = Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    for name, original in (("per-expert", True), ("fused", False)):
        shutil.rmtree(here / name, ignore_errors=True)
        model.save_pretrained(here / name, max_shard_size="40KB", save_original_format=original)
    return model.state_dict()


def raw(t):
    return t.contiguous().view(torch.uint8).numpy().tobytes()


def load(directory, **how):
    model, info = AutoModelForCausalLM.from_pretrained(directory, dtype="auto", output_loading_info=True, local_files_only=True, **how)
    return model.state_dict(), {k: sorted(map(str, v)) for k, v in info.items() if v}


def routed(name):
    return ".mlp.experts." in name


def same(view, want, got, only=lambda name: True):
    names = [n for n in want if only(n)]
    for n in names:
        assert got[n].dtype == want[n].dtype and got[n].shape == want[n].shape and raw(got[n]) == raw(want[n]), (view, n)
    return len(names)


def ranks(mount, n, want):
    """A rank has its run of the experts under their own numbers: the model of a rank has so many experts, and no router of that size."""
    equal, first = 0, 0
    for r in range(n):
        count = EXPERTS // n + (r < EXPERTS % n)
        got, info = load(mount / "ranks" / str(n) / str(r), num_experts=count, ignore_mismatched_sizes=True)
        assert all(".mlp.gate.weight" in m for m in info.pop("mismatched_keys", [])) and not info, info
        part = {k: v[first:first + count] if routed(k) else v for k, v in want.items() if ".mlp.gate." not in k}
        equal += same(f"ranks/{n}/{r}", part, got)
        first += count
    return equal


def check(name, want):
    out = {}
    mount = pathlib.Path(tempfile.mkdtemp())
    subprocess.run([weightfs, "mount", "--daemon", "--cache-dir", "none", here / name, mount], check=True)
    try:
        whole = ["release", "bf16", "layers", "split" if name == "fused" else "fused"]
        for view in whole:
            got, info = load(mount / view)
            assert not info, (view, info)
            out[view] = same(view, want, got)
        got, info = load(mount / "resident")
        assert info.pop("missing_keys") == sorted(n for n in want if routed(n)) and not info, info
        out["resident"] = same("resident", want, got, lambda n: not routed(n))
        for n in (2, 4):
            out[f"ranks/{n}"] = ranks(mount, n, want)
    finally:
        subprocess.run([weightfs, "umount", "--lazy", mount], check=True)  # tensors of the models are mapped still
        mount.rmdir()
    return out


state = make()
record = {
    "made with": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
    "state": {n: {"shape": list(t.shape), "sha256": hashlib.sha256(raw(t)).hexdigest()} for n, t in state.items()},
    "loaded": {name: check(name, state) for name in ("per-expert", "fused")},
}
(here / "expected.json").write_text(json.dumps(record, indent=1) + "\n")
print(json.dumps(record["loaded"], indent=1))
