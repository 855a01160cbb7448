#!/usr/bin/env python3
"""Compares the losses of two training runs: compare_runs.py A.run B.run TOLERANCE [STEPS]

All losses of steps that are in both metrics.jsonl must agree within the relative TOLERANCE (0: exactly), and there must
be at least STEPS of them. Prints the largest difference and its step; exit status 1 if it is too large.
"""

import json
import os
import sys


def losses(directory):
    found = {}
    with open(os.path.join(directory, "metrics.jsonl"), encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if "loss" in row and row["loss"] is not None:
                found[row["step"]] = row["loss"]
    return found


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__.strip().splitlines()[0])
    a, b, tolerance = losses(sys.argv[1]), losses(sys.argv[2]), float(sys.argv[3])
    least = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    steps = sorted(a.keys() & b.keys())
    if len(steps) < least:
        sys.exit(f"only {len(steps)} steps in common, {least} wanted")
    differences = {step: abs(a[step] - b[step]) / max(abs(a[step]), 1e-9) for step in steps}
    worst = max(steps, key=differences.get)
    first, last = steps[0], steps[-1]
    print(f"{len(steps)} losses, from {a[first]:.6f} and {b[first]:.6f} to {a[last]:.6f} and {b[last]:.6f}; largest relative "
          f"difference {differences[worst]:.3g}, at step {worst}; allowed {tolerance:g}")
    if not differences[worst] <= tolerance:
        sys.exit(1)


if __name__ == "__main__":
    main()
