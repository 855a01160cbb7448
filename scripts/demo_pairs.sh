#!/bin/sh
# The encoder-decoder demo: a small version of the original 2017 Transformer learns to reverse strings in less than half
# a minute and is tested on unseen ones. STEPS, SEED: settings of the run. Argument: the program that writes the pairs.
set -eu

pairs=$1
dir=demo
mkdir -p "$dir"

echo "== strings and their reverse =="
"$pairs" --task reverse --alphabet 36 --max-length 10 -o "$dir/reverse.tsv" --test "$dir/reverse.test.tsv"
head -n 4 "$dir/reverse.tsv"
echo ...

echo "== training =="
./train "$dir/reverse.tsv" --out "$dir/reverse.run" --overwrite --arch original --layers 2 --heads 4 --dim 64 --ffn 128 --ctx 64 \
  --batch 12 --steps "${STEPS:-1500}" --optimizer adamw --lr 3e-3 --warmup 100 --min-lr-frac 0.05 --beta2 0.98 --wd 0.01 --dropout 0 \
  --seed "${SEED:-1337}"

echo "== strings that it has never seen =="
head -n 6 "$dir/reverse.test.tsv" | cut -f 1 >"$dir/questions"
./generate "$dir/reverse.run" --lines --greedy --quiet <"$dir/questions" >"$dir/answers"
head -n 6 "$dir/reverse.test.tsv" | cut -f 2 | paste "$dir/questions" "$dir/answers" - | awk -F '\t' '
  { printf "%-12s -> %-12s %s\n", $1, $2, $2 == $3 ? "right" : "wrong: " $3 }'
./generate "$dir/reverse.run" --score "$dir/reverse.test.tsv" --exact --quiet |
  sed 's/.*"pairs": \([0-9]*\), "exact": \([0-9.]*\).*/\1 \2/' |
  awk '{ printf "%.1f %% of %d answers are exactly right\n", 100 * $2, $1 }'
echo "More: ./generate $dir/reverse.run -p hello123 --greedy"
