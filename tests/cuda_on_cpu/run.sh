#!/bin/sh
# Runs the tests of the CUDA kernels in an emulated build, a line each; the last line is `N passed, N failed`.
# Arguments: the build directory; plain (the default), address or race, as it was built.
#
# A plain build runs the kernels in several orders of threads, each with another timing of copies and streams, which must
# give the same bits, and what depends on it once more as a card with little shared memory; attention by wgmma, too
# (labels wgmma-ORDER), which must give other bits than mma. ORDERS: the orders (default:
# "fwd rev rand"; fwd is the first). Models and decoding run in the last order alone. With a sanitizer once is enough.
# FULL=1: everything in all orders, and the long tests, too.
set -u

# The test programs, those that take longest first: of models, of decoding, of kernels, and of kernels that depend on how
# much shared memory a card has.
models='test_model_train test_model'
decoding='test_sample test_decode'
programs='test_kernels_norm test_kernels test_context'
programs="$programs test_kernels_linear test_kernels_activation test_kernels_dropout test_kernels_heads"
programs="$programs test_kernels_convolution"
sized='test_kernels_attention_shapes test_kernels_loss test_kernels_step test_kernels_muon test_kernels_attention'
programs="$programs $sized"
attention='test_kernels_attention_shapes test_kernels_attention'
orders=${ORDERS:-fwd rev rand}
export XDG_CACHE_HOME=/dev/null # the user's choices of algorithms stay as they are
unset INKLING_ISA # an emulated build lacks some instruction sets
last=${orders##* }

# One job, for xargs below: run.sh --job RESULTS BUILD PROGRAM LABEL
if [ "${1:-}" = --job ]; then
  job=$2/$4.$5 build=$3 program=$4 label=$5
  start=$(date +%s)
  case $label in wgmma-*) export EMU_SM=90 INKLING_WGMMA=1 ;; esac
  case ${label#wgmma-} in
    fwd) export EMU_ORDER=fwd ;;
    rev) export EMU_ORDER=rev EMU_CPASYNC=eager EMU_STREAMS=random:5 ;;
    rand) export EMU_ORDER=rand:7 EMU_STREAMS=lazy ;;
    sm86) export EMU_SM=86 ;;
    address) export EMU_ORDER=rev EMU_STREAMS=lazy EMU_HOSTGUARD=1 ;;
    race) export EMU_ORDER=fwd INKLING_PDL=1 ;;
  esac
  case $program in
    train) set -- sh tests/cuda_on_cpu/train.sh "$build" "$label" ;;
    contact)
      export EMULATED=1 QUICK=1 STEPS="kernels speed tests" TESTS=test_kernels_step OUT="$build/gpu/results"
      set -- sh -c 'scripts/gpu_pack.sh "$0" "$0/gpu" $TESTS && "$0/gpu/gpu_contact.sh"' "$build"
      ;;
    check_fragments) set -- "$build/check_fragments" ;;
    peers) set -- env EMU_STREAMS=lazy BIN="$build" python3 tests/peers.py --only emulated ;;
    bench_kernels) set -- "$build/bench_kernels" --device cuda --quick --dtype "$label" ;;
    *)
      export INKLING_TEST_BACKEND=cuda INKLING_TEST_DIGEST="$job.digest"
      set -- "$build/tests/$program"
      ;;
  esac
  "$@" >"$job.log" 2>&1
  echo "$? $(($(date +%s) - start))" >"$job.status"
  exit 0
fi

build=${1:-}
kind=${2:-plain}
if [ ! -x "$build/tests/test_emulator" ]; then
  echo "run.sh: \"$build\" is no emulated build; use make test-cuda-on-cpu" >&2
  exit 2
fi
results=$build/tests/results
passed=0
failed=0

jobs() { # jobs LABEL PROGRAMS...: a line for each, PROGRAM LABEL
  label=$1
  shift
  for program; do echo "$program $label"; done
}
all=$(
  # shellcheck disable=SC2086 # programs are words
  case $kind in
    plain)
      jobs plain train test_emulator check_fragments
      if command -v python3 >/dev/null; then jobs plain peers contact; fi
      for order in $orders; do
        if [ "${FULL:-}" ] || [ "$order" = "$last" ]; then jobs "$order" $models $decoding; fi
        jobs "$order" $programs
        jobs "wgmma-$order" $attention
      done
      jobs sm86 $sized
      jobs rev test_decode_parts # every kind of model; the kernels went through all orders
      if [ "${FULL:-}" ]; then jobs rev test_model_architectures; fi
      ;;
    *)
      jobs "$kind" $decoding test_emulator check_fragments $programs
      jobs "wgmma-$kind" $attention
      if [ "${FULL:-}" ]; then jobs "$kind" test_decode_parts train $models; fi
      ;;
  esac
  jobs bf16 bench_kernels
  jobs f32 bench_kernels
)
case $kind in
  plain | address | race) ;;
  *)
    echo "run.sh: $kind is none of plain, address, race" >&2
    exit 2
    ;;
esac

rm -rf "$results"
mkdir -p "$results"
echo "$all" | sed "s|^|$results $build |" | xargs -P "$(nproc 2>/dev/null || echo 2)" -L 1 sh "$0" --job

# One line of the summary: result NAME PASSED FAILED SECONDS
result() {
  printf '%-36s %4d passed, %d failed, %d s\n' "$@"
  passed=$((passed + $2))
  failed=$((failed + $3))
}

# What a job's log says; it is shown where something failed.
job_result() { # job_result PROGRAM LABEL
  log=$results/$1.$2.log
  status=1 seconds=0
  [ -s "$results/$1.$2.status" ] && read -r status seconds <"$results/$1.$2.status"
  case $1 in
    train | check_fragments | peers)
      ok=$(grep -c '^ok ' "$log")
      bad=$(grep -c '^not ok ' "$log")
      ;;
    contact)
      ok=$(grep -c '^ *[0-9]* s  passed ' "$log")
      bad=$(grep -c '^ *[0-9]* s  failed ' "$log")
      ;;
    bench_kernels) # whether every benchmark runs, not how long it takes
      ok=$(grep -c -m 1 ' ms ' "$log")
      bad=$(sed -n '$s/^\([0-9]*\) failed$/\1/p' "$log")
      bad=${bad:-1}
      ;;
    *)
      ok=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
      bad=$(sed -n -e 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' -e 's/^ \([0-9]*\) FAILED TEST(S)$/\1/p' "$log" |
        awk '{ if ($1 > n) n = $1 } END { print n + 0 }')
      ;;
  esac
  # A crash, a report of a sanitizer, or a program that ran nothing, is a failure too.
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] || [ "$ok" -eq 0 ]; then bad=$((bad + 1)); fi
  [ "$bad" -eq 0 ] || grep -E -v '^(ok |\[ +(RUN|OK) +\])' "$log" | tail -n 60
  result "$1 $2" "$ok" "$bad" "$seconds"
}

while read -r program label; do job_result "$program" "$label"; done <<EOF
$all
EOF

# Compares the digest of PROGRAM in ORDER with that in the first order: same_bits PROGRAM ORDER FIRST
same_bits() {
  first=$results/$1.$3.digest other=$results/$1.$2.digest
  if [ "$2" = "$3" ]; then return; fi
  if [ -s "$first" ] && cmp -s "$first" "$other"; then
    same=$((same + 1))
  else
    different=$((different + 1))
    echo "$1: other bits in order $2:"
    diff "$first" "$other" | grep '^>' | head -n 10
  fi
}

if [ "$kind" = plain ]; then
  same=0 different=0
  for order in $orders; do
    for program in ${FULL:+$models $decoding} $programs; do same_bits "$program" "$order" fwd; done
    for program in $attention; do same_bits "$program" "wgmma-$order" wgmma-fwd; done
  done
  result "same bits in every order" "$same" "$different" 0
  shapes=$results/test_kernels_attention_shapes
  different=1 same=0
  if cmp -s "$shapes.wgmma-$last.digest" "$shapes.$last.digest"; then
    echo "INKLING_WGMMA=1 gives the same bits: wgmma was not used"
    different=0 same=1
  fi
  result "other bits by wgmma" "$different" "$same" 0
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
