#!/usr/bin/env python3
"""Compares `./generate --encode` and `--decode` with Hugging Face's `tokenizers`, token by token.

    tests/foreign_tokenizers.py [--full] [--only NAME] [--seed N]     # BIN: directory of generate (default: .)
    tests/foreign_tokenizers.py --mutations N --reader build/tests/fuzz/fuzz_tokenizer

Trains a small vocabulary of each kind of tokenizer with the library, saves it as models do, and compares the tokens of
prose, code, digits, many scripts, combining marks, control characters, runs of spaces and special tokens. --full: 10 MB
of such text for each kind. --mutations: gives N corrupted files to the fuzzing program --reader, which crashes if a
file is neither rejected nor usable for encoding. Prints `ok NAME` or `not ok NAME: why` for each check, then `done`.
All characters are from Unicode 14 or older, because the libraries differ in newer ones. Without the library,
tests/test_foreign_tokenizers.c covers part of this (tests/golden/make_tokenizers.py).
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TRAIN, GENERATE = (os.path.join(os.path.abspath(os.environ.get("BIN", ".")), name) for name in ("train", "generate"))
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
failed = False


def check(name, ok, why=""):
    global failed
    failed |= not ok
    print(f"ok {name}" if ok else f"not ok {name}: {why}", flush=True)


# ---- texts ----

WORDS = """the of and to in that was his it with as for had you not be on at by which have or from this him but all she
they were my are me one their so an said them we who would been will no when there if more out up into do any your what
has man could other than our some very time upon about may its only now like little then can should made did us such a
great before must two these see know over much down after first good men own never most old shall day where those came
come himself way work life without go make well through being long say might how am too even def again many back here
think every people went same last thought away under take found hand eyes still place while just also young yet though
""".split()
SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0xFF), (0x100, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA),
           (0x627, 0x64A), (0x905, 0x939), (0xE01, 0xE2E), (0x10D0, 0x10F0), (0x1100, 0x1112), (0x1161, 0x1175),
           (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0x10400, 0x1044F), (0x1D400, 0x1D454)]
SIGNS = ["\u2019", "\u2014", "\u00ab", "\u20ac", "\u2581", "\u00b2", "\u00bd", "\u2167", "\u0663", "\u0967", "\u2028",
         "\u0085", "\u00a0", "\u180e", "\u3000", "\u200b", "\u200d", "\ufeff", "\ufffd", "\U0001f600", "\U0001f468\u200d\U0001f469",
         "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\u017f", "\u212a", "\u0130", "\u00df", "\ufb01", "\x00", "\x01", "\x0b", "\x0c",
         "\x1b", "\x1f", "\x7f", "\u203f", "\ue000", "\U000e0041", "\u0e33", "\u1e9b\u0323", "\u0958", "\u2126", "\u0344"]
MARKS = ["\u0300", "\u0301", "\u0308", "\u0323", "\u0327", "\u0345", "\u05b0", "\u064b", "\u093c", "\u3099", "\u20dd"]
EXTRA = []  # added tokens of the kind that is tested


def piece(draw):
    kind = draw.randrange(16)
    if kind < 5:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 12))) + draw.choice([" ", ". ", ", ", "\n", "? "])
    if kind == 5:
        return draw.choice(["don't", "it's", "I'LL", "we'\u017f", "he'd ", "'re", "'VE been", "''s", "o'clock", "rock 'n' roll "])
    if kind == 6:
        return draw.choice(["    return x[i] += 0x1F;\n", "\tif (a && b != c) {\r\n", "def f(self, *args):\n        pass\n",
                            "// ---- ====\n", "a->b(c)[d]{e}", "https://example.org/a?b=c&d#e", "</div>\n\n\n", "$x ** 2 <= 1e-9"])
    if kind == 7:
        return "".join(draw.choice("0123456789") for _ in range(draw.randrange(1, 12))) + draw.choice(["", " ", ".", ","])
    if kind < 10:
        low, high = draw.choice(SCRIPTS)
        return "".join(chr(draw.randint(low, high)) for _ in range(draw.randrange(1, 9))) + draw.choice(["", " "])
    if kind == 10:
        return draw.choice(SIGNS) * draw.choice([1, 1, 1, 2, 5])
    if kind == 11:  # not normalized
        return draw.choice("aeiouAEnOsd ") + "".join(draw.choice(MARKS) for _ in range(draw.randrange(1, 5)))
    if kind == 12:
        return draw.choice(" \n\t\r") * draw.choice([1, 2, 3, 7, 70])
    if kind == 13:
        return draw.choice([" \n", "\n ", " \t ", "\r\n\r\n", "  \n\n  ", " \u00a0 ", "\n\u2003"])
    if kind == 14 and EXTRA:
        return draw.choice(["", " ", "  ", "\n", "x"]) + draw.choice(EXTRA) + draw.choice(["", " ", "  ", "\u3000", "y", "1"])
    return draw.choice(["<", ">", "|", "<|", "_", "\u2581", "<0x41>", "<s", "...", "!?", "\u3002", "\u00bf"])


def text_of(draw, size):
    out, length = [], 0
    while length < size:
        out.append(piece(draw))
        length += len(out[-1])
    return "".join(out)


def among_added(draw, size):
    """A text long enough to be divided among threads (every 256 KB), with added tokens at any place."""
    out, length = [], 0
    while length < size:
        out.append(draw.choice(EXTRA) + draw.choice(["x", "1", "y ", " z", "\n", "  \n", "\u00e9"]))
        length += len(out[-1])
    return "".join(out)


# ---- kinds ----

def isolated(pattern, **more):
    return pre_tokenizers.Split(Regex(pattern), **{"behavior": "isolated", **more})


def byte_level(prefix=False, regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def template(token):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, 0)])


SPECIAL = [AddedToken("<|end|>", special=True), AddedToken("<|im_start|>", special=True, normalized=True),
           AddedToken("<|im_end|>", special=True, lstrip=True), AddedToken("<|im|>", special=True, rstrip=True)]
PLAIN = [AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=True), AddedToken("    ", normalized=False),
         AddedToken("tool", single_word=True, normalized=True), AddedToken("<tool>", lstrip=True, normalized=False),
         AddedToken("<stop>", rstrip=True, normalized=False), AddedToken("\u00e9t\u00e9", normalized=True), AddedToken("end|>x", normalized=False)]
ANYWHERE = [token for token in PLAIN if not token.single_word]  # with one of those a text is never cut
STRIP_SPACE = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def kinds():
    """{name: how it differs from GPT-2's tokenizer}."""
    metaspace = lambda scheme, split: dict(
        characters=True, inner=not split, pre=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split),
        decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme, split=split)]))
    llama2 = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    return {
        "gpt2": dict(pre=byte_level(regex=True)),
        "prefix space": dict(pre=byte_level(True, True), prefix=True, plain=ANYWHERE),
        "one word": dict(pre=byte_level()),
        "gpt2 by its pattern": dict(pre=sequence(isolated(GPT2), byte_level())),
        "llama3": dict(pre=sequence(isolated(LLAMA3), byte_level()), ignore_merges=True, post=template("<|end|>")),
        "qwen": dict(pre=sequence(isolated(QWEN), byte_level()), normalizer=normalizers.NFC()),
        "gpt2 normalized": dict(pre=byte_level(regex=True), normalizer=normalizers.Sequence([normalizers.NFC()]), plain=ANYWHERE),
        "gpt4": dict(pre=sequence(isolated(LLAMA3, behavior="removed", invert=True), byte_level())),
        "gpt4 possessive": dict(pre=sequence(isolated(CL100K), byte_level())),
        "o200k": dict(pre=sequence(isolated(O200K), byte_level()), ignore_merges=True),
        "starcoder": dict(pre=sequence(pre_tokenizers.Digits(True), byte_level(regex=True))),
        "digits together": dict(pre=sequence(pre_tokenizers.Digits(False), byte_level(True, True)), prefix=True),
        "deepseek": dict(pre=sequence(isolated("[\r\n]"), isolated(r"\s?\p{L}+"), isolated(r"\s?\p{P}+"),
                                      isolated("[\u4e00-\u9fa5\u3040-\u30ff]+"), pre_tokenizers.Digits(True), byte_level())),
        "deepseek3": dict(pre=sequence(isolated(r"\p{N}{1,3}"), isolated("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
                                       isolated(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
                                                r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
                                       byte_level())),
        "groups of three": dict(pre=sequence(isolated(r"(?=(\d{3})+(?!\d))"), isolated(r"\p{Han}+|\w+|\W\s*\S"), byte_level())),
        "classes": dict(pre=sequence(isolated(r"[\s\d]+|[\w-]+x?|[^\S\n]{2,}?|^.$|\DA|\P{L} "), byte_level())),
        "merged before": dict(pre=sequence(isolated("e", behavior="merged_with_previous"), byte_level())),
        "merged behind": dict(pre=sequence(isolated(" +", behavior="merged_with_next"), byte_level())),
        "merged inverted": dict(pre=sequence(isolated(r"\w", behavior="merged_with_next", invert=True), byte_level())),
        "contiguous": dict(pre=sequence(isolated(r"[a-m]", behavior="contiguous"), byte_level())),
        "removed": dict(pre=sequence(isolated(r"\s", behavior="removed"), byte_level()), loses=True),
        "text pattern": dict(pre=sequence(pre_tokenizers.Split(".", "isolated"), byte_level(True)), prefix=True),
        "added": dict(pre=byte_level(regex=True), plain=PLAIN),
        "added, normalized": dict(pre=sequence(isolated(QWEN), byte_level()), normalizer=normalizers.NFC(), plain=PLAIN),
        "llama2": dict(characters=True, normalizer=llama2, post=template("<|end|>")),
        "llama2 with added": dict(characters=True, normalizer=llama2, plain=ANYWHERE),
        "bytes that are special": dict(characters=True, normalizer=llama2, bytes_added=True, post=template("<|end|>")),
        "bytes that are added": dict(characters=True, normalizer=llama2, bytes_added=False),
        "words that are special": dict(pre=byte_level(regex=True), words=["!", "q", "and", "th"]),
        "words that are special, llama2": dict(characters=True, normalizer=llama2, words=["!", "q", "\u2581and", "th"]),
        "metaspace, special bytes": {**metaspace("first", True), "bytes_added": True},
        "gemma": dict(characters=True, normalizer=normalizers.Replace(" ", "\u2581"), decoder=decoders.Sequence(STRIP_SPACE[:3]),
                      pre=pre_tokenizers.Split(" ", "merged_with_previous")),
        "metaspace first": metaspace("first", False),
        "metaspace first, split": {**metaspace("first", True), "plain": ANYWHERE},
        "metaspace always": metaspace("always", True),
        "metaspace always, unsplit": {**metaspace("always", False), "plain": PLAIN},
        "metaspace never": metaspace("never", True),
    }


CUT = ["llama3", "qwen", "starcoder", "gpt2 normalized", "prefix space", "llama2 with added", "metaspace first", "metaspace first, split"]


def trained(kind, corpus, vocab, special=SPECIAL[1:]):
    characters = kind.get("characters", False)
    tokenizer = Tokenizer(models.BPE())
    if kind.get("normalizer"):
        tokenizer.normalizer = kind["normalizer"]
    if kind.get("pre"):
        tokenizer.pre_tokenizer = kind["pre"]
    if characters and not kind.get("pre"):  # a trainer would count one word
        tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    first = ["<|end|>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if characters else [])
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=first, show_progress=False,
        **({"limit_alphabet": 300} if characters else {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()})))
    made = json.loads(tokenizer.to_str())
    if "bytes_added" not in kind:
        made["added_tokens"] = made["added_tokens"][:1]
    for token in made["added_tokens"][1:]:
        token["special"] = kind["bytes_added"]
    made["model"]["byte_fallback"] = made["model"]["fuse_unk"] = characters
    made["model"]["ignore_merges"] = kind.get("ignore_merges", False)
    if characters and not kind.get("pre"):
        made["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.add_special_tokens(special + kind.get("words", []))
    tokenizer.add_tokens(kind.get("plain", []))
    tokenizer.decoder = kind.get("decoder") or (decoders.Sequence(STRIP_SPACE) if characters else decoders.ByteLevel())
    if kind.get("post"):
        tokenizer.post_processor = kind["post"]
    return Tokenizer.from_str(tokenizer.to_str())


# ---- ours ----

CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
              num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=64, rms_norm_eps=1e-5,
              tie_word_embeddings=True, hidden_act="silu")


def write_model(folder, tokenizer, draw):
    """Writes a model with random weights for the tokenizer."""
    vocab = tokenizer.get_vocab_size()
    layer, shapes = "model.layers.0.", {"model.embed_tokens.weight": [vocab, 8], "model.norm.weight": [8]}
    for name, shape in {"self_attn.q_proj": [8, 8], "self_attn.k_proj": [8, 8], "self_attn.v_proj": [8, 8], "self_attn.o_proj": [8, 8],
                        "mlp.gate_proj": [8, 8], "mlp.up_proj": [8, 8], "mlp.down_proj": [8, 8],
                        "input_layernorm": [8], "post_attention_layernorm": [8]}.items():
        shapes[f"{layer}{name}.weight"] = shape
    header, body = {}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + 4 * count]}
        body += struct.pack(f"<{count}f", *(draw.gauss(0, 0.3) for _ in range(count)))
    head = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + body)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**CONFIG, "vocab_size": vocab, "bos_token_id": 0, "eos_token_id": 0}, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"eos_token": {"content": "<|end|>"}}, file)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))


def generate(folder, *options, given=b""):
    done = subprocess.run([GENERATE, folder, *options], input=given, capture_output=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{done.returncode}: {done.stderr.decode()[:500]}")
    return done.stdout


def encode(folder, text, *options):
    return [int(line) for line in generate(folder, "--encode", "-", *options, given=text if isinstance(text, bytes) else text.encode()).split()]


def decode(folder, ids):
    return generate(folder, "--decode", "-", given=" ".join(map(str, ids)).encode())


def difference(ours, theirs, tokenizer):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    name = lambda ids: [tokenizer.id_to_token(i) for i in ids[max(0, at - 3):at + 4]]
    return f"token {at} of {len(theirs)}: {name(ours)!a}, expected {name(theirs)!a}"


def text_back(tokenizer, ids):
    """The decoded text, without special tokens except bytes."""
    added = tokenizer.get_added_tokens_decoder()
    special = {number for number, token in added.items() if token.special and not token.content.startswith("<0x")}
    return tokenizer.decode([number for number in ids if number not in special], skip_special_tokens=False)


def compare(name, folder, tokenizer, text, decodes):
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    ours = encode(folder, text)
    check(f"{name}: text", ours == plain, difference(ours, plain, tokenizer))
    tokenizer.encode_special_tokens = False
    special = tokenizer.encode(text, add_special_tokens=False).ids
    ours = encode(folder, text, "--special")
    check(f"{name}: --special", ours == special, difference(ours, special, tokenizer))
    if decodes:
        theirs = text_back(tokenizer, plain)
        ours = decode(folder, plain).decode(errors="replace")
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        check(f"{name}: back", ours == theirs, f"at {at}: {ours[at - 9:at + 9]!a}, expected {theirs[at - 9:at + 9]!a}")


def prompt_of(folder, tokenizer, name, text):
    """The tokens that the model gets for a prompt."""
    tokenizer.encode_special_tokens = False
    shown = os.path.join(folder, "map.json")
    generate(folder, "-p", text, "--special", "--quiet", "-n", "0", "--attention", shown)
    with open(shown) as file:
        ours = json.load(file)["text"]["ids"]
    theirs = tokenizer.encode(text).ids
    check(f"{name}: prompt", ours == theirs, difference(ours, theirs, tokenizer))


def written(folder, tokenizer, name, prompts):
    """The printed text must continue the prompt as when the library decodes both together."""
    wrong, compared = "nothing was compared", 0
    for prompt in prompts:
        lines = generate(folder, "-p", prompt, "--quiet", "-n", "3", "-N", "40", "-s", "7", "--ignore-eos", "--json")
        ids = tokenizer.encode(prompt).ids if prompt else []
        before = text_back(tokenizer, ids)
        for made in json.loads(lines)["choices"]:
            whole = text_back(tokenizer, ids + made["token_ids"])
            if "\ufffd" in whole[len(before):] + made["text"]:
                continue  # parts of characters are shown in different ways
            compared += 1
            if wrong and compared == 1:
                wrong = ""
            if before + made["text"] != whole:
                wrong = f"{made['text']!a}, expected {whole[len(before):]!a}"
    check(f"{name}: continued", not wrong, wrong)


def broken(name, folder, text, keeps):
    """Invalid UTF-8 must decode to the same bytes."""
    damaged = bytearray(text.encode()[:20000])
    draw = random.Random(5)
    for _ in range(len(damaged) // 20):
        damaged[draw.randrange(len(damaged))] = draw.randrange(128, 256)
    got = decode(folder, encode(folder, bytes(damaged)))
    if keeps:
        check(f"{name}: not UTF-8", got == bytes(damaged), f"{len(got)} bytes of {len(damaged)}")


# ---- the vocabularies of whole pieces that ./train writes ----

SPACES = " \t\n\x0b\x0c\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
WHOLE = ["chars", "words", "lines", "ids"]


def restored(kind, text):
    """What decoding makes of a text: docs/vocabularies.md."""
    words = lambda line: " ".join(filter(None, "".join(" " if c in SPACES else c for c in line).split(" ")))
    if kind == "lines":
        return text if text.endswith("\n") or not text else text + "\n"
    return {"chars": text, "words": "\n".join(map(words, text.split("\n"))), "ids": words(text)}[kind]


def whole_pieces(kind, draw, size, *options):
    text = text_of(draw, size).replace("\0", "").replace("<|endoftext|>", "")
    if kind == "ids":
        text = "".join(f"{draw.randrange(300)}{draw.choice(SPACES)}" for _ in range(size // 4))
    name = " ".join([kind, *options])
    with tempfile.TemporaryDirectory() as folder:
        path, run = os.path.join(folder, "text.txt"), os.path.join(folder, "run")
        with open(path, "w", newline="") as file:
            file.write(text)
        subprocess.run([TRAIN, path, "--out", run, "--tokenizer", kind, *options, "--layers", "1", "--heads", "1", "--dim", "16", "--ctx",
                        "16", "--batch", "1", "--steps", "1", "--sample-tokens", "0", "--val-frac", "0", "--quiet"], check=True, capture_output=True)
        library = Tokenizer.from_file(os.path.join(run, "tokenizer.json"))
        again = Tokenizer.from_str(library.to_str()).to_str()
        check(f"{name}: the library writes the same file", json.loads(again) == json.load(open(os.path.join(run, "tokenizer.json"))))
        ids = library.encode(text).ids
        ours = encode(run, text)
        check(f"{name}: text", ours == ids, difference(ours, ids, library))
        theirs = library.decode(ids)
        ours = decode(run, ids).decode()
        check(f"{name}: back", ours == theirs, f"{ours[:200]!a}, expected {theirs[:200]!a}")
        if not options:
            check(f"{name}: to the text", ours == restored(kind, text))
        EXTRA[:] = ["<|endoftext|>", "<unk>", "a<unk>b"]
        if options and kind != "ids":  # with unknown pieces
            other = text_of(draw, 30000).replace("<|endoftext|>", "x")
            ours, ids = encode(run, other), library.encode(other).ids
            check(f"{name}: another text", ours == ids, difference(ours, ids, library))
        words = restored("words", text).split("\n")
        begin = {"chars": text[:9], "words": " ".join(words[0].split(" ")[:3]), "lines": text.split("\n")[0], "ids": "12 17"}[kind]
        written(run, library, name, [begin] if kind == "ids" else [begin, "", "\n"])


# ---- damaged files ----

VALUES = [None, True, False, 0, -1, 1, 2 ** 31, 2 ** 63 - 1, -2 ** 63, 1e300, 0.5, "", "a", "\u2581", "<|end|>", "\ud7ff\U0010ffff", [], {}, [[]],
          {"type": "Sequence"}, {"type": "NFC"}, {"type": "Fuse"}, {"type": "ByteLevel"}, {"String": " "}, {"String": ""}, "x" * 5000,
          {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}, {"type": "Prepend", "prepend": "ab"},
          {"type": "Replace", "pattern": {"String": "a"}, "content": ""}, {"type": "Replace", "pattern": {"String": "\u00e9"}, "content": "xyz"},
          {"type": "Sequence", "pretokenizers": [], "normalizers": [], "decoders": [], "processors": []}]
PATTERNS = ["(a+)+[bc]", "(?:a|a)*$", "(a*)*[^a]", "((((((a?)*)*)*)*)*)*b?", "(?=(a+)+[!?])", "a{1,1000}{1,1000}", "(" * 300 + ")" * 300,
            "(?:" * 190 + "a" + ")*" * 190, "[" + "a" * 9000 + "]", ".*?" * 50 + "q", "", "|", "^|$", "(?=)", "(?!)", "\\", "[", "(", ")", "*",
            "a**", "{", "a{2}+", "a{,3}", "[\\s-z]", "[\\S-]", "\\p{", "\\p{L", "\\pL", "\\x{110000}", "\\x{d800}", "\\uD800", "\\u12", "(?<=a+)b",
            "(?<!\\w{2,3})\\w", "(?i)\u0130|(?i:\u00df)", "\\Z|\\z|\\A", "[^\\S\\d]+", "\\W+|\\S", "(?>a+)a", "\u00e9{2}+", "(.|\\s)+(.|\\s)+[\u4e00]"]


def places(value, found):
    """All (container, key) pairs in a value; only a few of long containers."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in list(keys)[:12]:
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            places(value[key], found)
    return found


def nested(draw):
    value = {"type": "NFC"}
    for _ in range(draw.choice([2, 5, 100, 3000])):
        value = {"type": "Sequence", draw.choice(["normalizers", "pretokenizers", "decoders", "processors"]): [value]}
    return value


def damaged(draw, files):
    """One of the files, as corrupted bytes."""
    whole = json.loads(draw.choice(files))
    if draw.random() < 0.25:
        text = bytearray(json.dumps(whole, ensure_ascii=draw.random() < 0.5).encode())
        for _ in range(draw.choice([1, 2, 5])):
            at = draw.randrange(len(text))
            if draw.random() < 0.5:
                text[at] = draw.choice([draw.randrange(256), ord(draw.choice('0123456789{}[],:"\\'))])
            elif draw.random() < 0.5:
                del text[at:at + draw.choice([1, 10, 1000])]
            else:
                text[at:at] = text[draw.randrange(len(text)):][:draw.choice([1, 10, 1000])]
        return bytes(text)
    for _ in range(draw.choice([1, 1, 2, 4])):
        around = {key: value for key, value in whole.items() if key != "model"}
        everywhere = places(around if draw.random() < 0.6 else whole, [])
        patterns = [place for place in everywhere if place[1] in ("Regex", "String")]
        container, key = draw.choice(patterns if patterns and draw.random() < 0.4 else everywhere)
        kind = draw.randrange(5)
        if key == "Regex" and draw.random() < 0.8:
            container[key] = draw.choice(PATTERNS)
        elif kind == 0 and len(container):
            del container[key]
        elif kind == 1:
            other, name = draw.choice(everywhere)
            container[key] = json.loads(json.dumps(other[name]))
        elif kind == 2 and isinstance(container, list):
            container.append(json.loads(json.dumps(container[key])))
        elif kind == 3:
            container[key] = nested(draw)
        else:
            container[key] = json.loads(json.dumps(draw.choice(VALUES)))  # of its own, to be damaged further
    try:
        return json.dumps(whole).encode()
    except RecursionError:
        return b"{}"


def read_files(reader, paths, seconds):
    done = subprocess.run([reader, *paths], capture_output=True, timeout=seconds)
    return done.returncode, done.stderr.decode(errors="replace")


def mutations(count, reader, seed):
    sys.setrecursionlimit(20000)
    draw = random.Random(seed)
    files = []
    for name, kind in kinds().items():
        tokenizer = trained(kind, [text_of(draw, 3000).replace("\0", "").replace("<0x41>", "")], 700 if kind.get("characters") else 300)
        files.append(tokenizer.to_str())
    for name in ("chars", "words", "lines", "ids"):
        with open(f"tests/fuzz/corpus/tokenizer/{name}.json") as file:
            files += 3 * [file.read()]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, count, 50):
            paths = []
            for i in range(first, min(first + 50, count)):
                paths.append(os.path.join(folder, f"{i % 50}.json"))
                with open(paths[-1], "wb") as file:
                    file.write(damaged(draw, files))
            try:
                if read_files(reader, paths, 120)[0] == 0:
                    continue
            except subprocess.TimeoutExpired:
                pass
            for path in paths:
                try:
                    status, why = read_files(reader, [path], 10)
                except subprocess.TimeoutExpired:
                    status, why = -1, "longer than 10 s"
                if status:
                    bad += 1
                    kept = os.path.join(tempfile.gettempdir(), f"damaged-tokenizer-{bad}.json")
                    os.replace(path, kept)
                    check(f"a damaged file, {kept}", False, why[-600:])
    check(f"{count} damaged files", bad == 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--reader", help="for a few mutations besides, where --mutations does not say how many")
    options = parser.parse_args()
    if options.mutations or options.reader:
        mutations(options.mutations or 300, os.path.abspath(options.reader), options.seed)
    if options.mutations:
        print("done")
        sys.exit(failed)
    draw = random.Random(options.seed)
    # no token has a zero, which jansson does not take, or becomes that of a byte
    corpus = [text_of(draw, 20000).replace("\0", "").replace("<0x41>", "") for _ in range(4)]
    for name, kind in kinds().items():
        if options.only and name not in options.only:
            continue
        EXTRA[:] = [token.content for token in SPECIAL + kind.get("plain", [])]
        tokenizer = trained(kind, corpus, 1500 if kind.get("characters") else 900)
        decodes = not kind.get("plain") # they decode to themselves here, whatever they look like
        # the bytes: what is removed, normalized or put in front is not the text any more
        keeps = not any(kind.get(key) for key in ("loses", "normalizer", "characters", "plain", "prefix", "words"))
        with tempfile.TemporaryDirectory() as folder:
            write_model(folder, tokenizer, draw)
            try:
                compare(name, folder, tokenizer, text_of(draw, 10_000_000 if options.full else 30000), decodes)
                if name in CUT:
                    compare(f"{name}, cut", folder, tokenizer, among_added(draw, 1_500_000), decodes)
                compare(f"{name}, short", folder, tokenizer, draw.choice(["a", " ", "  a", "\u0301", "\u2581a", "\n"]), decodes)
                prompt_of(folder, tokenizer, name, "Hi there<|im_end|> <|im|>  x")
                if decodes:
                    # where tokens have spaces inside Metaspace leaves out those of the first one, too
                    written(folder, tokenizer, name, ["Hi there"] if kind.get("inner") else ["Hi there", ""])
                broken(name, folder, text_of(draw, 20000), keeps)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                check(name, False, error)
    for kind in WHOLE:
        for more in ([], ["--vocab-size", "300" if kind == "ids" else "40"]) + (() if kind == "ids" else (["--unk"],)):
            if not options.only or kind in options.only:
                whole_pieces(kind, draw, 1_000_000 if options.full else 60000, *more)
    print("done")
    sys.exit(failed)


if __name__ == "__main__":
    main()
