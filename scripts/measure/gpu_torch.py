#!/usr/bin/env python3
"""Compares the training speed of Inkling with PyTorch (eager, torch.compile, torch.compile with CUDA graphs) on the same GPU.

    scripts/measure/gpu_torch.py --bench build/gpu/bench_kernels --train build/gpu/train --text stories.txt --json results.jsonl

Each round runs every system once, in its own process, one after the other (A/B/C, A/B/C, ...). A system's figure is the
median of its chunks; the report uses the median over rounds. The PyTorch model is the same decoder: RMSNorm, rotary
positions (rotate-half), causal scaled_dot_product_attention, SwiGLU, tied head, no biases, the same padded vocabulary
and the same tokens per step. It uses fp32 parameters, bf16 autocast, TF32 for the remaining fp32 products, fused AdamW,
foreach clipping, and batches copied from pinned memory. The batch is halved until it fits; if PyTorch fits a smaller
batch than Inkling, Inkling is also measured with PyTorch's batch. Without PyTorch, only Inkling is measured.

Writes one JSON line per measurement to --json and progress to stdout. Only the workers need more than the standard
library.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MODELS = {  # layers, heads, dim, ctx, padded vocabulary, tokens drawn from, batch
    "baby": (6, 6, 384, 256, 384, 257, 64),
    "124m": (12, 12, 768, 1024, 50304, 50304, 64),
    "tiny": (2, 2, 32, 16, 128, 70, 2),  # to try this program
}
CHUNKS = 11
MODES = ("eager", "compile", "graphs")


# ---- PyTorch, in a process of its own ------------------------------------------------------------------------------


def make_model(name, device):
    import torch
    import torch.nn.functional as F
    from torch import nn

    layers, heads, dim, ctx, vocab, _, _ = MODELS[name]
    head_dim, ffn = dim // heads, ((dim * 8 + 2) // 3 + 31) // 32 * 32

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.RMSNorm(dim, 1e-5), nn.RMSNorm(dim, 1e-5)
            self.qkv = nn.Linear(dim, 3 * dim, bias=False)
            self.output = nn.Linear(dim, dim, bias=False)
            self.gate_up = nn.Linear(dim, 2 * ffn, bias=False)
            self.down = nn.Linear(ffn, dim, bias=False)

        def attention(self, x, cos, sin):
            batch, length, _ = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, heads, head_dim).permute(2, 0, 3, 1, 4).unbind(0)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.output(out.transpose(1, 2).reshape(batch, length, dim))

        def forward(self, x, cos, sin):
            x = x + self.attention(self.attention_norm(x), cos, sin)
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        return x * cos + torch.cat((-b, a), -1) * sin

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocab, dim)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.RMSNorm(dim, 1e-5)
            self.head = nn.Linear(dim, vocab, bias=False)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)
            self.head.weight = self.embedding.weight
            angle = torch.arange(ctx).double()[:, None] * 10000.0 ** (-torch.arange(0, head_dim, 2).double() / head_dim)
            self.register_buffer("cos", torch.cat((angle, angle), -1).cos().float(), persistent=False)
            self.register_buffer("sin", torch.cat((angle, angle), -1).sin().float(), persistent=False)

        def forward(self, tokens, targets):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return F.cross_entropy(self.head(self.norm(x)).view(-1, vocab), targets.reshape(-1))

    return Decoder().to(device)


def worker(args):
    import torch

    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("high")
    _, _, _, ctx, _, drawn, _ = MODELS[args.model]
    model = make_model(args.model, device)
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    modes = {"compile": "default", "graphs": "reduce-overhead"}  # the second replays CUDA graphs
    run = torch.compile(model, mode=modes[args.worker]) if args.worker in modes else model
    batches = [torch.randint(drawn, (args.batch, ctx + 1)) for _ in range(4)]
    if gpu:
        batches = [b.pin_memory() for b in batches]

    def wait():
        if gpu:
            torch.cuda.synchronize()

    def step(i):
        windows = batches[i % len(batches)].to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = run(windows[:, :-1], windows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    try:
        start = time.perf_counter()
        for i in range(5):
            step(i)
        wait()
        warm_up = time.perf_counter() - start
        start = time.perf_counter()
        step(0)
        wait()
        once = time.perf_counter() - start
        steps = max(1, min(1000, int(0.25 / once)))
        chunks = []
        for _ in range(CHUNKS):
            start = time.perf_counter()
            for i in range(steps):
                loss = step(i)
            wait()
            chunks.append((time.perf_counter() - start) / steps)
    except torch.OutOfMemoryError:
        print(json.dumps({"memory": True}))
        return
    seconds = statistics.median(chunks)
    print(json.dumps({
        "tokens_per_s": round(args.batch * ctx / seconds, 1), "step_ms": round(1e3 * seconds, 4),
        "step_ms_min": round(1e3 * min(chunks), 4), "step_ms_max": round(1e3 * max(chunks), 4), "steps": steps,
        "warm_up_s": round(warm_up, 1), "loss": float(loss.detach()), "version": torch.__version__,
        "params": sum(p.numel() for p in parameters),
        "device": torch.cuda.get_device_name() if gpu else "CPU",
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if gpu else 0}))


# ---- the rounds ----------------------------------------------------------------------------------------------------


class Rounds:
    def __init__(self, args):
        self.args = args
        self.end = time.monotonic() + args.seconds
        self.failures = 0
        self.torch_here = False

    def left(self):
        return self.end - time.monotonic()

    def write(self, row):
        with open(self.args.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def note(self, text):
        print(text, flush=True)
        self.write({"kind": "note", "text": text})

    def call(self, command, limit):
        """Standard output of a command, or None; the command is killed if it takes too long."""
        limit = min(limit, self.left())
        if limit < 5:
            self.note(f"skipped for lack of time: {' '.join(command[:6])}")
            return None
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit,
                                  check=False)
        except subprocess.TimeoutExpired:
            self.note(f"ended after {limit:.0f} s: {' '.join(command)}")
            self.failures += 1
            return None
        except OSError as error:
            self.note(f"cannot run {command[0]}: {error}")
            self.failures += 1
            return None
        if done.returncode:
            tail = " / ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])[-600:]
            self.note(f"status {done.returncode}: {' '.join(command)}: {tail}")
            self.failures += 1
            return None
        return done.stdout

    def inkling(self, model, batch, number):
        out = self.call([self.args.bench, "--only", "train", "--model", model, "--batch", str(batch), "--json",
                         self.args.json] + self.args.bench_flags, 120)
        for line in (out or "").splitlines():
            if " trains " in line:
                print(f"round {number}: inkling: {line}", flush=True)

    def train_bench(self, model, number):
        """Measures ./train --bench, for models with byte tokens."""
        if model != "baby" or not self.args.text or not os.path.exists(self.args.train):
            return
        layers, heads, dim, ctx, _, _, batch = MODELS[model]
        out = self.call([self.args.train, self.args.text, "--layers", str(layers), "--heads", str(heads), "--dim", str(dim),
                         "--ctx", str(ctx), "--batch", str(batch), "--arch", "llama", "--tie", "--dropout", "0", "--optimizer", "adamw",
                         "--bench", "300"]
                        + self.args.train_flags, 60)
        try:
            row = json.loads((out or "").strip().splitlines()[-1])
        except (IndexError, ValueError):
            return
        row.update(kind="train", system="inkling", model=model, source="./train --bench", vocab=257, dropout=0,
                   round=number)
        self.write(row)
        print(f"round {number}: ./train --bench, {model}: {row['tokens_per_s']:.0f} tokens/s, {row['step_ms']:.3f} ms",
              flush=True)

    def pytorch(self, mode, model, batch, number):
        """Returns the batch size that fit, or 0."""
        while batch >= 1:
            out = self.call([sys.executable, os.path.abspath(__file__), "--worker", mode, "--model", model, "--batch",
                             str(batch)], 200)
            try:
                row = json.loads((out or "").strip().splitlines()[-1])
            except (IndexError, ValueError):
                return 0
            if not row.pop("memory", False):
                break
            self.note(f"PyTorch {mode}, {model}: a batch of {batch} does not fit")
            batch //= 2
        else:
            return 0
        row.update(kind="train", system=f"pytorch {mode}", model=model, dtype="bf16 autocast", batch=batch,
                   ctx=MODELS[model][3], vocab=MODELS[model][4], dropout=0, round=number, source="scripts/measure/gpu_torch.py")
        self.write(row)
        print(f"round {number}: PyTorch {row['version']} {mode}, {model}, batch {batch}: {row['tokens_per_s']:.0f} "
              f"tokens/s, {row['step_ms']:.3f} ms (warm-up {row['warm_up_s']} s), loss {row['loss']:.4f}", flush=True)
        return batch

    def has_torch(self):
        try:
            done = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"],
                                  capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        print(f"PyTorch: {done.stdout.strip() or 'not installed'}", flush=True)
        return done.returncode == 0

    def run(self):
        self.torch_here = self.has_torch()
        if not self.torch_here:
            self.note("PyTorch is not installed: no comparison")
        fits = {}  # batch of each model and mode, once known
        for number in range(1, self.args.rounds + 1):
            for model in self.args.models.split(","):
                batch = self.args.batch if model == "124m" else MODELS[model][6]
                self.inkling(model, batch, number)
                self.train_bench(model, number)
                for mode in MODES if self.torch_here else ():
                    fitted = self.pytorch(mode, model, fits.get((model, mode), batch), number)
                    fits[model, mode] = fitted or fits.get((model, mode), batch)
                    if 0 < fitted < batch and number == 1:
                        self.inkling(model, fitted, number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bench", default="build/gpu/bench_kernels", help="the program of that name")
    parser.add_argument("--train", default="build/gpu/train", help="./train")
    parser.add_argument("--text", help="any text, for ./train --bench")
    parser.add_argument("--json", default="results.jsonl", help="rows are appended here")
    parser.add_argument("--models", default="baby,124m")
    parser.add_argument("--batch", type=int, default=64, help="sequences of 124m's batch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=400, help="nothing is started after that")
    parser.add_argument("--bench-flags", default="", help="more flags for it, e.g. '--device cpu --quick'")
    parser.add_argument("--train-flags", default="--device cuda --dtype bf16")
    parser.add_argument("--worker", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)
    args.bench_flags, args.train_flags = args.bench_flags.split(), args.train_flags.split()
    rounds = Rounds(args)
    rounds.run()
    print(f"{rounds.failures} failed" + ("" if rounds.torch_here else "; PyTorch is not installed: no comparison"), flush=True)
    sys.exit(1 if rounds.failures else 0)


if __name__ == "__main__":
    main()
