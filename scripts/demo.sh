#!/bin/sh
# The demo: writes 2 MB of stories from a grammar whose entropy is known exactly, trains for at most MINUTES (default
# 1.5), and compares the model's loss with the entropy. SEED: random seed.
# Arguments: the program that writes the stories, and options of ./train.
set -eu

stories=$1
shift
dir=demo
mkdir -p "$dir"

echo "== 2 MB of stories from a grammar =="
"$stories" --bytes 2000000 --seed 1 --val-frac 0.05 -o "$dir/stories.txt" --report "$dir/entropy.json"
tail_bytes=$(sed -n 's/.*"val_bytes": *\([0-9]*\).*/\1/p' "$dir/entropy.json")
tail_entropy=$(sed -n 's/.*"val_bits_per_byte": *\([0-9.]*\).*/\1/p' "$dir/entropy.json")
total=$(wc -c <"$dir/stories.txt")
text=$(grep -v '^<|endoftext|>$' "$dir/stories.txt" | wc -c)
head -c "$((total - tail_bytes))" "$dir/stories.txt" >"$dir/train.txt"
tail -c "$tail_bytes" "$dir/stories.txt" >"$dir/tail.txt"
head -c 400 "$dir/train.txt"
echo ...

echo "== training =="
./train "$dir/train.txt" --val "$dir/tail.txt" --out "$dir/stories.run" --overwrite \
  --pack docs --minutes "${MINUTES:-1.5}" --seed "${SEED:-1337}" --prompt "Once" "$@"

echo "== what it learned =="
score=$(./generate "$dir/stories.run" --score "$dir/tail.txt" --quiet)
learned=$(echo "$score" | sed 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/')
xz=$(command -v xz >/dev/null 2>&1 && xz -9 -k -c "$dir/stories.txt" | wc -c || echo "")
awk -v model="$learned" -v limit="$tail_entropy" -v xz="$xz" -v text="$text" 'BEGIN {
  printf "the model        %.4f bits per byte on stories it has never seen\n", model
  printf "the lower bound  %.4f bits per byte: the entropy of the grammar\n", limit
  if (xz != "") printf "xz -9            %.4f bits per byte on the whole text\n", 8 * xz / text
  printf "the model is %.1f %% above the lower bound\n", 100 * (model / limit - 1)
}'

echo "== a story =="
./generate "$dir/stories.run" -n 600 --seed 7 --quiet
echo
echo "More: ./generate $dir/stories.run -p \"Once\" --temp 0.8"
