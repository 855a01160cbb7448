#!/usr/bin/env python3
"""Checks that docs/formats.md and docs/schemas list exactly the keys that the programs write.
BIN: directory of ./train and ./generate (default: the root of the source)."""
import glob
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from json_schema import Schema

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.abspath(os.environ.get("BIN", HERE))
TINY = "--layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --threads 1 --sample-tokens 8 --quiet".split()
failures = 0


def check(name, ok, why=""):
    global failures
    failures += not ok
    print(f"ok {name}" if ok else f"not ok {name}: {why}")


def documented():
    """For each heading, the keys in the first column of each table below it: one set per table."""
    sections, heading = {}, None
    for line in open(os.path.join(HERE, "docs/formats.md"), encoding="utf-8"):
        if line.startswith("#"):
            heading = line.strip("# \n").replace("`", "")
        elif line.startswith("| key"):
            sections.setdefault(heading, []).append(set())
        elif heading in sections and (key := re.match(r"\| `([^`]+)` \|", line)):
            sections[heading][-1].add(key[1])
    return sections


def keys_of(value, prefix=""):
    """Names of all members: a.b in objects, a[].b in lists of objects. Members of settings and texts by token may have any name."""
    found = set()
    for key, member in value.items():
        name = prefix + key
        found.add(name)
        if key in ("settings", "top_logprobs"):
            continue
        for inner, mark in [(member, ".")] if isinstance(member, dict) else [(m, "[].") for m in member] if isinstance(member, list) else []:
            if isinstance(inner, dict):
                found |= keys_of(inner, name + mark)
                if mark == ".":
                    found.discard(name)
    return found


def run(program, *arguments, text=None):
    out = subprocess.run([os.path.join(BIN, program), *map(str, arguments)], input=text, capture_output=True, text=True)
    return out.stdout


def compare(name, wanted, objects, groups=()):
    """The union of the objects' keys must equal the documented keys. `groups`: objects that are documented themselves."""
    written = set().union(*(keys_of(o) for o in objects)) - set(groups)
    wanted = {k for k in wanted if k not in groups}
    missing, more = sorted(written - wanted), sorted(wanted - written)
    check(name, not missing and not more, f"not documented: {missing}; documented, and not written: {more}")


def lines(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def check_schema(name, values):
    """Checks values, by the name of their file, and that the schema describes what they have, neither more nor less.
    Returns the schema."""
    schema = Schema(os.path.join(HERE, "docs/schemas", name + ".schema.json"))
    for file in sorted({file for file, _ in values}):
        wrong = [w for of, value in values if of == file for w in schema.wrong(value)]
        check(f"{file}: {name}.schema.json", not wrong, wrong[:3])
    value = values[-1][1]
    one = value[0] if isinstance(value, list) else value
    for changed in [{**one, "nosuch": 1}] + [{k: v for k, v in one.items() if k != key} for key in one]:
        check(f"{name}.schema.json is strict", schema.wrong([changed] if one is not value else changed), list(changed))
    faults = list(schema.faults())
    check(f"{name}.schema.json has all keys", values and not faults, faults)
    return schema.root


def header(path):
    """The header of a safetensors file."""
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


def events(folder):
    """The scalars in a folder of TensorBoard: name, step, value."""
    from tensorboardX.proto.event_pb2 import Event
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            while head := file.read(12):  # length, its checksum; the event, its checksum
                event = Event.FromString(file.read(struct.unpack("<Q", head[:8])[0]))
                file.read(4)
                yield from ((value.tag, event.step, value.simple_value) for value in event.summary.value)


def main():
    docs = documented()
    work = tempfile.mkdtemp()
    os.chdir(work)
    with open("text.txt", "w") as file:
        file.writelines(f"line {i} of a text, and {i * 7919 % 1000}\n" for i in range(3000))
    with open("pairs.tsv", "w") as file:
        file.writelines(f"{i}\t{i}\n" for i in range(900))
    with open("choices.tsv", "w") as file:
        file.write("line 1\tenil 1\n")
    train = lambda out, *options, text="text.txt": run("train", text, *TINY, *options, "--out", out)
    train("text.run", "--steps", 20, "--choose", "choices.tsv", "--keep-at", "words:50")
    train("lr.sweep", "--steps", 5, "--sweep", "lr=1e-3,1e-2")
    train("bad.run", "--steps", 200, "--lr", 9, "--optimizer", "adamw")
    train("pairs.run", "--arch", "original", "--steps", 20, text="pairs.tsv")
    train("unmeasured.run", "--steps", 20, "--val-frac", 0, "--keep-at", "steps:5,10")
    train("nonfinite.run", "--steps", 100, "--muon-lr", 10, "--wd", 10, "--schedule", "constant", "--eval-every", 1)
    train("patience.run", "--steps", 400, "--patience", 1, "--lr", 9, "--optimizer", "adamw", "--init", "text.run")
    train("signal.run", "--steps", 20, "--stop-at", 10)
    train("minutes.run", "--minutes", 0.02)
    train("mean.run", "--steps", 60, "--eval-every", 6, "--schedule", "constant", "--lr", 3e-2, "--seed", 4)
    runs = sorted(glob.glob("*.run") + glob.glob("*.sweep/*.run"))
    metrics = [(f"{name}/metrics.jsonl", line) for name in runs for line in lines(f"{name}/metrics.jsonl")]
    results = [(f"{name}/result.json", read(f"{name}/result.json")) for name in runs]
    check("a run ends in each way", {result["end"] for _, result in results} ==
          {"done", "minutes", "patience", "signal", "nonfinite"}, [(name, r["end"]) for name, r in results])
    metrics_schema = check_schema("metrics", metrics)
    with open(os.path.join(HERE, "src/report/diagnosis.h"), encoding="utf-8") as file:
        diagnoses = re.findall(r'#define DIAGNOSIS_[A-Z_]+ "(.*)"', file.read())
    verdict = metrics_schema["$defs"]["diagnosis"]["properties"]["verdict"]
    check("names of diagnoses", verdict["enum"] == diagnoses, diagnoses)
    check_schema("result", results)
    check_schema("manifest", [(name, read(name)) for name in glob.glob("*.run/series/manifest.json")])
    check_schema("sweep", [("lr.sweep/sweep.json", read("lr.sweep/sweep.json"))])
    plan_of = lambda text, *options: json.loads(run("train", text, *TINY, *options, "--dry-run", "--json"))
    plan = plan_of("text.txt", "--steps", 20)
    check_schema("plan", [("a plan", plan), ("a plan by time", plan_of("text.txt")), ("a plan of pairs", plan_of("pairs.tsv", "--arch", "original"))])
    for name, result in results:
        check(f"{name}: tokens_per_s", abs(result["tokens_per_s"] * result["seconds"] / result["tokens"] - 1) < 1e-6)
        phases = result["phases"]
        during = sum(phases[name] for name in ("steps", "evaluations", "samples", "files"))
        # a sweep resumes its runs, and then `seconds` counts their earlier starts, too
        resumed = ".sweep/" in name
        check(f"{name}: phases add up", during < result["seconds"] + 1e-6 if resumed
              else abs(during / result["seconds"] - 1) < 1e-6, phases)
        check(f"{name}: every phase takes time", all(phases[p] > 0 for p in phases if p not in ("samples", "teacher")), phases)
    last = [line for _, line in metrics if "loss" in line][-1]
    check("tokens per step", last["tokens"] == last["step"] * 2 * 16)
    # embedding 257 x 16; a layer: four matrices 16 x 16, three of the MLP, two norms; the last norm
    check("parameters", plan["params"] - plan["params_without_embeddings"] == 257 * 16)
    compare("--bench", docs["./train --bench and ./generate --bench"][0],
            [json.loads(run("train", "text.txt", *TINY, "--bench", 3)),
             json.loads(run("generate", "text.run", "--bench", 3, "--quiet"))])
    compare("--score", docs["./generate --score"][0],
            [json.loads(run("generate", "text.run", "--score", "text.txt", "--quiet")),
             json.loads(run("generate", "pairs.run", "--score", "pairs.tsv", "--exact", "--quiet"))])
    records = lambda *options: json.loads(run("generate", "text.run", "--score", "choices.tsv", *options, "--json", "--quiet").split("\n")[0])
    compare("--score --per-line", docs["./generate --score"][1],
            [records("--per-line", "--above", 0)])
    compare("--score --per-token", docs["./generate --score"][2],
            [records("--per-token"), records("--per-word", "--per-line", "--entropy")])
    *questions, totals = map(json.loads, run("generate", "text.run", "--choose", "choices.tsv", "--json", "--quiet").splitlines())
    compare("--choose: questions", docs["./generate --choose"][0], questions)
    compare("--choose: totals", docs["./generate --choose"][1], [totals])
    of_series = [json.loads(line) for line in
                 run("generate", "text.run/series", "--choose", "choices.tsv", "--json", "--quiet").splitlines()]
    compare("--choose: a series", docs["./generate --choose"][1] | docs["./generate --choose"][2], of_series)
    run("train", "text.txt", *TINY, "--layers", 2, "--mixer", "CA", "--steps", 2, "--out", "mixed.run")
    run("generate", "mixed.run", "-p", "line", "--dump", "mixed.safetensors", "--quiet")
    tensors = header("mixed.safetensors")
    compare("--dump: metadata", docs["./generate --dump"][1], [tensors.pop("__metadata__")])
    compare("--dump: tensors", docs["./generate --dump"][0], [{re.sub(r"\.\d+$", ".N", name): 0 for name in tensors}])
    asked = ['{"id": 1, "prompt": "a", "n": 2, "max_tokens": 300, "logprobs": 1, "temp": 9, "top_k": 0, "top_p": 1, "min_p": 0}',
             '{"prompt": "a", "score": true}', '{"nosuch": 1}']
    answers = run("generate", "text.run", "--prompts", "-", "-n", 4, text="\n".join(asked) + "\n").split("\n")[:-1]
    compare("--prompts", docs["./generate --json and --prompts"][0], map(json.loads, answers),
            ("choices[].logprobs", "score", "error"))
    settings = set().union(*(result["settings"] for _, result in results))
    rows = json.loads(run("train", "--runs", ".", "-O", "json"))
    compare("--runs", docs["./train --runs"][0], rows, settings)
    for row in rows:
        check("--runs: tokens_per_s", abs(row["tokens_per_s"] * row["seconds"] / row["tokens"] - 1) < 1e-6)
    if importlib.util.find_spec("tensorboardX"):
        subprocess.run([sys.executable, os.path.join(HERE, "scripts/tensorboard.py"), "text.run"], check=True)
        wanted = {(name, line["step"], struct.unpack("f", struct.pack("f", value))[0])
                  for line in lines("text.run/metrics.jsonl") for name, value in line.items() if isinstance(value, float)}
        check("scripts/tensorboard.py", set(events("text.run/tensorboard")) == wanted)
    shutil.rmtree(work)
    print("done")
    return failures > 0


sys.exit(main())
