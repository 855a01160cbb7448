#!/usr/bin/env python3
"""Trains for at most five minutes on a text and measures what the model has learned, in numbers that anybody can compare.

    make && scripts/measure/five_minutes.py book.txt
    scripts/measure/five_minutes.py book.txt --seeds 3 --minutes 5 --dtype bf16       # other options are those of ./train
    scripts/measure/five_minutes.py stories.txt --val stories-valid.txt               # a text of its own to score

Without --val, the last tenth of the text, at most 1 MB, is held out: neither the tokenizer nor the model is trained on
it. Everything else is what ./train chooses by itself, unless you set it. The minutes include starting, reading the text
and training the tokenizer. Then `./generate RUN --score` reads the saved model and scores the whole held-out text, in
windows that do not overlap. The line of a seed also shows what ./train reports, for comparison.

Prints a line per seed to stderr and a Markdown table to stdout: medians over the seeds, and the lowest and the highest
bits per byte. Bits per byte can be compared between tokenizers, but only on the same text. --json writes a line per
seed with the results of both programs.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile

from bench import execute, processor, write_json_lines

LARGEST = 1_000_000  # bytes held out: no more than the tokens that ./train validates on
COLUMNS = ("text", "MB", "processor", "device", "dtype", "parameters", "tokens seen", "perplexity per token",
           "bits per byte", "lowest to highest", "seeds")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False, usage="%(prog)s TEXT [options] [options of ./train]")
    parser.add_argument("text", help="a text file")
    parser.add_argument("--minutes", type=float, default=5, help="of each run (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="train N models, seeds 1 to N (default: 1)")
    parser.add_argument("--val", metavar="FILE", help="held-out text (default: the end of the text)")
    parser.add_argument("--json", metavar="FILE", help="write the results of every seed to FILE")
    parser.add_argument("--bin", default=".", metavar="DIR", help="where ./train and ./generate are")
    args, args.options = parser.parse_known_args()
    if args.seeds < 1 or not args.minutes > 0:
        parser.error("--seeds and --minutes must be above 0")
    return args


def split(path, directory):
    """Writes the end of the text, from the first paragraph in it, and what is before it; returns both paths."""
    with open(path, "rb") as file:
        text = file.read()
    at = len(text) - min(len(text) // 10, LARGEST)
    for end in (b"\n<|endoftext|>\n", b"\n\n", b"\n"):
        found = text.find(end, at)
        if 0 <= found < (at + len(text)) // 2:
            at = found + len(end)
            break
    paths = [os.path.join(directory, name) for name in ("text.txt", "held-out.txt")]
    for name, part in zip(paths, (text[:at], text[at:])):
        with open(name, "wb") as file:
            file.write(part)
    return paths


def measure(args, text, held_out, directory, seed):
    out = os.path.join(directory, f"{seed}.run")
    execute([os.path.join(args.bin, "train"), text, "--val", held_out, "--out", out, "--minutes", str(args.minutes),
             "--seed", str(seed), *args.options])
    with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
        result = json.load(file)
    score = execute([os.path.join(args.bin, "generate"), out, "--score", held_out, "--device", "cpu"])
    score = json.loads(score.stdout)
    row = {"seed": seed, "perplexity": math.exp(score["val_loss"]), "score": score, "result": result}
    print(f"seed {seed}: {score['val_bits_per_byte']:.4f} bits per byte, perplexity {row['perplexity']:.2f} per token, "
          f"{result['tokens'] / 1e6:.2f} M tokens, {result['train_tokens_per_s']:.0f} tokens/s while training; "
          f"./train reports {result['kept']['bits_per_byte']:.4f}", file=sys.stderr, flush=True)
    return row


def table_row(args, rows):
    results = [row["result"] for row in rows]
    first, bits = results[0], [row["score"]["val_bits_per_byte"] for row in rows]
    middle = statistics.median
    return (os.path.basename(args.text), f"{os.path.getsize(args.text) / 1e6:.1f}", processor(),
            first["device"], first["dtype"], f"{first['params'] / 1e6:.2f} M",
            f"{middle(r['tokens'] for r in results) / 1e6:.2f} M",
            f"{middle(row['perplexity'] for row in rows):.2f}", f"{middle(bits):.3f}",
            f"{min(bits):.3f} to {max(bits):.3f}", len(rows))


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as directory:
        text, held_out = (args.text, args.val) if args.val else split(args.text, directory)
        rows = [measure(args, text, held_out, directory, seed) for seed in range(1, args.seeds + 1)]
    for cells in (COLUMNS, ["---"] * len(COLUMNS), table_row(args, rows)):
        print("| " + " | ".join(map(str, cells)) + " |")
    if args.json:
        write_json_lines(args.json, rows)


if __name__ == "__main__":
    main()
