#!/bin/sh
# The chat demo: writes 4,000 conversations with an animal of the stories' world, trains for at most MINUTES (default 1.5), and
# counts by their grammar how many answers to 500 questions are right. The questions have names and favorite things that no
# conversation of the training text has together. SEED: random seed.
# Arguments: the program that writes the conversations, and options of ./train.
set -eu

talks=$1
shift
dir=demo
mkdir -p "$dir"

echo "== conversations from a grammar =="
"$talks" --lines 4000 --seed 1 -o "$dir/talks.jsonl" --test "$dir/talks.test.jsonl" --report "$dir/talks.json"
head -n 1 "$dir/talks.jsonl" | tr '{' '\n' | sed -n 's/"role": "\([a-z]*\)", "content": "\(.*\)"}.*/\1: \2/p' | head -n 6

echo "== training =="
./train "$dir/talks.jsonl" --out "$dir/talks.run" --overwrite --minutes "${MINUTES:-1.5}" --seed "${SEED:-1337}" \
  --prompt "Hi! I am Ida." "$@"

echo "== questions that it has never seen =="
sed 's/, "answer": "[^"]*"}$/}/' "$dir/talks.test.jsonl" >"$dir/questions.jsonl"
./generate "$dir/talks.run" --prompts "$dir/questions.jsonl" --greedy --quiet >"$dir/answers.jsonl"
"$talks" --check "$dir/answers.jsonl" | sed 's/[^0-9]*\([0-9]*\)[^0-9]*\([0-9]*\).*/\1 \2/' |
  awk '{ printf "%.1f %% of %d answers are right and end by themselves\n", 100 * $2 / $1, $1 }'

echo "== a talk =="
printf '%s\n' "Hello! My name is Ida." "My favorite color is green." "Say, what do you eat?" "Do you remember my name?" "Bye!" >"$dir/said"
./generate "$dir/talks.run" -i --greedy --quiet <"$dir/said" >"$dir/talk"
paste -d '\n' "$dir/said" "$dir/talk" | awk 'NR % 2 { printf "> " } { print }'
echo "Talk to it: ./generate $dir/talks.run -i"
