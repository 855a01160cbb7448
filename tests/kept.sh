#!/bin/sh
# Tests that a run keeps the model with the lowest loss on the whole validation text, and that this loss is the same in
# messages, result.json, metrics.jsonl, tables and --score. See tests/program_helpers.sh.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

few="--batch 4 --threads 1 $varied --sample-tokens 20 --dtype f32"
generate="$generate --dtype f32" # also on a GPU
many=$([ "$hurried" ] && echo 500 || echo 4000)
tiny="--layers 1 --heads 1 --dim 16 --ctx 16 $few"
awk 'BEGIN { for (i = 1; i <= 3000; i++) print "line " i " of a text, and " (i * 7919) % 1000 }' >text.txt

# field KEY: of the object on standard input
field() { sed -n "s/.*\"$1\": *\([-0-9.e]*\).*/\1/p" | head -n 1; }
kept() { sed -n '/"kept": {/,/}/p' "$1/result.json" | field "$2"; } # kept RUN FIELD
line() { grep '"kept":true' "$1/metrics.jsonl" | tail -n 1 | field "$2"; }

# one_number NAME RUN ERR VALIDATION [FLAGS]: what was printed, what is written, and what --score measures. FLAGS: of --score
one_number() {
  what=$1 run=$2 err=$3 text=$4
  shift 4
  printed=$(sed -n 's/.*validation loss \([0-9.]*\) nats per token, [0-9.]* bits per byte, over all .*/\1/p' "$err" 2>/dev/null | tail -n 1)
  $generate "$run" --score "$text" --quiet "$@" >score.json
  loss=$(kept "$run" loss)
  [ "$err" = none ] || check "$what: printed" near "$printed" "$loss" 0.00005
  check "$what: metrics.jsonl" near "$(line "$run" val_loss)" "$loss" 1e-8
  check "$what: --score" near "$(field val_loss <score.json)" "$loss" 1e-5
  check "$what: bits per byte" near "$(field val_bits_per_byte <score.json)" "$(kept "$run" bits_per_byte)" 1e-5
  check "$what: --runs" near "$($train --runs "$run" -O json | field val_loss)" "$loss" 1e-5
}

# leaves_best NAME RUN: whether a run that has not finished leaves its best model, also where evaluations follow each other quickly
leaves_best() {
  $generate "$2" --score tail.txt --stride 16 --quiet >score.json
  check "$1 leaves its best model so far" near "$(field val_loss <score.json)" \
    "$(grep '"best":true' "$2/metrics.jsonl" | tail -n 1 | field val_loss)" 1e-5
}

# ---- streams ----
held_out text.txt >tail.txt
for seed in 1 2 3; do
  $train text.txt $tiny --steps 60 --schedule constant --lr 3e-2 --seed $seed --out s$seed.run 2>err
  one_number "the tail, seed $seed" s$seed.run err tail.txt --stride 16
done
one_number "plain --score has it, too" s3.run err tail.txt
check "which scores overlapping windows" test "$(field stride <score.json)" -eq 8
head -n 2500 text.txt >train.txt
tail -n 500 text.txt >val.txt
$train train.txt --val val.txt $tiny --steps 60 --out val.run 2>err
one_number "--val" val.run err val.txt

# ./generate computes in f32, so it sees a loss that was measured in bf16 with other roundings.
INKLING_ISA='' $train text.txt $tiny --dtype bf16 --device cpu --steps 60 --out bf16.run 2>err
$generate bf16.run --score tail.txt --stride 16 --quiet >score.json
check "bf16 but for its rounding" near "$(field val_loss <score.json)" "$(kept bf16.run loss)" 0.002

# ---- a run that is resumed with bad rates, and with another text for training ----
cp -r s3.run worse.run
sed '1s/^line/LINE/' text.txt >changed.txt
mv text.txt right.txt && mv changed.txt text.txt
best=$(kept worse.run loss)
$train --resume=worse.run --steps 80 --lr 9 2>err
mv right.txt text.txt
check "the text for training has changed, the one for validation has not" sh -c \
  "grep -q 'the text has changed\|training tokens, previously' err && ! grep -q 'validation text has changed' err"
check "so the best model is kept" near "$(kept worse.run loss)" "$best" 1e-9
check "and it is not called a guess" sh -c "grep -q '^trained 80 steps' err && ! grep -q 'no better than guessing' err"

# ---- a run whose loss is not finite ----
$train text.txt $tiny --dtype f32 --optimizer muon --muon-lr 4 --wd 10 --schedule constant --warmup 400 --steps 400 --eval-every 1 --eval-tokens 1000000000 \
  --out burst.run 2>err
check "a run that diverges" test $? -eq 6 -a "$(grep -c '"best":true' burst.run/metrics.jsonl)" -gt 2
leaves_best "it" burst.run

# ---- packed documents, pairs without and with an encoder ----
for i in 1 2 3 4 5 6 7 8 9; do printf 'Document %d.\n%s\n<|endoftext|>\n' $i "$(head -n $((i * 7)) text.txt)"; done >docs.txt
for i in 1 2 3; do printf 'A text %d.\n%s\n<|endoftext|>\n' $i "$(head -n $((i * 11)) text.txt)"; done >docs_val.txt
$train docs.txt --val docs_val.txt --pack docs $tiny --steps 60 --out packed.run 2>err
one_number "packed documents" packed.run err docs_val.txt
"$build/pairs" --task copy --lines 2000 --max-length 5 --mark = --test-lines 500 -o pairs.tsv --test pairs_val.tsv 2>/dev/null
$train pairs.tsv --val pairs_val.tsv $tiny --steps 60 --out decoder.run 2>err
one_number "pairs of a decoder alone" decoder.run err pairs_val.tsv
$train pairs.tsv --val pairs_val.tsv --arch original $tiny --dim 32 --heads 4 --steps 300 --lr 5e-3 --schedule constant --out encoder.run 2>err
one_number "pairs of an encoder" encoder.run err pairs_val.tsv --exact
check "exact answers: of all pairs" test "$(field pairs <score.json)" -eq 500
check "exact answers: --score" near "$(field exact <score.json)" "$(kept encoder.run exact)" 1e-6
check "exact answers: printed" near "$(sed -n 's/^\([0-9.]*\) % of 500 answers are exactly right$/\1/p' err)" \
  "$(kept encoder.run exact | awk '{ print 100 * $1 }')" 0.05

# ---- the mean of the weights at evaluations: in the second half, and kept where it is better ----
averaged="--steps 60 --eval-every 6 --schedule constant --lr 3e-2 --seed 4"
$train text.txt $tiny $averaged --keep-at steps:6,12,18,24,30,36,42,48,54,60 --out mean.run 2>err
one_number "a mean" mean.run err tail.txt --stride 16
check "it is said to be one" grep -q '"mean":true,"kept":true' mean.run/metrics.jsonl
check "not before half of the steps" sh -c "! grep '\"mean\"' mean.run/metrics.jsonl | grep -q '\"step\":\(6\|12\|18\|24\),'"
# The weight of the newest of k evaluations is 5 / (k + 4).
check "evaluation k has the share 5 / (k + 4)" python3 - mean.run <<'PY'
import array, json, os, struct, sys
run = sys.argv[1]
def weights(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = json.loads(data[8:8 + size])
    tensors.pop("__metadata__", None)
    return {n: array.array("f", data[8 + size:][slice(*t["data_offsets"])]) for n, t in tensors.items()}
step = max(json.loads(l)["step"] for l in open(f"{run}/metrics.jsonl") if '"kept":true' in l)
mean, kept, k = {}, weights(f"{run}/model.safetensors"), 0
for name in sorted(os.listdir(f"{run}/series")):
    if not name.startswith("step") or int(name.split("-")[1]) > step:
        continue
    k += 1
    for n, new in weights(f"{run}/series/{name}/model.safetensors").items():
        old = mean.setdefault(n, new)
        mean[n] = [a + 5 / (k + 4) * (b - a) for a, b in zip(old, new)]
largest = max(abs(a - b) for n in kept for a, b in zip(kept[n], mean[n]))
other = max(abs(a - b) for n in kept for a, b in zip(kept[n], new))
sys.exit(not (k > 4 and largest < 1e-5 < other))
PY
$train text.txt $tiny $averaged --eval-tokens 1000000000 --out mean-whole.run 2>err
$train text.txt $tiny $averaged --eval-tokens 1000000000 --stop-at 41 --out mean-parts.run 2>err
leaves_best "a run that is stopped" mean-parts.run
$train --resume=mean-parts.run 2>err
check "a resumed run has the same mean" cmp mean-whole.run/model.safetensors mean-parts.run/model.safetensors
$train text.txt $tiny $averaged --no-mean --out no-mean.run 2>err
check "--no-mean" sh -c "! grep -q '\"mean\"' no-mean.run/metrics.jsonl"
check "which is worse here" awk -v newest="$(kept no-mean.run loss)" -v mean="$(kept mean.run loss)" 'BEGIN { exit !(newest > mean) }'

# ---- a long validation text whose beginning differs from the rest ----
# The base has learned letters; the run learns digits, and is evaluated on letters first. So the base is the best on the
# beginning, before the first step.
awk 'BEGIN { for (i = 1; i <= 6000; i++) print "abc def ghi jkl mno" }' >letters.txt
awk 'BEGIN { for (i = 1; i <= 6000; i++) print "012 345 678 901 234" }' >digits.txt
head -n 1500 letters.txt >letters_first.txt
head -n 3000 digits.txt >>letters_first.txt
$train letters.txt $tiny --steps 100 --quiet --out base.run
$train digits.txt --init base.run --val letters_first.txt $few --steps 40 --lr 1e-2 \
  --optimizer adamw --out newest.run 2>err
one_number "a long text, the newest is kept" newest.run err letters_first.txt --stride 16
check "though another was better on the beginning" sh -c "grep '\"best\":true' newest.run/metrics.jsonl | tail -n 1 | grep -q '\"step\":0,.*\"beginning\"'"
check "it is that of the last step" test "$(kept newest.run step)" -eq 40
check "nothing is said of another" sh -c "! grep -q 'the model of step .* is kept' err"
check "the sample is its own" test "$(grep "^===" newest.run/samples.txt | tail -n 1)" = "=== step 40"
# Letters only: now the base is better on the whole text, too.
$train digits.txt --init base.run --val letters.txt $few --steps 40 --lr 1e-2 \
  --optimizer adamw --out first.run 2>err
one_number "a long text, the first is kept" first.run err letters.txt --stride 16
check "it is that of the first step" test "$(kept first.run step)" -eq 0
check "its weights are the base's" cmp first.run/model.safetensors base.run/model.safetensors
check "which is said" grep -q 'model of step 0 is kept; the .* the last step, 40, has a loss of' err
check "the sample is its own" test "$(grep "^===" first.run/samples.txt | tail -n 1)" = "=== step 0"
check "a longer run goes on from the newest" sh -c "$train --resume=first.run --steps 60 --quiet 2>/dev/null; test $? -eq 0"
$train digits.txt --init base.run --val letters.txt $few --steps 40 --lr 1e-2 \
  --optimizer adamw --eval-every 2 --quiet --out whole.run 2>/dev/null
check "evaluations do not change what is trained" tensors_equal whole.run newest.run 20000
# A text of end tokens only has no bits per byte.
printf 'a' >one.txt
$train train.txt --val one.txt $tiny --steps 4 --out one.run 2>err
check "one byte has a loss" grep -q '^validation loss [0-9.]* nats per token, over all 1 token$' err
# The file of the best model is damaged: a message says what to do, and the run ends with the newest model.
$train digits.txt --init base.run --val letters.txt $few --steps $many --lr 1e-2 \
  --optimizer adamw --eval-every $many --quiet --out spoiled.run --overwrite 2>err &
pid=$!
while ! grep -q '"loss"' spoiled.run/metrics.jsonl 2>/dev/null; do sleep 0.05; done
echo nothing >spoiled.run/model.safetensors
wait $pid
check "a damaged best file is an error" test $? -eq 4
check "which says what to do" grep -q 'remove that file and type: .*train --resume=spoiled.run$' err
rm spoiled.run/model.safetensors
$train --resume=spoiled.run --quiet 2>err
check "that is right" test $? -eq 0 -a "$(kept spoiled.run step)" -eq "$many"
# The file is removed during the run.
$train digits.txt --init base.run --val letters.txt $few --steps $many --lr 1e-2 \
  --optimizer adamw --eval-every $many --quiet --out gone.run 2>err &
pid=$!
while ! grep -q '"loss"' gone.run/metrics.jsonl 2>/dev/null; do sleep 0.05; done
rm gone.run/model.safetensors
wait $pid
check "without the best file the newest is kept" test $? -eq 0 -a "$(kept gone.run step)" -eq "$many"
check "which is said" grep -q 'the newest model is kept' err
one_number "then, too" gone.run none letters.txt --stride 16
echo 'done'
