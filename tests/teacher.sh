#!/bin/sh
# Tests the teacher that a run with --minutes trains first. See tests/program_helpers.sh.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh
tiny="--ctx 16 --batch 32 --threads 1 --sample-tokens 0 $varied" # of the model that the minutes choose
awk 'BEGIN { srand(5); for (i = 0; i < 150; i++) { for (k = 0; k < 5; k++) printf "%c%c ", 97 + int(9 * rand()), 97 + int(9 * rand()); print "" } }' >text.txt

field() { sed -n "s/.*\"$1\": *\([-0-9.e]*\).*/\1/p" | head -n 1; }
setting() { sed -n "s/^$2 = //p" "$1/config.txt"; }
steps_of() { sed -n 's/^{"step":\([0-9]*\),.*"loss".*/\1/p' "$1/metrics.jsonl"; }

$train text.txt $tiny --minutes 0.5 --seed 5 --out a.run 2>err
check "a teacher comes first" grep -q '^first, a teacher in a.run/teacher: .*, in at most 0:10$' err
check "config.txt names it" test "$(setting a.run teacher) $(setting a.run/teacher teacher)" = "$work/a.run/teacher "
check "it has another seed" test "$(setting a.run seed) $(setting a.run/teacher seed)" = "5 6"
check "and the same size and length" test "$(setting a.run layers) $(setting a.run steps)" = "$(setting a.run/teacher layers) $(setting a.run/teacher steps)"
check "both have ended" test "$(grep -c '"end": "done"' a.run/result.json a.run/teacher/result.json | grep -c ':1$')" -eq 2
check "only the last one names the next command" test "$(grep -c 'More text: ' err)" -eq 1
check "the run can be repeated" $train --verify a.run --quiet
check "and its teacher" $train --verify a.run/teacher --quiet
check "the plan names it" sh -c "$train text.txt $tiny --minutes 0.5 --out b.run --dry-run 2>&1 | grep -q '^teacher *b.run/teacher: .* parameters, trained first'"
check "and writes nothing" test ! -e b.run

# ---- without ----
for options in "--minutes 0.2 --teacher none" "--minutes 0.2 --layers 1" "--minutes 0.2 --optimizer adamw" "--steps 5" "--minutes 0.002"; do
  $train text.txt $tiny $options --out none.run --overwrite 2>/dev/null
  check "no teacher with $options" test -e none.run/result.json -a ! -e none.run/teacher
done
$train text.txt $tiny --minutes 0.1 --teacher a.run --out given.run 2>/dev/null
check "a given teacher and --minutes" test "$(setting given.run teacher)" = "$work/a.run" -a ! -e given.run/teacher

# ---- stopped while the teacher is trained ----
long="$tiny --batch 90 --minutes 1 --save-every 20"
$train text.txt $long --out c.run 2>err &
pid=$!
while [ ! -e c.run/teacher/last/state.safetensors ] && kill -0 $pid 2>/dev/null; do sleep 0.1; done
kill -INT $pid
wait $pid
check "Ctrl-C in the teacher's training" test $? -eq 130
check "says how to go on" grep -q "the same command continues the teacher's training$" err
begun=$(setting c.run/teacher steps)
inode=$(ls -i c.run/teacher/tokens.bin)
$train text.txt $long --out c.run 2>err
check "the same command goes on" test $? -eq 0
check "with the same run of the teacher" test "$(setting c.run/teacher steps) $(ls -i c.run/teacher/tokens.bin)" = "$begun $inode"
check "without a step made twice" test "$(steps_of c.run/teacher)" = "$(steps_of c.run/teacher | sort -nu)"
check "both have ended then" test -e c.run/result.json -a -e c.run/teacher/result.json
rm -r c.run/teacher/last c.run/teacher/prev
mv c.run/teacher c.run/kept && rm -r c.run/last c.run/prev c.run/config.txt c.run/model.safetensors c.run/config.json && mv c.run/kept c.run/teacher
inode=$(ls -i c.run/teacher/model.safetensors)
$train text.txt $long --out c.run 2>err
check "a finished teacher is not trained again" test "$(ls -i c.run/teacher/model.safetensors)" = "$inode" -a -e c.run/last
$train text.txt $long --out c.run --overwrite --val-frac 0.2 2>err
check "for other options a new one is" test "$(ls -i c.run/teacher/model.safetensors)" != "$inode" -a "$(setting c.run/teacher val-frac)" = 0.2

# ---- a run that was moved ----
$train text.txt $tiny --minutes 0.5 --stop-at 50 --out d.run 2>/dev/null
mv d.run e.run
$train --resume=e.run 2>err
check "a moved run finds its teacher" test -e e.run/result.json
check "which is the same" sh -c '! grep -q "teacher has changed" err'
check "and names the new place" test "$(setting e.run teacher)" = "$work/e.run/teacher"

# ---- a teacher that is better than its student ----
sed 's/"loss": [0-9.]*/"loss": 0.001/' a.run/teacher/result.json >better.json
mkdir -p f.run && cp -r a.run/teacher f.run && cp a.run/teacher.txt f.run && cp better.json f.run/teacher/result.json
sed 's|a\.run|f.run|' a.run/teacher.txt >f.run/teacher.txt
$train text.txt $tiny --minutes 0.5 --seed 5 --out f.run 2>err
check "a better teacher is named" grep -q '^warning: the teacher is better: its validation loss is 0.0010, that of this model .*; use f.run/teacher$' err
echo done
