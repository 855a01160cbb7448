#!/bin/sh
# Tests of --choose: what ./generate prints, and what ./train measures; and of --per-line as a stream. See
# tests/program_helpers.sh; scripts/measure/compare_lm_eval.py compares the numbers with lm-eval.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

tiny="--layers 1 --heads 2 --dim 32 --ctx 32 --batch 8 --threads 1 --sample-tokens 0 --quiet $varied"
awk 'BEGIN { for (i = 1; i <= 1500; i++) print "the cat " (i % 3 ? "sees a dog" : "sleeps") ". the dogs " (i % 2 ? "see cats" : "sleep") "." }' >text.txt
for i in 1 2 3 4; do printf 'the cat sleeps.\tthe cat sleep.\nthe dogs sleep.\tthe dogs sleeps.\nthe dogs see cats.\tthe dogs sees cats.\n'; done >pairs.tsv
awk -F '\t' '{ printf "{\"context\": \"\", \"choices\": [\"%s\", \"%s\"], \"answer\": 1, \"delimiter\": \"\"}\n", $2, $1 }' pairs.tsv >pairs.jsonl

# ---- training ----
$train text.txt $tiny --tokenizer byte --steps "$(steps 200)" --eval-every "$(steps 40)" --eval-tokens 100000 --choose pairs.tsv --out a.run 2>err
check "training with --choose" test -s a.run/result.json
check_learned "its accuracy" python3 - <<'END'
import json
lines = [json.loads(line) for line in open("a.run/metrics.jsonl")]
evaluations = [m for m in lines if "best" in m]
assert len(evaluations) == 5 and all(m["chance"] == 0.5 and 0 <= m["accuracy"] <= 1 for m in evaluations)
kept = [m for m in lines if "kept" in m]
result = json.load(open("a.run/result.json"))
assert kept[0]["accuracy"] == result["kept"]["accuracy"] > 0.9 and result["last"]["accuracy"] > 0.9, result
END
check "it is in the table of runs" python3 - "$train" <<'END'
import json, subprocess, sys
table = lambda *options: subprocess.run([sys.argv[1], "--runs", *options], capture_output=True, text=True, check=True).stdout
kept = json.load(open("a.run/result.json"))["kept"]["accuracy"]
row, = json.loads(table("a.run", "-O", "json"))
assert abs(row["accuracy"] - kept) < 1e-9 and row["accuracy_beginning"] is None, row
assert ",accuracy," in table("a.run", "-O", "csv").splitlines()[0]
for options in ["-O", "md"], ["-O", "md", "--columns", "all"], ["--columns", "run,accuracy"]:
    head, *_, last = [line.strip("| ").replace("|", "").split() for line in table("a.run", *options).splitlines()]
    assert abs(float(last[head.index("accuracy")]) - kept) < 1e-4 and "accuracy_beginning" not in head, (head, last)
END
check "it is on the page" grep -q 'Right choices' a.run/report.html
check "with the level of guessing" sh -c 'sed -n "/id=.choices-title/,/<\/figure>/p" a.run/report.html | grep -q guessing'
$train text.txt $tiny --tokenizer byte --steps 2 --out plain.run 2>/dev/null
check "a page of other runs has no such chart" sh -c '! grep -q "Right choices" plain.run/report.html'
check "nor has the table of runs" sh -c "$train --runs plain.run -O md --columns all >table.md && ! grep -q accuracy table.md"
check "nor have its metrics" sh -c '! grep -q accuracy plain.run/metrics.jsonl plain.run/result.json'
mkdir both elsewhere
cp text.txt pairs.tsv both/
$train both --choose both/pairs.tsv --val text.txt $tiny --steps 1 --out both.run 2>err
check "choices that are training text" grep -q 'both/pairs.tsv is also training text: the accuracy of --choose says nothing' err
mv pairs.tsv elsewhere/
cp -r a.run resumed.run
check "a resumed run goes on without the file" sh -c "$train --resume=resumed.run --steps $(steps 240) 2>err && grep -q 'continues without --choose' err"
refused "a new run does not" 3 'pairs.tsv' $train text.txt $tiny --choose pairs.tsv --out b.run
mv elsewhere/pairs.tsv .
refused "--choose without validation" 2 'no validation text' $train text.txt $tiny --val-frac 0 --choose pairs.tsv --out b.run
refused "--choose with an encoder" 2 'without an encoder' $train pairs.tsv --arch original $tiny --choose pairs.tsv --out b.run

# ---- generate ----
$generate a.run --choose pairs.tsv --json --quiet >tsv.json
$generate a.run --choose pairs.jsonl --json --quiet >jsonl.json
$generate a.run --choose pairs.tsv --quiet >table.txt
for line in 'the cat sleeps.' 'the cat sleep.'; do echo "$line"; done | $generate a.run --score - --per-line --quiet >lines.json
check "choices in JSON" python3 - <<'END'
import json, math
tsv, jsonl, lines = ([json.loads(line) for line in open(name)] for name in ("tsv.json", "jsonl.json", "lines.json"))
assert len(tsv) == len(jsonl) == 13
for number, (a, b) in enumerate(zip(tsv[:-1], jsonl), 1):
    assert a["line"] == b["line"] == number and a["answer"] == 0 and b["answer"] == 1
    assert all(abs(x - y) < 1e-5 for x, y in zip(a["loglikelihoods"], b["loglikelihoods"][::-1])), (a, b)
    assert a["chosen"]["sum"] == 1 - b["chosen"]["sum"]
assert all(abs(x + line["nats"]) < 1e-4 for x, line in zip(tsv[0]["loglikelihoods"], lines)), (tsv[0], lines)
assert tsv[0]["tokens"] == [15, 14]
totals = tsv[-1]
assert totals["questions"] == 12 and totals["chance"] == 0.5 and totals["cut"] == 0 and totals["ties"]["sum"] == 0
p = totals["accuracy"]["sum"]
assert abs(p - sum(a["chosen"]["sum"] == 0 for a in tsv[:-1]) / 12) < 1e-6
assert abs(totals["standard_error"]["sum"] - math.sqrt(p * (1 - p) / 12)) < 1e-6
table = [line.split() for line in open("table.txt")]
assert len(table) == 6 and table[1][0] == "sum" and abs(float(table[1][1]) - 100 * p) < 0.01, table
END
# Texts that the context cuts to the same end are equal, also where they stand in other places of the batch.
awk 'BEGIN { for (i = 0; i < 40; i++) end = end "y"
  for (i = 0; i < 9; i++) { print before "a" end "\tb" end "\tc"; before = before "xx" }
  print "a\tb" }' >cut.tsv
$generate a.run --choose cut.tsv --json 2>err >cut.json
check "texts that are cut" grep -q '18 of 29 texts do not fit into the context of 32 tokens' err
check "equal ends are ties" python3 - <<'END'
import json
*items, totals = [json.loads(line) for line in open("cut.json")]
for item in items[:-1]:
    a, b, c = item["loglikelihoods"]
    assert a == b and (c > a or item["chosen"]["sum"] is None), item
    assert item["tokens"] == [32, 32, 1]
assert totals["cut"] == 18
END
printf 'same\tsame\n' >same.tsv
$generate a.run --choose same.tsv --json --quiet >same.json
check "a tie is not right" sh -c "grep -q '\"chosen\": {\"sum\": null' same.json && grep -q '\"accuracy\": {\"sum\": 0,' same.json && grep -q '\"ties\": {\"sum\": 1,' same.json"
printf 'x\n' >one.tsv
printf '{"choices": ["a", "b"], "gold": 2}\n' >gold.jsonl
: >empty.jsonl
refused "a line of one text" 3 'one.tsv, line 1, has one text' "$generate" a.run --choose one.tsv
refused "an answer that is not there" 3 'gold.jsonl, line 1: "gold" must be the index' "$generate" a.run --choose gold.jsonl
refused "an empty file" 3 'empty.jsonl has no choices' "$generate" a.run --choose empty.jsonl
refused "another format" 2 'ends in .tsv or .jsonl' "$generate" a.run --choose text.txt
refused "no file" 3 'none.tsv' "$generate" a.run --choose none.tsv
refused "choices to a full disk" 7 'cannot write' sh -c "exec $generate a.run --choose pairs.tsv >/dev/full"
refused "choices in JSON to a full disk" 7 'cannot write' sh -c "exec $generate a.run --choose pairs.tsv --json >/dev/full"
refused "choices and a score" 2 'use only one of --score and --choose' "$generate" a.run --choose pairs.tsv --score text.txt

# ---- the models that a run has kept ----
$train text.txt $tiny --tokenizer byte --steps 20 --keep-at words:200,400,900 --out kept.run 2>/dev/null
$generate kept.run/series --choose pairs.tsv --quiet >series.txt
check "a series" test $? -eq 0
$generate -m kept.run/series/ --choose pairs.tsv --quiet --json >series.json
for model in kept.run/series/step-*; do $generate $model --choose pairs.tsv --quiet --json | tail -n 1; done >each.json
check "its models, each as alone" python3 - <<'END'
import json
models = json.load(open("kept.run/series/manifest.json"))
series, each = ([json.loads(line) for line in open(name)] for name in ("series.json", "each.json"))
head, *lines, questions = [line.split() for line in open("series.txt")]
assert len(models) == len(series) == len(each) == len(lines) == 3 and questions[0] == "12", (series, lines)
assert head == ["steps", "tokens", "words", "right", "standard", "error"], head
for model, of_series, alone, line in zip(models, series, each, lines):
    assert of_series == {**{key: model[key] for key in ("model", "step", "tokens", "words")}, **alone}, (of_series, alone)
    assert [int(n) for n in line[:3]] == [model["step"], model["tokens"], round(model["words"])], line
    assert abs(float(line[3]) - 100 * alone["accuracy"]["sum"]) < 0.01, line
    assert abs(float(line[5]) - 100 * alone["standard_error"]["sum"]) < 0.01, line
END
$generate kept.run/series --choose cut.tsv 2>err >/dev/null
check "a note about the texts is printed once" test "$(grep -c 'do not fit' err)" = 1
refused "a series to a full disk" 7 'cannot write' sh -c "exec $generate kept.run/series --choose pairs.tsv >/dev/full"
refused "a series and a prompt" 4 'kept.run/series holds no model' "$generate" kept.run/series -p the

# ---- a stream of lines ----
# The first line is the likeliest.
above=$(awk '{ match($0, /"nats": [0-9.]+/); print substr($0, RSTART + 8, RLENGTH - 8) / 15 + 0.01; exit }' lines.json)
mkfifo lines
$generate a.run --score - --per-line --above "$above" --quiet <lines >out.jsonl &
pid=$!
exec 3>lines
# reached N: whether N lines are printed before five seconds have passed
reached() {
  i=0
  while [ "$(wc -l <out.jsonl)" -lt "$1" ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
  test "$(wc -l <out.jsonl)" -eq "$1"
}
printf 'the cat sleeps.\nXQ' >&3
sleep 0.5
check "a line in pieces is not scored" test ! -s out.jsonl
printf 'Z!7\n' >&3
check "a line is printed before the end of input" reached 1
printf 'a\377\303b\n\n\t"\\\n' >&3
check "bytes that are not UTF-8" reached 3
printf '%%%% the end' >&3
exec 3>&-
wait $pid
check "the end of a stream" test $? -eq 0
check "lines above a threshold" python3 - <<'END'
import json
lines = [json.loads(line) for line in open("out.jsonl", encoding="utf-8")]
assert [line["text"] for line in lines] == ["XQZ!7", "a\ufffd\ufffdb", '\t"\\', "%% the end"], lines
assert [line["line"] for line in lines] == [2, 3, 5, 6] and lines[1]["bytes"] == 4
assert all(abs(line["nats_per_token"] - line["nats"] / line["tokens"]) < 1e-5 for line in lines)
END
yes 'qX9 ' | head -c 300000 | tr -d '\n' | $generate a.run --score - --per-line --above 1 --quiet >long.jsonl
check "a long line" python3 -c 'import json; line = json.load(open("long.jsonl")); assert line["bytes"] == len(line["text"]) == line["tokens"] > 200000'
check "a closed pipe is no error" sh -c "(yes XQZ; true) | { $generate a.run --score - --per-line --above 1 --quiet; echo \$? >status; } | head -n 2 >/dev/null; grep -q '^0$' status"
mkfifo quiet
sleep 60 >quiet &
writer=$!
$generate a.run --score - --per-line --quiet <quiet >/dev/null 2>&1 &
pid=$!
sleep 1
kill -INT $pid
wait $pid
check "Ctrl-C while no line comes" test $? -eq 130
kill $writer
refused "a threshold of no lines" 2 '--above needs --per-line' "$generate" a.run --score text.txt --above 3
echo "done"
