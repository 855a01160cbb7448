#!/usr/bin/env python3
"""Tests training in several processes with every installed MPI.

The losses must equal those of one process, a second run must be byte-identical, and the run must end in time whatever
happens to one of the processes.

    tests/peers.py [--full] [--only NAME]     # BIN: directory of train and its MPI libraries (default: .)
    tests/peers.py --only emulated            # BIN: an emulated build; two and three GPUs in as many processes

Prints `ok NAME` or `not ok NAME: why` for each check, then `done`.
"""

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BIN = os.path.abspath(os.environ.get("BIN", "."))
TRAIN = os.path.join(BIN, "train")
SECONDS = 120  # longer is a hang
END_SECONDS = 10  # from the death of one process to the end of all
MODEL = ["--layers", "2", "--heads", "2", "--dim", "32", "--ctx", "32", "--dropout", "0.1", "--log-every", "1",
         "--sample-tokens", "10", "--device", os.environ.get("DEVICE", "cpu"), "--dtype", "f32"]
failed = False


def check(name, ok, why=""):
    global failed
    failed |= not ok
    print(f"ok {name}" if ok else f"not ok {name}: {why!r}", flush=True)


def launchers():
    """The launchers of the MPIs in this build: {kind: [command, flags...]}."""
    found = {}
    for name in ("mpirun.openmpi", "mpirun.mpich", "mpirun"):
        path = shutil.which(name)
        if not path:
            continue
        about = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        kind = "openmpi" if "open" in about.lower() else "mpich"
        if kind not in found and os.path.exists(os.path.join(BIN, f"inkling-{kind}.so")):
            found[kind] = [path, "--oversubscribe"] if kind == "openmpi" else [path]
    return found


class Run:
    """Several processes in a folder; `programs`: the program of each rank, if they differ."""

    def __init__(self, launcher, folder, ranks, flags, programs=None):
        self.folder = folder
        if not launcher:
            command = [TRAIN, *flags]
        elif programs:
            # not by `mpirun PROGRAM : PROGRAM`, with which Open MPI 5.0.7 of Debian 13 crashes
            cases = " ".join(f"{rank}) exec {shlex.join(program)} ;;" for rank, program in enumerate(programs))
            choice = f"case ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} in {cases} esac"
            command = [*launcher, "-n", str(len(programs)), "sh", "-c", choice]
        else:
            command = [*launcher, "-n", str(ranks), TRAIN, *flags]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if launcher:
            environment["ASAN_OPTIONS"] = "detect_leaks=0"  # what MPI keeps when it has ended
        with open(os.path.join(folder, "stderr"), "wb") as out:
            self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            env=environment, start_new_session=True)

    def wait(self, seconds=SECONDS):
        """The exit status; None: the process did not end and was killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return None

    def said(self):
        with open(os.path.join(self.folder, "stderr"), errors="replace", encoding="utf-8") as file:
            return file.read()

    def ranks(self):
        """Process ids by rank."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{name}/exe") != TRAIN or int(name) not in self.family():
                    continue
                with open(f"/proc/{name}/environ", "rb") as file:
                    environment = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
            except OSError:
                continue
            rank = environment.get(b"OMPI_COMM_WORLD_RANK", environment.get(b"PMI_RANK"))
            if rank is not None:
                found[int(rank)] = int(name)
        return found

    def family(self):
        """The process and its descendants."""
        return family(self.process.pid)

    def wait_for_steps(self, run, count, ranks):
        """`ranks` 0: without a launcher."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            if len(losses(os.path.join(self.folder, run))) >= count and len(self.ranks()) == ranks:
                return True
            time.sleep(0.02)
        return False


def family(pid):
    pids = [pid]
    for one in pids:
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children", encoding="ascii") as file:
                    pids += map(int, file.read().split())
        except OSError:
            pass
    return set(pids)


def train(launcher, folder, ranks, flags):
    run = Run(launcher, folder, ranks, flags)
    return run.wait(), run


def losses(run):
    """Losses by step, and validation losses by step and kind."""
    found = {}
    try:
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            for line in file:
                line = json.loads(line)
                if "loss" in line:
                    found[line["step"]] = line["loss"]
                if "val_loss" in line:
                    found[f"val {line['step']} {line.get('all')}"] = line["val_loss"]
    except (OSError, json.JSONDecodeError):
        pass
    return found


def distance(one, other):
    if one.keys() != other.keys() or not one:
        return float("inf")
    return max(abs(one[key] - other[key]) for key in one)


def weights(run):
    with open(os.path.join(run, "model.safetensors"), "rb") as file:
        return file.read()


def same_losses(kind, launcher, folder, full):
    cases = {"batch": ["text.txt", "--batch", "7", "--tokenizer", "byte"],
             "accumulation": ["text.txt", "--batch", "3", "--grad-accum", "3", "--tokenizer", "bpe", "--vocab-size", "400",
                              "--optimizer", "adamw", "--lr", "1e-3", "--mixer", "CA", "--qk-norm"],
             "encoder": ["pairs.tsv", "--arch", "original", "--layers", "1", "--batch", "5"],
             "packing": ["pairs.tsv", "--encoder-layers", "0", "--pack", "docs", "--batch", "4", "--tokenizer", "byte"],
             "shares": ["text.txt", "pairs.tsv=0.3", "--batch", "5", "--tokenizer", "byte"],
             "fine-tuning": ["text.txt", "--init", "base.run", "--batch", "5"]}
    train(None, folder, 1, ["text.txt", *MODEL, "--tokenizer", "byte", "--batch", "4", "--steps", "9", "--out", "base.run",
                            "--overwrite", "--quiet"])
    for name, flags in cases.items():
        common = [*MODEL, *flags, "--steps", "50" if full else "20", "--eval-every", "10", "--quiet"]
        train(None, folder, 1, [*common, "--out", "alone.run", "--overwrite"])
        alone = losses(os.path.join(folder, "alone.run"))
        for ranks in (1, 2, 3, 4) if full or name == "batch" else (3,):
            out = os.path.join(folder, f"{name}.{ranks}.run")
            status, run = train(launcher, folder, ranks, [*common, "--out", out, "--overwrite"])
            far = distance(alone, losses(out))
            check(f"{kind}: losses of {name} on {ranks}", status == 0 and far <= 1e-5, (status, far, run.said()))
        first = weights(out)
        train(launcher, folder, ranks, [*common, "--out", out, "--overwrite"])
        check(f"{kind}: the same bytes again, {name}", first == weights(out))
        train(launcher, folder, ranks, [*common, "--out", out, "--overwrite", "--no-shard"])
        check(f"{kind}: the same bytes with --no-shard, {name}", first == weights(out))


def resume(kind, launcher, folder, _full):
    common = ["text.txt", *MODEL, "--batch", "100", "--tokenizer", "byte", "--steps", "60", "--eval-every", "20", "--quiet"]
    train(None, folder, 1, [*common, "--out", "whole.run", "--overwrite"])
    whole = losses(os.path.join(folder, "whole.run"))
    out = os.path.join(folder, "parts.run")
    shutil.rmtree(out, ignore_errors=True)
    flags = [*common, "--out", "parts.run", "--schedule", "cosine"]
    for ranks, until in ((4, 20), (2, 40)):
        run = Run(launcher, folder, ranks, flags)
        run.wait_for_steps("parts.run", until, ranks)
        ids = run.ranks()
        os.kill(ids[max(ids)], signal.SIGTERM)  # the last one alone is asked to stop
        status = run.wait(END_SECONDS)
        check(f"{kind}: SIGTERM to rank {ranks - 1} saves and ends all {ranks}",
              status == 128 + signal.SIGTERM and "saved. Resume with" in run.said(), (status, run.said()))
        flags = ["--resume=parts.run", "--quiet"]
    status, run = train(None, folder, 1, flags)
    far = distance(whole, losses(out))
    check(f"{kind}: 4, then 2, then 1 process continue", status == 0 and far <= 1e-5, (status, far, run.said()))


def kills(kind, launcher, folder, full):
    dice = random.Random(7)
    common = ["text.txt", *MODEL, "--batch", "6", "--tokenizer", "byte", "--steps", "300", "--eval-every", "100", "--save-every", "20",
              "--quiet", "--log-every", "10"]
    whole = os.path.join(folder, "undisturbed.run")
    start = time.monotonic()
    train(launcher, folder, 3, [*common, "--out", whole, "--overwrite"])
    takes = time.monotonic() - start
    out = os.path.join(folder, "killed.run")
    slow, killed, tries = [], 0, 0
    wanted = 20 if full else 3
    while killed < wanted and tries < 3 * wanted:
        tries += 1
        begun = os.path.exists(os.path.join(out, "last", "state.safetensors"))
        flags = ["--resume=killed.run", "--quiet"] if begun else [*common, "--out", "killed.run", "--overwrite"]
        run = Run(launcher, folder, 3, flags)
        time.sleep(dice.uniform(0.1, 0.9) * takes)
        ids = run.ranks()
        if ids:
            os.kill(ids[dice.choice(sorted(ids))], signal.SIGKILL)
            killed += 1
        at = time.monotonic()
        if run.wait(SECONDS) is None or (ids and time.monotonic() - at > END_SECONDS):
            slow.append(time.monotonic() - at)
        if os.path.exists(os.path.join(out, "result.json")):  # it had ended before
            shutil.rmtree(out)
    check(f"{kind}: {killed} kills of a rank end all", killed == wanted and not slow, (killed, slow))
    flags = ["--resume=killed.run", "--quiet"] if os.path.exists(os.path.join(out, "last", "state.safetensors")) else \
        [*common, "--out", "killed.run", "--overwrite"]
    status, run = train(launcher, folder, 3, flags)
    check(f"{kind}: and the bytes are those of an undisturbed run", status == 0 and weights(out) == weights(whole),
          (status, run.said()))


def hostile(kind, launcher, folder, _full):
    common = ["text.txt", *MODEL, "--batch", "4", "--tokenizer", "byte", "--steps", "200000", "--quiet", "--out", "hostile.run"]

    def refused(name, programs, status, words, ranks=2):
        out = os.path.join(folder, "hostile.run")
        shutil.rmtree(out, ignore_errors=True)
        run = Run(launcher, folder, ranks, programs if isinstance(programs[0], str) else [],
                  None if isinstance(programs[0], str) else programs)
        got = run.wait(SECONDS)
        lines = [line for line in run.said().splitlines() if line.startswith("train: ")]
        check(f"{kind}: {name}", got == status and len(lines) == 1 and words in lines[0] and not os.path.exists(out),
              (got, run.said()))

    refused("other flags", [[TRAIN, *common], [TRAIN, *common, "--seed", "2"]], 2, "rank 1 on ")
    copy = os.path.join(folder, "train")
    shutil.copy(TRAIN, copy)
    for name in os.listdir(BIN):
        if name.startswith("inkling-"):
            shutil.copy(os.path.join(BIN, name), folder)
    with open(copy, "ab") as file:
        file.write(b"older")
    refused("another build", [[TRAIN, *common], [copy, *common]], 2, "this build")
    os.remove(os.path.join(folder, f"inkling-{kind}.so"))
    shutil.copy(TRAIN, copy)
    refused("a build without this MPI", [[copy, *common], [copy, *common]], 2, "MPI")
    refused("an unknown flag", [*common, "--bogus"], 2, "--bogus")
    refused("a text that is not there", ["nothing.txt", *common], 3, "nothing.txt")
    refused("more processes than sequences", common, 2, "cannot be divided", ranks=5)
    if os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0:
        hide = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$PWD" && cd "$PWD" && eval "$0" && exec "$@"']
        refused("a machine that does not see the run", [[TRAIN, *common], [*hide, "true", TRAIN, *common]], 3,
                "does not see ")
    out = os.path.join(folder, "hostile.run")
    shutil.rmtree(out, ignore_errors=True)
    run = Run(launcher, folder, 2, [*common, "--save-every", "20", "--eval-every", "0"])
    run.wait_for_steps("hostile.run", 5, 2)
    os.rename(out, out + ".away")
    status = run.wait(END_SECONDS)
    lines = [line for line in run.said().splitlines() if line.startswith("train: ")]
    check(f"{kind}: a directory that is gone ends all", status == 7 and len(lines) == 1, (status, run.said()))


def write_texts(folder):
    with open(os.path.join(folder, "text.txt"), "w", encoding="ascii") as file:
        for i in range(900):
            file.write(f"Once there was a number {i}, and {i * 7919 % 1000} was another.\n")
    dice = random.Random(1)
    with open(os.path.join(folder, "pairs.tsv"), "w", encoding="ascii") as file:
        for _ in range(800):
            word = "".join(dice.choice("abcdef") for _ in range(dice.randint(2, 9)))
            file.write(f"{word}\t{word[::-1]}\n")


def memory(kind, launcher, folder, full):
    """The n-th allocation of one process fails."""
    failing = os.path.join(os.environ.get("BUILD", "build"), "failing", "train")
    if not os.path.exists(failing):
        print(f"skipped memory: there is no {failing}")
        return
    shutil.copy(failing, os.path.join(folder, "failing"))
    shutil.copy(os.path.join(BIN, f"inkling-{kind}.so"), folder)
    count = os.path.join(folder, "count")
    flags = ["text.txt", *MODEL, "--ctx", "16", "--batch", "4", "--steps", "6", "--tokenizer", "bpe", "--vocab-size", "300",
             "--quiet", "--eval-every", "3", "--save-every", "2", "--val-frac", "0.01", "--out", "memory.run", "--overwrite"]
    whole = ["env", "INKLING_FAIL_ALLOCATION=0", f"INKLING_COUNT_ALLOCATIONS={count}", "./failing", *flags]
    wrong = []

    def attempt(rank, number):
        programs = [["env", "INKLING_FAIL_ALLOCATION=0", "./failing", *flags] for _ in range(2)]
        programs[rank] = [word.replace("ALLOCATION=0", f"ALLOCATION={number}") for word in whole]
        run = Run(launcher, folder, 2, None, programs)
        status = run.wait(30)
        lines = [line for line in run.said().splitlines() if line.startswith("train: ")]
        if status not in (0, 5) or len(lines) != (status == 5):
            wrong.append((rank, number, status, run.said()[-300:]))

    for rank in (0, 1):
        attempt(rank, 0)
        with open(count, encoding="ascii") as file:
            last = int(file.read())
        points = 100 if full else 4
        for i in range(points):
            attempt(rank, 1 + i * last // points)
    check(f"{kind}: memory that runs out in one process", not wrong, wrong[:3])


def emulated(folder, full):
    """Emulated GPUs with --gpus, without MPI: the emulated NCCL checks that all ranks make the same calls."""
    common = ["text.txt", "--layers", "2", "--heads", "2", "--dim", "32", "--ctx", "16", "--batch", "4", "--steps", "4",
              "--tokenizer", "byte", "--dropout", "0.1", "--log-every", "1", "--eval-every", "2", "--sample-tokens", "4",
              "--val-frac", "0.01", "--clip", "0.1", "--device", "cuda", "--quiet"]

    def gpus(name, count, flags, given=tuple(common), **environment):
        out = os.path.join(folder, name + ".run")
        os.environ.update({"EMU_DEVICES": str(count), "EMU_NCCL_SECONDS": "5", **environment})
        os.environ.setdefault("XDG_CACHE_HOME", os.path.join(folder, "cache"))
        run = Run(None, folder, 1, [*given, "--gpus", str(count), "--out", out, *flags])
        status = run.wait()
        for variable in environment:
            del os.environ[variable]
        return status, out, run.said()

    for name, flags, far in (("f32", ["--dtype", "f32", "--optimizer", "muon"], 1e-5),
                             ("adamw", ["--dtype", "f32", "--optimizer", "adamw", "--grad-accum", "3"], 1e-5),
                             ("bf16", ["--dtype", "bf16", "--positions", "sinusoidal", "--optimizer", "muon"], 2e-2)):
        _, alone, _ = gpus(name + "1", 1, flags)
        alone = losses(alone)
        for label, count, more, environment in (("2", 2, [], {}), ("3, lazy streams", 3, [], {"EMU_STREAMS": "lazy"}),
                                                ("2, without NCCL", 2, [], {"EMU_NCCL_OLD": "1"})):
            status, out, said = gpus(f"{name} {label}", count, [*flags, *more], **environment)
            check(f"GPUs: losses of {name} on {label}", status == 0 and distance(alone, losses(out)) <= far,
                  (status, distance(alone, losses(out)), said))
        first = weights(os.path.join(folder, name + " 2.run"))
        _, out, _ = gpus(name + " whole", 2, [*flags, "--no-shard"])
        check(f"GPUs: the same bytes with --no-shard, {name}", weights(out) == first)
        if name != "adamw":
            unequal = [gpus(f"{name} unequal{flag}", 2, [*flags, *flag], EMU_UNEQUAL="1") for flag in ([], ["--no-shard"])]
            check(f"GPUs: unequal ones keep the same weights, {name}",
                  weights(unequal[0][1]) == weights(unequal[1][1]) != first, [status for status, _, _ in unequal])
        status, out, said = gpus(f"{name} again", 2, flags, EMU_STREAMS="lazy", EMU_ORDER="rand:3")
        check(f"GPUs: the same bytes again, {name}", weights(out) == first, (status, said))
    # Rank 1 would measure that another algorithm is the fastest. The second run finds rank 0's choices in the cache.
    fast = {"EMU_GEMM_MS": "1000,900,800", "XDG_CACHE_HOME": os.path.join(folder, "measured")}
    tuned = [gpus(f"tuned {i}", 2, ["--dtype", "f32"], **fast) for i in range(2)]
    plain = gpus("untuned", 2, ["--dtype", "f32", "--no-autotune"], **fast)
    check("GPUs: rank 0's algorithms are everyone's", weights(tuned[0][1]) == weights(tuned[1][1]) != weights(plain[1]),
          [status for status, _, _ in (*tuned, plain)])
    taught = ["--dtype", "f32", "--teacher", "adamw1.run", "--seed", "9"]
    _, alone, _ = gpus("taught1", 1, taught)
    for label, environment in (("", {}), (", without NCCL", {"EMU_NCCL_OLD": "1"})):
        status, out, said = gpus(f"taught{label}", 2, taught, **environment)
        far = distance(losses(alone), losses(out))
        check(f"GPUs: losses with a teacher on 2{label}", status == 0 and far <= 1e-5, (status, far, said))
    lasting = ["--dtype", "bf16", "--schedule", "constant", "--warmup", "1"]
    _, whole, _ = gpus("lasting", 1, lasting)
    for label, environment in (("", {}), (", without NCCL", {"EMU_NCCL_OLD": "1"})):
        gpus("parts", 2, [*lasting, "--steps", "2", "--overwrite"], **environment)
        gpus("parts", 3, ["--resume", "--steps", "3"], given=["--quiet"], **environment)
        status, out, said = gpus("parts", 1, ["--resume", "--steps", "4"], given=["--quiet"])
        far = distance(*({step: loss for step, loss in losses(run).items() if isinstance(step, int)} for run in (whole, out)))
        check(f"GPUs: 2, then 3, then 1 continue{label}", status == 0 and far <= 2e-2, (status, far, said))
    for variable, words in (("EMU_NCCL_DROP", "emu: nccl"), ("EMU_NCCL_WRONG", "emu: nccl")):
        status, _, said = gpus(variable, 2, ["--dtype", "f32"], **{variable: "1:20"})
        check(f"GPUs: {variable} is noticed", status == 1 and words in said and "between GPUs failed" in said, (status, said))
    for launcher in launchers().values():  # two processes on one card, which NCCL does not support
        os.environ["EMU_DEVICES"] = "1"
        loud = [flag for flag in common if flag != "--quiet"]
        status, run = train(launcher, folder, 2, [*loud, "--dtype", "bf16", "--out", "crowded.run", "--overwrite"])
        check("GPUs: two processes share one", status == 0 and "(some share a GPU)" in run.said(), (status, run.said()))
    status, _, said = gpus("many", 2, ["--dtype", "f32", "--gpus", "3"])
    check("GPUs: more than there are", status == 2 and "this machine has 2" in said, (status, said))
    os.environ["EMU_DEVICES"] = "2"
    del os.environ["EMU_NCCL_SECONDS"]  # from here on a rank waits for the others without end, as with NCCL
    plain = [*common, "--steps", "100000", "--eval-every", "0"]
    for attempt in range(20 if full else 2):  # in the middle of plain steps
        for count in (2, 3):
            os.environ["EMU_DEVICES"] = str(count)
            out = f"killed-{attempt}-{count}.run"
            run = Run(None, folder, 1, [*plain, "--gpus", str(count), "--out", out])
            run.wait_for_steps(out, 10 + attempt, 0)
            family = sorted(run.family() - {run.process.pid})
            rank = 1 + attempt % (count - 1)
            os.kill(family[rank - 1], signal.SIGKILL)
            status = run.wait(END_SECONDS)
            time.sleep(0.1)
            check(f"GPUs: rank {rank} of {count} is killed, and all end", status == 128 + signal.SIGKILL
                  and f"rank {rank} was ended by signal 9" in run.said() and run.said().count("was ended") == 1
                  and not any(os.path.exists(f"/proc/{process}/exe") for process in family), (status, run.said()))
    os.environ["EMU_DEVICES"] = "2"
    run = Run(None, folder, 1, [*common, "--steps", "100000", "--gpus", "2", "--out", "stopped.run"])
    run.wait_for_steps("stopped.run", 2, 0)
    os.kill(sorted(run.family() - {run.process.pid})[0], signal.SIGUSR1)
    status = run.wait(END_SECONDS)
    check("GPUs: SIGUSR1 to one saves and ends all", status == 128 + signal.SIGUSR1 and "saved" in run.said(),
          (status, run.said()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only")
    asked = parser.parse_args()
    if asked.only == "emulated":
        with tempfile.TemporaryDirectory() as folder:
            write_texts(folder)
            emulated(folder, asked.full)
        print("done")
        sys.exit(failed)
    found = launchers()
    if not found:
        print("skipped: no mpirun, or no MPI in this build")
        print("done")
        return
    for kind, launcher in found.items():
        for test in (same_losses, resume, kills, hostile, memory):
            if asked.only and asked.only != test.__name__:
                continue
            with tempfile.TemporaryDirectory() as folder:
                write_texts(folder)
                test(kind, launcher, folder, asked.full)
    print("done")
    sys.exit(failed)


if __name__ == "__main__":
    main()
