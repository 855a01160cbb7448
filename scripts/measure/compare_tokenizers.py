#!/usr/bin/env python3
"""Compares Inkling's BPE with Hugging Face's `tokenizers` library.

    make build/bench_bpe
    scripts/measure/compare_tokenizers.py TEXT [--vocab 32768] [--threads 2] [--repeats 3] [--skip-timing]

1. Equality: bench_bpe trains merges on TEXT. With these merges, both programs must give the same token ids on samples
   of many scripts and on all of TEXT (which must be UTF-8).
2. Wall time of training and encoding: medians of alternating runs. Inkling's time divided by the library's should be at
   most 1.
The last line is JSON. Exit status 1 if any token id differs.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip-timing", action="store_true")
    parser.add_argument("--program", default="build/bench_bpe")
    return parser.parse_args()


def alphabet():
    """Byte -> character, as in GPT-2's encoder.py."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def samples():
    """Name -> text: cases that are easy to get wrong."""
    spaces = "\u0085\u00a0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
    return {
        "english": "It's what we've said: they'll go, I'd stay, you're 'tis DON'T won''t 'sup \"'re\" x'\n" * 3,
        "chinese": "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。\n第3章　标题：「你好」、２０２４年\U00020000\n",
        "arabic": "السلام عليكم ورحمة الله وبركاته ١٢٣ مَرْحَبًا، كيف حالك؟\n",
        "devanagari": "नमस्ते दुनिया ४२ क्षत्रिय\n", "thai": "สวัสดีชาวโลก ๑๒๓\n", "korean": "안녕하세요 세계\n",
        "emoji": "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪 a👩‍🚀b 1️⃣ ❤️‍🔥\n",
        "code": "def f(x):\n    if x > 0x1F:\n\t\treturn {'a': [1, 2.5e-3]}  # it's\r\n\n\n    pass\n",
        "spaces": " " * 1000 + "x" + " " * 999 + "\n" + "\n" * 50 + "\t \t \n  y",
        "white space": "".join(f"a{c}b{c}{c}c {c}d{c} e{c}1{c}!" for c in spaces),
        "no white space": "a\u180eb \u180e c\u200bd\ufeffe\u2060f\x1cg\x1dh\x1ei\x1fj\x00k",
        "digits": "0123456789" * 200 + " 3.14159 1,000,000 ½²Ⅷ٣",
        "combining": "e\u0301 n\u0303o\u0308 ö a\u0327\u0301 Å",
        "special": "<|endoftext|> a<|endoftext|>b",
        "long letters": "ab" * 5000 + "a" * 5000,
        "one": "x", "one space": " ", "apostrophes": "'" * 50 + "s 's ''s '", "empty": "",
        "all characters": "".join(chr(p) for p in range(0x110000) if not 0xD800 <= p < 0xE000
                                  and unicodedata.category(chr(p)) != "Cn"),
    }


def assigned(options, directory):
    """Removes unassigned characters from the text; if there are any, options.text becomes a copy."""
    with open(options.text, encoding="utf-8", newline="") as stream:
        text = stream.read()
    unknown = {c for c in set(text) if unicodedata.category(c) == "Cn"}
    if unknown:
        print(f"{len(unknown)} characters left out: not assigned in Unicode {unicodedata.unidata_version}")
        text = text.translate({ord(c): None for c in unknown})
        options.text = f"{directory}/text"
        with open(options.text, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
    return text


def documents(text):
    """Pieces of about 100 kB whose concatenated tokens equal the tokens of the whole text: cut at line ends that follow
    neither white space nor an apostrophe."""
    out, begin = [], 0
    cut = re.compile(r"(?<=[A-Za-z0-9.,;:)])(?=\n)")
    while begin < len(text):
        found = cut.search(text, begin + 100_000)
        end = found.start() if found else len(text)
        out.append(text[begin:end])
        begin = end
    return out


def build(merges):
    """A tokenizer of the library with Inkling's token ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    names = list(alphabet()[byte] for byte in range(256))
    pairs = []
    for left, right in merges:
        pairs.append((names[left], names[right]))
        names.append(names[left] + names[right])
    assert len(set(names)) == len(names), "two ids with the same bytes"
    out = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=pairs))
    out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    out.decoder = decoders.ByteLevel()
    return out


class Ours:
    """Runs bench_bpe."""

    def __init__(self, options, directory):
        self.options, self.merges, self.ids = options, f"{directory}/merges", f"{directory}/ids"

    def run(self, *words):
        return json.loads(subprocess.run([self.options.program, *map(str, words)], check=True, capture_output=True).stdout)

    def train(self):
        return self.run("train", self.options.text, self.options.vocab, self.options.threads, self.merges)["seconds"]

    def encode(self, path):
        return self.run("encode", path, self.merges, self.options.threads, self.ids)["seconds"]

    def pairs(self):
        with open(self.merges, encoding="ascii") as stream:
            return [tuple(map(int, line.split())) for line in stream]

    def read(self):
        import numpy
        return numpy.fromfile(self.ids, dtype=numpy.int32)


def differences(ours, theirs, parts, directory):
    """Names of the samples whose token ids differ."""
    import numpy
    out = []
    for name, text in samples().items():
        path = f"{directory}/sample"
        with open(path, "wb") as stream:
            stream.write(text.encode())
        ours.encode(path)
        same = ours.read().tolist() == theirs.encode(text).ids
        print(f"{name:16} {len(text.encode()):9} bytes  {'equal' if same else 'DIFFERENT'}")
        if not same:
            out.append(name)
    ours.encode(ours.options.text)
    whole = ours.read()
    expected = numpy.concatenate([numpy.array(e.ids, dtype=numpy.int32)
                                  for batch in batches(parts) for e in theirs.encode_batch_fast(batch)])
    same = whole.shape == expected.shape and bool((whole == expected).all())
    print(f"{'whole text':16} {os.path.getsize(ours.options.text):9} bytes  {len(whole)} ids  {'equal' if same else 'DIFFERENT'}")
    return out if same else out + ["whole text"]


def train_theirs(parts, options):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    out = Tokenizer(models.BPE())
    out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=options.vocab, min_frequency=2, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    start = time.perf_counter()
    out.train_from_iterator(parts, trainer, length=len(parts))
    return time.perf_counter() - start, out


def batches(parts):
    """Batches of about 10 MB, because the library takes some 200 bytes of memory per token."""
    return [parts[i:i + 100] for i in range(0, len(parts), 100)]


def encode_theirs(theirs, parts):
    seconds = 0
    for batch in batches(parts):
        start = time.perf_counter()
        encodings = theirs.encode_batch_fast(batch)
        seconds += time.perf_counter() - start
        del encodings
    return seconds


def timings(ours, theirs, parts, options):
    seconds = {"train": ([], []), "encode": ([], [])}
    for _ in range(options.repeats):
        seconds["encode"][0].append(ours.encode(options.text))
        seconds["encode"][1].append(encode_theirs(theirs, parts))
        seconds["train"][0].append(ours.train())
        seconds["train"][1].append(train_theirs(parts, options)[0])
    out = {}
    for name, (mine, other) in seconds.items():
        a, b = statistics.median(mine), statistics.median(other)
        print(f"{name:7} ours {a:8.3f} s   tokenizers {b:8.3f} s   ratio {a / b:.3f}   all: "
              f"{[round(x, 3) for x in mine]} {[round(x, 3) for x in other]}")
        out[name] = {"ours": a, "tokenizers": b, "ratio": a / b}
    return out


def main():
    options = arguments()
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)  # before the library is loaded
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tokenizers
    with tempfile.TemporaryDirectory() as directory:
        text = assigned(options, directory)
        parts = documents(text)
        ours = Ours(options, directory)
        ours.train()
        theirs = build(ours.pairs())
        print(f"tokenizers {tokenizers.__version__}, {len(ours.pairs())} merges, {options.threads} threads")
        different = differences(ours, theirs, parts, directory)
        result = {"version": tokenizers.__version__, "different": different}
        if not options.skip_timing:
            result |= timings(ours, theirs, parts, options)
    print(json.dumps(result))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
