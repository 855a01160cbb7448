#!/usr/bin/env python3
"""Compares the speed of ./generate with llama.cpp's llama-batched-bench on the same weights, on this machine's CPU.

    scripts/measure/compare_llamacpp_speed.py [--models 15m,42m,110m] [--threads 1,2] [--rounds 3] [--json speed.jsonl]

The models have random weights (of scripts/measure/compare_llama2c.py) with a vocabulary of 32,000 tokens. ./generate computes
with weights in f32, bf16 and int8; llama.cpp reads the files of ./generate --gguf in f32 and q8_0, and the f32 file
after its llama-quantize in q4_0. Both process a prompt, then generate tokens after it, for one text and for 8 at once:

  prompt    tokens/s of the prompt of one text; in ./generate, until its first token is sampled
  1 text    tokens/s after the prompt
  8 texts   the sum of their tokens/s

Both generate as many tokens after prompts of the same length. ./generate samples greedily and does not count the first
12 tokens; llama.cpp does not sample and counts all. Rounds alternate between the programs, and so does the one that
goes first.

The table shows medians over the rounds and the ratios of Inkling's speed to llama.cpp's, f32 to f32 and int8 to q8_0.
--json also writes each of them as a line of JSON, with the numbers of all rounds.

llama.cpp is built once, as its CMake builds it by default (Release, native, OpenMP), from the source in the package
llama-cpp-python, in the directory --cache, which scripts/measure/compare_llamacpp.py uses too. It takes many minutes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from bench import execute, write_json_lines
from compare_llama2c import DTYPES, WARM_UP, write_random_run
from compare_llamacpp import fetch, run

PROMPTS = {"15m": 200, "42m": 512, "110m": 512}  # tokens
STEPS = 32  # tokens that ./generate --bench times
TEXTS = 8
TYPES = ("f32", "q8_0", "q4_0")
TOOLS = ("llama-batched-bench", "llama-quantize")
SYSTEMS = [("inkling", dtype) for dtype in DTYPES] + [("llama.cpp", kind) for kind in TYPES]
MEASURES = ("prompt", "1 text", f"{TEXTS} texts")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(PROMPTS), help="default: %(default)s")
    parser.add_argument("--threads", default="1,2", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write JSON lines to FILE")
    parser.add_argument("--cache", default=os.path.expanduser("~/.cache/inkling-llamacpp"), help="default: %(default)s")
    parser.add_argument("--generate", default="./generate", help="the program to measure")
    args = parser.parse_args()
    args.models, args.threads = args.models.split(","), [int(number) for number in args.threads.split(",")]
    unknown = [model for model in args.models if model not in PROMPTS]
    if unknown:
        parser.error(f"--models {unknown[0]}: use {', '.join(PROMPTS)}")
    if args.rounds < 1 or min(args.threads) < 1:
        parser.error("--rounds and --threads must be at least 1")
    return args


def build(cache):
    """The directory of llama.cpp's programs."""
    programs = cache + "/speed/bin"
    if not all(os.path.exists(f"{programs}/{tool}") for tool in TOOLS):
        source, environment = fetch(cache)
        off = [f"-DLLAMA_{part}=OFF" for part in "OPENSSL BUILD_TESTS BUILD_EXAMPLES BUILD_SERVER BUILD_APP".split()]
        quiet = {"env": environment, "stdout": subprocess.DEVNULL}
        run("cmake", "-G", "Ninja", "-S", source + "/vendor/llama.cpp", "-B", cache + "/speed",
            "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", *off, **quiet)
        run("ninja", "-C", cache + "/speed", *TOOLS, **quiet)
    return programs


class Model:
    """A model of random weights, as a run directory and as GGUF files."""

    def __init__(self, args, programs, work, name):
        self.args, self.programs, self.name, self.prompt = args, programs, name, PROMPTS[name]
        self.run = f"{work}/{name}.run"
        os.mkdir(self.run)
        write_random_run(self.run, name)
        for kind in ("f32", "q8_0"):
            execute([args.generate, self.run, "--gguf", self.gguf(kind), "--gguf-type", kind, "--quiet"])
        execute([f"{programs}/llama-quantize", self.gguf("f32"), self.gguf("q4_0"), "q4_0"])

    def gguf(self, kind):
        return f"{self.run}.{kind}.gguf"

    def bench(self, dtype, threads, texts):
        """The line of ./generate --bench. In the prompt, a letter or a digit is a token."""
        done = execute([self.args.generate, self.run, "-p", "a1" * (self.prompt // 2), "--bench", str(STEPS), "-N",
                        str(texts), "--dtype", dtype, "--threads", str(threads), "--device", "cpu", "--greedy",
                        "--on-full", "stop", "--quiet"])
        line = json.loads(done.stdout)
        if line["prompt_tokens"] != self.prompt:
            sys.exit(f"a prompt of {line['prompt_tokens']} tokens instead of {self.prompt}")
        return line

    def inkling(self, dtype, threads):
        one, many = (self.bench(dtype, threads, texts) for texts in (1, TEXTS))
        return [1e3 * self.prompt / one["first_token_ms"], 1e3 / one["step_ms_mean"],
                1e3 * TEXTS / many["step_ms_mean"]]

    def llamacpp(self, kind, threads):
        tokens = STEPS + WARM_UP
        done = execute([f"{self.programs}/llama-batched-bench", "-m", self.gguf(kind), "-npp", str(self.prompt), "-ntg",
                        str(tokens), "-npl", f"1,{TEXTS}", "-pps", "-c", str(TEXTS * (self.prompt + tokens)), "-t",
                        str(threads), "-tb", str(threads), "--output-format", "jsonl"])
        lines = (done.stdout + done.stderr).splitlines()
        one, many = (json.loads(line) for line in lines if line.startswith(b'{"n_kv_max"'))
        return [one["speed_pp"], one["speed_tg"], many["speed_tg"]]

    def measure(self, threads):
        """{system: [the speeds of a round]}"""
        rounds = {system: [] for system in SYSTEMS}
        for number in range(self.args.rounds):
            for system in SYSTEMS if number % 2 == 0 else SYSTEMS[::-1]:
                speeds = (self.inkling if system[0] == "inkling" else self.llamacpp)(system[1], threads)
                rounds[system].append(speeds)
                print(f"{self.name}, threads {threads}, round {number + 1}: {' '.join(system)} "
                      + ", ".join(f"{speed:.1f}" for speed in speeds), file=sys.stderr)
        return rounds


def lines_of(model, threads, rounds):
    for i, measure in enumerate(MEASURES):
        for (program, dtype), values in rounds.items():
            speeds = [round(speeds[i], 2) for speeds in values]
            yield {"model": model.name, "threads": threads, "measure": measure, "prompt_tokens": model.prompt,
                   "tokens": STEPS, "program": program, "type": dtype, "tokens_per_s": statistics.median(speeds),
                   "rounds": speeds}


def print_head():
    print("model threads measure  " + " ".join(f"{dtype:>9}" for _, dtype in SYSTEMS) + "   f32:f32 int8:q8_0\n"
          f"{'':23}{'Inkling':<30}llama.cpp", flush=True)


def print_lines(lines):
    for measure in MEASURES:
        speed = {(line["program"], line["type"]): line["tokens_per_s"] for line in lines if line["measure"] == measure}
        ratios = [speed["inkling", "f32"] / speed["llama.cpp", "f32"],
                  speed["inkling", "int8"] / speed["llama.cpp", "q8_0"]]
        print(f"{lines[0]['model']:<5} {lines[0]['threads']:>7} {measure:<8} "
              + " ".join(f"{speed[system]:9.1f}" for system in SYSTEMS) + f"  {ratios[0]:8.2f} {ratios[1]:9.2f}",
              flush=True)


def main():
    args = parse_arguments()
    programs = build(os.path.abspath(args.cache))
    every = []
    print_head()
    with tempfile.TemporaryDirectory() as work:
        for name in args.models:
            model = Model(args, programs, work, name)
            for threads in args.threads:
                lines = list(lines_of(model, threads, model.measure(threads)))
                print_lines(lines)
                every += lines
    if args.json:
        write_json_lines(args.json, every)


if __name__ == "__main__":
    main()
