#!/usr/bin/env python3
"""Compares the loss on packed prompts and responses with PyTorch's.

    scripts/measure/compare_packed.py [--documents 400]

Writes JSON lines of prompts and responses in several scripts, trains a tiny BPE model on them with ./train
--prompt-field, --response-field and --pack docs, and recomputes its validation loss with transformers in float64:
1. each document alone, after the end token, with prompts masked by ignore_index = -100;
2. documents one after the other in rows, under a block-diagonal causal mask, with positions from 0 in each.
Exit status 1 if a loss differs by more than 1e-5.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile


def documents(count, seed):
    """Prompts and responses of very different lengths; some are empty."""
    source = random.Random(seed)
    words = ["one", "two", "sieben", "четыре", "五", "ستة", "👩‍🚀", "  ", "it's", "3.14", "\n", "état"]
    text = lambda most: " ".join(source.choice(words) for _ in range(source.randrange(most)))
    made = [{"q": text(9), "a": text(source.choice((3, 12)))} for _ in range(count)]
    return [d for d in made if d["q"] or d["a"]]


def write(path, records):
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def sequences(tokenizer, records):
    """Inputs and targets of each document: the end token, prompt and response; prompt targets are -100."""
    end = tokenizer.eos_token_id
    ids = lambda text: tokenizer(text, add_special_tokens=False).input_ids
    for record in records:
        prompt, response = ids(record["q"]), ids(record["a"])
        yield [end] + prompt + response, [-100] * len(prompt) + response + [end]


def sums(logits, targets):
    import torch
    loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")
    return loss.item(), int((targets != -100).sum())


def alone(model, rows):
    import torch
    total = count = 0
    for tokens, targets in rows:
        nats, counted = sums(model(torch.tensor([tokens])).logits[0], torch.tensor(targets))
        total, count = total + nats, count + counted
    return total / count


def block_diagonal(model, rows, length):
    """Rows of up to `length` tokens, filled in order."""
    import torch
    packed, row = [], []
    for document in rows:
        if sum(len(tokens) for tokens, _ in row) + len(document[0]) > length:
            packed.append(row)
            row = []
        row.append(document)
    packed.append(row)
    total = count = 0
    for row in packed:
        tokens = torch.tensor([t for document in row for t in document[0]])
        targets = torch.tensor([t for document in row for t in document[1]])
        positions = torch.tensor([i for document in row for i in range(len(document[0]))])
        owner = torch.tensor([k for k, document in enumerate(row) for _ in document[0]])
        seen = (owner[:, None] == owner[None, :]) & torch.tril(torch.ones(len(tokens), len(tokens), dtype=torch.bool))
        mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -torch.inf)
        logits = model(tokens[None], attention_mask=mask[None, None], position_ids=positions[None]).logits[0]
        nats, counted = sums(logits, targets)
        total, count = total + nats, count + counted
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=400)
    options = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    ctx = 128
    with tempfile.TemporaryDirectory() as directory:
        train, val, run = (f"{directory}/{name}" for name in ("train.jsonl", "val.jsonl", "packed.run"))
        records = documents(options.documents, 2)
        write(train, documents(options.documents, 1))
        write(val, records)
        subprocess.run(["./train", train, "--val", val, "--prompt-field", "q", "--response-field", "a", "--pack", "docs",
                        "--tokenizer", "bpe", "--vocab-size", "400", "--layers", "2", "--heads", "4", "--kv-heads", "2",
                        "--dim", "64", "--ctx", str(ctx), "--batch", "4", "--steps", "60", "--eval-every", "0",
                        "--sample-tokens", "0", "--device", "cpu", "--out", run, "--quiet"], check=True)
        with open(f"{run}/metrics.jsonl", encoding="ascii") as stream:
            ours = [json.loads(line)["val_loss"] for line in stream if '"val_loss"' in line][-1]
        model = AutoModelForCausalLM.from_pretrained(run, dtype=torch.float64, attn_implementation="eager")
        rows = list(sequences(AutoTokenizer.from_pretrained(run), records))
        assert max(len(tokens) for tokens, _ in rows) <= ctx
        with torch.no_grad():
            theirs = {"each alone": alone(model, rows), "block-diagonal": block_diagonal(model, rows, ctx)}
    print(f"Inkling         {ours:.9f} nats per token")
    for name, loss in theirs.items():
        print(f"{name:15} {loss:.9f}   differs by {abs(loss - ours):.1e}")
    return int(any(abs(loss - ours) > 1e-5 for loss in theirs.values()))


if __name__ == "__main__":
    sys.exit(main())
