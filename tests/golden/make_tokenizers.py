#!/usr/bin/env python3
"""Writes tokenizers.json beside this file: tokenizers of other models as Hugging Face's `tokenizers` makes them, and what
it makes of a text. tests/test_foreign_tokenizers.c reads it. Needs that package.

    tests/golden/make_tokenizers.py
"""

import json
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import foreign_tokenizers as foreign  # noqa: E402

KINDS = ("llama3", "o200k", "starcoder", "deepseek", "added, normalized", "llama2", "llama2 with added", "gemma",
         "metaspace first, split", "metaspace always, unsplit", "bytes that are special")


def main():
    draw, out = random.Random(14), []
    for name in KINDS:
        kind = foreign.kinds()[name]
        foreign.EXTRA[:] = [token.content for token in foreign.SPECIAL + kind.get("plain", [])]
        text = foreign.text_of(draw, 1500).replace("\0", "").replace("<0x41>", "") + " 1234567 2026 31415 31415 it's IT'S"
        # trained on this text: what is cut elsewhere becomes other tokens; no merges make an added one
        words = text
        for token in foreign.SPECIAL + foreign.PLAIN:
            words = words.replace(token.content.strip() or "\0", "")
        tokenizer = foreign.trained(kind, [words], 900 if kind.get("characters") else 640)
        text += foreign.among_added(draw, 300)
        if "bytes_added" in kind:
            text += " x<0x41>y<0x0A>\n"
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        special = tokenizer.encode(text, add_special_tokens=False).ids
        begin = tokenizer.encode("a").ids[0] if kind.get("post") else -1
        back = None if kind.get("plain") else foreign.text_back(tokenizer, plain)
        out.append({"name": name, "text": text, "plain": plain, "special": special, "begin": begin, "back": back,
                    "tokenizer": json.loads(tokenizer.to_str())})
    with open(os.path.join(HERE, "tokenizers.json"), "w", encoding="utf-8") as stream:
        stream.write("[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in out) + "\n]\n")


if __name__ == "__main__":
    main()
