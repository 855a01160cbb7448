"""Every Transformer that ModelConfig can describe, as the settings stand in model.h: a covering set of models."""

import math

import torch
import torch.nn.functional as F
from family import DTYPE, Family, f32, leaf
from formulas import (IGNORE, attention, inverse_count, loss_of, make_optimizer, rms_norm, rope, visible_keys)
from model import MAX_NORM, learning_rate

SHAPE = dict(vocab=31, ctx=12, layers=2, heads=2, dim=16, head_dim=8, ffn=40, base=10000.0)
BATCH, STEPS, MICRO_BATCHES = 3, 10, 2
SMOOTHING = f32(0.1)
PACKED = [[5, 1, 6], [12], [1, 2, 3, 6]]  # lengths of the documents of each sequence

LLAMA = dict(norm="rms", place="before", act="silu", gated=True, positions="rope", bias=False, qkv_bias=False,
             head_bias=False, tie=False, kv_heads=2, eps=1e-5, packed=False)
LAYER = dict(LLAMA, norm="layer", gated=False, bias=True, qkv_bias=True)
MODELS = {
    "arcee": dict(LLAMA, act="relu", gated=False, bias=True, qkv_bias=True),
    "starcoder2": dict(LAYER, act="gelu_tanh", tie=True, kv_heads=1, packed=True),
    "stablelm": dict(LAYER, gated=True, bias=False),
    "gpt2": dict(LAYER, act="gelu_tanh", positions="learned", tie=True, packed=True),
    "opt_before": dict(LAYER, act="relu", positions="sinusoidal", qkv_bias=False),
    "opt_after": dict(LAYER, place="after", act="relu", positions="learned", bias=False, qkv_bias=False, tie=True),
    "smollm3": dict(LLAMA, positions="none", bias=True, qkv_bias=True),
    "decoder": dict(LAYER, act="relu", positions="sinusoidal", qkv_bias=False, head_bias=True),
    "gated": dict(LAYER, gated=True, act="gelu", positions="none", head_bias=True),
    "rms_after": dict(LLAMA, place="after", act="gelu_tanh", gated=False, bias=True),
    "branch": dict(LAYER, place="branch", act="gelu", positions="sinusoidal", head_bias=True, eps=1e-8),
}
KINDS = dict(norm=["rms", "layer"], place=["before", "after", "branch"], act=["silu", "gelu", "gelu_tanh", "relu"],
             positions=["rope", "learned", "sinusoidal", "none"])
ACTIVATIONS = dict(silu=F.silu, relu=F.relu, gelu=F.gelu, gelu_tanh=lambda x: F.gelu(x, approximate="tanh"))


def shapes(c):
    """Names and shapes of all tensors, in the order of the checkpoint; those of norms are said to be so."""
    s = SHAPE
    query, key = s["heads"] * s["head_dim"], c["kv_heads"] * s["head_dim"]

    def linear(name, outputs, inputs, bias):
        yield name + ".weight", (outputs, inputs)
        if bias:
            yield name + ".bias", (outputs,)

    def norm(name):
        yield name + ".weight", (s["dim"],)
        if c["norm"] == "layer":
            yield name + ".bias", (s["dim"],)

    yield "model.embed_tokens.weight", (s["vocab"], s["dim"])
    if c["positions"] in ("learned", "sinusoidal"):
        yield "model.embed_positions.weight", (s["ctx"], s["dim"])
    for i in range(s["layers"]):
        p = f"model.layers.{i}."
        yield from norm(p + "input_layernorm")
        for name, outputs in (("q", query), ("k", key), ("v", key)):
            yield from linear(f"{p}self_attn.{name}_proj", outputs, s["dim"], c["qkv_bias"])
        yield from linear(p + "self_attn.o_proj", s["dim"], query, c["bias"])
        yield from norm(p + "post_attention_layernorm")
        for name in ("gate", "up") if c["gated"] else ("up",):
            yield from linear(f"{p}mlp.{name}_proj", s["ffn"], s["dim"], c["bias"])
        yield from linear(p + "mlp.down_proj", s["dim"], s["ffn"], c["bias"])
    if c["place"] == "before":
        yield from norm("model.norm")
    if not c["tie"]:
        yield "lm_head.weight", (s["vocab"], s["dim"])
    if c["head_bias"]:
        yield "lm_head.bias", (s["vocab"],)


def sinusoids(rows, dim):
    angle = torch.arange(rows, dtype=DTYPE)[:, None] * 10000.0 ** (-2.0 * torch.arange(dim // 2, dtype=DTYPE) / dim)
    return torch.cat([angle.sin(), angle.cos()], -1).float().double()


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def normalize(c, w, name, x):
    if c["norm"] == "rms":
        return rms_norm(x, w[name + ".weight"], f32(c["eps"]))[0]
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], f32(c["eps"]))


def joined(c, w, norm, x, branch):
    if c["place"] == "before":
        return x + branch(normalize(c, w, norm, x))
    if c["place"] == "after":
        return normalize(c, w, norm, x + branch(x))
    return x + normalize(c, w, norm, branch(x))


def forward(c, w, tokens, positions):
    """logits [B][T][V]; positions that restart are documents that do not see each other."""
    s = SHAPE
    batch, length = tokens.shape
    places = torch.arange(length).expand(batch, length)
    positions = places if positions is None else positions
    seen = visible_keys(batch, length, length, True, None, places - positions, torch.full_like(places, length))
    x = F.embedding(tokens, w["model.embed_tokens.weight"])
    if "model.embed_positions.weight" in w:
        x = x + w["model.embed_positions.weight"][positions]

    def self_attention(n, prefix):
        q, k, v = (linear(w, f"{prefix}self_attn.{name}_proj", n).view(batch, length, -1, s["head_dim"])
                   for name in "qkv")
        if c["positions"] == "rope":
            q, k = rope(q, positions, s["base"]), rope(k, positions, s["base"])
        out, _ = attention(q, k, v, s["head_dim"] ** -0.5, seen)
        return linear(w, prefix + "self_attn.o_proj", out.reshape(batch, length, -1))

    def mlp(n, prefix):
        act = ACTIVATIONS[c["act"]]
        up = linear(w, prefix + "mlp.up_proj", n)
        h = act(linear(w, prefix + "mlp.gate_proj", n)) * up if c["gated"] else act(up)
        return linear(w, prefix + "mlp.down_proj", h)

    for i in range(s["layers"]):
        p = f"model.layers.{i}."
        x = joined(c, w, p + "input_layernorm", x, lambda n: self_attention(n, p))
        x = joined(c, w, p + "post_attention_layernorm", x, lambda n: mlp(n, p))
    if c["place"] == "before":
        x = normalize(c, w, "model.norm", x)
    return F.linear(x, w.get("lm_head.weight", w["model.embed_tokens.weight"]), w.get("lm_head.bias"))


def start(c, random):
    weights = {}
    for name, shape in shapes(c):
        is_gain = len(shape) == 1 and name.endswith("norm.weight")
        weights[name] = random.normal(*shape, std=0.2, mean=1.0 if is_gain else 0.0)
    if c["positions"] == "sinusoidal":
        weights["model.embed_positions.weight"] = sinusoids(SHAPE["ctx"], SHAPE["dim"])
    shape = STEPS, MICRO_BATCHES, BATCH, SHAPE["ctx"]
    tokens, targets = random.integers(0, SHAPE["vocab"], *shape), random.integers(0, SHAPE["vocab"], *shape)
    targets[random.integers(0, 10, *shape) < 2] = IGNORE
    return weights, tokens, targets


def is_learned(c, name):
    return not (c["positions"] == "sinusoidal" and name == "model.embed_positions.weight")


def model_loss(c, weights, tokens, targets, inv_targets, positions):
    logits = forward(c, weights, tokens, positions)
    return logits, loss_of(logits.flatten(0, 1), targets.flatten(), SMOOTHING, inv_targets)


def train(c, weights, tokens, targets, positions):
    fixed = {name: w for name, w in weights.items() if not is_learned(c, name)}
    parameters = {name: torch.nn.Parameter(w.clone()) for name, w in weights.items() if name not in fixed}
    optimizer = make_optimizer([(p, p.dim() == 2) for p in parameters.values()])
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        inv_targets, total = inverse_count(targets[step]), 0.0
        for micro in range(MICRO_BATCHES):
            _, loss = model_loss(c, {**parameters, **fixed}, tokens[step, micro], targets[step, micro], inv_targets,
                                 positions)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(parameters.values(), MAX_NORM)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step + 1)
        optimizer.step()
        losses.append(total)
    return {**parameters, **fixed}, losses


def make_architecture(name, seed):
    c = MODELS[name]
    family = Family("architecture_" + name, seed)
    weights, tokens, targets = start(c, family.random)
    positions = torch.tensor([[i for n in row for i in range(n)] for row in PACKED]) if c["packed"] else None
    settings = [SHAPE[k] for k in ("vocab", "ctx", "layers", "heads", "dim", "head_dim", "ffn")] + [c["kv_heads"]]
    settings += [KINDS[k].index(c[k]) for k in ("norm", "place", "act", "positions")]
    settings += [int(c[k]) for k in ("gated", "bias", "qkv_bias", "head_bias", "tie")]
    family.put("settings", torch.tensor(settings))
    family.put("eps", torch.tensor([c["eps"]], dtype=DTYPE))
    leaves = {key: leaf(value) for key, value in weights.items()}
    logits, loss = model_loss(c, leaves, tokens[0, 0], targets[0, 0], inverse_count(targets[0, 0]), positions)
    loss.backward()
    final, losses = train(c, weights, tokens, targets, positions)
    tensors = dict(tokens=tokens, targets=targets, logits=logits, loss=loss.reshape(1),
                   losses=torch.tensor(losses, dtype=DTYPE))
    if positions is not None:
        tensors["positions"] = positions
    for key, value in tensors.items():
        family.put(key, value)
    for key, value in weights.items():
        family.put("weights." + key, value)
        family.put("grad." + key, leaves[key].grad if is_learned(c, key) else torch.zeros_like(value))
        family.put("final." + key, final[key])
    if not all(math.isfinite(x) for x in losses) or losses[-1] >= losses[0]:
        raise SystemExit(f"{name} does not learn: {losses}")
    return family.write()


def make_architectures():
    return sum(make_architecture(name, 20 + sum(map(ord, name))) for name in MODELS)
