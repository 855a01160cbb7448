#!/bin/sh
# Trains a model as the strict-small track of BabyLM asks, and evaluates the models that it keeps on the way:
#
#   scripts/measure/babylm.sh TEXTS PAIRS RUN [options of train]
#
# TEXTS: a file or folder of text, at most 10 million words. PAIRS: a folder of minimal pairs in .jsonl files with
# "sentence_good" and "sentence_bad", as BLiMP has them. Models are kept after each million of words, from 10 million on
# after each ten, up to 100 million, the most that the track allows: ten epochs of 10 million words. RUN/pairs.tsv gets
# the accuracy of each model on each file. A finished or interrupted run is continued or evaluated again.
set -eu
[ $# -ge 3 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
texts=$1 pairs=$2 run=$3
shift 3
here=$(dirname "$0")/../..
ls "$pairs"/*.jsonl >/dev/null || exit 3

words=$(for n in 1 2 3 4 5 6 7 8 9 10 20 30 40 50 60 70 80 90 100; do printf ',%sM' $n; done)
if [ -e "$run/config.txt" ]; then "$here/train" --resume="$run" "$@"
else "$here/train" "$texts" --epochs 10 --keep-at "words:${words#,}" --out "$run" "$@"; fi

# evaluate MODEL NAME: a line for each file
evaluate() {
  for file in "$pairs"/*.jsonl; do
    right=$("$here/generate" "$1" --choose "$file" --json --quiet | sed -n '$s/.*"accuracy": *{"sum": *\([0-9.]*\).*/\1/p')
    printf '%s\t%s\t%s\n' "$2" "$(basename "$file" .jsonl)" "$right"
  done
}
{
  printf 'model\tpairs\taccuracy\n'
  for model in "$run"/series/step-*; do
    [ ! -d "$model" ] || evaluate "$model" "$(basename "$model")"
  done
  evaluate "$run" kept
} >"$run/pairs.tsv.new"
mv "$run/pairs.tsv.new" "$run/pairs.tsv"
awk -F '\t' 'NR > 1 { sum[$1] += $3; n[$1]++; if (!($1 in at)) { at[$1] = ++count; name[count] = $1 } }
  END { for (i = 1; i <= count; i++) printf "%-16s %.4f\n", name[i], sum[name[i]] / n[name[i]] }' "$run/pairs.tsv"
