#!/usr/bin/env python3
"""Writes the reference tensors beside this file, from float64 PyTorch.

    python3 tests/golden/make_goldens.py

Every backward is torch.autograd's of a forward written as the formula stands in kernels.h, every optimizer step is
torch.optim.AdamW's and every clip torch.nn.utils.clip_grad_norm_'s, so nothing here shares a derivation with the C
code. Inputs are rounded to fp32 first and stored exactly; results are computed from them in float64 and stored as fp32.
The seed is fixed: the files change only with this script (or in last bits with another PyTorch).

One file a family. Case i of a family is the set of tensors named "i.something"; "i.dims" holds its sizes in the order
that the tests read them. Where transformers can be imported the whole model is first compared with LlamaForCausalLM.
"""

import contextlib
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
IGNORE = -100
DTYPE = torch.float64


def f32(value):
    """A Python number as the nearest fp32: the hyper-parameters that the C code is given."""
    return float(np.float32(value))


class Random:
    """Normal numbers and integers from one fixed stream a family; the numbers are exact in fp32."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def normal(self, *shape, std=1.0, mean=0.0):
        values = (self.generator.standard_normal(shape) * std + mean).astype(np.float32)
        return torch.tensor(values.astype(np.float64))

    def integers(self, low, high, *shape):
        return torch.tensor(self.generator.integers(low, high, shape), dtype=torch.int64)


class Family:
    """Collects the cases of one file."""

    def __init__(self, name, seed):
        self.name, self.cases, self.tensors, self.random = name, 0, {}, Random(seed)

    def add(self, dims, **tensors):
        """`dims` are ints; float tensors are stored as F32, integer ones as I32."""
        self.put(f"{self.cases}.dims", torch.tensor(dims, dtype=torch.int64))
        for key, value in tensors.items():
            self.put(f"{self.cases}.{key}", value)
        self.cases += 1

    def put(self, key, value):
        array = value.detach().numpy()
        kind = np.float32 if array.dtype.kind == "f" else np.int32
        self.tensors[key] = np.ascontiguousarray(array.astype(kind))

    def write(self):
        path = os.path.join(HERE, self.name + ".safetensors")
        save_file(self.tensors, path, metadata={"format": "pt"})  # one entry: several have no fixed order
        os.chmod(path, 0o644)
        size = os.path.getsize(path)
        print(f"{self.name}: {self.cases} cases, {size} bytes")
        return size


def scalar(value):
    return torch.tensor([value], dtype=DTYPE)


def leaf(tensor):
    return tensor.clone().requires_grad_(True)


def gradients(outputs, upstream, inputs):
    """d(sum of outputs * upstream) / d(inputs)."""
    total = sum((o * g).sum() for o, g in zip(outputs, upstream))
    return torch.autograd.grad(total, inputs)


# ---- formulas -----------------------------------------------------------------------------------------------------


def rms_norm(x, gain, eps):
    rstd = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return gain * x * rstd, rstd.squeeze(-1)


def rope(x, positions, base):
    """x [B][T][H][D], positions [B][T]; rotate-half."""
    half = x.shape[-1] // 2
    frequency = base ** (-2.0 * torch.arange(half, dtype=DTYPE) / x.shape[-1])
    angle = positions.to(DTYPE)[:, :, None, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def visible_keys(batch, queries, keys, causal, q_offset, key_begin, key_end):
    """bool [B][1][Tq][Tk]"""
    j = torch.arange(keys)
    seen = torch.ones(batch, queries, keys, dtype=torch.bool)
    if key_begin is not None:
        seen &= (j >= key_begin[:, :, None]) & (j < key_end[:, :, None])
    if causal:
        last = torch.arange(queries)[None] + (q_offset[:, None] if q_offset is not None else 0)
        seen &= j <= last[:, :, None]
    return seen[:, None]


def attention(q, k, v, scale, seen):
    """q [B][Tq][H][D], k, v [B][Tk][G][D]: out [B][Tq][H][D], lse [B][H][Tq]."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scores = scale * torch.einsum("bqhd,bkhd->bhqk", q, k)
    scores = scores.masked_fill(~seen, -torch.inf)
    blind = ~seen.any(-1)  # autograd must not see -inf - -inf
    safe = scores.masked_fill(blind[..., None], 0.0)
    probabilities = safe.softmax(-1).masked_fill(blind[..., None], 0.0)
    lse = safe.logsumexp(-1).masked_fill(blind, -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", probabilities, v), lse


def loss_of(logits, targets, smoothing, inv_targets):
    total = F.cross_entropy(logits, targets, label_smoothing=smoothing, ignore_index=IGNORE, reduction="sum")
    return total * inv_targets


def inverse_count(targets):
    count = int((targets != IGNORE).sum())
    return f32(1.0 / count) if count else 0.0


# ---- families -----------------------------------------------------------------------------------------------------


def make_embedding():
    family = Family("embedding", 1)
    for vocab, dim, batch, length in [(1, 1, 1, 1), (7, 5, 2, 3), (61, 17, 3, 7)]:
        table = leaf(family.random.normal(vocab, dim))
        tokens = family.random.integers(0, vocab, batch, length)
        dx = family.random.normal(batch, length, dim)
        out = F.embedding(tokens, table)
        (dtable,) = gradients([out], [dx], [table])
        family.add([vocab, dim, batch, length], table=table, tokens=tokens, out=out, dx=dx, dtable=dtable)
    return family.write()


def make_norm():
    """plain: x_in is normalized; otherwise x_out = x_in + branch. dx_alone has no residual gradient."""
    family = Family("norm", 2)
    for batch, length, dim in [(1, 1, 1), (1, 1, 8), (2, 3, 5), (2, 5, 33), (1, 2, 66), (1, 1, 288)]:
        x_in, branch = leaf(family.random.normal(batch, length, dim)), leaf(family.random.normal(batch, length, dim))
        gain = leaf(family.random.normal(dim, std=0.3, mean=1.0))
        dy, dres = family.random.normal(batch, length, dim), family.random.normal(batch, length, dim)
        eps = f32(1e-5) if dim != 5 else 0.25  # a large one, so that its place in the formula is seen
        plain_y, plain_rstd = rms_norm(x_in, gain, eps)
        plain_dx, plain_dgain = gradients([plain_y], [dy], [x_in, gain])
        x_out = x_in + branch
        y, rstd = rms_norm(x_out, gain, eps)
        dx, dgain = gradients([y, x_out], [dy, dres], [branch, gain])
        family.add(
            [batch, length, dim], eps=scalar(eps), x_in=x_in, branch=branch, gain=gain, dy=dy, dres=dres,
            plain_y=plain_y, plain_rstd=plain_rstd, plain_dx=plain_dx, plain_dgain=plain_dgain,
            x_out=x_out, y=y, rstd=rstd, dx=dx, dgain=dgain)
    return family.write()


def make_linear():
    family = Family("linear", 3)
    for rows, outputs, inputs in [(1, 1, 1), (1, 5, 3), (5, 3, 7), (7, 1, 2), (17, 19, 29), (9, 48, 24)]:
        x, w = leaf(family.random.normal(rows, inputs)), leaf(family.random.normal(outputs, inputs, std=0.5))
        dy = family.random.normal(rows, outputs)
        y = F.linear(x, w)
        dx, dw = gradients([y], [dy], [x, w])
        family.add([rows, outputs, inputs], x=x, w=w, dy=dy, y=y, dx=dx, dw=dw)
    return family.write()


def make_rope():
    family = Family("rope", 4)
    for batch, length, heads, dim, base in [(1, 1, 1, 2, 10000.0), (2, 5, 3, 8, 10000.0), (1, 7, 2, 48, 500.0)]:
        x = family.random.normal(batch, length, heads, dim)
        positions = family.random.integers(0, 300, batch, length)
        natural = torch.arange(length).expand(batch, length)
        family.add([batch, length, heads, dim, int(base)], x=x, positions=positions, out=rope(x, positions, base),
                   out_natural=rope(x, natural, base))
    return family.write()


ATTENTION_CASES = [
    # B, H, G, Tq, Tk, D, causal, q_offset, key ranges, rope
    (1, 1, 1, 1, 1, 2, True, None, None, False),
    (1, 1, 1, 1, 1, 8, False, None, None, False),
    (2, 4, 2, 7, 7, 8, True, None, None, True),
    (1, 2, 1, 7, 7, 48, False, None, None, True),
    (1, 2, 1, 12, 12, 32, True, None, None, False),
    (1, 1, 1, 64, 64, 8, True, None, None, True),
    (1, 2, 1, 130, 130, 8, True, None, None, False),
    (1, 1, 1, 130, 130, 2, False, None, "random", False),
    (2, 3, 1, 5, 13, 8, True, [3, 8], None, False),
    (2, 2, 2, 4, 7, 2, True, [-2, 3], None, False),
    (1, 4, 2, 1, 64, 8, True, [63], None, False),
    (2, 3, 1, 5, 13, 8, False, None, "some blind", False),
    (2, 4, 4, 9, 9, 2, True, None, "some blind", False),
    (1, 2, 1, 64, 7, 2, False, None, None, False),
    (1, 1, 1, 3, 5, 8, False, None, "all blind", False),
]


def key_ranges(random, kind, batch, queries, keys):
    if kind is None:
        return None, None
    begin = random.integers(0, keys // 2 + 1, batch, queries)
    end = begin + random.integers(1, keys // 2 + 1, batch, queries)
    if kind == "some blind":
        end[:, 1] = begin[:, 1]  # empty
        begin[0, 2], end[0, 2] = keys - 1, 1  # crossed
        begin[-1, 3], end[-1, 3] = 0, 0
        begin[0, 0], end[0, 0] = 0, keys
    if kind == "all blind":
        end = begin.clone()
    return begin, end


def make_attention():
    """dims: B, H, G, Tq, Tk, D, causal, rope base or 0. With a base, q and k are stored rotated and dq, dk are
    gradients of the unrotated ones."""
    family = Family("attention", 5)
    for batch, heads, kv_heads, queries, keys, dim, causal, offset, ranges, rotated in ATTENTION_CASES:
        random = family.random
        shapes = (queries, heads), (keys, kv_heads), (keys, kv_heads)
        q, k, v = (leaf(random.normal(batch, t, h, dim)) for t, h in shapes)
        dout = random.normal(batch, queries, heads, dim)
        q_offset = torch.tensor(offset) if offset is not None else None
        key_begin, key_end = key_ranges(random, ranges, batch, queries, keys)
        seen = visible_keys(batch, queries, keys, causal, q_offset, key_begin, key_end)
        scale = f32(dim ** -0.5) if heads != 3 else 0.7
        positions = random.integers(0, 200, batch, queries)
        q_used, k_used = (rope(q, positions, 10000.0), rope(k, positions, 10000.0)) if rotated else (q, k)
        out, lse = attention(q_used, k_used, v, scale, seen)
        dq, dk, dv = gradients([out], [dout], [q, k, v])
        tensors = dict(q=q_used, k=k_used, v=v, dout=dout, out=out, lse=lse, dq=dq, dk=dk, dv=dv, scale=scalar(scale))
        if rotated:
            tensors["positions"] = positions
        if q_offset is not None:
            tensors["q_offset"] = q_offset
        if key_begin is not None:
            tensors.update(key_begin=key_begin, key_end=key_end)
        family.add([batch, heads, kv_heads, queries, keys, dim, int(causal), 10000 if rotated else 0], **tensors)
    return family.write()


def make_swiglu():
    family = Family("swiglu", 6)
    for rows, ffn in [(1, 1), (3, 5), (7, 33), (2, 352)]:
        gate, up = leaf(family.random.normal(rows, ffn, std=2.0)), leaf(family.random.normal(rows, ffn))
        if ffn == 33:  # far out on both sides: exp overflows in fp32
            with torch.no_grad():
                gate[0, 0], gate[1, 0], gate[2, 0], gate[3, 32] = -100.0, 100.0, 0.0, -88.0
        dh = family.random.normal(rows, ffn)
        h = F.silu(gate) * up
        dgate, dup = gradients([h], [dh], [gate, up])
        family.add([rows, ffn], gate_up=torch.cat([gate, up], -1), dh=dh, h=h, dgate_up=torch.cat([dgate, dup], -1))
    return family.write()


def make_cross_entropy():
    """Logits are stored without their padded columns (stride of them in dims): the tests fill those with garbage."""
    family = Family("cross_entropy", 7)
    shapes = [(1, 1, 1), (3, 1, 4), (5, 2, 2), (9, 61, 128), (4, 257, 384), (4, 5, 8), (6, 33, 33)]
    for index, (rows, vocab, stride) in enumerate(shapes):
        for smoothing in (0.0, f32(0.1)):
            logits = leaf(family.random.normal(rows, vocab, std=2.0))
            targets = family.random.integers(0, vocab, rows)
            if index == 3:
                targets[1] = targets[4] = targets[8] = IGNORE
                with torch.no_grad():  # one logit far above the rest, and rows far from zero: exp overflows or is 0
                    logits[0, 5] = 90.0
                    logits[2] += 100.0
                    logits[3] -= 100.0
            if index == 4:
                targets[0] = IGNORE
                targets[1] = vocab - 1
            if index == 5:
                targets[:] = IGNORE
            inv_targets = inverse_count(targets)
            losses = F.cross_entropy(logits, targets, label_smoothing=smoothing, ignore_index=IGNORE, reduction="none")
            (dlogits,) = torch.autograd.grad(loss_of(logits, targets, smoothing, inv_targets), [logits])
            family.add([rows, vocab, stride], smoothing=scalar(smoothing), logits=logits, targets=targets,
                       inv_targets=scalar(inv_targets), losses=losses, dlogits=dlogits)
    return family.write()


def make_clip():
    """Gradients of a matrix and a gain with a known norm together; `clip` is what clip_grad_norm_ multiplied by."""
    family = Family("clip", 8)
    for norm in (0.5, 1.0, 2.0, 10.0):
        matrix, gain = family.random.normal(7, 5), family.random.normal(9)
        length = (matrix.pow(2).sum() + gain.pow(2).sum()).sqrt()
        parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in (matrix, gain)]
        given = [(g * norm / length).float().double() for g in (matrix, gain)]
        for parameter, g in zip(parameters, given):
            parameter.grad = g.clone()
        total = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        factor = (parameters[0].grad[0, 0] / given[0][0, 0]).reshape(1)
        family.add([7, 5, 9], matrix=given[0], gain=given[1], grad_norm=total.reshape(1), clip=factor)
    return family.write()


ADAMW = dict(betas=(f32(0.9), f32(0.95)), eps=f32(1e-3), weight_decay=f32(0.1))  # eps large enough to be seen


def make_optimizer(parameters):
    """`parameters`: (tensor, decays?) pairs. eps, decay and betas of ADAMW; matrices decay, gains do not."""
    groups = [{"params": [p for p, decays in parameters if decays]},
              {"params": [p for p, decays in parameters if not decays], "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, foreach=False, **ADAMW)


def make_adamw():
    """Given gradients and learning rates, no clipping: dims rows, cols, gain, steps. Case 1 starts at one element."""
    family = Family("adamw", 9)
    for rows, cols, width, steps in [(7, 5, 9, 6), (1, 1, 1, 3)]:
        matrix = torch.nn.Parameter(family.random.normal(rows, cols))
        gain = torch.nn.Parameter(family.random.normal(width, std=0.1, mean=1.0))
        start = matrix.detach().clone(), gain.detach().clone()
        optimizer = make_optimizer([(matrix, True), (gain, False)])
        rates = torch.tensor([f32(0.05 * (t + 1) / steps) for t in range(steps)], dtype=DTYPE)
        dmatrix, dgain = family.random.normal(steps, rows, cols), family.random.normal(steps, width)
        matrices, gains = [], []
        for t in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = float(rates[t])
            matrix.grad, gain.grad = dmatrix[t].clone(), dgain[t].clone()
            optimizer.step()
            matrices.append(matrix.detach().clone())
            gains.append(gain.detach().clone())
        state = [optimizer.state[p] for p in (matrix, gain)]
        family.add([rows, cols, width, steps], matrix=start[0], gain=start[1], lr=rates, dmatrix=dmatrix, dgain=dgain,
                   matrices=torch.stack(matrices), gains=torch.stack(gains), m_matrix=state[0]["exp_avg"],
                   v_matrix=state[0]["exp_avg_sq"], m_gain=state[1]["exp_avg"], v_gain=state[1]["exp_avg_sq"])
    return family.write()


# ---- the whole model ----------------------------------------------------------------------------------------------

CONFIG = dict(vocab=61, ctx=20, layers=2, heads=6, kv_heads=2, dim=24, head_dim=8, ffn=40, base=10000.0, eps=f32(1e-5))
BATCH, LENGTH, STEPS, MICRO_BATCHES = 3, CONFIG["ctx"], 10, 2
SMOOTHING, MAX_NORM = f32(0.1), 1.0


def parameter_shapes(tied):
    c = CONFIG
    query, key = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", (c["vocab"], c["dim"])
    for layer in range(c["layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (c["dim"],)
        yield prefix + "self_attn.q_proj.weight", (query, c["dim"])
        yield prefix + "self_attn.k_proj.weight", (key, c["dim"])
        yield prefix + "self_attn.v_proj.weight", (key, c["dim"])
        yield prefix + "self_attn.o_proj.weight", (c["dim"], query)
        yield prefix + "post_attention_layernorm.weight", (c["dim"],)
        yield prefix + "mlp.gate_proj.weight", (c["ffn"], c["dim"])
        yield prefix + "mlp.up_proj.weight", (c["ffn"], c["dim"])
        yield prefix + "mlp.down_proj.weight", (c["dim"], c["ffn"])
    yield "model.norm.weight", (c["dim"],)
    if not tied:
        yield "lm_head.weight", (c["vocab"], c["dim"])


def forward(weights, tokens, positions=None):
    """logits [B][T][V] of a LLaMA-style decoder. Positions that restart are documents that do not see each other."""
    c = CONFIG
    batch, length = tokens.shape
    places = torch.arange(length).expand(batch, length)
    positions = places if positions is None else positions
    seen = visible_keys(batch, length, length, True, None, places - positions, torch.full_like(places, length))
    x = F.embedding(tokens, weights["model.embed_tokens.weight"])
    for layer in range(c["layers"]):
        w = {name: weights[f"model.layers.{layer}.{name}.weight"] for name in (
            "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")}
        y, _ = rms_norm(x, w["input_layernorm"], c["eps"])
        q, k, v = (F.linear(y, w[f"self_attn.{n}_proj"]).view(batch, length, -1, c["head_dim"]) for n in "qkv")
        out, _ = attention(rope(q, positions, c["base"]), rope(k, positions, c["base"]), v, c["head_dim"] ** -0.5, seen)
        x = x + F.linear(out.reshape(batch, length, -1), w["self_attn.o_proj"])
        y, _ = rms_norm(x, w["post_attention_layernorm"], c["eps"])
        x = x + F.linear(F.silu(F.linear(y, w["mlp.gate_proj"])) * F.linear(y, w["mlp.up_proj"]), w["mlp.down_proj"])
    y, _ = rms_norm(x, weights["model.norm.weight"], c["eps"])
    return F.linear(y, weights.get("lm_head.weight", weights["model.embed_tokens.weight"]))


def model_loss(weights, tokens, targets, inv_targets, positions=None):
    logits = forward(weights, tokens, positions)
    return logits, loss_of(logits.flatten(0, 1), targets.flatten(), SMOOTHING, inv_targets)


def learning_rate(step, peak=f32(0.02), warmup=3, floor=0.1):
    """Linear warm-up, then cosine; steps are 1..STEPS."""
    if step <= warmup:
        return f32(peak * step / warmup)
    progress = (step - warmup) / (STEPS - warmup)
    return f32(peak * (floor + (1 - floor) * 0.5 * (1 + np.cos(np.pi * progress))))


def train(weights, tokens, targets):
    """Ten whole steps of accumulated micro-batches: losses, norms before clipping, learning rates."""
    parameters = {name: torch.nn.Parameter(w.detach().clone()) for name, w in weights.items()}
    optimizer = make_optimizer([(p, p.dim() == 2) for p in parameters.values()])
    losses, norms, rates = [], [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        inv_targets, total = inverse_count(targets[step]), 0.0
        for micro in range(MICRO_BATCHES):
            _, loss = model_loss(parameters, tokens[step, micro], targets[step, micro], inv_targets)
            loss.backward()
            total += float(loss.detach())
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters.values(), MAX_NORM)))
        rates.append(learning_rate(step + 1))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        optimizer.step()
        losses.append(total)
    return parameters, losses, norms, rates


def make_targets(random, *shape):
    """Next-token targets are irrelevant to the arithmetic: random ones, some ignored, unevenly over micro-batches."""
    targets = random.integers(0, CONFIG["vocab"], *shape)
    targets[random.integers(0, 10, *shape) < 2] = IGNORE
    targets.view(-1, BATCH, LENGTH)[0, 1] = IGNORE  # a whole sequence
    return targets


@contextlib.contextmanager
def no_rounding_to_fp32():
    """transformers computes norms and rotary angles in fp32 whatever the model's dtype; here they stay in float64."""
    to, to_float = torch.Tensor.to, torch.Tensor.float

    def stay(self, *args, **kwargs):
        asked = kwargs.get("dtype", args[0] if args else None)
        return self if self.dtype == DTYPE and asked == torch.float32 else to(self, *args, **kwargs)

    torch.Tensor.to = stay
    torch.Tensor.float = lambda self: self if self.dtype == DTYPE else to_float(self)
    try:
        yield
    finally:
        torch.Tensor.to, torch.Tensor.float = to, to_float


def check_transformers(weights, tokens, targets, inv_targets):
    """Stops unless the reference above is LlamaForCausalLM: logits, loss, every gradient."""
    try:
        import transformers
    except ImportError:
        print("transformers is not installed: the reference model was not compared with it", file=sys.stderr)
        return
    c, tied = CONFIG, "lm_head.weight" not in weights
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=c["vocab"], hidden_size=c["dim"], intermediate_size=c["ffn"], num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"], head_dim=c["head_dim"],
        rms_norm_eps=c["eps"], max_position_embeddings=c["ctx"], tie_word_embeddings=tied, attention_bias=False,
        mlp_bias=False, rope_theta=c["base"], attn_implementation="sdpa")).double()
    theirs.load_state_dict({n: w.detach() for n, w in weights.items()}, strict=not tied)
    theirs.tie_weights()
    exponents = torch.arange(0, c["head_dim"], 2, dtype=DTYPE) / c["head_dim"]
    theirs.model.rotary_emb.inv_freq = 1.0 / c["base"] ** exponents  # computed in fp32 there
    with no_rounding_to_fp32():
        logits = theirs(tokens).logits
        loss = loss_of(logits.flatten(0, 1), targets.flatten(), SMOOTHING, inv_targets)
        loss.backward()
    ours = {name: leaf(w) for name, w in weights.items()}
    our_logits, our_loss = model_loss(ours, tokens, targets, inv_targets)
    our_loss.backward()
    pairs = [("logits", our_logits, logits), ("loss", our_loss, loss)]
    pairs += [(n, ours[n].grad, p.grad) for n, p in theirs.named_parameters()]
    if len(pairs) != len(ours) + 2:
        sys.exit(f"transformers has {len(pairs) - 2} parameters, the reference {len(ours)}")
    error, name = max((relative(a.detach(), b.detach()), name) for name, a, b in pairs)
    if error > 1e-10:
        sys.exit(f"the reference differs from transformers in {name} by {error:.2e}")
    print(f"equals LlamaForCausalLM of transformers {transformers.__version__}: worst relative L2 {error:.1e} ({name})")


def relative(a, b):
    return float((a - b).norm() / b.norm())


def model_start():
    """Weights and batches that all models start from."""
    random = Random(100)
    weights = {}
    for key, shape in parameter_shapes(False):
        rank1 = len(shape) == 1
        weights[key] = random.normal(*shape, std=0.2, mean=1.0 if rank1 else 0.0)
    tokens = random.integers(0, CONFIG["vocab"], STEPS, MICRO_BATCHES, BATCH, LENGTH)
    return weights, tokens, make_targets(random, STEPS, MICRO_BATCHES, BATCH, LENGTH)


def make_model(name, seed, tied):
    """model.safetensors also holds the weights and the batches that the other cases start from."""
    family = Family(name, seed)
    weights, tokens, targets = model_start()
    if not tied:
        for key, value in weights.items():
            family.put("weights." + key, value)
        for key, value in dict(tokens=tokens, targets=targets).items():
            family.put(key, value)
    else:
        del weights["lm_head.weight"]

    first = tokens[0, 0], targets[0, 0]
    inv_targets = inverse_count(first[1])
    check_transformers(weights, *first, inv_targets)
    leaves = {key: leaf(value) for key, value in weights.items()}
    logits, loss = model_loss(leaves, *first, inv_targets)
    loss.backward()
    family.put("logits", logits)
    family.put("loss", loss.reshape(1))
    for key, value in leaves.items():
        family.put("grad." + key, value.grad)

    final, losses, norms, rates = train(weights, tokens, targets)
    for key, value in dict(losses=losses, grad_norms=norms, lr=rates).items():
        family.put(key, torch.tensor(value, dtype=DTYPE))
    for key, value in final.items():
        family.put("final." + key, value)
    c = CONFIG
    sizes = [c[k] for k in ("vocab", "ctx", "layers", "heads", "kv_heads", "dim", "head_dim", "ffn")]
    settings = [*ADAMW["betas"], ADAMW["eps"], ADAMW["weight_decay"], MAX_NORM, SMOOTHING]
    family.put("dims", torch.tensor(sizes + [BATCH, LENGTH, STEPS, MICRO_BATCHES]))
    family.put("adamw", torch.tensor(settings, dtype=DTYPE))
    print(f"losses {losses[0]:.4f} .. {losses[-1]:.4f}, norms {min(norms):.3f} .. {max(norms):.3f}, clip at {MAX_NORM}")
    return family.write()


def make_packed():
    """The first batch of model.safetensors as documents packed into its sequences."""
    family = Family("model_packed", 13)
    weights, tokens, targets = model_start()
    tokens, targets = tokens[0, 0], targets[0, 0]
    lengths = [[7, 1, 9, 3], [20], [1, 1, 2, 5, 11]]
    positions = torch.tensor([[i for n in row for i in range(n)] for row in lengths])
    leaves = {key: leaf(value) for key, value in weights.items()}
    logits, loss = model_loss(leaves, tokens, targets, inverse_count(targets), positions)
    loss.backward()
    for row, documents in enumerate(lengths):  # packed or alone: the same
        begin = 0
        for n in documents:
            alone = forward(weights, tokens[row : row + 1, begin : begin + n])[0]
            if relative(alone, logits[row, begin : begin + n].detach()) > 1e-12:
                sys.exit(f"document at {begin} of sequence {row} is another one when it is packed")
            begin += n
    for key, value in dict(positions=positions, logits=logits, loss=loss.reshape(1)).items():
        family.put(key, value)
    for key, value in leaves.items():
        family.put("grad." + key, value.grad)
    return family.write()


def main():
    torch.set_num_threads(1)  # the same sums on every machine
    size = sum(make() for make in (make_embedding, make_norm, make_linear, make_rope, make_attention, make_swiglu,
                                   make_cross_entropy, make_clip, make_adamw))
    size += make_model("model", 10, False) + make_model("model_tied", 11, True) + make_packed()
    print(f"{size} bytes together")


if __name__ == "__main__":
    main()
