#!/usr/bin/env python3
"""Measures the speed of this machine's CPU in training, generating and every operation.

    make bench                                       # builds what is needed, then runs this script
    make bench BENCH="--only train,generate-15m --json bench.jsonl"

Workloads: train-nano, train-demo, train-baby, train-15m, train-names16, train-names64, train-names128, generate-15m,
generate-110m, operations. --only takes their names, or the part before the hyphen. Each workload runs in its own
process of build/bench_kernels: a warm-up, then 11 timings. The table shows their median and their 10th and 90th
percentiles. us/sample: the time of a step divided by the batch; in training, a sample is a sequence.

The ceilings are measured just before and just after each workload, and again at the very end. For training, the ceiling
is the best rate of matrix products over several shapes; for generating, the rate of reading as many bytes as the model
reads per token. The share of the ceiling is relative to the larger of the two measurements. If a workload is faster
than its ceiling, the ceiling is unreliable and no share is given. If p90 is more than 15 % above p10, or one of the two
ceilings more than 15 % above the other, the row says that the spread is too large to quote. bench_kernels computes the
shares of operations: relative to a copy of 1 GiB, or to the same products, measured when its process starts. Shares
above 100 % are possible if the data fits in the caches.

The table goes to stdout. --json writes one line for the machine, each workload, each operation and the last ceilings.
--quick tests the script on tiny shapes; its numbers mean nothing. `make gpu-check` measures GPUs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

TOO_LARGE = 1.15
TRAIN = ("nano", "demo", "baby", "15m", "names16", "names64", "names128")
GENERATE = ("15m", "110m")
OPERATIONS = "elementwise,gemm,attention,decode"
OPERATION_MODELS = ("nano", "15m")
CEILINGS = {"train": "gemm", "generate": "read", "operations": "gemm"}
UNITS = {"gemm": (1e-9, "GFLOP/s"), "read": (1e-9, "GB/s")}


class Workload:
    def __init__(self, kind, model):
        self.kind = kind
        self.name = kind if kind == "operations" else f"{kind}-{model}"
        self.models = ",".join(OPERATION_MODELS) if model is None else model
        self.group = {"train": "train", "generate": "token", "operations": OPERATIONS}[kind]

    def chosen(self, only):
        return not only or self.name in only or self.kind in only


def workloads(quick):
    """With --quick, the only model is called tiny."""
    train, generate = (("tiny",), ("tiny",)) if quick else (TRAIN, GENERATE)
    found = [Workload("train", model) for model in train] + [Workload("generate", model) for model in generate]
    return found + [Workload("operations", "tiny" if quick else None)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME[,NAME]", help="these workloads (default: all)")
    parser.add_argument("--isa", choices=("v2", "v3", "v4"), help="instruction set (default: the best that there is)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to try the program itself")
    parser.add_argument("--json", metavar="FILE", help="write JSON lines to FILE")
    parser.add_argument("--bench", metavar="PROGRAM", default="build/bench_kernels", help="default: %(default)s")
    args = parser.parse_args()
    if args.threads is not None and args.threads < 1:
        parser.error(f"--threads must be at least 1, not {args.threads}")
    if not os.access(args.bench, os.X_OK):
        parser.error(f"{args.bench} is not there or not executable; run `make bench`")
    every = workloads(args.quick)
    args.only = args.only.split(",") if args.only else []
    known = {w.name for w in every} | {w.kind for w in every}
    unknown = [name for name in args.only if name not in known]
    if unknown:
        parser.error(f"--only {unknown[0]}: use {', '.join(w.name for w in every)}, train or generate")
    args.workloads = [w for w in every if w.chosen(args.only)]
    return args


# ---- measuring -----------------------------------------------------------------------------------------------------


def execute(command, **more):
    """Runs a command and returns what it wrote, in bytes; ends this program with its last errors if it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error}")
    if done.returncode:
        tail = "\n".join((done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()[-5:])
        sys.exit(f"{' '.join(command)} failed with status {done.returncode}:\n{tail}")
    return done


def run_bench(args, threads, *options, quick=False):
    """The rows that one process of bench_kernels prints."""
    command = [args.bench, "--device", "cpu", *options]
    command += ["--isa", args.isa] if args.isa else []
    command += ["--threads", str(threads)] if threads else []
    command += ["--quick"] if quick or args.quick else []
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl", encoding="utf-8") as rows:
        execute([*command, "--json", rows.name])
        return [json.loads(line) for line in rows]


def measure_ceilings(args, models):
    """{"gemm": FLOP/s, "read": {model: byte/s}}"""
    found = {"gemm": None, "read": {}}
    for row in run_bench(args, args.threads, "--only", "ceilings", "--model", models):
        if row["kind"] == "rate" and row["name"] == "gemm":
            found["gemm"] = row["value"]
        elif row["kind"] == "rate" and row["name"] == "read":
            found["read"][row["model"]] = row["value"]
    return found


def ceiling_of(found, workload):
    return found["read"][workload.models] if CEILINGS[workload.kind] == "read" else found["gemm"]


def ratio(a, b):
    return max(a, b) / min(a, b) if a and b else None


def judge(row, p10, p90, before, after):
    """Adds the ceilings, and whether the row is reliable enough to quote."""
    spread, drift = ratio(p10, p90), ratio(before, after)
    reasons = []
    if spread is None:
        reasons.append("it is too short to be timed")
    elif spread > TOO_LARGE:
        reasons.append(f"p90 is {100 * (spread - 1):.0f} % above p10")
    if drift > TOO_LARGE:
        reasons.append(f"the ceilings before and after differ by {100 * (drift - 1):.0f} %")
    row.update(ceiling_before=before, ceiling_after=after, spread=spread, quotable=not reasons, why_not=reasons)
    return row


def workload_row(row, workload, rate, before, after):
    """Also adds the share of the ceiling."""
    ceiling = max(before, after)
    row = {**row, "kind": "workload", "workload": workload.name, "ceiling": CEILINGS[workload.kind],
           "us_per_sample": 1e3 * row["step_ms"] / row["batch"],
           "trusted_ceiling": rate <= ceiling, "share": round(rate / ceiling, 4) if rate <= ceiling else None}
    return judge(row, row["step_ms_p10"], row["step_ms_p90"], before, after)


def measure(args, workload):
    before = measure_ceilings(args, workload.models)
    rows = run_bench(args, args.threads, "--only", workload.group, "--model", workload.models)
    after = measure_ceilings(args, workload.models)
    first, last = ceiling_of(before, workload), ceiling_of(after, workload)
    out = []
    for r in rows:
        if workload.kind == "train" and r["kind"] == "train":
            out.append(workload_row(r, workload, r["flops_per_s"], first, last))
        elif workload.kind == "generate" and r["kind"] == "decode":
            out.append(workload_row({**r, "batch": r["rows"]}, workload, r["bytes_per_s"], first, last))
        elif workload.kind == "operations" and r["kind"] == "kernel" and r["group"] != "rates":
            out.append(judge({**r, "kind": "operation"}, r.get("ms_p10"), r.get("ms_p90"), first, last))
    return out


# ---- printing ------------------------------------------------------------------------------------------------------


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return os.uname().machine


def note_load():
    """Returns the load of the machine, and notes one that disturbs measurements."""
    load, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.3 * cpus:
        print(f"note: load {load:.1f} on {cpus} CPUs at the start; a busy machine measures noise", file=sys.stderr)
    return load


def write_json_lines(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def machine(args):
    """The machine and the build that were measured."""
    load = note_load()
    device = run_bench(args, args.threads, "--only", "ceilings", "--model", "tiny", quick=True)[0]
    return {"kind": "machine", "processor": processor(), "isa": device["isa"], "threads": device["threads"],
            "dtype": device["dtype"], "compiler": device["compiler"], "commit": device["commit"],
            "device": device["device"], "load": load, "quick": args.quick}


def rate_text(kind, value):
    scale, unit = UNITS[kind]
    return f"{scale * value:.3g} {unit}"


def share_text(row):
    ceiling = rate_text(row["ceiling"], max(row["ceiling_before"], row["ceiling_after"]))
    what = {"gemm": "GEMM", "read": "reading"}[row["ceiling"]]
    if row["share"] is None:
        return f"the ceiling of {what}, {ceiling}, is not trustworthy: the workload was faster"
    return f"{100 * row['share']:.1f} % of {what}, {ceiling}"


def print_workload(row):
    print(f"{row['workload']:<14} {row['batch']:>5} {row['tokens_per_s']:>11.1f} {row['us_per_sample']:>11.2f} "
          f"{row['step_ms']:>11.4f} {row['step_ms_p10']:>11.4f} {row['step_ms_p90']:>11.4f} "
          f"{row['peak_memory_bytes'] / 1048576:>9.1f}  {share_text(row)}")
    for reason in row["why_not"]:
        print(f"{'':<14} the spread is too large to quote: {reason}")


def print_operation(row):
    name = f"{row['model']:<5} {row['operation']:<30} {row['shape']:<24}"
    if "error" in row:
        print(f"{name} {row['error']}")
        return
    speed = f"{row['gb_per_s']:.1f} GB/s" if row["bytes"] else ""
    speed += f", {1e3 * row['tflop_per_s']:.1f} GFLOP/s" if row["flops"] else ""
    above = f"above {row['share_of']}" if row["bytes"] or row["flops"] else ""
    share = f"{100 * row['share']:.0f} % of {row['share_of']}" if row["share"] is not None else above
    why_not = f"  not to be quoted: {'; '.join(row['why_not'])}" if row["why_not"] else ""
    times = f"{row['ms']:>10.4g} {row['ms_p10']:>10.4g} {row['ms_p90']:>10.4g}"
    print(f"{name} {times}  {speed:<28} {share:<13}{why_not}".rstrip())


def print_rows(rows, printed):
    """`printed`: kinds whose heading is already printed."""
    for row in rows:
        if row["kind"] not in printed:
            printed.add(row["kind"])
            if row["kind"] == "workload":
                print(f"{'workload':<14} {'batch':>5} {'tokens/s':>11} {'us/sample':>11} {'ms a step':>11} {'p10':>11} "
                      f"{'p90':>11} {'peak MiB':>9}  share of the ceiling")
            else:
                print(f"\n{'model':<5} {'operation':<30} {'shape':<24} {'ms':>10} {'p10':>10} {'p90':>10}")
        (print_workload if row["kind"] == "workload" else print_operation)(row)
    sys.stdout.flush()


def first_ceilings(rows):
    """The first value of each ceiling, by kind and model."""
    first = {}
    for row in rows:
        key = ("read", row["model"]) if row.get("ceiling") == "read" else ("gemm", None)
        first.setdefault(key, row["ceiling_before"])
    return first


def last_ceilings(args, rows):
    """Measures the ceilings again and compares each with the first one of this run."""
    models = ",".join(dict.fromkeys(m for w in args.workloads for m in w.models.split(",")))
    found, drift = measure_ceilings(args, models), {}
    texts = [f"GEMM {rate_text('gemm', found['gemm'])}"]
    texts += [f"reading for {model} {rate_text('read', value)}" for model, value in found["read"].items()]
    print("\nceilings at the end: " + ", ".join(texts))
    for (kind, model), value in first_ceilings(rows).items():
        name, now = (f"read {model}", found["read"][model]) if kind == "read" else ("gemm", found["gemm"])
        drift[name] = ratio(value, now)
        if drift[name] > TOO_LARGE:
            print(f"the ceiling {name} differs by {100 * (drift[name] - 1):.0f} % from the first one: the machine did "
                  "not keep its speed, and rows of this run are not to be compared with each other")
    return {"kind": "ceilings", **found, "drift": drift}


def print_head(args, row):
    print(f"Inkling {row['commit']}, {row['compiler']}; {row['processor']}; {row['device']}; ISA {row['isa']}, "
          f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}, {row['dtype']}"
          + ("; tiny shapes, these numbers mean nothing" if args.quick else "") + "\n", flush=True)


def main():
    args = parse_arguments()
    lines = [machine(args)]
    print_head(args, lines[0])
    printed = set()
    for workload in args.workloads:
        rows = measure(args, workload)
        print_rows(rows, printed)
        lines += rows
    lines.append(last_ceilings(args, lines[1:]))
    if args.json:
        write_json_lines(args.json, lines)


if __name__ == "__main__":
    main()
