#!/usr/bin/env python3
"""Compares models of every architecture with Hugging Face transformers (needs PyTorch and transformers).

    scripts/measure/check_transformers.py [--dump build/dump_model] [--generate ./generate] [--only TEXT] [RUN ...]

build/dump_model (make build/dump_model) writes a small random model of every class and variant. Each of them, and each
RUN of ./train, must
  - load with AutoModelForCausalLM (AutoModelForSeq2SeqLM), with no missing or unexpected tensor and no other shape;
  - give Inkling's logits and log-probabilities, and the same 32 most likely tokens from the KV caches of both; with an
    encoder, for a padded batch of sources of different lengths, each of which Inkling answers alone, and as text by
    ./generate --lines;
  - be byte-identical (config.json and model.safetensors) after save_pretrained and a second reading by Inkling.
Inkling then reads models that transformers has initialized at random and saved (GPT-2, OPT and others); they must give
the same logits and tokens. For GPT-2, OPT, Qwen 3, LFM2, Marian, Pegasus and Blenderbot with a byte-level BPE trained
by the tokenizers library, ./generate must give the same text.
Prints one line per model; exit status 1 if any differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

NORM, PLACE, ACT, POSITIONS = ({name: i for i, name in enumerate(names)} for names in (
    ("rms", "layer"), ("before", "after", "branch", "parallel"), ("silu", "gelu", "gelu_tanh", "relu"),
    ("rope", "learned", "sinusoidal", "none")))
LAYER = dict(norm="layer", gated=False)
BIASES = dict(bias=True, qkv_bias=True)
ENCODER = dict(LAYER, encoder_layers=3, source_vocab=257, activation="relu")
OWN = ("InklingPartsForCausalLM", "InklingPartsForConditionalGeneration")
MODELS = {  # name: (class, settings)
    "llama": ("LlamaForCausalLM", dict(kv_heads=2)),
    "llama, all biases, relu, tied": ("LlamaForCausalLM", dict(BIASES, activation="relu", tie=True)),
    "llama, biases of q k v alone": ("LlamaForCausalLM", dict(qkv_bias=True, activation="gelu", head_dim=16)),
    "llama, no biases of q k v": ("LlamaForCausalLM", dict(bias=True, activation="gelu_tanh", rope_base=5e5)),
    "arcee": ("ArceeForCausalLM", dict(gated=False, activation="relu", kv_heads=2, norm_eps=1e-6, head_dim=16)),
    "arcee, biases, gelu": ("ArceeForCausalLM", dict(BIASES, gated=False, activation="gelu", tie=True)),
    "arcee, no biases of q k v": ("ArceeForCausalLM", dict(gated=False, activation="silu", bias=True)),
    "smollm3": ("SmolLM3ForCausalLM", dict(BIASES, positions="none", kv_heads=2)),
    "smollm3, no biases": ("SmolLM3ForCausalLM", dict(positions="none", tie=True, head_dim=16)),
    "smollm3, RoPE in some layers": ("SmolLM3ForCausalLM", dict(mixers="AAN", layers=5, kv_heads=2, qkv_bias=True)),
    "smollm3, gelu, RoPE in one layer": ("SmolLM3ForCausalLM", dict(mixers="NA", tie=True, activation="gelu")),
    "qwen3": ("Qwen3ForCausalLM", dict(qk_norm=True, kv_heads=2, head_dim=16, norm_eps=1e-6, rope_base=1e6)),
    "qwen3, 3 heads of 8 in 32": ("Qwen3ForCausalLM", dict(qk_norm=True, heads=3, kv_heads=1, tie=True)),
    "qwen3, biases of q k v, relu": ("Qwen3ForCausalLM", dict(qk_norm=True, qkv_bias=True, activation="relu")),
    "lfm2": ("Lfm2ForCausalLM", dict(qk_norm=True, mixers="CCA", layers=5, kv_heads=2, tie=True)),
    "lfm2, attention first, untied": ("Lfm2ForCausalLM", dict(qk_norm=True, mixers="AC", layers=3, head_dim=16,
                                                              norm_eps=1e-6, rope_base=1e6)),
    "lfm2, 3 heads of 8 in 32": ("Lfm2ForCausalLM", dict(qk_norm=True, mixers="CA", heads=3, kv_heads=3)),
    "starcoder2": ("Starcoder2ForCausalLM", dict(LAYER, **BIASES, activation="gelu_tanh", kv_heads=2, tie=True)),
    "starcoder2, no biases": ("Starcoder2ForCausalLM", dict(LAYER, activation="relu", norm_eps=1e-6, head_dim=16)),
    "starcoder2, biases of q k v": ("Starcoder2ForCausalLM", dict(LAYER, qkv_bias=True, activation="gelu")),
    "stablelm": ("StableLmForCausalLM", dict(norm="layer", qkv_bias=True, kv_heads=2)),
    "stablelm, no biases": ("StableLmForCausalLM", dict(norm="layer", tie=True, activation="gelu", norm_eps=1e-6)),
    "stablelm, a part rotated": ("StableLmForCausalLM", dict(norm="layer", qkv_bias=True, kv_heads=2, rotary_dims=4)),
    "gpt2": ("GPT2LMHeadModel", dict(LAYER, **BIASES, positions="learned", activation="gelu_tanh", tie=True)),
    "gpt2, no biases": ("GPT2LMHeadModel", dict(LAYER, positions="learned", activation="relu", norm_eps=1e-8)),
    "gpt2, no biases of q k v": ("GPT2LMHeadModel", dict(LAYER, positions="learned", activation="silu", bias=True)),
    "opt, sinusoids": ("OPTForCausalLM", dict(LAYER, positions="sinusoidal", activation="relu", bias=True)),
    "opt, after": ("OPTForCausalLM", dict(LAYER, **BIASES, norm_place="after", positions="learned", activation="relu")),
    "opt, after, no biases": ("OPTForCausalLM", dict(LAYER, norm_place="after", positions="sinusoidal",
                                                     activation="gelu", tie=True)),
    "opt, no positions": ("OPTForCausalLM", dict(LAYER, **BIASES, positions="none", activation="gelu_tanh")),
    "own: head bias": ("InklingPartsForCausalLM", dict(LAYER, bias=True, head_bias=True, positions="sinusoidal",
                                                  activation="relu")),
    "own: norm on the branch": ("InklingPartsForCausalLM", dict(LAYER, **BIASES, norm_place="branch", norm_eps=1e-8,
                                                           positions="sinusoidal", activation="gelu")),
    "own: rms, learned, grouped": ("InklingPartsForCausalLM", dict(positions="learned", kv_heads=2, tie=True)),
    "own: rms, rope, after": ("InklingPartsForCausalLM", dict(norm_place="after", qkv_bias=True, head_dim=16)),
    "own: gated, none, head bias, tied": ("InklingPartsForCausalLM", dict(norm="layer", positions="none", head_bias=True,
                                                                     tie=True, activation="gelu_tanh")),
    "own: opt with another eps": ("InklingPartsForCausalLM", dict(LAYER, **BIASES, positions="sinusoidal", norm_eps=1e-6,
                                                             activation="relu")),
    "own: convolutions alone": ("InklingPartsForCausalLM", dict(mixers="C", layers=2)),
    "own: lfm2 with biases and GELU": ("InklingPartsForCausalLM", dict(
        BIASES, mixers="CCA", layers=4, qk_norm=True, activation="gelu", kv_heads=2, head_bias=True)),
    "own: all mixers, without norms of heads": ("InklingPartsForCausalLM", dict(mixers="CNA", layers=4, tie=True)),
    "own: no RoPE in any layer": ("InklingPartsForCausalLM", dict(mixers="N")),
    "own: gpt2 with norms of heads": ("InklingPartsForCausalLM", dict(
        LAYER, **BIASES, positions="learned", qk_norm=True, activation="gelu_tanh", mixers="AC")),
    "own: convolutions, norms after": ("InklingPartsForCausalLM", dict(mixers="NC", norm_place="after", qk_norm=True)),
    "gpt_neox": ("GPTNeoXForCausalLM", dict(LAYER, **BIASES, norm_place="parallel", activation="gelu", rotary_dims=2)),
    "gpt_neox, one after the other": ("GPTNeoXForCausalLM", dict(LAYER, activation="relu", rotary_dims=6, norm_eps=1e-6)),
    "gpt_neox, whole heads, tied": ("GPTNeoXForCausalLM", dict(LAYER, qkv_bias=True, norm_place="parallel", tie=True,
                                                               activation="gelu_tanh", rope_base=5e4)),
    "own: parallel": (OWN[0], dict(BIASES, norm_place="parallel", rotary_dims=4, mixers="AAC", layers=3)),
    "own: a part rotated": ("InklingPartsForCausalLM", dict(kv_heads=2, qk_norm=True, head_dim=16, rotary_dims=6)),
    "marian": ("MarianMTModel", dict(ENCODER, **BIASES, norm_place="after", positions="sinusoidal")),
    "marian, tied, no biases": ("MarianMTModel", dict(ENCODER, norm_place="after", positions="sinusoidal", tie=True)),
    "marian, own vocabularies, head bias": ("MarianMTModel", dict(ENCODER, bias=True, head_bias=True, source_vocab=99,
                                                                  norm_place="after", positions="sinusoidal")),
    "pegasus": ("PegasusForConditionalGeneration", dict(ENCODER, **BIASES, positions="sinusoidal")),
    "pegasus, tied, head bias": ("PegasusForConditionalGeneration", dict(ENCODER, head_bias=True, qkv_bias=True,
                                                                         positions="sinusoidal", tie=True)),
    "blenderbot": ("BlenderbotForConditionalGeneration", dict(ENCODER, **BIASES, head_bias=True, positions="learned")),
    "blenderbot, tied, no biases": ("BlenderbotForConditionalGeneration", dict(ENCODER, positions="learned",
                                                                               tie=True)),
    "own: norm on the branch, encoder": (OWN[1], dict(ENCODER, **BIASES, norm_place="branch", norm_eps=1e-8,
                                                      positions="sinusoidal", head_bias=True)),
    "own: norms of heads, encoder": (OWN[1], dict(encoder_layers=2, source_vocab=257, kv_heads=2, qk_norm=True)),
    "own: lfm2 with an encoder": (OWN[1], dict(encoder_layers=1, layers=3, source_vocab=99, mixers="CAN", qk_norm=True,
                                               norm_eps=1e-6, head_dim=16)),
    "own: convolutions above an encoder": (OWN[1], dict(ENCODER, **BIASES, positions="sinusoidal", mixers="CA",
                                                        tie=True)),
    "own: llama with an encoder, grouped": (OWN[1], dict(encoder_layers=1, source_vocab=257, kv_heads=2, tie=True)),
    "own: rms, rope, after, encoder": (OWN[1], dict(encoder_layers=2, source_vocab=300, norm_place="after",
                                                    head_dim=16, qkv_bias=True)),
    "own: marian with learned positions": (OWN[1], dict(ENCODER, **BIASES, norm_place="after", positions="learned",
                                                        tie=True, head_bias=True)),
    "own: gated, none, own vocabularies": (OWN[1], dict(encoder_layers=2, source_vocab=99, norm="layer", bias=True,
                                                        positions="none", activation="gelu_tanh")),
}
NEW, PROMPT = 32, [72, 101, 108, 108, 111]


class Differs(Exception):
    pass


def settings_of(model):
    tables = dict(norm=NORM, norm_place=PLACE, activation=ACT, positions=POSITIONS)
    return [f"{key}={tables[key][value] if key in tables else value if key == 'mixers' else float(value)}"
            for key, value in model.items()]


class Inkling:
    def __init__(self, dump, generate):
        self.dump, self.generator = dump, generate

    @staticmethod
    def output(*command, text=None):
        done = subprocess.run([str(word) for word in command], input=text and text.encode(), capture_output=True,
                              check=False)
        if done.returncode:
            raise Differs(done.stderr.decode().strip())
        return done.stdout

    def run(self, *arguments):
        return self.output(self.dump, *arguments)

    def generate(self, *arguments, text=None):
        return self.output(self.generator, *arguments, text=text).decode(errors="replace")

    def class_of(self, path):
        name = self.run("class", path).decode().split()
        return name[0], len(name) > 1

    def logits(self, path, tokens, source=None):
        numbers = self.run("logits", path, *tokens, *(["of", *source] if source else []))
        return torch.from_numpy(numpy.frombuffer(numbers, numpy.float32).copy().reshape(len(tokens), -1))

    def greedy(self, path, count, tokens, source=None):
        return [int(line) for line in self.run("greedy", path, count, *tokens,
                                               *(["of", *source] if source else [])).split()]


def load(path, own):
    config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=own)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model, info = auto.from_pretrained(path, output_loading_info=True, dtype=torch.float32, trust_remote_code=own)
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        raise Differs(f"loading: {wrong}")
    return model.eval()


def likeliest(model, prompt, new, **more):
    """Generates the most likely tokens; an end token does not stop it."""
    end, model.generation_config.eos_token_id = model.generation_config.eos_token_id, None
    with torch.no_grad():
        text = model.generate(prompt, max_new_tokens=new, do_sample=False, pad_token_id=0, **more)
    model.generation_config.eos_token_id = end
    return text


def pad(rows):
    """The rows as a batch, padded on the right, and the mask of its tokens."""
    width = max(map(len, rows))
    return (torch.tensor([row + [0] * (width - len(row)) for row in rows]),
            torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]))


def draw_sources(config):
    vocab = getattr(config, "source_vocab_size", config.vocab_size)
    random = torch.Generator().manual_seed(2)
    return [torch.randint(0, vocab, (length,), generator=random).tolist() for length in (13, 1, 40, 7)]


def compare_answers(inkling, path, model):
    config, ctx = model.config, model.config.max_position_embeddings
    vocab, start = model.lm_head.weight.shape[0], model.generation_config.decoder_start_token_id
    sources = draw_sources(config)
    tokens = torch.randint(0, vocab, (len(sources), 20), generator=torch.Generator().manual_seed(1))
    batch, mask = pad(sources)
    with torch.no_grad():
        theirs = model(input_ids=batch, attention_mask=mask, decoder_input_ids=tokens).logits
    text = likeliest(model, batch, min(NEW, ctx - 1), attention_mask=mask)[:, 1:].tolist()
    ours = torch.stack([inkling.logits(path, row.tolist(), source) for row, source in zip(tokens, sources)])
    error = float((ours - theirs).norm() / theirs.norm())
    if not error < 1e-5:
        raise Differs(f"logits differ by {error:.1e}")
    for source, answer in zip(sources, text):
        mine = inkling.greedy(path, len(answer), [start], source)
        if mine != answer:
            raise Differs(f"tokens differ: {mine} here, {answer} there")
    return error


def compare(inkling, path, model):
    """The relative difference of the logits; the most likely tokens must be the same."""
    if model.config.is_encoder_decoder:
        return compare_answers(inkling, path, model)
    vocab, ctx = model.config.vocab_size, model.config.max_position_embeddings
    new = min(NEW, ctx - len(PROMPT))
    tokens = torch.randint(0, vocab, (min(ctx, 40),), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.no_grad():
        theirs = model(torch.tensor([tokens])).logits[0]
    prompt = torch.tensor([[token % vocab for token in PROMPT]])
    text = likeliest(model, prompt, new, attention_mask=torch.ones_like(prompt))[0, len(PROMPT):].tolist()
    ours = inkling.logits(path, tokens)
    error = float((ours - theirs).norm() / theirs.norm())
    if not error < 1e-5:
        raise Differs(f"logits differ by {error:.1e}")
    mine = inkling.greedy(path, new, prompt[0].tolist())
    if len(text) != new or mine != text:
        raise Differs(f"tokens differ: {mine} here, {text} there")
    return error


def compare_lines(inkling, path, tokenizer, model):
    """Compares ./generate --lines with a batch of lines from the tokenizer."""
    lines = ["31415926", "7", "a longer one, of words", "", "27182"]
    batch = tokenizer(lines, padding=True, return_tensors="pt")
    text = likeliest(model, batch.input_ids, NEW, attention_mask=batch.attention_mask)[:, 1:]
    theirs = [tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False)
              .replace("\\", "\\\\").replace("\n", "\\n") for row in text]
    ours = inkling.generate(path, "--lines", "--greedy", "-n", NEW, "--ignore-eos", text="\n".join(lines) + "\n")
    if ours.split("\n") != theirs + [""]:
        raise Differs(f"answers differ: {ours!r} here, {theirs!r} there")
    return ", the same answers to lines"


def compare_logprobs(inkling, path, tokenizer, model):
    """Compares ./generate --json --logprobs with compute_transition_scores()."""
    choice = json.loads(inkling.generate(path, "-p", "Once", "--greedy", "-n", NEW, "--on-full", "stop", "--ignore-eos",
                                         "--bias", "Z=-inf", "--quiet", "--json", "--logprobs", 3))["choices"][0]
    prompt = tokenizer("Once", return_tensors="pt").input_ids
    tokens = torch.cat([prompt[0], torch.tensor(choice["token_ids"])])[None]
    with torch.no_grad():
        scores = model(tokens).logits[:, prompt.shape[1] - 1:-1].transpose(0, 1)
    theirs = model.compute_transition_scores(tokens, tuple(scores), normalize_logits=True)[0]
    ours = choice["logprobs"]
    error = (torch.tensor(ours["token_logprobs"]) - theirs).abs().max().item()
    top = torch.log_softmax(scores[:, 0], -1).topk(3).values
    for mine, best in zip(ours["top_logprobs"], top):
        error = max(error, (torch.tensor(sorted(mine.values(), reverse=True)) - best).abs().max().item())
    if not error < 1e-4:
        raise Differs(f"log-probabilities differ by {error:.1e}")
    return f", log-probabilities {error:.1e}"


def same_file(a, b):
    with open(a, "rb") as x, open(b, "rb") as y:
        return x.read() == y.read()


def check_written(inkling, path, wanted, scratch):
    """Checks a directory written by Inkling."""
    name, own = inkling.class_of(path)
    if wanted and name != wanted:
        raise Differs(f"written as {name}")
    model = load(path, own)
    if type(model).__name__ != name:
        raise Differs(f"loaded as {type(model).__name__}")
    error = compare(inkling, path, model)
    saved, again = scratch + "/saved", scratch + "/again"
    model.save_pretrained(saved)
    load(saved, own)
    os.makedirs(again)
    inkling.run("copy", saved, again)
    for file in ("config.json", "model.safetensors"):
        if not same_file(f"{path}/{file}", f"{again}/{file}"):
            raise Differs(f"{file} is another after save_pretrained")
    also = ""
    if not model.config.is_encoder_decoder:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=own)
        also = compare_logprobs(inkling, path, tokenizer, model)
    if model.config.is_encoder_decoder and model.get_encoder().embed_tokens.weight.shape == model.lm_head.weight.shape:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=own)
        tokenizer.save_pretrained(saved)
        for place in (path, saved):
            also = compare_lines(inkling, place, tokenizer, model)
    return f"{name:34s} logits {error:.1e}{also}"


def check_padding(inkling, path, _scratch):
    """The custom class: a batch padded on the left gives the results of its rows alone, with and without KV caches."""
    model = load(path, inkling.class_of(path)[1])
    long, short = torch.tensor([PROMPT * 2]), torch.tensor([PROMPT])
    tokens = torch.cat([long, torch.cat([torch.zeros_like(short), short], 1)])
    mask = torch.ones_like(tokens)
    mask[1, :short.shape[1]] = 0
    settings = dict(max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0)
    with torch.no_grad():
        rows = model.generate(tokens, attention_mask=mask, **settings)[:, tokens.shape[1]:]
        for use_cache in (True, False):
            for i, prompt in enumerate((long, short)):
                alone = model.generate(prompt, attention_mask=torch.ones_like(prompt), use_cache=use_cache, **settings)
                if not torch.equal(alone[0, prompt.shape[1]:], rows[i]):
                    raise Differs(f"row {i} of a padded batch differs from itself alone (cache: {use_cache})")
        loss = float(model(long, labels=long).loss)
    return f"padded batches, caches; loss {loss:.2f}"


def check_sources(inkling, path, _scratch):
    """The custom class: sources padded on either side give the results of each alone, with and without caches; the loss."""
    model = load(path, inkling.class_of(path)[1])
    sources = draw_sources(model.config)
    batch, mask = pad(sources)
    rows = likeliest(model, batch, NEW, attention_mask=mask)
    left = likeliest(model, batch.flip(1), NEW, attention_mask=mask.flip(1))
    for i, source in enumerate(sources):
        for use_cache in (True, False):
            for order, answers in ((source, rows), (source[::-1], left)):
                alone = likeliest(model, torch.tensor([order]), NEW, use_cache=use_cache)
                if not torch.equal(alone[0], answers[i]):
                    raise Differs(f"source {i} of a padded batch differs from itself alone (cache: {use_cache})")
    beams = [likeliest(model, batch, NEW, attention_mask=mask, num_beams=3, use_cache=cache) for cache in (True, False)]
    if not torch.equal(*beams):
        raise Differs("beams with caches and without differ")
    labels = rows[:, 1:].clone()
    labels[0, 5:] = -100
    with torch.no_grad():
        out = model(input_ids=batch, attention_mask=mask, labels=labels)
        logits = model(input_ids=batch, attention_mask=mask, decoder_input_ids=rows[:, :-1]).logits
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    if not abs(float(out.loss - wanted)) < 1e-5:
        raise Differs(f"a loss of {float(out.loss)}, but {float(wanted)} from the logits")
    return f"padded sources, caches, beams; loss {float(wanted):.2f}"


def foreign(kind, small=None):
    """Random models made by transformers; without a kind, the list of kinds."""
    t, small = transformers, small or dict(vocab_size=257, bos_token_id=256, eos_token_id=256)
    llama = dict(small, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=64)
    neox = {key: value for key, value in llama.items() if key != "num_key_value_heads"}
    gpt2 = dict(small, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    opt = dict(small, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
               max_position_embeddings=64)
    encoder = dict(small, d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
                   decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64,
                   pad_token_id=255, decoder_start_token_id=254, forced_eos_token_id=None)
    kinds = {
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(**gpt2)),
        "gpt2, untied, n_inner, relu": lambda: t.GPT2LMHeadModel(t.GPT2Config(
            **gpt2, n_inner=48, activation_function="relu", tie_word_embeddings=False, reorder_and_upcast_attn=True)),
        "opt": lambda: t.OPTForCausalLM(t.OPTConfig(**opt)),
        "opt, after, no biases, untied": lambda: t.OPTForCausalLM(t.OPTConfig(
            **opt, do_layer_norm_before=False, enable_bias=False, tie_word_embeddings=False,
            activation_function="gelu")),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**llama)),
        "llama, attention_bias": lambda: t.LlamaForCausalLM(t.LlamaConfig(**llama, attention_bias=True)),
        "llama, mlp_bias": lambda: t.LlamaForCausalLM(t.LlamaConfig(**llama, mlp_bias=True)),
        "helium, interleaved RoPE": lambda: t.HeliumForCausalLM(t.HeliumConfig(
            **llama, head_dim=8, attention_bias=True, mlp_bias=True)),
        "ernie4_5, interleaved RoPE": lambda: t.Ernie4_5ForCausalLM(t.Ernie4_5Config(
            **llama, head_dim=8, use_bias=True)),
        "qwen2, grouped": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**llama)),
        "qwen2, tied, in bf16 shards": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**llama, tie_word_embeddings=True)),
        "mistral, head_dim": lambda: t.MistralForCausalLM(t.MistralConfig(**llama, head_dim=16, sliding_window=None)),
        "llama, in shards": lambda: t.LlamaForCausalLM(t.LlamaConfig(**llama)),
        "gpt2, in shards": lambda: t.GPT2LMHeadModel(t.GPT2Config(**gpt2)),
        "arcee": lambda: t.ArceeForCausalLM(t.ArceeConfig(**llama, hidden_act="gelu_new")),
        "qwen3, head_dim, tied": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(
            **llama, head_dim=16, tie_word_embeddings=True)),
        "qwen3, attention_bias": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**llama, head_dim=8, attention_bias=True)),
        "qwen3, 5 heads of 6 in 32": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**dict(
            llama, head_dim=6, num_attention_heads=5, num_key_value_heads=5))),
        "lfm2, layer_types": lambda: t.Lfm2ForCausalLM(t.Lfm2Config(**dict(llama, num_hidden_layers=4), layer_types=[
            "conv", "full_attention", "conv", "conv"], block_auto_adjust_ff_dim=False, pad_token_id=None)),
        "lfm2, full_attn_idxs, other names": lambda: t.Lfm2ForCausalLM(t.Lfm2Config(
            **dict(llama, num_hidden_layers=4), full_attn_idxs=[1, 3], block_ff_dim=100, block_multiple_of=24,
            block_ffn_dim_multiplier=1.3, tie_embedding=False, norm_eps=1e-3, pad_token_id=None)),
        "lfm2, attention alone, in shards": lambda: t.Lfm2ForCausalLM(t.Lfm2Config(
            **llama, block_multiple_of=16, pad_token_id=None)),
        "smollm3, every fourth layer": lambda: t.SmolLM3ForCausalLM(t.SmolLM3Config(
            **dict(llama, num_hidden_layers=5), pad_token_id=None)),
        "smollm3, all RoPE": lambda: t.SmolLM3ForCausalLM(t.SmolLM3Config(
            **llama, no_rope_layers=[1, 1], pad_token_id=None)),
        "smollm3, no RoPE": lambda: t.SmolLM3ForCausalLM(t.SmolLM3Config(
            **llama, no_rope_layers=[0, 0], pad_token_id=None)),
        "starcoder2": lambda: t.Starcoder2ForCausalLM(t.Starcoder2Config(**llama)),
        "stablelm": lambda: t.StableLmForCausalLM(t.StableLmConfig(**llama, rope_parameters=dict(
            rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0), use_qkv_bias=True)),
        "stablelm, partial": lambda: t.StableLmForCausalLM(t.StableLmConfig(**llama, partial_rotary_factor=0.5)),
        "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**neox)),
        "gpt_neox, sequential, no biases": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(
            **neox, use_parallel_residual=False, attention_bias=False, rotary_pct=0.5, rotary_emb_base=500)),
        "marian": lambda: t.MarianMTModel(t.MarianConfig(**encoder)),
        "marian, own vocabularies": lambda: t.MarianMTModel(t.MarianConfig(**dict(
            encoder, decoder_vocab_size=300, decoder_start_token_id=299, eos_token_id=298),
            share_encoder_decoder_embeddings=False, tie_word_embeddings=False)),
        "pegasus": lambda: t.PegasusForConditionalGeneration(t.PegasusConfig(**encoder)),
        "pegasus, untied": lambda: t.PegasusForConditionalGeneration(t.PegasusConfig(
            **encoder, tie_word_embeddings=False, activation_function="relu")),
        "blenderbot": lambda: t.BlenderbotForConditionalGeneration(t.BlenderbotConfig(
            **encoder, encoder_no_repeat_ngram_size=0)),
        "blenderbot, untied": lambda: t.BlenderbotForConditionalGeneration(t.BlenderbotConfig(
            **encoder, encoder_no_repeat_ngram_size=0, tie_word_embeddings=False)),
    }
    if kind is None:
        return list(kinds)
    torch.manual_seed(3)
    model = kinds[kind]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.copy_(torch.randn_like(buffer))
    return model


def save(model, kind, path):
    """Saves the model as its kind says: in shards or in bf16 (which also rounds the parameters of the model itself)."""
    more = dict(max_shard_size="30KB") if "shards" in kind else {}
    if "bf16" in kind:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.bfloat16())
        more["state_dict"] = {name: tensor.bfloat16() for name, tensor in model.state_dict().items()}
    model.save_pretrained(path, **more)
    if ("shards" in kind) != os.path.exists(path + "/model.safetensors.index.json"):
        raise Differs(f"{kind}: there is one file of weights, or there are several")


def check_foreign(inkling, kind, scratch):
    model = foreign(kind).eval()
    saved, again = scratch + "/saved", scratch + "/again"
    save(model, kind, saved)
    error = compare(inkling, saved, model)
    os.makedirs(again)
    inkling.run("copy", saved, again)
    name, own = inkling.class_of(again)
    return f"{name:34s} logits {error:.1e}, written again {compare(inkling, again, load(again, own)):.1e}"


def save_tokenizer(path, vocab, sources=False):
    """A byte-level BPE trained on this file; `sources`: with an end token after each text, and padding."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train([__file__], trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<|endoftext|>"],
                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                    show_progress=False))
    more = {}
    if sources:
        tokenizer.post_processor = processors.TemplateProcessing(single="$A <|endoftext|>",
                                                                 special_tokens=[("<|endoftext|>", 0)])
        more["pad_token"] = "<|endoftext|>"
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>",
                                                eos_token="<|endoftext|>", **more)
    fast.save_pretrained(path)
    return fast


def check_text(inkling, kind, scratch):
    vocab, prompt = 300, "def main"
    tokenizer = save_tokenizer(scratch, vocab)
    model = foreign(kind, dict(vocab_size=vocab, bos_token_id=0, eos_token_id=0)).eval()
    model.save_pretrained(scratch)
    tokens = tokenizer(prompt, return_tensors="pt").input_ids
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        text = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=NEW, do_sample=False,
                              pad_token_id=0)
    theirs = tokenizer.decode(text[0, tokens.shape[1]:], clean_up_tokenization_spaces=False)
    ours = inkling.generate(scratch, "-p", prompt, "--greedy", "-n", NEW, "--ignore-eos")
    if ours != theirs:
        raise Differs(f"text differs: {ours!r} here, {theirs!r} there")
    return f"the same {len(ours)} characters from a prompt"


def check_answers(inkling, kind, scratch):
    vocab = 300
    model = foreign(kind, dict(vocab_size=vocab, bos_token_id=0, eos_token_id=0)).eval()
    model.save_pretrained(scratch)
    return "texts" + compare_lines(inkling, scratch, save_tokenizer(scratch, vocab, sources=True), model)


def parser_of(description):
    """The options of a script that compares models with transformers."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", default="build/dump_model", help="default: %(default)s")
    parser.add_argument("--generate", default="./generate", help="default: %(default)s")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the models whose name contains TEXT")
    parser.add_argument("runs", nargs="*", metavar="RUN")
    return parser


class Checks:
    """Runs checks, a line each, in a directory that is deleted afterwards. A check returns what it has found."""

    def __init__(self, options):
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.set_num_threads(1)
        self.only = options.only
        self.failures = 0

    def __call__(self, title, work):
        if self.only not in title:
            return
        with tempfile.TemporaryDirectory() as scratch:
            try:
                print(f"{title:44s} {work(scratch)}", flush=True)
            except Differs as problem:
                self.failures += 1
                print(f"{title:44s} FAILED: {problem}", flush=True)

    def end(self):
        """Prints the result and returns the exit status."""
        found = f"{self.failures} differ" if self.failures else "all agree"
        print(f"transformers {transformers.__version__}: {found}")
        return 1 if self.failures else 0


def main():
    options = parser_of(__doc__).parse_args()
    inkling = Inkling(options.dump, options.generate)
    check = Checks(options)

    def made(name, then, *arguments):
        def work(scratch):
            path = scratch + "/model"
            os.makedirs(path)
            inkling.run("make", path, *settings_of(MODELS[name][1]))
            return then(inkling, path, *arguments, scratch)
        return work

    for run in options.runs:
        check(run, lambda scratch, run=run: check_written(inkling, run, None, scratch))
    for name, (wanted, _) in MODELS.items():
        check(name, made(name, check_written, wanted))
        if wanted in OWN:
            check(name, made(name, check_sources if wanted == OWN[1] else check_padding))
    for kind in foreign(None):
        check("by transformers: " + kind, lambda scratch, kind=kind: check_foreign(inkling, kind, scratch))
    for kind in ("gpt2", "opt", "qwen3, head_dim, tied", "lfm2, layer_types"):
        check("text: " + kind, lambda scratch, kind=kind: check_text(inkling, kind, scratch))
    for kind in ("marian", "pegasus", "blenderbot"):
        check("text: " + kind, lambda scratch, kind=kind: check_answers(inkling, kind, scratch))
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
