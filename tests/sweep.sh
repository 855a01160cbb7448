#!/bin/sh
# Tests ./train --sweep, --stop-at, --keep-at and --verify. See tests/program_helpers.sh.
# shellcheck disable=SC2086 # lists are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh
"$build/stories" --bytes 60000 --seed 3 -o text.txt 2>/dev/null
small="--layers 1 --heads 2 --dim 16 --ctx 16 --batch 8 --device cpu --sample-tokens 0 $varied"
sweep() { "$train" text.txt $small --steps 60 --jobs 2 "$@" >out 2>err; }
running() { "$train" --runs "$1" -O csv --columns state 2>/dev/null | grep -c running; } # in this directory
step_of() { sed -n 's/^  "step": \([0-9]*\),/\1/p' "$1/result.json"; }

# ---- --stop-at ----
"$train" text.txt $small --steps 60 --quiet --out whole.run 2>/dev/null
"$train" text.txt $small --steps 60 --out parts.run --stop-at 15 2>err
check "--stop-at" test $? -eq 0 -a "$(step_of parts.run)" = 15
check "says how to continue" grep -q 'stopped after step 15 of 60, saved. Resume with: .*--resume=parts.run' err
refused "a step that is past" 2 'at step 15, past --stop-at 7' "$train" --resume=parts.run --stop-at 7
"$train" --resume=parts.run --stop-at 30 --quiet 2>/dev/null && "$train" --resume=parts.run --quiet 2>/dev/null
check "is the same run" cmp whole.run/model.safetensors parts.run/model.safetensors

# ---- a grid ----
grid='muon-lr=1e-4,1e-3,1e-2,5e-2 seed=1,2'
sweep --sweep "$grid" --out grid
check "a sweep" test $? -eq 0
check "all runs are there" test "$(ls -d grid/*.run | wc -l)" = 8
check "without other files" test "$(ls grid | grep -v '\.run$' | tr '\n' ' ')" = "report.html sweep.json "
check "a report with a picture of the option, and all settings" test "$(grep -c '<svg' grid/report.html) $(grep -c '<tr><th>grid/[1-8]-' grid/report.html)" = "1 4"
check "the best, which is on the edge" grep -q 'the best muon-lr, 5e-2, is the largest that was tried: try larger ones, too' grid/report.html
check "which is well-formed" xmllint --noout grid/report.html
states() { for run in "$1"/*.run; do step_of "$run"; done | sort -n | uniq -c | tr -s ' \n' ' '; }
check "half of the runs stop after a quarter, at an evaluation" test "$(states grid)" = " 4 14 4 60 "
check "the table has a row for each setting" test "$(grep -c '^| grid/.* ± .* | 2 | ' out)" = 4
check "every loss has its unit" test "$(grep -c '^[0-9]*/[0-9]* .*: [0-9.]* bits per byte$' err) $(grep -c 'validation losses' err)" = "16 0"
check "what is compared is said" grep -q '^for each value, the loss of its best setting after a quarter of the steps, in bits per byte, mean over seeds:$' err
check "a sweep with --by-seed" sh -c '"$0" --resume=grid --by-seed >apart 2>/dev/null && test "$(grep -c "^| grid/" apart)" = 8 -a "$(grep -c "<tr><th>grid/" grid/report.html)" = 8' "$train"
"$train" --runs grid -O json >together.json
"$train" --runs grid -O json --by-seed >apart.json
"$train" --report grid --out together.html
"$train" --report grid --by-seed --out apart.html
check "the report has rows of settings, or of runs" test "$(grep -c '<tr><th>grid/' together.html) $(grep -c '<tr><th>grid/' apart.html)" = "4 8"
has python3 "means and deviations" && python3 - <<'END'
import json, math, re, statistics
together, apart = json.load(open("together.json")), json.load(open("apart.json"))
of = {}
for run in apart: of.setdefault(run["muon-lr"], []).append(run)
near = lambda a, b: math.isclose(a, b, rel_tol=1e-6)
right = len(together) == 4 and all(
    row["seeds"] == 2 and near(row[name], statistics.mean(run[name] for run in of[row["muon-lr"]])) and
    near(row[name + "_sd"], statistics.stdev(run[name] for run in of[row["muon-lr"]]))
    for row in together for name in ("bits_per_byte", "val_loss"))
print("ok means and deviations" if right else f"not ok means and deviations: {together}")
best = min(together[:2], key=lambda row: row["bits_per_byte"])
said = re.search(r"best setting: muon-lr=(\S+): ([0-9.]+) bits per byte \(mean of 2 seeds, standard deviation ([0-9.]+)\)", open("err").read())
right = said and float(said[1]) == best["muon-lr"] and said[2] == f'{best["bits_per_byte"]:.4f}' and said[3] == f'{best["bits_per_byte_sd"]:.4f}'
print("ok the best setting" if right else f"not ok the best setting: {said}, {best}")
END
check "with the best first" sh -c 'sed -n 3p out | grep -q "grid/[5-8]-"'
check "values are compared" grep -q 'muon-lr .*1e-4: [0-9.]* .*5e-2: [0-9.]*' err
check "a value on the edge" grep -q '^note: the best muon-lr, 5e-2, is the largest that was tried' err
"$train" text.txt $small --steps 60 --quiet --muon-lr 5e-2 --seed 2 --threads 1 --out alone.run 2>/dev/null
check "a run is as alone" cmp alone.run/model.safetensors grid/8-*.run/model.safetensors
check "a stopped run can be resumed" "$train" --resume="$(echo grid/1-*.run)" --quiet
check "and reaches its end" test "$(step_of grid/1-*.run)" = 60
"$train" --runs grid -O csv >table.csv
check "csv: a run that went on alone is a row of its own" test "$(cut -d , -f 1 table.csv | grep -c run)" = 6
refused "a sweep is not replaced" 2 'grid already holds a sweep' "$train" text.txt $small --sweep "$grid" --out grid
refused "nor a directory" 2 'no empty directory' "$train" text.txt $small --sweep "$grid" --out alone.run/last
refused "a lost sweep.json" 4 'damaged' sh -c 'mkdir lost && echo {} >lost/sweep.json && "$0" --resume=lost; s=$?; rm -r lost; exit $s' "$train"

# ---- interrupted ----
"$train" text.txt $small --steps 600 --jobs 2 --sweep "$grid" --out again >out 2>err &
process=$!
while [ ! -e again/3-muon-lr=1e-3-seed=1.run/last ] && kill -0 $process; do sleep 0.05; done
kill -INT $process
wait $process
check "Ctrl-C" test $? -eq 130
check "says how to continue the sweep" grep -q 'continue with: .*--resume=again' err
check "nothing goes on" test "$(running again)" = 0
(mkdir -p away && cd away && "$train" --resume=../again >../out 2>../err)
check "goes on" test $? -eq 0
"$train" text.txt $small --steps 600 --jobs 1 --sweep "$grid" --out once >/dev/null 2>&1
for run in again/*.run; do
  check "as if it had not stopped: ${run#*/}" cmp "$run/model.safetensors" "once/${run#*/}/model.safetensors"
done

# The runs of a sweep keep their threads.
sed -i.old 's/"threads": [0-9]*/"threads": 2/' again/sweep.json
rm -r again/3-*.run
"$train" --resume=again --quiet >/dev/null 2>&1
check "begun with that number of threads" grep -q '^threads = 2$' "$(echo again/3-*.run)/config.txt"
rm -r again/3-*.run
"$train" --resume=again --threads 1 --quiet >/dev/null 2>&1
check "unless another one is given" grep -q '^threads = 1$' "$(echo again/3-*.run)/config.txt"

"$train" text.txt $small --steps 60 --jobs 2 --sweep 'lr=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3 wd=0.1,0.2,0.3,0.4,0.5,0.6 dropout=0,0.1,0.2,0.3,0.4 beta2=0.9,0.95,0.98' --out planning >out 2>planning.err &
process=$!
while ! grep -qs '^sweep ' planning.err && kill -0 $process; do sleep 0.01; done
kill -INT $process
wait $process
check "Ctrl-C while planning" test $? -eq 130 -a ! -e planning

# ---- values with spaces, commas and quotes ----
mkdir -p "a dir" away
"$train" text.txt $small --steps 1 --tokenizer bpe --vocab-size 300 --quiet --out bpe.run 2>/dev/null
cp bpe.run/tokenizer.json "a dir/my, \"tok\".json"
cp bpe.run/tokenizer.json "a dir/b..c#d.json"
sweep --val text.txt --sweep 'tokenizer="a dir/my, ""tok"".json","a dir/b..c#d.json",bpe.run/tokenizer.json # three' --out "a sweep"
check "names of any letters" test $? -eq 0 -a "$(ls -d "a sweep"/*.run | wc -l)" = 3
rm -r "a sweep"/3-*.run
(cd away && "$train" --resume="../a sweep" >/dev/null 2>../err)
check "a path is that of the beginning, wherever the sweep goes on" test $? -eq 0 -a -e "$(echo "a sweep"/3-*.run)/model.safetensors"

# ---- runs that fail ----
sweep --steps 400 --dim 32 --ctx 32 --wd 1 --sweep 'muon-lr=1e-3,10' --out fails
check "runs that diverge do not end a sweep" test $? -eq 0
check "they are named" grep -q '2-muon-lr=10 failed: ' err
check "others are done" test "$(step_of fails/1-*.run)" = 400
"$train" text.txt $small --steps 3000 --jobs 2 --sweep 'seed=1,2' --out killed >out 2>err &
process=$!
while [ ! -e killed/1-seed=1.run/metrics.jsonl ] && kill -0 $process; do sleep 0.05; done
kill -KILL "$(cat killed/1-seed=1.run/.lock)"
wait $process
check "neither does one that is killed" test $? -eq 0
check "it is named" grep -q '1-seed=1 failed: ended by signal 9' err
check "the other is done" test "$(step_of killed/2-*.run)" = 3000

refused "none that ends" 6 'no run of the sweep has reached its end' sh -c "$train text.txt $small --dim 32 --ctx 32 --wd 1 --steps 400 --sweep 'muon-lr=9,10' --out bad --quiet >/dev/null; s=\$?; rm -r bad; exit \$s"
"$train" text.txt $small --steps 100000 --jobs 2 --sweep 'seed=1,2' --out "$work/orphans" >out 2>err &
process=$!
while [ ! -e orphans/2-seed=2.run/metrics.jsonl ] && kill -0 $process; do sleep 0.05; done
"$train" --resume=orphans >again.out 2>again.err # not refused(): its runs write files meanwhile
check "another process on the same sweep" test $? -eq 8 -a ! -s again.out
check "is refused" grep -q 'in use by' again.err
kill -KILL $process
wait $process 2>/dev/null
i=0
while [ "$(running orphans)" != 0 ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done
check "no run goes on without the sweep" test "$(running orphans)" = 0
check "and they are saved" test -e orphans/1-seed=1.run/result.json
refused "a directory in Latin-1" 2 'not UTF-8' "$train" text.txt $small --sweep 'lr=1e-3' --out "$(printf 'r\351sum\351')"
refused "a prompt in Latin-1" 2 'not UTF-8' "$train" text.txt $small --sweep 'lr=1e-3' --prompt "$(printf 'caf\351')" --out never
refused "a value in Latin-1" 2 'not UTF-8' "$train" text.txt $small --sweep "$(printf 'prompt=caf\351,x')" --out never
"$train" text.txt $small --steps 5 --sweep "prompt=$(printf 'x'; printf '\303\251%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64),y" --out long >/dev/null 2>&1
check "a long name is cut between characters" test $? -eq 0 -a "$(ls -d long/*.run | wc -l)" = 2
refused "--resume with other options" 2 'leave out --lr' "$train" --resume=long --lr 3
refused "--resume with a text" 2 'leave out the text' "$train" --resume=long text.txt
refused "different validation texts" 3 'validated on different texts' sh -c "$train text.txt $small --steps 20 --sweep 'tokenizer=byte,lines' --out texts --quiet >/dev/null; s=\$?; rm -r texts; exit \$s"
refused "--stop-at" 2 'stop-at does not go with --sweep' "$train" text.txt $small --stop-at 5 --sweep 'lr=1e-3' --out never

# ---- what to try ----
printf '# two lines\nlr=1e-3,1e-2 # learning rates\n\n--layers=1 wd=0.1..1\n' >lines
sweep --sweep lines --draws 3 --out lines.sweep
check "a file" test "$(ls -d lines.sweep/*.run | wc -l)" = 5
drawn() { ls -d "$1"/*wd=* | sed 's/.*wd=\(.*\).run/\1/' | tr '\n' ' '; }
check "draws are in the range" sh -c 'for x in $1; do awk "BEGIN { exit !($x >= 0.1 && $x <= 1) }" || exit 1; done' - "$(drawn lines.sweep)"
sweep --sweep lines --draws 3 --out same
check "and the same again" test "$(drawn lines.sweep)" = "$(drawn same)"
sweep --sweep lines --draws 3 --seed 5 --out other
check "with another seed, others" test "$(drawn lines.sweep)" != "$(drawn other)"
printf 'lr=1e-3\nbatch=7 foo=3\n' >wrong
unable() { # unable WORDS SPEC
  refused "$2" 2 "$1" "$train" text.txt $small --steps 20 --sweep "$2" --out never
}
unable 'wrong:2: unknown flag --foo' wrong
unable 'unknown flag --depth: that is --layers here' 'depth=1,2'
unable 'lr: got "x", need a number' 'lr=1e-3,x'
unable 'need a file or OPTION=VALUE' lr
unable 'must be smaller' 'lr=3..1'
unable 'only numbers can be drawn' 'act=silu..gelu'
unable 'cannot differ' 'out=a,b'
unable 'cannot differ' 'val-frac=0.1,0.2'
unable 'cannot differ' 'threads=1,2'
unable 'config cannot differ' 'config=a,b'
unable 'data cannot differ' 'data=a.txt,b.txt'
unable 'values with spaces or commas need double quotes' 'tokenizer=a dir/x.json'
for quoted in 'prompt="a b' 'prompt="a"b' 'prompt="a""' 'prompt="' 'prompt=a,"b'; do unable 'a quoted value must end with a quote' "$quoted"; done
refused "--by-seed of one run" 2 'by-seed needs --sweep' "$train" text.txt --by-seed
refused "steps and minutes" 2 'steps cannot differ .* with --minutes' "$train" text.txt $small --minutes 1 --sweep 'steps=10,20' --out never
sweep --sweep 'beta2=0.99..0.9999' --draws 8 --seed 1 --out fine
check "draws have the digits that they need" test $? -eq 0 -a "$(ls -d fine/*.run | wc -l)" = 8
unable 'is given twice' 'lr=1e-3 lr=1e-2'
unable 'more than 10000 runs' 'seed=1..5 lr=1e-3,2e-3,3e-3,4e-3 wd=0.1,0.2,0.3,0.4,0.5,0.6,0.7 batch=1,2,3,4,5,6,7,8,9,10 clip=1,2,3'
unable 'the run 2-heads=3: --heads 3 does not divide' 'heads=2,3'
refused "no validation text" 2 'no validation text' "$train" text.txt $small --val-frac 0 --sweep 'lr=1e-3' --out never
refused "standard input" 2 'give a file' "$train" - $small --sweep 'lr=1e-3' --out never
refused "--jobs alone" 2 'needs --sweep' "$train" text.txt --jobs 2

# ---- --keep-at ----
series="--steps 60 --sample-tokens 0 --quiet $varied"
"$train" text.txt $small $series --keep-at words:100,500,1k --out series.run 2>/dev/null
check "--keep-at" test $? -eq 0 -a "$(ls series.run/series | tr '\n' ' ')" = "manifest.json step-000000005 step-000000022 step-000000043 "
check "the manifest" python3 - <<'END'
import json
text = open("text.txt").read()[:54000].replace("<|endoftext|>\n", "\0")  # a token is a byte, or the end of a story
share = len(text.replace("\0", " ").split()) / len(text)
models = json.load(open("series.run/series/manifest.json"))
assert all(abs(m["words"] / m["tokens"] / share - 1) < 0.01 for m in models) and [m["step"] for m in models] == [5, 22, 43], models
evaluations = {line["step"]: line.get("val_loss") for line in map(json.loads, open("series.run/metrics.jsonl")) if "val_loss" in line}
assert all(abs(evaluations[m["step"]] - m["val_loss"]) < 1e-6 for m in models), models
END
"$train" text.txt $small $series --steps 26 --schedule constant --keep-at steps:26 --out short.run 2>/dev/null
check "the model of that step" cmp short.run/series/step-000000026/model.safetensors short.run/model.safetensors
check "generates" "$generate" short.run/series/step-000000026 -n 5 --quiet --device cpu >/dev/null
"$train" text.txt $small $series --keep-at words:100,500,1k --out parts.series --stop-at 22 2>/dev/null
"$train" --resume=parts.series --quiet 2>/dev/null
check "the same in parts" diff -r series.run/series parts.series/series
"$train" text.txt $small $series --overwrite --out parts.series 2>/dev/null
check "a new run removes them" test ! -e parts.series/series
"$train" text.txt $small --steps 9 --quiet --keep-at log --out log.run 2>err
check "of the powers of two, those that are reached" test ! -s err
"$train" text.txt $small --steps 9 --quiet --keep-at steps:4,9,10,20 --out late.run 2>err
check "models after the end of the run" grep -qx 'warning: 2 of the 4 models of --keep-at will not be kept: the run ends after 9 steps' err
check "log" test "$(ls log.run/series | sed -n 's/step-0*//p' | tr '\n' ' ')" = " 1 2 4 8 "
"$generate" series.run/series -n 5 --compare --device cpu --seed 3 >out 2>err
check "--compare takes a series" test $? -eq 0
check "in the order of steps" sh -c 'head -n 1 out | grep -q "step-000000005 .*step-000000022 .*step-000000043" &&
  sed -n 2p out | grep -q "^step 5, loss [0-9.]* *step 22, loss [0-9.]* *step 43, loss [0-9.]*$"'
"$generate" series.run/series/step-0* -n 5 --compare --device cpu --seed 3 2>err | sed 1,2d >each
check "with the same texts as its models" sh -c 'sed 1,2d out | cmp - each'
"$generate" series.run/series whole.run -n 5 --compare --device cpu >out 2>err
check "and other runs" test "$(grep -c '^=== ' out)" = 4 -a "$(grep -c '^=== whole.run: step ' out)" = 1
printf 'a good text\ta bad text\n' >choices.tsv
mkdir damaged
cp -r series.run/series/step-000000005 damaged/
while read -r words; do
  read -r manifest
  printf '%s' "$manifest" >damaged/manifest.json
  refused "the manifest $manifest" 4 "$words" "$generate" damaged --choose choices.tsv
  refused "compared: the manifest $manifest" 4 "$words" "$generate" damaged whole.run --compare
done <<'END'
is not valid JSON
[{"model":
lists no models
[]
lists no models
{"model": "step-000000005"}
model 1 needs the name of a directory
[7]
not ../whole.run
[{"model": "../whole.run", "step": 1, "tokens": 8, "words": null, "val_loss": null}]
not \.\.$
[{"model": "..", "step": 1, "tokens": 8, "words": null, "val_loss": null}]
model 2 needs the name of a directory .*, not /etc
[{"model": "step-000000005", "step": 1, "tokens": 8, "words": null, "val_loss": 1}, {"model": "/etc"}]
model 1, step-000000005, needs step
[{"model": "step-000000005", "step": -1, "tokens": 8, "words": null, "val_loss": null}]
model 1, step-000000005, needs step
[{"model": "step-000000005", "step": 1, "tokens": 8, "words": "many", "val_loss": null}]
no model in damaged/step-7
[{"model": "step-7", "step": 1, "tokens": 8, "words": null, "val_loss": null}]
END
refused "one model" 2 'two models or more' "$generate" short.run/series --compare
for list in steps step:1 steps:1,x log:3 steps: steps:1,,2; do
  refused "--keep-at $list" 2 '^train: --keep-at: got .*, need ' "$train" text.txt $small --keep-at "$list" --out never
done
refused "--keep-at steps:5,3" 2 '3 follows 5' "$train" text.txt $small --keep-at steps:5,3 --out never

# ---- --verify ----
"$train" --verify whole.run --quiet >out 2>err
check "--verify --quiet" test $? -eq 0 -a ! -s err -a "$(cat out)" = "whole.run is reproduced: $(wc -l <whole.run/metrics.jsonl) lines of metrics.jsonl, samples and weights are equal"
cp -r whole.run byte.run
printf '\001' | dd of=byte.run/model.safetensors bs=1 seek=20000 conv=notrunc 2>/dev/null
TMPDIR=$work "$train" --verify byte.run >out 2>err
check "a changed byte" test $? -eq 4
check "its place" grep -q 'not reproduced: model.safetensors differs in the tensor [a-z.0-9_]*, at byte' err
check "the repetition is kept" test -s "$(sed -n 's/^note: the repeated run is in //p' err)/model.safetensors"
cp whole.run/model.safetensors byte.run/
sed -i.old '5s/"loss": *[0-9.]*/"loss": 1.5/' byte.run/metrics.jsonl
"$train" --verify byte.run >out 2>err
check "a changed number" grep -q 'metrics.jsonl differs at step [0-9]*: loss is 1.5, and' err
check "which is not the learning rate" sh -c '! grep -q "learning rate" err'
sed -i.old '5s/"lr": *[-0-9.e]*/"lr":0.5/' byte.run/metrics.jsonl
"$train" --verify byte.run >out 2>err
check "another learning rate is said so" grep -q 'another learning rate is expected if --resume' err
"$train" - $small --steps 20 --quiet --out piped.run <text.txt 2>/dev/null
check "--verify of a run from standard input" sh -c '"$1" --verify piped.run 2>/dev/null | grep -q "is reproduced"' - "$train"
refused "a run that has not ended" 2 'has not ended' "$train" --verify "$(dirname "$(grep -L '"end": "done"' again/*.run/result.json | head -n 1)")"
refused "no run" 2 'is no run' "$train" --verify "$work"

# ---- a time for all ----
"$build/stories" --bytes 1000000 --seed 3 -o long.txt 2>/dev/null
"$train" long.txt $small --jobs 2 --minutes 0.3 --sweep 'muon-lr=1e-3,1e-2 layers=1,8' --out timed >out 2>err
check "--minutes" test $? -eq 0
planned() { sed -n "s/.*\"steps\": \([0-9]*\).*/\1/p" timed/sweep.json | sed -n "$1p"; }
check "equal models have equal steps" test "$(planned 1)" = "$(planned 3)" -a "$(planned 2)" = "$(planned 4)"
check "larger models have fewer" test "$(planned 2)" -lt "$(planned 1)" -a "$(planned 1)" -gt 1
# A longer validation text: all runs read the same part of it, however large their steps are.
"$train" long.txt $small --val long.txt --steps 40 --jobs 2 --sweep 'batch=2,8' --out parts >out 2>err
check "evaluations of all runs read the same" test "$(sed -n 's/^eval-tokens = //p' parts/*.run/config.txt | uniq -c | tr -s ' ')" = " 2 16384"
check "the best is the first of the table" test "$(sed -n 's/^best run: //p' err)" = "$(sed -n '3s/^| \([^ ]*\) .*/\1/p' out)"
echo "done"
