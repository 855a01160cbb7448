#!/usr/bin/env bash
# Checks and measures a GPU: asks the smallest question first, and writes each answer to OUT before it asks the next. Its
# programs lie beside it (scripts/gpu_pack.sh), and may have been built on another machine.
#
#   make gpu-check                           # builds and runs them
#   tar xJf gpu.tar.xz && ./gpu_contact.sh   # what `make gpu-tarball` made
#
# It needs bash, coreutils, the NVIDIA driver and cuBLASLt; python3 compares runs and predictions, and PyTorch's speed if it is there.
# Without a usable GPU it stops after the first question, with status 2. Otherwise status 0 if nothing failed.
#
# Settings (environment): OUT (contact): where results-contact.jsonl, contact.txt (everything) and summary.txt are written;
# BUDGET (580): seconds; STEPS (all): some of "kernels speed tests operations torch profile sanitize"; TESTS (all): some
# test programs; BATCH (32): sequences of 124m beside PyTorch; JOBS (14): of them at a time; ROUNDS (2):
# of training beside PyTorch; PYTHON (python3); QUICK=1: tiny shapes, to try the script.
# shellcheck disable=SC2317 # functions are called by their names
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$here/check_fragments" ] || { echo "gpu_contact: no programs in $here; run make gpu-check" >&2; exit 2; }
start=$(date +%s)
end=$((start + ${BUDGET:-580}))
out=${OUT:-contact}
steps=${STEPS:-kernels speed tests operations torch profile sanitize}
quick=${QUICK:+--quick}
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
log=$out/contact.txt
results=$out/results-contact.jsonl
summary=$out/summary.txt
for file in "$log" "$results" "$summary"; do : >"$file"; done
work=$(mktemp -d)
# Commands run through MPS, by which processes share the GPU without time slices.
mps() { CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps "$@"; }
mps_stop() {
  [ -d "$work/mps" ] || return
  echo quit | mps timeout -k 3 20 nvidia-cuda-mps-control >/dev/null 2>&1
  rm -rf "$work/mps"
}
trap 'mps_stop; rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache # the first run measures its GEMMs
failed=0

# Where cuBLASLt is. Only our programs search there: PyTorch brings its own.
for lt in "$here/lib" /usr/local/cuda/lib64 /usr/local/cuda/targets/*/lib \
  $("$python" -c 'import sysconfig, glob; print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib"))' 2>/dev/null) none; do
  ! ls "$lt"/libcublasLt.so.* >/dev/null 2>&1 || break
done
for program in train generate bench_kernels; do
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s:%s exec %s/%s "$@"\n' "$here/lib" "$lt" "$here" "$program" >"$work/$program"
  chmod +x "$work/$program"
done
ours() { LD_LIBRARY_PATH=$here/lib:$lt "$@"; }
bench() { ours "$here/bench_kernels" --device cuda ${quick:+"$quick"} "$@"; }
export -f ours bench
export here lt quick work python out results PYTHONUNBUFFERED=1

wanted() { case " $steps " in *" $1 "*) true ;; *) false ;; esac }
json_text() { tr -d '\000-\037' <<<"$1" | sed 's/\\/\\\\/g; s/"/\\"/g' | cut -c1-400; }
say() { printf '%4d s  %s\n' $(($(date +%s) - start)) "$*" | tee -a "$summary"; }
# What a part says in one line: its failed tests, or its last line.
detail_of() {
  local bad
  bad=$(sed -n 's/^\[  FAILED  \] \([a-z].*\)/\1/p' "$1" | sort -u | head -n 8 | tr '\n' ';')
  if [ -n "$bad" ]; then echo "failed: $bad"; else grep -v '^ *$' "$1" | tail -n 1 | cut -c1-220; fi
}
# answered NAME STATUS SECONDS LOG
answered() {
  local status
  case $2 in 0) status=passed ;; 77) status=skipped ;; *) status=failed failed=$((failed + 1)) ;; esac
  { printf '\n== %s: status %s, %s s\n' "$1" "$2" "$3"; grep -v '^\[ *\(RUN\|OK\) *\]' "$4"; } >>"$log"
  case $2 in 124 | 137) say "$status $1: stopped after $3 s: $(detail_of "$4")" ;; *) say "$status $1: $(detail_of "$4")" ;; esac
  printf '{"kind": "part", "stage": "contact", "name": "%s", "status": "%s", "seconds": %s, "detail": "%s"}\n' \
    "$1" "$status" "$3" "$(json_text "$(detail_of "$4")")" >>"$results"
}
# ask NAME SECONDS COMMAND...: one question, alone on the GPU
ask() {
  local name=$1 limit=$2 left=$((end - $(date +%s))) begin status
  shift 2
  if [ "$left" -lt 5 ]; then say "skipped $name: no time left"; return 1; fi
  [ "$limit" -le "$left" ] || limit=$left
  begin=$(date +%s)
  timeout -k 3 "$limit" bash -c '"$@"' - "$@" >"$work/part.log" 2>&1 </dev/null
  status=$?
  answered "$name" "$status" $(($(date +%s) - begin)) "$work/part.log"
  return $status
}
# later NAME SECONDS COMMAND...: one of several questions that `together` asks at the same time
count=0
later() {
  count=$((count + 1))
  local file=$work/later.$count
  printf '%s\n' "$1" >"$file.name"
  shift
  printf '%q ' "$@" >"$file.command"
}
one_of_several() {
  local limit command begin
  read -r limit command <"$1.command"
  begin=$(date +%s)
  timeout -k 3 "$limit" bash -c "$command" >"$1.log" 2>&1 </dev/null
  echo "$? $(($(date +%s) - begin))" >"$1.status"
}
export -f one_of_several
together() { # together JOBS SECONDS
  local i status seconds limit=$2 left=$((end - $(date +%s)))
  [ "$limit" -le "$left" ] || limit=$((left > 5 ? left : 5))
  seq 1 $count | timeout -k 3 "$limit" xargs -P "$1" -I{} bash -c 'one_of_several "$0"' "$work/later.{}"
  for i in $(seq 1 $count); do
    read -r status seconds <"$work/later.$i.status" 2>/dev/null || { status=124 seconds=$limit; }
    [ -f "$work/later.$i.log" ] || echo "not started" >"$work/later.$i.log"
    answered "$(cat "$work/later.$i.name")" "$status" "$seconds" "$work/later.$i.log"
  done
  count=0
}

environment() {
  nvidia-smi
  nvidia-smi --query-gpu=name,clocks.sm,clocks.max.sm,power.limit,temperature.gpu --format=csv,noheader
  nproc; grep -m 1 'model name' /proc/cpuinfo; free -g | head -n 2; gcc --version | head -n 1; nvcc --version | tail -n 2
  for tool in make git ncu nsys compute-sanitizer cuobjdump xz; do command -v $tool || echo "no $tool"; done
}
environment >>"$log" 2>&1
query() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
card=$(query name)
card_capability=$(query compute_cap)
[ -z "${EMULATED:-}" ] || card="emulated on the CPU" card_capability=9.0
export card_capability
printf '{"kind": "header", "stage": "contact", "card": "%s", "memory": "%s", "driver": "%s", "cuda": "%s", "commit": "%s", "date": "%s"}\n' \
  "$(json_text "${card:-none}")" "$(query memory.total)" "$(query driver_version)" \
  "$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p')" "$(cat "$here/commit")" "$(date -u +%Y-%m-%dT%H:%MZ)" >>"$results"
say "${card:-no GPU named}; programs of $(cat "$here/commit"); cuBLASLt in $lt"

# ---- training runs that must agree ----

text=$work/stories.txt
"$here/stories" --bytes 1000000 --seed 1 -o "$text" >"$work/stories.log" 2>&1
export text
# trains NAME FLAG...: a short run with a loss for each step
trains() {
  local name=$1
  shift
  ours "$here/train" "$text" --out "$work/$name.run" --overwrite --log-every 1 --eval-every 0 --val-frac 0 --sample-tokens 0 \
    --seed 7 --optimizer adamw --threads 4 --quiet "$@"
}
agree() { "$python" "$here/compare_runs.py" "$work/$1.run" "$work/$2.run" "$3" "$4"; }
# like NAME TOLERANCE STEPS FLAG...: fp32 on the CPU and on the GPU
like() {
  local name=$1 tolerance=$2 count=$3
  shift 3
  trains "$name-cpu" --device cpu --dtype f32 --steps "$count" "$@" &&
    trains "$name-gpu" --device cuda --dtype f32 --steps "$count" "$@" && agree "$name-cpu" "$name-gpu" "$tolerance" "$count"
}
# bf16 TOLERANCE STEPS FLAG...: bf16 twice by the same GEMM algorithms, the same losses and weights, and near fp32
bf16() {
  local tolerance=$1 count=$2
  shift 2
  trains bf16-1 --device cuda --dtype bf16 --steps "$count" "$@" &&
    trains bf16-2 --device cuda --dtype bf16 --steps "$count" "$@" --config "$work/bf16-1.run/config.txt" &&
    trains bf16-f32 --device cuda --dtype f32 --steps "$count" "$@" && agree bf16-1 bf16-2 0 "$count" &&
    cmp "$work/bf16-1.run/model.safetensors" "$work/bf16-2.run/model.safetensors" && agree bf16-f32 bf16-1 "$tolerance" "$count"
}
tests_of() { INKLING_TEST_BACKEND=cuda INKLING_GOLDEN="$here/golden" ours "$here/tests/$1"; }
sanitized() { # sanitized TOOL COMMAND...
  local tool=$1 sanitizer
  shift
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) || { echo "compute-sanitizer is not installed"; return 77; }
  ours "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 --report-api-errors no "$@"
}
# What ./train chooses for the text, and the seconds of its phases.
default_run() {
  ours "$here/train" "$text" --out "$work/default.run" --overwrite --device cuda --quiet "$@" && "$python" -c '
import json, sys
result = json.load(open(sys.argv[1]))
phases = result["phases"]
print(result["step"], f"steps in {sum(phases.values()):.2f} s:", ", ".join(f"{name} {s:.2f}" for name, s in phases.items()))
' "$work/default.run/result.json"
}
# timed NAME PROGRAM FLAG...: the line of JSON that PROGRAM prints for --bench goes to the results, too
timed() {
  local name=$1 program=$2
  shift 2
  ours "$here/$program" "$@" --device cuda --quiet >"$work/timed.json" && "$python" -c '
import json, sys
row = json.load(open(sys.argv[1]))
with open(sys.argv[2], "a") as results:
    print(json.dumps({"kind": "timed", "name": sys.argv[3], **row}), file=results)
print("%(tokens_per_s).0f tokens/s, %(step_ms).3f ms a step (%(step_ms_p10).3f to %(step_ms_p90).3f)" % row)
' "$work/timed.json" "$results" "$name"
}
by_wgmma() { INKLING_WGMMA=1 "$@"; }
# Attention, and training steps of 124m, whose heads have 64 numbers, by mma and by wgmma: a line for each, with the ratio.
wgmma_beside_mma() {
  [ "$card_capability" = 9.0 ] || { echo "only cards of compute capability 9.0 have wgmma"; return 77; }
  rm -f "$work/mma.jsonl" "$work/wgmma.jsonl"
  bench "$@" --json "$work/mma.jsonl" >"$work/mma.log" && by_wgmma bench "$@" --json "$work/wgmma.jsonl" >"$work/wgmma.log" &&
    "$python" -c '
import json, sys
def times(path):
    ms = {}
    for row in map(json.loads, open(path)):
        if row["kind"] == "kernel" and row["operation"].startswith("attention"):
            ms["%(operation)s, %(shape)s" % row] = row["ms"]
        elif row["kind"] == "train":
            ms["a step of %(model)s, %(batch)d x %(ctx)d, dropout %(dropout)g" % row] = row["step_ms"]
    return ms
mma, wgmma = times(sys.argv[1]), times(sys.argv[2])
with open(sys.argv[3], "a") as results:
    for name, ms in mma.items():
        row = {"kind": "wgmma", "name": name, "mma_ms": ms, "wgmma_ms": wgmma[name]}
        print(json.dumps(row), file=results)
        print(f"{name}: mma {ms:.4f} ms, wgmma {wgmma[name]:.4f} ms, {ms / wgmma[name]:.2f}x")
' "$work/mma.jsonl" "$work/wgmma.jsonl" "$results"
}
# Kernels that generate a token begin early: programmatic dependent launch.
early() { INKLING_PDL=1 "$@"; }
can_begin_early() { [ "${card_capability%.*}" -ge 9 ] 2>/dev/null; }
# timed_early NAME PROGRAM FLAG...: timed, or why not
timed_early() { if can_begin_early; then early timed "$@"; else echo "only cards of 9.0 and later begin kernels early"; return 77; fi; }
# same_bits_early TEST...: tests pass with kernels that begin early, with the same bits
same_bits_early() {
  local test
  for test; do
    rm -f "$work/$test.early" "$work/$test.plain"
    INKLING_TEST_DIGEST=$work/$test.plain tests_of "$test" && INKLING_TEST_DIGEST=$work/$test.early early tests_of "$test" &&
      cmp "$work/$test.plain" "$work/$test.early" || return 1
  done
}
# sweep RUNS FLAG...: so many runs at a time; how long all of them take
sweep() {
  local runs=$1 begin
  shift
  rm -rf "$work/nano.sweep"
  begin=$(date +%s%N)
  ours "$here/train" "$text" --sweep "seed=$(seq -s , 1 "$runs")" --jobs "$runs" --out "$work/nano.sweep" --device cuda --quiet \
    --sample-tokens 0 --no-autotune "$@" || return 1
  echo "$runs runs in $((($(date +%s%N) - begin) / 1000000)) ms"
}
mps_sweep() {
  command -v nvidia-cuda-mps-control || { echo "nvidia-cuda-mps-control is not installed"; return 77; }
  mkdir -p "$work/mps"
  mps nvidia-cuda-mps-control -d || { echo "nvidia-cuda-mps-control cannot start"; return 77; }
  mps ours "$here/check_fragments" || { echo "no program runs under MPS"; return 77; }
  mps sweep "$@"
}
export -f trains agree like bf16 tests_of sanitized default_run timed by_wgmma wgmma_beside_mma early can_begin_early timed_early \
  same_bits_early sweep mps mps_sweep

small="--arch llama --preset nano --batch 12"
wide="--arch llama --layers 2 --heads 12 --dim 768 --ctx 1024 --batch 8"
baby="--arch llama --layers 6 --heads 6 --dim 384 --ctx 256 --batch 8" # steps of 2048 tokens
large="--arch llama --layers 12 --heads 12 --dim 768 --ctx 1024 --batch 32"
chosen='' timings=100 tunings="--autotune --no-autotune" optimizers="adamw muon" texts="1 8 64"
heads64="--model 124m"
nano="12 --preset nano --steps 1000"
# Qwen2-0.5B without the biases of q, k and v: 494 M parameters
qwen=layers=24,heads=14,kv_heads=2,dim=896,ffn=4864,vocab=151936,ctx=1024,batch=16
if [ -n "$quick" ]; then
  small="--arch llama --layers 2 --heads 2 --dim 32 --ctx 16 --batch 2" wide=$small
  baby="$small --tokenizer byte" large="$small --tokenizer byte" timings=2 tunings=--autotune optimizers=muon texts=1
  heads64='' nano="2 $small --tokenizer byte --steps 2 --val-frac 0.0005" qwen=layers=2,heads=4,kv_heads=2,dim=32,ffn=64,vocab=70,ctx=16,batch=2
  chosen="$small --steps 4 --tokenizer byte --val-frac 0.0005 --sample-tokens 2"
fi

# ---- the questions ----

if wanted kernels; then
  ask "a kernel runs: fragments of mma, ldmatrix, cp.async" 40 ours "$here/check_fragments" ||
    { ! grep -qi 'no CUDA\|not run' "$work/part.log" || { say "no usable GPU: stop"; exit 2; }; }
  ask "copy and GEMM" 60 bench --only rates --json "$results"
  for dtype in bf16 f32; do
    ask "every operation once, $dtype" 40 ours "$here/bench_kernels" --device cuda --quick --dtype "$dtype"
  done
fi
if wanted speed; then
  ask "training speed" 90 bench --only train --json "$results"
  # shellcheck disable=SC2086 # lists of flags
  {
    ask "attention by wgmma beside mma" 90 wgmma_beside_mma --only attention,train $heads64
    if ask "a model to generate with" 60 trains decoded --device cuda --steps 1 $large; then
      for rows in $texts; do
        name="12 layers x 768, generating, texts at a time: $rows"
        ask "$name" 100 timed "$name" generate "$work/decoded.run" --bench $timings -N "$rows"
        ask "$name, begun early" 100 timed_early "$name, begun early" generate "$work/decoded.run" --bench $timings -N "$rows"
      done
      rm -rf "$work/decoded.run"
    fi
    ask "a run with all defaults" 60 default_run $chosen
    if [ -z "$quick" ]; then
      ask "the same again, its GEMMs measured" 60 default_run
      ask "the same, --no-autotune" 60 default_run --no-autotune
    fi
    for tuning in $tunings; do for optimizer in $optimizers; do
      name="steps of 2048 tokens, $optimizer, $tuning"
      ask "$name" 40 timed "$name" train "$text" --bench $timings --optimizer $optimizer $tuning $baby
    done; done
    for tuning in $tunings; do for optimizer in $optimizers; do
      name="12 layers x 768, $optimizer, $tuning"
      ask "$name" 60 timed "$name" train "$text" --bench $((timings > 20 ? 20 : timings)) --optimizer $optimizer $tuning $large
    done; done
  }
  # shellcheck disable=SC2086
  {
    ask "a sweep of nano" 60 sweep $nano
    ask "the same through MPS" 60 mps_sweep $nano
  }
  mps_stop
  ask "training speed of Qwen2-0.5B, $qwen" 60 bench --only train --shape "$qwen" --json "$results"
fi
if wanted tests; then
  if wanted torch; then # fills the cache of torch.compile; the figures of this step are thrown away
    for mode in compile graphs; do for model in baby 124m; do
      later "PyTorch, $mode, $model: compiled" 150 "$python" "$here/gpu_torch.py" --worker $mode --model $model --batch "${BATCH:-32}"
    done; done
  fi
  for test in ${TESTS:-$(cd "$here/tests" && echo test_*)}; do later "$test" 100 tests_of "$test"; done
  if [ "$card_capability" = 9.0 ]; then
    for test in ${TESTS:-test_kernels_attention test_kernels_attention_shapes test_model_train}; do
      later "$test by wgmma" 100 by_wgmma tests_of "$test"
    done
  fi
  # shellcheck disable=SC2086 # lists of flags and of tests
  {
    ! can_begin_early || later "kernels that begin early: the same bits" 100 same_bits_early ${TESTS:-test_decode test_sample}
    later "fp32: GPU as CPU" 90 like small 1e-5 50 $small --dropout 0.1
    later "fp32, Muon: GPU as CPU" 90 like muon 1e-4 50 $small --optimizer muon
    later "fp32, convolutions and norms of heads: GPU as CPU" 90 like lfm2 1e-4 50 $small --arch lfm2 --optimizer muon
    later "fp32, context 1024: GPU as CPU" 100 like wide 1e-4 5 $wide
    later "bf16: the same again, and near fp32" 90 bf16 3e-3 50 $small --dropout 0.1
  }
  later "memcheck of every operation, bf16" 120 sanitized memcheck "$here/bench_kernels" --device cuda --quick --dtype bf16
  later "racecheck of every operation, bf16" 120 sanitized racecheck "$here/bench_kernels" --device cuda --quick --dtype bf16
  together "${JOBS:-14}" 150
fi
if wanted operations; then
  ask "training speed, autotuned" 90 bench --only train --autotune --json "$results"
  ask "training speed, all logits at once" 60 bench --only train --model 124m --head-rows 65536 --json "$results"
  for group in gemm attention elementwise decode; do ask "operations: $group" 90 bench --only $group --json "$results"; done
fi
if wanted torch; then
  ask "beside PyTorch" 240 "$python" "$here/gpu_torch.py" --bench "$work/bench_kernels" --train "$work/train" --text "$text" \
    --json "$results" --batch "${BATCH:-32}" --rounds "${ROUNDS:-2}" --seconds $((end - $(date +%s) - 5))
fi
if wanted operations && [ -z "$quick" ]; then # measured beside what another card lets expect
  ask "prediction" 20 "$python" "$here/gpu_predict.py" "$here/gpu.jsonl" --measured "$results"
fi
if wanted profile; then
  for model in baby 124m; do
    ask "profile of training steps, $model" 60 ours ncu --clock-control none --section SpeedOfLight --section LaunchStats \
      --section Occupancy --csv --page raw --launch-skip 300 --launch-count 300 --log-file "$out/ncu-$model.csv" "$here/bench_kernels" --device cuda \
      --only train --model $model --batch 8 --train-ms 1
  done
fi
if wanted sanitize; then
  for tool in memcheck racecheck synccheck initcheck; do
    later "$tool of every operation, f32" 150 sanitized $tool "$here/bench_kernels" --device cuda --quick --dtype f32
  done
  for tool in synccheck initcheck; do
    later "$tool of every operation, bf16" 150 sanitized $tool "$here/bench_kernels" --device cuda --quick --dtype bf16
  done
  later "memcheck of training" 150 sanitized memcheck "$here/train" "$text" --out "$work/sanitized.run" --overwrite --layers 2 \
    --heads 2 --dim 64 --ctx 32 --batch 2 --steps 4 --eval-every 0 --val-frac 0 --sample-tokens 0 --device cuda --quiet
  together "${JOBS:-14}" 200
fi
say "$failed failed; results in $out"
[ "$failed" -eq 0 ]
