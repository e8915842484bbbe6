#!/usr/bin/env bash
# Runs every fuzz target of the module for a while: run-fuzz.sh GO FUZZTIME
set -euo pipefail
go=$1 time=$2
for pkg in $("$go" list ./...); do
  for target in $("$go" test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
    echo "fuzz $pkg $target $time"
    "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x "$pkg"
  done
done
