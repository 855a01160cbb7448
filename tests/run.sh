#!/bin/sh
# Runs every test program of a build directory and the tests of the executables; the last line is `N passed, N failed`.
# Argument: the build directory. BIN: where ./train and ./generate are (default: here). EMULATED: the build directory of the
# CUDA kernels on the CPU, whose tests are run too (default: none).
set -u

build=$1
passed=0
failed=0

for test in "$build"/tests/test_*; do
  case $test in *.o | *.d | *.log) continue ;; esac
  name=$(basename "$test")
  start=$(date +%s)
  log=$build/tests/$name.log
  "$test" >"$log" 2>&1
  status=$?
  ok=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
  bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
  # A crash, or a program that ran nothing, is a failure too.
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] || [ "$ok" -eq 0 ]; then bad=$((bad + 1)); fi
  [ "$bad" -eq 0 ] || grep -E -v '^\[ +(RUN|OK) +\]' "$log" | tail -n 60
  printf '%-30s %4d passed, %d failed, %d s\n' "$name" "$ok" "$bad" "$(($(date +%s) - start))"
  passed=$((passed + ok))
  failed=$((failed + bad))
done

for script in programs pairs bench; do
  log=$build/tests/$script.log
  sh "tests/$script.sh" "$build" >"$log" 2>&1
  ok=$(grep -c '^ok ' "$log")
  bad=$(grep -c '^not ok ' "$log")
  grep -q '^done$' "$log" || bad=$((bad + 1))
  [ "$bad" -eq 0 ] || grep -v '^ok ' "$log" | tail -n 60
  printf '%-30s %4d passed, %d failed\n' "$script.sh" "$ok" "$bad"
  passed=$((passed + ok))
  failed=$((failed + bad))
done

if [ -n "${EMULATED:-}" ]; then
  echo "CUDA kernels on the CPU:"
  tests/cuda_on_cpu/run.sh "$EMULATED" >"$EMULATED/tests/run.log"
  sed '$d' "$EMULATED/tests/run.log"
  ok=0 bad=1
  # The last line: N passed, N failed
  read -r ok _ bad _ <<EOF
$(tail -n 1 "$EMULATED/tests/run.log" | tr -d ,)
EOF
  passed=$((passed + ok))
  failed=$((failed + bad))
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
