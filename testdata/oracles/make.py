#!/usr/bin/env python3
"""Records what Python libraries make of quantized weights, by calling their own functions on a CPU.

    make.py SOURCES OUT

SOURCES is a folder with the unpacked sources compressed_tensors/ (0.20.1), transformers/ (5.23.0), auto_gptq/ (0.7.1), bitsandbytes/ (0.50.2, with its
native library), hqq/ (commit e0b1d00 or later) and awq/ (AutoAWQ, last). OUT gets one folder for each, with release/ and expected.safetensors.

It ran with PyTorch 1.13 (CPU), NumPy 1.24, ml_dtypes 0.4.1 and safetensors 0.8.0. Packages that want a newer PyTorch are not imported as a whole:
the functions that decode are taken out of their files, unchanged, and run. PyTorch 1.13 has no float8, so that those functions get the
values of the codes, from ml_dtypes.
"""
import ast
import contextlib
import ctypes
import importlib.util
import json
import math
import pathlib
import sys
import types

import ml_dtypes
import numpy as np
import torch
from safetensors.numpy import save_file

sources, out = map(pathlib.Path, sys.argv[1:3])
rng = np.random.default_rng(20261130)
bf16 = ml_dtypes.bfloat16


def functions(path, *names, **scope):
    """The named functions and constants of a source file, run in a scope of their own."""
    text = (sources / path).read_text()
    scope = {"torch": torch, "math": math, **scope}
    for node in ast.parse(text).body:
        targets = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        methods = node.body if isinstance(node, ast.ClassDef) else [node]
        for n in methods:
            if getattr(n, "name", None) in names or set(targets) & set(names):
                n.decorator_list = []
                module = ast.fix_missing_locations(ast.Module([ast.ImportFrom("__future__", [ast.alias("annotations")], 0), n], []))
                exec(compile(module, str(path), "exec"), scope)
    return types.SimpleNamespace(**{k: v for k, v in scope.items() if k in names})


def write(name, release, expected, made_with, **files):
    folder = out / name
    (folder / "release").mkdir(parents=True, exist_ok=True)
    save_file(release, folder / "release" / "model.safetensors", metadata={"made with": made_with})
    save_file(expected, folder / "expected.safetensors", metadata={"made with": made_with})
    for file, content in files.items():
        (folder / "release" / f"{file}.json").write_text(json.dumps(content, indent=1) + "\n")


def to_bf16(tensor):
    """A tensor of any float dtype as BF16 by PyTorch's own rounding."""
    return tensor.detach().to(torch.float32).to(torch.bfloat16).view(torch.int16).numpy().view(bf16)


def codes(shape, bits):
    return rng.integers(0, 1 << bits, shape)


def compressed_tensors():
    base = "compressed_tensors"
    spec = importlib.util.spec_from_file_location("helpers", sources / base / "compressors/pack_quantized/helpers.py")
    pack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pack)
    deq = functions(f"{base}/quantization/lifecycle/forward_helpers.py", "_dequantize")._dequantize
    fp4 = functions(f"{base}/compressors/nvfp4/helpers.py", "unpack_fp4_from_uint8", "kE2M1ToFloat").unpack_fp4_from_uint8
    pad = functions(f"{base}/quantization/utils/helpers.py", "maybe_pad_tensor_for_block_quant", "calculate_block_padding").maybe_pad_tensor_for_block_quant
    block = functions(f"{base}/entrypoints/convert/converters/fp8block_dequantizer.py", "_create_dequantized_weight", maybe_pad_tensor_for_block_quant=pad)._create_dequantized_weight
    release, expected, bits_seen = {}, {}, set()

    def scales(shape, kind):
        s = (rng.random(shape) * 0.02 + 0.001).astype(np.float32)
        return (s.astype(bf16), torch.from_numpy(s.astype(bf16).astype(np.float32))) if kind == "bf16" else (s, torch.from_numpy(s))

    for bits in (1, 2, 3, 4, 5, 6, 8):  # 7 bits padded to words look like 8, and cannot be told apart in one release
        for asym in (False, True):
            rows, cols, group = 10, 96, 32
            if 32 % bits and asym:
                rows = 9
            q = torch.from_numpy(rng.integers(-(1 << bits - 1), 1 << bits - 1, (rows, cols)).astype(np.int8))
            name = f"packed.b{bits}.{'asym' if asym else 'sym'}"
            stored, s = scales((rows, cols // group), "bf16" if bits % 2 == 0 else "f32")
            release[f"{name}.weight_packed"] = pack.pack_to_int32(q, bits).numpy()
            release[f"{name}.weight_scale"] = stored
            release[f"{name}.weight_shape"] = np.array([rows, cols], np.int64)
            zero = None
            if asym:
                z = torch.from_numpy(rng.integers(-(1 << bits - 1), 1 << bits - 1, (rows, cols // group)).astype(np.int8))
                packed = pack.pack_to_int32(z, bits, packed_dim=0)
                release[f"{name}.weight_zero_point"] = packed.numpy()
                zero = pack.unpack_from_int32(packed, bits, z.shape, packed_dim=0).repeat_interleave(group, 1)
            back = pack.unpack_from_int32(torch.from_numpy(release[f"{name}.weight_packed"]), bits, torch.Size([rows, cols]))
            expected[f"{name}.weight"] = to_bf16(deq(back, s.repeat_interleave(group, 1), zero))
            bits_seen.add(bits)
    for kind, shape in (("tensor", (1,)), ("channel", (6, 1))):
        w = rng.integers(-128, 128, (6, 40)).astype(np.int8)
        stored, s = scales(shape, "f32")
        release[f"int8.{kind}.weight"], release[f"int8.{kind}.weight_scale"] = w, stored
        expected[f"int8.{kind}.weight"] = to_bf16(deq(torch.from_numpy(w), s))
    for kind in ("bf16", "f32"):
        w = codes((200, 300), 8).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
        stored, s = scales((2, 3), kind)
        release[f"fp8.{kind}.weight"], release[f"fp8.{kind}.weight_scale_inv"] = w, stored
        self = types.SimpleNamespace(weight_block_size=(128, 128), dtype=torch.bfloat16)
        expected[f"fp8.{kind}.weight"] = to_bf16(block(self, torch.from_numpy(w.astype(np.float32)), s))
    w = codes((5, 48), 8).astype(np.uint8)
    e = rng.integers(100, 150, (5, 3)).astype(np.uint8)
    release["mxfp4.weight_packed"], release["mxfp4.weight_scale"] = w, e
    scale = torch.from_numpy(np.exp2(e.astype(np.float32) - 127)).repeat_interleave(32, 1)
    expected["mxfp4.weight"] = to_bf16(deq(fp4(torch.from_numpy(w), 5, 96, torch.float32), scale))
    w = codes((5, 48), 8).astype(np.uint8)
    f8 = rng.integers(0x20, 0x70, (5, 6)).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    g = np.array([384.7], np.float32)
    release["nvfp4.weight_packed"], release["nvfp4.weight_scale"], release["nvfp4.weight_global_scale"] = w, f8, g
    local = torch.from_numpy(f8.astype(np.float32)).repeat_interleave(16, 1)
    expected["nvfp4.weight"] = to_bf16(deq(fp4(torch.from_numpy(w), 5, 96, torch.float32), local, None, None, torch.from_numpy(g)))
    groups = {f"group_{b}": {"weights": {"num_bits": b, "group_size": 32, "type": "int"}} for b in sorted(bits_seen)}
    write("compressed-tensors", release, expected, "compressed-tensors 0.20.1",
          config={"quantization_config": {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": groups}})


def gpt_oss():
    newer = types.SimpleNamespace(**{**vars(torch), "int": torch.long})  # PyTorch 1.13 takes no 32-bit indices
    convert = functions("transformers/integrations/mxfp4.py", "_convert_moe_packed_tensors", "FP4_VALUES", torch=newer, on_device=contextlib.nullcontext)
    release, expected = {}, {}
    for name, shape in (("gate_up_proj", (2, 24, 3)), ("down_proj", (2, 10, 2))):
        blocks, scales = codes(shape + (16,), 8).astype(np.uint8), rng.integers(100, 150, shape).astype(np.uint8)
        module = f"model.layers.0.mlp.experts.{name}"
        release[f"{module}_blocks"], release[f"{module}_scales"] = blocks, scales
        expected[module] = to_bf16(convert._convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32))
    write("gpt-oss", release, expected, "transformers 5.23.0", config={"quantization_config": {"quant_method": "mxfp4"}})


def autoawq():
    newer = types.SimpleNamespace(**{**vars(torch), "int32": torch.long})  # of indices
    awq = functions("awq/utils/packing_utils.py", torch=newer, *["AWQ_REVERSE_ORDER", "unpack_awq", "reverse_awq_order", "dequantize_gemm"])
    release, expected = {}, {}
    for name, (rows, cols, group) in {"a": (64, 24, 32), "b": (96, 40, 96)}.items():
        word = lambda *shape: rng.integers(-(1 << 31), 1 << 31, shape).astype(np.int32)
        q, z = word(rows, cols // 8), word(rows // group, cols // 8)
        s = (rng.random((rows // group, cols)) * 0.02 + 0.001).astype(np.float16)
        release[f"{name}.qweight"], release[f"{name}.qzeros"], release[f"{name}.scales"] = q, z, s
        args = torch.from_numpy(q), torch.from_numpy(z), torch.from_numpy(s.astype(np.float32))
        expected[f"{name}.weight"] = to_bf16(awq.dequantize_gemm(*args, 4, group).T.contiguous())
    write("autoawq", release, expected, "AutoAWQ, commit 88e4c76", config={"quantization_config": {"quant_method": "awq", "bits": 4, "version": "gemm"}})


def autogptq():
    names = {"nn": torch.nn, "np": np, "transformers": types.SimpleNamespace(pytorch_utils=types.SimpleNamespace(Conv1D=type(None)))}
    lib = functions("auto_gptq/nn_modules/qlinear/qlinear_cuda_old.py", "pack", "forward", **names)
    for bits in (2, 3, 4, 8):
        release, expected = {}, {}
        rows, cols, group = 64, 96, 32
        q = codes((rows, cols), bits)
        zeros = rng.integers(1, 1 << bits, (rows, cols // group))
        s = (rng.random((rows, cols // group)) * 0.02 + 0.001).astype(np.float16).astype(np.float32)
        w = (q - zeros.repeat(group, 1)) * s.repeat(group, 1)
        linear = torch.nn.Linear(cols, rows, bias=False)
        linear.weight.data = torch.from_numpy(w.astype(np.float32))
        if bits == 3:
            wf = [[0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0], [0, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31], [0, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0]]
            wf = torch.tensor(wf, dtype=torch.int32).reshape(1, 3, 12)
        else:
            wf = torch.arange(0, 32, bits, dtype=torch.int32).unsqueeze(0)
        self = types.SimpleNamespace(bits=bits, group_size=group, infeatures=cols, outfeatures=rows, bias=None, wf=wf, autogptq_cuda_available=False, kernel_switch_threshold=False)
        lib.pack(self, linear, torch.from_numpy(s), torch.from_numpy(zeros.astype(np.float32)), None)
        made = lib.forward(self, torch.eye(cols)).T.contiguous()
        release["m.qweight"], release["m.qzeros"], release["m.scales"] = self.qweight.numpy(), self.qzeros.numpy(), self.scales.numpy().astype(np.float16)
        expected["m.weight"] = to_bf16(made)
        write(f"autogptq-{bits}bit", release, expected, "auto-gptq 0.7.1", config={"quantization_config": {"quant_method": "gptq", "bits": bits, "group_size": group}})


def hqq():
    torch.compile = lambda *a, **k: a[0] if a and callable(a[0]) else (lambda f: f)
    sys.path.insert(0, str(sources))
    for name in ("hqq", "hqq.core"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(sources / name.replace(".", "/"))]
    from hqq.core.quantize import Quantizer
    from hqq.core.utils import encode_safetensor_type

    release, expected = {}, {}
    for bits in (1, 2, 3, 4, 5, 6, 8):
        for axis in (0, 1):
            w = torch.from_numpy((rng.standard_normal((32, 48)) * 0.05).astype(np.float32))
            w_q, meta = Quantizer.quantize(w, nbits=bits, group_size=16, axis=axis, optimize=False, compute_dtype=torch.float32, device="cpu")
            meta = {**meta, "compute_dtype": torch.float32, "quant_scale": False, "quant_zero": False}
            expected[f"b{bits}.axis{axis}.weight"] = to_bf16(Quantizer.dequantize(w_q, meta))
            release[f"b{bits}.axis{axis}.W_q"] = w_q.numpy()
            for key, value in meta.items():
                release[f"b{bits}.axis{axis}.{key}"] = encode_safetensor_type(value).contiguous().numpy()
    write("hqq", release, expected, "hqq, commit e0b1d00", config={"quantization_config": {"quant_method": "hqq"}})


def bitsandbytes():
    lib = ctypes.CDLL(str(sources / "bitsandbytes" / "libbitsandbytes_cpu.so"))
    pointer = lambda a: ctypes.c_void_p(a.ctypes.data)
    release, expected = {}, {}
    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            rows, cols, block = 24, 128, 64
            packed = codes((rows * cols // 2, 1), 8).astype(np.uint8)
            blocks = rows * cols // block
            name = f"{kind}.{'nested' if nested else 'plain'}"
            state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [rows, cols]}
            if nested:
                absmax = codes(blocks, 8).astype(np.uint8)
                table = np.sort(rng.random(256).astype(np.float32)) * 2 - 1
                outer = (rng.random(-(-blocks // 256)) * 0.02 + 0.001).astype(np.float32)
                offset = float(np.float32(0.0123))
                state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
                release[f"{name}.weight.absmax"], release[f"{name}.weight.nested_absmax"], release[f"{name}.weight.nested_quant_map"] = absmax, outer, table
                real = np.empty(blocks, np.float32)
                lib.cdequantize_blockwise_cpu_fp32(pointer(table), pointer(absmax), pointer(outer), pointer(real), ctypes.c_longlong(256), ctypes.c_longlong(blocks))
                real = (real + np.float32(offset)).astype(np.float32)
            else:
                real = (rng.random(blocks) * 0.05 + 0.001).astype(np.float32)
                release[f"{name}.weight.absmax"] = real
            release[f"{name}.weight"] = packed
            release[f"{name}.weight.quant_state.bitsandbytes__{kind}"] = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
            made = np.empty((rows, cols), np.float32)
            sizes = [ctypes.c_longlong(n) for n in (block, rows, cols)]
            getattr(lib, f"cdequantize_blockwise_cpu_{kind}_fp32")(pointer(packed), pointer(real), pointer(made), *sizes)
            expected[f"{name}.weight"] = to_bf16(torch.from_numpy(made))
    write("bitsandbytes", release, expected, "bitsandbytes 0.50.2", config={"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}})


for make in (compressed_tensors, gpt_oss, autoawq, autogptq, hqq, bitsandbytes):
    make()
