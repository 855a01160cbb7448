#!/usr/bin/env python3
"""Compares the validation loss of ./train with PyTorch's on this machine's CPU, with AdamW and with Muon.

    make train build/stories
    scripts/measure/bench_quality.py book.txt >quality.jsonl                    # all workloads: takes long
    scripts/measure/bench_quality.py book.txt --workload nano --seeds 1 2 --markdown quality.md
    scripts/measure/bench_quality.py --workload stories --minutes 1             # as many tokens as fit: needs no text
    scripts/measure/bench_quality.py --from quality.jsonl --markdown quality.md # tables and charts only, no measurement

Workloads: nano and baby (LLaMA models on the bytes of a text) and models of two sizes on the demo's stories, whose
entropy is known. Systems: ./train and PyTorch (in its own process), each with AdamW and with Muon in f32, and ./train
with Muon in bf16 if it accepts an instruction set for bf16. PyTorch uses the model of compare_torch.py, compiled if
there is a C++ compiler (--no-compile: eager). Its Muon is torch.optim.Muon on views of the matrices of the blocks, with
separate queries, keys, values, gate and up, and AdamW on the rest, as in ./train; it iterates in bf16, ./train on a CPU
in f32. Text, windows of the validation text, schedule, clipping, weight decay and the standard deviations of the
initial weights are the same; random numbers are not. Learning rates and batch sizes depend on the optimizer, not on the program: for nano and baby they come from the experiments of scripts/measure/learning.py,
for Muon on stories from the demo; those for AdamW on stories were tuned by hand. --set tries other values for a system.

All runs evaluate at the same numbers of tokens, on the same part of the validation text as ./train (of a text of more
than 64 k tokens, only the beginning, so that it costs 5 % of the time). After the last step, they evaluate on all of
it: this is the loss of the run, in nats per byte. Curves, and everything read from them, use the smaller part. Seconds
count training only: not reading, compiling, warming up, evaluating or saving. Systems alternate seed by seed, in
reverse order for every second seed.

For equal tokens, a row is the mean over seeds, with minimum and maximum. For equal seconds, it is read from the curve
at the time when the fastest system finishes; slower systems have not finished their schedule then, where the loss falls
most. To compare fairly what a minute buys, use --minutes: each system trains on as many tokens as it can process in
that time (estimated from a few steps), and so completes its schedule. Losses during such runs belong to different
numbers of tokens, so there are no tables of them.

Prints JSON lines: one per run, then one per system and workload. Tables and progress go to stderr. Exit status 2: the
request cannot be measured here (no PyTorch, no text, no ./train); 1: a run failed.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

from bench import note_load, processor
from metrics import evaluations
from quality_picture import picture
from quality_tables import about, tables

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quality_torch.py")

SYSTEMS = {  # name: program, optimizer, dtype
    "inkling adamw": ("inkling", "adamw", "f32"), "inkling muon": ("inkling", "muon", "f32"),
    "inkling muon bf16": ("inkling", "muon", "bf16"),
    "pytorch adamw": ("pytorch", "adamw", "f32"), "pytorch muon": ("pytorch", "muon", "f32")}
COMMON = {"wd": 0.1, "beta2": 0.95, "min-lr-frac": 0.1, "init-std": 0.02, "warmup-frac": 0.05}
MOMENTUM = {"momentum": 0.95}  # of Muon
STORIES_BYTES, STORIES_TAIL = 2000000, 0.05  # as scripts/demo.sh


class Workload(NamedTuple):
    shape: dict
    tokens: float
    adamw: dict
    muon: dict
    stories: bool = False


WORKLOADS = {
    "nano": Workload(dict(layers=4, heads=4, dim=128, ctx=64), 1.536e6, {"batch": 12, "lr": 2e-3},
                     {"batch": 24, "muon-lr": 0.01, "lr": 3e-3}),
    "baby": Workload(dict(layers=6, heads=6, dim=384, ctx=256), 1e6, {"batch": 8, "lr": 1e-3},
                     {"batch": 8, "muon-lr": 0.02, "lr": 3e-3}),
    "stories": Workload(dict(layers=4, heads=4, dim=64, ctx=448), 4e6,
                        {"batch": 2, "lr": 4e-3, "beta2": 0.98, "min-lr-frac": 0.02},
                        {"batch": 2, "muon-lr": 0.02, "lr": 8e-3, "min-lr-frac": 0.02}, True),
    "stories-large": Workload(dict(layers=4, heads=4, dim=128, ctx=448), 6e6,
                              {"batch": 2, "lr": 2e-3, "beta2": 0.98, "min-lr-frac": 0.02},
                              {"batch": 2, "muon-lr": 0.02, "lr": 4e-3, "min-lr-frac": 0.02}, True),
}


def refuse(message, status=2):
    print(f"bench_quality.py: {message}", file=sys.stderr)
    sys.exit(status)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = lambda message: refuse(f"{message}; --help lists everything")
    parser.add_argument("text", nargs="?", help="text file to train on; its last tenth is for validation")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="default: all")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all")
    parser.add_argument("--seeds", nargs="+", type=seeds, default=[[1, 2, 3]], help="default: 1 2 3")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--tokens", type=float, help="to train on (default: by workload)")
    length.add_argument("--minutes", type=float, help="each system trains on the tokens that it does in this time")
    parser.add_argument("--evaluations", type=int, default=20, help="of a run (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument("--set", nargs="+", default=[], metavar="SYSTEM:NAME=VALUE", dest="changes",
                        help='a setting of one system: "pytorch adamw:lr=0.004"')
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction,
                        default=any(map(shutil.which, ("c++", "g++", "clang++"))),
                        help="PyTorch's model under torch.compile (default: where there is a C++ compiler)")
    parser.add_argument("--train", default="./train", help="default: %(default)s")
    parser.add_argument("--stories", default="build/stories", help="the program that writes them; default: %(default)s")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to FILE")
    parser.add_argument("--svg", metavar="FILE", help="draw the curves into FILE")
    parser.add_argument("--from", metavar="FILE", dest="saved", help="take the runs from FILE: measures nothing")
    args = parser.parse_args()
    for name in ("tokens", "minutes", "evaluations", "threads"):
        value = getattr(args, name)
        if value is not None and not 0 < value < 1e12:
            parser.error(f"--{name} must be above 0, not {value:g}")
    args.seeds = [seed for group in args.seeds for seed in group]
    if not args.seeds or min(args.seeds) < 0:
        parser.error("--seeds: use numbers from 0 on")
    args.changes = [parse_change(parser, text) for text in args.changes]
    return args


def seeds(text):
    """Accepts `--seeds "1 2 3"`, too."""
    return [int(word) for word in text.split()]


def parse_change(parser, text):
    match = re.fullmatch(r"(.*):([a-z0-9-]+)=(.*)", text)
    known = {*COMMON, *MOMENTUM, "batch", "lr", "muon-lr"}
    if not match or match[1] not in SYSTEMS or match[2] not in known:
        parser.error(f"--set {text}: use SYSTEM:NAME=VALUE with a system and one of {', '.join(sorted(known))}")
    try:
        value = int(match[3]) if match[2] == "batch" else float(match[3])
    except ValueError:
        value = -1
    if not 0 <= value < 1e6 or match[2] == "batch" and not value:
        parser.error(f"--set {text}: {match[3]} cannot be a {match[2]}")
    return match[1], match[2], value


# ---- what is measured ----------------------------------------------------------------------------------------------


def split_text(args, folder):
    """The training file and the validation file."""
    with open(args.text, "rb") as file:
        data = file.read()
    cut = len(data) - min(len(data) // 10, 10 ** 6)
    return write_parts(data, cut, os.path.join(folder, "text"))


def write_parts(data, cut, name):
    for path, part in ((name + ".train.txt", data[:cut]), (name + ".val.txt", data[cut:])):
        with open(path, "wb") as file:
            file.write(part)
    return name + ".train.txt", name + ".val.txt"


def write_stories(args, folder):
    """The training file, the validation file, and the entropy of the latter in nats per byte."""
    text, report = os.path.join(folder, "all.txt"), os.path.join(folder, "entropy.json")
    subprocess.run([args.stories, "--bytes", str(STORIES_BYTES), "--seed", "1", "--val-frac", str(STORIES_TAIL),
                    "-o", text, "--report", report], check=True, stderr=subprocess.DEVNULL)
    with open(text, "rb") as file, open(report, encoding="utf-8") as numbers:
        data, numbers = file.read(), json.load(numbers)
    files = write_parts(data, len(data) - numbers["val_bytes"], os.path.join(folder, "stories"))
    return (*files, numbers["val_bits_per_byte"] * math.log(2))


def settings_of(args, name, system):
    optimizer = SYSTEMS[system][1]
    settings = {**COMMON, **(MOMENTUM if optimizer == "muon" else {}), **getattr(WORKLOADS[name], optimizer)}
    settings.update({key: value for which, key, value in args.changes if which == system})
    return settings


def plan(args, name, system, tokens, points):
    """The settings of a run except its seed. It is evaluated every `every` steps, after the same numbers of tokens as the
    other systems, whatever their batch sizes."""
    shape, (_, optimizer, dtype), settings = WORKLOADS[name].shape, SYSTEMS[system], settings_of(args, name, system)
    rows = math.lcm(*(settings_of(args, name, s)["batch"] for s in args.systems))
    every = max(1, round(tokens / points / (rows * shape["ctx"]))) * rows // settings["batch"]
    return {**settings, "shape": shape, "optimizer": optimizer, "dtype": dtype, "isa": args.isa[dtype],
            "steps": every * points, "every": every, "warmup": math.ceil(settings["warmup-frac"] * every * points),
            "threads": args.threads, "compile": args.compile}


def part_windows(run, val):
    """Number of validation windows used in every evaluation, as in part_windows() of src/train/evaluation.c."""
    tokens = os.path.getsize(val) + 1
    if tokens <= 65536:
        return math.ceil((tokens - 1) / run["shape"]["ctx"])
    return max(run["batch"], int(0.05 * 3.0 * run["every"] * run["batch"]))


def run_program(command, what, threads):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        cause = (done.stderr.strip().splitlines() or ["no message"])[-1]
        refuse(f"{what} failed with status {done.returncode}: {cause}", 1)
    return done.stdout


def run_inkling(args, run, files, what):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        run_program(inkling_command(args, run, files, out), what, run["threads"])
        curve, loss = evaluations(out)
    return {"loss": loss, "curve": curve}


def inkling_command(args, run, files, out):
    command = [args.train, files[0], "--val", files[1], "--out", out, "--overwrite", "--quiet", "--device=cpu",
               "--arch=llama", "--tokenizer=byte", "--pack=stream", "--no-tie", "--dropout=0", "--sample-tokens=0", "--save-every=0",
               "--clip=1", "--eps=1e-8", f"--eval-every={run['every']}", f"--log-every={run['every']}"]
    command += [f"--{key}={value}" for key, value in run["shape"].items()]
    return command + [f"--{key}={run[key]}" for key in (
        "optimizer", "dtype", "steps", "batch", "warmup", "lr", "wd", "momentum", "beta2", "min-lr-frac", "init-std",
        "threads", "seed", "muon-lr", "isa") if run.get(key) is not None]


def run_pytorch(args, run, files, what):
    request = json.dumps({**run, "files": files[:2], "prefix": part_windows(run, files[1])})
    printed = run_program([args.python, WORKER, request], what, run["threads"])
    return json.loads(printed.splitlines()[-1])


def measure(args, name, system, seed, files, tokens, points):
    run = {**plan(args, name, system, tokens, points), "seed": seed}
    what = f"{name}, {system}, seed {seed}"
    got = (run_inkling if SYSTEMS[system][0] == "inkling" else run_pytorch)(args, run, files, what)
    curve = [[count, round(seconds, 4), round(loss, 6)] for count, seconds, loss in got["curve"]]
    settings = {key: value for key, value in run.items() if key not in ("seed", "threads")}
    return {"kind": "run", "workload": name, "system": system, "seed": seed, "loss": round(got["loss"], 6),
            "tokens": curve[-1][0], "seconds": curve[-1][1], "curve": curve, "minutes": args.minutes,
            "entropy": files[2] if len(files) > 2 else None, "settings": settings, "threads": args.threads,
            "version": got.get("version"), "processor": processor()}


def measure_workload(args, name, files):
    systems = [s for s in args.systems if args.isa[SYSTEMS[s][2]] is not False]
    budget = dict.fromkeys(systems, args.tokens or WORKLOADS[name].tokens)
    for system in systems if args.minutes else ():
        tokens = 80 * settings_of(args, name, system)["batch"] * WORKLOADS[name].shape["ctx"]
        trial = measure(args, name, system, args.seeds[0], files, tokens, 4)
        budget[system] = 60 * args.minutes * trial["tokens"] / trial["seconds"]
        print(f"{name}, {system}: {budget[system]:.0f} tokens in {args.minutes:g} minutes", file=sys.stderr)
    rows = []
    for i, seed in enumerate(args.seeds):
        for system in systems[::-1] if i % 2 else systems:
            row = measure(args, name, system, seed, files, budget[system], args.evaluations)
            print(json.dumps(row), flush=True)
            print(f"{name}, {system}, seed {seed}: {row['loss']:.4f} nats per byte, {row['tokens']} tokens in "
                  f"{row['seconds']:.1f} s", file=sys.stderr)
            rows.append(row)
    return rows


# ---- the benchmark -------------------------------------------------------------------------------------------------


def check_present(args):
    """Reports everything that is missing before measuring anything."""
    programs = {SYSTEMS[s][0] for s in args.systems}
    names = [name for name in args.workload if not WORKLOADS[name].stories]
    if names and not (args.text and os.path.isfile(args.text)):
        refuse(f"{args.text}: no such text file" if args.text else f"--workload {names[0]} needs a text file")
    if "inkling" in programs and not shutil.which(args.train):
        refuse(f"{args.train} is not there or not executable; run `make train`, or name it with --train")
    if len(names) < len(args.workload) and not shutil.which(args.stories):
        refuse(f"{args.stories} is not there or not executable; run `make build/stories`, or name it with --stories")
    if "pytorch" not in programs:
        return
    probe = subprocess.run([args.python, "-c", "import torch; torch.optim.Muon"], capture_output=True, text=True) \
        if shutil.which(args.python) else None
    if not probe or probe.returncode:
        cause = (probe.stderr.strip().splitlines() or ["no message"])[-1] if probe else "not there or not executable"
        refuse(f"{args.python} has no PyTorch with Muon ({cause}); name an interpreter that has one with --python, or "
               "leave PyTorch out with --systems")


def instruction_sets(args, text):
    """{dtype: --isa for training; None: the default of ./train; False: not supported}"""
    found = {"f32": None, "bf16": False}
    if any(SYSTEMS[s][2] == "bf16" for s in args.systems):
        for isa in ("avx512bf16", "amx"):
            probe = [args.train, text, "--device=cpu", "--tokenizer=byte", "--preset=nano", "--val-frac=0",
                     "--dtype=bf16", f"--isa={isa}", "--dry-run", "--quiet", "--out", text + ".run"]
            if not subprocess.run(probe, capture_output=True, check=False).returncode:
                found["bf16"] = isa
    if found["bf16"] is False and any(SYSTEMS[s][2] == "bf16" for s in args.systems):
        print("note: no system in bf16: ./train has no bf16 instructions on this processor", file=sys.stderr)
    return found


def measure_all(args):
    check_present(args)
    note_load()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        parts = {stories: (write_stories if stories else split_text)(args, folder)
                 for stories in {WORKLOADS[name].stories for name in args.workload}}
        args.isa = instruction_sets(args, next(iter(parts.values()))[1])
        for name in args.workload:
            rows += measure_workload(args, name, parts[WORKLOADS[name].stories])
    return rows


def read_runs(path):
    try:
        with open(path, encoding="utf-8") as file:
            runs = [row for row in map(json.loads, file) if row["kind"] == "run"]
    except OSError as error:
        refuse(f"{path}: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        refuse(f"{path} does not hold the JSON lines that this script prints")
    return runs or refuse(f"{path} holds no run")


def write(path, text):
    try:
        if path:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        refuse(f"{path}: {error.strerror}", 1)


def main():
    args = parse_arguments()
    runs = read_runs(args.saved) if args.saved else measure_all(args)
    text, systems = tables(runs)
    for row in systems:
        print(json.dumps(row))
    print("\n" + text, end="", file=sys.stderr)
    for path, content in ((args.markdown, text), (args.svg, args.svg and picture(systems, about(runs)))):
        write(path, content)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        refuse("stopped; --from draws what was printed until then", 130)
