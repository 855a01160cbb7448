#!/usr/bin/env python3
"""Turns the results of scripts/gpu_contact.sh into docs/measurements/gpu.md.

    scripts/measure/gpu_report.py docs/measurements/gpu.jsonl build/gpu-check/results/results-*.jsonl \
      > docs/measurements/gpu.md

docs/measurements/gpu.jsonl has the results that the page shows; append new ones to it.

Only measurements on a GPU become figures; everything else says `not measured`. Rows of the emulator are left out.
Several files (stages, machines) are combined; figures of different GPUs are kept apart.
"""

import json
import statistics
import sys

MISSING = "not measured"
# Upper bounds in tokens/s on one H200, bf16: every byte and FLOP once, at 790 TFLOP/s and 4.3 TB/s.
BOUNDS = {"baby": 7.3e6, "124m": 792e3}
SHAPES = {"baby": "6 layers x 384, 64 x 256 tokens per step", "124m": "12 layers x 768, vocabulary 50304, 64 x 1024 tokens per step"}

INTRODUCTION = """\
# Measurements on NVIDIA GPUs

{status}

## Upper bounds

The table gives tokens per second of training in bf16 on one H200. The upper bound is the sum of the time of the GEMMs and of attention at
790 TFLOP/s and of the time of all other operations at 4.3 TB/s, where each operation reads its inputs once and writes
its outputs once. No program reaches it.

| model | step | upper bound |
|---|---|---|
{bounds}

Muon adds 54 kernel launches to a step: 18 for each of the three matrix shapes in a LLaMA model. By calculation, in bf16, the matrices of
the layers cause about 115 bytes of memory traffic per parameter with Muon and 30 with AdamW (the matrices of baby stay in the cache). Muon's
iteration takes 0.11 TFLOP for baby (9 % of the step) and 1.7 TFLOP for 124m (3 %).

## Measuring

`make gpu-check` measures a GPU: [gpu.md](../gpu.md#measuring-a-gpu). This page is made from its results, and
`scripts/measure/gpu_predict.py docs/measurements/gpu.jsonl --card h100` predicts the time of every operation and of a
training step on another card:

    scripts/measure/gpu_report.py docs/measurements/gpu.jsonl build/gpu-check/results/results-*.jsonl \\
      > docs/measurements/gpu.md

- The time of an operation is the median of 11 batches. Each batch takes at least 20 ms between two synchronizations and replays a CUDA
  graph on random numbers. Activations come from several sets that together exceed the cache; GEMM weights stay in the
  cache; decoding runs through the layers in order, as generation does.
- Bytes and FLOPs are calculated from the formula of the operation. Memory-bound operations are compared with a copy of 1 GiB
  (bytes read and written), GEMMs and attention with a bf16 GEMM of 8192 x 8192 x 8192 on the same backend.
  Attention counts 4 T^2 D H B / 2 FLOPs forward and 2.5 times as many backward.
- Training speed is the median of 11 chunks of at least a quarter of a second, each ending with a synchronization; Inkling and PyTorch
  alternate within one run. PyTorch uses fp32 parameters, bf16 autocast, TF32 allowed, fused AdamW and flash attention; "graphs" is
  `torch.compile` with CUDA graphs (`mode="reduce-overhead"`).
"""


def read(paths):
    rows, headers = [], []
    for path in paths:
        header = {"card": "unknown"}
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # cut off by a time limit
                if row.get("kind") == "header":
                    header = row
                    headers.append(row)
                else:
                    rows.append(dict(row, header=header))
    real = [r for r in rows if "emulated" not in r["header"]["card"] and r["header"]["card"] != "none"]
    return [h for h in headers if "emulated" not in h["card"] and h["card"] != "none"], real


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]) + "\n"


def thousands(value):
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:.1f} k" if value >= 1e3 else f"{value:.0f}"


def rates(rows):
    names = (("copy", "copy, 1 GiB", 1e-12, "TB/s"), ("gemm", "GEMM, 8192^3, bf16", 1e-12, "TFLOP/s"),
             ("peak_flops", "peak that ./train measures", 1e-12, "TFLOP/s"))
    out = []
    for name, title, scale, unit in names:
        values = [r["value"] for r in rows if r["kind"] == "rate" and r["name"] == name]
        out.append((title, f"{scale * statistics.median(values):.2f} {unit}" if values else MISSING))
    return table(("GPU peak", "measured"), out)


def training(rows):
    out = []
    for model in BOUNDS:
        found = {}
        for r in rows:
            if r["kind"] == "train" and r["model"] == model and not r.get("dropout"):
                key = (r["system"] + (" (./train --bench)" if r.get("source") == "./train --bench" else ""), r["dtype"],
                       r["batch"])
                found.setdefault(key, []).append(r)
        for system in ("inkling", "pytorch eager", "pytorch compile", "pytorch graphs"):
            if not any(key[0].startswith(system) for key in found):
                out.append((model, system, MISSING, "", "", ""))
        eager = [r["tokens_per_s"] for key, rs in found.items() if key[0].startswith("pytorch") for r in rs]
        best = max(eager) if eager else None
        for (system, dtype, batch), runs in sorted(found.items()):
            value = statistics.median(r["tokens_per_s"] for r in runs)
            out.append((model, f"{system}, {dtype}, batch {batch}", thousands(value), len(runs), f"{100 * value / BOUNDS[model]:.0f} %",
                        f"{value / best:.2f}" if best else ""))
    return table(("model", "system", "tokens/s", "rounds", "% of the H200 upper bound", "ratio to the fastest PyTorch"), out)


def operation(rows, model, name, shape=None):
    for r in reversed(rows):
        if r["kind"] == "kernel" and r["model"] == model and r["operation"] == name and shape in (None, r["shape"]):
            return r
    return None


def attention(rows):
    out = []
    for head in (64, 128):
        for length in (256, 1024, 4096):
            shape = f"B{16384 // length} T{length} H{2048 // head} D{head}"
            cells = [shape]
            for name in ("attention", "attention_backward"):
                r = operation(rows, "sweep", name, shape)
                cells.append(MISSING if r is None else r.get("error") or f"{r['tflop_per_s']:.0f}")
            out.append(cells)
    return table(("attention, causal", "forward, TFLOP/s", "backward, TFLOP/s"), out)


def decoding(rows):
    out = []
    for model in ("15m", "110m", "124m"):
        cells = [model]
        for count in (1, 8, 64):
            values = [r["tokens_per_s"] for r in rows if r["kind"] == "decode" and r["model"] == model and r["rows"] == count]
            cells.append(thousands(statistics.median(values)) if values else MISSING)
        out.append(cells)
    return table(("decoding, bf16, half the context", "1 sequence, tokens/s", "8 sequences", "64 sequences"), out)


def operations(rows, cards):
    """One row an operation, with its time and its share of the peak on each card."""
    newest = {}
    for r in rows:
        if r["kind"] == "kernel" and r["group"] != "rates":
            name = r["operation"] + (", autotuned" if r.get("note") == "autotuned" else "")
            newest.setdefault((r["model"], name, r["shape"], r["dtype"]), {})[r["header"]["card"]] = r
    if not newest:
        return f"Single operations: {MISSING}.\n"
    out = []
    for key, of_card in newest.items():
        cells = list(key)
        for card in cards:
            r = of_card.get(card)
            if r is None or "error" in r:
                cells += [MISSING if r is None else "failed: " + r["error"], ""]
                continue
            share = f"{100 * r['share']:.0f} % of {'GEMM' if r['share_of'] == 'gemm' else 'copy'}" if r.get("share") else ""
            cells += [f"{1e3 * r['ms']:.1f}", share]
        out.append(cells)
    head = [text for card in cards for text in (short(card) + ", µs", "share of the peak")]
    return table(("model", "operation", "shape", "", *head), out)


def short(card):
    return " ".join(card.split()[:2])


def parts(rows):
    """What passed without a figure is a list, everything else a table."""
    rows = [r for r in rows if r["kind"] == "part"]
    plain = [r for r in rows if r["status"] == "passed" and r["detail"].endswith(("0 failed", "test(s).", "TEST(S)"))]
    out = [(r["name"], r["status"], r["seconds"], r["detail"].replace("|", "/")) for r in rows if r not in plain]
    passed = "Passed: " + "; ".join(r["name"] for r in plain) + ".\n\n" if plain else ""
    return passed + table(("part", "result", "seconds", ""), out)


def main():
    headers, rows = read(sys.argv[1:])
    bounds = "\n".join(f"| {m} | {SHAPES[m]} | {thousands(bound)} |" for m, bound in BOUNDS.items())
    if not headers:
        status = ("No kernel has run on a GPU yet, and nothing has been measured on one. The kernels are compiled by nvcc "
                  "and tested on the\nCPU by the emulator in `tests/cuda_on_cpu`. Every figure under Results says `not measured` "
                  "until `make gpu-check` has run on a GPU.")
    else:
        status = ("`scripts/measure/gpu_report.py` made this page from `docs/measurements/gpu.jsonl`. What is not in the tables has been\n"
                  "tested only in the emulator in `tests/cuda_on_cpu`.\n\n") + table(
            ("stage", "card", "driver", "CUDA", "commit", "date"),
            [(h["stage"], h["card"], h["driver"], h["cuda"], h["commit"], h["date"]) for h in headers])
    text = [INTRODUCTION.format(status=status.strip(), bounds=bounds)]
    cards = list(dict.fromkeys(h["card"] for h in headers)) or [""]
    for card in cards:
        mine = [r for r in rows if r["header"]["card"] == card]
        text.append(f"## Results{': ' + card if card else ''}\n")
        text += [rates(mine), training(mine), attention(mine), decoding(mine), parts(mine)]
        notes = [r["text"] for r in mine if r["kind"] == "note"]
        if notes:
            text.append("\n".join("- " + note for note in notes) + "\n")
    text += ["## Single operations\n", operations(rows, cards)]
    print("\n".join(text).rstrip())


if __name__ == "__main__":
    main()
