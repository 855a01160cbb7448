#!/bin/sh
# Fuzzes the readers one after the other, each with its corpus, a worker a processor; ends with 1 when one of them crashed,
# hung or ran out of memory, and says where the input is. What was found to be new is kept in the build directory.
# Arguments: the build directory, seconds for each, the names of some (default: all).
set -eu
build=$1 seconds=$2
shift 2
names=$*
[ "$names" ] || for source in tests/fuzz/fuzz_*.c; do names="$names $(basename "${source#*/fuzz/fuzz_}" .c)"; done
status=0
for name in $names; do
  found=$build/corpus/$name
  mkdir -p "$found" "$build/crashes"
  # -fork: a worker that ends, whatever the reason, is replaced
  if "$build/tests/fuzz/fuzz_$name" -fork="$(nproc)" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=65536 \
    -artifact_prefix="$build/crashes/$name-" "$found" "tests/fuzz/corpus/$name" >"$build/$name.log" 2>&1; then
    echo "ok $name: $(sed -n 's/^#\([0-9]*\): cov: \([0-9]*\).*/\1 inputs, \2 edges/p' "$build/$name.log" | tail -n 1)"
  else
    echo "not ok $name: see $build/$name.log and $build/crashes/"
    status=1
  fi
done
exit $status
