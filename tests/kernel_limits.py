#!/usr/bin/env python3
"""Compares the CUDA kernels with the limits in tests/kernel_limits.txt: make check-kernels

Arguments: the build directory of nvcc, that of the emulator ("-": none); --all: fails where instructions cannot be counted. Every kernel must be free of spills. The other
limits are about speed: registers (how many warps fit), instructions in the innermost loops per unit of work, loads per
multiplication, and launches per training step and per token. They are upper bounds that no change should exceed unnoticed;
a change that lowers a figure lowers its limit, too.
"""

import collections
import glob
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

ARCHITECTURES = ("sm_90", "sm_90a")  # whose instructions are counted


def readable(names):
    """The kernels' names as in the source, without namespaces and arguments."""
    text = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True, check=True).stdout
    out = []
    for name in text.splitlines():
        name = re.sub(r"\(anonymous namespace\)::|__nv_|^void ", "", name)
        depth, end = 0, len(name)
        for i, c in enumerate(name):
            depth += {"<": 1, ">": -1}.get(c, 0)
            if c == "(" and depth == 0:
                end = i
                break
        out.append(name[:end])
    return out


def outputs(build, ending):
    """The files that nvcc made."""
    return glob.glob(f"{build}/*.cu.{ending}") + glob.glob(f"{build}/src/kernels/cuda/*.cu.{ending}")


def resources(build):
    """{kernel: (most registers, most spilled bytes)} over all architectures, from the logs of ptxas -v."""
    found = []
    for path in outputs(build, "log"):
        text = open(path, encoding="utf-8").read()
        for name, part in re.findall(r"Compiling entry function '(\S+)'(.*?Used \d+ registers)", text, re.S):
            spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", part))
            found.append((name, int(re.search(r"Used (\d+)", part).group(1)), spills))
    out = {}
    for name, (_, registers, spills) in zip(readable([f[0] for f in found]), found):
        before = out.get(name, (0, 0))
        out[name] = (max(before[0], registers), max(before[1], spills))
    return out


def disassembler():
    """cuobjdump of the toolkit, or of a Python package (nvidia-cuda-cuobjdump, triton)."""
    packages = [path for path in sys.path if path.endswith("-packages")]
    patterns = [path + place for path in packages for place in ("/nvidia/*/bin", "/triton/backends/nvidia/bin")]
    for pattern in ["/usr/local/cuda*/bin", *patterns]:
        for folder in glob.glob(pattern):
            if os.access(folder + "/cuobjdump", os.X_OK):
                os.environ["PATH"] += os.pathsep + folder
    return shutil.which("cuobjdump") if shutil.which("nvdisasm") else None


def loops_in(body):
    """The loops of a kernel, longest first: (whether it is an innermost one, {mnemonic: count})."""
    code = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,5})\*/\s+([^;/]*?)\s*;", body)]
    jumps = []
    for at, text in code:
        target = re.search(r"\bBRA\b.*\b0x([0-9a-f]+)$", text)
        if target and int(target.group(1), 16) < at:
            jumps.append((int(target.group(1), 16), at))
    loops = []
    for first, last in jumps:
        inner = not any(o != (first, last) and first <= o[0] and o[1] <= last for o in jumps)
        names = (re.sub(r"^@\S+ ", "", text).split(".")[0].split()[0] for at, text in code if first <= at <= last)
        loops.append((inner, collections.Counter(names)))
    return sorted(loops, key=lambda loop: -sum(loop[1].values()))


def loops_of(build):
    """{kernel: loops_in()}"""
    out = {}
    for path in outputs(build, "o"):
        for architecture in ARCHITECTURES:
            command = ["cuobjdump", "-sass", "-arch", architecture, path]
            run = subprocess.run(command, text=True, capture_output=True)
            parts = re.split(r"\n\s+Function : (\S+)", run.stdout)
            for name, body in zip(readable(parts[1::2]), parts[2::2]):
                out[name] = loops_in(body)
    return out


def launches(emulator):
    """{what: launches and matrix products} of a training step and of a token: a llama of 6 layers."""

    def count(*command):
        # the user's cache stays as it is, and every run measures the same products
        told = {**os.environ, "EMU_VERBOSE": "1", "XDG_CACHE_HOME": "/dev/null"}
        run = subprocess.run(command, text=True, errors="replace", capture_output=True, cwd=folder, env=told)
        if run.returncode:
            sys.exit(f"{' '.join(command)}: {run.stderr[-500:]}")
        return sum(line.startswith("emu: ") for line in run.stderr.splitlines())

    emulator = os.path.abspath(emulator)
    with tempfile.TemporaryDirectory() as folder:
        open(folder + "/text.txt", "w", encoding="utf-8").write("The quick brown fox jumps over the lazy dog.\n" * 200)
        train = [emulator + "/train", "text.txt", "--device", "cuda", "--arch", "llama", "--layers", "6", "--heads", "2"]
        train += ["--dim", "32", "--ctx", "16", "--batch", "2", "--tokenizer", "byte", "--eval-every", "0", "--val-frac", "0"]
        train += ["--optimizer", "adamw", "--sample-tokens", "1", "--overwrite", "--steps"]
        write = [emulator + "/generate", "text.run", "--device", "cuda", "-p", "The", "-n"]
        step = count(*train, "13") - count(*train, "12")
        return {"step": step, "token": count(*write, "5") - count(*write, "4")}


def main():
    if len(sys.argv) < 3:
        sys.exit("kernel_limits.py BUILD EMULATOR [--all]")
    build, emulator = sys.argv[1:3]
    kernels, failed = resources(build), 0
    if not kernels:
        sys.exit(f"{build} has no kernels that nvcc compiled")
    spilling = [name for name, (_, spills) in kernels.items() if spills]
    print(f"{len(kernels)} kernels, {len(spilling)} of them spill")
    failed += len(spilling)
    for name in spilling:
        print(f"not ok {name} spills registers")
    loops = loops_of(build) if disassembler() else None
    if loops is None:
        failed += "--all" in sys.argv
        print("note: instructions are not counted: cuobjdump and nvdisasm are missing (pip install nvidia-cuda-cuobjdump "
              "nvidia-cuda-nvdisasm)")
    launched = launches(emulator) if emulator != "-" else None
    here = os.path.dirname(os.path.abspath(__file__))
    for line in open(here + "/kernel_limits.txt", encoding="utf-8"):
        if line.startswith("#") or not line.strip():
            continue
        what, limit, name = line.split(None, 2)
        name = name.strip()
        if what == "launches":
            value = launched and launched[name]
        elif name not in kernels or (loops is not None and name not in loops):
            value = math.inf
            print(f"{name} is missing" + (f", or was not compiled for {ARCHITECTURES[0]}" if name in kernels else ""))
        elif what == "registers":
            value = kernels[name][0]
        elif loops is None:
            continue
        elif "/" in what and what.split("/")[0].isupper():
            above, below = what.split("/")
            loop = max((loop for _, loop in reversed(loops[name])), key=lambda loop: loop[below])
            value = loop[above] / loop[below]
        else:  # instructions/32+16: of the longest loop for 32 units, and of the next one for 16
            units = [int(u) for u in what.split("/")[1].split("+")]
            innermost = [loop for inner, loop in loops[name] if inner]
            enough = len(innermost) >= len(units)
            value = sum(sum(loop.values()) / u for loop, u in zip(innermost, units)) if enough else math.inf
        if value is None:
            continue
        good = value <= float(limit)
        failed += not good
        print(f"{'ok' if good else 'not ok'} {name}: {what} {value:.4g}, limit {limit}")
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
