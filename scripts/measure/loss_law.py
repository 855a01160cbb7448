#!/usr/bin/env python3
"""Fits the law of the loss (src/train/loss_law.c) to runs, and adds runs to those that it is fitted to.

    scripts/measure/loss_law.py                                          # the numbers of the law, and how far each run is from it
    scripts/measure/loss_law.py --test russian code                      # fitted without these texts, then compared with them
    scripts/measure/loss_law.py --add RUN... --text NAME --bytes N       # adds finished runs, all on the same validation text

The runs are the lines of docs/measurements/learning.jsonl with "experiment": "law". The law is about ratios: each text, with its
tokenizer and its validation text, has a factor of its own. Runs of fewer steps than ./train plans are left out: they
have hardly left their warm-up. Needs numpy and SciPy.
"""
import argparse
import collections
import json
import os
import sys

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "measurements", "learning.jsonl")
NAMES = ("MODEL", "MODEL_POWER", "TEXT", "TEXT_POWER", "REREAD", "USEFUL", "USEFUL_POWER", "BEYOND", "TAUGHT")
START = (0.6, 0.1, 0.45, 0.3, 2, 0.3, 0.9, 5, 0.03)
LOW = (0.1, 0.03, 0.1, 0.1, 0.5, 0.05, 0.2, 0.1, 0)
HIGH = (2, 0.6, 2, 0.8, 15, 5, 1.2, 20, 0.1)
LEAST = 0.3  # the runs do not determine it
FEWEST_STEPS = 100  # AUTO_FEWEST_STEPS of ./train
MANY = 20  # epochs of a run with a teacher


def worth(np, amount, useful, most):
    more = useful * (1 + most * (1 - np.exp(np.minimum(0, (1 - amount / useful) / most))))
    return np.where(amount <= useful, amount, more)


def law(np, numbers, params, text_bytes, epochs, taught):
    model, model_power, text, text_power, reread, useful, useful_power, beyond, teacher = numbers
    megabytes = text_bytes / 1e6
    size = worth(np, params / 1e6, useful * megabytes ** useful_power, beyond)
    read = worth(np, megabytes * epochs, megabytes, reread)
    less = np.where(taught, teacher * np.minimum(epochs, MANY) / MANY, 0)
    return (1 - less) * (LEAST + model * size ** -model_power + text * read ** -text_power)


def read_runs(path):
    with open(path, encoding="utf-8") as file:
        runs = [run for run in map(json.loads, file) if run["experiment"] == "law"]
    return [run for run in runs if run.get("steps", FEWEST_STEPS) >= FEWEST_STEPS]


def fit(runs, tested):
    import numpy as np
    from scipy.optimize import least_squares
    columns = {key: np.array([run[key] for run in runs], float) for key in ("params", "bytes", "epochs", "bits")}
    taught = np.array([run["settings"].get("teacher") is not None or run["settings"].get("teacher-steps") for run in runs])
    groups = collections.defaultdict(list)
    for i, run in enumerate(runs):
        groups[run["group"]].append(i)

    def distances(numbers):
        out = np.log(columns["bits"]) - np.log(law(np, numbers, columns["params"], columns["bytes"], columns["epochs"], taught))
        for members in groups.values():
            out[members] -= out[members].mean()
        return out

    fitted = np.array([run["text"] not in tested for run in runs])
    found = least_squares(lambda numbers: distances(numbers)[fitted], START, bounds=(LOW, HIGH))
    left = distances(found.x)
    for group, members in groups.items():
        print(group + (", not fitted" if not fitted[members[0]] else ""))
        for i in members:
            run = runs[i]
            teacher = ", with a teacher" if taught[i] else ""
            print(f"  {run['params'] / 1e6:6.2f} M parameters, {run['epochs']:6.2f} epochs{teacher}: "
                  f"{run['bits']:.4f} bits per byte, {100 * left[i]:+.1f} %")
    print(f"LEAST {LEAST}, " + ", ".join(f"{name} {value:.3f}" for name, value in zip(NAMES, found.x)))
    for name, chosen in (("fitted", fitted), ("not fitted", ~fitted)):
        if chosen.any():
            count = len({run["group"] for run, is_chosen in zip(runs, chosen) if is_chosen})
            print(f"{name}: {chosen.sum()} runs in {count} groups; root mean square of the distances "
                  f"{100 * (left[chosen] @ left[chosen] / max(1, chosen.sum() - count)) ** 0.5:.2f} %, "
                  f"largest {100 * abs(left[chosen]).max():.1f} %")


def add(folders, text, text_bytes):
    with open(RESULTS, "a", encoding="utf-8") as out:
        for folder in folders:
            with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
                result = json.load(file)
            settings = {key: result["settings"].get(key) for key in (
                "preset", "layers", "dim", "tokenizer", "vocab-size", "batch", "ctx", "wd", "muon-lr", "no-mean", "teacher-steps")}
            if "teacher" in result["settings"]:
                settings["teacher"] = os.path.basename(os.path.normpath(result["settings"]["teacher"]))
            group = f"{text}, {round(text_bytes / 1000)} kB, {settings['tokenizer']}"
            if settings["vocab-size"]:
                group += f" of {settings['vocab-size']}"
            run = {"experiment": "law", "group": group, "text": text,
                   "bytes": text_bytes, "run": os.path.basename(os.path.normpath(folder)), "settings": settings,
                   "seed": result["settings"]["seed"], "params": result["params_without_embeddings"],
                   "epochs": round(result["epochs"], 3), "bits": round(result["kept"]["bits_per_byte"], 5),
                   "steps": result["step"], "seconds": round(result["seconds"], 1), "processor": result["device"]}
            out.write(json.dumps(run) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs="+", metavar="RUN")
    parser.add_argument("--test", nargs="+", default=(), metavar="TEXT")
    parser.add_argument("--text")
    parser.add_argument("--bytes", type=int, help="of the training text")
    options = parser.parse_args()
    if options.add and not (options.text and options.bytes):
        parser.error("--add needs --text and --bytes")
    if options.add:
        return add(options.add, options.text, options.bytes)
    return fit(read_runs(RESULTS), options.test)


if __name__ == "__main__":
    sys.exit(main())
