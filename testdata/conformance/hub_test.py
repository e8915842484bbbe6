"""The real huggingface_hub against the stand-in hub: hub_test.py HUB_URL ROOT

ROOT/demo/NAME is what the hub serves as demo/NAME. Everything that weightfs relies on in the stand-in is done here by the client
that the real Hub is built for: listing, downloading, ranges, metadata, references, and the errors, each with its own type.
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

hub, root = sys.argv[1], sys.argv[2]
os.environ["HF_ENDPOINT"] = hub
os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ.pop("HF_TOKEN", None)

from huggingface_hub import HfApi, HfFileSystem, get_safetensors_metadata, hf_hub_download, hf_hub_url, get_hf_file_metadata, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

TOKEN = "hf_demo"  # what testdata/faults/faithful.txt asks for
api = HfApi(endpoint=hub)
names = sorted(n for n in os.listdir(os.path.join(root, "demo")) if os.path.isdir(os.path.join(root, "demo", n)))


def files_of(directory):
    out = {}
    for where, _, files in os.walk(directory):
        for f in files:
            p = os.path.join(where, f)
            rel = os.path.relpath(p, directory)
            if not rel.startswith(".cache"):
                out[rel] = p
    return out


def digest(path, new=hashlib.sha256):
    h = new()
    with open(path, "rb") as f:
        while b := f.read(1 << 20):
            h.update(b)
    return h.hexdigest()


def git_oid(path):
    data = open(path, "rb").read()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind:
        return
    raise AssertionError(f"{call.__name__}{args} did not raise {kind.__name__}")


def info(name):
    i = api.model_info("demo/" + name, files_metadata=True)
    want = files_of(os.path.join(root, "demo", name))
    assert {s.rfilename for s in i.siblings} == set(want), name
    assert len(i.sha) == 40 and not i.private and not i.gated and i.last_modified, name
    for s in i.siblings:
        assert s.size == os.path.getsize(want[s.rfilename]), s.rfilename
        if s.rfilename.endswith(".safetensors"):
            assert s.lfs.sha256 == digest(want[s.rfilename]) and s.lfs.size == s.size, s.rfilename
        else:
            assert s.lfs is None and s.blob_id == git_oid(want[s.rfilename]), s.rfilename
    for rev in ("main", "HEAD", i.sha):
        assert api.model_info("demo/" + name, revision=rev).sha == i.sha, rev
    return i.sha


def listing(name, sha):
    want = files_of(os.path.join(root, "demo", name))
    for expand in (False, True):
        got = {e.path: e for e in api.list_repo_tree("demo/" + name, recursive=True, expand=expand, revision=sha)}
        assert {p for p, e in got.items() if hasattr(e, "blob_id")} == set(want), name
        assert {p for p, e in got.items() if hasattr(e, "tree_id")} == {os.path.dirname(p) for p in want if "/" in p}, name
    top = [e.path for e in api.list_repo_tree("demo/" + name)]
    assert sorted(top) == sorted(os.listdir(os.path.join(root, "demo", name))), top
    assert sorted(api.list_repo_files("demo/" + name)) == sorted(want)
    for folder in {os.path.dirname(p) for p in want if "/" in p}:
        assert [e.path for e in api.list_repo_tree("demo/" + name, folder)] == sorted(p for p in want if p.startswith(folder + "/"))
    some = sorted(want)[:3]
    assert [e.path for e in api.get_paths_info("demo/" + name, some + ["absent.txt"])] == some
    raises(EntryNotFoundError, lambda: list(api.list_repo_tree("demo/" + name, "absent")))


def download(name, sha):
    want = files_of(os.path.join(root, "demo", name))
    with tempfile.TemporaryDirectory() as cache:
        got = files_of(snapshot_download("demo/" + name, cache_dir=cache, max_workers=4))
        assert set(got) == set(want), name
        for rel, path in got.items():
            assert digest(path) == digest(want[rel]), rel
        again = snapshot_download("demo/" + name, cache_dir=cache, revision=sha, token="hf_any")
        assert os.path.basename(again) == sha
        if hasattr(api, "verify_repo_checksums"):
            v = api.verify_repo_checksums("demo/" + name, cache_dir=cache)
            assert not v.mismatches and not v.missing_paths, v
    with tempfile.TemporaryDirectory() as d:
        snapshot_download("demo/" + name, local_dir=d, allow_patterns=["*.json"])
        assert set(files_of(d)) == {p for p in want if p.endswith(".json")}


def one_file(name):
    with tempfile.TemporaryDirectory() as cache:
        repo = "demo/" + name
        path = hf_hub_download(repo, "config.json", cache_dir=cache, token="hf_any")
        assert digest(path) == digest(os.path.join(root, repo, "config.json"))
        raises(EntryNotFoundError, hf_hub_download, repo, "absent.json", cache_dir=cache)
        raises(RevisionNotFoundError, hf_hub_download, repo, "config.json", revision="absent", cache_dir=cache)
        raises(RevisionNotFoundError, api.model_info, repo, revision="absent")
        raises(RepositoryNotFoundError, hf_hub_download, "demo/absent", "config.json", cache_dir=cache)
        raises(RepositoryNotFoundError, hf_hub_download, "demo/absent", "config.json", cache_dir=cache, token="hf_any")
        raises(RepositoryNotFoundError, api.model_info, "demo/absent")
    assert api.file_exists(repo, "config.json") and not api.file_exists(repo, "absent.json")
    assert api.repo_exists(repo) and not api.repo_exists("demo/absent")
    assert api.revision_exists(repo, "main") and not api.revision_exists(repo, "absent")


def metadata(name):
    for rel, path in sorted(files_of(os.path.join(root, "demo", name)).items()):
        m = get_hf_file_metadata(hf_hub_url("demo/" + name, rel))
        assert m.size == os.path.getsize(path) and len(m.commit_hash) == 40, rel
        assert m.etag == (digest(path) if rel.endswith(".safetensors") else git_oid(path)), rel
        assert m.xet_file_data is None, rel


def safetensors_metadata(name):
    directory = os.path.join(root, "demo", name)
    if not any(os.path.exists(os.path.join(directory, f)) for f in ("model.safetensors", "model.safetensors.index.json")):
        return
    m = get_safetensors_metadata("demo/" + name)
    for rel, f in m.files_metadata.items():
        with open(os.path.join(directory, rel), "rb") as g:
            header = json.loads(g.read(int.from_bytes(g.read(8), "little")))
        header.pop("__metadata__", None)
        assert {k: (t.dtype, t.shape, tuple(t.data_offsets)) for k, t in f.tensors.items()} == \
            {k: (t["dtype"], t["shape"], tuple(t["data_offsets"])) for k, t in header.items()}, rel


def ranges(name):
    fs = HfFileSystem(endpoint=hub)
    directory = os.path.join(root, "demo", name)
    listed = sorted(os.path.basename(p) for p in fs.ls("demo/" + name, detail=False))
    assert listed == sorted(os.listdir(directory)), listed
    for rel, path in sorted(files_of(directory).items()):
        data = open(path, "rb").read()
        remote = f"demo/{name}/{rel}"
        assert fs.info(remote)["size"] == len(data), rel
        for a, b in ((0, 8), (len(data) // 3, len(data) // 2), (max(len(data) - 7, 0), len(data))):
            if b > a:
                assert fs.cat_file(remote, start=a, end=b) == data[a:b], (rel, a, b)
    shard = next((p for p in files_of(directory) if p.endswith(".safetensors")), None)
    with fs.open(f"demo/{name}/{shard}", "rb", block_size=1 << 16) as f:
        f.seek(100_000)
        assert f.read(200_000) == open(os.path.join(directory, shard), "rb").read()[100_000:300_000]


def plain_http(name):
    """What no client library does: HEAD on a signed URL, raw, unknown API paths, several ranges, a range beyond the end."""
    def get(url, method="GET", **headers):
        request = urllib.request.Request(url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
        try:
            return urllib.request.urlopen(request)
        except urllib.error.HTTPError as e:
            return e
    shard = next(p for p in sorted(files_of(os.path.join(root, "demo", name))) if p.endswith(".safetensors"))
    resolve = f"{hub}/demo/{name}/resolve/main/{shard}"
    with get(resolve, Range="bytes=8-15") as r:
        signed, status, body = r.url, r.status, r.read()
    assert status == 206 and body == open(os.path.join(root, "demo", name, shard), "rb").read()[8:16]
    assert not signed.startswith(hub), "the CDN is another origin"
    assert get(signed, "HEAD").status == 403
    assert get(signed.replace("Signature=", "Signature=0")).status == 403
    size = os.path.getsize(os.path.join(root, "demo", name, shard))
    beyond = get(signed, Range=f"bytes={size}-{size + 9}")
    assert beyond.status == 416 and beyond.headers["Content-Range"] == f"bytes */{size}"
    several = get(signed, Range="bytes=0-1,4-5")
    assert several.status == 200 and int(several.headers["Content-Length"]) == size
    raw = get(f"{hub}/demo/{name}/raw/main/{shard}").read().decode()
    assert raw.startswith("version https://git-lfs.github.com/spec/v1\noid sha256:") and f"size {size}\n" in raw
    assert get(f"{hub}/demo/{name}/raw/main/config.json", "HEAD").status == 200
    for path in ("/api/agent-harnesses", "/api/models/demo/%s/xet-read-token/main" % name):
        assert get(hub + path).status == 404, path
    tagged = get(f"{hub}/demo/{name}/resolve/main/config.json")
    assert tagged.headers["ETag"].startswith('"') and get(tagged.url, If_None_Match=tagged.headers["ETag"]).status == 304


def locked(name):
    """A repository that wants a token refuses without one and with a wrong one, each in its own way; then the token is used."""
    try:
        if not api.model_info("demo/" + name).gated:
            return False
        refusal = GatedRepoError
    except RepositoryNotFoundError:
        refusal = RepositoryNotFoundError
    with tempfile.TemporaryDirectory() as cache:
        for token in (None, "hf_wrong"):
            raises(refusal, hf_hub_download, "demo/" + name, "config.json", cache_dir=cache, token=token)
        got = snapshot_download("demo/" + name, cache_dir=cache, token=TOKEN)
        assert set(files_of(got)) == set(files_of(os.path.join(root, "demo", name)))
    return True


for n in names:
    if locked(n):
        print("ok huggingface_hub:", n, "(with a token)")
        continue
    commit = info(n)
    listing(n, commit)
    download(n, commit)
    one_file(n)
    metadata(n)
    safetensors_metadata(n)
    ranges(n)
    refs = api.list_repo_refs("demo/" + n)
    assert [(b.name, b.ref, b.target_commit) for b in refs.branches] == [("main", "refs/heads/main", commit)]
    plain_http(n)
    print("ok huggingface_hub:", n)

log = os.path.join(root, "hub.jsonl")
if os.path.exists(log):
    entries = [json.loads(line) for line in open(log)]
    assert any(e["kind"] == "data" for e in entries) and any(e["auth"] for e in entries if e["kind"] == "resolve")
    assert not any(e["auth"] for e in entries if e["kind"] == "data"), "a token reached the CDN"
