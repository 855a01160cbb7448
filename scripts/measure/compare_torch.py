#!/usr/bin/env python3
"""Compares the speed of ./train with the same model in PyTorch, on this machine's CPU.

    scripts/measure/compare_torch.py book.txt [--workload nano|demo|baby] [--compile] [--dtype bf16] [--isa v3] [--rounds 5]
    scripts/measure/compare_torch.py --workload 15m

Both train the same decoder (RMSNorm, rotary positions, grouped-query causal attention, SwiGLU, bytes as tokens) on
random windows of the same text, in fp32 (--dtype bf16: PyTorch under autocast, ./train with the same option), with
AdamW and clipping, for the same number of timed steps after a warm-up. Rounds alternate between the two, and so does
the one that goes first, so that a slow phase of the machine affects both. PyTorch runs in its own process in its best
configuration: fused qkv and gate/up products, scaled_dot_product_attention, the fastest AdamW available (measured
first), gradients set to None; eager and, with --compile, also under torch.compile (needs a C++ compiler). --isa v3
limits both to AVX2 on processors that support more.

Workload 15m has a vocabulary of 32,000 and therefore trains on random tokens instead of bytes. build/bench_kernels
replaces ./train (whole steps of the same model, 11 timings per round instead of --steps), the head is tied, and only
--batch can be changed.

Prints one JSON line per system on stdout: medians over the rounds, and `ratio`, its tokens per second divided by the
tokens per second of the fastest PyTorch. Tokens per second are computed from the median step. Progress goes to stderr.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from bench import note_load

BYTES = 257  # bytes and <|endoftext|>
WORKLOADS = {
    "nano": dict(layers=4, heads=4, dim=128, ctx=64, batch=12),
    "demo": dict(layers=4, heads=4, dim=64, ctx=256, batch=4),
    "baby": dict(layers=6, heads=6, dim=384, ctx=256, batch=16),
    "15m": dict(layers=6, heads=6, dim=288, ctx=256, batch=4),
}
VOCABULARIES = {"15m": 32000}  # of the workloads on random tokens
AVX2_ALONE = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
WARMUP = 10


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("text", nargs="?", default=argparse.SUPPRESS,
                        help="text file to train on; any will do that is longer than the context (15m takes none)")
    model = parser.add_argument_group("model (the same flags as ./train)")
    model.add_argument("--workload", choices=WORKLOADS, default="nano", help="a shape; the flags below change it")
    model.add_argument("--layers", type=int, default=argparse.SUPPRESS)
    model.add_argument("--heads", type=int, default=argparse.SUPPRESS)
    model.add_argument("--kv-heads", type=int, default=argparse.SUPPRESS,
                       help="key/value heads (default: as many as heads)")
    model.add_argument("--dim", type=int, default=argparse.SUPPRESS)
    model.add_argument("--ffn", type=int, default=argparse.SUPPRESS,
                       help="hidden width of the MLP (default: 8/3 dim, rounded up to a multiple of 32)")
    model.add_argument("--ctx", type=int, default=argparse.SUPPRESS)
    model.add_argument("--batch", type=int, default=argparse.SUPPRESS)
    model.add_argument("--dropout", type=float, default=0.0)
    model.add_argument("--tie", action=argparse.BooleanOptionalAction, default=False, help="the head is the embedding")
    run = parser.add_argument_group("run")
    run.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    run.add_argument("--steps", type=int, default=100, help="timed steps of a round")
    run.add_argument("--rounds", type=int, default=5)
    run.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="compute dtype of both")
    run.add_argument("--train", default="./train", help="the program to measure")
    run.add_argument("--bench", default="build/bench_kernels", help="the program to measure for 15m")
    run.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    run.add_argument("--compile", action="store_true", help="PyTorch also under torch.compile")
    run.add_argument("--isa", choices=("v3", "v4", "avx512bf16", "amx"),
                     help="instruction set (default: the best that there is)")
    run.add_argument("--worker", choices=("eager", "compiled"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.text, args.vocab = getattr(args, "text", None), VOCABULARIES.get(args.workload, BYTES)
    if args.vocab != BYTES:
        check_fixed_shape(parser, args)
    for name, value in WORKLOADS[args.workload].items():
        setattr(args, name, getattr(args, name, value))
    args.kv_heads = getattr(args, "kv_heads", args.heads)
    args.ffn = getattr(args, "ffn", ((args.dim * 8 + 2) // 3 + 31) // 32 * 32)
    for name in ("layers", "heads", "kv_heads", "dim", "ffn", "ctx", "batch", "threads", "steps", "rounds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}")
    if args.dim % args.heads or args.dim // args.heads % 2:
        parser.error(f"--dim {args.dim} must be an even multiple of --heads {args.heads}")
    if args.heads % args.kv_heads:
        parser.error(f"--heads {args.heads} must be a multiple of --kv-heads {args.kv_heads}")
    if not 0 <= args.dropout < 1:
        parser.error(f"--dropout must be from 0 to below 1, not {args.dropout}")
    if args.vocab == BYTES:
        check_text(parser, args)
    return args


def check_fixed_shape(parser, args):
    """Checks that no shape option is given: bench_kernels knows the shape by its name."""
    given = [name for name in ("layers", "heads", "kv_heads", "dim", "ffn", "ctx") if hasattr(args, name)]
    if given or args.dropout or args.text:
        what = f"--{given[0].replace('_', '-')}" if given else "--dropout" if args.dropout else "a text"
        parser.error(f"{what} cannot be chosen for --workload {args.workload}, whose shape and tokens are fixed")
    args.tie = True


def check_text(parser, args):
    if not args.text:
        parser.error(f"--workload {args.workload} needs a text file to train on")
    if not os.path.isfile(args.text):
        parser.error(f"{args.text}: no such text file")
    size, least = os.path.getsize(args.text), 10 * args.ctx
    if size <= least:
        parser.error(f"{args.text} has {size} bytes; --ctx {args.ctx} needs more than {least}")


# ---- PyTorch, in a process of its own ------------------------------------------------------------------------------


def torch_model(args):
    import torch
    import torch.nn.functional as F
    from torch import nn

    head_dim = args.dim // args.heads
    query, key = args.heads * head_dim, args.kv_heads * head_dim
    grouped = {"enable_gqa": True} if args.kv_heads != args.heads else {}

    def rope_table():
        """[T][1][D/2] unit complex numbers. Pairs are neighboring dimensions: this equals rotate-half except for the order of
        the rows of the projections. Complex numbers are PyTorch's fastest way to rotate (one product each way)."""
        frequency = 10000.0 ** (-torch.arange(0, head_dim, 2).double() / head_dim)
        angle = torch.arange(args.ctx).double()[:, None] * frequency
        return torch.polar(torch.ones_like(angle), angle).to(torch.complex64)[:, None]

    def rotate(x, table):
        if args.worker == "compiled":  # which knows no complex numbers
            even, odd = x.unflatten(-1, (head_dim // 2, 2)).unbind(-1)
            cos, sin = table.unbind(-1)
            return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)
        pairs = torch.view_as_complex(x.unflatten(-1, (head_dim // 2, 2)))
        return torch.view_as_real(pairs * table).flatten(-2)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.RMSNorm(args.dim, 1e-5), nn.RMSNorm(args.dim, 1e-5)
            self.qkv = nn.Linear(args.dim, query + 2 * key, bias=False)
            self.output = nn.Linear(query, args.dim, bias=False)
            self.gate_up = nn.Linear(args.dim, 2 * args.ffn, bias=False)
            self.down = nn.Linear(args.ffn, args.dim, bias=False)

        def attention(self, x, table):
            batch, length, _ = x.shape
            qkv = self.qkv(x).view(batch, length, -1, head_dim)
            rotated, v = qkv.split([args.heads + args.kv_heads, args.kv_heads], 2)
            q, k = rotate(rotated, table).split([args.heads, args.kv_heads], 2)  # both in one call
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=args.dropout, **grouped)
            return self.output(out.transpose(1, 2).reshape(batch, length, query))

        def forward(self, x, table):
            x = x + drop(self.attention(self.attention_norm(x), table))
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
            return x + drop(self.down(F.silu(gate) * up))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(args.vocab, args.dim)
            self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
            self.norm = nn.RMSNorm(args.dim, 1e-5)
            self.head = nn.Linear(args.dim, args.vocab, bias=False)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)
            if args.tie:
                self.head.weight = self.embedding.weight
            self.table = rope_table() if args.worker == "eager" else torch.view_as_real(rope_table())

        def forward(self, tokens, targets):
            x = drop(self.embedding(tokens))
            for block in self.blocks:
                x = block(x, self.table)
            return F.cross_entropy(self.head(self.norm(x)).view(-1, args.vocab), targets.view(-1))

    def drop(x):
        return F.dropout(x, args.dropout) if args.dropout else x

    return Decoder()


def torch_optimizers(model):
    """The AdamW variants in this version of PyTorch, by name."""
    import torch

    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    found = {}
    for kind in ("fused", "foreach"):
        try:
            fresh = [dict(g) for g in groups]
            found[kind] = torch.optim.AdamW(fresh, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, **{kind: True})
        except (RuntimeError, TypeError, ValueError) as error:
            print(f"pytorch: no {kind} AdamW here: {error}", file=sys.stderr)
    return found


def torch_worker(args):
    import numpy as np
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    if args.text:
        text = torch.from_numpy(np.fromfile(args.text, dtype=np.uint8).astype(np.int64))
    else:
        text = torch.randint(args.vocab, (1 << 20,))
    model = torch_model(args)
    parameters = list(model.parameters())
    if args.isa == "v3":
        import torch._inductor.config
        torch._inductor.config.cpp.simdlen = 256
    if args.worker == "compiled":
        model = torch.compile(model)
    offsets = torch.arange(args.ctx + 1)

    def step(optimizer):
        starts = torch.randint(len(text) - args.ctx, (args.batch, 1))
        windows = text[starts + offsets]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = model(windows[:, :-1], windows[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def timed(optimizer, count):
        times = []
        for _ in range(count):
            start = time.perf_counter()
            loss = step(optimizer)
            times.append(1e3 * (time.perf_counter() - start))
        return times, float(loss.detach())

    optimizers = torch_optimizers(model)
    trials = {}
    for kind, optimizer in optimizers.items():
        timed(optimizer, WARMUP)
        trials[kind] = statistics.median(timed(optimizer, WARMUP)[0])
    best = min(trials, key=trials.get)
    times, loss = timed(optimizers[best], args.steps)
    tenths = statistics.quantiles(times, n=10) if len(times) > 1 else times * 9
    print(json.dumps({
        "tokens_per_s": args.batch * args.ctx * 1e3 / statistics.median(times), "step_ms": statistics.median(times),
        "step_ms_p10": tenths[0], "step_ms_p90": tenths[-1], "params": sum(p.numel() for p in parameters), "loss": loss,
        "version": torch.__version__, "adamw": best, "threads": torch.get_num_threads()}))


# ---- the comparison ------------------------------------------------------------------------------------------------


def measure(name, command, args):
    """Runs one round and returns its JSON line: the last line on stdout with a speed."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads), MKL_NUM_THREADS=str(args.threads))
    environment.update(AVX2_ALONE if args.isa == "v3" else {})
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{name} failed with status {done.returncode}: {' '.join(command)}\n{done.stderr.strip()}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{") and '"tokens_per_s"' in line]
    try:
        result = json.loads(lines[-1])
        missing = [key for key in ("tokens_per_s", "step_ms", "step_ms_p10", "step_ms_p90") if key not in result]
    except (IndexError, ValueError):
        sys.exit(f"{name} printed no JSON line on standard output: {' '.join(command)}")
    if missing:
        sys.exit(f"{name} printed JSON without {', '.join(missing)}: {lines[-1]}")
    return result


def fixed_choices(args):
    """Options for the settings that this version of ./train would otherwise choose automatically."""
    usage = "".join(subprocess.run([args.train, flag], capture_output=True, text=True, check=False).stdout
                    for flag in ("--help", "--help-all"))
    wanted = {"--tokenizer": "byte", "--dtype": args.dtype, "--device": "cpu", "--optimizer": "adamw",
              "--arch": "llama"}
    return [word for flag, value in wanted.items() if flag in usage for word in (flag, value)]


def random_token_commands(args):
    common = ["--batch", str(args.batch), "--threads", str(args.threads), "--dtype", args.dtype]
    common += ["--isa", args.isa] if args.isa else []
    ours = [args.bench, "--device", "cpu", "--only", "train", "--model", args.workload, *common]
    ours += ["--json", "/dev/stdout"]
    theirs = [args.python, os.path.abspath(__file__), "--workload", args.workload, *common, "--steps", str(args.steps),
              "--worker"]
    return ours, theirs


def text_commands(args):
    shape = ["--tie" if args.tie else "--no-tie"]
    for name in ("layers", "heads", "kv_heads", "dim", "ffn", "ctx", "batch", "dropout"):
        shape += ["--" + name.replace("_", "-"), str(getattr(args, name))]
    shape += ["--threads", str(args.threads)] + (["--isa", args.isa] if args.isa else [])
    ours = [args.train, args.text, *shape, *fixed_choices(args), "--bench", str(args.steps)]
    theirs = [args.python, os.path.abspath(__file__), args.text, *shape, "--dtype", args.dtype,
              "--steps", str(args.steps), "--worker"]
    return ours, theirs


def commands(args):
    ours, theirs = (text_commands if args.vocab == BYTES else random_token_commands)(args)
    found = {"inkling": ours, "pytorch": [*theirs, "eager"]}
    if args.compile:
        found["pytorch compiled"] = [*theirs, "compiled"]
    return found


def check_present(args):
    program, flag, target = (args.train, "--train", "make") if args.vocab == BYTES else (
        args.bench, "--bench", f"make {args.bench}")
    if not shutil.which(program):
        sys.exit(f"{program} is not there or not executable; run `{target}`, or name it with {flag}")
    if not shutil.which(args.python):
        sys.exit(f"{args.python} is not there or not executable; name an interpreter that has PyTorch with --python")
    probe = subprocess.run([args.python, "-c", "import torch, numpy"], capture_output=True, text=True)
    if probe.returncode:
        cause = (probe.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(f"{args.python} cannot import torch and numpy ({cause}); name an interpreter that can with --python")


def main():
    args = parse_arguments()
    if args.worker:
        return torch_worker(args)
    check_present(args)
    note_load()
    order = list(commands(args).items())
    results = {name: [] for name, _ in order}
    for round_number in range(args.rounds):
        for name, command in order if round_number % 2 == 0 else order[::-1]:
            result = measure(name, command, args)
            results[name].append(result)
            print(f"round {round_number + 1}/{args.rounds}: {name} {result['tokens_per_s']:.0f} tokens/s, "
                  f"{result['step_ms']:.2f} ms a step", file=sys.stderr)
    peer = max(statistics.median(r["tokens_per_s"] for r in rounds)
               for name, rounds in results.items() if name != "inkling")
    for name, rounds in results.items():
        line = {"system": name, "workload": args.workload, "dtype": args.dtype, "isa": args.isa or "best",
                "rounds": args.rounds, "steps": args.steps, "threads": args.threads}
        for key in ("tokens_per_s", "step_ms", "step_ms_p10", "step_ms_p90"):
            line[key] = round(statistics.median(r[key] for r in rounds), 4)
        line["tokens_per_s_min"] = round(min(r["tokens_per_s"] for r in rounds), 1)
        line["tokens_per_s_max"] = round(max(r["tokens_per_s"] for r in rounds), 1)
        line["ratio"] = round(line["tokens_per_s"] / peer, 4)
        line.update({key: rounds[0][key] for key in ("version", "adamw", "params", "device") if key in rounds[0]})
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
