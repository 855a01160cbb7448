#!/bin/sh
# That `make bench` and scripts/cost_curves.py run to their ends, and what their JSON holds; their numbers are not
# looked at. Prints `ok NAME` or `not ok NAME: why` a check and `done` at the end. Argument: the build directory.
# Without python3 nothing is checked.
set -u

program=$1/bench_kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v python3 >/dev/null || { echo "skipped: python3 is missing"; echo "done"; exit 0; }

check() { # check NAME CONDITION...
  name=$1
  shift
  if "$@"; then echo "ok $name"; else echo "not ok $name: failed: $*"; fi
}

bench() { scripts/bench.py --quick --bench "$program" --json "$work/rows.jsonl" "$@" >"$work/table" 2>"$work/err"; }
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
check "workloads" has_keys workload "workload tokens_per_s step_ms step_ms_p10 step_ms_p90 peak_memory_bytes params
  dtype batch ceiling ceiling_before ceiling_after trusted_ceiling share spread quotable why_not"
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

curves() { scripts/cost_curves.py --bench "$program" "$@" 2>"$work/err"; }
curves_measure() { curves --quick --threads 2 >"$work/curves.jsonl"; }
curves_draw() { curves --from "$work/curves.jsonl" --markdown "$work/curves.md" --svg "$work/curves"; }
# Every curve has its points, with and without the base, in the JSON, the tables and the pictures, and these are XML.
curves_complete() {
  python3 - "$work" <<'EOF'
import json, sys, xml.etree.ElementTree
work, curves = sys.argv[1], "context width depth batch vocabulary threads".split()
machine, *points = map(json.loads, open(f"{work}/curves.jsonl", encoding="utf-8"))
found = sorted((p["curve"], p["cost"], p["base"]) for p in points)
wanted = sorted((curve, cost, base) for curve in curves for cost in ("step", "token") for base in (True, False))
if machine["kind"] != "machine" or found != wanted:
    sys.exit(f"points: {found}")
for p in points:
    if not (p["ms"] > 0 and p["flops"] > 0 and p["gflop_per_s"] > 0 and (p["ratio"] == 1 or not p["base"])):
        sys.exit(f"a point: {p}")
tables = open(f"{work}/curves.md", encoding="utf-8").read()
if missing := [curve for curve in curves if tables.count(f"### {curve.capitalize()}\n") != 2]:
    sys.exit(f"no tables of {missing}")
for cost in ("step", "token"):
    root = xml.etree.ElementTree.parse(f"{work}/curves/cost-of-a-{cost}.svg").getroot()
    circles = len(root.findall("{*}circle"))
    if circles != len(points) // 2 + 1:  # one is in the legend
        sys.exit(f"{cost}: {circles} circles for {len(points) // 2} points")
EOF
}
check "cost_curves.py --quick runs" curves_measure
check "it draws what it has measured" curves_draw
check "points of all curves" curves_complete
if "$program" --only train --shape layers=0 >/dev/null 2>&1; then echo "not ok a wrong shape: accepted"
else echo "ok a wrong shape"; fi
echo "done"
