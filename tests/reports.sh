#!/bin/sh
# Tests the reports of runs: result.json, diagnoses and the table of runs. See tests/program_helpers.sh.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

awk 'BEGIN { for (i = 1; i <= 3000; i++) print "line " i " of a text, and " (i * 7919) % 1000 }' >text.txt
tiny="text.txt --layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --threads 1 --sample-tokens 20 $varied"

# value FILE NAME: of a member of result.json that stands on a line of its own
value() { sed -n "s/^ *\"$2\": \"*\([^\",]*\)\"*,*\$/\1/p" "$1/result.json" | head -n 1; }
# diagnoses RUN NAME: how many
diagnoses() { grep -c "\"verdict\":\"$2\"" "$1/metrics.jsonl"; }

# ---- result.json ----
$train $tiny --steps 30 --quiet --out done.run
check "result: done" test "$(value done.run end)" = "done" -a "$(value done.run step)" = 30 -a "$(value done.run tokens)" = 960
check "result: settings" test "$(value done.run layers)" = 1 -a "$(value done.run sample-tokens)" = 20
$train $tiny --steps 5 --prompt 007 --quiet --out "no" 2>/dev/null
check "the page has the seconds of each phase" grep -q "seconds of each phase</dt><dd>start [0-9.e-]*, text .*, files [0-9]" done.run/report.html
check "texts that look like numbers stay texts" sh -c "grep -q '\"prompt\": \"007\"' no/result.json && grep -q '\"out\": \"no\"' no/result.json"
# An evaluation of the whole text takes as long as `whole` steps, and is made where 8 of them take a tenth of the run.
$train $tiny --steps 30 --dry-run --json >plan.json 2>/dev/null
whole=$(awk "BEGIN { print $(sed -n 's/^.*"val_tokens": \([0-9]*\).*/\1/p' plan.json) / 3 / 32 }")
for times in 72 88; do
  $train $tiny --steps "$(awk "BEGIN { print int($whole * $times) }")" --sample-every 0 --quiet --out $times.run
done
check "a validation text that is short for the run is evaluated whole" test "$(grep -c '"over":"beginning"' 88.run/metrics.jsonl)" -eq 0 \
  -a "$(grep -c '"over":"all"' 88.run/metrics.jsonl)" -ge 8
check "of one that is not, a part" test "$(grep -c '"over":"beginning"' 72.run/metrics.jsonl)" -ge 10
check "no sample comes shortly before the last" test "$(grep -c '^=== step' done.run/samples.txt)" -eq 4
$train $tiny --steps 400 --patience 1 --lr 9 --schedule constant --no-mean --optimizer adamw --quiet --out patience.run 2>patience.err
check "result: patience" test "$(value patience.run end)" = patience
cp patience.run/metrics.jsonl ended.jsonl
said=$($train --resume=patience.run 2>&1)
check "one that patience ended is finished" test $? -eq 0 -a "${said#*no better than step *--patience with a larger number}" != "$said"
check "and stays what it is" cmp patience.run/metrics.jsonl ended.jsonl
$train --resume=patience.run --patience 2 --quiet 2>/dev/null
check "with more patience it goes on" test $? -eq 0 -a "$(value patience.run step)" -gt "$(sed -n '$s/.*"step":\([0-9]*\),.*/\1/p' ended.jsonl)"
check "and nothing is damaged" sh -c "! $train --runs patience.run -O csv | grep -q damaged"
check "a run that is no better than guessing is not called trained" sh -c "! grep -q '^trained' patience.err"
$train $tiny --steps 100000 --save-every 0 --quiet --out signal.run 2>/dev/null &
pid=$!
while ! grep -q loss signal.run/metrics.jsonl 2>/dev/null; do sleep 0.1; done
check "a run that goes on is running" sh -c "$train --runs signal.run -O csv | grep -q ',running,'"
kill -INT $pid
wait $pid
check "result: signal" test "$(value signal.run end)" = signal
bursting="--dtype f32 --optimizer muon --muon-lr 10 --wd 10 --schedule constant --warmup 0" # 99 times as large after every step
$train $tiny $bursting --steps 100 --quiet --out nan.run --eval-every 1 2>nan.err
check "result: not finite" test $? -eq 6 -a "$(value nan.run end)" = nonfinite
$train $tiny $bursting --steps 100 --device cpu --quiet --out update.run --eval-every 90 --sample-every 0 2>update.err
check "steps are those that were made" test "$(value update.run step)" = "$(awk '/stopped at step/ { print $5 - 1 }' update.err)"
check "rates to try" grep -q 'not finite.* Try --muon-lr 0.01 --lr 0.001$' nan.err
check "the model is that of the best evaluation" sh -c "$generate nan.run -n 5 --quiet >/dev/null"
$train $tiny $bursting --steps "$(value update.run step)" --device cpu --quiet --out last.run --eval-every 0 2>last.err
check "so it is where only the last evaluation shows it" test $? -eq 6 -a "$(value last.run end)" = nonfinite
check "which says so" grep -q 'validation loss (.*) is not finite' last.err
cp -r done.run killed.run && rm killed.run/result.json
cp -r done.run damaged.run && echo 'not JSON' >>damaged.run/metrics.jsonl

# ---- --minutes ----
# A run that is suspended for half of its time must get shorter, and give the same result when repeated.
"$build/stories" --bytes 2500000 --seed 5 -o long.txt --report long.json 2>/dev/null
long="long.txt --layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --threads 1 $varied"
$train $long --tokenizer byte --minutes 0.1 --sample-tokens 20 --sample-every 500 --out minutes.run 2>minutes.err &
pid=$!
while ! grep -q loss minutes.run/metrics.jsonl 2>/dev/null; do sleep 0.1; done
kill -STOP $pid
sleep 3
kill -CONT $pid
wait $pid
check "result: minutes" test $? -eq 0 -a "$(value minutes.run end)" = minutes
first=$(sed -n 's/^earlier-steps = "*[0-9]*:\([0-9]*\).*/\1/p' minutes.run/config.txt)
last=$(sed -n 's/^steps = //p' minutes.run/config.txt)
check "a run that lost time is shorter" test "${first:-0}" -gt "$last" -a "$(value minutes.run step)" = "$last"
check "and asked for no other length" sh -c "! grep -q '^minutes' minutes.run/config.txt"
$train --config minutes.run/config.txt --out again.run --quiet
check "its repeat is the same" cmp minutes.run/model.safetensors again.run/model.safetensors
check "writes the same" cmp minutes.run/samples.txt again.run/samples.txt
for run in minutes again; do sed 's/,"tokens_per_s":[^,}]*//; s/,"seconds":[^,}]*//; s/,"xz_bits_per_byte":[^,}]*//' $run.run/metrics.jsonl >$run.lines; done
check "and logs the same" cmp minutes.lines again.lines
$train --config minutes.run/config.txt --steps 50 --warmup 0 --out other.run --quiet
check "but for another length" sh -c "grep -q '^steps = 50' other.run/config.txt && ! grep -q earlier other.run/config.txt"
$train --resume=minutes.run --minutes 0.02 --quiet
check "a run goes on for some minutes" test $? -eq 0 -a "$(value minutes.run step)" -gt "$last"
$train $tiny --steps 900000 --warmup 800000 --stop-at 1 --out warm.run --quiet 2>/dev/null
$train --resume=warm.run --minutes 0.01 --quiet
check "with a warm-up that fits" test $? -eq 0
$train $long --sample-tokens 0 --minutes 0.1 --quiet --out xz.run
check "what is done once does not shorten a run" awk "BEGIN { exit !($(value xz.run seconds) >= 4) }"

# More time is worth nothing where the entropy of the text is reached.
awk 'BEGIN { srand(1); for (i = 0; i < 60000; i++) printf "%s", substr("acgt", int(4 * rand()) + 1, 1) }' >dna.txt
$train dna.txt $varied --layers 1 --heads 1 --dim 16 --ctx 64 --minutes 0.1 --sample-tokens 0 --out dna.run 2>dna.err
if grep -q '2\.0.* bits per byte, over all' dna.err; then
  check "a run of random letters promises nothing of more time" sh -c "! grep -q 'another run of this text' dna.err"
  check "and draws no curve" sh -c "! grep -q 'Bits per byte with more time' dna.run/report.html"
else
  echo "skipped a run of random letters: this machine is too slow to learn them in 6 seconds"
fi

# Twenty epochs of about 3600 tokens, at 32 a step, after a teacher of ten.
head -c 4000 text.txt >page.txt
$train page.txt ${tiny#* } --minutes 60 --out page.run 2>page.err
check "a run ends when it would only memorize the text" test $? -eq 0 -a "$(value page.run end)" = "done" -a "$(value page.run step)" = 2251
check "and says so" grep -q '^note: the run will end after 2251 steps, earlier than --minutes' page.err
$train --resume=page.run --minutes 0.01 --quiet
check "but goes on when told to" test $? -eq 0 -a "$(value page.run step)" -gt 1126

# ---- diagnoses ----
$train $tiny --steps 60 --optimizer adamw --lr 9 --warmup 0 --quiet --out high.run 2>high.err
check "a rate that is too high is said so" test "$(diagnoses high.run diverging)" -eq 1
check "to those who want to hear nothing but warnings, too" grep -q '^warning: diverging: .* try --lr ' high.err
$train $tiny --steps 60 --optimizer adamw --lr 9 --warmup 0 --schedule constant --out high2.run 2>high.err
check "once" test "$(grep -c 'diverging' high.err)" -eq 1
check "a model that only guesses is not called trained" sh -c "! grep -q '^trained' high.err && grep -q 'no better than guessing' high.err"
check "a healthy run has no diagnosis but that it is short" test "$(grep '"verdict"' done.run/metrics.jsonl | grep -vc 'still learning')" -eq 0

cp "$here/LICENSE" short.txt
tail -c 4000 long.txt >unseen.txt
$train short.txt --val unseen.txt --layers 2 --heads 2 --dim 64 --ctx 32 --batch 8 --steps "$(steps 1000)" --dropout 0 --threads 1 --eval-every 0 --quiet $varied --out copy.run 2>/dev/null
[ "$hurried" ] || check "a sample that copies the text is said so" test "$(diagnoses copy.run copying)" -eq 1

# ---- the table ----
for seed in 1 2; do
  for dim in 8 16; do $train $tiny --steps 20 --dim $dim --seed $seed --quiet --out "sweep/$dim/s$seed.run" 2>/dev/null; done
done
$train $long --sample-tokens 0 --tokenizer byte --steps 100000 --eval-every 20 --quiet --out begun.run 2>/dev/null &
pid=$!
while ! grep -q val_loss begun.run/metrics.jsonl 2>/dev/null; do sleep 0.1; done
kill -INT $pid
wait $pid
check "evaluations of a long text are over its beginning" grep -q '"over":"beginning"' begun.run/metrics.jsonl
$train --runs sweep done.run killed.run damaged.run --by-seed >table.md 2>err
check "a table of runs" test $? -eq 0 -a "$(wc -l <table.md)" -eq 9
check "which says that it has more columns" grep -qx 'note: [0-9]* more columns: --columns all, or -O csv' err
check "and why a run is damaged, and nothing else" test "$(wc -l <err)" -eq 2 -a "$(grep -c '^warning: damaged.run/metrics.jsonl: 1 line cannot be read' err)" -eq 1
check "its columns are what differs" grep -q '^| run | .*dim .*| seed .*| bits_per_byte | state | val_loss | step | ' table.md
check "and not what is the same" sh -c '! head -n 1 table.md | grep -q -e layers -e "| out "'
check "states" sh -c 'grep -q "^| killed.run .*| killed |" table.md && grep -q "^| damaged.run .*| damaged |" table.md && grep -q "^| done.run .*| done |" table.md'
check "sorted by bits per byte" sh -c "$train --runs sweep -O csv --by-seed | tr -d '\\015' | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if (\$i == \"bits_per_byte\") c = i; next } \$c + 0 < last + 0 { exit 1 } { last = \$c; n++ } END { exit !(c && n == 4) }'"
check "sorted as asked" sh -c "$train --runs sweep -O csv --by-seed --sort -run | sed -n 2p | grep -q '^sweep/8/s2.run,'"
cp -r done.run hollow.run && : >hollow.run/config.txt
check "a run without settings adds no columns" sh -c "$train --runs done.run hollow.run --quiet | head -n 1 | grep -q '^| run | bits_per_byte '"
if has python3 "tables that Python reads"; then
  $train --runs . --by-seed -O csv >table.csv
  $train --runs . --by-seed -O json >table.json
  check "CSV and JSON hold the same" python3 - <<'EOF'
import csv, json
rows, objects = list(csv.DictReader(open("table.csv", newline=""))), json.load(open("table.json"))
assert len(rows) == len(objects) >= 11
for row, o in zip(rows, objects):
    assert list(row) == list(o)
    for name, value in o.items():
        assert row[name] == ("" if value is None else value if isinstance(value, str) else json.dumps(value)) or \
            float(row[name]) == value, (name, row[name], value)
EOF
  check "every number is that of the files" python3 - <<'EOF'
import json, os
from collections import Counter

def lines(run):
    with open(run + "/metrics.jsonl") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                pass

def kept_of(run):  # the model in model.safetensors: the last line that says so, or the last evaluation that was the best
    kept = {}
    for line in lines(run):
        if line.get("kept") or line.get("best"):
            kept = line
    return kept

def near(a, b):
    return a is b if a is None or b is None else abs(a - b) <= 1e-9 * abs(b)

rows = json.load(open("table.json"))
for row in rows:
    kept, result = kept_of(row["run"]), {}
    if os.path.exists(row["run"] + "/result.json"):
        result = json.load(open(row["run"] + "/result.json"))
    steps = [line for line in lines(row["run"]) if "loss" in line] or [{}]
    everything, begun = (kept, {}) if kept.get("over") == "all" else ({}, kept)
    assert row["val_text"] == kept.get("val_text") and row["kept_step"] == kept.get("step"), row
    for name in "bits_per_byte", "val_loss":
        assert near(row[name], everything.get(name)) and near(row[name + "_beginning"], begun.get(name)), (name, row)
    for name in "step", "tokens", "seconds":
        assert near(row[name], result.get(name, steps[-1].get(name))), (name, row)
    assert near(row["tokens_per_s"], row["tokens"] / row["seconds"]), row
of = {row["run"]: row for row in rows}
assert of["begun.run"]["bits_per_byte"] is None and of["begun.run"]["bits_per_byte_beginning"] > 0
texts = [row["val_text"] for row in rows if row["bits_per_byte"] is not None]
groups = [text for i, text in enumerate(texts) if i == 0 or text != texts[i - 1]]
assert len(groups) == len(set(groups)) >= 2 and groups[0] == Counter(texts).most_common(1)[0][0]
for text in groups:
    bits = [row["bits_per_byte"] for row in rows[:len(texts)] if row["val_text"] == text]
    assert None not in bits and bits == sorted(bits)
EOF
  check "a terminal gets a table that fits" python3 - "$train" <<'EOF'
import fcntl, os, pty, struct, subprocess, sys, termios
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
child = subprocess.Popen([sys.argv[1], "--runs", "."], stdout=slave, stderr=subprocess.PIPE)
os.close(slave)
text = b""
try:
    while part := os.read(master, 4096):
        text += part
except OSError:
    pass  # the other end was closed
notes = child.communicate()[1].decode()
lines = text.decode().splitlines()
assert child.returncode == 0 and len(lines) > 10 and max(map(len, lines)) <= 80, text
assert lines[0].split()[0] == "run" and "bits_per_byte" in lines[0] and "|" not in lines[0]
assert "not ranked" in notes and "more columns" in notes, notes
EOF
fi
cp -r done.run edited.run && sed 's|"end": "done"|"end": "</script><script>alert(1)</script>"|' done.run/result.json >edited.run/result.json
cp -r done.run broken.run && echo '{' >broken.run/result.json && echo '{' >>edited.run/metrics.jsonl
$train --runs done.run broken.run edited.run -O csv >/dev/null 2>err
check "why runs are damaged" sh -c 'grep -q "^warning: broken.run/result.json is not valid JSON" err &&
  grep -q "^warning: edited.run/metrics.jsonl: 1 line cannot be read" err && test "$(wc -l <err)" -eq 2'
mkdir -p closed/a.run && cp -r done.run closed/b.run && cp "$train" closed/train && chmod 755 "$work" && chmod 000 closed/a.run
if [ "$(id -u)" = 0 ] && has setpriv "runs of others"; then another="setpriv --reuid=65534 --regid=65534 --clear-groups"; else another=; fi
$another ./closed/train --runs closed -O csv 2>err | cut -d, -f1 >got
[ "$(id -u)" = 0 ] && [ ! "$another" ] ||
  check "a directory that cannot be read" sh -c 'grep -q "^closed/b.run" got && test "$(cat err)" = "warning: closed/a.run is left out: Permission denied"'
check "an end that is none" sh -c "$train --runs edited.run -O csv | grep -q ',damaged,'"
printf 'prompt = "a\033[31mb"\n' >>edited.run/config.txt
check "nothing is written to the terminal that it would obey" sh -c "$train --runs done.run edited.run --columns run,prompt >table && grep -q 'a.*31mb' table && ! LC_ALL=C grep -q '[^ -~]' table"
refused "two pictures at once" 2 'use only one of' "$train" --runs --plot done.run
refused "an order without a table" 2 '--sort belongs to --runs' "$train" text.txt --sort step
refused "a resumed run past its steps" 2 'done.run is at step 30, past --steps 5' "$train" --resume=done.run --steps 5
cp -r done.run named.run && echo 'run = 5' >>named.run/config.txt
check "a setting that is called as a column" sh -c "$train --runs done.run named.run -O csv | cut -d, -f1 | tr -d '\\015' | sort | tr '\\n' ' ' | grep -q '^done.run named.run run '"
mkdir nothing
refused "a table of nothing" 3 "no run in nothing" "$train" --runs nothing
refused "a table of what is not there" 3 "No such file" "$train" --runs nowhere
refused "an order by what is no column" 2 "no column steps; the columns are run, dim, " "$train" --runs sweep --sort steps
refused "a column that is not there" 2 "no column val; the columns are run, dim, " "$train" --runs sweep --columns run,val
refused "a table on a full disk" 7 "cannot write" sh -c "exec $train --runs sweep >/dev/full"

# ---- the scaling law ----
# Runs whose losses are 1.5 + 300/N^0.4 + 500/D^0.35, made from a finished one.
for n in 1 4 20; do
  for d in 1 5 30; do
    mkdir -p fit && cp -r done.run fit/$n-$d.run
    loss=$(awk "BEGIN { print 1.5 + 300 / ($n * 1e5) ^ .4 + 500 / ($d * 1e6) ^ .35 }")
    sed -i.old "s/\"bits_per_byte\":[0-9.]*/\"bits_per_byte\":$loss/" fit/$n-$d.run/metrics.jsonl
    sed -i.old "s/^  \"params\":.*/  \"params\": ${n}00000,/; s/^  \"tokens\":.*/  \"tokens\": ${d}000000,/" fit/$n-$d.run/result.json
  done
done
law() { "$here/scripts/measure/scaling_law.py" --train "$train" "$@"; }
for i in 1 2 3 4 5 6; do cp -r done.run same-$i.run; done
if has python3 "the scaling law"; then
  law fit signal.run >law.txt 2>err
  law_has() { awk -v name="$1" -v want="$2" '$1 == name && $2 > 0.99 * want && $2 < 1.01 * want && $3 <= $2 && $2 <= $4 { found = 1 } END { exit !found }' law.txt; }
  for term in "E 1.5" "A 300" "a 0.4" "B 500" "b 0.35"; do check "the law has its $term" law_has ${term% *} ${term#* }; done
  check "and its best use" grep -q 'are 3.6e+14 (6 N D): by the law, the best use of them is 1.6[0-9]*M parameters and 3[67].[0-9]*M tokens, with a loss of 3.60[0-9]* bits per byte$' law.txt
  check "what it leaves out" grep -q '^runs without a final loss, which are left out: 1$' law.txt
  check "the law as JSON" sh -c "'$here/scripts/measure/scaling_law.py' --train '$train' --json fit | python3 -c 'import json, sys; assert [row[\"name\"] for row in json.load(sys.stdin)] == list(\"EAaBb\")'"
  refused "a law of three runs" 3 "needs at least 5 finished runs, and there are 3" law fit/1-1.run fit/1-5.run fit/4-1.run
  refused "a law of equal runs" 3 "vary enough" law same-1.run same-2.run same-3.run same-4.run same-5.run same-6.run
  refused "a law of nothing" 3 "no run in nothing" law nothing
fi

# ---- charts ----
hostile='</pre><script>alert(1)</script>&'
$train $tiny --steps 30 --quiet --prompt "$hostile" --out 'a"<b>.run' 2>/dev/null
check "a report is written" test -s done.run/report.html
check "hostile text is escaped" sh -c "! grep -q -e '<script' -e '<b>' 'a\"<b>.run/report.html' && grep -q '&lt;script&gt;alert' 'a\"<b>.run/report.html'"
check "nothing in it is of the network" sh -c "! grep -q -e 'src=' -e 'href=' -e 'url(' -e '<script' done.run/report.html"
$train --report done.run signal.run sweep/8/s1.run --out compare.html
check "a report of several runs" test $? -eq 0 -a "$(grep -c '<svg' compare.html)" -ge 7
for run in done.run signal.run sweep/8/s1.run; do check "names $run" grep -q "<h2>$run</h2>" compare.html; done
check "states are words" sh -c "grep -q '<dt>state</dt><dd>done (the time was up)<' minutes.run/report.html && grep -q '<dd>stopped (can be resumed)<' compare.html"
check "a summary for each run" sh -c "test \$(grep -c '<p class=\"summary\">[A-Z]' compare.html) -eq 3"
check "of the model that is kept" grep -q "^<p class=\"summary\">Predicts unseen text (all of the validation text) at $(sed -n '/"kept":true/s/.*"bits_per_byte":\([0-9]*\)\(\.[0-9]*\).*/\1\2/p' done.run/metrics.jsonl | awk '{ printf "%.2f", $1 }') bits per byte" done.run/report.html
check "settings are folded" grep -q '<details><summary>All settings</summary>' done.run/report.html
check "reports are well-formed" xmllint --noout done.run/report.html high.run/report.html nan.run/report.html 'a"<b>.run/report.html' compare.html
long=a-name-of-a-run-of-forty-characters
for i in 1 2 3; do cp -r sweep/8/s$i.run $long-$i.run 2>/dev/null || cp -r done.run $long-$i.run; done
$train --report $long-?.run --out long.html
has chromium "boxes of reports" &&
  check "nothing overlaps on pages of any width" python3 "$here/tests/page_boxes.py" long.html done.run/report.html nan.run/report.html
if ! python3 -c 'import html5lib' 2>/dev/null; then echo "skipped pages are valid HTML: Python's package html5lib is missing"
else
  check "pages are valid HTML" python3 -c '
import sys, html5lib
for path in sys.argv[1:]: html5lib.HTMLParser(strict=True).parse(open(path, encoding="utf-8").read())
' long.html done.run/report.html nan.run/report.html
fi
mkdir one.run # a single evaluation, and nothing else
echo '{"step":1,"tokens":10,"val_loss":3.5,"bits_per_byte":5,"seconds":1,"over":"beginning","best":true}' >one.run/metrics.jsonl
$train --report one.run --out one.html
check "a report of one point" grep -q '<circle' one.html
mkdir many.run # that somebody put together
awk 'BEGIN { for (i = 0; i < 5000; i++) printf "{\"step\":5,\"tokens\":10,\"val_loss\":3.5,\"seconds\":1,\"over\":\"%s\"}\n", i % 2 ? "all" : "beginning" }' >many.run/metrics.jsonl
check "a report of many evaluations of one step" $train --report many.run --out many.html
check "a plot" sh -c "LC_ALL=C.UTF-8 $train --plot done.run | grep -q '├\|┤.*⠉\|⠒\|⡇\|⢸'"
check "a plot in ASCII" sh -c "LC_ALL=C $train --plot done.run >plot.txt && ! LC_ALL=C grep -q '[^ -~]' plot.txt && grep -q 'best' plot.txt"
LC_ALL=C $train --plot sweep done.run >plot.txt
check "a plot of several runs has one scale and a letter a run" sh -c "! LC_ALL=C grep -q '[^ -~]' plot.txt && test \$(grep -c ' steps\$' plot.txt) -eq 1 -a \$(grep -c '^[A-E] .*: the kept model has ' plot.txt) -eq 5"
for letter in A B C D E; do check "its curve $letter" grep -q "|.*$letter" plot.txt; done
check "the letter of the longest run alone is on the right" sh -c "sed -n 's/^.\{10\}.\{48\}//p' plot.txt | sed '/^[^|]*steps/,\$d' | tr -d ' .-' | tr -d '\n' | grep -q '^EE*\$'"
$train --report sweep --out sweep.html
check "a report of the runs below a directory" test $? -eq 0 -a "$(grep -c '<h2>sweep/[0-9]*/s[12].run</h2>' sweep.html)" -eq 4
refused "a report of what is no run" 3 "no run in nothing" "$train" --report nothing --out x.html
refused "a report of what is not there" 3 "No such file" "$train" --report nowhere --out x.html
$train --report edited.run --out edited.html
check "a report of a run that was edited" sh -c "! grep -q '<script' edited.html"
cp done.run/metrics.jsonl before.jsonl
refused "a report in the place of a run's file" 2 "belongs to a run" "$train" --report done.run --out done.run/metrics.jsonl
check "which stays" cmp before.jsonl done.run/metrics.jsonl
$train $tiny --val text.txt --dry-run 2>err
check "a text to train and to validate on" grep -q '^warning: text.txt is also training text: the validation loss' err
mkdir opener
# shellcheck disable=SC2016 # of the script
printf '#!/bin/sh\necho "$*" >>opened\nexit ${OPENED:-0}\n' >opener/xdg-open
cp opener/xdg-open opener/open
chmod +x opener/*
PATH=$work/opener:$PATH $train --report sweep --out sweep.html --open
PATH=$work/opener:$PATH $train $tiny --steps 2 --open --out "to open.run" 2>/dev/null
check "--open shows the report" test "$(cat opened)" = "$(printf './sweep.html\n./to open.run/report.html')"
PATH=$work/opener:$PATH OPENED=3 $train --report sweep --out sweep.html --open 2>err
check "--open says that there is no browser, which is no error" test $? -eq 0 -a "$(grep -c '^warning: .*; open sweep.html yourself' err)" -eq 1
refused "a report into nowhere" 2 "need.* a file" "$train" --report done.run
refused "a plot of nothing" 2 "needs a run" "$train" --plot

echo "done"
