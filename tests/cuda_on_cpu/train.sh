#!/bin/sh
# A whole training run by the emulated kernels, against the same by the CPU backend. Prints `ok NAME` or `not ok NAME: why`
# a check. Arguments: the build directory; plain, address or race (where fewer steps do).
# shellcheck disable=SC2086 # sets of flags are words
set -u

case $1 in /*) build=$1 ;; *) build=$(pwd)/$1 ;; esac
case ${2:-plain} in plain) steps=50 ;; *) steps=4 ;; esac
train=$build/train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME="$work/cache"

check() { # check NAME COMMAND...
  name=$1
  shift
  if why=$("$@" 2>&1); then echo "ok $name"; else echo "not ok $name: $why"; fi
}

"$build/stories" --bytes 30000 --seed 3 -o text.txt 2>/dev/null
flags="--layers 2 --dim 32 --heads 2 --ctx 32 --batch 4 --steps $steps --dropout 0.1 --log-every 1 --sample-tokens 4 --seed 1"
run() { # run NAME FLAGS...: trains into NAME.run
  name=$1
  shift
  "$train" text.txt $flags --quiet --out "$name.run" "$@" 2>&1
}

# The losses of all steps differ by at most TOLERANCE of their size: near A.run B.run TOLERANCE
losses() { sed -n 's/.*"loss":\([^,]*\),.*"grad_norm".*/\1/p' "$1/metrics.jsonl"; }
near() {
  losses "$1" >one
  losses "$2" >two
  paste one two | awk -v steps="$steps" -v tolerance="$3" '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (!(d <= most)) { most = d; at = NR } }
    END {
      print NR " losses of " steps ", furthest apart at step " at ": " most ", allowed are " tolerance
      exit !(NR == steps && most <= tolerance)
    }'
}

check "the CPU trains" run cpu --device cpu --threads 2
check "CUDA trains in f32" run f32 --device cuda --dtype f32
check "CUDA trains in bf16" run bf16 --device cuda --dtype bf16
check "the losses in f32 are the CPU's" near cpu.run f32.run 1e-3
check "the losses in bf16 are near" near cpu.run bf16.run 2e-2
check "the CPU trains by Muon" run muon_cpu --device cpu --threads 2 --optimizer muon
check "CUDA trains by Muon" run muon --device cuda --dtype f32 --optimizer muon
check "the losses by Muon are the CPU's" near muon_cpu.run muon.run 1e-3
# A text, and how many kernels began early: continues NAME COUNT ENVIRONMENT...
continues() {
  name=$1 count=$2
  shift 2
  env EMU_VERBOSE=1 "$@" "$build/generate" f32.run --device cuda -p Once -n 8 --seed 1 >"$name.out" 2>"$name.err"
  echo "status $?, $(grep -c '^emu: kernel .*, early' "$name.err")"
  [ "$(grep -c '^emu: kernel .*, early' "$name.err")" -eq "$count" ]
}
# of every token: 2 layers of 5 kernels, the logits and the sampler, but the first
check "kernels begin early where that is asked for" continues early $((8 * 11)) INKLING_PDL=1
check "otherwise none does" continues plain 0 INKLING_PDL=0
check "nor on a card that cannot" continues older 0 INKLING_PDL=1 EMU_SM=89
check "the text is the same" cmp plain.out early.out
# What a command says, and its exit status: says STATUS WORDS COMMAND...
says() {
  status=$1 words=$2
  shift 2
  message=$("$@" 2>&1)
  got=$?
  echo "status $got: $message"
  [ "$got" -eq "$status" ] && echo "$message" | grep -q "$words"
}
# A build for another card ends before anything is written, or takes the CPU: no_code STATUS WORDS ERROR FLAGS...
no_code() {
  status=$1 words=$2 error=$3
  shift 3
  says "$status" "$words" env EMU_CODE_ERROR="$error" "$train" text.txt $flags --out no_code.run --overwrite --steps 1 "$@"
}
check "no code for the card: --device cuda" no_code 2 "no code for CUDA on CPU (sm_90); make CUDA_ARCH=90" 209 --device cuda
check "no code for the card: auto takes the CPU" no_code 0 "computing on the CPU" 209 --device auto
check "a driver that is too old" no_code 2 "driver is too old to compile .* install a driver for CUDA [0-9]" 222 --device cuda
check "a driver without its compiler" no_code 2 "compiler is missing .* make CUDA_ARCH=90" 221 --device cuda
check "a driver whose compiler is disabled" no_code 2 "compiler is missing or disabled" 223 --device cuda
check "another error is ours" no_code 1 "query of the device failed" 999 --device cuda
# What the plan says of a card: plan ENVIRONMENT JQ
plan() { env "$1" "$train" text.txt $flags --device cuda --dry-run --json | python3 -c "import json, sys; print($2)"; }
check "a card that the driver compiles for" [ "$(plan EMU_SM=120 "'compiled by its driver' in json.load(sys.stdin)['device']")" = True ]
check "a later card of the same kind" [ "$(plan EMU_SM=89 "'compiled' in json.load(sys.stdin)['device']")" = False ]
free='json.load(sys.stdin)["memory_bytes"]["free"]'
check "a display keeps a fifth of the memory" [ $(($(plan EMU_SM=90 "$free") - $(plan EMU_DISPLAY=1 "$free"))) -eq $(((4 << 30) / 5)) ]
# Tuned products, where one algorithm adds in another order than the next: tuned NAME MILLISECONDS CACHE FLAGS...
tuned() {
  name=$1 times=$2 cache=$3
  shift 3
  EMU_GEMM_MS=$times XDG_CACHE_HOME=$cache run "$name" --device cuda --dtype f32 --layers 1 --steps 2 "$@"
}
# A run used CHOICE for all products, and has the weights of another run: used NAME CHOICE OTHER
used() {
  got=$(tail -n +2 "$1.run/autotune.txt" | sed 's/.* //' | sort -u | tr '\n' ' ')
  echo "choices $got"
  [ "$got" = "$2 " ] && cmp "$1.run/model.safetensors" "$3.run/model.safetensors"
}
check "the fastest algorithm is measured" tuned first 1000,990,900 "$work/c1"
check "and used" used first 2 first
file=$(ls "$work"/c1/inkling/gemm-*.txt)
check "the user's file" cmp "$file" first.run/autotune.txt
check "nobody else can read it" [ "$(stat -c %a "$work/c1" "$work/c1/inkling" | sort -u)" = 700 ]
check "another run uses the same" tuned cached 1000,500,900 "$work/c1"
check "with the same bytes" used cached 2 first
# What later runs of the user have measured does not count where a run is repeated.
mkdir -p "$work/c4/inkling"
others=$work/c4/inkling/${file##*/}
sed '2,$ s/ [0-9]*$/ 1/' "$file" >"$others"
cp "$others" others
check "with other choices in the user's file" tuned other 1000,990,900 "$work/c4"
check "the weights are others" sh -c '! cmp -s first.run/model.safetensors other.run/model.safetensors'
check "--verify takes the run's own choices" says 0 "first.run is reproduced" env EMU_GEMM_MS=1000,500,900 \
  XDG_CACHE_HOME="$work/c4" "$train" --verify first.run --quiet
check "and leaves the user's as they are" cmp others "$others"
check "a gain of less than 3 % is none" tuned near 1000,980,975 "$work/c2"
check "products without tuning" tuned plain 1000,500,900 "$work/c3" --no-autotune
check "are those of the first algorithm" used near 0 plain
check "and leave no file in the run" [ ! -e plain.run/autotune.txt ]
check "nor in the user's directory" [ ! -e "$work/c3" ]
check "they differ" sh -c '! cmp -s first.run/model.safetensors plain.run/model.safetensors'
# What stands in the user's file, if it is not what we wrote: broken NAME COMMAND, which writes it
broken() {
  mkdir -p "$work/$1/inkling"
  what=$1 place=$work/$1/inkling/${file##*/}
  shift
  "$@" >"$place"
  check "a file that is $what" tuned "$what" 1000,990,900 "$work/$what"
  check "a file that is $what: measured again" used "$what" 2 first
  check "a file that is $what: has all choices then" [ -z "$(grep -Fxvf "$place" "$file")" ]
}
broken empty true
broken text cat text.txt
broken foreign sed '1s/on .*/on a GeForce 256/' "$file"
broken cut head -c 500 "$file"
# shellcheck disable=SC2016 # $ is of sed
broken absent sed '2,$ s/ [0-9]*$/ 9/' "$file"
check "choices that did not exist" tuned repaired 1000,500,900 "$work/absent"
check "are measured once" used repaired 2 first
check "no place for the user's file" tuned homeless 1000,990,900 /dev/null
check "tunes this run" used homeless 2 first
check "a run is stopped" tuned parts 1000,990,900 "$work/c1" --stop-at 1
check "it goes on with its own choices" env EMU_GEMM_MS=1000,500,900 "$train" --resume=parts.run --quiet
check "to the same bytes" used parts 2 first
rm parts.run/autotune.txt
check "without them it says so" says 0 "autotune.txt is missing" "$train" --resume=parts.run --steps 3 --quiet
# Sizes that the card cannot work with: a new run ends before anything is written, an older one goes on the CPU.
check "an ffn that CUDA refuses" says 2 "ffn 44 is not supported on CUDA" "$train" text.txt $flags --ffn 44 --out odd
check "a dim that CUDA refuses" says 2 "dim 8200 is not supported on CUDA.*at most 8192" "$train" text.txt $flags --dim 8200 --heads 100 --dry-run --device cuda
check "the same on the CPU" run odd --ffn 44 --steps 2 --device cpu
check "the same resumed: auto takes the CPU" says 0 "ffn 44 .*computing on the CPU" "$train" --resume=odd.run --steps 3 --device auto
# Cards with ever less too little memory: the run that would be replaced is still there, whatever ran out.
fingerprint() { find "$1" -type f ! -name .lock -exec cksum {} + | sort; }
too_small() {
  fails=20000 works=160000
  fingerprint f32.run >before
  while [ $((works - fails)) -gt 2 ]; do
    size=$(((fails + works) / 2))
    cp -R f32.run copy.run
    if message=$(EMU_MEMORY_KIB=$size run copy --device cuda --dtype f32 --overwrite --steps 1); then
      works=$size
    else
      fails=$size
      fingerprint copy.run | sed 's/copy/f32/' | cmp - before || { echo "$size KiB: $message"; return 1; }
      case $message in *"out of memory"* | *"not enough memory"*) ;; *) echo "$size KiB: $message"; return 1 ;; esac
    fi
    rm -rf copy.run
  done
  [ "$works" -lt 160000 ]
}
resumed() { # resumed WORDS FLAGS...: goes on with a run of 4 steps or 50, and says so
  words=$1
  shift
  rm -rf copy.run
  cp -R f32.run copy.run
  says 0 "$words" "$train" --resume=copy.run --steps $((steps + 2)) --quiet --device cpu "$@"
}
check "resuming on another device says so" resumed "it will not continue exactly" --dtype f32
if [ "$steps" -eq 50 ]; then
  check "out of memory leaves the old run" too_small
  check "CUDA trains again" env EMU_ORDER=rand:3 EMU_STREAMS=random:3 "$train" text.txt $flags --quiet --out again.run --device cuda --dtype f32
  check "same seed, same bytes, in any order" cmp f32.run/model.safetensors again.run/model.safetensors
fi
