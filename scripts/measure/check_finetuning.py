#!/usr/bin/env python3
"""Compares fine-tuning (./train --init) with PyTorch (needs PyTorch, transformers and tokenizers).

    scripts/measure/check_finetuning.py [--train ./train]

transformers saves randomly initialized models (GPT-2, LLaMA, Qwen 2, OPT and others, in one file and in shards, in fp32
and bf16), each with a byte tokenizer. ./train fine-tunes them for ten steps of AdamW, and PyTorch does the same in
float64 on the same windows. Each model must
  - begin with the loss that transformers computes, within 1e-4;
  - end with PyTorch's weights, within 1e-5.
Training uses half of each model's context.
Prints one line per model; exit status 1 if any differs.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

from check_transformers import Differs, foreign, save

CTX, BATCH, ACCUMULATE, STEPS = 32, 3, 2, 10
RATE, DECAY, BETAS = 1e-3, 0.1, (0.9, 0.95)
EPS = 1e-6  # the gradient of a bias of keys is 0 but for rounding, which a smaller one would make as large as any other
END = 256
KINDS = ("gpt2", "gpt2, in shards", "opt", "opt, after, no biases, untied", "llama", "llama, in shards", "qwen2, grouped", "qwen2, tied, in bf16 shards",
         "mistral, head_dim", "arcee", "smollm3, all RoPE", "smollm3, no RoPE", "starcoder2", "stablelm")


def alphabet():
    """The character that represents each byte in files of byte-level BPEs."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {**{byte: chr(byte) for byte in seen}, **{byte: chr(256 + i) for i, byte in enumerate(hidden)}}


def save_tokenizer(path):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    tokenizer = Tokenizer(models.BPE(vocab={symbol: byte for byte, symbol in alphabet().items()}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    assert tokenizer.token_to_id("<|endoftext|>") == END
    tokenizer.save(path + "/tokenizer.json")


def letters(count, seed):
    source = random.Random(seed)
    return "".join(source.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(count))


def train(options, path, text, out, *more):
    command = [options.train, text, "--init", path, "--out", out, "--overwrite", "--ctx", CTX, "--batch", BATCH,
               "--grad-accum", ACCUMULATE, "--steps", STEPS, "--schedule", "constant", "--warmup", 0, "--lr", RATE,
               "--eps", EPS, "--dtype", "f32", "--device", "cpu", "--sample-tokens", 0, "--eval-every", 0, *more]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Differs(done.stderr.strip())
    return done.stdout


def windows(options, path, text, out):
    """The tokens of all windows in the order of training, as --show prints their texts."""
    shown = train(options, path, text, out, "--val-frac", 0, "--dry-run", "--show", BATCH * ACCUMULATE * STEPS)
    rows = [re.sub(r"\s|<\|endoftext\|>", "", part.split("\n", 2)[2]) for part in shown.split("window ")[1:]]
    ids = [[ord(letter) for letter in row] for row in rows]
    return [row + [END] * (CTX + 1 - len(row)) for row in ids]  # the text has one end, at its end


def loss_of(model, rows):
    tokens = torch.tensor(rows)
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def fine_tune(model, batches):
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=DECAY), dict(params=vectors, weight_decay=0.0)],
                                  lr=RATE, betas=BETAS, eps=EPS)
    for rows in batches:
        optimizer.zero_grad()
        loss_of(model, rows).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def compare_weights(model, run):
    """The largest difference. Tensors that only Inkling's model has (biases of another class) must be zero."""
    theirs, largest = dict(model.named_parameters()), 0.0
    ours = transformers.AutoModelForCausalLM.from_pretrained(run, dtype=torch.float32)
    for name, parameter in ours.named_parameters():
        other = theirs.get(name)
        if other is None and not name.endswith("o_proj.bias"):
            raise Differs(f"there is no {name}")
        other = torch.zeros_like(parameter) if other is None else other[:len(parameter)]
        if name == "model.decoder.embed_positions.weight":  # whose first two rows nothing reads
            parameter, other = parameter[2:], other[2:]
        largest = max(largest, float((parameter - other).detach().abs().max()))
    return largest


def check(options, kind, scratch):
    model = foreign(kind).eval()
    base, run = scratch + "/base", scratch + "/run"
    save(model, kind, base)
    save_tokenizer(base)
    text, val = scratch + "/text.txt", scratch + "/val.txt"
    for path, content in ((text, letters(3000, 1)), (val, letters(CTX, 2))):
        with open(path, "w", encoding="ascii") as stream:
            stream.write(content)
    train(options, base, text, run, "--val", val)
    with open(run + "/metrics.jsonl", encoding="utf-8") as stream:
        first = next(line for line in map(json.loads, stream) if "val_loss" in line)
    with torch.no_grad():
        before = float(loss_of(model.double(), [[*letters(CTX, 2).encode(), END]]))
    if first["step"] != 0 or not abs(first["val_loss"] - before) < 1e-4:
        raise Differs(f"the first evaluation is {first}, and transformers has {before}")
    rows = windows(options, base, text, run + ".plan")
    per_step = BATCH * ACCUMULATE
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    fine_tune(model, [rows[i:i + per_step] for i in range(0, len(rows), per_step)])
    moved = max(float((parameter - start[name]).abs().max()) for name, parameter in model.state_dict().items()
                if name in start)
    train(options, base, text, run, "--val-frac", 0)
    difference = compare_weights(model, run)
    if not difference < 1e-5:
        raise Differs(f"weights differ by {difference:.1e}, after they have moved by {moved:.1e}")
    return f"loss {before:.4f}, differs by {abs(first['val_loss'] - before):.0e}; weights by {difference:.0e} of {moved:.0e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="./train", help="default: %(default)s")
    parser.add_argument("kinds", nargs="*", metavar="MODEL", help=f"default: all of {'; '.join(KINDS)}")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failures = 0
    for kind in options.kinds or KINDS:
        scratch = tempfile.mkdtemp()
        try:
            print(f"{kind:34s} {check(options, kind, scratch)}", flush=True)
        except Differs as problem:
            failures += 1
            print(f"{kind:34s} FAILED: {problem}", flush=True)
        finally:
            shutil.rmtree(scratch)
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}: "
          f"{f'{failures} differ' if failures else 'all agree'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
