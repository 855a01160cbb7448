#!/bin/sh
# Runs each file parser on its fuzzing corpus, including past findings. Argument: the build directory.
set -u
for source in tests/fuzz/fuzz_*.c; do
  name=$(basename "$source" .c)
  corpus=tests/fuzz/corpus/${name#fuzz_}
  if [ -n "$(ls "$corpus")" ] && "$1/tests/fuzz/$name" "$corpus"; then echo "ok $name"; else echo "not ok $name"; fi
done
echo "done"
