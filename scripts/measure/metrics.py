"""Reads metrics.jsonl of a run of ./train."""

import json
import math
import os


def evaluations(run):
    """[tokens, seconds, nats per byte] of each evaluation during the run (seconds exclude saving and evaluating), and the nats
    per byte of the model after the last step on the whole validation text."""
    curve, loss, seconds, last = [], None, 0, 0
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        for line in map(json.loads, file):
            if "tokens_per_s" in line:
                seconds += (line["tokens"] - last) / line["tokens_per_s"]
                last = line["tokens"]
            if "best" not in line:
                continue
            bits = line["bits_per_byte"]  # null: not finite
            nats = math.inf if bits is None else bits * math.log(2)
            if line["over"] == "all":
                loss = nats
            if not curve or curve[-1][0] < line["tokens"]:  # the last step is evaluated again, on the whole text
                curve.append([line["tokens"], seconds, nats])
    return curve, loss
