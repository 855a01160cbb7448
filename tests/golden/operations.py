"""The families of single operations: forward, backward, clipping, AdamW."""

import torch
import torch.nn.functional as F
from family import DTYPE, Family, f32, gradients, leaf, scalar
from formulas import (IGNORE, attention, inverse_count, loss_of, make_muon, make_optimizer, rms_norm, rope,
                      visible_keys)


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


def make_position_embedding():
    """dims: V, C, B, T, rows of the position embedding. Packed: positions restart within sequences."""
    family = Family("position_embedding", 20)
    for vocab, dim, batch, length, count, packed in [
            (1, 1, 1, 1, 1, False), (7, 5, 2, 3, 3, False), (11, 8, 3, 7, 9, True), (61, 17, 3, 7, 12, True),
            (13, 24, 2, 9, 9, False)]:
        table, learned = leaf(family.random.normal(vocab, dim)), leaf(family.random.normal(count, dim))
        tokens = family.random.integers(0, vocab, batch, length)
        starts = family.random.integers(0, 2, batch, length)
        positions = torch.arange(length).repeat(batch, 1)
        for b in range(batch):
            for t in range(length if packed else 0):
                positions[b, t] = 0 if t == 0 or starts[b, t] else positions[b, t - 1] + 1
        dx = family.random.normal(batch, length, dim)
        out = F.embedding(tokens, table) + F.embedding(positions, learned)
        dtable, dlearned = gradients([out], [dx], [table, learned])
        tensors = dict(table=table, position_embedding=learned, tokens=tokens, out=out, dx=dx, dtable=dtable,
                       dposition_embedding=dlearned)
        if packed:
            tensors["positions"] = positions
        family.add([vocab, dim, batch, length, count], **tensors)
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


LAYER_NORM_CASES = [
    # B, T, C, eps, mean of x
    (1, 1, 1, 1e-5, 0), (1, 1, 8, 1e-5, 0), (2, 3, 5, 0.25, 0), (2, 5, 33, 1e-8, 0), (1, 2, 66, 1e-5, 0),
    (2, 3, 16, 0.25, 0), (1, 1, 288, 1e-8, 0), (1, 4, 66, 1e-5, 1000), (1, 4, 64, 1e-5, 1000),
]


def make_layer_norm():
    """As make_norm, of F.layer_norm. Rows far from 0 show a variance that is taken as E[x^2] - mean^2; what fp32 leaves
    of them is less exact."""
    family = Family("layer_norm", 21)
    for batch, length, dim, eps, center in LAYER_NORM_CASES:
        x_in = leaf(family.random.normal(batch, length, dim, mean=center))
        branch = leaf(family.random.normal(batch, length, dim))
        gain, shift = leaf(family.random.normal(dim, std=0.3, mean=1.0)), leaf(family.random.normal(dim))
        dy, dres = family.random.normal(batch, length, dim), family.random.normal(batch, length, dim)
        eps, x_out = f32(eps), x_in + branch
        plain_y, y = (F.layer_norm(x, (dim,), gain, shift, eps) for x in (x_in, x_out))
        plain_dx, plain_dgain, plain_dshift = gradients([plain_y], [dy], [x_in, gain, shift])
        dx, dgain, dshift = gradients([y, x_out], [dy, dres], [branch, gain, shift])
        (plain_mean, plain_rstd), (mean, rstd) = (
            (x.mean(-1), (x.var(-1, unbiased=False) + eps).rsqrt()) for x in (x_in, x_out))
        family.add(
            [batch, length, dim], eps=scalar(eps), tolerance=scalar(1e-3 if center else 1e-5), x_in=x_in, branch=branch,
            gain=gain, shift=shift, dy=dy, dres=dres, plain_y=plain_y, plain_mean=plain_mean, plain_rstd=plain_rstd,
            plain_dx=plain_dx, plain_dgain=plain_dgain, plain_dshift=plain_dshift, x_out=x_out, y=y, mean=mean,
            rstd=rstd, dx=dx, dgain=dgain, dshift=dshift)
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


def make_linear_bias():
    family = Family("linear_bias", 22)
    for rows, outputs, inputs in [(1, 1, 1), (2, 1, 3), (5, 3, 7), (7, 5, 1), (17, 19, 29), (9, 48, 24), (33, 7, 16)]:
        x, w = leaf(family.random.normal(rows, inputs)), leaf(family.random.normal(outputs, inputs, std=0.5))
        b, dy = leaf(family.random.normal(outputs)), family.random.normal(rows, outputs)
        y = F.linear(x, w, b)
        dx, dw, db = gradients([y], [dy], [x, w, b])
        family.add([rows, outputs, inputs], x=x, w=w, b=b, dy=dy, y=y, dx=dx, dw=dw, db=db)
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
    (2, 4, 2, 9, 11, 8, False, None, "pairs", False),
    (2, 1, 1, 9, 11, 16, False, None, "pairs", False),
]
PAIRS = [[(3, 4), (1, 2), (5, 1)], [(5, 1), (1, 2), (3, 4)]]  # lengths of sources and targets packed into two windows


def packed_pairs(queries):
    """Each target sees its source; the queries behind the last one see nothing, and nobody the keys behind the last."""
    begin, end = torch.zeros(2, queries, dtype=torch.int64), torch.zeros(2, queries, dtype=torch.int64)
    for b, pairs in enumerate(PAIRS):
        key = query = 0
        for source, target in pairs:
            begin[b, query:query + target], end[b, query:query + target] = key, key + source
            key, query = key + source, query + target
    return begin, end


def key_ranges(random, kind, batch, queries, keys):
    if kind is None:
        return None, None
    if kind == "pairs":
        return packed_pairs(queries)
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


def make_head_norm():
    """Heads of queries and keys of packed rows; dims: B, T, H, G, D, rope base or 0. dy and dx hold values too, which
    are not normalized; dy is the gradient before the rotation."""
    family = Family("head_norm", 24)
    for batch, length, heads, kv_heads, dim, base in [
            (1, 1, 1, 1, 2, 0), (2, 5, 3, 1, 6, 10000), (1, 2, 2, 2, 8, 0), (2, 3, 4, 2, 24, 500),
            (1, 3, 2, 1, 64, 10000)]:
        random, used = family.random, heads + kv_heads
        qkv = leaf(random.normal(batch, length, used + kv_heads, dim))
        weight = leaf(random.normal(2, dim, std=0.3, mean=1.0))
        dy = random.normal(batch, length, used + kv_heads, dim)
        eps = f32(1e-5) if dim != 24 else 0.25  # a large one, so that its place in the formula is seen
        normed = torch.cat([F.rms_norm(qkv[:, :, :heads], (dim,), weight[0], eps),
                            F.rms_norm(qkv[:, :, heads:used], (dim,), weight[1], eps), qkv[:, :, used:]], 2)
        dx, dweight = gradients([normed], [dy], [qkv, weight])
        positions = random.integers(0, 300, batch, length)
        natural, out = torch.arange(length).expand(batch, length), normed[:, :, :used]
        rstd = (qkv.pow(2).mean(-1) + eps).rsqrt()[:, :, :used]
        tensors = dict(eps=scalar(eps), qkv=qkv, weight=weight, dy=dy, rstd=rstd, out=out, dx=dx, dweight=dweight)
        if base:
            tensors.update(positions=positions, out_rotated=rope(out, positions, base),
                           out_natural=rope(out, natural, base))
        family.add([batch, length, heads, kv_heads, dim, base], **tensors)
    return family.write()


CONVOLUTION_CASES = [
    # C, lengths of the texts of each sequence
    (1, [[1]]), (5, [[2], [2]]), (8, [[1, 2], [3]]), (33, [[7], [7]]), (24, [[1, 1, 2, 3, 2, 1], [4, 6], [2, 1, 7]]),
    (40, [[9, 1], [2, 8]]),
]


def short_convolution(bcx, kernel):
    """bcx [T][3C], kernel [C][3]: y [T][C] of one text, as Lfm2ShortConv of transformers."""
    b, c, x = bcx.T.chunk(3)
    s = F.conv1d((b * x)[None], kernel[:, None], groups=kernel.shape[0], padding=kernel.shape[1] - 1)[0, :, :len(bcx)]
    return (c * s).T


def make_convolution():
    """dims: B, T, C, whether a sequence has several texts; then there are positions."""
    family = Family("convolution", 25)
    for dim, texts in CONVOLUTION_CASES:
        batch, length, packed = len(texts), sum(texts[0]), any(len(lengths) > 1 for lengths in texts)
        bcx, kernel = leaf(family.random.normal(batch, length, 3 * dim)), leaf(family.random.normal(dim, 3))
        dy = family.random.normal(batch, length, dim)
        y = torch.stack([torch.cat([short_convolution(part, kernel) for part in row.split(lengths)])
                         for row, lengths in zip(bcx, texts)])
        dbcx, dkernel = gradients([y], [dy], [bcx, kernel])
        tensors = dict(bcx=bcx, kernel=kernel, dy=dy, y=y, dbcx=dbcx, dkernel=dkernel)
        if packed:
            tensors["positions"] = torch.stack([torch.cat([torch.arange(n) for n in lengths]) for lengths in texts])
        family.add([batch, length, dim, int(packed)], **tensors)
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


ACTIVATIONS = [F.silu, F.gelu, lambda u: F.gelu(u, approximate="tanh"), F.relu]  # in the order of kernels.h


def make_activation():
    """u is gate and up side by side where there is a gate; dims: rows, ffn, activation, gated."""
    family = Family("activation", 23)
    for kind, activation in enumerate(ACTIVATIONS):
        for gated in (False, True):
            for rows, ffn in [(1, 1), (3, 5), (7, 33), (1, 352)]:
                u = family.random.normal(rows, 2 * ffn if gated else ffn, std=2.0)
                if ffn == 33:
                    u[0, 0], u[1, 0], u[2, 0], u[3, 32], u[4, 5] = -100.0, 100.0, 0.0, -88.0, 88.0
                u, dh = leaf(u), family.random.normal(rows, ffn)
                h = activation(u[:, :ffn]) * u[:, ffn:] if gated else activation(u)
                (du,) = gradients([h], [dh], [u])
                family.add([rows, ffn, kind, int(gated)], u=u, dh=dh, h=h, du=du)
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


def make_distill():
    """As make_cross_entropy, with the divergence from a teacher; `dlogits` is the gradient without it."""
    family = Family("distill", 23)
    for rows, vocab, stride in [(1, 1, 1), (5, 2, 2), (9, 61, 128), (4, 257, 384), (6, 33, 33)]:
        for smoothing, weight in ((0.0, 0.5), (f32(0.1), f32(0.3)), (0.0, 1.0)):
            logits, teacher = leaf(family.random.normal(rows, vocab, std=2.0)), family.random.normal(rows, vocab, std=3.0)
            targets = family.random.integers(0, vocab, rows)
            if rows > 5:
                targets[1] = IGNORE
                teacher[2] += 100.0
                teacher[3, 5] = 90.0
            inv_targets = inverse_count(targets)
            loss = loss_of(logits, targets, smoothing, inv_targets)
            seen = targets != IGNORE
            divergence = F.kl_div(logits[seen].log_softmax(-1), teacher[seen].softmax(-1), reduction="sum") * inv_targets
            (dlogits,) = torch.autograd.grad(loss, [logits], retain_graph=True)
            (distilled,) = torch.autograd.grad((1 - weight) * loss + weight * divergence, [logits])
            family.add([rows, vocab, stride], smoothing=scalar(smoothing), weight=scalar(weight), teacher=teacher,
                       targets=targets, inv_targets=scalar(inv_targets), dlogits=dlogits, distilled=distilled)
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


def make_muon_steps():
    """Ten steps of matrices that lie in one group, [heights[i]][cols], below each other; given gradients of random
    sizes. dims: cols, steps, heights (0: no more), rank of the gradients (0: full)."""
    family = Family("muon", 21)
    steps, factor = 10, f32(4.0)
    for cols, heights, rank in [(24, (24, 0, 0), 0), (8, (40, 0, 0), 0), (56, (16, 0, 0), 2), (24, (24, 8, 8), 0),
                                (16, (24, 40, 0), 0), (8, (1, 3, 0), 0)]:
        rows = sum(heights)
        start = family.random.normal(rows, cols)
        matrices = [torch.nn.Parameter(part.clone()) for part in start.split([h for h in heights if h])]
        optimizer = make_muon(matrices)
        rates = torch.tensor([f32(0.02 * (t + 1) / steps) for t in range(steps)], dtype=DTYPE)
        gradients = []
        for t in range(steps):
            size = 10.0 ** float(family.random.integers(-4, 3, 1))
            if rank:
                product = family.random.normal(rows, rank) @ family.random.normal(rank, cols)
                gradient = torch.tensor((size * product).numpy().astype("float32").astype("float64"))
            else:
                gradient = family.random.normal(rows, cols, std=size)
            gradients.append(gradient)
            for group in optimizer.param_groups:
                group["lr"] = f32(float(rates[t]) * factor)
            for matrix, part in zip(matrices, gradient.split([h for h in heights if h])):
                matrix.grad = part.clone()
            optimizer.step()
            if t == 0:
                first = torch.cat([m.detach().clone() for m in matrices])
        family.add([cols, steps, *heights, rank], start=start, lr=rates, gradients=torch.stack(gradients), first=first,
                   last=torch.cat([m.detach() for m in matrices]),
                   m=torch.cat([optimizer.state[m]["momentum_buffer"] for m in matrices]))
    return family.write()
