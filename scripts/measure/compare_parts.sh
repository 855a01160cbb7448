#!/bin/sh
# Ablation: trains one small encoder-decoder on a task, each time with another component and about the same number of
# parameters, and prints a table of how well and how fast each one learns.
# Usage: compare_parts.sh [TASK] (copy, reverse, sort or sum; default: reverse). SEEDS="1 2 3": each row is the mean of
# these runs; STEPS: run length; BUILD: directory of `pairs`. Rows of a group differ from the first in one component.
set -eu

task=${1:-reverse}
seeds=${SEEDS:-1}
steps=${STEPS:-1000}
pairs=${BUILD:-build}/pairs
if [ ! -x "$pairs" ] || [ ! -x ./train ] || [ ! -x ./generate ]; then
  echo "compare_parts: first: make train generate $pairs" >&2
  exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

"$pairs" --task "$task" -o "$work/train.tsv" --test "$work/test.tsv"

# row NAME OPTIONS...: prints a line of the table, the mean over the seeds
row() {
  name=$1
  shift
  for seed in $seeds; do
    ./train "$work/train.tsv" --out "$work/run" --overwrite --arch original --layers 2 --heads 4 --dim 32 --ffn 64 --ctx 64 \
      --batch 8 --steps "$steps" --optimizer adamw --warmup 100 --lr 4e-3 --min-lr-frac 0.05 --beta2 0.98 --wd 0.01 --dropout 0 \
      --eval-every 50 --sample-tokens 16 --sample-every 0 --seed "$seed" "$@" 2>"$work/log" ||
      { cat "$work/log" >&2; exit 1; }
    size=$(sed -n 's/^model *\([^ ]*\) parameters.*/\1/p' "$work/log")
    score=$(./generate "$work/run" --score "$work/test.tsv" --exact --quiet)
    to99=$(sed -n 's/.*"step":\([0-9]*\),.*"exact":\([0-9.e-]*\).*/\1 \2/p' "$work/run/metrics.jsonl" |
      awk '$2 >= 0.99 && !found { print $1; found = 1 }')
    seconds=$(sed -n 's/.*"val_loss".*"seconds":\([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" | tail -n 1)
    echo "$size $(echo "$score" | sed 's/.*"nats_per_token": \([0-9.]*\).*"exact": \([0-9.]*\).*/\1 \2/') ${to99:-0} $seconds"
  done | awk -v name="$name" '
    { size = $1; loss += $2; exact += $3; if ($4) { reached++; to += $4 } seconds += $5 }
    END {
      steps = reached == NR ? sprintf("%d", to / NR) : reached ? sprintf("%d (%d of %d runs)", to / reached, reached, NR) : "never"
      printf "| %-36s | %6s | %8.4f | %6.1f %% | %-17s | %5.1f |\n", name, size, loss / NR, 100 * exact / NR, steps, seconds / NR
    }'
}

echo "The task is $task, $steps steps of 512 places; loss and exact answers on strings that were not trained on."
echo
echo "| what is changed                      | params | loss     | exact    | steps to 99 %     | s     |"
echo "|--------------------------------------|--------|----------|----------|-------------------|-------|"
row "nothing: norms after each part"
row "norms before each part" --norm-place before
row "norms on the branches" --norm-place branch
row "RMSNorm" --norm rms
row "learned positions" --positions learned
row "rotary positions" --positions rope --norm-place before
row "no positions" --positions none --norm-place before
row "GELU" --act gelu
row "SwiGLU, ffn 40" --act silu --gated --ffn 40
row "no biases" --no-bias --no-qkv-bias
row "one head" --heads 1
row "PyTorch's initial weights" --init-like torch
