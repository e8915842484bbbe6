#!/usr/bin/env bash
# What "make test" runs: run-tests.sh GO FUZZTIME. Ends with the list of what this machine could not run.
set -uo pipefail
go=$1 fuzztime=$2 status=0
report=build/testreport skips=build/skipped.txt notrun=()
rm -f "$skips"
"$go" build -o "$report" ./internal/testreport || exit 1

run() { # run NAME COMMAND...: one step, its failure remembered
  echo "== $1"
  shift
  "$@" || { echo "FAILED: $*"; status=1; }
}
tests() { "$go" test -json -timeout 20m "$@" | "$report" "$skips"; }
serial() { GOMAXPROCS=1 tests "$@"; }

run "unit, property, mount and command tests under the race detector" tests -race ./...
run "codecs without assembly" tests -tags purego ./transform/quant/...
run "one processor" serial ./fs/... ./cache
run "fuzz targets, $fuzztime each" ./testdata/run-fuzz.sh "$go" "$fuzztime"
if [ "${WEIGHTFS_NO_PYPI:-}" ] || ! ./testdata/conformance/reachable.sh; then
  notrun+=("make conformance: the Python package index did not answer within 5 s")
else
  run "real readers" make --no-print-directory conformance
fi

[ -f "$skips" ] && sort -u "$skips"
for n in "${notrun[@]}"; do echo "Not run on this machine: $n"; done
[ $status = 0 ] && echo "all steps passed" || echo "some steps FAILED"
exit $status
