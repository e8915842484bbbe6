#!/usr/bin/env bash
# Succeeds if pip finds a small package within 5 seconds.
command -v python3 >/dev/null && timeout 5 python3 -m pip download -q --no-deps --no-binary :none: -d "$(mktemp -d)" six==1.16.0 >/dev/null 2>&1
