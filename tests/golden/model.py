"""The families of a whole model: logits, loss, every gradient, and the parameters after ten training steps."""

import contextlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from family import DTYPE, Family, Random, f32, leaf
from formulas import (ADAMW, IGNORE, MUON, attention, inverse_count, loss_of, make_muon, make_optimizer, rms_norm,
                      rope, visible_keys)

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


def train(weights, tokens, targets, max_norm=MAX_NORM, muon_factor=0):
    """Ten whole steps of accumulated micro-batches: losses, norms before clipping, learning rates. muon_factor: Muon
    updates the matrices of the layers, with a learning rate so many times AdamW's."""
    parameters = {name: torch.nn.Parameter(w.detach().clone()) for name, w in weights.items()}
    by_muon = {n for n, p in parameters.items() if muon_factor and ".layers." in n and p.dim() == 2}
    optimizer = make_optimizer([(p, p.dim() == 2) for n, p in parameters.items() if n not in by_muon])
    muon = make_muon([parameters[n] for n in by_muon]) if by_muon else None
    losses, norms, rates = [], [], []
    for step in range(STEPS):
        for parameter in parameters.values():
            parameter.grad = None
        inv_targets, total = inverse_count(targets[step]), 0.0
        for micro in range(MICRO_BATCHES):
            _, loss = model_loss(parameters, tokens[step, micro], targets[step, micro], inv_targets)
            loss.backward()
            total += float(loss.detach())
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm)))
        rates.append(learning_rate(step + 1))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        optimizer.step()
        if muon:
            for group in muon.param_groups:
                group["lr"] = muon_factor * rates[-1]
            muon.step()
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

    put_training(family, train(weights, tokens, targets), MAX_NORM)
    return family.write()


def make_model_muon():
    """The training of model.safetensors with Muon; muon: factor of the learning rate, momentum, weight decay."""
    family = Family("model_muon", 14)
    factor, max_norm = f32(2.0), 1.5
    put_training(family, train(*model_start(), max_norm, factor), max_norm)
    family.put("muon", torch.tensor([factor, MUON["momentum"], MUON["weight_decay"]], dtype=DTYPE))
    return family.write()


def put_training(family, result, max_norm):
    final, losses, norms, rates = result
    for key, value in dict(losses=losses, grad_norms=norms, lr=rates).items():
        family.put(key, torch.tensor(value, dtype=DTYPE))
    for key, value in final.items():
        family.put("final." + key, value)
    c = CONFIG
    sizes = [c[k] for k in ("vocab", "ctx", "layers", "heads", "kv_heads", "dim", "head_dim", "ffn")]
    settings = [*ADAMW["betas"], ADAMW["eps"], ADAMW["weight_decay"], max_norm, SMOOTHING]
    family.put("dims", torch.tensor(sizes + [BATCH, LENGTH, STEPS, MICRO_BATCHES]))
    family.put("adamw", torch.tensor(settings, dtype=DTYPE))
    print(f"losses {losses[0]:.4f} .. {losses[-1]:.4f}, norms {min(norms):.3f} .. {max(norms):.3f}, clip at {max_norm}")


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
