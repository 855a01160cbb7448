#!/usr/bin/env python3
"""Tests scripts/measure/scaling_law.py: laws are found again from points that they made, and points that carry none are
noticed. tests/reports.sh calls it on runs."""
import math
import os
import random
import sys
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts", "measure"))
import scaling_law  # noqa: E402

scaling_law.REPEATS = 40
TRUTH = {"E": 1.7, "A": 400, "a": 0.34, "B": 410, "b": 0.28}
SIZES = [1e5 * 300 ** (i / 4) for i in range(5)]
LENGTHS = [1e6 * 1000 ** (i / 4) for i in range(5)]


def make_points(sizes, lengths, noise=0.0):
    chance = random.Random(5)
    return [(n, d, scaling_law.loss_of({name: [value] for name, value in TRUTH.items()}, n, d) * (1 + chance.gauss(0, noise)))
            for n in sizes for d in lengths]


def reason_of(points):
    try:
        scaling_law.fit_law(points)
    except scaling_law.Refused as reason:
        return str(reason)
    return "none"


def exact_points():
    law, errors = scaling_law.fit_law(make_points(SIZES, LENGTHS))
    for name, value in TRUTH.items():
        assert abs(law[name][0] / value - 1) < 0.01, (name, law)
    assert max(map(abs, errors)) < 1e-4, errors
    params, tokens = scaling_law.best_use(law, 1e17)
    assert math.isclose(6 * params * tokens, 1e17, rel_tol=1e-9)
    best = scaling_law.loss_of(law, params, tokens)
    assert all(best < scaling_law.loss_of(law, params * factor, tokens / factor) for factor in (0.5, 2)), law


def noisy_points():
    """With an error of 1 %, each interval contains the truth, and the exponents are determined."""
    points = make_points(SIZES, LENGTHS, 0.01)
    law, errors = scaling_law.fit_law(points)
    for name, value in TRUTH.items():
        assert law[name][1] < value < law[name][2] and law[name][1] < law[name][0] < law[name][2], (name, law)
    assert 0.005 < math.sqrt(sum(x * x for x in errors) / len(errors)) < 0.015, errors
    assert scaling_law.is_determined(law, "a") and scaling_law.is_determined(law, "b"), law
    assert scaling_law.fit_law(points)[0] == law
    points[7] = points[7][:2] + (1.2 * points[7][2],)
    errors = scaling_law.fit_law(points)[1]
    assert max(range(len(points)), key=lambda i: abs(errors[i])) == 7, errors


def one_size():
    law, _ = scaling_law.fit_law(make_points(SIZES[:1], LENGTHS))
    assert set(law) == {"E", "B", "b"}, law
    assert abs(law["E"][0] - TRUTH["E"] - TRUTH["A"] / SIZES[0] ** TRUTH["a"]) < 0.01, law
    assert abs(law["b"][0] - TRUTH["b"]) < 0.01, law


def points_without_a_law():
    points = make_points(SIZES, LENGTHS)
    assert "needs at least 5 finished runs, and there are 4" in reason_of(points[:4])
    assert "needs at least 7 finished runs, and there are 6" in reason_of(points[::4][:6])
    two_lengths = [(1e5 + i, 1e9 if i % 2 else 1e6, loss) for i, (_, _, loss) in enumerate(points)]
    assert "vary enough" in reason_of(two_lengths)
    chance = random.Random(6)
    law, _ = scaling_law.fit_law([(n, d, 3 + 0.1 * chance.random()) for n, d, _ in points])
    assert not scaling_law.is_determined(law, "a") and not scaling_law.is_determined(law, "b"), law


for test in exact_points, noisy_points, one_size, points_without_a_law:
    try:
        test()
        print("ok " + test.__name__)
    except Exception:  # of any kind: the other tests go on
        print("not ok " + test.__name__)
        traceback.print_exc(file=sys.stdout)
print("done")
