"""What a run of ./train wrote into its metrics.jsonl."""

import json
import math
import os


def evaluations(run):
    """[tokens, seconds, nats per byte] of each; saving and evaluating do not count as seconds. The last one is of the
    whole validation text, those before it may be of its beginning."""
    curve, seconds, last = [], 0, 0
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        for line in map(json.loads, file):
            if "tokens_per_s" in line:
                seconds += (line["tokens"] - last) / line["tokens_per_s"]
                last = line["tokens"]
            if "bits_per_byte" in line:
                bits = line["bits_per_byte"]  # null: not finite
                curve.append([line["tokens"], seconds, math.inf if bits is None else bits * math.log(2)])
    return curve
