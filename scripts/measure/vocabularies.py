#!/usr/bin/env python3
"""The texts and baselines of docs/vocabularies.md.

    scripts/measure/vocabularies.py dna DIR              # dna.fa and dna.val.fa: a Markov chain of order 3; prints its entropy
    scripts/measure/vocabularies.py contexts DIR         # the same text with classical context models, and with xz
    scripts/measure/vocabularies.py chess DIR [GAMES]    # chess.jsonl and chess.val.jsonl: games in UCI (pip install chess)
    scripts/measure/vocabularies.py legal < ANSWER       # the share of legal moves in the output of ./generate --json -N 200
    scripts/measure/vocabularies.py abc MUSIC21 DIR      # abc.txt and abc.val.txt: tunes from the folder of the package music21
"""

import glob
import itertools
import json
import lzma
import math
import os
import random
import re
import sys

BASES, ORDER, LENGTH, HELD_OUT = "ACGT", 3, 5_000_000, 500_000


# ---- DNA ----

def entropy(shares):
    return -sum(p * math.log2(p) for p in shares if p > 0)


def chain(draw):
    """{context: [probability of each base]}."""
    rows = {}
    for context in map("".join, itertools.product(BASES, repeat=ORDER)):
        weights = [draw.gammavariate(0.7, 1) for _ in BASES]
        rows[context] = [weight / sum(weights) for weight in weights]
    return rows


def entropy_rate(rows):
    """Bits per base: the entropy of a row, weighted by how often its context occurs in the long run."""
    shares = dict.fromkeys(rows, 1 / len(rows))
    for _ in range(2000):
        after = dict.fromkeys(rows, 0.0)
        for context, share in shares.items():
            for base, p in zip(BASES, rows[context]):
                after[context[1:] + base] += share * p
        shares = after
    return sum(share * entropy(rows[context]) for context, share in shares.items())


def write_fasta(path, bases):
    with open(path, "w") as file:
        file.write(">a Markov chain of order 3\n")
        file.writelines(bases[at:at + 60] + "\n" for at in range(0, len(bases), 60))


def dna(folder):
    draw = random.Random(3)
    rows = chain(draw)
    sums = {context: list(itertools.accumulate(row)) for context, row in rows.items()}
    bases, context = [], "ACG"
    for _ in range(LENGTH):
        bases.append(draw.choices(BASES, cum_weights=sums[context])[0])
        context = context[1:] + bases[-1]
    text = "".join(bases)
    write_fasta(f"{folder}/dna.fa", text[:-HELD_OUT])
    write_fasta(f"{folder}/dna.val.fa", text[-HELD_OUT:])
    held_out = range(LENGTH - HELD_OUT, LENGTH)
    ideal = -sum(math.log2(rows[text[at - ORDER:at]][BASES.index(text[at])]) for at in held_out) / HELD_OUT
    print(f"entropy of the chain {entropy_rate(rows):.4f} bits per base; the chain itself on the held-out part {ideal:.4f}")


def bases_of(path):
    with open(path) as file:
        return "".join(line.strip() for line in file if not line.startswith(">"))


def contexts(folder):
    """Counts what follows each context in the training text and, as it goes, in the held-out part."""
    train, held_out = bases_of(f"{folder}/dna.fa"), bases_of(f"{folder}/dna.val.fa")
    for order in (0, 1, 2, 3, 4, 6, 8, 10):
        counts, bits, text = {}, 0.0, train[-order:] + held_out if order else held_out
        for at in range(order, len(train)):
            counts.setdefault(train[at - order:at], dict.fromkeys(BASES, 0.5))[train[at]] += 1  # Krichevsky, Trofimov
        for at in range(order, len(text)):
            row = counts.setdefault(text[at - order:at], dict.fromkeys(BASES, 0.5))
            bits -= math.log2(row[text[at]] / sum(row.values()))
            row[text[at]] += 1
        print(f"order {order:2}: {bits / len(held_out):.4f} bits per base")
    packed = len(lzma.compress((train + held_out).encode(), preset=9)) - len(lzma.compress(train.encode(), preset=9))
    print(f"xz -9:    {8 * packed / len(held_out):.4f} bits per base")


# ---- chess ----

PLIES = 60


def game(draw):
    """A game without an engine, half of the time the best capture, else any legal move: its moves and their nats."""
    import chess
    values = [0, 1, 3, 3, 5, 9, 0]
    board, moves, nats = chess.Board(), [], 0.0
    while len(moves) < PLIES and not board.is_game_over():
        legal = list(board.legal_moves)
        captures = [move for move in legal if board.is_capture(move)]
        best = max(captures, key=lambda move: values[board.piece_type_at(move.to_square) or 1], default=None)
        moves.append(draw.choice([best] if best and draw.random() < 0.5 else legal))
        nats -= math.log((0.5 * (moves[-1] == best) + 0.5 / len(legal)) if best else 1 / len(legal))
        board.push(moves[-1])
    return [move.uci() for move in moves], nats


def write_games(path, draw, count):
    moves, nats = 0, 0.0
    with open(path, "w") as file:
        for _ in range(count):
            played, surprise = game(draw)
            moves, nats = moves + len(played), nats + surprise
            file.write(json.dumps({"text": " ".join(played)}) + "\n")
    print(f"{path}: {moves} moves, lower bound {nats / moves:.4f} nats per move")


def chess_games(folder, count=20000):
    write_games(f"{folder}/chess.jsonl", random.Random(1), int(count))
    write_games(f"{folder}/chess.val.jsonl", random.Random(2), 1000)


def legal():
    """Plays each text up to its first illegal move."""
    import chess
    played, illegal, whole = 0, 0, 0
    texts = [choice["text"] for choice in json.load(sys.stdin)["choices"]]
    for text in texts:
        board = chess.Board()
        for word in text.split():
            played += 1
            try:
                board.push_uci(word)
            except ValueError:
                illegal += 1
                break
        else:
            whole += 1
    print(f"{played - illegal} of {played} moves are legal ({100 * (1 - illegal / played):.2f} %); "
          f"{whole} of {len(texts)} games have only legal moves")


# ---- music ----

def abc(package, folder):
    """The tunes of O'Neill's, Ryan's and Aird's collections: the fields M, L and K and the notes."""
    tunes = []
    for path in sorted(glob.glob(f"{package}/corpus/*/*.abc")):
        if os.path.basename(os.path.dirname(path)) not in ("oneills1850", "ryansMammoth", "airdsAirs"):
            continue
        with open(path, errors="replace") as file:
            for tune in re.split(r"(?m)^X:.*\n", file.read())[1:]:
                kept = [line.strip() for line in tune.splitlines() if not re.match(r"%|[A-JN-Za-z]:|\s*$", line)]
                tunes.append("\n".join(kept) + "\n")
    random.Random(1).shuffle(tunes)
    for name, part in (("abc.txt", tunes[len(tunes) // 10:]), ("abc.val.txt", tunes[:len(tunes) // 10])):
        with open(f"{folder}/{name}", "w") as file:
            file.write("<|endoftext|>\n".join(part))
    print(f"{len(tunes)} tunes, {sum(map(len, tunes))} characters")


if __name__ == "__main__":
    modes = {"dna": dna, "contexts": contexts, "chess": chess_games, "legal": legal, "abc": abc}
    if len(sys.argv) < 2 or sys.argv[1] not in modes:
        sys.exit(__doc__)
    modes[sys.argv[1]](*sys.argv[2:])
