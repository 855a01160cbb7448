#!/bin/sh
# Checks that two builds compute the same: compare_builds.sh OLD NEW [DIR]
#
# OLD and NEW are directories with `train` and `generate`. `stories`, which writes the corpus, is taken from DIR, NEW or
# OLD (or their build/). Both builds run the same commands on the same small texts, each in its own directory. The
# results are compared byte for byte: model, config, tokenizer, samples, the tensors of the resume state, the metrics
# without times, and what ./generate writes, scores, encodes, decodes and exports. CPU only; takes two minutes.
#
# Prints `same NAME` or `DIFFERENT NAME: what` for each run, then `N same, N different`. Exit status 1 if anything
# differs or is missing, 2 if nothing could be compared.
# shellcheck disable=SC2086 # sets of flags are words
set -u

cannot() {
  echo "compare_builds: $*" >&2
  exit 2
}

[ $# -eq 2 ] || [ $# -eq 3 ] || cannot "usage: compare_builds.sh OLD NEW [DIR]"
old=$(cd "$1" && pwd) || cannot "no directory $1"
new=$(cd "$2" && pwd) || cannot "no directory $2"
for program in "$old/train" "$old/generate" "$new/train" "$new/generate"; do
  if [ ! -f "$program" ] || [ ! -x "$program" ]; then cannot "no program $program"; fi
done
stories=
for dir in ${3+"$3" "$3/build"} "$new" "$new/build" "$old" "$old/build"; do
  if [ -z "$stories" ] && [ -f "$dir/stories" ] && [ -x "$dir/stories" ]; then stories=$dir/stories; fi
done
[ -n "$stories" ] || cannot "no stories in ${3:+$3, }$new or $old: make build/stories"

work=$(mktemp -d) || cannot "no temporary directory"
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$work/old" "$work/new" "$work/begun"
ln -s "$old" "$work/old/build"
ln -s "$new" "$work/new/build"
ln -s "$old" "$work/begun/build"
LC_ALL=C
export LC_ALL

# ---- texts: one place for both builds, because config.txt has their paths ----
text=$work/text.txt tail=$work/tail.txt prompts=$work/prompts.jsonl pairs=$work/pairs.jsonl tail_pairs=$work/tail.jsonl
write_text() { "$stories" --bytes "$1" --seed "$2" -o "$3" 2>/dev/null || cannot "$stories writes no text"; }
write_text 60000 5 "$text"
write_text 3000 6 "$tail"
to_pairs() { # two lines of a story: a prompt and its response
  awk '/^<\|endoftext\|>$/ { prompt = ""; next }
    { gsub(/\\/, "\\\\"); gsub(/"/, "\\\"") }
    prompt == "" { prompt = $0; next }
    { printf "{\"question\": \"%s\", \"answer\": \"%s\"}\n", prompt, $0; prompt = "" }' "$1"
}
to_pairs "$text" >"$pairs"
to_pairs "$tail" >"$tail_pairs"
if [ ! -s "$pairs" ] || [ ! -s "$tail_pairs" ]; then cannot "no JSON lines from the corpus of $stories"; fi

printf '%s\n' '{"prompt": "Once", "seed": 2, "max_tokens": 20}' \
  '{"prompt": "The ", "temperature": 0.5, "seed": 3, "max_tokens": 20, "n": 2}' >"$prompts"

# ---- runs ----
problems=

# attempt SIDE OUTPUT COMMAND...: runs it in the side's directory; a failure counts as a difference, with its reason
attempt() {
  side=$1 output=$2
  shift 2
  (cd "$work/$side" && "$@" >"$output" 2>stderr.txt </dev/null)
  got=$?
  [ $got -ne 0 ] || return 0
  problems="$problems $1($side:status-$got)"
  { echo "$side: status $got: $*" && tail -n 3 "$work/$side/stderr.txt"; } >&2
  return 1
}

# options of all runs
small="--layers 2 --dim 64 --ctx 64 --batch 4 --seed 5 --log-every 1 --sample-tokens 64"
small="$small --threads 2 --device cpu --optimizer adamw --quiet"

# train SIDE NAME FLAGS...
train() {
  side=$1 name=$2
  shift 2
  attempt "$side" /dev/null build/train --out "$name.run" $small "$@"
}

kept="model.safetensors config.json tokenizer.json tokenizer_config.json generation_config.json samples.txt"

# collect SIDE NAME STEPS: everything to be compared, into SIDE/NAME
collect() {
  side=$1 name=$2 steps=$3
  run=$name.run results=$work/$side/$name
  for file in model.safetensors metrics.jsonl last/state.safetensors; do
    [ -s "$work/$side/$run/$file" ] || problems="$problems $file($side:missing)"
    [ -s "$work/$side/$run/$file" ] || return
  done
  mkdir "$results"
  for file in $kept; do
    cp "$work/$side/$run/$file" "$results/" 2>/dev/null
  done
  sed 's/"seconds":[^,}]*,*//g; s/"tokens_per_s":[^,}]*,*//g; s/"xz_bits_per_byte":[^,}]*,*//g' "$work/$side/$run/metrics.jsonl" >"$results/metrics.jsonl"
  tail -n 1 "$results/metrics.jsonl" | grep -q "\"step\": *$steps," || problems="$problems metrics.jsonl($side:incomplete)"
  # The state's header says how long the run took; the tensors come after it.
  state=$work/$side/$run/last/state.safetensors
  header=$(od -A n -t u8 -N 8 "$state" | tr -d ' ')
  tail -c "+$((${header:-0} + 9))" "$state" >"$results/state"
  attempt "$side" "$results/greedy" \
    build/generate "$run" --greedy --ignore-eos -n 100 -p Once --echo --repeat-penalty 1.3 --threads 2 --device cpu --quiet
  attempt "$side" "$results/sampled" build/generate "$run" --seed 7 --ignore-eos -n 100 -p "The " --temp 0.9 --top-k 50 \
    --top-p 0.98 --min-p 0.01 --repeat-penalty 1.1 --threads 2 --device cpu --quiet
  [ "$name" = encoder ] || # scores pairs alone
    attempt "$side" "$results/score" build/generate "$run" --score "$tail" --threads 2 --device cpu --quiet
  attempt "$side" "$results/score-pairs" build/generate "$run" --score "$tail_pairs" --prompt-field question \
    --response-field answer --threads 2 --device cpu --quiet
  attempt "$side" "$results/encode" build/generate "$run" --encode "$tail" --quiet
  attempt "$side" "$results/decode" build/generate "$run" --decode "$results/encode" --quiet
  attempt "$side" "$results/prompts" build/generate "$run" --prompts "$prompts" --threads 2 --device cpu --quiet
  attempt "$side" /dev/null build/generate "$run" --export "$name.export" --quiet
  cat "$work/$side/$name.export"/*.safetensors "$work/$side/$name.export/config.json" >"$results/export"
  [ "$name" = encoder ] || attempt "$side" /dev/null build/generate "$run" --gguf "$results/model.gguf" --quiet
}

same=0
different=0
# judge NAME: compares what both sides collected; a file that is missing or empty is a difference too
judge() {
  for side in old new; do
    [ -d "$work/$side/$1" ] || problems="$problems run($side:nothing-to-compare)"
  done
  files="$kept metrics.jsonl state greedy sampled score-pairs encode decode prompts export"
  [ "$1" = encoder ] || files="$files score model.gguf" # llama.cpp has no such models
  for file in $files; do
    if [ ! -d "$work/old/$1" ] || [ ! -d "$work/new/$1" ]; then break
    elif [ ! -s "$work/old/$1/$file" ]; then problems="$problems $file(old:missing)"
    elif [ ! -s "$work/new/$1/$file" ]; then problems="$problems $file(new:missing)"
    elif ! cmp -s "$work/old/$1/$file" "$work/new/$1/$file"; then problems="$problems $file"; fi
  done
  if [ -z "$problems" ]; then
    same=$((same + 1))
    echo "same $1"
  else
    different=$((different + 1))
    echo "DIFFERENT $1:$problems"
  fi
  problems=
  [ "$1" = byte ] || rm -rf "$work/old/$1.run" "$work/new/$1.run" # byte.run is what --init starts from
  rm -rf "$work/old/$1" "$work/new/$1" "$work/old/$1.export" "$work/new/$1.export"
}

# compare NAME FLAGS...: the same run by both builds
compare() {
  for side in old new; do
    train "$side" "$@" && collect "$side" "$1" 40
  done
  judge "$1"
}

often="--steps 40 --save-every 10 --eval-every 10 --sample-every 20"
compare byte "$text" --tokenizer byte --heads 4 $often
compare bpe "$text" --tokenizer bpe --vocab-size 400 --heads 4 $often
compare packed "$pairs" --prompt-field question --response-field answer --pack docs --tokenizer byte --heads 4 $often
compare dropout "$text" --val "$tail" --tokenizer byte --heads 4 --dropout 0.1 --grad-accum 2 $often
compare muon "$text" --tokenizer byte --heads 4 --optimizer muon $often
compare grouped "$text" --tokenizer byte --heads 4 --kv-heads 2 --no-tie --label-smoothing 0.1 $often
compare gpt2 "$text" --arch gpt2 --tokenizer byte --heads 4 $often
compare encoder "$pairs" --prompt-field question --response-field answer --arch original --tokenizer byte --heads 4 $often
compare init "$text" --init byte.run $often

# A run that the old build stops half-way; both builds resume a copy of it.
steps=600 begun=$work/begun/resume.run
(cd "$work/begun" && exec build/train --out resume.run "$text" --tokenizer byte --heads 4 --dropout 0.1 \
  --steps $steps --save-every 50 --eval-every 150 --sample-every 200 $small) \
  >/dev/null 2>"$work/begun/stderr.txt" </dev/null &
pid=$!
polls=0
while ! { [ -d "$begun/last" ] && grep -q '"step": *100,' "$begun/metrics.jsonl"; } 2>/dev/null &&
  [ $polls -lt 600 ] && kill -0 $pid 2>/dev/null; do
  polls=$((polls + 1))
  sleep 0.1
done
kill -INT $pid 2>/dev/null
wait $pid
got=$?
pid=
at=$(sed -n '$s/.*"step": *\([0-9]*\),.*/\1/p' "$begun/metrics.jsonl" 2>/dev/null)
if [ $got -ne 130 ] || [ "${at:-0}" -eq 0 ] || [ "${at:-0}" -ge $steps ]; then
  problems="$problems train(begun:status-$got,step-${at:-none})"
  tail -n 3 "$work/begun/stderr.txt" >&2
else
  for side in old new; do
    cp -R "$begun" "$work/$side/"
    attempt "$side" /dev/null build/train --resume=resume.run --quiet && collect "$side" resume $steps
  done
fi
judge resume

echo "$same same, $different different"
[ $different -eq 0 ] && [ $same -eq 10 ]
