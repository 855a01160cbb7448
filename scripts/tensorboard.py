#!/usr/bin/env python3
"""Writes the numbers of runs as TensorBoard event files, RUN/tensorboard: tensorboard.py RUN... (pip install tensorboardX)"""
import json
import sys

from tensorboardX import SummaryWriter

for run in sys.argv[1:]:
    with SummaryWriter(f"{run}/tensorboard") as writer, open(f"{run}/metrics.jsonl", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            for name, value in line.items():
                if isinstance(value, float):
                    writer.add_scalar(name, value, line["step"])
