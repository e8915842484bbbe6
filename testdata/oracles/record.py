"""What the scripts that record vectors share: random codes and scales, and the two files of an oracle."""
import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file

rng = np.random.default_rng(20261130)


def codes(shape, bits=8):
    """Every code of so many bits as a uint8 tensor, as often as fits, in random order."""
    n = int(np.prod(shape))
    return torch.from_numpy(rng.permutation(np.arange(n) % (1 << bits)).astype(np.uint8).reshape(shape))


def words(shape):
    """Random 32-bit words."""
    return torch.from_numpy(rng.integers(-(1 << 31), 1 << 31, shape).astype(np.int32))


def scales(shape, low=-12, high=-2):
    """Positive F32 scales, log-uniform between powers of two, with full mantissas."""
    return torch.from_numpy(np.asarray(np.exp2(rng.uniform(low, high, shape)), np.float32))


def bf16(tensor):
    """A tensor of any float dtype as BF16, by PyTorch's own rounding."""
    return tensor.detach().to(torch.bfloat16).contiguous()


def write(script, release, expected, made_with, config=None, metadata=None, ulps=None, name=None):
    """Writes the release and what the library made of it beside the script, or into the folder of that name. ulps has by name the
    tensors that the library rounds more often than weightfs, and by how many BF16 units in the last place they differ at most."""
    folder = pathlib.Path(script).parent / (name or ".")
    shutil.rmtree(folder / "release", ignore_errors=True)
    (folder / "release").mkdir(parents=True)
    made = {"made with": made_with}
    save_file({k: v.contiguous() for k, v in release.items()}, folder / "release" / "model.safetensors", metadata={**(metadata or {}), **made})
    within = {"ulps": json.dumps(ulps)} if ulps else {}
    save_file({k: bf16(v) for k, v in expected.items()}, folder / "expected.safetensors", metadata={**made, **within})
    if config is not None:
        (folder / "release" / "config.json").write_text(json.dumps(config, indent=1) + "\n")
