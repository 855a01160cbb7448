"""Every Transformer that ModelConfig can describe, as the settings stand in model.h: a covering set of models."""

import math

import torch
import torch.nn.functional as F
from family import DTYPE, Family, f32, leaf
from formulas import (IGNORE, attention, inverse_count, loss_of, make_optimizer, rms_norm, rope, visible_keys)
from model import MAX_NORM, learning_rate, no_rounding_to_fp32, relative

SHAPE = dict(vocab=31, ctx=12, heads=2, dim=16, head_dim=8, ffn=40, base=10000.0)
BATCH, STEPS, MICRO_BATCHES = 3, 10, 2
SMOOTHING = f32(0.1)
PACKED = [[5, 1, 6], [12], [1, 2, 3, 6]]  # lengths of the documents of each sequence
# Of models with an encoder: what these answer, but for the last, which is padding; what is left of the sources is too.
SOURCES = [[3, 7, 2], [9], [2, 1, 4]]

LLAMA = dict(norm="rms", place="before", act="silu", gated=True, positions="rope", bias=False, qkv_bias=False,
             head_bias=False, tie=False, kv_heads=2, eps=1e-5, packed=False, layers=2, encoder=0, source_vocab=0,
             mixers="A", qk_norm=False, rotary=0)
LAYER = dict(LLAMA, norm="layer", gated=False, bias=True, qkv_bias=True)
PAIRS = dict(LAYER, packed=True, encoder=2, source_vocab=31)
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
    "marian": dict(PAIRS, place="after", act="relu", positions="sinusoidal", head_bias=True, layers=3,
                   source_vocab=53),
    "blenderbot": dict(PAIRS, act="gelu", positions="learned", tie=True, layers=1),
    "cross_branch": dict(PAIRS, place="branch", act="relu", positions="sinusoidal", head_bias=True, eps=1e-8),
    "cross_rope": dict(LLAMA, kv_heads=1, packed=True, encoder=1, source_vocab=31),
    "lfm2": dict(LLAMA, mixers="CCA", qk_norm=True, kv_heads=1, tie=True, layers=3),
    "lfm2_packed": dict(LLAMA, mixers="CCCA", qk_norm=True, packed=True, layers=4),
    "qwen3": dict(LLAMA, qk_norm=True, kv_heads=1),
    "partial": dict(LAYER, act="gelu", rotary=4, kv_heads=1, packed=True),
    "partial_normed": dict(LLAMA, qk_norm=True, rotary=4, tie=True),
    "parallel": dict(LAYER, act="gelu", place="parallel", rotary=4),
    "parallel_rms": dict(LLAMA, place="parallel", mixers="AC", kv_heads=1, tie=True, layers=3),
    "nope": dict(LLAMA, mixers="AN", qk_norm=True, qkv_bias=True, packed=True),
    "convolutions": dict(LLAMA, mixers="C", act="gelu", tie=True, packed=True),
    "convolution_after": dict(LAYER, mixers="CA", place="after", act="gelu"),
    "convolution_branch": dict(LAYER, mixers="AC", qk_norm=True, place="branch", act="gelu", positions="learned"),
    "cross_convolution": dict(LLAMA, mixers="CA", qk_norm=True, packed=True, encoder=1, source_vocab=31),
}
KINDS = dict(norm=["rms", "layer"], place=["before", "after", "branch", "parallel"],
             act=["silu", "gelu", "gelu_tanh", "relu"], positions=["rope", "learned", "sinusoidal", "none"])
ACTIVATIONS = dict(silu=F.silu, relu=F.relu, gelu=F.gelu, gelu_tanh=lambda x: F.gelu(x, approximate="tanh"))


TAPS = 3  # of a convolution


def mixer(c, layer):
    """Of a layer of the decoder: attention (A), attention without rotary positions (N), or a convolution (C)."""
    return c["mixers"][layer % len(c["mixers"])]


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

    def attention_weights(prefix, module):
        for name, outputs in (("q", query), ("k", key), ("v", key)):
            yield from linear(f"{prefix}{module}.{name}_proj", outputs, s["dim"], c["qkv_bias"])
        if c["qk_norm"] and module == "self_attn":
            for name in "qk":
                yield f"{prefix}{module}.{name}_norm.weight", (s["head_dim"],)
        yield from linear(f"{prefix}{module}.o_proj", s["dim"], query, c["bias"])

    def convolution_weights(prefix):
        for name in "bcx":
            yield from linear(f"{prefix}{name}_proj", s["dim"], s["dim"], False)
        yield prefix + "conv.weight", (s["dim"], 1, TAPS)
        yield from linear(prefix + "out_proj", s["dim"], s["dim"], False)

    def stack(prefix, layers, cross):
        if c["positions"] in ("learned", "sinusoidal"):
            yield prefix + "embed_positions.weight", (s["ctx"], s["dim"])
        for i in range(layers):
            p = f"{prefix}layers.{i}."
            yield from norm(p + "input_layernorm")
            is_decoder = cross or not c["encoder"]
            if is_decoder and mixer(c, i) == "C":
                yield from convolution_weights(p + "conv.")
            else:
                yield from attention_weights(p, "self_attn")
            if cross:
                yield from norm(p + "cross_attention_layernorm")
                yield from attention_weights(p, "cross_attn")
            yield from norm(p + "post_attention_layernorm")
            for name in ("gate", "up") if c["gated"] else ("up",):
                yield from linear(f"{p}mlp.{name}_proj", s["ffn"], s["dim"], c["bias"])
            yield from linear(p + "mlp.down_proj", s["dim"], s["ffn"], c["bias"])
        if c["place"] in ("before", "parallel"):
            yield from norm(prefix + "norm")

    own = c["encoder"] and not c["tie"]
    if not own:
        yield "model.embed_tokens.weight", (s["vocab"], s["dim"])
    else:
        yield "model.encoder.embed_tokens.weight", (c["source_vocab"], s["dim"])
    if c["encoder"]:
        yield from stack("model.encoder.", c["encoder"], False)
    if own:
        yield "model.decoder.embed_tokens.weight", (s["vocab"], s["dim"])
    yield from stack("model.decoder." if c["encoder"] else "model.", c["layers"], c["encoder"] > 0)
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


def joined(c, w, norm, x, branch, entry):
    """entry: the x at the beginning of the layer."""
    if c["place"] == "parallel":
        return x + branch(normalize(c, w, norm, entry))
    if c["place"] == "before":
        return x + branch(normalize(c, w, norm, x))
    if c["place"] == "after":
        return normalize(c, w, norm, x + branch(x))
    return x + normalize(c, w, norm, branch(x))


def convolve(w, prefix, n, positions):
    """torch.conv1d over each document alone, whose positions begin at 0."""
    b, c, x = (F.linear(n, w[f"{prefix}{name}_proj.weight"]) for name in "bcx")
    kernel, rows = w[prefix + "conv.weight"], []
    for z, at in zip(b * x, positions):
        begins = (at == 0).nonzero().flatten().tolist() + [len(at)]
        documents = (F.pad(z[i:j].T, (TAPS - 1, 0)) for i, j in zip(begins, begins[1:]))
        rows.append(torch.cat([F.conv1d(d, kernel, groups=len(kernel)).T for d in documents]))
    return F.linear(c * torch.stack(rows), w[prefix + "out_proj.weight"])


class Pairs:
    """What encoder and decoder see, [BATCH][ctx] each: padding of a source sees itself, of a target no source."""

    def __init__(self, c):
        length = SHAPE["ctx"]
        self.positions = positions_of(PACKED) if c["packed"] else None
        if not c["encoder"]:
            return
        texts = [row + [1] * (length - sum(row)) for row in SOURCES]
        self.source_positions = positions_of(texts)
        starts = [[sum(row[:i]) for i in range(len(row))] for row in texts]
        self.source_begin = torch.tensor([[b for b, n in zip(s, row) for _ in range(n)]
                                          for s, row in zip(starts, texts)])
        self.source_end = torch.tensor([[b + n for b, n in zip(s, row) for _ in range(n)]
                                        for s, row in zip(starts, texts)])
        ranges = [[(b, b + n) for b, n in zip(s, row)] + [(0, 0)] * len(targets)
                  for s, row, targets in zip(starts, SOURCES, PACKED)]
        self.cross_begin, self.cross_end = (
            torch.tensor([[r[side] for r, n in zip(row, targets) for _ in range(n)]
                          for row, targets in zip(ranges, PACKED)]) for side in (0, 1))


def positions_of(texts):
    return torch.tensor([[i for n in row for i in range(n)] for row in texts])


def forward(c, w, tokens, pairs, source):
    """logits [B][T][V]; positions that restart are documents that do not see each other."""
    s = SHAPE
    batch, length = tokens.shape
    places = torch.arange(length).expand(batch, length)
    positions = places if pairs.positions is None else pairs.positions
    seen = visible_keys(batch, length, length, True, None, places - positions, torch.full_like(places, length))

    def attend(prefix, n, memory, visible, rotation):
        q = linear(w, prefix + ".q_proj", n).view(batch, length, -1, s["head_dim"])
        k, v = (linear(w, f"{prefix}.{name}_proj", memory).view(batch, length, -1, s["head_dim"]) for name in "kv")
        if prefix + ".q_norm.weight" in w:
            q = rms_norm(q, w[prefix + ".q_norm.weight"], f32(c["eps"]))[0]
            k = rms_norm(k, w[prefix + ".k_norm.weight"], f32(c["eps"]))[0]
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        out, _ = attention(q, k, v, s["head_dim"] ** -0.5, visible)
        return linear(w, prefix + ".o_proj", out.reshape(batch, length, -1))

    def rotate(x, rotation):
        turned = rope(x[..., :c["rotary"] or s["head_dim"]], rotation, s["base"])
        return torch.cat([turned, x[..., turned.shape[-1]:]], -1)

    def mlp(n, prefix):
        act = ACTIVATIONS[c["act"]]
        up = linear(w, prefix + "mlp.up_proj", n)
        h = act(linear(w, prefix + "mlp.gate_proj", n)) * up if c["gated"] else act(up)
        return linear(w, prefix + "mlp.down_proj", h)

    def stack(prefix, layers, ids, at, visible, memory=None):
        x = F.embedding(ids, w.get(prefix + "embed_tokens.weight", w.get("model.embed_tokens.weight")))
        if prefix + "embed_positions.weight" in w:
            x = x + w[prefix + "embed_positions.weight"][at]
        rotation = at if c["positions"] == "rope" else None
        for i in range(layers):
            p, entry = f"{prefix}layers.{i}.", x
            if p + "conv.conv.weight" in w:
                x = joined(c, w, p + "input_layernorm", x, lambda n: convolve(w, p + "conv.", n, at), x)
            else:
                turned = None if visible is seen and mixer(c, i) == "N" else rotation
                x = joined(c, w, p + "input_layernorm", x, lambda n: attend(p + "self_attn", n, n, visible, turned),
                           x)
            if memory is not None:
                x = joined(c, w, p + "cross_attention_layernorm", x,
                           lambda n: attend(p + "cross_attn", n, memory, cross, None), x)
            x = joined(c, w, p + "post_attention_layernorm", x, lambda n: mlp(n, p), entry)
        return normalize(c, w, prefix + "norm", x) if c["place"] in ("before", "parallel") else x

    if c["encoder"]:
        whole = visible_keys(batch, length, length, False, None, pairs.source_begin, pairs.source_end)
        cross = visible_keys(batch, length, length, False, None, pairs.cross_begin, pairs.cross_end)
        memory = stack("model.encoder.", c["encoder"], source, pairs.source_positions, whole)
        x = stack("model.decoder.", c["layers"], tokens, positions, seen, memory)
    else:
        x = stack("model.", c["layers"], tokens, positions, seen)
    return F.linear(x, w.get("lm_head.weight", w.get("model.embed_tokens.weight")), w.get("lm_head.bias"))


def start(c, random):
    weights = {}
    for name, shape in shapes(c):
        is_gain = len(shape) == 1 and name.endswith("norm.weight")
        weights[name] = random.normal(*shape, std=0.2, mean=1.0 if is_gain else 0.0)
    for name in weights:
        if not is_learned(c, name):
            weights[name] = sinusoids(SHAPE["ctx"], SHAPE["dim"])
    shape = STEPS, MICRO_BATCHES, BATCH, SHAPE["ctx"]
    tokens, targets = random.integers(0, SHAPE["vocab"], *shape), random.integers(0, SHAPE["vocab"], *shape)
    targets[random.integers(0, 10, *shape) < 2] = IGNORE
    source = random.integers(0, c["source_vocab"], *shape) if c["encoder"] else None
    if c["encoder"]:
        targets[:, :, 2, -PACKED[2][-1]:] = IGNORE  # padding
    return weights, tokens, targets, source


def is_learned(c, name):
    return not (c["positions"] == "sinusoidal" and name.endswith("embed_positions.weight"))


def model_loss(c, weights, tokens, targets, inv_targets, pairs, source):
    logits = forward(c, weights, tokens, pairs, source)
    return logits, loss_of(logits.flatten(0, 1), targets.flatten(), SMOOTHING, inv_targets)


def train(c, weights, tokens, targets, pairs, source):
    fixed = {name: w for name, w in weights.items() if not is_learned(c, name)}
    parameters = {name: torch.nn.Parameter(w.clone()) for name, w in weights.items() if name not in fixed}
    optimizer = make_optimizer([(p, p.dim() == 2) for p in parameters.values()])
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        inv_targets, total = inverse_count(targets[step]), 0.0
        for micro in range(MICRO_BATCHES):
            _, loss = model_loss(c, {**parameters, **fixed}, tokens[step, micro], targets[step, micro], inv_targets,
                                 pairs, source[step, micro] if source is not None else None)
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
    weights, tokens, targets, source = start(c, family.random)
    pairs = Pairs(c)
    settings = [SHAPE[k] for k in ("vocab", "ctx")] + [c["layers"]]
    settings += [SHAPE[k] for k in ("heads", "dim", "head_dim", "ffn")] + [c["kv_heads"]]
    settings += [KINDS[k].index(c[k]) for k in ("norm", "place", "act", "positions")]
    settings += [int(c[k]) for k in ("gated", "bias", "qkv_bias", "head_bias", "tie")]
    family.put("settings", torch.tensor(settings))
    family.put("eps", torch.tensor([c["eps"]], dtype=DTYPE))
    leaves = {key: leaf(value) for key, value in weights.items()}
    logits, loss = model_loss(c, leaves, tokens[0, 0], targets[0, 0], inverse_count(targets[0, 0]), pairs,
                              source[0, 0] if source is not None else None)
    loss.backward()
    final, losses = train(c, weights, tokens, targets, pairs, source)
    tensors = dict(tokens=tokens, targets=targets, logits=logits, loss=loss.reshape(1),
                   losses=torch.tensor(losses, dtype=DTYPE))
    if c["packed"]:
        tensors["positions"] = pairs.positions
    if c["mixers"] != "A" or c["qk_norm"]:
        family.put("mixing", torch.tensor([int(c["qk_norm"]), len(c["mixers"])] + [ord(x) for x in c["mixers"]]))
    if c["rotary"]:
        family.put("rotary", torch.tensor([c["rotary"]]))
    if c["encoder"]:
        family.put("encoder", torch.tensor([c["encoder"], c["source_vocab"]]))
        tensors["source"] = source
        for key in ("source_positions", "source_begin", "source_end", "cross_begin", "cross_end"):
            tensors[key] = getattr(pairs, key)
    for key, value in tensors.items():
        family.put(key, value)
    for key, value in weights.items():
        family.put("weights." + key, value)
        family.put("grad." + key, leaves[key].grad if is_learned(c, key) else torch.zeros_like(value))
        family.put("final." + key, final[key])
    if not all(math.isfinite(x) for x in losses) or sum(losses[5:]) >= sum(losses[:5]):
        raise SystemExit(f"{name} does not learn: {losses}")
    return family.write()


def torch_transformer(c, w):
    """torch.nn.Transformer with the weights of an encoder-decoder that it can say."""
    s = SHAPE
    model = torch.nn.Transformer(s["dim"], s["heads"], c["encoder"], c["layers"], s["ffn"], dropout=0.0,
                                 activation=ACTIVATIONS[c["act"]], layer_norm_eps=f32(c["eps"]), batch_first=True,
                                 norm_first=c["place"] == "before", dtype=DTYPE)
    if c["place"] == "after":  # it has final norms in both places; the model of 2017 has none
        model.encoder.norm = model.decoder.norm = None
    names = {"linear1": "mlp.up_proj", "linear2": "mlp.down_proj", "self_attn.out_proj": "self_attn.o_proj",
             "multihead_attn.out_proj": "cross_attn.o_proj", "norm1": "input_layernorm"}

    def value(name):
        path, kind = name.rsplit(".", 1)
        if path in ("encoder.norm", "decoder.norm"):
            return w[f"model.{name}"]
        side, _, layer, part = path.split(".", 3)
        prefix = f"model.{side}.layers.{layer}."
        if kind.startswith("in_proj_"):
            ours = "self_attn" if part == "self_attn" else "cross_attn"
            return torch.cat([w[f"{prefix}{ours}.{x}_proj.{kind.removeprefix('in_proj_')}"] for x in "qkv"])
        last = "norm2" if side == "encoder" else "norm3"
        ours = {**names, "norm2": "cross_attention_layernorm", last: "post_attention_layernorm"}[part]
        return w[f"{prefix}{ours}.{kind}"]

    model.load_state_dict({name: value(name) for name in model.state_dict()})
    return model.eval()


def compare_with_torch(name, seed):
    """The formulas above against torch.nn.Transformer: one pair a sequence, sources of several lengths."""
    c, s = MODELS[name], SHAPE
    weights, tokens, _, source = start(c, Family("none", seed).random)
    ids, read, length = tokens[0, 0], source[0, 0], s["ctx"]
    counts = torch.tensor([1, 7, length])
    at = torch.arange(length).expand(BATCH, length)
    pairs = Pairs(dict(c, encoder=0))
    pairs.positions = pairs.source_positions = at
    inside = at < counts[:, None]
    pairs.source_begin = torch.where(inside, 0, at)
    pairs.source_end = torch.where(inside, counts[:, None], at + 1)
    pairs.cross_begin, pairs.cross_end = torch.zeros_like(at), counts[:, None].expand_as(at)
    ours = forward(c, weights, ids, pairs, read)

    def embed(side, x):
        table = weights.get(f"model.{side}.embed_tokens.weight", weights.get("model.embed_tokens.weight"))
        return F.embedding(x, table) + weights[f"model.{side}.embed_positions.weight"][at]

    hidden = ~inside  # True hides there
    with torch.no_grad():
        out = torch_transformer(c, weights)(
            embed("encoder", read), embed("decoder", ids), src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
            tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(length, dtype=DTYPE))
        theirs = F.linear(out, weights.get("lm_head.weight", weights.get("model.embed_tokens.weight")),
                          weights.get("lm_head.bias"))
    error = float((ours - theirs).norm() / theirs.norm())
    if not error < 1e-12:
        raise SystemExit(f"{name} is {error} away from torch.nn.Transformer")


def transformers_model(name):
    """A causal model of transformers that computes MODELS[name], and its names of tensors."""
    import transformers
    c, s = MODELS[name], SHAPE
    both = dict(vocab_size=s["vocab"], hidden_size=s["dim"], intermediate_size=s["ffn"], num_hidden_layers=c["layers"],
                num_attention_heads=s["heads"], num_key_value_heads=c["kv_heads"], rope_theta=s["base"],
                max_position_embeddings=s["ctx"], tie_word_embeddings=c["tie"], attn_implementation="sdpa")
    if name == "qwen3":
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
            **both, head_dim=s["head_dim"], rms_norm_eps=f32(c["eps"]))), {}
    if name == "parallel":
        return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
            **{key: value for key, value in both.items() if key not in ("num_key_value_heads", "rope_theta")},
            layer_norm_eps=f32(c["eps"]), rotary_pct=c["rotary"] / s["head_dim"], hidden_act=c["act"])), {
                "gpt_neox.": "model.", "embed_in": "embed_tokens", "final_layer_norm": "norm",
                "attention.dense": "self_attn.o_proj", "dense_h_to_4h": "up_proj", "dense_4h_to_h": "down_proj"}
    kinds = ["conv" if mixer(c, i) == "C" else "full_attention" for i in range(c["layers"])]
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(
        **both, norm_eps=f32(c["eps"]), layer_types=kinds, block_auto_adjust_ff_dim=False, conv_L_cache=TAPS)), {
            "operator_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "q_layernorm": "q_norm",
            "k_layernorm": "k_norm", "self_attn.out_proj": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj",
            "feed_forward.w3": "mlp.up_proj", "feed_forward.w2": "mlp.down_proj", "embedding_norm": "norm"}


def compare_with_transformers(name, seed):
    """The formulas above against a class of transformers: logits, and the gradient of every tensor."""
    try:
        theirs, names = transformers_model(name)
    except ImportError:
        print(f"transformers is not installed: {name} was not compared with it")
        return
    c, s = MODELS[name], SHAPE
    weights, tokens, targets, _ = start(c, Family("none", seed).random)
    ours = {key: leaf(value) for key, value in weights.items()}

    def value(tensor, of):
        for old, new in names.items():
            tensor = tensor.replace(old, new)
        if tensor.endswith("conv.in_proj.weight"):
            return torch.cat([of(ours[tensor.replace("in_proj", x + "_proj")]) for x in "bcx"])
        if "attention.query_key_value." in tensor:  # rows [H][3][D]
            parts = (of(ours[tensor.replace("attention.query_key_value", f"self_attn.{x}_proj")]) for x in "qkv")
            return torch.cat([part.unflatten(0, (s["heads"], 1, -1)) for part in parts], 1).flatten(0, 2)
        return of(ours.get(tensor, ours["model.embed_tokens.weight"]))

    theirs = theirs.double()
    theirs.load_state_dict({key: value(key, torch.Tensor.detach) for key in theirs.state_dict()})
    rotary, rotated = getattr(theirs.base_model, "rotary_emb", None), c["rotary"] or s["head_dim"]
    rotary = rotary or theirs.model.pos_emb
    rotary.inv_freq = s["base"] ** (-torch.arange(0, rotated, 2, dtype=DTYPE) / rotated)
    ids, inv_targets = (tokens[0, 0], targets[0, 0]), inverse_count(targets[0, 0])
    logits, loss = model_loss(c, ours, *ids, inv_targets, Pairs(c), None)
    with no_rounding_to_fp32():
        their_logits = theirs(ids[0]).logits
        loss_of(their_logits.flatten(0, 1), ids[1].flatten(), SMOOTHING, inv_targets).backward()
    loss.backward()
    error = max([relative(logits.detach(), their_logits.detach())] +
                [relative(value(key, lambda x: x.grad), p.grad) for key, p in theirs.named_parameters()])
    if not error < 1e-10:
        raise SystemExit(f"{name} is {error} away from {type(theirs).__name__}")
    print(f"{name} equals {type(theirs).__name__} of transformers: worst relative L2 {error:.1e}")


def make_architectures():
    compare_with_torch("marian", 1)
    compare_with_torch("blenderbot", 2)
    compare_with_transformers("qwen3", 3)
    compare_with_transformers("lfm2", 4)
    compare_with_transformers("parallel", 5)
    return sum(make_architecture(name, 20 + sum(map(ord, name))) for name in MODELS)
