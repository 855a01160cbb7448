#!/bin/sh
# Runs the tests of the CUDA kernels in an emulated build, a line each; the last line is `N passed, N failed`.
# Arguments: the build directory; plain (the default), address or race, as it was built.
#
# A plain build runs everything in three orders of threads, each with another timing of copies and streams, which must
# give the same bits, and once more as a card with little shared memory. With a sanitizer once is enough.
set -u

programs='test_kernels_attention test_decode test_model test_kernels test_kernels_step test_context'

# One job, for xargs below: run.sh --job RESULTS BUILD PROGRAM LABEL VARIABLE=VALUE...
if [ "$1" = --job ]; then
  results=$2 build=$3 program=$4 label=$5
  shift 5
  start=$(date +%s)
  job=$results/$program.$label
  case $program in
    train) set -- "$@" sh tests/cuda_on_cpu/train.sh "$build" "$label" ;;
    *) set -- "$@" INKLING_TEST_BACKEND=cuda INKLING_TEST_DIGEST="$job.digest" OMP_NUM_THREADS=1 "$build/tests/$program" ;;
  esac
  env "$@" >"$job.log" 2>&1
  echo "$? $(($(date +%s) - start))" >"$job.status"
  exit 0
fi

build=$1
kind=${2:-plain}
results=$build/tests/results
passed=0
failed=0

# The programs under one setting: jobs LABEL VARIABLE=VALUE...
jobs() {
  for program in $programs; do echo "$results $build $program $*"; done
}

case $kind in
  plain)
    labels='fwd rev rand sm86'
    all=$(jobs fwd EMU_ORDER=fwd && jobs rev EMU_ORDER=rev EMU_CPASYNC=eager && jobs rand EMU_ORDER=rand:7 EMU_STREAMS=lazy &&
      jobs sm86 EMU_SM=86)
    ;;
  address)
    labels=address
    all=$(jobs address EMU_ORDER=rand:7 EMU_STREAMS=lazy EMU_HOSTGUARD=1)
    ;;
  race)
    labels=race
    all=$(jobs race EMU_ORDER=fwd)
    ;;
  *)
    echo "run.sh: $kind is none of plain, address, race" >&2
    exit 2
    ;;
esac

rm -rf "$results"
mkdir -p "$results"
printf '%s\n' "$results $build train $kind" "$results $build test_emulator $kind" "$all" |
  xargs -P "$(nproc 2>/dev/null || echo 2)" -L 1 sh "$0" --job

# One line of the summary: result NAME PASSED FAILED SECONDS
result() {
  printf '%-32s %4d passed, %d failed, %d s\n' "$@"
  passed=$((passed + $2))
  failed=$((failed + $3))
}

# What a job's log says; LOG is shown where something failed.
job_result() { # job_result PROGRAM LABEL
  log=$results/$1.$2.log
  status=1 seconds=0
  [ -s "$results/$1.$2.status" ] && read -r status seconds <"$results/$1.$2.status"
  if [ "$1" = train ]; then
    ok=$(grep -c '^ok ' "$log")
    bad=$(grep -c '^not ok ' "$log")
  else
    ok=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    bad=$(sed -n -e 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' -e 's/^ \([0-9]*\) FAILED TEST(S)$/\1/p' "$log" |
      awk '{ if ($1 > n) n = $1 } END { print n + 0 }')
  fi
  # A crash, a report of a sanitizer, or a program that ran nothing, is a failure too.
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] || [ "$ok" -eq 0 ]; then bad=$((bad + 1)); fi
  [ "$bad" -eq 0 ] || grep -E -v '^(ok |\[ +(RUN|OK) +\])' "$log" | tail -n 60
  result "$1 $2" "$ok" "$bad" "$seconds"
}

for label in $labels; do
  for program in $programs; do job_result "$program" "$label"; done
done
job_result test_emulator "$kind"
job_result train "$kind"

if [ "$kind" = plain ]; then
  same=0 different=0
  for program in $programs; do
    for label in rev rand; do
      if [ -s "$results/$program.fwd.digest" ] && cmp -s "$results/$program.fwd.digest" "$results/$program.$label.digest"; then
        same=$((same + 1))
      else
        different=$((different + 1))
        echo "$program: other bits in order $label:"
        diff "$results/$program.fwd.digest" "$results/$program.$label.digest" | grep '^>' | head -n 10
      fi
    done
  done
  result "same bits in every order" "$same" "$different" 0
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
