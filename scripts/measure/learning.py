#!/usr/bin/env python3
"""Finds the settings that learn best: runs experiments and makes the tables and charts of docs/measurements/experiments.md.

    make
    scripts/measure/learning.py run nano --text book.txt --minutes 60    # continues where it stopped
    scripts/measure/learning.py report                        # rewrites the tables and charts of docs/measurements/experiments.md
    scripts/measure/learning.py list

An experiment trains the same model on the same tokens many times and changes one setting at a time. A setting is robust
if nearby values are about as good. Every row is run with every seed, seed by seed, so that an interrupted experiment is
a smaller complete one. The result is the loss on the whole validation text at the end, in nats per byte; for small
texts, it is the loss of the model that ./train keeps, the best one of the run. The experiment "tokenizers" compares them
on several texts, which scripts/measure/corpora.py makes: give their folder as --text.

Each line of docs/measurements/learning.jsonl is the result of a run: its settings, the loss at every evaluation, seconds and the
processor. Runs in this file are not repeated. Exit status 2: the request cannot be run; 1: a run failed, or results are
missing.
"""

import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

from bench import processor
from metrics import evaluations
from svg import BLUE, DARK, GRAY, escape, write_curve, write_line, write_text

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "measurements")
RESULTS = os.path.join(DOCS, "learning.jsonl")


class Experiment(NamedTuple):
    """`vary`: for each setting, the values to try instead of the one in `base`. A row may change several settings: a
    dictionary under any name. "tokens" or "epochs" is the length of the training, whatever the batch size. "text" and
    "bytes" are the name of a text of corpora.py and how much of its beginning."""
    question: str
    base: dict
    vary: dict
    text_bytes: int = 0  # of the beginning of the text; 0: all, and its last tenth to validate on
    tail: int = 0  # bytes at the end of the text to validate on; 0: 30,000 or a hundredth of text_bytes
    kept: bool = False  # the result is the best evaluation

    def rows(self):
        """(what changes, settings)"""
        yield "", self.base
        for name, values in self.vary.items():
            for value in values:
                change = value if isinstance(value, dict) else {name: value}
                yield " ".join(f"{k} {v}" for k, v in change.items()), {**self.base, **change}


OLD = {"tokenizer": "byte", "dropout": 0, "arch": "llama"}
NANO = {**OLD, "preset": "nano", "ctx": 64, "tie": "no", "init-std": 0.02, "tokens": 1536000}
BABY = {**OLD, "preset": "baby", "tie": "yes", "init-std": 0.02, "tokens": 1024000}
MUON = {"optimizer": "muon", "muon-lr": 0.01, "lr": 0.003, "batch": 24, "wd": 0.1, "momentum": 0.95,
        "min-lr-frac": 0.1, "schedule": "cosine"}
ADAMW = {"optimizer": "adamw", "lr": 0.002, "batch": 12, "wd": 0.1, "beta2": 0.95, "min-lr-frac": 0.1,
         "schedule": "cosine"}
ADAMW_ROWS = ({"optimizer": "adamw", "lr": 0.001}, {"optimizer": "adamw", "lr": 0.002})
LFM2 = {**NANO, **MUON, "arch": "lfm2", "ctx": 256, "batch": 6, "momentum": 0.9}

EXPERIMENTS = {
    "mixers-nano": Experiment(
        "Convolutions and norms of queries and keys: Muon, nano, bytes, 1.5 M tokens of 1 MB of text", {**NANO, **MUON},
        {"arch": ("qwen3", "lfm2"),
         "mixer": [{"arch": "lfm2", "mixer": mixer} for mixer in ("CCCA", "CA", "C")],
         "longer windows": ({"ctx": 256, "batch": 6}, {"arch": "lfm2", "ctx": 256, "batch": 6}),
         "momentum": ({"arch": "lfm2", "ctx": 256, "batch": 6, "momentum": 0.9},)}),
    "mixers-baby": Experiment(
        "Convolutions and norms of queries and keys: Muon, baby, bytes, 500,000 tokens of 1 MB of text",
        {**BABY, **MUON, "batch": 8, "tokens": 512000}, {"arch": ("qwen3", "lfm2")}),
    "mixers-bpe": Experiment(
        "Convolutions and norms of queries and keys: Muon, 15m, BPE, 500,000 tokens of 5 MB of text",
        {**BABY, **MUON, "preset": "15m", "tokenizer": "bpe", "vocab-size": 4096, "batch": 8, "tokens": 512000},
        {"arch": ("qwen3", "lfm2")}, text_bytes=5000000),
    "nano": Experiment(
        "Muon, nano, bytes, 1.5 M tokens of 1 MB of text", LFM2,
        {"muon-lr": (0.005, 0.007, 0.014, 0.02), "lr": (0.001, 0.006, 0.012), "momentum": (0.8, 0.85, 0.95),
         "batch": (3, 4, 8, 12, 24), "wd": (0, 0.3, 1), "min-lr-frac": (0, 0.03), "schedule": ("linear", "wsd"),
         "tie": ("yes",), "warmup": (10, 100, 200), "mixer": ("CCCA", "CA", "C", "ACC", "CAC"), "qk-norm": ("no",),
         "windows": ({"ctx": 128, "batch": 12}, {"ctx": 512, "batch": 3}, {"ctx": 64, "batch": 24}), "dropout": (0.1,),
         "heads": (2, 8), "beta2": (0.98, 0.99), "init-std": (0.04,), "ffn": (256, 512),
         "shape": ({"layers": 6}, {"layers": 3, "dim": 160, "heads": 5}, {"layers": 2, "dim": 192, "heads": 6}),
         "both": ({"batch": 3, "muon-lr": 0.007}, {"batch": 12, "muon-lr": 0.014},
                  {"momentum": 0.85, "muon-lr": 0.014})}),
    "nano-adamw": Experiment(
        "AdamW, nano, bytes, 1.5 M tokens of 1 MB of text", {**NANO, **ADAMW},
        {"lr": (0.001, 0.004, 0.008), "batch": (6, 24), "beta2": (0.98, 0.99), "wd": (0, 0.3), "min-lr-frac": (0, 0.03),
         "schedule": ("linear", "wsd"), "init-std": (0.04, 0.08), "tie": ("yes",)}),
    "baby-muon": Experiment(
        "Muon, baby, bytes, 1 M tokens of 1 MB of text", {**BABY, **MUON, "batch": 8},
        {"tokens": (512000, 680000), "muon-lr": (0.005, 0.02, 0.04), "batch": (4, 16, 32), "lr": (0.001, 0.01),
         "wd": (0,), "tie": ("no",),
         "together": ({"batch": 16, "muon-lr": 0.02}, {"batch": 16, "tokens": 680000},
                      {"muon-lr": 0.02, "tokens": 680000})}),
    "baby-adamw": Experiment(
        "AdamW, baby, bytes, 1 M tokens of 1 MB of text", {**BABY, **ADAMW, "lr": 0.001, "batch": 8},
        {"lr": (0.0005, 0.002), "init-std": (0.04,), "batch": (4, 16), "beta2": (0.99,),
         "together": ({"batch": 16, "lr": 0.002},)}),
    "parts-muon": Experiment(
        "Other Transformers: Muon, nano, bytes, 1.5 M tokens",
        {**{k: v for k, v in NANO.items() if k not in ("tie", "init-std")}, **MUON},
        {"arch": ("gpt2", "opt", "original"), "norm-place": ("branch",), "muon-lr": (0.02,),
         "both": ({"arch": "gpt2", "muon-lr": 0.02}, {"arch": "opt", "muon-lr": 0.02},
                  {"arch": "original", "muon-lr": 0.02}, {"arch": "original", "muon-lr": 0.005},
                  {"norm-place": "branch", "muon-lr": 0.02})}),
    "bpe-muon": Experiment(
        "BPE: Muon, nano, 1.5 M tokens of 1 MB of text",
        {**NANO, **MUON, "tokenizer": "bpe", "vocab-size": 1024, "tie": "yes"},
        {"muon-lr": (0.005, 0.02), "lr": (0.0015, 0.006), "adamw": [{**row, "batch": 12} for row in ADAMW_ROWS]}),
    "15m-muon": Experiment(
        "20 MB of Python's standard library, BPE: Muon, 15m, 1 M tokens",
        {**BABY, **MUON, "preset": "15m", "tokenizer": "bpe", "vocab-size": 4096, "batch": 8},
        {"muon-lr": (0.02,), "adamw": ADAMW_ROWS}, text_bytes=20000000),
}

SMALL = {k: v for k, v in LFM2.items() if k != "tokens"}
SHORTER = ({"epochs": 10}, {"epochs": 10, "wd": 4}, {"epochs": 15}, {"epochs": 15, "wd": 4})
for size, epochs, decay, lengths in ((20000, 20, 2, SHORTER),
                                     (200000, 10, 1, ({"epochs": 7, "wd": 0.7}, {"epochs": 15, "wd": 1.5}))):
    name = f"small-{size // 1000}k"
    EXPERIMENTS[name] = Experiment(
        f"{size // 1000} kB of text: Muon, nano, bytes", {**SMALL, "epochs": epochs, "wd": decay},
        {"wd": (0.1, decay / 2, 2 * decay), "dropout": (0.1,), "length": lengths, "tie": ("yes",),
         "windows": ({"ctx": 64, "batch": 24},), "arch": ("llama",)},
        text_bytes=size, kept=True)

# The shapes of models with the tokens that two cores of a CPU train on in a minute, five or thirty, at 10^11 FLOP/s.
FFN = {128: 352, 192: 512, 256: 704, 384: 1024}
SHAPE = {"arch": "lfm2", "ctx": 256, "batch": 6, "optimizer": "muon", "momentum": 0.9, "dropout": 0}


def step_flops(layers, dim, vocab, tokens):
    """The FLOPs of a step with Muon: six for each weight and token, and five iterations for each matrix."""
    def iterations(short, long):
        return 5 * (4 * short * short * long + 2 * short ** 3)

    ffn = FFN[dim]
    weights = layers * (4 * dim * dim + 3 * dim * ffn) + vocab * dim
    return 6 * weights * tokens + layers * (4 * iterations(dim, dim) + 3 * iterations(dim, ffn))


def shape(minutes, layers, heads, dim, batch=6, vocab=257):
    tokens = batch * SHAPE["ctx"]
    steps = round(minutes * 6e12 / step_flops(layers, dim, vocab, tokens))
    row = {"layers": layers, "heads": heads, "dim": dim, "batch": batch, "tokens": steps * tokens}
    return row | ({"tokenizer": "bpe", "vocab-size": vocab} if vocab > 257 else {"tokenizer": "byte"})


SHAPES = ((2, 2, 128), (4, 4, 128), (6, 4, 128), (4, 6, 192), (6, 6, 192), (6, 8, 256), (6, 6, 384))
for minutes, shapes in ((1, [shape(1, *s) for s in SHAPES]),
                        (5, [shape(5, *s) for s in SHAPES[1:]] + [shape(5, *s, batch=12) for s in SHAPES[4:]]
                         + [shape(5, *s, vocab=2048) for s in SHAPES[1:6]])):
    base = shape(minutes, 4, 4, 128)
    EXPERIMENTS[f"shapes-{minutes}"] = Experiment(
        f"Shapes of models at equal FLOPs: 5 MB of English, {minutes} minute{'s' * (minutes > 1)} of two cores",
        {**SHAPE, **base}, {"shape": [s for s in shapes if s != base]}, text_bytes=5000000, tail=100000)

TEXTS = ("english", "russian", "chinese", "arabic", "code", "dna")
SIZES = {100000: (257, 512, 1024, 2048), 300000: (257, 512, 1024, 2048), 1000000: (257, 512, 1024, 2048, 4096),
         2000000: (257, 512, 1024, 2048), 5000000: (257, 512, 1024, 2048, 4096)}
TOKEN_BYTES = {257: 1, 512: 1.8, 1024: 2.3, 2048: 2.8, 4096: 3.3}  # about


def tokenizer_row(text, size, vocab):
    """At most fifteen epochs, and below 1 MB the weight decay of ./train: a tenth for each epoch."""
    row = shape(1, 4, 4, 128, vocab=vocab)
    tokens = size / TOKEN_BYTES[vocab]
    row["tokens"] = min(row["tokens"], round(15 * tokens / 1536) * 1536)
    if size < 1000000:
        row["wd"] = max(0.1, round(row["tokens"] / tokens) / 10)
    return {"text": text, "bytes": size, "tie": "yes" if vocab > 257 else "no", **row}


EXPERIMENTS["tokenizers"] = Experiment(
    "Tokenizers by text, nano, a minute of two cores", SHAPE,
    {"all": [tokenizer_row(text, size, vocab) for text in TEXTS for size, vocabs in SIZES.items() for vocab in vocabs]},
    tail=100000, kept=True)


# ---- running ----

def arguments_of(settings):
    """The settings as options of ./train; for AdamW without Muon's."""
    for name, value in settings.items():
        if settings["optimizer"] == "adamw" and name in ("muon-lr", "momentum"):
            continue
        if value in ("yes", "no"):
            yield "--" + name if value == "yes" else "--no-" + name
        else:
            yield f"--{name}={value}"


def key_of(name, settings, seed):
    """The key of a result. It includes the name of the experiment, because experiments use different texts."""
    return name, json.dumps(settings, sort_keys=True), seed


def refuse(message, status=2):
    sys.exit(print(f"learning.py: {message}", file=sys.stderr) or status)


def read_results(path):
    """Invalid lines, such as one that was cut off, are skipped with a warning."""
    found = []
    if not os.path.exists(path):
        return found
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                result = json.loads(line)
                key_of(result["experiment"], result["settings"], result["seed"])
                found.append(result)
            except (ValueError, KeyError, TypeError):
                print(f"learning.py: {path}:{number} is no result and is left out", file=sys.stderr)
    return found


CUTTING = threading.Lock()


def text_arguments(path, experiment, settings, folder):
    """The arguments for the training and validation texts, which are cut at characters."""
    name, count = settings.get("text"), settings.get("bytes", experiment.text_bytes)
    tail = experiment.tail or max(30000, count // 100)
    if name:
        path = os.path.join(path, f"{name}.txt")
    if not count:
        return [path]
    parts = [os.path.join(folder, f"{name}-{count}.txt"), os.path.join(folder, f"{name}-tail-{tail}.txt")]
    with CUTTING:
        if not all(map(os.path.exists, parts)):
            with open(path, "rb") as file:
                text = file.read()
            for part, piece in zip(parts, (text[:count], text[-tail:])):
                with open(part, "wb") as file:
                    file.write(piece.decode("utf-8", "ignore").encode())
    return [parts[0], "--val", parts[1]]


def train(options, text, experiment, settings, seed, out):
    """Trains one run. Returns its evaluations as [tokens, nats per byte] and its seconds, or None if it failed (stderr says
    why)."""
    settings = {k: v for k, v in settings.items() if k not in ("text", "bytes")}
    tokens = settings.pop("tokens") if "tokens" in settings else experiment.text_bytes * settings.pop("epochs")
    steps = max(1, round(tokens / (settings["batch"] * settings.get("ctx", 256))))
    command = [options.train, *text, "--out", out, "--overwrite", "--quiet", "--threads=1", f"--steps={steps}",
               f"--seed={seed}", "--sample-tokens=0", "--save-every=0", f"--device={options.device}", "--dtype=f32",
               f"--eval-every={max(1, steps // (20 if experiment.kept else 10))}"]
    start = time.monotonic()
    done = subprocess.run([*command, *arguments_of(settings)], capture_output=True, text=True)
    if done.returncode:
        print(f"{' '.join(done.args)}: {done.stderr.strip()}", file=sys.stderr)
        if done.returncode != 6:  # not finite: a result like others
            return None
    curve, last = evaluations(out)
    curve = [[count, round(loss, 5) if math.isfinite(loss) else None] for count, _, loss in curve]
    loss = round(last, 5) if not done.returncode and last is not None else None
    kept = score(options.train, out, text[-1]) if loss is not None and experiment.kept else loss
    shutil.rmtree(out)
    return {"loss": loss, "kept": kept, "curve": curve, "steps": steps, "seconds": round(time.monotonic() - start, 1)}


def score(program, run_directory, text):
    """The loss of the model that the run kept: the best of its evaluations."""
    generate = os.path.join(os.path.dirname(program), "generate")
    done = subprocess.run([generate, run_directory, "--score", text, "--quiet", "--threads=1"], capture_output=True,
                          text=True, check=True)
    return round(json.loads(done.stdout)["bits_per_byte"] * math.log(2), 5)


def pending(options, results):
    """The runs still to do: every row with the first seed, then with the next."""
    done = {key_of(r["experiment"], r["settings"], r["seed"]) for r in results}
    for seed in range(1, options.seeds + 1):
        for name in options.names:
            for row, settings in EXPERIMENTS[name].rows():
                if key_of(name, settings, seed) not in done and re.fullmatch(options.rows, row):
                    yield name, row, settings, seed


def check(options):
    """Reports everything that is missing before running anything. Returns the identity of the text, because a table must
    not mix texts."""
    generate = os.path.join(os.path.dirname(options.train), "generate")
    for program in (options.train, generate):
        if not shutil.which(program):
            refuse(f"{program} is not there or not executable; run `make`, or name ./train with --train")
    folder = os.path.dirname(os.path.abspath(options.results))
    if not os.access(folder, os.W_OK):
        refuse(f"cannot write into {folder}")
    if options.names == ["tokenizers"]:
        paths = [os.path.join(options.text, f"{text}.txt") for text in TEXTS]
    elif "tokenizers" in options.names:
        refuse("the experiment tokenizers has texts of its own; run it alone")
    else:
        paths = [options.text]
    sums = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError as error:
            refuse(f"{path}: {error.strerror}")
        sums.update(text)
        for name in options.names:
            needed = max(row.get("bytes", EXPERIMENTS[name].text_bytes) for _, row in EXPERIMENTS[name].rows())
            if len(text) < needed + max(30000, needed // 100, 1):
                refuse(f"{path} has {len(text)} bytes, too few for {name}")
    return sums.hexdigest()[:12]


def run(options):
    text_sum, results = check(options), read_results(options.results)
    for result in results:
        if result["experiment"] in options.names and result.get("text") != text_sum:
            refuse(f"{options.results} has results of {result['experiment']} with another text; give another --results")
    jobs, failed = list(pending(options, results)), []
    if not jobs:
        print("learning.py: nothing is left to run", file=sys.stderr)
    until = time.monotonic() + 60 * options.minutes
    machine, lock = processor() if options.device == "cpu" else "GPU", threading.Lock()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        def work(job, number):
            name, row, settings, seed = job
            if time.monotonic() > until or failed:
                return
            experiment = EXPERIMENTS[name]
            text = text_arguments(options.text, experiment, settings, folder)
            got = train(options, text, experiment, settings, seed, os.path.join(folder, str(number)))
            if not got:
                failed.append(job)
                return
            result = {"experiment": name, "text": text_sum, "settings": settings, "seed": seed, **got,
                      "processor": machine}
            with lock, open(options.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
                print(f"{name:14} {row or '-':28} seed {seed}: {got['loss']} ({got['seconds']:.0f} s)", flush=True)
        try:
            list(pool.map(work, jobs, range(len(jobs))))
        except KeyboardInterrupt:
            failed.append(None)  # the runs end by the same Ctrl-C
            print("learning.py: stopped; the same command goes on", file=sys.stderr)
    if failed:
        sys.exit(1)


# ---- tables and pictures ----

class Row(NamedTuple):
    """A row of a table: the results of several seeds."""
    change: str
    losses: list  # None: diverged

    def mean(self):
        return statistics.mean(self.losses) if None not in self.losses else math.inf


def rows_of(name, results):
    """In the order of the experiment; rows without a result are left out."""
    for change, settings in EXPERIMENTS[name].rows():
        key = "kept" if EXPERIMENTS[name].kept else "loss"
        losses = [r[key] for r in results if (r["experiment"], r["settings"]) == (name, settings)]
        if losses:
            yield Row(change, losses)


def table(name, results):
    rows = list(rows_of(name, results))
    base = rows[0].mean()
    settings = ", ".join(f"{k} {v}" for k, v in EXPERIMENTS[name].base.items())
    lines = [f"{EXPERIMENTS[name].question}. Base: {settings}.", "",
             "| change | loss, nats per byte | difference | min to max | seeds |", "|---|---|---|---|---|"]
    for row in rows:
        if row.mean() == math.inf:
            lines.append(f"| {row.change} | diverged ({row.losses.count(None)} of {len(row.losses)}) | | | |")
            continue
        spread = f"{min(row.losses):.3f} to {max(row.losses):.3f}"
        lines.append(f"| {row.change or 'none (base)'} | {row.mean():.4f} | {row.mean() - base:+.4f} | {spread} "
                     f"| {len(row.losses)} |")
    return lines


def tokenizer_table(results):
    """Bits per byte of bytes and of each BPE, and how much more that is than the best of the row, in percent."""
    lines = ["| text | bytes of text | a token is a byte | BPE of 512 | 1024 | 2048 | 4096 |", "|" + "---|" * 7]
    found, wanted = {}, [settings for _, settings in EXPERIMENTS["tokenizers"].rows()]
    for r in results:
        settings = r["settings"]
        if r["experiment"] == "tokenizers" and settings in wanted:
            vocab = settings.get("vocab-size", 257)
            found.setdefault((settings["text"], settings["bytes"]), {})[vocab] = r["kept"] / math.log(2)
    for text in TEXTS:
        for size in SIZES:
            row = found.get((text, size))
            if not row:
                continue
            best = min(row.values())
            cells = [f"{row[v]:.3f} ({100 * (row[v] / best - 1):+.1f} %)" if v in row else "" for v in TOKEN_BYTES]
            lines.append("| " + " | ".join([text, f"{size:,}", *cells]) + " |")
    return lines


def panels(name, results):
    """For each numeric setting: [(value, row)] including the base, sorted by value."""
    experiment, found = EXPERIMENTS[name], {row.change: row for row in rows_of(name, results)}
    for setting, values in experiment.vary.items():
        if isinstance(values[0], (dict, str)):
            continue
        points = [(value, found[f"{setting} {value}"]) for value in values if f"{setting} {value}" in found]
        if setting in experiment.base:
            points.append((experiment.base[setting], found[""]))
        if len(points) > 1:
            yield setting, sorted(points)


PANEL_WIDTH, PANEL_HEIGHT, COLUMNS, TOP = 230, 190, 4, 62


def draw_panel(left, top, setting, points, low, high):
    def y(loss):
        return top + 30 + (min(high, max(low, loss)) - high) / (low - high) * (PANEL_HEIGHT - 72)

    step = (PANEL_WIDTH - 78) / max(1, len(points) - 1)
    places = [left + 54 + i * step for i in range(len(points))]
    out = [write_text(left + 40, top + 16, setting, 12, "start", weight="bold")]
    for i in range(4):
        loss = low + (high - low) * i / 3
        out += [write_line(left + 40, y(loss), left + PANEL_WIDTH - 10, y(loss), "#e4e4e4"),
                write_text(left + 36, y(loss) + 3.5, f"{loss:.3f}", 9, "end")]
    out.append(write_curve([(x, y(row.mean())) for x, (_, row) in zip(places, points)], BLUE, 1.8))
    for x, (value, row) in zip(places, points):
        out.append(write_text(x, top + PANEL_HEIGHT - 24, f"{value:g}", 9, weight="normal" if row.change else "bold"))
        if row.mean() == math.inf:
            out.append(write_text(x, y(high) - 4, "diverged", 8, color=GRAY))
            continue
        out += [write_line(x, y(min(row.losses)), x, y(max(row.losses)), BLUE, 1.2),
                f'<circle cx="{x:.1f}" cy="{y(row.mean()):.1f}" r="3" fill="{BLUE if row.change else DARK}"/>']
    return out


def picture(title, shown):
    """One panel per setting, all with the same loss axis, which leaves out hopeless settings."""
    losses = [loss for _, points in shown for _, row in points for loss in row.losses if loss is not None]
    low = min(losses) - 0.004
    high = low + min(max(losses) - low, 0.12)
    width, height = 24 + COLUMNS * PANEL_WIDTH, TOP + -(-len(shown) // COLUMNS) * PANEL_HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           f'role="img" aria-label="{escape(title)}">', f'<rect width="{width}" height="{height}" fill="#fff"/>',
           write_text(20, 28, title, 16, "start", weight="bold"),
           write_text(20, 47, "loss on the validation text, nats per byte: mean, least and most of the seeds; the base is "
                      "bold", 11, "start", "#555")]
    for i, (setting, points) in enumerate(shown):
        out += draw_panel(12 + i % COLUMNS * PANEL_WIDTH, TOP + i // COLUMNS * PANEL_HEIGHT, setting, points, low, high)
    return "\n".join(out) + "\n</svg>\n"


def report(options):
    """Rewrites what is between <!-- NAME --> and <!-- end --> in docs/measurements/experiments.md."""
    results, page = read_results(options.results), os.path.join(DOCS, "experiments.md")
    with open(page, encoding="utf-8") as file:
        text = file.read()

    def block(found):
        name = found[1]
        if name not in EXPERIMENTS or name != "tokenizers" and not any(r.change == "" for r in rows_of(name, results)):
            refuse(f"{page}: there are no results of {name}, or none of its base", 1)
        if name == "tokenizers":
            return "\n".join([f"<!-- {name} -->", *tokenizer_table(results), "<!-- end -->"])
        shown, lines = list(panels(name, results)), table(name, results)
        if shown:
            lines = [f"![{name}](learning-{name}.svg)", "", *lines]
            with open(os.path.join(DOCS, f"learning-{name}.svg"), "w", encoding="utf-8") as file:
                file.write(picture(EXPERIMENTS[name].question, shown))
        return "\n".join([f"<!-- {name} -->", *lines, "<!-- end -->"])

    text = re.sub(r"<!-- ([a-z0-9-]+) -->\n.*?<!-- end -->", block, text, flags=re.S)
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "report", "list"))
    parser.add_argument("names", nargs="*", help="experiments (default: all; run: all but tokenizers)")
    parser.add_argument("--text", help="the text to learn")
    parser.add_argument("--train", default="./train", help="the program (default: ./train)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seeds", type=int, default=3, help="of a row: 1 to this (default: %(default)s)")
    parser.add_argument("--rows", default=".*", metavar="REGEX", help="only what is changed so; the base is empty")
    parser.add_argument("--results", default=RESULTS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time, of one thread each")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so many")
    options = parser.parse_intermixed_args()
    options.names = options.names or [n for n in EXPERIMENTS if options.command != "run" or n != "tokenizers"]
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        refuse(f"no experiment is called {unknown[0]}; there are {', '.join(EXPERIMENTS)}")
    if options.seeds < 1 or options.jobs < 1:
        refuse("--seeds and --jobs are at least 1")
    try:
        re.compile(options.rows)
    except re.error as error:
        refuse(f"--rows {options.rows}: {error}")
    if options.command == "run":
        if not options.text:
            refuse("run needs --text FILE")
        run(options)
    if options.command == "report":
        report(options)
    for name in options.names if options.command == "list" else ():
        print(name, len(list(EXPERIMENTS[name].rows())), EXPERIMENTS[name].question)


if __name__ == "__main__":
    main()
