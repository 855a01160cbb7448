#!/usr/bin/env python3
"""Compares ./generate --dump with hooks in Hugging Face transformers (needs PyTorch, transformers and safetensors).

    scripts/measure/compare_activations.py [--dump build/dump_model] [--generate ./generate] [--only TEXT] [--text FILE] [RUN ...]

Each RUN, and small random models of every class without an encoder (those of scripts/measure/check_transformers.py), read a
text of 2 1/3 windows. All tensors of the file must equal what hooks on the modules of the class see in the same
windows, in fp32 on the CPU, within 1e-5 of the largest number of the tensor; and no tensor may be missing or too many.
Prints the largest difference of each kind of tensor; exit status 1 if a model differs.
"""

import collections
import os
import shutil
import sys

import torch
from safetensors.torch import load_file

from check_transformers import MODELS, Checks, Differs, Inkling, foreign, load, parser_of, save, settings_of

MOST = 1e-5
HIDDEN = ("down_proj", "fc2", "w2", "dense_4h_to_h")  # the last matrix of an MLP; c_proj, too


def layers_of(model):
    for path in ("model.layers", "transformer.h", "model.decoder.layers", "gpt_neox.layers", "model.decoder.layers"):
        try:
            return model.get_submodule(path)
        except AttributeError:
            continue
    raise Differs("a class with other names of layers")


class Hooks:
    """Rows seen in each window, by the name of the tensor."""

    def __init__(self, model):
        self.seen = collections.defaultdict(list)
        layers = layers_of(model)
        heads = model.config.num_attention_heads
        for i, layer in enumerate(layers):
            layer.register_forward_pre_hook(self.input(f"residual.{i}"), with_kwargs=True)
            for path, module in layer.named_modules():
                self.hook(path.split("."), module, i, heads)
        layers[-1].register_forward_hook(self.output(f"residual.{len(layers)}"))
        model.get_output_embeddings().register_forward_pre_hook(self.input("head_input"), with_kwargs=True)

    def add(self, name, rows):
        rows = rows[0] if isinstance(rows, tuple) else rows
        self.seen[name].append(rows.detach().reshape(-1, rows.shape[-1]).clone())

    def input(self, name):
        return lambda module, args, kwargs: self.add(name, args[0] if args else kwargs["hidden_states"])

    def output(self, name):
        return lambda module, args, out: self.add(name, out)

    def split(self, i, heads):
        """The output of a matrix that computes queries, keys and values: heads None: one after the other; else by head."""
        def hook(module, args, out):
            out = out.reshape(-1, out.shape[-1])
            parts = (out.chunk(3, -1) if heads is None else
                     [part.reshape(len(out), -1) for part in out.reshape(len(out), heads, 3, -1).unbind(2)])
            for name, part in zip(("queries", "keys", "values"), parts):
                self.add(f"{name}.{i}", part)
        return hook

    def hook(self, path, module, i, heads):
        name, mlp, conv = path[-1], any("mlp" in part or "feed" in part for part in path), "conv" in path
        if name in ("q_proj", "k_proj", "v_proj"):
            plural = dict(q="queries", k="keys", v="values")[name[0]]
            module.register_forward_hook(self.output(f"{plural}.{i}"))
        elif name == "c_attn":
            module.register_forward_hook(self.split(i, None))
        elif name == "query_key_value":
            module.register_forward_hook(self.split(i, heads))
        elif name in HIDDEN or (name == "c_proj" and mlp):
            module.register_forward_pre_hook(self.input(f"mlp_hidden.{i}"), with_kwargs=True)
            module.register_forward_hook(self.output(f"mlp_output.{i}"))
        elif name in ("o_proj", "out_proj", "c_proj", "dense"):
            module.register_forward_hook(self.output(f"{'convolution' if conv else 'attention'}_output.{i}"))


def differences(dump, seen):
    """The largest difference of each kind of tensor, relative to the largest number of that tensor."""
    if set(dump) != set(seen) | {"tokens"}:
        raise Differs(f"other tensors: {sorted(set(dump) ^ (set(seen) | {'tokens'}))}")
    worst = collections.Counter()
    for name, windows in seen.items():
        theirs, ours = torch.cat(windows), dump[name]
        if theirs.shape != ours.shape or ours.dtype != torch.float32:
            raise Differs(f"{name} is {list(ours.shape)} {ours.dtype}, not {list(theirs.shape)}")
        kind = name.split(".")[0]
        worst[kind] = max(worst[kind], float((ours - theirs).abs().max() / theirs.abs().max()))
    return worst


def compare(inkling, path, model, text, scratch):
    file = os.path.join(scratch, "dump.safetensors")
    inkling.generate(path, "-f", text, "--dump", file, "--device", "cpu", "--dtype", "f32", "--quiet")
    dump = load_file(file)
    hooks = Hooks(model)
    window = model.config.max_position_embeddings
    if not len(dump["tokens"]) > 2 * window:
        raise Differs(f"a text of {len(dump['tokens'])} tokens, less than 3 windows of {window}")
    with torch.no_grad():
        states = [model(tokens[None], output_hidden_states=True, use_cache=False).hidden_states
                  for tokens in dump["tokens"].split(window)]
    for i, windows in enumerate(zip(*states) if states[0] else ()):  # our own class returns none
        name = f"residual.{i}" if i + 1 < len(states[0]) else "head_input"
        if not torch.allclose(torch.cat(windows, 1)[0], torch.cat(hooks.seen[name]), rtol=0, atol=0):
            raise Differs(f"hidden_states[{i}] is not {name}")
    worst = differences(dump, hooks.seen)
    line = ", ".join(f"{kind} {error:.0e}" for kind, error in worst.items())
    if not max(worst.values()) < MOST:
        raise Differs(line)
    return f"{type(model).__name__:24s} {max(worst.values()):.1e} ({line})"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--text", metavar="FILE", help="what a RUN reads (default: the beginning of this script)")
    options = parser.parse_args()
    inkling = Inkling(options.dump, options.generate)
    check = Checks(options)

    def short_text(scratch):
        file = os.path.join(scratch, "text")
        with open(__file__, "rb") as source, open(file, "wb") as out:
            out.write(source.read(150))
        return file

    def make(scratch, settings):
        path = os.path.join(scratch, "model")
        os.makedirs(path)
        inkling.run("make", path, *settings)
        return path

    def of_run(run):
        return lambda scratch: compare(inkling, run, load(run, inkling.class_of(run)[1]), options.text or __file__, scratch)

    def made(name):
        def work(scratch):
            path = make(scratch, settings_of(MODELS[name][1]))
            return compare(inkling, path, load(path, inkling.class_of(path)[1]), short_text(scratch), scratch)
        return work

    def by_transformers(kind):
        def work(scratch):
            path, model = os.path.join(scratch, "saved"), foreign(kind).eval()
            save(model, kind, path)
            own = make(scratch, [])
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(os.path.join(own, file), path)
            return compare(inkling, path, model, short_text(scratch), scratch)
        return work

    for run in options.runs:
        check(run, of_run(run))
    for name, (_, settings) in MODELS.items():
        if "encoder_layers" not in settings:
            check(name, made(name))
    for kind in foreign(None):
        if not kind.startswith(("marian", "pegasus", "blenderbot")):
            check("by transformers: " + kind, by_transformers(kind))
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
