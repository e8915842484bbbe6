#!/usr/bin/env bash
# Runs every fuzz target of the module for a while: run-fuzz.sh GO FUZZTIME
#
# go test sometimes ends a target whose time is up with "context deadline exceeded" and no failing input: its own deadline cut an execution
# short. Only that, and only once a target, is tried again.
set -uo pipefail
go=$1 time=$2 status=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

fuzz() { "$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 20x "$1" >"$out" 2>&1; }
cut_short() { grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input written' "$out"; }

for pkg in $("$go" list ./...); do
  for target in $("$go" test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
    echo "fuzz $pkg $target $time"
    fuzz "$pkg" "$target" || { cut_short && fuzz "$pkg" "$target"; } || { cat "$out"; status=1; }
  done
done
exit $status
