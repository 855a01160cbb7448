#!/usr/bin/env python3
"""Predicts the speed of training on a GPU, operation by operation, from the measured rows of another one.

    scripts/measure/gpu_predict.py GPU.jsonl --card h100            predicts an H100 from the GPU in GPU.jsonl
    scripts/measure/gpu_predict.py GPU.jsonl --measured RESULTS     predicts the GPU in RESULTS and compares

docs/measurements/gpu.jsonl has the results of an H200 and an H100.

The bytes and FLOPs of an operation are in its row (bench_kernels). An operation is as far from the copy rate of the new GPU
as it was from that of the old one, or, if it multiplies matrices, as far from the GEMM rate, or, if it is attention, as far
from the rate of attention. Attention multiplies with the instruction mma.sync on every GPU. Its rate is 0.8 of the rate of
that instruction, but at most ATTENTION_MOST: on large GPUs, exponentials and shared memory limit it. Launches have the same
cost. Predictions are printed as such: only a measurement is a result.
"""

import argparse
import json
import re
import sys

# Bytes/s of a copy, FLOP/s of a large bf16 GEMM: measured for the H200 (docs/measurements/gpu.md), for the others about 90 % of the
# memory's and 65 to 90 % of the tensor cores' published rates. Instructions/s of all threads: 128 lanes x SMs x clock.
CARDS = {"h100": (3.0e12, 640e12, 2.9e13), "h200": (4.2e12, 673e12, 2.9e13), "a100": (1.75e12, 270e12, 1.95e13),
         "4090": (0.92e12, 150e12, 4.1e13), "3090": (0.85e12, 65e12, 1.8e13),
         "3060": (0.33e12, 23e12, 6.4e12)}
# FLOP/s of mma.sync with bf16, estimated: about the published rates of the tensor cores, and 63 % of them on Hopper GPUs.
MMA = {"h100": 620e12, "h200": 620e12, "a100": 290e12, "4090": 160e12, "3090": 70e12, "3060": 25e12}
ATTENTION_MOST = 235e12
MULTIPLY_ADD = 0.3  # instructions of decoding several sequences (tests/kernel_limits.txt)
HEAD_ROWS = 8192  # rows of logits that bench_kernels computes at a time
LAYERS = {"baby": 6, "124m": 12}
# Calls in a training step by the name of the operation; L: layers, H: chunks of logits.
CALLS = [(r"linear head .*|cross_entropy, gradient", "H"), (r"linear .*|attention|attention_backward|rope.*", "L"),
         (r"activation.*", "L"), (r"residual_norm", "2L"), (r"residual_norm, norm only", "1"),
         (r"residual_norm_backward", "2L+1"),
         (r"embedding|embedding_backward.*|loss_sum|clip|adamw|step_begin|next_micro_batch|report", "1")]


def read(path):
    """The GPU, its rates, the last row of every operation, the speed of training, and the steps of decoding."""
    rows, speeds, rates, decoding, card = {}, {}, {}, {}, "?"
    for line in open(path, encoding="utf-8"):
        r = json.loads(line)
        if r["kind"] == "header":
            card = r["card"]
        elif r["kind"] == "rate":
            rates[r["name"]] = r["value"]
        elif r["kind"] == "decode" and r["dtype"] == "bf16":
            decoding[r["model"], r["rows"]] = r
        elif r["kind"] == "kernel" and r.get("dtype") == "bf16" and r.get("ms"):
            rows[r["model"], r["operation"]] = r
        elif r["kind"] == "train" and r.get("system") == "inkling" and not r.get("dropout") and r.get("dtype") == "bf16":
            if r["batch"] >= speeds.get(r["model"], r)["batch"]:  # that of the operations' rows
                speeds[r["model"]] = r
    return card, rates, rows, speeds, decoding


def attention_rate(card, gemm):
    """FLOP/s of attention on the GPU of this name; of a GPU that is not in MMA, from its GEMM rate."""
    mma = next((rate for name, rate in MMA.items() if name in card.lower()), gemm)
    return min(0.8 * mma, ATTENTION_MOST)


def predict_decoding(decoding, new, card, count=64):
    """Prints steps of `count` sequences: that of one, the keys and values of the others, and the instructions."""
    for (model, sequences), one in decoding.items():
        eight = decoding.get((model, 8))
        if sequences != 1 or not eight:
            continue
        cache = (eight["step_ms"] * eight["bytes_per_s"] - one["step_ms"] * one["bytes_per_s"]) / 1000 / 7
        seconds = (one["step_ms"] / 1000 + (count - 1) * cache / new["copy"]
                   + count * one["params"] * MULTIPLY_ADD / new["instructions"])
        print(f"decoding {model}, {count} sequences at position {one['position']}: predicted for {card} "
              f"{1e3 * seconds:.3f} ms, {count / seconds / 1e3:.0f} k tokens/s")


def calls_of(operation, layers, chunks):
    for pattern, count in CALLS:
        if re.fullmatch(pattern, operation):
            return {"H": chunks, "L": layers, "2L": 2 * layers, "2L+1": 2 * layers + 1, "1": 1}[count]
    return 0


def predicted(row, old, new):
    """Milliseconds of a call on a GPU with the rates `new`: only the time beyond a launch scales."""
    launch = 0.0008
    if row["bytes"] == 0 and row["flops"] == 0:
        return row["ms"]
    rate = "attention" if row["group"] == "attention" and row["flops"] else "gemm" if row["share_of"] == "gemm" else "copy"
    return launch + max(0, row["ms"] - launch) * old[rate] / new[rate]


def predict_operations(model, known, rows, measured, old, new):
    """Prints the operations of a training step and the step. known: the step on the GPU that was measured."""
    tokens = known["batch"] * known["ctx"]
    chunks = max(1, tokens // HEAD_ROWS)
    print(f"\n{model:8s} {'operation':34s} {'calls':>5s} {'GB':>8s} {'TFLOP':>7s} {'predicted ms':>12s} "
          f"{'measured ms':>12s}")
    sums = [0.0, 0.0, 0.0]  # predicted; known on the old GPU; measured on the new one
    for (of, operation), row in rows.items():
        calls = calls_of(operation, LAYERS[model], chunks) if of == model else 0
        if not calls:
            continue
        ms = calls * predicted(row, old, new)
        found = measured.get((of, operation))
        if found and found["shape"] != row["shape"]:
            found = None
        sums[0], sums[1] = sums[0] + ms, sums[1] + calls * row["ms"]
        sums[2] += calls * found["ms"] if found else 0
        text = f"{calls * found['ms']:12.3f} {calls * found['ms'] / ms:6.2f}x" if found else f"{'-':>12s}"
        print(f"{model:8s} {operation:34s} {calls:5d} {calls * row['bytes'] / 1e9:8.2f} "
              f"{calls * row['flops'] / 1e12:7.2f} {ms:12.3f} {text}")
    total = sums[0] * known["step_ms"] / sums[1]  # gaps between launches, what overlaps, the clock
    print(f"{model:8s} {'all operations':34s} {'':22s} {sums[0]:12.3f}" + (f" {sums[2]:12.3f}" if sums[2] else ""))
    print(f"{model:8s} a step: predicted {total:.2f} ms, {tokens / total:.0f} k tokens/s", end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("known", help="results of the GPU that was measured")
    parser.add_argument("--card", help="GPU to predict: " + ", ".join(CARDS)
                        + "; or BYTES_PER_S,FLOP_PER_S[,INSTRUCTIONS_PER_S]")
    parser.add_argument("--measured", help="results of the GPU to predict, to compare with")
    options = parser.parse_args()
    if not options.card and not options.measured:
        parser.error("give --card or --measured")
    old_card, old, rows, old_speeds, decoding = read(options.known)
    card, new, measured, speeds, _ = (options.card, {}, {}, {}, {}) if not options.measured else read(options.measured)
    if options.card:
        values = CARDS.get(options.card) or tuple(float(v) for v in options.card.split(","))
        new = dict(zip(("copy", "gemm", "instructions"), values))
    if not {"copy", "gemm"} <= set(old) & set(new):
        sys.exit("no rates of a copy and of a GEMM in the results")
    for name, rates in (old_card, old), (card, new):
        rates["attention"] = attention_rate(name, rates["gemm"])
    print(f"{card}: {new['copy'] / 1e12:.2f} TB/s, {new['gemm'] / 1e12:.0f} TFLOP/s; predicted from {old_card}: "
          f"{old['copy'] / 1e12:.2f} TB/s, {old['gemm'] / 1e12:.0f} TFLOP/s")
    for model in LAYERS:
        if model in old_speeds:
            predict_operations(model, old_speeds[model], rows, measured, old, new)
            print(f"; {old_card} took {old_speeds[model]['step_ms']:.2f} ms"
                  + (f"; measured {speeds[model]['step_ms']:.2f} ms" if model in speeds else ""))
    if "instructions" in new:
        print()
        predict_decoding(decoding, new, card)


if __name__ == "__main__":
    main()
