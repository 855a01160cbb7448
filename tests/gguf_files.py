#!/usr/bin/env python3
"""Tests ./generate --gguf: compares every key and tensor of the file with the model directory.

The file is read by a reader in this script and, if it is installed, by the Python package gguf. Also tests what is
rejected, and that memory use does not grow with the model.

BIN: directory of ./train and ./generate (default: .). Prints `ok NAME` or `not ok NAME: why` for each check, then
`done`.
"""

import json
import os
import resource
import struct
import subprocess
import sys
import tempfile

BIN = os.path.abspath(os.environ.get("BIN", "."))
ALIGNMENT = 32
F32, F16, Q8_0, BF16 = 0, 1, 8, 30
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7}


def check(name, good, why=""):
    print(f"ok {name}" if good else f"not ok {name}: {why}", flush=True)


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, check=False, **more)


# ---- a reader ----

class Reader:
    def __init__(self, path):
        with open(path, "rb") as stream:
            self.bytes = stream.read()
        self.at = 0
        magic, version, tensors, keys = self.take("<4sIQQ")
        assert magic == b"GGUF" and version == 3
        self.keys = {}
        for _ in range(keys):
            key = self.text()
            assert key not in self.keys
            self.keys[key] = self.value(self.take("<I")[0])
        infos = [self.info() for _ in range(tensors)]
        begin = -(-self.at // ALIGNMENT) * ALIGNMENT
        assert not any(self.bytes[self.at:begin])
        self.tensors, end = {}, begin
        for name, extents, kind, offset in infos:
            count = 1
            for extent in extents:
                count *= extent
            size = {F32: 4 * count, F16: 2 * count, BF16: 2 * count, Q8_0: count // 32 * 34}[kind]
            assert name not in self.tensors and begin + offset == end, "tensors lie one behind the other"
            end = -(-(end + size) // ALIGNMENT) * ALIGNMENT
            assert not any(self.bytes[begin + offset + size:end]), "pads are zeros"
            self.tensors[name] = (extents, kind, self.bytes[begin + offset:begin + offset + size])
        assert end == len(self.bytes), "the file ends with a pad"

    def take(self, format_):
        values = struct.unpack_from(format_, self.bytes, self.at)
        self.at += struct.calcsize(format_)
        return values

    def text(self):
        size, = self.take("<Q")
        self.at += size
        return self.bytes[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.take("<IQ")
            return [self.value(inner) for _ in range(count)]
        return self.take({4: "<I", 5: "<i", 6: "<f", 7: "<?"}[kind])[0]

    def info(self):
        name, rank = self.text(), self.take("<I")[0]
        extents = self.take(f"<{rank}Q")
        kind, offset = self.take("<IQ")
        return name, extents, kind, offset


def weights_of(folder):
    with open(folder + "/model.safetensors", "rb") as stream:
        content = stream.read()
    size, = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        data = content[8 + size + first:8 + size + last]
        out[name] = (tensor["shape"], struct.unpack(f"<{len(data) // 4}f", data))
    return out


# ---- what the file has to have ----

def round_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16(value):
    bits, = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def q8_0(values):
    out = b""
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        step = round_f32(max(map(abs, block)) / 127)
        inverse = round_f32(1 / step) if step else 0
        scaled = [round_f32(value * inverse) for value in block]
        steps = [int(abs(value) + 0.5) * (1 if value >= 0 else -1) for value in scaled]
        out += struct.pack("<e32b", step, *steps)
    return out


def encoded(kind, values):
    if kind == F32:
        return struct.pack(f"<{len(values)}f", *values)
    if kind == F16:
        return struct.pack(f"<{len(values)}e", *values)
    if kind == BF16:
        return struct.pack(f"<{len(values)}H", *map(bf16, values))
    return q8_0(values)


def turned(shape, values, head):
    """The rows of queries and keys in the order 0, d/2, 1, d/2 + 1 ... in each head."""
    width = shape[1] if len(shape) > 1 else 1
    rows = [values[i * width:(i + 1) * width] for i in range(shape[0])]
    order = [first + i // 2 + i % 2 * (head // 2) for first in range(0, shape[0], head) for i in range(head)]
    return tuple(value for row in order for value in rows[row])


LLAMA = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.c_fc": "ffn_up",
         "mlp.c_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
LFM2 = {"model.embed_tokens": "token_embd", "model.embedding_norm": "token_embd_norm", "lm_head": "output",
        "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
        "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up",
        "feed_forward.w2": "ffn_down"}
GPT2 = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
        "lm_head": "output", "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def wanted(folder, architecture):
    """{name: (shape, numbers)} with the names of llama.cpp, from the tensors of transformers."""
    with open(folder + "/config.json", encoding="utf-8") as stream:
        config = json.load(stream)
    out, names = {}, {"gpt2": GPT2, "lfm2": LFM2}.get(architecture, LLAMA)
    for name, (shape, values) in weights_of(folder).items():
        module, kind = name.rsplit(".", 1)
        parts = module.split(".")
        number = next((part for part in parts if part.isdigit()), None)
        if number:
            module = module.split(f".{number}.", 1)[1]
        target = (f"blk.{number}." if number else "") + names[module] + "." + kind
        if len(shape) == 3:  # a kernel [channels][1][taps]
            shape = [shape[0], shape[2]]
        if architecture in ("llama", "smollm3") and module in ("self_attn.q_proj", "self_attn.k_proj"):
            values = turned(shape, values, config["head_dim"])
        if architecture == "gpt2" and number and len(shape) == 2:  # inputs first
            values = tuple(values[i * shape[1] + j] for j in range(shape[1]) for i in range(shape[0]))
            shape = shape[::-1]
        zeros = architecture in ("qwen3", "smollm3") and target.endswith("attn_output.bias") and not any(values)
        if not (zeros and "output" in config.get("missing_biases", ())):
            out[target] = (shape, values)
    if architecture == "stablelm" and "output.weight" not in out:
        out["output.weight"] = out["token_embd.weight"]
    return out


def compare_tensors(name, reader, folder, architecture, kind):
    expected = wanted(folder, architecture)
    check(f"{name}: its tensors", sorted(reader.tensors) == sorted(expected),
          sorted(set(reader.tensors) ^ set(expected)))
    wrong = []
    for tensor, (shape, values) in expected.items():
        extents, type_, data = reader.tensors.get(tensor, ((), 0, b""))
        plain = len(shape) == 1 or tensor.startswith("position_embd") or tensor.endswith("shortconv.conv.weight")
        right = F32 if plain else {"f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8_0}[kind]
        if list(extents) != shape[::-1] or type_ != right or data != encoded(right, values):
            wrong.append(tensor)
    check(f"{name}: their shapes, types and numbers", not wrong, wrong)


def compare_keys(name, reader, folder, architecture, kind):
    with open(folder + "/config.json", encoding="utf-8") as stream:
        config = json.load(stream)
    with open(folder + "/tokenizer.json", encoding="utf-8") as stream:
        tokenizer = json.load(stream)
    get = lambda *keys: next(config[key] for key in keys if config.get(key) is not None)
    dim, heads = get("hidden_size", "n_embd"), get("num_attention_heads", "n_head")
    head = config.get("head_dim") or dim // heads
    rms = architecture in ("llama", "qwen3", "lfm2", "smollm3")
    eps = "attention.layer_norm_rms_epsilon" if rms else "attention.layer_norm_epsilon"
    expected = {
        "general.architecture": architecture, "general.type": "model", "general.name": os.path.basename(folder),
        "general.file_type": FILE_TYPES[kind], "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.bos_token_id": config["bos_token_id"], "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.ggml.add_bos_token": tokenizer["post_processor"] is not None, "tokenizer.ggml.add_eos_token": False,
        f"{architecture}.vocab_size": config["vocab_size"],
        f"{architecture}.context_length": get("max_position_embeddings", "n_positions"),
        f"{architecture}.embedding_length": dim, f"{architecture}.attention.head_count": heads,
        f"{architecture}.block_count": get("num_hidden_layers", "n_layer"),
        f"{architecture}.feed_forward_length": get("intermediate_size", "n_inner"),
        f"{architecture}.attention.head_count_kv": config.get("num_key_value_heads") or heads,
        f"{architecture}.attention.key_length": head, f"{architecture}.attention.value_length": head,
        f"{architecture}.{eps}": round_f32(get("rms_norm_eps", "layer_norm_epsilon", "norm_epsilon", "layer_norm_eps", "norm_eps"))}
    if architecture == "lfm2":
        expected["lfm2.attention.head_count_kv"] = [config["num_key_value_heads"] * (kind == "full_attention")
                                                    for kind in config["layer_types"]]
        expected["lfm2.shortconv.l_cache"] = 3
    if architecture != "gpt2":
        expected[f"{architecture}.rope.dimension_count"] = head
        expected[f"{architecture}.rope.freq_base"] = config["rope_theta"]
    if kind == "q8_0":
        expected["general.quantization_version"] = 2
    tokens = [None] * config["vocab_size"]
    for text, number in tokenizer["model"]["vocab"].items():
        tokens[number] = text
    kinds = [1] * len(tokens)
    for token in tokenizer["added_tokens"]:
        tokens[token["id"]], kinds[token["id"]] = token["content"], 3
    expected["tokenizer.ggml.tokens"], expected["tokenizer.ggml.token_type"] = tokens, kinds
    expected["tokenizer.ggml.merges"] = tokenizer["model"]["merges"]
    wrong = [key for key in {**expected, **reader.keys} if expected.get(key) != reader.keys.get(key)]
    check(f"{name}: its keys", not wrong, {key: (expected.get(key), reader.keys.get(key)) for key in wrong})


def compare_with_package(name, path, reader):
    try:
        import gguf
    except ImportError:
        return
    other = gguf.GGUFReader(path)
    same = sorted(tensor.name for tensor in other.tensors) == sorted(reader.tensors)
    for tensor in other.tensors:
        extents, kind, data = reader.tensors[tensor.name]
        same &= tuple(int(n) for n in tensor.shape) == tuple(extents) and int(tensor.tensor_type) == kind
        same &= tensor.data.tobytes() == data
    keys = {key: field.contents() for key, field in other.fields.items() if not key.startswith("GGUF.")}
    check(f"{name}: PyPI's gguf reads the same", same and keys == reader.keys, "it does not")
    if "q8_0" not in path:
        return
    floats = gguf.GGUFReader(path.replace("q8_0", "f32"))
    by_name = {tensor.name: tensor.data for tensor in floats.tensors}
    same = all(tensor.data.tobytes() == gguf.quants.quantize(by_name[tensor.name], tensor.tensor_type).tobytes()
               for tensor in other.tensors)
    check(f"{name}: and quantizes alike", same, "it does not")


# ---- checks ----

SMALL = ["--layers", 2, "--heads", 2, "--dim", 32, "--ctx", 16, "--batch", 4, "--steps", 3, "--sample-tokens", 0, "--quiet",
         "--threads", 1]
BPE = ["--tokenizer", "bpe", "--vocab-size", 300]
PLAIN = [*SMALL, "--arch", "llama"]
MODELS = {"byte": ("llama", [*PLAIN, "--tie"]), "BPE, untied": ("llama", [*PLAIN, *BPE, "--no-tie"]),
          "grouped": ("llama", [*PLAIN, *BPE, "--kv-heads", 1]), "biases": ("llama", [*SMALL, "--bias"]),
          "qwen3": ("qwen3", [*SMALL, *BPE, "--arch", "qwen3", "--kv-heads", 1, "--qkv-bias"]),
          "lfm2": ("lfm2", [*SMALL, "--arch", "lfm2", "--layers", 5, "--kv-heads", 1]),
          "lfm2, untied": ("lfm2", [*SMALL, *BPE, "--arch", "lfm2", "--mixer", "AC", "--no-tie"]),
          "smollm3": ("smollm3", [*SMALL, "--mixer", "AAAN", "--layers", 5, "--qkv-bias"]),
          "documents": ("llama", [*PLAIN, "--pack", "docs"]), "gpt2": ("gpt2", [*SMALL, *BPE, "--arch", "gpt2"]),
          "starcoder2": ("starcoder2", [*SMALL, "--arch", "gpt2", "--positions", "rope"]),
          "stablelm": ("stablelm", [*SMALL, "--norm", "layer", "--qkv-bias"]),
          "stablelm, untied": ("stablelm", [*SMALL, "--norm", "layer", "--no-tie"])}


def write_text(path):
    words = "the king of a small town went to see old friends and said don't you know 42 new songs naïve café 日本".split()
    with open(path, "w", encoding="utf-8") as stream:
        for i in range(600):
            stream.write(" ".join(words[(i * 7 + k * k) % len(words)] for k in range(9)) + ("\n" if i % 3 else ".\n\n"))


def refused(name, status, words, *command):
    before = sorted(os.listdir("."))
    done = run(*command)
    said = done.stderr.decode()
    check(name, done.returncode == status and words in said and not done.stdout and said.count("\n") == 1
          and sorted(os.listdir(".")) == before, (done.returncode, said, done.stdout))


def check_models():
    for name, (architecture, flags) in MODELS.items():
        folder = "".join(c for c in name if c.isalnum()) + ".run"
        done = run(BIN + "/train", "text.txt", *flags, "--out", folder)
        check(f"{name}: is trained", done.returncode == 0, done.stderr)
        for kind in FILE_TYPES if name in ("byte", "gpt2", "lfm2") else ("f32", "q8_0"):
            path = f"{folder}.{kind}.gguf"
            done = run(BIN + "/generate", folder, "--gguf", path, "--gguf-type", kind)
            check(f"{name}, {kind}: is written", done.returncode == 0 and path.encode() in done.stdout, done.stderr)
            reader = Reader(path)
            compare_tensors(f"{name}, {kind}", reader, folder, architecture, kind)
            compare_keys(f"{name}, {kind}", reader, folder, architecture, kind)
            compare_with_package(f"{name}, {kind}", path, reader)


def check_refusals():
    generate = BIN + "/generate"
    for flags, words in ((["--positions", "none"], "no positions"), (["--norm-place", "branch"], "norms on its branches"),
                         (["--arch", "original"], "norms after its sublayers"), (["--act", "relu"], "this activation"),
                         (["--head-bias"], "a bias of the output head"), (["--arch", "opt"], "this activation"),
                         (["--positions", "learned"], "RMSNorm and learned positions"),
                         (["--mixer", "CA", "--no-qk-norm"], "convolutions and no norms of queries and keys"),
                         (["--arch", "lfm2", "--mixer", "C"], "convolutions in all layers"),
                         (["--arch", "lfm2", "--mixer", "CN"], "convolutions and layers without rotary positions"),
                         (["--arch", "lfm2", "--mixer", "CA", "--bias"], "biases of outputs with norms of queries and keys, convolutions"),
                         (["--arch", "qwen3", "--act", "relu"], "this activation"),
                         (["--mixer", "AN"], "layers without rotary positions other than every fourth"),
                         (["--mixer", "AAAN", "--layers", "4", "--qk-norm"], "norms of queries and keys and layers without"),
                         (["--qk-norm", "--norm", "layer"], "LayerNorm and norms of queries and keys")):
        run(BIN + "/train", "text.txt", *SMALL, *flags, "--out", "other.run", "--overwrite")
        refused(f"no model of llama.cpp: {' '.join(flags)}", 4, words, generate, "other.run", "--gguf", "x.gguf")
    run(BIN + "/train", "text.txt", *SMALL, "--dim", 24, "--out", "odd.run")
    refused("no blocks of q8_0", 2, "rows of token_embd.weight have 24", generate, "odd.run", "--gguf", "x.gguf",
            "--gguf-type", "q8_0")
    refused("a file of the run", 2, "ends in .gguf", generate, "byte.run", "--gguf", "byte.run/model.safetensors")
    os.mkfifo("pipe.gguf")
    refused("a pipe, which is not opened", 2, "another file of that name", generate, "byte.run", "--gguf", "pipe.gguf")
    refused("no name", 2, "is not the name", generate, "byte.run", "--gguf", "-")
    refused("no directory", 7, "nosuch", generate, "byte.run", "--gguf", "nosuch/x.gguf")
    refused("no such type", 2, "q4_0", generate, "byte.run", "--gguf", "x.gguf", "--gguf-type", "q4_0")
    refused("--gguf-type alone", 2, "--gguf", generate, "byte.run", "--gguf-type", "f16")
    refused("another file there", 2, "another file of that name", generate, "byte.run", "--gguf", "text.txt")
    refused("or in the Modelfile's place", 2, "another file of that name", generate, "byte.run", "--gguf", "x.gguf",
            "--modelfile", "text.txt")
    refused("one name for two", 2, "the same file", generate, "byte.run", "--gguf", "x.gguf", "--modelfile", "./x.gguf")
    refused("no directory for the Modelfile", 7, "nosuch", generate, "byte.run", "--gguf", "x.gguf", "--modelfile",
            "nosuch/Modelfile")
    refused("a name with a line end", 2, "is not the name", generate, "byte.run", "--gguf", "x\ny.gguf")
    refused("--dtype", 2, "--gguf-type", generate, "byte.run", "--gguf", "x.gguf", "--dtype", "int8")
    refused("two works", 2, "only one", generate, "byte.run", "--gguf", "x.gguf", "--lens")
    if os.path.exists("/dev/full"):
        limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))
        done = run(generate, "byte.run", "--gguf", "x.gguf", preexec_fn=limited)
        check("a full disk leaves nothing", done.returncode == 7 and not [name for name in os.listdir(".") if "x.gguf" in name],
              (done.returncode, done.stderr, os.listdir(".")))


def put_float(path, tensor, number):
    """Writes a number into the first element of a tensor."""
    with open(path, "r+b") as stream:
        size, = struct.unpack("<Q", stream.read(8))
        place = json.loads(stream.read(size))[tensor]["data_offsets"][0]
        stream.seek(8 + size + place)
        stream.write(struct.pack("<f", number))


def check_numbers():
    run("cp", "-r", "byte.run", "large.run")
    put_float("large.run/model.safetensors", "model.embed_tokens.weight", 70000)
    refused("a number too large for f16", 4, "too large for f16; use --gguf-type bf16", BIN + "/generate", "large.run",
            "--gguf", "x.gguf")
    done = run(BIN + "/generate", "large.run", "--gguf", "large.gguf", "--gguf-type", "bf16")
    check("which bf16 holds", done.returncode == 0, done.stderr)
    put_float("large.run/model.safetensors", "model.norm.weight", float("nan"))
    refused("a number that is none", 4, "model.norm.weight is nan", BIN + "/generate", "large.run", "--gguf", "x.gguf",
            "--gguf-type", "bf16")


# ---- tokenizers of other models ----

GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "tokenizers.json")
CUTS = {"llama3": "llama-bpe", "starcoder": "smollm"}
NOT_SAID = {"o200k": "splits texts unlike", "deepseek": "splits texts unlike", "llama2": "has no merge for some two tokens",
            "added, normalized": "only recognized as a whole word",
            "metaspace always, unsplit": "only recognized as a whole word", "gemma": "steps that SentencePiece"}


def as_sentencepiece(tokenizer):
    """Gives the tokenizer the merges of a SentencePiece model (all pairs of tokens that form a token, in its order) and scores."""
    vocab, wholes = tokenizer["model"]["vocab"], {}
    for left, right in tokenizer["model"]["merges"]:
        wholes[left + right] = [[(left + right)[:i], (left + right)[i:]] for i in range(1, len(left + right))]
    pairs = [pair for pairs in wholes.values() for pair in pairs if pair[0] in vocab and pair[1] in vocab]
    return {**tokenizer, "model": {**tokenizer["model"], "merges": pairs}}, {whole: -1.0 - i for i, whole in enumerate(wholes)}


def train_with(tokenizer, folder):
    os.makedirs(folder)
    with open(folder + "/tokenizer.json", "w", encoding="utf-8") as stream:
        json.dump(tokenizer, stream)
    with open(folder + "/tokenizer_config.json", "w", encoding="utf-8") as stream:
        json.dump({"eos_token": "<|end|>"}, stream)
    done = run(BIN + "/train", "text.txt", *SMALL, "--steps", 1, "--tokenizer", folder + "/tokenizer.json", "--out", folder + ".run")
    assert done.returncode == 0, done.stderr


def expected_tokens(tokenizer):
    tokens, kinds = {}, {}
    for text, number in tokenizer["model"]["vocab"].items():
        tokens[number] = text
        is_byte = tokenizer["model"]["byte_fallback"] and len(text) == 6 and text.startswith("<0x")
        kinds[number] = 6 if is_byte else 1
    for token in tokenizer["added_tokens"]:
        if kinds.get(token["id"]) != 6:
            tokens[token["id"]], kinds[token["id"]] = token["content"], 3 if token["special"] else 4
    return [tokens[i] for i in range(len(tokens))], [kinds[i] for i in range(len(kinds))]


def check_tokenizers():
    with open(GOLDENS, encoding="utf-8") as stream:
        goldens = {golden["name"]: golden["tokenizer"] for golden in json.load(stream)}
    for i, (name, words) in enumerate(NOT_SAID.items()):
        train_with(goldens[name], f"t{i}")
        said = run(BIN + "/generate", f"t{i}.run", "--gguf", "no.gguf")
        check(f"{name}: cannot be said", said.returncode == 4 and words in said.stderr.decode() and not os.path.exists("no.gguf"), said.stderr)
    llama2, scores = as_sentencepiece(goldens["llama2"])
    bytes_too = {**llama2, "added_tokens": llama2["added_tokens"] + [
        {**llama2["added_tokens"][0], "id": llama2["model"]["vocab"][f"<0x{byte:02X}>"], "content": f"<0x{byte:02X}>"} for byte in range(256)]}
    for name, tokenizer in (("llama3", goldens["llama3"]), ("starcoder", goldens["starcoder"]), ("llama2 as SentencePiece", llama2),
                            ("bytes that are special, as SentencePiece", bytes_too)):
        folder = name.split()[0]
        train_with(tokenizer, folder)
        said = run(BIN + "/generate", folder + ".run", "--gguf", folder + ".gguf")
        check(f"{name}: is written", said.returncode == 0, said.stderr)
        keys = {key.removeprefix("tokenizer.ggml."): value for key, value in Reader(folder + ".gguf").keys.items()}
        tokens, kinds = expected_tokens(tokenizer)
        check(f"{name}: its tokens", keys["tokens"] == tokens and keys["token_type"] == kinds)
        if name in CUTS:
            good = keys["model"] == "gpt2" and keys["pre"] == CUTS[name]
            good &= keys["merges"] == [" ".join(pair) for pair in tokenizer["model"]["merges"]]
        else:
            good = keys["model"] == "llama" and keys["add_space_prefix"] is True and "merges" not in keys
            good &= keys["scores"] == [scores.get(token, 0.0) for token in tokens]
        check(f"{name}: what it does", good)
        check(f"{name}: what differs is said", b"white space next to special tokens" in said.stderr)


def check_unused_rows():
    """A tokenizer with 257 tokens and a model with 300 rows: the other rows become unused tokens with unique texts."""
    done = run(BIN + "/train", "text.txt", *SMALL, *BPE, "--out", "rows.run")
    assert done.returncode == 0, done.stderr
    run("cp", "byte.run/tokenizer.json", "byte.run/tokenizer_config.json", "rows.run")
    run("sed", "-i.old", "s/_token_id\": 299/_token_id\": 256/", "rows.run/config.json")
    said = run(BIN + "/generate", "rows.run", "--gguf", "rows.gguf")
    check("more rows than tokens: is written", said.returncode == 0, said.stderr)
    keys = Reader("rows.gguf").keys
    tokens, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    check("more rows than tokens: the rest is unused", kinds == [1] * 256 + [3] + [5] * 43
          and tokens[257:] == [f"[PAD {i}]" for i in range(257, 300)])


def check_modelfile():
    os.makedirs("there")
    done = run(BIN + "/generate", "byte.run", "--gguf", "it's.gguf", "--modelfile", "there/Modelfile")
    with open("there/Modelfile", encoding="utf-8") as stream:
        lines = stream.read().splitlines()
    check("--modelfile", done.returncode == 0 and lines[0] == "FROM " + os.path.abspath("it's.gguf"), lines)
    parameters = dict(line.split()[1:3] for line in lines if line.startswith("PARAMETER "))
    check("all settings of sampling", {key: float(value) for key, value in parameters.items() if key not in ("stop", "num_ctx")}
          == {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1, "repeat_last_n": 64,
              "presence_penalty": 0, "frequency_penalty": 0}, parameters)
    run(BIN + "/generate", "byte.run", "--gguf", "set.gguf", "--modelfile", "set-Modelfile", "--temp", "0.5", "--repeat-last-n", "9",
        "--presence-penalty", "-1.5")
    with open("set-Modelfile", encoding="utf-8") as stream:
        text = stream.read()
    check("as they were given", all(f"PARAMETER {row}\n" in text for row in
                                    ("temperature 0.5", "repeat_last_n 9", "presence_penalty -1.5", "top_k 40")), text)
    check("how to run it, for a shell", b"-m 'it'\\''s.gguf'" in done.stdout and b"ollama create" in done.stdout, done.stdout)
    quiet = run(BIN + "/generate", "byte.run", "--gguf", "x.gguf", "--modelfile", "Modelfile", "--quiet")
    with open("Modelfile", encoding="utf-8") as stream:
        check("beside it the name alone", stream.readline() == "FROM ./x.gguf\n" and not quiet.stdout + quiet.stderr,
              quiet.stderr)


def peak(folder):
    """The peak memory of ./generate --gguf in MiB."""
    done = run("sh", "-c", 'exec "$@" && exit', "-", BIN + "/generate", folder, "--gguf", "x.gguf", "--quiet")
    assert done.returncode == 0, done.stderr
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def check_memory():
    """The peak counts the largest child so far, so the small model comes first, in a process without earlier children."""
    code = f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); import gguf_test as t; " \
        "print(t.peak(sys.argv[1]))"
    os.symlink(os.path.abspath(__file__), "gguf_test.py")
    big = ["--layers", 12, "--heads", 8, "--dim", 512, "--ctx", 16, "--batch", 1, "--steps", 1, "--sample-tokens", 0,
           "--quiet", "--optimizer", "adamw", "--val-frac", 0]
    done = run(BIN + "/train", "text.txt", *big, "--out", "big.run")
    check("a model of 150 MB", done.returncode == 0, done.stderr)
    environment = dict(os.environ, PYTHONPATH=os.getcwd(), BIN=BIN)
    sizes = [float(run(sys.executable, "-c", code, folder, env=environment).stdout or "nan")
             for folder in ("byte.run", "big.run")]
    check("takes no more memory than a small one", sizes[1] < sizes[0] + 16, sizes)


def main():
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_text("text.txt")
        check_models()
        check_refusals()
        check_numbers()
        check_modelfile()
        check_tokenizers()
        check_unused_rows()
        if "sanitize" not in BIN:  # which keeps what was freed
            check_memory()
        os.chdir(here)
    print("done")


if __name__ == "__main__":
    main()
