#!/usr/bin/env python3
"""Measures how the cost of a training step and of a generated token grows on this machine's CPU.

    make build/bench_kernels
    scripts/measure/cost_curves.py --markdown curves.md --svg curves >curves.jsonl
    scripts/measure/cost_curves.py --from curves.jsonl --markdown curves.md --svg curves    # tables and charts only

Each of six curves (--only takes their names) changes one quantity of a nano model: context (with 4096 tokens per step,
so that only attention grows), width (heads of 32), depth, batch (in generating: sequences at a time), vocabulary and
threads. A generated token is the last one of its context, without sampling.

Each point is a process of build/bench_kernels --shape. Each of the --rounds measures all points of all curves, every
second one in reverse order. A time is the median over rounds of the medians that bench_kernels prints. A round takes a
minute and a half on two cores.

Each time is compared with a prediction from the arithmetic: the FLOPs of the point at the FLOP/s of the curve's base.
The FLOPs of a step are those of model_step_flops in src/model/activations.c; the FLOPs of a token are a third of those of
its linear layers, plus attention up to its position. The base is nano, except for context (the shortest one) and
threads (one; n threads are predicted to be n times as fast). `ratio` is the time divided by the prediction. A curve is
good if its ratio stays below 1, that is, if GFLOP/s do not fall as the work grows. FLOPs count matrix products only:
not norms, the loss, or AdamW, whose cost per parameter does not depend on the number of tokens in a step.

Prints JSON lines: one for the machine, then one per point of a curve. Progress goes to stderr.
"""

import argparse
import json
import math
import os
import statistics
import sys
from typing import NamedTuple

from bench import note_load, processor, run_bench
from svg import BLUE, GRAY, GREEN, LogAxis, escape, ticks, write_curve, write_line, write_text


class Shape(NamedTuple):
    """The shape that is measured. `position`: of the generated token; 0 in a training step."""
    layers: int
    dim: int
    head_dim: int
    ctx: int
    vocab: int
    batch: int
    position: int
    threads: int

    def ffn(self):
        return -(-((8 * self.dim + 2) // 3) // 32) * 32

    def tokens(self):
        return self.batch if self.position else self.batch * self.ctx

    def linear_flops(self):
        """Each weight takes one multiply-add in the forward pass and two in the backward pass."""
        weights = self.layers * (4 * self.dim ** 2 + 3 * self.dim * self.ffn()) + self.dim * self.vocab
        return (2 if self.position else 6) * self.tokens() * weights

    def attention_flops(self):
        """Products for scores and values: 2 forward and 5 backward, on the causal half of the matrix."""
        seen = 4 * (self.position + 1) if self.position else 7 * self.ctx
        return self.tokens() * self.layers * seen * self.dim

    def flops(self):
        return self.linear_flops() + self.attention_flops()

    def text(self):
        numbers = {"layers": self.layers, "heads": self.dim // self.head_dim, "dim": self.dim, "ffn": self.ffn(),
                   "ctx": self.ctx, "vocab": self.vocab, "batch": self.batch, "position": self.position}
        return ",".join(f"{name}={number}" for name, number in numbers.items() if number)


CURVES = ("context", "width", "depth", "batch", "vocabulary", "threads")
COSTS = ("step", "token")
TRAIN_MS = 700  # of a point in a round: rather many rounds than long ones
VALUES = {
    "context": (64, 128, 256, 512, 1024, 2048, 4096),
    "width": (64, 96, 128, 192, 256, 384, 512, 768),
    "depth": (1, 2, 4, 8, 16),
    "batch": (1, 2, 4, 8, 12, 16, 32, 64),
    "vocabulary": (257, 1024, 4096, 8192, 16384, 32000, 50304),
}
QUICK_VALUES = {"context": (16, 32), "width": (32, 64), "depth": (1, 2), "batch": (1, 2), "vocabulary": (70, 140)}
TITLES = {"context": "context", "width": "width (dim)", "depth": "layers", "batch": "sequences",
          "vocabulary": "vocabulary", "threads": "threads"}


class Plan:
    """The points of all curves: for each curve and cost, a base, and values with their shapes."""

    def __init__(self, quick, threads):
        self.values = dict(QUICK_VALUES if quick else VALUES)
        self.values["threads"] = [n for n in (2 ** i for i in range(16)) if n < threads] + [threads]
        self.step = Shape(2, 32, 16, 16, 70, 2, 0, threads) if quick else Shape(4, 128, 32, 64, 257, 12, 0, threads)
        self.token = self.step._replace(batch=1, position=self.step.ctx - 1)

    def shape(self, curve, cost, value):
        shape = self.token if cost == "token" else self.step
        if curve == "context" and cost == "token":
            return shape._replace(ctx=value, position=value - 1)
        if curve == "context":
            return shape._replace(ctx=value, batch=max(self.values["context"]) // value)
        name = {"width": "dim", "depth": "layers", "vocabulary": "vocab"}.get(curve, curve)
        return shape._replace(**{name: value})

    def base(self, curve, cost):
        if curve in ("context", "threads"):
            return self.values[curve][0]
        shape = self.token if cost == "token" else self.step
        return {"width": shape.dim, "depth": shape.layers, "batch": shape.batch, "vocabulary": shape.vocab}[curve]

    def shapes(self, curves):
        """All shapes in the order of the curves; a base occurs once for each curve that uses it."""
        return [self.shape(curve, cost, value) for curve in curves for cost in COSTS for value in self.values[curve]]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="CURVE[,CURVE]", default=",".join(CURVES), help="default: %(default)s")
    parser.add_argument("--isa", choices=("v2", "v3", "v4"), help="instruction set (default: the best that there is)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all, %(default)s")
    parser.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="tiny shapes and one round, to try the program itself")
    parser.add_argument("--markdown", metavar="FILE", help="write tables to FILE")
    parser.add_argument("--svg", metavar="DIR", help="write DIR/cost-of-a-step.svg and DIR/cost-of-a-token.svg")
    parser.add_argument("--from", metavar="FILE", dest="saved", help="take the points from FILE: measures nothing")
    parser.add_argument("--bench", metavar="PROGRAM", default="build/bench_kernels", help="default: %(default)s")
    args = parser.parse_args()
    args.only = args.only.split(",")
    unknown = [name for name in args.only if name not in CURVES]
    if unknown:
        parser.error(f"--only {unknown[0]}: use {', '.join(CURVES)}")
    for name in ("threads", "rounds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(args, name)}")
    if args.saved and not (args.markdown or args.svg):
        parser.error("--from needs --markdown or --svg")
    if not args.saved and not os.access(args.bench, os.X_OK):
        parser.error(f"{args.bench} is not there or not executable; run `make build/bench_kernels`")
    if args.quick:
        args.rounds = 1
    return args


# ---- measuring -----------------------------------------------------------------------------------------------------


def measure(args, shape):
    """The device's row and the point's row of one process of bench_kernels."""
    kind, group = ("decode", "token") if shape.position else ("train", "train")
    found = run_bench(args, shape.threads, "--only", group, "--shape", shape.text(), "--train-ms", str(TRAIN_MS))
    rows = {row["kind"]: row for row in found}
    row = rows[kind]
    if kind == "train" and row["batch"] != shape.batch:
        sys.exit(f"{shape.text()}: there is memory for a batch of {row['batch']} only")
    if kind == "train" and abs(row["flops_per_s"] * row["step_ms"] / (1e3 * shape.flops()) - 1) > 1e-3:
        sys.exit(f"{shape.text()}: model_step_flops counts other FLOPs than {shape.flops()}")
    return rows["device"], row


def measure_rounds(args, shapes):
    """The device's row, and the rows of each shape."""
    device, rows = None, {shape: [] for shape in shapes}
    for number in range(args.rounds):
        for i, shape in enumerate(shapes if number % 2 == 0 else shapes[::-1]):
            found, row = measure(args, shape)
            device = device or found
            rows[shape].append(row)
            print(f"round {number + 1}/{args.rounds}, {i + 1}/{len(shapes)}: {shape.text()}, {shape.threads} "
                  f"thread{'s' if shape.threads > 1 else ''}: {row['step_ms']:.4g} ms", file=sys.stderr)
    return device, rows


def point(plan, curve, cost, value, rows):
    base_value = plan.base(curve, cost)
    shape, base = plan.shape(curve, cost, value), plan.shape(curve, cost, base_value)
    times = [row["step_ms"] for row in rows[shape]]
    ms, base_ms = (statistics.median(row["step_ms"] for row in rows[s]) for s in (shape, base))
    arithmetic = base_ms * shape.flops() / base.flops() * base.threads / shape.threads
    more = {"gb_per_s": round(1e-9 * statistics.median(row["bytes_per_s"] for row in rows[shape]), 3)} \
        if cost == "token" else {}
    return {"kind": "point", "curve": curve, "cost": cost, "value": value, "base": value == base_value,
            **shape._asdict(), "heads": shape.dim // shape.head_dim, "ffn": shape.ffn(),
            "params": rows[shape][0]["params"], "tokens": shape.tokens(), "flops": shape.flops(),
            "attention_share": round(shape.attention_flops() / shape.flops(), 4), "ms": round(ms, 6),
            "ms_min": min(times), "ms_max": max(times), "arithmetic_ms": round(arithmetic, 6),
            "ratio": round(ms / arithmetic, 4), "gflop_per_s": round(1e-6 * shape.flops() / ms, 3), **more,
            "tokens_per_s": round(1e3 * shape.tokens() / ms, 1),
            "peak_memory_bytes": max(row["peak_memory_bytes"] for row in rows[shape]), "samples": len(times)}


def measure_all(args):
    """The lines of the output."""
    load = note_load()
    plan = Plan(args.quick, args.threads)
    device, rows = measure_rounds(args, plan.shapes(args.only))
    machine = {"kind": "machine", "processor": processor(), "isa": device["isa"], "threads": args.threads,
               "dtype": device["dtype"], "compiler": device["compiler"], "commit": device["commit"],
               "device": device["device"], "load": load, "rounds": args.rounds, "quick": args.quick}
    return [machine] + [point(plan, curve, cost, value, rows)
                        for curve in args.only for cost in COSTS for value in plan.values[curve]]


def read_lines(path, only):
    try:
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}")
    kept = [line for line in lines if line["kind"] == "machine"][:1]
    kept += [line for line in lines if line["kind"] == "point" and line["curve"] in only]
    return kept if len(kept) > 1 else sys.exit(f"{path}: no machine or no points of {', '.join(only)}")


# ---- tables --------------------------------------------------------------------------------------------------------


UNITS = {"step": ("ms", 1, "GFLOP", 1e-9), "token": ("µs", 1e3, "MFLOP", 1e-6)}


def number(x):
    """At least three digits, with commas."""
    if x == 0 or x >= 100:
        return f"{x:,.0f}"
    return f"{x:.{max(0, 2 - math.floor(math.log10(x)))}f}"


def table(heading, rows):
    lines = ["| " + " | ".join(heading) + " |", "|" + "---:|" * len(heading)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def about(machine):
    threads = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    return (f"{machine['processor']}, {threads}, {machine['isa'] or machine['device']}, {machine['dtype']}; "
            f"{machine['compiler']}; {machine['commit']}"
            + ("; tiny shapes, these numbers mean nothing" if machine["quick"] else ""))


def base_text(points):
    """The values of the other quantities."""
    base = next((p for p in points if p["base"]), points[0])
    return (f"{base['layers']} layers x {base['dim']}, heads of {base['head_dim']}, context {base['ctx']}, vocabulary "
            f"{base['vocab']}, batch {base['batch']}")


def groups(lines, cost):
    """The points of each curve."""
    found = {}
    for line in lines:
        if line.get("cost") == cost:
            found.setdefault(line["curve"], []).append(line)
    return found


def summary(curves):
    rows = []
    for curve, points in curves.items():
        first, last = points[0], points[-1]
        work = last["flops"] / first["flops"] * first["threads"] / last["threads"]
        per_thread = [p["gflop_per_s"] / p["threads"] for p in (first, last)]
        rows.append([f"{TITLES[curve]} {first['value']:,} to {last['value']:,}", f"{number(work)} x",
                     f"{number(last['ms'] / first['ms'])} x", *map(number, per_thread)])
    return table(["from the first to the last point", "work a thread", "time", "GFLOP/s a thread, first", "last"], rows)


def curve_table(curve, cost, points):
    unit, scale, work, work_scale = UNITS[cost]
    heading = [TITLES[curve], "parameters", work, "of it attention", unit, "least to most", "by arithmetic", "ratio",
               "GFLOP/s", "tokens/s", "GB/s" if cost == "token" else "MiB"]
    rows = []
    for p in points:
        last = p["gb_per_s"] if cost == "token" else p["peak_memory_bytes"] / 1048576
        value = f"**{p['value']:,}**" if p["base"] else f"{p['value']:,}"
        rows.append([value, f"{p['params']:,}", number(work_scale * p["flops"]), f"{100 * p['attention_share']:.0f} %",
                     number(scale * p["ms"]), f"{number(scale * p['ms_min'])} to {number(scale * p['ms_max'])}",
                     number(scale * p["arithmetic_ms"]), f"{p['ratio']:.2f}", number(p["gflop_per_s"]),
                     f"{p['tokens_per_s']:,.0f}", number(last)])
    return table(heading, rows)


def markdown(lines):
    rounds = lines[0]["rounds"]
    out = [f"{about(lines[0])}; medians of {rounds} round{'s' if rounds > 1 else ''}. The base of each curve is bold."]
    for cost in COSTS:
        curves = groups(lines, cost)
        out += ["", f"## {'A training step' if cost == 'step' else 'A generated token'}", "", *summary(curves)]
        for curve, points in curves.items():
            out += ["", f"### {curve.capitalize()}", "", f"Base: {base_text(points)}.", "",
                    *curve_table(curve, cost, points)]
    return "\n".join(out) + "\n"


# ---- pictures ------------------------------------------------------------------------------------------------------


WIDTH, MARGIN, TOP, COLUMNS = 960, 24, 110, 3
PANEL_WIDTH, PANEL_HEIGHT = 304, 300
LEFT, RIGHT, ABOVE, BELOW = 46, 14, 30, 46  # of the axes in a panel
def range_of(values):
    """The range of an axis with a margin, at least a factor of six."""
    low, high = min(values) / 1.2, max(values) * 1.2
    more = max(1, math.sqrt(6 * low / high))
    return low / more, high * more


def short(x):
    """50304: 50k"""
    return f"{x:.0f}" if x < 1000 else f"{x / 1000:.0f}k"


def rate(x):
    return f"{x:.1f}" if x < 10 else f"{x:,.0f}"


def panel(left, top, curve, cost, points):
    unit, scale = UNITS[cost][:2]
    measured, arithmetic = ([scale * p[key] for p in points] for key in ("ms", "arithmetic_ms"))
    low, high = range_of(measured + arithmetic)
    bottom, right = top + PANEL_HEIGHT - BELOW, left + PANEL_WIDTH - RIGHT
    x = LogAxis(points[0]["value"], points[-1]["value"], left + LEFT + 10, right - 8)
    y = LogAxis(low, high, bottom, top + ABOVE)
    title = TITLES[curve] + (f", {points[0]['tokens']:,} tokens a step" if (curve, cost) == ("context", "step") else "")
    out = [write_text(left + LEFT, top + ABOVE - 10, title, 12.5, "start", weight="bold"),
           write_text(left + LEFT - 5, top + ABOVE - 10, unit, anchor="end", color=GRAY)]
    for value in ticks(low, high):
        out += [write_line(left + LEFT, y(value), right, y(value), "#e4e4e4"),
                write_text(left + LEFT - 5, y(value) + 3.5, f"{value:,g}", anchor="end")]
    out += [write_line(left + LEFT, bottom, right, bottom, "#999"),
            write_text(left + LEFT - 5, bottom + 32, "GFLOP/s", 9, "end", GREEN)]
    places = [x(p["value"]) for p in points]
    out.append(write_curve(zip(places, map(y, arithmetic)), GRAY, 1.3, "5 4"))
    out.append(write_curve(zip(places, map(y, measured)), BLUE, 1.8))
    for place, p in zip(places, points):
        out += [write_line(place, bottom, place, bottom + 4, "#999"),
                write_text(place, bottom + 16, short(p["value"]), 9, weight="bold" if p["base"] else "normal"),
                write_text(place, bottom + 32, rate(p["gflop_per_s"]), 9, color=GREEN),
                write_line(place, y(scale * p["ms_min"]), place, y(scale * p["ms_max"]), BLUE, 1.2),
                f'<circle cx="{place:.1f}" cy="{y(scale * p["ms"]):.1f}" r="3.2" fill="{BLUE}"/>']
    return out


def legend():
    y, second = 95, 418
    return [write_curve([(MARGIN, y - 4), (MARGIN + 28, y - 4)], BLUE, 1.8),
            f'<circle cx="{MARGIN + 14}" cy="{y - 4}" r="3.2" fill="{BLUE}"/>',
            write_text(MARGIN + 35, y, "measured: median, least and most of the rounds", 11.5, "start"),
            write_curve([(second, y - 4), (second + 28, y - 4)], GRAY, 1.3, "5 4"),
            write_text(second + 35, y, "its FLOPs at the speed of the base, the bold value", 11.5, "start"),
            write_text(WIDTH - MARGIN, y, "green: GFLOP/s measured", 11.5, "end", GREEN)]


def picture(lines, cost):
    curves = groups(lines, cost)
    height = TOP + PANEL_HEIGHT * -(-len(curves) // COLUMNS) + 12
    title = "What a training step costs on a CPU" if cost == "step" else "What a generated token costs on a CPU"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
           f'role="img" aria-label="{escape(title)}, by {escape(", ".join(curves))}">',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           write_text(MARGIN, 32, title, 19, "start", weight="bold"),
           write_text(MARGIN, 53, about(lines[0]), 12, "start", "#555"),
           write_text(MARGIN, 71, f"Around {base_text(list(curves.values())[-1])}", 12, "start", "#555"), *legend()]
    for i, (curve, points) in enumerate(curves.items()):
        left = MARGIN - 10 + i % COLUMNS * (PANEL_WIDTH + 6)
        out += panel(left, TOP + i // COLUMNS * PANEL_HEIGHT, curve, cost, points)
    return "\n".join(out) + "\n</svg>\n"


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    args = parse_arguments()
    lines = read_lines(args.saved, args.only) if args.saved else measure_all(args)
    if not args.saved:
        print("\n".join(map(json.dumps, lines)), flush=True)
    if args.markdown:
        write(args.markdown, markdown(lines))
    if args.svg:
        os.makedirs(args.svg, exist_ok=True)
        for cost in COSTS:
            write(os.path.join(args.svg, f"cost-of-a-{cost}.svg"), picture(lines, cost))


if __name__ == "__main__":
    main()
