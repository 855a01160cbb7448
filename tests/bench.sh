#!/bin/sh
# Tests that `make bench`, scripts/measure/bench_quality.py and scripts/measure/five_minutes.py finish, and checks the
# keys of their JSON but not their measurements. Prints `ok NAME` or `not ok NAME: why` for each check and
# `done` at the end. Argument: the build directory. BIN: directory of ./train (default: .). Needs python3.
set -u

program=$1/bench_kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # check NAME CONDITION...
  name=$1
  shift
  if "$@"; then echo "ok $name"; else echo "not ok $name: failed: $*"; fi
}

bench() { scripts/measure/bench.py --quick --bench "$program" --json "$work/rows.jsonl" "$@" >"$work/table" 2>"$work/err"; }
in_table() { grep -q -e "$1" "$work/table"; }

# has_keys KIND KEYS: there are lines of that kind, each with these keys
has_keys() {
  python3 - "$work/rows.jsonl" "$@" <<'EOF'
import json, sys
path, kind, keys = sys.argv[1:]
rows = [row for row in map(json.loads, open(path, encoding="utf-8")) if row["kind"] == kind]
missing = {key for row in rows for key in keys.split() if key not in row}
if missing or not rows:
    sys.exit(f"{kind}: {len(rows)} lines, without {', '.join(sorted(missing)) or 'any'}")
EOF
}

check "bench.py --quick runs" bench
check "a row for training" in_table '^train-tiny .* of GEMM\|^train-tiny .*not trustworthy'
check "a row for generating" in_table '^generate-tiny .* of reading\|^generate-tiny .*not trustworthy'
check "rows for operations" in_table '^tiny  *attention_backward '
check "the machine" has_keys machine "processor isa threads dtype compiler commit device load"
check "workloads" has_keys workload "workload tokens_per_s us_per_sample step_ms step_ms_p10 step_ms_p90
  peak_memory_bytes params dtype batch ceiling ceiling_before ceiling_after trusted_ceiling share spread quotable why_not"
check "operations" has_keys operation "group model operation shape ms ms_p10 ms_p90 gb_per_s tflop_per_s
  share spread quotable"
check "the ceilings at the end" has_keys ceilings "gemm read drift"
check "no share above its ceiling" python3 -c "
import json, sys
shares = [json.loads(line).get('share') for line in open('$work/rows.jsonl')]
sys.exit(any(share is not None and not 0 <= share <= 1 for share in shares))"
check "one workload on one thread" bench --only train --threads 1
check "says how many threads" in_table ', 1 thread,'
if in_table generate; then echo "not ok --only leaves the others out: generate"
else echo "ok --only leaves the others out"; fi
if bench --only nothing; then echo "not ok an unknown workload: accepted"
else check "an unknown workload" grep -q "train-tiny" "$work/err"; fi

names_train() { "$program" --device cpu --only train --model names16 --train-ms 20 >"$work/table" 2>"$work/err"; }
check "names: its model trains" names_train
check "names: 16 sequences of 16" in_table '^names16 .*batch 16 x 16, vocabulary 27,.* loss [0-9]'

shape_train() { "$program" --device cpu --only train --shape layers=1,dim=64 --train-ms 20 >"$work/table" 2>"$work/err"; }
check "a shape of one's own trains" shape_train
if "$program" --only train --shape layers=0 >/dev/null 2>&1; then echo "not ok a wrong shape: accepted"
else echo "ok a wrong shape"; fi

quality() { # quality JSON ARGUMENT...
  json=$1
  shift
  scripts/measure/bench_quality.py --train "${BIN:-.}/train" --stories "${program%/*}/stories" "$@" >"$json" 2>"$work/err"
}
# refused_quality NAME WORDS ARGUMENT...: one line with these words, status 2, nothing measured
refused_quality() {
  name=$1 words=$2
  shift 2
  quality "$work/refused" "$@"
  status=$?
  if [ "$status" -eq 2 ] && [ "$(grep -c '' "$work/err")" -eq 1 ] && grep -q -e "$words" "$work/err" &&
    ! [ -s "$work/refused" ]; then echo "ok $name"
  else echo "not ok $name: status $status: $(head -n 3 "$work/err")"; fi
}
ours() { quality "$work/quality.jsonl" "$@" --systems "inkling adamw" "inkling muon" --threads 1 --evaluations 2; }
quality_measures() {
  ours "$work/text" --workload nano stories --tokens 4000 --seeds "1 2" --markdown "$work/quality.md"
}
quality_draws() {
  quality "$work/again.jsonl" --from "$work/quality.jsonl" --markdown "$work/again.md" &&
    cmp "$work/quality.md" "$work/again.md"
}
# In the chart, every system of a workload has a curve by tokens and one by seconds; both end at the last loss.
quality_pictures() {
  quality "$work/again.jsonl" --from "$work/quality.jsonl" --svg "$work/quality.svg" && python3 - "$work/quality.svg" <<'EOF'
import re, sys
from xml.etree import ElementTree
picture = ElementTree.parse(sys.argv[1]).getroot()
name = "{http://www.w3.org/2000/svg}"
curves = [p.get("d") for p in picture.iter(name + "path") if p.get("fill") == "none" and not p.get("stroke-dasharray")]
ends = [(c.get("cx"), c.get("cy")) for c in picture.iter(name + "circle")]
if len(curves) != 8 or [tuple(d.rsplit("L", 1)[-1].split()) for d in curves] != ends:
    sys.exit(f"{len(curves)} curves, ends {ends}")
numbers = [float(x) for d in curves for x in re.findall(r"[-0-9.]+", d)]
if min(numbers) < 0 or max(numbers[::2]) > float(picture.get("width")) or max(numbers[1::2]) > float(picture.get("height")):
    sys.exit("curves beyond the picture")
EOF
}
# Two seeds of two systems and two workloads alternate at the same numbers of tokens; checks their summary.
quality_complete() {
  python3 - "$work/quality.jsonl" <<'EOF'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
runs, systems = ([row for row in rows if row["kind"] == kind] for kind in ("run", "system"))
found = [(r["workload"], r["system"], r["seed"]) for r in runs]
a, m = "inkling adamw", "inkling muon"
if found != [(w, s, seed) for w in ("nano", "stories") for s, seed in ((a, 1), (m, 1), (m, 2), (a, 2))]:
    sys.exit(f"runs: {found}")
for row in systems:
    its = [r for r in runs if (r["workload"], r["system"]) == (row["workload"], row["system"])]
    if row["n"] != 2 or abs(row["loss"] - statistics.mean(r["loss"] for r in its)) > 1e-9 or row["loss"] > 5.6:
        sys.exit(f"a system: {row}")
    if len(row["curve"]) != 2 or len({tuple(tokens for tokens, _, _ in r["curve"]) for r in its}) != 1:
        sys.exit(f"a curve: {row}")
if len({(r["workload"], r["tokens"]) for r in runs}) != 2 or len(systems) != 4:
    sys.exit("not at equal tokens")
if [bool(r["entropy"]) for r in runs] != [False] * 4 + [True] * 4 or not 0.2 < runs[-1]["entropy"] < 0.3:
    sys.exit("the entropy of stories")
EOF
}
# Curves of a known shape: AdamW ends at 1 after 200 tokens and 20 s, where Muon is after 150 tokens and 30 s.
quality_reads_curves() {
  python3 - >"$work/known.jsonl" <<'EOF'
import json
for system, seconds, losses in ("inkling adamw", (10, 20), (2, 1)), ("inkling muon", (20, 40), (1.5, 0.5)):
    curve = [[100 * (i + 1), seconds[i], losses[i]] for i in range(2)]
    print(json.dumps({"kind": "run", "workload": "nano", "system": system, "seed": 1, "loss": losses[1], "tokens": 200,
                      "seconds": seconds[1], "curve": curve, "minutes": None, "entropy": 0.4, "threads": 1,
                      "version": None, "processor": "none"}))
EOF
  quality "$work/read.jsonl" --from "$work/known.jsonl" && python3 - "$work/read.jsonl" <<'EOF'
import json, sys
adamw, muon = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
wanted = {"tokens": 150, "seconds": 30, "fewer_tokens": 200 / 150, "fewer_seconds": 20 / 30}
found = muon["reached"]["inkling adamw"]
if found.keys() != wanted.keys() or any(abs(found[key] - wanted[key]) > 1e-9 for key in wanted):
    sys.exit(f"reached: {found}")
if muon["loss_at_equal_seconds"] != 1.5 or adamw["loss_at_equal_seconds"] != 1 or adamw["reached"]:
    sys.exit("equal seconds")
if abs(muon["excess_percent"] - 25) > 1e-9:
    sys.exit("above the entropy")
EOF
}
"${program%/*}/stories" --bytes 20000 -o "$work/text" 2>"$work/err"
printf '#!/bin/sh\necho "No module named torch" >&2\nexit 1\n' >"$work/no-torch"
chmod +x "$work/no-torch"
refused_quality "quality without PyTorch" "no-torch has no PyTorch .*No module named torch" "$work/text" \
  --python "$work/no-torch" --systems "inkling adamw" "pytorch muon"
refused_quality "quality of no text" "nano needs a text" --workload nano
refused_quality "quality with an unknown setting" "nano:depth=3" --workload nano --set nano:depth=3
refused_quality "quality from no runs" "does not hold the JSON lines" --from "$work/text"

five_minutes() {
  scripts/measure/five_minutes.py "$work/text" --bin "${BIN:-.}" --minutes 0.02 --layers 1 --ctx 64 --sample-tokens 0 \
    --json "$work/five.jsonl" "$@" >"$work/five.md" 2>"$work/err"
}
# Two seeds in one row; ./generate finds the loss that ./train reports, on the last tenth of the text.
five_complete() {
  five_minutes --seeds 2 --dtype f32 && python3 - "$work" <<'EOF' # as --score computes: bf16 rounds differently
import json, math, os, sys
work = sys.argv[1]
head, line, row = open(f"{work}/five.md", encoding="utf-8").read().splitlines()
cells, rows = row.split(" | "), [json.loads(row) for row in open(f"{work}/five.jsonl", encoding="utf-8")]
if head.count("|") != row.count("|") or cells[0] != "| text" or not cells[-1].startswith("2 "):
    sys.exit(f"the table: {row}")
for seed, row in enumerate(rows, 1):
    score, kept = row["score"], row["result"]["kept"]
    if row["seed"] != seed or abs(score["val_bits_per_byte"] / kept["bits_per_byte"] - 1) > 1e-4:
        sys.exit(f"seed {seed}: {score}, {kept}")
    if not 0 <= os.path.getsize(f"{work}/text") / 10 - score["bytes"] < 2000 or kept["over"] != "all":
        sys.exit(f"held out: {score}")
    if abs(row["perplexity"] - math.exp(score["val_loss"])) > 1e-9:
        sys.exit(f"perplexity {row['perplexity']}")
EOF
}
five_refuses() { if five_minutes --no-such-option; then false; else grep -q -e "--no-such-option" "$work/err"; fi; }

case ${1:-} in
  *sanitize*) ;; # trains for many minutes there what other tests train, too
  *)
    check "bench_quality.py runs" quality_measures
    check "it draws its tables again" quality_draws
    check "it draws its curves" quality_pictures
    check "runs of all seeds and systems" quality_complete
    check "what it reads from curves" quality_reads_curves
    check "five_minutes.py scores the saved model" five_complete
    check "five_minutes.py shows the errors of ./train" five_refuses
    check "quality at equal seconds" ours "$work/text" --workload nano --minutes 0.001 --seeds 1
    ;;
esac

# The pages match the stored results, and requests that cannot be run are rejected.
cp -R scripts docs "$work"
learning() { python3 "$work/scripts/measure/learning.py" "$@" >"$work/out" 2>"$work/err"; }
refuses() { # refuses WORDS ARGUMENTS...
  words=$1
  shift
  learning "$@"
  test $? -eq 2 && grep -q -e "$words" "$work/err" && test "$(wc -l <"$work/err")" -eq 1
}
report_again() { learning report && diff -r docs "$work/docs"; }
quality_again() {
  quality "$work/again.jsonl" --from docs/measurements/quality.jsonl --markdown "$work/again.md" --svg "$work/again.svg" &&
    cmp "$work/again.svg" docs/measurements/quality.svg && tail -n 5 "$work/again.md" | cmp - "$work/tail"
}
tail -n 5 docs/measurements/quality.md >"$work/tail"
check "docs/measurements/experiments.md is what the results give" report_again
check "docs/measurements/quality.md is what its runs give" quality_again
check "learning.py lists" learning list
check "learning.py refuses an unknown experiment" refuses "no experiment is called nope" run --text "$work/text" nope
check "learning.py refuses a text that is too short" refuses "too few for 15m-muon" run 15m-muon --text "$work/text" --train "${BIN:-.}/train"
yes "another text" | head -c 100000 >"$work/long"
check "learning.py refuses another text" refuses "with another text" run nano --text "$work/long" --train "${BIN:-.}/train"
echo "done"
