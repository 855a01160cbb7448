#!/usr/bin/env python3
"""Estimates the time of a training step on N GPUs from a simple model; nothing is measured.

    scripts/measure/scaling.py [--parameters 124e6] [--tokens 524288] [--flops 400e12] [--inside 300e9] [--between 40e9]
                       [--node 8]

A step of --tokens tokens takes 6 * parameters * tokens operations, divided among N GPUs with --flops operations per
second each (the rate reached in training, not the peak). Gradients go to their owners with 4 bytes per parameter, and
weights come back in bf16 with 2 bytes; every GPU sends and receives (N - 1) / N of both, at --inside bytes per second
within a machine of --node GPUs and at --between beyond. The gradients of all layers but the last one to finish are sent
during the backward pass, which is two thirds of the computation; the weights are sent after it. A message takes 10 us
more each time N doubles.
"""

import argparse
import math

NUMBERS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def step_seconds(asked, n):
    """The computation time, and the communication time that does not overlap with it."""
    compute = 6 * asked.parameters * asked.tokens / asked.flops / n
    if n == 1:
        return compute, 0.0
    speed = asked.inside if n <= asked.node else asked.between
    gradients, weights = (size * asked.parameters * (n - 1) / n / speed + 1e-5 * math.log2(n) for size in (4, 2))
    hidden = min(gradients * (asked.layers - 1) / asked.layers, compute * 2 / 3)
    return compute, gradients + weights - hidden


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("parameters", 124e6), ("tokens", 524288), ("flops", 400e12), ("inside", 300e9), ("between", 40e9),
                          ("node", 8), ("layers", 12)):
        parser.add_argument("--" + name, type=float, default=default)
    asked = parser.parse_args()
    alone, _ = step_seconds(asked, 1)
    print("| GPUs | ms per step | waiting | speedup | efficiency |")
    print("|---:|---:|---:|---:|---:|")
    for n in NUMBERS:
        compute, waiting = step_seconds(asked, n)
        seconds = compute + waiting
        print(f"| {n} | {1e3 * seconds:.1f} | {100 * waiting / seconds:.0f} % | {alone / seconds:.1f} | "
              f"{100 * alone / seconds / n:.0f} % |")


if __name__ == "__main__":
    main()
