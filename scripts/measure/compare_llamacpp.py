#!/usr/bin/env python3
"""Compares models written by ./generate --gguf in llama.cpp with Inkling.

    scripts/measure/compare_llamacpp.py TEXT [--cache ~/.cache/inkling-llamacpp] [--bin .] [--dump build/dump_model]

Trains small models of several shapes briefly on TEXT, and others with the kinds of tokenizers that other models have.
For each model, llama.cpp must
  - give a megabyte of mixed text the same tokens, with special tokens in it read as plain text and as tokens;
  - continue a prompt with the same 200 most likely tokens;
  - compute the same logits from the f32 file: within 1e-4, or within 5e-3 where it computes GELU from a table in f16;
  - lose at most 0.01 nats per token with q8_0.
The script must also detect a file in which the rows of queries and keys are in Inkling's order.

llama.cpp is built once, from the source in the package llama-cpp-python, in the directory --cache (needs cmake, ninja
and a C++ compiler; takes some minutes). Needs numpy, tokenizers and pip. Prints one line per check; exit status 1 if
any fails.
"""

import argparse
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unicodedata
import venv

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests"))

SMALL = ["--heads", 4, "--dim", 64, "--layers", 2, "--ctx", 256, "--batch", 4, "--steps", 60, "--sample-tokens", 0]
BPE = ["--tokenizer", "bpe", "--vocab-size", 700]
MODELS = {
    "byte, tied": [*SMALL, "--arch", "llama", "--tie"],
    "BPE, untied": [*SMALL, *BPE, "--arch", "llama", "--no-tie"],
    "grouped queries": [*SMALL, *BPE, "--arch", "llama", "--kv-heads", 2],
    "biases": [*SMALL, "--bias"],
    "biases of queries, keys and values": [*SMALL, "--qkv-bias"],
    "norms of queries and keys (qwen3)": [*SMALL, *BPE, "--arch", "qwen3", "--kv-heads", 2],
    "the same with biases, untied": [*SMALL, "--arch", "qwen3", "--qkv-bias", "--no-tie"],
    "convolutions (lfm2)": [*SMALL, *BPE, "--arch", "lfm2", "--layers", 5],
    "convolutions, grouped, untied": [*SMALL, "--arch", "lfm2", "--mixer", "AC", "--kv-heads", 2, "--no-tie"],
    "RoPE but in every fourth (smollm3)": [*SMALL, *BPE, "--mixer", "AAAN", "--layers", 5, "--kv-heads", 2],
    "the same with biases": [*SMALL, "--mixer", "AAAN", "--layers", 4, "--qkv-bias"],
    "gpt2": [*SMALL, *BPE, "--arch", "gpt2"],
    "gpt2, no biases, untied": [*SMALL, "--arch", "gpt2", "--no-bias", "--no-tie"],
    "gpt2 with RoPE, grouped (starcoder2)": [*SMALL, "--arch", "gpt2", "--positions", "rope", "--kv-heads", 2],
    "LayerNorm and SwiGLU (stablelm)": [*SMALL, "--norm", "layer", "--qkv-bias"],
    "a part of each head (stablelm)": [*SMALL, "--norm", "layer", "--rotary-dims", 6],
    "LayerNorm and SwiGLU, untied": [*SMALL, *BPE, "--norm", "layer", "--no-tie"],
}
PROMPT = "The king"
F16_TABLES = ("gpt2", "starcoder2")
SPECIAL = ["<|im_start|>", "<|im_end|>"]
ADDED = "<think>"


class Differs(Exception):
    pass


# ---- building ----

def run(*words, **more):
    subprocess.run(words, check=True, **more)


def fetch(cache):
    """The source of llama-cpp-python, and an environment with cmake and ninja."""
    python, source = cache + "/venv/bin/python", cache + "/source"
    if not os.path.exists(cache + "/fetched"):
        os.makedirs(cache, exist_ok=True)
        venv.create(cache + "/venv", with_pip=True)
        run(python, "-m", "pip", "install", "-q", "cmake", "ninja", "numpy")
        run(python, "-m", "pip", "download", "-q", "llama-cpp-python", "--no-deps", "--no-binary", "llama-cpp-python",
            "-d", cache)
        packed = next(name for name in os.listdir(cache) if name.endswith(".tar.gz"))
        shutil.rmtree(source, ignore_errors=True)
        os.makedirs(source)
        run("tar", "xzf", f"{cache}/{packed}", "-C", source, "--strip-components=1")
        open(cache + "/fetched", "w", encoding="ascii").close()
    return source, dict(os.environ, PATH=f"{cache}/venv/bin:{os.environ['PATH']}")


def build(cache):
    """The path of a Python with llama_cpp, and the environment in which it finds the library."""
    python, library = cache + "/venv/bin/python", cache + "/build/bin"
    if not os.path.exists(cache + "/done"):
        source, tools = fetch(cache)
        off = "GGML_NATIVE GGML_LLAMAFILE GGML_CPU_REPACK GGML_OPENMP LLAMA_CURL LLAMA_OPENSSL".split()
        off += [f"LLAMA_BUILD_{part}" for part in "COMMON TOOLS TESTS EXAMPLES SERVER".split()]
        run("cmake", "-G", "Ninja", "-S", source + "/vendor/llama.cpp", "-B", cache + "/build",
            "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG", "-DBUILD_SHARED_LIBS=ON", *(f"-D{name}=OFF" for name in off),
            env=tools, stdout=subprocess.DEVNULL)
        run("ninja", "-C", cache + "/build", "llama", env=tools, stdout=subprocess.DEVNULL)
        run(python, "-m", "pip", "install", "-q", source, env=dict(tools, CMAKE_ARGS="-DLLAMA_BUILD=OFF"))
        open(cache + "/done", "w", encoding="ascii").close()
    return python, dict(os.environ, LLAMA_CPP_LIB_PATH=library)


# ---- llama.cpp: this file, run by that Python, with a task in JSON ----

def worker():
    import numpy
    from llama_cpp import Llama
    task = json.loads(sys.stdin.read())
    model = Llama(task["model"], n_ctx=task["ctx"], n_threads=2, verbose=False, logits_all=True, type_k=0, type_v=0,
                  flash_attn=False)
    answer = {}
    if "text" in task:
        with open(task["text"], "rb") as stream:
            text = stream.read()
        answer["tokens"] = [model.tokenize(text, add_bos=False, special=special) for special in (False, True)]
    if "prompt" in task:
        ids = model.tokenize(task["prompt"].encode(), add_bos=False, special=False)
        model.eval(ids)
        numpy.save(task["logits"], numpy.array(model.scores[:len(ids)]))
        answer["prompt"], answer["greedy"] = ids, []
        for _ in range(task["new"]):
            answer["greedy"].append(int(numpy.argmax(model.scores[model.n_tokens - 1])))
            if model.n_tokens == task["ctx"]:
                break
            model.eval(answer["greedy"][-1:])
    nats = 0.0
    for row in task.get("rows", []):
        model.reset()
        model.eval(row)
        logits = numpy.array(model.scores[:len(row)], dtype=numpy.float64)
        highest = logits.max(axis=1, keepdims=True)
        logs = logits - highest - numpy.log(numpy.exp(logits - highest).sum(axis=1, keepdims=True))
        nats -= sum(logs[i, row[i + 1]] for i in range(len(row) - 1))
    answer["nats"] = nats
    json.dump(answer, sys.stdout)


# ---- comparing ----

def mixed_text(size, among=()):
    """Letters of many scripts, digits, punctuation, and runs of spaces and newlines, mixed with the words in `among`; only
    characters of Unicode 14."""
    source = random.Random(5)
    scripts = [(0x20, 0x7E), (0xC0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x64A),
               (0x905, 0x939), (0xE01, 0xE2E), (0x3041, 0x3096), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0x300, 0x36F),
               (0x660, 0x669), (0x2160, 0x2188), (0x1F600, 0x1F64F), (0x2000, 0x206F), (0x1D400, 0x1D4FF)]
    words = ["don't", "I'LL", "we're", "'tis", "it's", "3.14", "2026-11-24", "==", "->", "\t", "\n", "\n\n", "   ", "    x"]
    parts = []
    while len(parts) < size // 4:
        first, last = source.choice(scripts)
        word = "".join(chr(source.randint(first, last)) for _ in range(source.randint(1, 9)))
        parts.append("".join(c for c in word if unicodedata.category(c) not in ("Cn", "Cs")))
        parts.append(source.choice(words) if source.random() < 0.3 else " " * source.choice((0, 1, 1, 1, 2, 7)))
        if among and source.random() < 0.02:
            parts.append(source.choice(among))
    return "".join(parts)[:size]


# ---- tokenizers of other models ----

def tokenizers_of_others(text, folder):
    """{name: (file, whether texts must be normalized first, whether they may contain added tokens)}"""
    import foreign_tokenizers as foreign
    from gguf_files import as_sentencepiece
    from tokenizers import AddedToken, pre_tokenizers
    every = foreign.kinds()
    starcoder, llama3 = every["starcoder"], every["llama3"]
    kinds = {"starcoder": starcoder, "llama3": llama3, "llama3, merges not ignored": {**llama3, "ignore_merges": False},
             "qwen": every["qwen"], "gpt2 by its pattern": every["gpt2 by its pattern"],
             "starcoder, merges ignored": {**starcoder, "ignore_merges": True}, "llama2": every["llama2"],
             "metaspace always": every["metaspace always, unsplit"], "metaspace never": every["metaspace never"],
             "metaspace first": every["metaspace first"]}
    with open(text, encoding="utf-8") as stream:
        corpus = [stream.read(100_000), mixed_text(20_000)]
    special = [AddedToken(content, special=True) for content in SPECIAL]
    out = {}
    for name, kind in kinds.items():
        place = os.path.join(folder, name.replace(" ", "-"))
        os.makedirs(place)
        plain = [AddedToken(ADDED, normalized=False)]
        tokenizer = foreign.trained({**kind, "plain": plain}, corpus, 1500 if kind.get("characters") else 900, special)
        made = json.loads(tokenizer.to_str())
        if kind.get("characters"):
            made = as_sentencepiece(made)[0]
        with open(place + "/tokenizer.json", "w", encoding="utf-8") as stream:
            json.dump(made, stream)
        with open(place + "/tokenizer_config.json", "w", encoding="utf-8") as stream:
            json.dump({"eos_token": "<|end|>"}, stream)
        out[name] = place + "/tokenizer.json", bool(kind.get("normalizer")) and not kind.get("characters"), name != "metaspace first"
    return out


class Comparison:
    def __init__(self, options, python, environment, folder):
        self.options, self.python, self.environment, self.folder = options, python, environment, folder
        self.others = tokenizers_of_others(options.text, folder)

    def run(self, *words):
        done = subprocess.run([str(word) for word in words], capture_output=True, check=False)
        if done.returncode:
            raise Differs(done.stderr.decode(errors="replace").strip())
        return done.stdout

    def llama(self, model, **task):
        done = subprocess.run([self.python, __file__, "--worker"], capture_output=True, check=False,
                              input=json.dumps(dict(task, model=model, ctx=256)).encode(), env=self.environment)
        if done.returncode:
            raise Differs("llama.cpp: " + done.stderr.decode(errors="replace").strip()[-400:])
        return json.loads(done.stdout)

    def generate(self, *words):
        return self.run(self.options.bin + "/generate", *words)

    def encode(self, run, path, *flags):
        return [int(word) for word in self.generate(run, "--encode", path, *flags).split()]

    def compare_tokens(self, run, path, name):
        _, normalized, added = self.others.get(name, ("", False, False))
        text = "A" + mixed_text(1_000_000, [*SPECIAL, ADDED] if added else SPECIAL if name in MODELS else [])
        mixed = self.folder + "/mixed.txt"
        with open(mixed, "w", encoding="utf-8", newline="") as stream:
            stream.write(unicodedata.normalize("NFC", text) if normalized else text)
        for theirs, flags in zip(self.llama(path, text=mixed)["tokens"], ([], ["--special"])):
            ours = self.encode(run, mixed, *flags)
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            if ours != theirs:
                raise Differs(f"the tokens of a text {' '.join(flags)}: token {at}, {ours[at - 3:at + 4]} here, "
                              f"{theirs[at - 3:at + 4]} there")

    def gguf(self, run, kind):
        path = f"{run}.{kind}.gguf"
        if kind == "f32":
            self.kind = self.generate(run, "--gguf", path, "--gguf-type", kind)
        else:
            self.generate(run, "--gguf", path, "--gguf-type", kind)
        return path

    def logits(self, run, ids):
        import numpy
        numbers = self.run(self.options.dump, "logits", run, *ids)
        return numpy.frombuffer(numbers, numpy.float32).reshape(len(ids), -1)

    def difference(self, run, path):
        """The difference between the logits of a prompt, and llama.cpp's greedy tokens."""
        import numpy
        saved = self.folder + "/logits.npy"
        answer = self.llama(path, prompt=PROMPT, logits=saved, new=200)
        return float(numpy.abs(numpy.load(saved) - self.logits(run, answer["prompt"])).max()), answer

    def check(self, name, flags):
        run = f"{self.folder}/{''.join(c for c in name if c.isalnum())}.run"
        self.run(self.options.bin + "/train", self.options.text, *flags, "--out", run, "--quiet")
        path = self.gguf(run, "f32")
        self.compare_tokens(run, path, name)
        limit = 5e-3 if any(word in self.architecture(path) for word in F16_TABLES) else 1e-4
        largest, answer = self.difference(run, path)
        if not largest < limit:
            raise Differs(f"logits differ by {largest:.1e}")
        ours = self.run(self.options.dump, "greedy", run, 200, *answer["prompt"]).split()
        if answer["greedy"] != [int(word) for word in ours]:
            raise Differs("the likeliest tokens")
        ids = self.encode(run, self.options.text)
        rows = [ids[i:i + 200] for i in range(0, min(len(ids), 4000), 200)]
        losses = [self.llama(file, rows=rows)["nats"] / sum(len(row) - 1 for row in rows)
                  for file in (path, self.gguf(run, "q8_0"))]
        if not abs(losses[1] - losses[0]) < 0.01:
            raise Differs(f"a loss of {losses[0]:.4f} in f32 and of {losses[1]:.4f} in q8_0")
        found = self.mutation(run, path)
        return (f"{self.architecture(path):10s} tokens of 1 MB, 200 greedy; logits {largest:.0e}; loss {losses[0]:.4f}, "
                f"q8_0 {losses[1] - losses[0]:+.4f}{found}")

    def architecture(self, path):
        with open(path, "rb") as stream:
            head = stream.read(200)
        at = head.index(b"general.architecture") + 24
        size = struct.unpack("<Q", head[at:at + 8])[0]
        return head[at + 8:at + 8 + size].decode()

    def mutation(self, run, path):
        """The same file with the key rows of the first layer in Inkling's order instead of llama.cpp's."""
        if self.architecture(path) not in ("llama", "smollm3"):
            return ""
        import numpy
        with open(run + "/config.json", encoding="utf-8") as stream:
            config = json.load(stream)
        head, dim = config["head_dim"], config["hidden_size"]
        with open(run + "/model.safetensors", "rb") as stream:
            size = struct.unpack("<Q", stream.read(8))[0]
            place = json.loads(stream.read(size))["model.layers.0.self_attn.k_proj.weight"]["data_offsets"]
            stream.seek(8 + size + place[0])
            ours = stream.read(place[1] - place[0])
        rows = numpy.frombuffer(ours, numpy.float32).reshape(-1, 2, head // 2, dim)
        theirs = numpy.ascontiguousarray(rows.swapaxes(1, 2)).tobytes()
        with open(path, "rb") as stream:
            content = stream.read()
        if content.count(theirs) != 1:
            raise Differs("the rows of keys are not where they should be")
        with open(path, "wb") as stream:
            stream.write(content.replace(theirs, ours))
        largest = self.difference(run, path)[0]
        if largest < 1e-3:
            raise Differs(f"rows of keys in another order change logits by {largest:.1e} alone")
        return f"; rows in the wrong order {largest:.0e}"


def main():
    if sys.argv[1:] == ["--worker"]:
        return worker()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--cache", default=os.path.expanduser("~/.cache/inkling-llamacpp"))
    parser.add_argument("--bin", default=".", help="where ./train and ./generate are")
    parser.add_argument("--dump", default="build/dump_model")
    parser.add_argument("--only", action="append", help="one of the models, by its name")
    options = parser.parse_args()
    python, environment = build(os.path.abspath(options.cache))
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(options, python, environment, folder)
        models = dict(MODELS)
        for name, (tokenizer, *_) in comparison.others.items():
            models[name] = [*SMALL, "--tokenizer", tokenizer]
        for name, flags in models.items():
            if options.only and name not in options.only:
                continue
            try:
                print(f"{name:38s} {comparison.check(name, flags)}", flush=True)
            except Differs as problem:
                failures += 1
                print(f"{name:38s} FAILED: {problem}", flush=True)
    print("all agree" if not failures else f"{failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
