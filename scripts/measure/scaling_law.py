#!/usr/bin/env python3
"""Fits the scaling law L = E + A/N^a + B/D^b to finished runs (docs/runs.md): scaling_law.py RUN...

A RUN is the directory of a run, or one that contains runs. N is the number of parameters, D the number of tokens that
the kept model has seen, L the bits per byte of the validation text, or the nats per token where runs have no bits per
byte (Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models", approach 3). The fit minimizes the sum of
squared relative errors: for given exponents by linear least squares with factors that are not negative, and over the
exponents by a search on grids. Intervals contain 95 % of fits to the law's own predictions with resampled residuals.
The same runs give the same result. Needs ./train and Python, without any package. Exit status 3: the runs do not
carry a law.
"""
import argparse
import collections
import itertools
import json
import math
import os
import random
import shutil
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LEAST_EXPONENT, LARGEST_EXPONENT = 0.02, 3
LEAST_VALUES, LEAST_SPAN = 3, 3  # a term needs so many different N or D, the largest so many times the smallest
MOST_EPOCHS = 4  # until here repeated text teaches almost as much as new text (Muennighoff et al. 2023)
GRID, ROUNDS, REPEATS = 8, 14, 400
MEANINGS = {"E": "what remains of the loss with any size and text, in ", "A": "A/N^a: the loss from a limited size", "a": "",
            "B": "B/D^b: the loss from limited training", "b": ""}


class Refused(Exception):
    """The runs do not carry a law."""


# ---- the fit ----


def solve(matrix, right):
    """Solves linear equations by Gaussian elimination. None: the columns are equal but for rounding."""
    rows = [row + [value] for row, value in zip(matrix, right)]
    for k, pivot in enumerate(rows):
        if not pivot[k] > 1e-12 * matrix[k][k]:
            return None
        for row in rows[k + 1:]:
            row[k:] = [x - row[k] / pivot[k] * y for x, y in zip(row[k:], pivot[k:])]
    out = [0] * len(rows)
    for k in reversed(range(len(rows))):
        out[k] = (rows[k][-1] - sum(x * y for x, y in zip(rows[k][k + 1:], out[k + 1:]))) / rows[k][k]
    return out


def fit_factors(logs, losses, exponents):
    """Returns the sum of squared relative errors and the best factors, 0 or more, of 1 and of the powers of each quantity,
    whose logarithms are in `logs`. They are those of all columns if these are positive, else of the best set."""
    columns = [[1 / loss for loss in losses]]
    for values, exponent in zip(logs, exponents):
        columns.append([math.exp(-exponent * value) * weight for value, weight in zip(values, columns[0])])
    products = [[sum(x * y for x, y in zip(one, other)) for other in columns] for one in columns]
    right = [sum(column) for column in columns]
    best = (math.inf, None)
    for size in range(len(columns), 0, -1):
        for chosen in itertools.combinations(range(len(columns)), size):
            found = solve([[products[i][k] for k in chosen] for i in chosen], [right[i] for i in chosen])
            if found and min(found) > 0:
                factors = dict(zip(chosen, found))
                squares = len(losses) - sum(factor * right[i] for i, factor in factors.items())
                best = min(best, (squares, [factors.get(i, 0) for i in range(len(columns))]))
        if size == len(columns) and best[1]:
            break
    return best


def fit_exponents(logs, losses):
    """Tries exponents on a grid of GRID + 1 points a side, then on finer and finer ones around the best so far."""
    low, high = math.log(LEAST_EXPONENT), math.log(LARGEST_EXPONENT)
    best, step, reach = (math.inf, [(low + high) / 2] * len(logs), []), (high - low) / GRID, GRID // 2
    for _ in range(ROUNDS + 1):
        center = best[1]
        for moves in itertools.product(range(-reach, reach + 1), repeat=len(logs)):
            tried = [min(high, max(low, value + move * step)) for value, move in zip(center, moves)]
            squares, factors = fit_factors(logs, losses, [math.exp(value) for value in tried])
            if squares < best[0]:
                best = squares, tried, factors
        step, reach = step / 2, 2
    return [math.exp(value) for value in best[1]], best[2]


def predict(logs, exponents, factors):
    return [factors[0] + sum(factor * math.exp(-exponent * value)
                             for factor, exponent, value in zip(factors[1:], exponents, values))
            for values in zip(*logs)]


def fit_law(points):
    """Fits the law to points (N, D, L). Returns the terms that are in it, {"E": (value, low, high), ...}, and the relative
    error of each point."""
    if len(points) < needed(1):
        raise Refused(too_few(1, len(points)))
    logs, means, names = [], [], []
    for column, name in enumerate("ab"):
        values = sorted(math.log(point[column]) for point in points)
        different = 1 + sum(after > before + 1e-6 for before, after in zip(values, values[1:]))
        if different >= LEAST_VALUES and values[-1] - values[0] >= math.log(LEAST_SPAN):
            means.append(sum(values) / len(values))
            logs.append([math.log(point[column]) - means[-1] for point in points])
            names.append(name)
    if not names:
        raise Refused(f"neither the parameters nor the tokens of {len(points)} finished runs vary enough: a law needs at least "
                      f"{LEAST_VALUES} sizes or lengths, the largest at least {LEAST_SPAN} times the smallest")
    if len(points) < needed(len(names)):
        raise Refused(too_few(len(names), len(points)))

    def terms_of(exponents, factors):
        terms = {"E": factors[0]}
        for name, mean, exponent, factor in zip(names, means, exponents, factors[1:]):
            terms.update({name.upper(): factor * math.exp(exponent * mean), name: exponent})
        return terms

    losses = [point[2] for point in points]
    best = fit_exponents(logs, losses)
    predicted = predict(logs, *best)
    wider = math.sqrt(len(points) / (len(points) - 1 - 2 * len(names)))
    residuals = [wider * (loss / value - 1) for loss, value in zip(losses, predicted)]
    chance = random.Random(1)
    repeats = []
    for _ in range(REPEATS):
        drawn = [value * max(0.01, 1 + chance.choice(residuals)) for value in predicted]
        repeats.append(terms_of(*fit_exponents(logs, drawn)))
    law = {}
    for name, value in terms_of(*best).items():
        found = sorted(terms[name] for terms in repeats)
        law[name] = (value, found[REPEATS // 40], found[-1 - REPEATS // 40])
    return law, [value / loss - 1 for loss, value in zip(losses, predicted)]


def needed(terms):
    return 1 + 2 * terms + 2  # two more points than the law has numbers


def too_few(terms, count):
    return f"a law needs at least {needed(terms)} finished runs, and there {'is' if count == 1 else 'are'} {count}"


def loss_of(law, params, tokens):
    part = {name: law[name.upper()][0] / amount ** law[name][0] for name, amount in (("a", params), ("b", tokens)) if name in law}
    return law["E"][0] + sum(part.values())


def is_determined(law, exponent):
    """Returns whether the interval of an exponent excludes values three times as large as others."""
    _, low, high = law[exponent]
    return law[exponent.upper()][0] > 0 and 1.01 * LEAST_EXPONENT < low and high < min(3 * low, 0.99 * LARGEST_EXPONENT)


def best_use(law, operations):
    """Returns the N and D with the lowest loss for 6 N D operations."""
    a, b = law["a"][0], law["b"][0]
    params = (a * law["A"][0] / (b * law["B"][0])) ** (1 / (a + b)) * (operations / 6) ** (b / (a + b))
    return params, operations / 6 / params


# ---- the runs ----


def read_points(train, runs):
    """Returns the points of the finished runs with the most frequent validation text by name, their column, and notes."""
    listed = subprocess.run([train, "--runs", *runs, "--by-seed", "-O", "json"], stdout=subprocess.PIPE, check=False)
    if listed.returncode:
        sys.exit(listed.returncode)
    rows = {row["run"]: row for row in json.loads(listed.stdout)}.values()  # a run may be in two of the directories
    column = "bits_per_byte" if any(row["bits_per_byte"] is not None for row in rows) else "val_loss"
    usable = [row for row in rows if row["state"] in ("done", "minutes", "patience") and row["params"] and row["tokens"]
              and row["step"] and row["kept_step"] and row[column] and 0 < row[column] < 1e6]
    texts = collections.Counter(row["val_text"] for row in usable).most_common(1)
    used = [row for row in usable if row["val_text"] == texts[0][0]]
    repeating = sum(row["epochs"] * row["kept_step"] / row["step"] > MOST_EPOCHS for row in used if row["epochs"])
    notes = {"runs without a final loss, which are left out": len(rows) - len(usable),
             "runs with another validation text, which are left out": len(usable) - len(used),
             f"runs that read the text more than {MOST_EPOCHS} times (repeated tokens teach less than the law assumes)":
                 repeating}
    points = {row["run"]: (row["params"], row["tokens"] * row["kept_step"] / row["step"], row[column]) for row in used}
    return points, column, [f"{what}: {count}" for what, count in notes.items() if count]


# ---- what is printed ----


def short(count):
    scale = max(power for power in (0, 1, 2, 3, 4) if power == 0 or count >= 1000 ** power)
    return f"{count / 1000 ** scale:.3g}{('', 'k', 'M', 'G', 'T')[scale]}"


def tell(points, law, errors, unit, notes):
    worst = max(range(len(errors)), key=lambda i: abs(errors[i]))
    print(f"{len(points)} runs; error {100 * math.sqrt(sum(x * x for x in errors) / len(errors)):.2g} % (root mean square), "
          f"largest {100 * errors[worst]:+.2g} %: {list(points)[worst]}")
    for exponent, what in (("a", "parameters"), ("b", "tokens")):
        if exponent not in law:
            notes.append(f"the {what} have fewer than {LEAST_VALUES} values, or the largest is less than {LEAST_SPAN} times the "
                         "smallest: their part of the loss is in E")
        elif not is_determined(law, exponent):
            notes.append(f"the runs do not determine {exponent}, whose interval is {law[exponent][1]:.2g} to "
                         f"{law[exponent][2]:.2g}; more runs, and larger differences in {what}, would narrow it")
    print("".join(note + "\n" for note in notes), end="")
    if all(exponent in law and is_determined(law, exponent) for exponent in "ab"):
        most = max(6 * params * tokens for params, tokens, _ in points.values())
        params, tokens = best_use(law, most)
        print(f"the most operations of a run are {most:.2g} (6 N D): by the law, the best use of them is {short(params)} "
              f"parameters and {short(tokens)} tokens, with a loss of {loss_of(law, params, tokens):.4f} {unit}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--json", action="store_true", help="print only the numbers, as JSON")
    parser.add_argument("--train", default=os.path.join(ROOT, "train"), help="the program ./train")
    options = parser.parse_args()
    if not shutil.which(options.train):
        parser.error(f"{options.train} is not there: make builds it, and --train names another one")
    points, column, notes = read_points(options.train, options.runs)
    unit = "nats per token" if column == "val_loss" else "bits per byte"
    try:
        law, errors = fit_law(list(points.values()))
    except Refused as reason:
        print("; ".join([f"error: {reason}", *notes]), file=sys.stderr)
        return 3
    rows = [{"name": name, "value": value, "low": low, "high": high, "meaning": MEANINGS[name] + unit * (name == "E")}
            for name, (value, low, high) in law.items()]
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print("name      value        low       high  meaning")
    for row in rows:
        print(f"{row['name']:4} {row['value']:10.4g} {row['low']:10.4g} {row['high']:10.4g}  {row['meaning']}".rstrip())
    tell(points, law, errors, unit, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
