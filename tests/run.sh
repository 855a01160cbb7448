#!/bin/sh
# Runs every test program of a build directory and the tests of the executables, as many at a time as there are
# processors; the last line is `N passed, N failed`.
# Argument: the build directory. BIN: where ./train and ./generate are (default: here). EMULATED: the build directory of the
# CUDA kernels on the CPU, whose tests are run too (default: none).
set -u

# One job, for xargs below: run.sh --job BUILD NAME
if [ "${1:-}" = --job ]; then
  build=$2 name=$3
  start=$(date +%s)
  case $name in
    *.sh) set -- sh "tests/$name" "$build" ;;
    foreign_tokenizers.py) set -- python3 tests/foreign_tokenizers.py --reader "$build/tests/fuzz/fuzz_tokenizer" ;;
    peers.py) set -- env BUILD="$build" python3 tests/peers.py ;;
    failures.py) set -- python3 tests/failures.py "$build" --some 5 --jobs 1 ;;
    *.py) set -- python3 "tests/$name" ;;
    *) set -- "$build/tests/$name" ;;
  esac
  "$@" >"$build/tests/$name.log" 2>&1
  echo "$? $(($(date +%s) - start))" >"$build/tests/$name.status"
  exit 0
fi

build=$1
passed=0
failed=0

# A name a line: the scripts first, which take longest.
all=$(
  printf '%s\n' programs.sh pairs.sh kept.sh init.sh export.sh generate.sh texts.sh reports.sh bench.sh build_settings.sh install.sh
  if command -v python3 >/dev/null; then
    printf '%s\n' failures.py docs.py formats.py interactive.py gguf_files.py
    if python3 -c 'import tokenizers' 2>/dev/null; then echo foreign_tokenizers.py; fi
    if ls "${BIN:-.}"/inkling-*.so >/dev/null 2>&1 && command -v mpirun >/dev/null; then echo peers.py; fi
  fi
  echo fuzz.sh
  for test in "$build"/tests/test_*; do
    case $test in *.o | *.d | *.log | *.status) ;; *) basename "$test" ;; esac
  done
)
rm -f "$build"/tests/*.status
echo "$all" | sed "s|^|$build |" | xargs -P "$(nproc 2>/dev/null || echo 2)" -L 1 sh "$0" --job

while read -r name; do
  log=$build/tests/$name.log
  status=1 seconds=0
  [ -s "$build/tests/$name.status" ] && read -r status seconds <"$build/tests/$name.status"
  case $name in
    *.sh | *.py)
      ok=$(grep -c '^ok ' "$log")
      bad=$(grep -c '^not ok ' "$log")
      grep -q '^done$' "$log" || bad=$((bad + 1))
      ;;
    *)
      ok=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
      bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
      ;;
  esac
  # A crash, or a program that ran nothing, is a failure too.
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] || [ "$ok" -eq 0 ]; then bad=$((bad + 1)); fi
  [ "$bad" -eq 0 ] || grep -E -v '^(ok |\[ +(RUN|OK) +\])' "$log" | tail -n 60
  printf '%-30s %4d passed, %d failed, %d s\n' "$name" "$ok" "$bad" "$seconds"
  passed=$((passed + ok))
  failed=$((failed + bad))
done <<EOF
$all
EOF

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
