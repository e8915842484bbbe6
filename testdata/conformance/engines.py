"""What inference engines do to the files they open, call by call: engines.py RELEASE_ON_DISK MOUNT

Each function is the open sequence of one engine (colibri, flash-moe, AirLLM, llama.cpp, MoE-Infinity), compared with the release on disk.
"""
import concurrent.futures
import errno
import glob
import json
import mmap
import os
import shutil
import struct
import sys
import tempfile

from safetensors import safe_open

source, mount = map(os.path.abspath, sys.argv[1:3])
GIB = 1 << 30


def header(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        return 8 + n, {k: v for k, v in json.loads(f.read(n)).items() if k != "__metadata__"}


def pread(fd, size, offset):
    """The bytes at offset in calls of at most a GiB, as engines read, into page-aligned memory, as O_DIRECT wants."""
    buffer = mmap.mmap(-1, max(size, 1))
    at = 0
    while at < size:
        n = os.preadv(fd, [memoryview(buffer)[at:at + min(GIB, size - at)]], offset + at)
        assert n > 0, f"a read at {offset + at} of {size - at} bytes ends"
        at += n
    return buffer[:size]


def colibri():
    """Per shard a descriptor and, at once, its O_DIRECT twin; advice; then whole tensors with pread from either."""
    n = 0
    for path in sorted(glob.glob(mount + "/release/*.safetensors")):
        disk = open(os.path.join(source, os.path.basename(path)), "rb").read()
        plain, direct = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY | os.O_DIRECT)
        for advice in (os.POSIX_FADV_RANDOM, os.POSIX_FADV_SEQUENTIAL, os.POSIX_FADV_WILLNEED, os.POSIX_FADV_DONTNEED):
            os.posix_fadvise(plain, 0, 0, advice)
        start, tensors = header(path)
        assert os.fstat(plain).st_size == len(disk)
        for t in tensors.values():
            a, b = (start + x for x in t["data_offsets"])
            assert pread(plain, b - a, a) == disk[a:b] == pread(direct, b - a, a), path
            n += 1
        odd = pread(direct, 100, 3)  # FUSE asks O_DIRECT readers for no alignment
        assert odd == disk[3:103]
        os.close(plain), os.close(direct)
    space = os.statvfs(mount + "/release")
    assert space.f_bsize > 0 and space.f_blocks > 0 and shutil.disk_usage(mount).total > 0
    print(f"ok colibri: {n} tensors, from O_DIRECT twins too")


def whole_experts():
    """Whole blocks, a pread each, from eight threads through one descriptor; a block's own file has the same bytes."""
    directory = mount + "/experts/native"
    if not os.path.isdir(directory):
        return
    m = json.load(open(directory + "/manifest.json"))
    size, per = m["blockByteLength"], m["expertsPerLayer"]
    for flags in (0, os.O_DIRECT):
        fd = os.open(directory + "/" + m["file"], os.O_RDONLY | flags)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            blocks = list(pool.map(lambda i: pread(fd, size, i * size), range(len(m["layers"]) * per)))
        os.close(fd)
        for i, b in enumerate(blocks):
            path = f"{directory}/blocks/L{m['layers'][i // per]:03d}/E{i % per:03d}.bin"
            assert b == open(path, "rb").read(), path
    print(f"ok whole experts: {len(blocks)} of {size} bytes, in eight threads, with and without O_DIRECT")


def flash_moe():
    """packed_experts/layer_NN.bin by stride; model_weights.bin mapped privately and read by model_weights.json."""
    directory = mount + "/experts/flash-moe"
    if not os.path.isdir(directory):
        return
    tensors = {}
    for path in glob.glob(source + "/*.safetensors"):
        start, found = header(path)
        data = open(path, "rb").read()[start:]
        tensors |= {k: data[slice(*t["data_offsets"])] for k, t in found.items()}
    stack = lambda layer: {k: v for k, v in tensors.items() if f".layers.{layer}." in k and ".switch_mlp." in k}
    experts = json.load(open(mount + "/experts/native/manifest.json"))["expertsPerLayer"]
    layers = sorted(os.listdir(directory + "/packed_experts"))
    for name in layers:
        one = stack(int(name[6:8]))
        order = sorted(one, key=lambda k: [("gate_proj", "up_proj", "down_proj").index(k.split(".")[-2]), ("weight", "scales", "biases").index(k.split(".")[-1])])
        want = [b"".join(one[k][e * len(one[k]) // experts:(e + 1) * len(one[k]) // experts] for k in order) for e in range(experts)]
        fd = os.open(f"{directory}/packed_experts/{name}", os.O_RDONLY)
        stride = os.fstat(fd).st_size // experts
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda e: pread(fd, stride, e * stride), range(experts))) == want, name
        os.close(fd)
    index = json.load(open(directory + "/model_weights.json"))["tensors"]
    with open(directory + "/model_weights.bin", "rb") as f:
        weights = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    for name, t in index.items():
        assert t["offset"] % 64 == 0 and weights[t["offset"]:t["offset"] + t["size"]] == tensors[name], name
    assert set(index) == {k for k in tensors if ".switch_mlp." not in k}
    print(f"ok flash-moe: {len(layers)} layers of {experts} experts, {len(index)} resident tensors")


def airllm():
    """A hard link is tried first and refused (another file system), then a symbolic link is made; .done says that the file is whole."""
    split, n = mount + "/layers/splitted_model", 0
    index = json.load(open(mount + "/layers/model.safetensors.index.json"))["weight_map"]
    assert shutil.disk_usage(split).total > 0
    with tempfile.TemporaryDirectory() as tmp:
        for file in sorted(set(index.values())):
            path = os.path.join(mount, "layers", file)
            assert os.path.exists(path + ".done") and os.path.getsize(path + ".done") == 0
            link = os.path.join(tmp, os.path.basename(path))
            try:
                os.link(path, link)
                raise AssertionError("a hard link out of the mount")
            except OSError as e:
                assert e.errno == errno.EXDEV, e
            os.symlink(path, link)
            with safe_open(link, framework="numpy") as f:
                assert set(f.keys()) == {k for k, v in index.items() if v == file}, file
            n += 1
    print(f"ok AirLLM: {n} modules")


def llama_cpp():
    """MAP_SHARED with MAP_POPULATE, and SEQUENTIAL advice, over release files and blocks."""
    paths = sorted(glob.glob(mount + "/release/*.safetensors")) + glob.glob(mount + "/experts/native/expert_blocks.bin")
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        shared = mmap.mmap(fd, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ)
        shared.madvise(mmap.MADV_WILLNEED)
        assert shared[:] == pread(fd, os.fstat(fd).st_size, 0), path
        os.close(fd)
    print(f"ok llama.cpp: {len(paths)} files mapped shared and populated")


def moe_infinity():
    """Opens for writing are refused by name of the reason, not with a file that cannot be written."""
    path = glob.glob(mount + "/release/*.safetensors")[0]
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_DIRECT):
        try:
            os.open(path, flags)
            raise AssertionError("opened for writing")
        except OSError as e:
            assert e.errno == errno.EROFS, e
    print("ok MoE-Infinity: refused (read-only file system)")


for engine in (colibri, whole_experts, flash_moe, airllm, llama_cpp, moe_infinity):
    engine()
