#!/usr/bin/env bash
# Runs everything that needs a real GPU, in stages of at most 8 minutes: make gpu-check [STAGE=parity|sanitize|speed]
#
#   parity    builds; tests tensor-core fragments, kernels.h and the model on the GPU; trains on the GPU and the CPU
#   sanitize  compute-sanitizer on small shapes
#   speed     every operation compared with the GPU's measured peak; training compared with PyTorch
#
# Each part has a time limit and its own log; if one fails, the others still run. The last lines say what passed, failed
# and was skipped, and why; exit status 0 if nothing failed. All measurements are written to OUT/results-STAGE.jsonl;
# scripts/gpu_report.py turns them into docs/gpu.md.
#
# Settings (environment): OUT (build/gpu-check): results and logs; BUILD (build/gpu); CARRY: directory with jansson,
# PCRE2, utf8proc and cmocka if they are not installed (scripts/gpu_carry.sh; .carry is used if it exists); BATCH (64):
# sequences of 124m; STAGE_SECONDS (470); PARTS: parts of speed; COMMIT, if there is no git; PYTHON (python3), with or
# without PyTorch; EMULATED=1: tests this script with tests/cuda_on_cpu.
# shellcheck disable=SC2317 # functions are called by their names
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1

self=$PWD/scripts/gpu_check.sh
stages=${1:-all}
if [ "$#" -gt 1 ] && [ "$1" != --part ]; then stages="$*"; fi
case $stages in
  --part) stages= ;; # one function of this script, for `timeout`
  all) stages="parity sanitize speed" ;;
  parity | sanitize | speed) ;;
  *)
    echo "gpu_check: stage $stages: use parity, sanitize, speed or all" >&2
    exit 2
    ;;
esac

build=${BUILD:-build/gpu}
out=${OUT:-build/gpu-check}
python=${PYTHON:-python3}
batch=${BATCH:-64}
carry=${CARRY:-}
[ -n "$carry" ] || [ ! -d .carry ] || carry=.carry
if [ -z "${EMULATED:-}" ] && [ -n "$stages" ] && ! nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | grep -q .; then
  echo "gpu_check: no GPU here (nvidia-smi names none); EMULATED=1 tries the script itself on the CPU" >&2
  exit 2
fi
jobs=$(nproc 2>/dev/null || echo 4)
unset MAKEFLAGS MAKELEVEL

# The toolkit may be only the compiler. Headers and cuBLASLt can come from Python packages, headers also from CARRY.
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
toolkit=$(dirname "$(dirname "$(readlink -f "${nvcc:-/usr/local/cuda/bin/nvcc}")")")
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null)
for header in cublasLt.h curand_philox4x32_x.h; do
  [ ! -e "$toolkit/include/$header" ] || continue
  for place in "$site"/nvidia/*/include "$carry/cuda"; do
    [ -e "$place/$header" ] || continue
    CPPFLAGS="${CPPFLAGS:-} -I$place"
    break
  done
done
for place in "$toolkit/lib64" "$toolkit"/targets/*/lib "$site"/nvidia/*/lib; do
  ls "$place"/libcublasLt.so.* >/dev/null 2>&1 || continue
  [ "$place" != "$toolkit/lib64" ] || break # where the program looks anyway; PyTorch must not find it before its own
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$place"
  break
done

make_flags=(BUILD="$build" BIN="$build" NO_INSTALL=1 ${carry:+CARRY="$carry"} ${CPPFLAGS:+CPPFLAGS="$CPPFLAGS"} ${LDFLAGS:+LDFLAGS="$LDFLAGS"})
quick=()
small=(--preset nano)
if [ -n "${EMULATED:-}" ]; then
  make_flags+=(CUDA_ON_CPU=1)
  quick=(--quick)
  small=(--layers 2 --heads 2 --dim 32 --ctx 16 --batch 2)
fi
tests=()
[ -z "$stages" ] || read -ra tests <<<"$(make --no-print-directory "${make_flags[@]}" gpu-test-names)"
export PYTHONUNBUFFERED=1 CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-LAZY}
mkdir -p "$out" "$build/parts"
summary=()
failed=0
may_time_out=

json_text() { tr -d '\000-\037' <<<"$1" | sed 's/\\/\\\\/g; s/"/\\"/g' | cut -c1-400; }
record() { # record NAME STATUS SECONDS DETAIL
  printf '{"kind": "part", "stage": "%s", "name": "%s", "status": "%s", "seconds": %s, "detail": "%s"}\n' \
    "$stage" "$1" "$2" "$3" "$(json_text "$4")" >>"$results"
  summary+=("$(printf '%-8s %-9s %-34s %4s s  %s' "$2" "$stage" "$1" "$3" "$4")")
  printf -- '-- %s: %s, %s s%s\n' "$1" "$2" "$3" "${4:+: $4}"
  [ "$2" != failed ] || failed=$((failed + 1))
}
left() { echo $((stage_end - $(date +%s))); }

# The result of a part in one line, from its log.
detail_of() {
  local passed bad
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$1" | awk '{ n += $1 } END { print n + 0 }')
  bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$1" | awk '{ n += $1 } END { print n + 0 }')
  if [ "$((passed + bad))" -gt 0 ]; then
    echo "$passed passed, $bad failed: $(sed -n 's/^\[  FAILED  \] \([a-z].*\)/\1/p' "$1" | sort -u | head -n 8 | tr '\n' ';')" | sed 's/, 0 failed: $//; s/: $//'
  else
    grep -v '^ *$' "$1" | tail -n 1 | cut -c1-200
  fi
}

# part NAME SECONDS COMMAND...: runs it for at most SECONDS and the rest of the stage; status 77 means skipped.
part() {
  local name=$1 limit=$2 start status log
  shift 2
  log=$build/parts/$stage-${name//[^A-Za-z0-9_]/-}.log
  if [ "$(left)" -lt 5 ]; then
    record "$name" skipped 0 "no time left in this stage"
    return 1
  fi
  [ "$limit" -le "$(left)" ] || limit=$(left)
  printf -- '\n-- %s (at most %s s): %s\n' "$name" "$limit" "$*" | cut -c1-300
  start=$(date +%s)
  if declare -F "$1" >/dev/null; then set -- bash "$self" --part "$@"; fi
  timeout -k 5 "$limit" "$@" 2>&1 </dev/null | tee "$log" | quiet
  status=${PIPESTATUS[0]}
  case $status in
    0) record "$name" passed "$(($(date +%s) - start))" "$(detail_of "$log")" ;;
    77) record "$name" skipped "$(($(date +%s) - start))" "$(detail_of "$log")" ;;
    124 | 137)
      if [ -n "$may_time_out" ] && ! grep -q -E '^========= +(Invalid|Race|Error: (Race|Potential)|Uninitialized|Barrier)' "$log"; then
        record "$name" skipped "$(($(date +%s) - start))" "stopped after $limit s; until then: $(detail_of "$log")"
      else record "$name" failed "$(($(date +%s) - start))" "stopped after $limit s; until then: $(detail_of "$log")"; fi
      ;;
    *) record "$name" failed "$(($(date +%s) - start))" "status $status: $(detail_of "$log")" ;;
  esac
  return "$status"
}
# Omits passed tests and compiler commands; they are in the log of the part.
quiet() { grep --line-buffered -E -v '^\[ +(RUN|OK) +\]|^\[ *[0-9]+/[0-9]+ \]|^\[=+\] Running' || true; }

header() {
  echo "== gpu-check, stage $stage, $(date -u '+%Y-%m-%d %H:%M UTC') =="
  local card driver cuda commit
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
  memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader 2>/dev/null | head -n 1)
  cuda=$([ -z "$nvcc" ] || "$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  commit=${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
  [ -z "${EMULATED:-}" ] || card="emulated on the CPU"
  echo "card ${card:-none found}, ${memory:-?}; driver ${driver:-?}; CUDA ${cuda:-none}; commit $commit; $jobs cores; $(gcc --version | head -n 1)"
  echo "results $results; libraries from ${carry:-the system}; search path ${LD_LIBRARY_PATH:-not set}"
  printf '{"kind": "header", "stage": "%s", "card": "%s", "memory": "%s", "driver": "%s", "cuda": "%s", "commit": "%s", "date": "%s"}\n' \
    "$stage" "$(json_text "${card:-none}")" "$(json_text "${memory:-}")" "$(json_text "${driver:-}")" "$cuda" "$(json_text "$commit")" \
    "$(date -u +%Y-%m-%dT%H:%MZ)" >>"$results"
}

programs() {
  part "build" 420 make --no-print-directory -k -j"$jobs" "${make_flags[@]}" gpu-programs && return 0
  # Uses what could be built (without cmocka, everything but the tests), but nothing from an earlier build.
  local program
  for program in "$build"/{train,bench_kernels,check_fragments,stories} "${tests[@]/#/$build/tests/}"; do
    make -q --no-print-directory "${make_flags[@]}" "$program" >/dev/null 2>&1 || rm -f "$program"
  done
  grep -m 20 -E 'error|Error|missing|No such' "$build/parts/$stage-build.log"
}

# suite NAME SECONDS: a test program on the GPU
suite() {
  local program=$build/tests/$1
  if [ ! -x "$program" ]; then record "$1" failed 0 "not built"; else part "$1" "$2" env INKLING_TEST_BACKEND=cuda "$program"; fi
}

text=$build/parts/stories.txt
make_text() {
  [ -s "$text" ] || "$build/stories" --bytes 1000000 --seed 1 -o "$text" >"$build/parts/stories.log" 2>&1 ||
    cat ./*.c ./*.h util/*.c model/*.c kernels/*.cuh kernels/cpu/*.c tokenizer/*.c dataset/*.c doctor/*.c inference/*.c formats/*.c checkpoint/*.c training/*.c cli/*.c tests/*.c >"$text"
}

train_small() { # train_small NAME FLAG...
  local name=$1
  shift
  rm -rf "$build/parts/$name.run"
  "$build/train" "$text" --out "$build/parts/$name.run" --overwrite "${small[@]}" --steps 50 --log-every 1 --eval-every 0 --val-frac 0 \
    --sample-tokens 0 --seed 7 --optimizer adamw --quiet "$@"
}
runs_agree() { # runs_agree NAME NAME TOLERANCE
  "$python" scripts/compare_runs.py "$build/parts/$1.run" "$build/parts/$2.run" "$3" 50
}
same_weights() {
  runs_agree "$1" "$2" 0 && cmp "$build/parts/$1.run/model.safetensors" "$build/parts/$2.run/model.safetensors" && echo "the weights are the same, byte for byte"
}

parity() {
  local program
  part "fragments" 60 "$build/check_fragments"
  part "bench_kernels --quick" 60 bench_quick
  for program in "${tests[@]}"; do suite "$program" 150; done
  make_text
  part "train f32, CPU" 60 train_small cpu --device cpu --dtype f32 --dropout 0.1 --arch llama
  part "train f32, GPU" 60 train_small gpu --device cuda --dtype f32 --dropout 0.1 --arch llama
  part "f32: GPU as CPU to 1e-3" 10 runs_agree cpu gpu 1e-3
  part "train f32 by Muon, CPU" 60 train_small cpu-muon --device cpu --dtype f32 --optimizer muon
  part "train f32 by Muon, GPU" 60 train_small gpu-muon --device cuda --dtype f32 --optimizer muon
  part "f32 by Muon: GPU as CPU to 1e-3" 10 runs_agree cpu-muon gpu-muon 1e-3
  part "train bf16, GPU" 60 train_small bf16 --device cuda --dtype bf16 --dropout 0.1 --arch llama
  part "train bf16, GPU, again" 60 train_small again --device cuda --dtype bf16 --dropout 0.1 --arch llama
  part "bf16: the same losses and weights" 10 same_weights bf16 again
  part "bf16: as f32 to 2 %" 10 runs_agree cpu bf16 2e-2
}

# Every row must work; the numbers mean nothing.
bench_quick() {
  local dtype status=0
  for dtype in bf16 f32; do
    "$build/bench_kernels" --device cuda --quick --dtype "$dtype" || status=1
  done
  return "$status"
}

# sanitized TOOL COMMAND...: status 77 if the tool does not work on this machine
sanitized() {
  local tool=$1 status log=$build/parts/sanitizer.txt options=(--error-exitcode 9 --print-limit 20)
  shift
  # Tests make memory run out on purpose; the program checks its CUDA calls itself.
  [ "$tool" != memcheck ] || options+=(--report-api-errors no)
  INKLING_TEST_BACKEND=cuda "$SANITIZER" --tool "$tool" "${options[@]}" "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  if grep -q -i -E 'device not supported|not supported on|unable to find injection|failed to initialize|internal sanitizer error' "$log"; then
    echo "compute-sanitizer does not work on this machine: $(grep -i -m 1 -E 'supported|unable|failed|internal' "$log")"
    return 77
  fi
  grep -q 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log" || echo "(no summary of compute-sanitizer)"
  return "$status"
}

sanitize() {
  local place
  SANITIZER=$(command -v compute-sanitizer)
  for place in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer; do
    [ -n "$SANITIZER" ] || [ ! -x "$place/compute-sanitizer" ] || SANITIZER=$place/compute-sanitizer
  done
  export SANITIZER
  if [ -z "$SANITIZER" ]; then
    record "compute-sanitizer" skipped 0 "not installed"
    return
  fi
  may_time_out=1
  local tool program dtype
  part "memcheck of fragments" 60 sanitized memcheck "$build/check_fragments" || [ $? -ne 77 ] || return 0
  for dtype in bf16 f32; do
    for tool in memcheck racecheck; do
      part "$tool of all operations, $dtype" 75 sanitized "$tool" "$build/bench_kernels" --device cuda --quick --dtype "$dtype"
    done
  done
  for tool in synccheck initcheck; do
    part "$tool of all operations, bf16" 60 sanitized "$tool" "$build/bench_kernels" --device cuda --quick --dtype bf16
  done
  make_text
  part "memcheck of training" 60 sanitized memcheck "$build/train" "$text" --out "$build/parts/sanitized.run" --overwrite --layers 2 --heads 2 \
    --dim 64 --ctx 32 --batch 2 --steps 4 --eval-every 0 --val-frac 0 --sample-tokens 0 --device cuda --dtype bf16 --quiet
  for tool in memcheck racecheck; do
    for program in "${tests[@]}"; do
      case $program in test_model* | test_context) continue ;; esac # operations alone
      [ ! -x "$build/tests/$program" ] || part "$tool of $program" 75 sanitized "$tool" "$build/tests/$program"
    done
  done
}

# PARTS=operations or PARTS=training: only one half
speed() {
  make_text
  local group more=()
  [ "${PARTS:-}" = training ] || for group in rates gemm attention elementwise decode; do
    part "operations: $group" 90 "$build/bench_kernels" --device cuda --only "$group" --batch "$batch" --json "$results" "${quick[@]}"
  done
  if [ "${PARTS:-}" != training ]; then
    part "operations: gemm, autotuned" 60 "$build/bench_kernels" --device cuda --only gemm --autotune --batch "$batch" --json "$results" "${quick[@]}"
    part "training, autotuned" 60 "$build/bench_kernels" --device cuda --only train --autotune --batch "$batch" --json "$results" "${quick[@]}"
    part "training, 8192 rows of logits" 60 "$build/bench_kernels" --device cuda --only train --autotune --head-rows 8192 --batch "$batch" --json "$results" "${quick[@]}"
  fi
  [ "${PARTS:-}" != operations ] || return 0
  [ -z "${EMULATED:-}" ] || more=(--models tiny --rounds 1 --bench-flags "--device cuda --quick")
  part "training, beside PyTorch" "$(left)" "$python" scripts/gpu_torch.py --bench "$build/bench_kernels" --train "$build/train" --text "$text" \
    --json "$results" --batch "$batch" --seconds "$(($(left) - 10))" "${more[@]}"
}

run_stage() {
  stage_end=$(($(date +%s) + ${STAGE_SECONDS:-470}))
  header
  programs
  "$stage"
  printf '\n== summary of %s ==\n' "$stage"
  printf '%s\n' "${summary[@]}"
  echo "$failed failed; results in $results"
  [ "$failed" -eq 0 ]
}

if [ "${1:-}" = --part ]; then
  shift
  "$@"
  exit
fi
status=0
for stage in $stages; do
  results=$out/results-$stage.jsonl
  rm -f "$results"
  (run_stage) 2>&1 | tee "$out/log-$stage.txt" || status=1
done
exit $status
