"""The operations, written as the formulas stand in kernels.h, for torch.autograd to differentiate."""

import torch
import torch.nn.functional as F
from family import DTYPE, f32

IGNORE = -100
MUON = dict(momentum=f32(0.9), weight_decay=f32(0.1))
ADAMW = dict(betas=(f32(0.9), f32(0.95)), eps=f32(1e-3), weight_decay=f32(0.1))  # eps large enough to be seen


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
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = (scale * torch.einsum("bqhd,bkhd->bhqk", q, k)).masked_fill(~seen, -torch.inf)
    blind = (scores == -torch.inf).all(-1)  # autograd must not see -inf - -inf
    safe = scores.masked_fill(blind[..., None], 0.0)
    weights, lse = safe.softmax(-1).masked_fill(blind[..., None], 0.0), safe.logsumexp(-1).masked_fill(blind, -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), lse


def loss_of(logits, targets, smoothing, inv_targets):
    total = F.cross_entropy(logits, targets, label_smoothing=smoothing, ignore_index=IGNORE, reduction="sum")
    return total * inv_targets


def inverse_count(targets):
    count = int((targets != IGNORE).sum())
    return f32(1.0 / count) if count else 0.0


def make_optimizer(parameters):
    """`parameters`: (tensor, decays?) pairs. eps, decay and betas of ADAMW; matrices decay, gains do not."""
    groups = [{"params": [p for p, decays in parameters if decays]},
              {"params": [p for p, decays in parameters if not decays], "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, foreach=False, **ADAMW)


def orthogonalized(update, coefficients, steps, eps):
    """Of torch.optim.Muon, in the precision of its argument instead of bf16."""
    a, b, c = coefficients
    x = update if update.shape[0] <= update.shape[1] else update.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if update.shape[0] <= update.shape[1] else x.T


def make_muon(matrices):
    """`matrices`: tensors, each orthogonalized as a whole."""
    torch.optim._muon._zeropower_via_newtonschulz = orthogonalized
    return torch.optim.Muon(matrices, lr=0.0, **MUON)
