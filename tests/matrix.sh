#!/bin/sh
# Runs the tests that train models under every combination of instruction set, dtype and number of threads that this
# processor has, each with a seed of its own. No check may depend on the last digits of a loss, which differ among them.
#
#   matrix.sh BUILD           all combinations; the names of tests in ONLY instead of all that train
#   matrix.sh BUILD --row N   runs nothing; prints the settings of row N (modulo their number), for the shell
#
# BIN: directory of ./train and ./generate (default: .).
set -u
build=$1
tests=${ONLY:-programs.sh pairs.sh kept init export vocabularies page generate texts choose.sh dump.sh reports.sh shares.sh sweep.sh}
train=${BIN:-.}/train

# One line for each combination: ISA DTYPE THREADS SEED; first "default", what the programs choose.
rows() {
  echo default
  seed=101 # no test names such seeds itself
  for isa in $("$train" --version | grep -o 'cpu-[a-z0-9]*' | cut -c 5-); do
    for dtype in f32 bf16; do
      for threads in 1 2; do
        "$train" tests/matrix.sh --isa "$isa" --dtype $dtype --device cpu --dry-run --quiet 2>/dev/null || continue
        echo "$isa $dtype $threads $seed"
        seed=$((seed + 1))
      done
    done
  done
}
settings() { # settings ISA DTYPE THREADS SEED, or settings default
  if [ "$1" = default ]; then echo "INKLING_ISA= TRAIN_FLAGS="
  else echo "INKLING_ISA=$1 TRAIN_FLAGS='--dtype $2 --threads $3 --seed $4'"; fi
}

if [ "${2:-}" = --row ]; then
  all=$(rows)
  n=$(echo "$all" | wc -l)
  # shellcheck disable=SC2046 # words
  settings $(echo "$all" | sed -n "$(($3 % n + 1))p")
  exit
fi

bad=0
log=$build/tests/matrix.log
while read -r row; do
  # shellcheck disable=SC2086 # words
  values=$(settings $row)
  echo "$values:"
  (eval "export $values" && ONLY=$tests EMULATED='' tests/run.sh "$build" >"$log" 2>&1 </dev/null) ||
    { bad=$((bad + 1)); sed '$d' "$log"; }
  tail -n 1 "$log"
done <<END
$(rows)
END
[ $bad -eq 0 ]
