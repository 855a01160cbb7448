#!/usr/bin/env python3
"""A run of bench_quality.py in PyTorch: trains as ./train does, with settings from a JSON object (the argument).

Prints a line of JSON: the loss on the whole validation text, and the losses on its beginning during the run. The model
is the one of compare_torch.py with ./train's initial standard deviations. AdamW is the fastest one available; Muon is
torch.optim.Muon on views of the matrices of the blocks, with separate queries, keys, values, gate and up.
"""

import json
import math
import re
import sys
import time
from types import SimpleNamespace

import torch

import compare_torch

END = 256  # the token <|endoftext|>
WARM_UP = 3


def tokens_of(path):
    """The tokens of a text as with ./train --tokenizer byte: an end token follows every document."""
    with open(path, "rb") as file:
        data = file.read().removeprefix(b"\xef\xbb\xbf")
    documents = filter(None, re.split(rb"(?m)^<\|endoftext\|>(?:\r?\n|\Z)", data))
    return torch.tensor([token for document in documents for token in (*document, END)])


def model_of(run):
    """The model to train, and its matrices for Muon as [(parameter, first row, view)]."""
    shape = run["shape"]
    ffn, dim = -(-((8 * shape["dim"] + 2) // 3) // 32) * 32, shape["dim"]
    model = compare_torch.torch_model(SimpleNamespace(
        **shape, kv_heads=shape["heads"], ffn=ffn, vocab=END + 1, dropout=0, tie=False,
        worker="compiled" if run["compile"] else "eager"))
    matrices = []
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(run["init-std"] / 0.02 if parameter.dim() == 2 else 1)
        for block in model.blocks:
            for branch in (block.output, block.down):
                branch.weight.div_(math.sqrt(2 * len(model.blocks)))
            for product, rows in ((block.qkv, dim), (block.output, dim), (block.gate_up, ffn), (block.down, dim)):
                matrices += [(product.weight, i, torch.nn.Parameter(product.weight[i:i + rows]))
                             for i in range(0, len(product.weight), rows)]
    return model, matrices if run["optimizer"] == "muon" else []


def optimizers_of(run, model, matrices):
    """[(optimizer, peak learning rate)]"""
    inside = {id(weight) for weight, _, _ in matrices}
    rest = [p for p in model.parameters() if id(p) not in inside]
    found = compare_torch.torch_optimizers(SimpleNamespace(parameters=lambda: rest))
    adamw = found.get("fused") or found["foreach"]
    for group in adamw.param_groups:
        group["betas"] = (0.9, run["beta2"])
        group["weight_decay"] *= run["wd"] / 0.1
    if not matrices:
        return [(adamw, run["lr"])]
    views = [view for _, _, view in matrices]
    muon = torch.optim.Muon(views, lr=0, weight_decay=run["wd"], momentum=run["momentum"])
    return [(muon, run["muon-lr"]), (adamw, run["lr"])]


def schedule(run, step):
    """The fraction of the peak learning rate, as in schedule_lr() of src/model/schedule.c."""
    if step <= run["warmup"]:
        return step / run["warmup"]
    progress = (step - run["warmup"]) / (run["steps"] - run["warmup"])
    return run["min-lr-frac"] + (1 - run["min-lr-frac"]) * 0.5 * (1 + math.cos(math.pi * progress))


def evaluate(net, tokens, run, limit):
    """Nats per byte of the first `limit` windows (0: all)."""
    ctx, batch, total, count = run["shape"]["ctx"], run["batch"], 0.0, 0
    windows = -(-(len(tokens) - 1) // ctx)
    padded = torch.nn.functional.pad(tokens, (0, (windows + batch) * ctx + 1 - len(tokens)), value=-100)
    targets = padded[1:].view(-1, ctx).clone()
    targets[min(limit or windows, windows):] = -100
    for i in range(0, min(limit or windows, windows), batch):
        real = targets[i:i + batch] >= 0
        with torch.no_grad():
            loss = net(padded[:-1].view(-1, ctx)[i:i + batch].clamp(min=0), targets[i:i + batch])
        total += loss.item() * int(real.sum())
        count += int((real & (targets[i:i + batch] != END)).sum())
    return total / count


def main(run):
    torch.set_num_threads(run["threads"])
    torch.manual_seed(run["seed"])
    text, tail = map(tokens_of, run["files"])
    model, matrices = model_of(run)
    optimizers, parameters = optimizers_of(run, model, matrices), list(model.parameters())
    net = torch.compile(model) if run["compile"] else model
    offsets = torch.arange(run["shape"]["ctx"] + 1)

    def gradients():
        windows = text[torch.randint(len(text) - len(offsets) + 1, (run["batch"], 1)) + offsets]
        net(windows[:, :-1], windows[:, 1:].contiguous()).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    def step(number):
        gradients()
        for weight, row, view in matrices:
            view.grad = weight.grad[row:row + len(view)]
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule(run, number)
            optimizer.step()
        model.zero_grad()

    for _ in range(WARM_UP):  # no weight changes
        gradients()
        evaluate(net, tail, run, run["batch"])
        model.zero_grad()
    curve, seconds = [], 0.0
    for number in range(1, run["steps"] + 1, run["every"]):
        start = time.perf_counter()
        for i in range(run["every"]):
            step(number + i)
        seconds += time.perf_counter() - start
        done = number + run["every"] - 1
        curve.append([done * run["batch"] * run["shape"]["ctx"], seconds, evaluate(net, tail, run, run["prefix"])])
    loss = evaluate(net, tail, run, 0)
    if not math.isfinite(loss):
        sys.exit("the loss is not finite; try smaller learning rates with --set")
    print(json.dumps({"loss": loss, "curve": curve, "version": torch.__version__}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
