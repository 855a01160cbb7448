#!/usr/bin/env python3
"""Compares the speed of ./generate with karpathy/llama2.c's `run` on the same weights, on this machine's CPU.

    git clone https://github.com/karpathy/llama2.c
    scripts/measure/compare_llama2c.py --llama2c llama2.c [RUN] [--model 15m|42m|110m] [--dtypes f32,bf16,int8] [--rounds 5]

RUN is a run directory of ./train; without it, both programs get random weights of --model with a vocabulary of 32,000
tokens. The script writes the weights in llama2.c's format (with queries and keys reordered: it rotates neighboring
dimensions, Hugging Face rotates halves) with a tokenizer whose texts are the token ids. It builds run.c with -O3
-march=native -fopenmp, and with -Ofast as in llama2.c's own `make runomp`; only -Ofast vectorizes its sums. ./generate
is measured with its weights in each of --dtypes; llama2.c uses f32. First, all programs generate greedily from token 1:
`same` is the number of equal tokens of a dtype and llama2.c before the first difference (on llama2.c's lines, of the
first dtype). A difference is no error: sums are added in another order, and weights in bf16 and int8 are rounded. Then
rounds alternate between the programs, and so does the one that goes first.

Prints one JSON line per system on stdout: tokens per second when generating greedily (the median over rounds of the
mean over the --tokens tokens of a round, without the first token in llama2.c and the first 12 in ./generate), and
`ratio`, this speed divided by the speed of the fastest llama2.c. Progress goes to stderr.
"""

import argparse
import array
import bisect
import json
import os
import random
import re
import shutil
import statistics
import struct
import sys
import tempfile

from bench import execute

SHAPES = {  # layers, heads, dim, ffn, ctx
    "15m": (6, 6, 288, 768, 256),
    "42m": (8, 8, 512, 1376, 1024),
    "110m": (12, 12, 768, 2048, 1024),
}
DTYPES = ("f32", "bf16", "int8")  # of the weights of ./generate
VOCAB = 32000
WARM_UP = 12  # tokens before the timed ones of ./generate --bench
BUILDS = {f"llama2.c {level}": [level, "-march=native", "-fopenmp"] for level in ("-O3", "-Ofast")}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("run", nargs="?", metavar="RUN", help="run directory (default: random weights of --model)")
    parser.add_argument("--llama2c", required=True, metavar="DIR", help="llama2.c's source: the directory with run.c")
    parser.add_argument("--model", choices=SHAPES, default="15m", help="shape of random weights")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="of the weights of ./generate")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=argparse.SUPPRESS,
                        help="tokens of a round, at most the context (default: the context)")
    parser.add_argument("--isa", choices=("v2", "v3", "v4"), help="instruction set of ./generate (default: the best)")
    parser.add_argument("--generate", default="./generate", help="the program to measure")
    args = parser.parse_args()
    for name in ("threads", "rounds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(args, name)}")
    args.dtypes = list(dict.fromkeys(args.dtypes.split(",")))
    unknown = [dtype for dtype in args.dtypes if dtype not in DTYPES]
    if unknown:
        parser.error(f"--dtypes {unknown[0]}: use {', '.join(DTYPES)}")
    if not os.path.isfile(os.path.join(args.llama2c, "run.c")):
        parser.error(f"--llama2c {args.llama2c}: there is no run.c")
    if not shutil.which(args.generate):
        parser.error(f"{args.generate} is not there or not executable; run `make`, or name it with --generate")
    return args


# ---- random weights, as a run directory ----------------------------------------------------------------------------


def byte_letters():
    """GPT-2's printable letters for bytes, in the order of their token ids."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


def write_tokenizer(path):
    """A vocabulary of VOCAB tokens: bytes, pairs of bytes, and an end token."""
    letters = byte_letters()
    pairs = [(a, b) for a in letters for b in letters][:VOCAB - 257]
    tokens = letters + [a + b for a, b in pairs]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": VOCAB - 1, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "vocab": {token: i for i, token in enumerate(tokens)} | {"<|endoftext|>": VOCAB - 1},
             "merges": [f"{a} {b}" for a, b in pairs]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
                   "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model}, file)


def random_tensors(layers, dim, ffn):
    """Names and shapes."""
    yield "model.embed_tokens.weight", (VOCAB, dim)
    for i in range(layers):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (dim,)
        for name in "qkvo":
            yield f"{layer}.self_attn.{name}_proj.weight", (dim, dim)
        yield f"{layer}.post_attention_layernorm.weight", (dim,)
        yield f"{layer}.mlp.gate_proj.weight", (ffn, dim)
        yield f"{layer}.mlp.up_proj.weight", (ffn, dim)
        yield f"{layer}.mlp.down_proj.weight", (dim, ffn)
    yield "model.norm.weight", (dim,)


def write_random_run(directory, model):
    """Normal random numbers with standard deviation 0.02, repeated with a prime period; norm weights are 1."""
    layers, heads, dim, ffn, ctx = SHAPES[model]
    generator, period = random.Random(1337), 65537
    block = array.array("f", (generator.gauss(0, 0.02) for _ in range(period)))
    header, data, at = {}, [], 0
    for name, shape in random_tensors(layers, dim, ffn):
        count = shape[0] * shape[-1] if len(shape) == 2 else shape[0]
        start = generator.randrange(period)
        matrix = (block[start:] + block * (count // period + 1))[:count]
        data.append(matrix if len(shape) == 2 else array.array("f", [1]) * count)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * count]}
        at += 4 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(directory, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in data:
            values.tofile(file)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
                   "hidden_act": "silu", "vocab_size": VOCAB, "hidden_size": dim, "intermediate_size": ffn,
                   "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
                   "head_dim": dim // heads, "max_position_embeddings": ctx, "rms_norm_eps": 1e-5,
                   "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": True, "attention_bias": False,
                   "mlp_bias": False, "bos_token_id": VOCAB - 1, "eos_token_id": VOCAB - 1}, file)
    write_tokenizer(os.path.join(directory, "tokenizer.json"))


# ---- a run directory in llama2.c's format --------------------------------------------------------------------------


def read_config(run):
    with open(os.path.join(run, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    theta = config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta")
    fixed = (("rms_norm_eps", config["rms_norm_eps"], 1e-5), ("rope_theta", theta, 10000.0),
             ("head_dim", config.get("head_dim", head_dim), head_dim))
    for name, value, wanted in fixed:
        if value != wanted:
            sys.exit(f"{run}/config.json: {name} is {value}; llama2.c has {wanted} and cannot change it")
    return config


class Tensors:
    """Reads model.safetensors, one tensor at a time."""

    def __init__(self, run):
        self.file = open(os.path.join(run, "model.safetensors"), "rb")
        size, = struct.unpack("<Q", self.file.read(8))
        self.header = json.loads(self.file.read(size))
        self.start = 8 + size

    def read(self, name):
        entry = self.header[name]
        if entry["dtype"] != "F32":
            sys.exit(f"model.safetensors: {name} is {entry['dtype']}; only F32 can be compared")
        begin, end = entry["data_offsets"]
        self.file.seek(self.start + begin)
        return self.file.read(end - begin)


def neighbors(weights, heads, head_dim):
    """Reorders the rows of a projection from halves (i, i + D/2) to pairs (2i, 2i + 1) in each head."""
    row = len(weights) // (heads * head_dim)
    rows = [weights[i * row:(i + 1) * row] for i in range(heads * head_dim)]
    return b"".join(rows[head * head_dim + half * head_dim // 2 + i]
                    for head in range(heads) for i in range(head_dim // 2) for half in (0, 1))


def write_checkpoint(path, run, config):
    tensors = Tensors(run)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim, vocab, ctx = config["hidden_size"], config["vocab_size"], config["max_position_embeddings"]
    head_dim, tied = dim // heads, config["tie_word_embeddings"]
    of_layers = ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                 "post_attention_layernorm", "mlp.gate_proj", "mlp.down_proj", "mlp.up_proj")
    with open(path, "wb") as out:
        out.write(struct.pack("<7i", dim, config["intermediate_size"], config["num_hidden_layers"], heads, kv_heads,
                              vocab if tied else -vocab, ctx))
        out.write(tensors.read("model.embed_tokens.weight"))
        for name in of_layers:
            for layer in range(config["num_hidden_layers"]):
                weights = tensors.read(f"model.layers.{layer}.{name}.weight")
                if name.endswith(("q_proj", "k_proj")):
                    weights = neighbors(weights, heads if name.endswith("q_proj") else kv_heads, head_dim)
                out.write(weights)
        out.write(tensors.read("model.norm.weight"))
        out.write(bytes(4 * ctx * head_dim))  # the tables of rotary positions, which it skips
        if not tied:
            out.write(tensors.read("lm_head.weight"))


def write_ids(path, vocab):
    """A tokenizer that decodes every token to its id."""
    with open(path, "wb") as out:
        texts = [f"{i} ".encode() for i in range(vocab)]
        out.write(struct.pack("<i", max(map(len, texts))))
        for text in texts:
            out.write(struct.pack("<fi", 0, len(text)) + text)


# ---- running -------------------------------------------------------------------------------------------------------


class Comparison:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.run = args.run or os.path.join(work, "random.run")
        if not args.run:
            os.mkdir(self.run)
            write_random_run(self.run, args.model)
        self.config = read_config(self.run)
        ctx = self.config["max_position_embeddings"]
        self.tokens = getattr(args, "tokens", ctx)
        if not WARM_UP + 1 < self.tokens <= ctx:
            sys.exit(f"{self.tokens} tokens in a context of {ctx}: a round has more than {WARM_UP + 1}, all in the "
                     "context")
        self.environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
        write_checkpoint(self.path("model.bin"), self.run, self.config)
        write_ids(self.path("tokenizer.bin"), self.config["vocab_size"])
        for name, flags in BUILDS.items():
            source = os.path.join(args.llama2c, "run.c")
            execute([os.environ.get("CC", "gcc"), *flags, source, "-o", self.path(name), "-lm"])

    def path(self, name):
        return os.path.join(self.work, name)

    def llama2c(self, name):
        """Token ids and tokens per second."""
        done = execute([self.path(name), self.path("model.bin"), "-z", self.path("tokenizer.bin"), "-t", "0",
                        "-n", str(self.tokens)], env=self.environment)
        ids = [int(word) for word in done.stdout.split()]
        if len(ids) < self.tokens:
            sys.exit(f"{name} stopped after {len(ids)} of {self.tokens} tokens: it takes token 1 for the end of the "
                     "text, and this model generates it; compare another one")
        speed = re.search(rb"achieved tok/s: ([0-9.]+)", done.stderr)
        return ids, float(speed.group(1)) if speed else sys.exit(f"{name} printed no speed")

    def generate(self, dtype, *more):
        command = [self.args.generate, self.run, "--threads", str(self.args.threads), "--device", "cpu", "--quiet",
                   "--dtype", dtype]
        command += ["--isa", self.args.isa] if self.args.isa else []
        return execute([*command, *more], env=self.environment).stdout

    def inkling(self, dtype):
        """Tokens per second, and the whole JSON line."""
        line = json.loads(self.generate(dtype, "--bench", str(self.tokens - WARM_UP - 1), "--greedy", "--on-full",
                                        "stop"))
        return 1e3 / line["step_ms_mean"], line

    def decode(self, ids):
        path = self.path("ids")
        with open(path, "w", encoding="utf-8") as file:
            file.write(" ".join(str(i) for i in ids if i != self.config["eos_token_id"]))
        return execute([self.args.generate, self.run, "--decode", path]).stdout

    def same_tokens(self):
        """The number of tokens from the start in which each dtype of ./generate equals llama2.c, compared as text."""
        with open(self.path("prompt"), "wb") as file:
            file.write(self.decode([1]))
        theirs, _ = self.llama2c(next(iter(BUILDS)))
        return {dtype: self.same_as(theirs, dtype) for dtype in self.args.dtypes}

    def same_as(self, theirs, dtype):
        ours = self.generate(dtype, "-f", self.path("prompt"), "-n", str(self.tokens), "--greedy", "--ignore-eos")
        counts = range(1, len(theirs) + 1)
        return bisect.bisect_left(counts, True, key=lambda count: not ours.startswith(self.decode(theirs[:count])))


def report(name, speeds, peer, extra):
    line = {"system": name, "tokens_per_s": round(statistics.median(speeds), 2),
            "tokens_per_s_min": round(min(speeds), 2), "tokens_per_s_max": round(max(speeds), 2),
            "ratio": round(statistics.median(speeds) / peer, 4), "rounds": len(speeds), **extra}
    print(json.dumps(line), flush=True)


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as work:
        comparison = Comparison(args, work)
        same = comparison.same_tokens()
        for dtype, count in same.items():
            print(f"{dtype}: {count} of {comparison.tokens} tokens are the same", file=sys.stderr)
        ours = {f"inkling {dtype}": dtype for dtype in args.dtypes}
        systems = [*ours, *BUILDS]
        speeds, details = {name: [] for name in systems}, {}
        for number in range(args.rounds):
            for name in systems if number % 2 == 0 else systems[::-1]:
                if name in ours:
                    speed, details[name] = comparison.inkling(ours[name])
                else:
                    _, speed = comparison.llama2c(name)
                speeds[name].append(speed)
                print(f"round {number + 1}/{args.rounds}: {name} {speed:.1f} tokens/s", file=sys.stderr)
    peer = max(statistics.median(speeds[name]) for name in BUILDS)
    shape = {"model": args.run or args.model, "tokens": comparison.tokens, "threads": args.threads}
    more = {name: {"same": same[args.dtypes[0]], "flags": " ".join(flags)} for name, flags in BUILDS.items()}
    for name, dtype in ours.items():
        facts = ("isa", "dtype", "weights", "compiler", "commit", "params")
        more[name] = {"same": same[dtype], **{key: details[name][key] for key in facts}}
    for name in systems:
        report(name, speeds[name], peer, {**shape, **more[name]})


if __name__ == "__main__":
    main()
