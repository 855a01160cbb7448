#!/usr/bin/env python3
"""Fault injection: for every n, the n-th allocation, write, fsync, rename, ... of ./train and ./generate fails.

The program must end with the right status and a message and leave no half-written file. Existing files must stay whole:
--resume, or the same command again, must give the same files as a run without failures.

    make build/failing/train build/failing/generate
    tests/failures.py build                 # everything: takes about an hour
    tests/failures.py build --some 150      # only so many failures of each kind, evenly spread
    tests/failures.py build --only resume --calls rename fsync --list

Allocations fail in a separate build (tests/failing_allocations.c), system calls fail through strace. Prints `ok NAME`
or `not ok NAME: why` for each scenario and call, then `done`. --list shows the outcome and message of each failure.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

SHAPE = ("--layers 2 --mixer AC --qk-norm --heads 2 --dim 16 --ctx 16 --batch 2 --tokenizer bpe --vocab-size 270 "
         "--pack docs --threads 2 --device cpu --quiet --sample-tokens 6 --save-every 2 --eval-every 2 --sample-every 3 "
         "--optimizer adamw --lr 1 --schedule constant --warmup 0").split()  # step 4 is better than step 6
FRESH = ["train", "text.txt", *SHAPE, "--steps", "6", "--out", "run"]
RESUMED = ["train", "--resume=run", "--quiet", "--threads", "2"]
CALLS = {"write": "ENOSPC", "pwrite64": "ENOSPC", "fsync": "EIO", "rename": "EACCES", "link": "EPERM", "mkdir": "EACCES",
         "ftruncate": "EIO", "unlink": "EACCES", "openat": "EMFILE", "read": "EIO", "pread64": "EIO", "flock": "ENOLCK"}
ALWAYS = ("allocation", "write", "openat", "read")  # every program makes some
SECONDS = 60  # longer is a hang
# Names in JSON that differ from run to run. The line that has the comparison with xz is the first after it is known.
VOLATILE = ("seconds", "phases", "xz_bits_per_byte", "tokens_per_s", "train_tokens_per_s", "share_of_peak",
            "peak_flops_per_s", "free", "version")


class Scenario(NamedTuple):
    command: list  # what fails
    before: list   # commands that make what is there at the start
    training: bool  # leaves a run that can be finished
    partial: bool = False  # shows a run as damaged, or a part of it, where files cannot be read


SCENARIOS = {
    "train": Scenario(FRESH, [], True),
    "resume": Scenario([*RESUMED, "--steps", "10"], [FRESH], True),
    "overwrite": Scenario([*FRESH, "--overwrite", "--seed", "2"], [FRESH], True),
    "plan": Scenario(["train", "text.txt", "--threads", "2", "--device", "cpu", "--dry-run", "--json"], [], False),
    "generate": Scenario(["generate", "run", "-p", "Once", "-n", "8", "--seed", "1", "--device", "cpu"], [FRESH], False),
    "novelty": Scenario(["generate", "run", "-p", "Once", "-n", "20", "--seed", "1", "--novelty", "text.txt",
                         "--device", "cpu"], [FRESH], False),
    "score": Scenario(["generate", "run", "--score", "text.txt", "--device", "cpu"], [FRESH], False),
    "choose": Scenario(["generate", "run", "--choose", "choices.jsonl", "--json", "--device", "cpu"], [FRESH], False),
    "prompts": Scenario(["generate", "run", "--prompts", "prompts.jsonl", "-n", "4", "--seed", "1", "--logprobs", "2", "--ban", "th",
                         "--device", "cpu"], [FRESH], False),
    "heat": Scenario(["generate", "run", "--score", "short.txt", "--heat", "--alts", "2", "--heat-html", "report.html", "--device", "cpu"],
                     [FRESH], False),
    "lens": Scenario(["generate", "run", "-p", "Once", "--lens", "--device", "cpu"], [FRESH], False),
    "dump": Scenario(["generate", "run", "-f", "short.txt", "--dump", "report.safetensors", "--device", "cpu"], [FRESH], False),
    "compare": Scenario(["generate", "--compare", "run", "run", "-p", "Once", "-n", "8", "--seed", "1", "--device", "cpu"], [FRESH], False,
                        True),
    "runs": Scenario(["train", "--runs", ".", "-O", "csv"], [FRESH], False, True),
    "report": Scenario(["train", "--report", "run", "--out", "report.html"], [FRESH], False, True),
    "plot": Scenario(["train", "--plot", "run"], [FRESH], False),
}


class Failure(NamedTuple):
    call: str  # "allocation" or a system call
    number: int


class Place(NamedTuple):
    """The directory of the programs, and the files that a scenario starts from."""
    programs: str
    failing: str
    start: str  # a folder that is copied


def strace(call, *more):
    return ["strace", "-f", "-qq", "-e", f"trace={call}", *more]


def start(place, command, folder, failure=None, under=(), **more):
    """Returns the finished process; `under`: a command that runs it."""
    programs = place.failing if failure and failure.call == "allocation" else place.programs
    command = [*under, os.path.join(programs, command[0]), *command[1:]]
    environment = {**os.environ, "TMPDIR": os.path.join(folder, "tmp"), "ASAN_OPTIONS": "detect_leaks=0", **more}
    if failure and failure.call == "allocation":
        environment["INKLING_FAIL_ALLOCATION"] = str(failure.number)
    elif failure:
        injected = f"inject={failure.call}:error={CALLS[failure.call]}:when={failure.number}"
        command = [*strace(failure.call, "-o", "/dev/null", "-e", injected), *command]
    return subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=SECONDS, check=False)


def count(place, scenario, call, folder):
    """The number of these calls in a run without failures."""
    shutil.copytree(place.start, folder)
    if call == "allocation":
        start(place, scenario.command, folder, Failure(call, 0), INKLING_COUNT_ALLOCATIONS="count")
        with open(os.path.join(folder, "count"), encoding="ascii") as file:
            return int(file.read())
    trace = os.path.join(folder, "trace")
    start(place, scenario.command, folder, under=strace(call, "-o", trace)).check_returncode()
    with open(trace, encoding="utf-8", errors="replace") as file:
        calls = collections.Counter(line.split()[0] for line in file if f" {call}(" in line)
    return max(calls.values(), default=0)  # strace counts those of each thread


def steady(value):
    """The part of parsed JSON that is the same in every run."""
    if isinstance(value, dict):
        return {k: steady(v) for k, v in value.items() if k not in VOLATILE}
    return [steady(item) for item in value] if isinstance(value, list) else value


def contents(folder):
    """The files of a run: {name: the content that is the same in every run}."""
    found = {}
    for directory, _, names in os.walk(os.path.join(folder, "run")):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                data = file.read().replace(folder.encode(), b".")
            if name == "metrics.jsonl":
                data = [steady(json.loads(line)) for line in data.splitlines()]
            elif name == "result.json":
                data = steady(json.loads(data))
            elif name == "state.safetensors":
                data = data[-4000:]  # before that: seconds
            elif name in ("tokens.bin", "val.tokens.bin"):
                data = data[80:]  # before that: a checksum with the time of the text
            elif name == "report.html":
                data = b"</html>" in data
            elif name == ".lock":
                continue
            found[os.path.relpath(path, folder)] = data
    return found


def leftovers(folder):
    found = os.listdir(os.path.join(folder, "tmp"))
    for directory, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(directory, name), folder) for name in names if ".inkling-" in name]
    return found


def finish(place, scenario, folder):
    """Continues as a user would after the failure: resumes the run, or starts again if there is nothing to resume."""
    done = start(place, RESUMED + (["--steps", "10"] if "10" in scenario.command else []), folder)
    if done.returncode == 4 and not scenario.before:
        done = start(place, scenario.command + ["--overwrite"], folder)
    elif scenario is SCENARIOS["overwrite"]:
        done = start(place, scenario.command, folder)
    return done


def differences(one, other):
    """The files that differ between two runs; for JSON objects, also the members."""
    def describe(name):
        mine, yours = one.get(name), other.get(name)
        if not (isinstance(mine, dict) and isinstance(yours, dict)):
            return name
        members = sorted(key for key in {*mine, *yours} if mine.get(key) != yours.get(key))
        return f"{name} ({', '.join(f'{key}: {mine.get(key)}, {yours.get(key)}' for key in members)})"
    return [describe(name) for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def attempt(place, scenario, failure, expected, folder):
    """(how the program ended, what is wrong or None)"""
    shutil.copytree(place.start, folder)
    try:
        done = start(place, scenario.command, folder, failure)
    except subprocess.TimeoutExpired:
        return "hangs", "it hangs"
    message = done.stderr.decode("utf-8", "replace").strip()
    ended = f"{done.returncode}: {message[-300:]}"
    if done.returncode == 127 and failure.call.startswith(("read", "pread")):
        return ended, None  # the system cannot load the program
    if done.returncode not in ((0, 5) if failure.call == "allocation" else (0, 2, 3, 4, 5, 7)):
        return ended, "status"
    if done.returncode and (not message or message.count("\n") > 3):
        return ended, "no message, or a long one"
    if failure.call not in ("unlink",) and leftovers(folder):
        return ended, f"leaves {leftovers(folder)}"
    if not scenario.training:
        partial = scenario.partial and failure.call in ("openat", "read")
        if not done.returncode and not partial and printed(done, folder) != expected:
            return ended, "says that it is done, and is not"
        return ended, None
    if done.returncode:
        again = finish(place, scenario, folder)
        if again.returncode:
            return ended, f"cannot go on: {again.stderr.decode().strip()}"
    different = [name for name in differences(contents(folder), expected)
                 if not name.startswith("run/prev/") and "resuming from the state saved before it" not in message]
    return ended, f"{', '.join(different)} differ afterwards" if different else None


def printed(done, folder):
    """The output of a command that does not train."""
    files = []
    for name in ("report.html", "report.safetensors"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                files.append(file.read().replace(folder.encode(), b"."))
    text = done.stdout.replace(folder.encode(), b".")
    return steady(json.loads(text)) if text.startswith(b"{\n") else text, files


def spread(total, some):
    """Evenly spread numbers from 1 to the total."""
    if not some or total <= some:
        return list(range(1, total + 1))
    return sorted({1 + i * (total - 1) // (some - 1) for i in range(some)})


def examine(place, name, call, options, pool, work):
    """Tests a scenario and a call; returns the line to print."""
    scenario = SCENARIOS[name]
    folder = functools.partial(os.path.join, work)
    total = count(place, scenario, call, folder("count"))
    shutil.rmtree(folder("count"))
    if not total:
        missing = call in ALWAYS
        if missing:
            print(f"not ok {name}: it makes no {call}", flush=True)
        return not missing
    shutil.copytree(place.start, folder("expected"))
    done = start(place, scenario.command, folder("expected"))
    expected = contents(folder("expected")) if scenario.training else printed(done, folder("expected"))
    shutil.rmtree(folder("expected"))

    def one(number):
        own = folder(str(number))
        try:
            return number, *attempt(place, scenario, Failure(call, number), expected, own)
        finally:
            shutil.rmtree(own, ignore_errors=True)

    numbers = spread(total, options.some)
    ends, wrong = collections.Counter(), []
    for number, ended, why in pool.map(one, numbers):
        ends[ended.split(":")[0]] += 1
        if options.list:
            print(f"   {name} {call} {number}: {ended}")
        if why:
            wrong.append(f"{call} {number}: {why} ({ended})")
    statuses = ", ".join(f"{n} with {status}" for status, n in sorted(ends.items()))
    label = f"{name}: {len(numbers)} of {total} {call} fail ({statuses})"
    print(f"not ok {label}: {len(wrong)} wrong, " + "; ".join(wrong[:5]) if wrong else f"ok {label}", flush=True)
    return not wrong


def prepare(place, scenario):
    os.makedirs(os.path.join(place.start, "tmp"))
    with open(os.path.join(place.start, "prompts.jsonl"), "w", encoding="ascii") as file:
        file.write('"Once"\n{"prompt": "a", "n": 2, "stop": ["e", "th"], "id": {"of": [1]}}\n{"prompt": "\\u00e9\\u0000"}\n')
    with open(os.path.join(place.start, "choices.jsonl"), "w", encoding="ascii") as file:
        file.write('{"query": "Once there", "choices": ["was", "a"]}\n{"sentence_good": "a number", "sentence_bad": "number"}\n')
    with open(os.path.join(place.start, "text.txt"), "w", encoding="ascii") as file:
        for i in range(160):
            file.write(f"Once there was a number {i}, and {i * 7919 % 100} was another.\n" + "<|endoftext|>\n" * (i % 7 == 3))
    with open(os.path.join(place.start, "short.txt"), "w", encoding="ascii") as file:
        file.write("Once there was a number.\n")
    for command in scenario.before:
        done = start(place, command, place.start)
        if done.returncode:
            sys.exit(f"failures.py: {' '.join(command)}: {done.stderr.decode()}")


def can_trace():
    try:
        return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the build directory; its failing/ has the programs")
    parser.add_argument("--some", type=int, default=0, help="failures of each kind at most (default: all)")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--calls", nargs="+", choices=["allocation", *CALLS], default=["allocation", *CALLS])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    programs = os.path.abspath(os.environ.get("BIN", "."))
    failing = os.path.abspath(os.path.join(options.build, "failing"))
    ok, traced, sanitized = True, can_trace(), "sanitize" in options.build
    if not traced:
        print("note: strace is missing or may not trace: no system calls fail")
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name in options.only:
            place = Place(programs, failing, os.path.join(work, name))
            prepare(place, SCENARIOS[name])
            for call in options.calls:
                if call != "allocation" and not traced or sanitized and call in ("openat", "read", "pread64"):
                    continue  # a sanitizer itself reads files
                ok &= examine(place, name, call, options, pool, os.path.join(work, f"{name}-{call}"))
    print("done")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
