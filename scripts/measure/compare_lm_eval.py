#!/usr/bin/env python3
"""Compares ./generate --choose with lm-eval (needs PyTorch, transformers and lm-eval 0.4.13: pip install lm-eval).

    scripts/measure/compare_lm_eval.py [--stories build/stories] [--generate ./generate] [--items 2000] RUN ...

build/stories (make build/stories) writes text, and the script makes items of it: minimal pairs as in BLiMP (a sentence,
and the same with two words exchanged), multiple choice (the beginning of a story, and sentences of four stories), the
same with contexts that end in white space or are longer than the model's, and pairs of whole texts as TSV. lm-eval
evaluates them with its model type hf and, for JSON Lines, with its own task code, in float32 on the CPU.

Prints a line for each run and file: the largest difference of two log-likelihoods in nats, and for how many items both
choose the same text by acc, acc_norm and acc_bytes. Exit status 1 where a difference exceeds 0.001 or a choice differs
without a tie. Give runs of a text with several documents: texts then begin with the same token in both programs.
"""

import argparse
import json
import logging
import os
import random
import re
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")
import lm_eval  # noqa: E402
import numpy  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

TASKS = {  # as in lm_eval/tasks/blimp and lm_eval/tasks/hellaswag
    "pairs": dict(doc_to_text="", doc_to_target=0, doc_to_choice="{{[sentence_good, sentence_bad]}}"),
    "choices": dict(doc_to_text="{{query}}", doc_to_target="{{gold}}", doc_to_choice="choices"),
    "contexts": dict(doc_to_text="{{query}}", doc_to_target="{{gold}}", doc_to_choice="choices"),
    "delimiter": dict(doc_to_text="{{query}}", doc_to_target="{{gold}}", doc_to_choice="choices", target_delimiter=""),
}
MEASURES = {"acc": "sum", "acc_norm": "per_character", "acc_bytes": "per_byte"}


def exchanged(sentence, rng):
    """The sentence with two different neighboring words exchanged."""
    words = sentence.split(" ")
    places = [i for i in range(len(words) - 1) if words[i] != words[i + 1]]
    if not places:
        return None
    i = rng.choice(places)
    words[i], words[i + 1] = words[i + 1], words[i]
    return " ".join(words)


def items_of(stories, count, rng):
    """The lines of every file, as objects; those of TSV are lists of texts."""
    out = {name: [] for name in (*TASKS, "texts")}
    sentences = [s for story in stories for s in re.findall(r"[A-Z][^.!?]*[.!?]", story)]
    while len(out["pairs"]) < count:
        good = rng.choice(sentences)
        if bad := exchanged(good, rng):
            out["pairs"].append({"sentence_good": good, "sentence_bad": bad, "UID": "exchanged"})
            out["texts"].append([good, bad])
    for i in range(count // 5):
        chosen = rng.sample(stories, 4)
        gold = rng.randrange(4)
        lines = [story.strip().split("\n") for story in chosen]
        context = "\n".join(lines[gold][:2])
        choices = [line[-1].replace("a", "\u00e4") if i % 7 == 0 else line[-1] for line in lines]
        end = rng.choice(["  ", "\n", " \u00a0\u3000", "\t\n"])
        before = "\n".join(rng.sample(stories, 1 + i % 5))
        out["choices"].append({"query": context, "choices": choices, "gold": gold})
        out["contexts"].append({"query": before + context + end, "choices": choices, "gold": gold})
        out["delimiter"].append({"query": context, "choices": ["\n" + c for c in choices], "gold": gold, "delimiter": ""})
    return out


def write(path, lines):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(("\t".join(line) if isinstance(line, list) else json.dumps(line)) + "\n")


def of_inkling(generate, run, path):
    command = [generate, run, "--choose", path, "--json", "--quiet"]
    lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines[:-1]], json.loads(lines[-1])


def of_lm_eval(lm, name, path):
    """For every item the log-likelihoods of its texts, and acc, acc_norm and acc_bytes; and their means."""
    task = dict(TASKS[name], task=name, dataset_path="json", dataset_kwargs={"data_files": {"test": path}},
                test_split="test", output_type="multiple_choice", num_fewshot=0,
                metric_list=[{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in MEASURES])
    result = lm_eval.simple_evaluate(model=lm, tasks=[task], task_manager=TaskManager(include_defaults=False),
                                     bootstrap_iters=0, log_samples=True)
    samples = sorted(result["samples"][name], key=lambda s: s["doc_id"])
    items = [([r[0] for r in s["filtered_resps"]], {m: s[m] for m in MEASURES}) for s in samples]
    return items, {m: result["results"][name][f"{m},none"] for m in MEASURES}


def texts_of_lm_eval(lm, texts):
    requests = [Instance("loglikelihood", {}, ("", text), 0) for line in texts for text in line]
    scores = iter(lm.loglikelihood(requests, disable_tqdm=True))
    return [[next(scores)[0] for _ in line] for line in texts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--stories", default="build/stories")
    parser.add_argument("--generate", default="./generate")
    parser.add_argument("--items", type=int, default=2000, help="pairs; a fifth of that for the other kinds")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    rng = random.Random(1)
    text = subprocess.run([options.stories, "--bytes", "400000", "--seed", "99"], capture_output=True, check=True,
                          text=True).stdout
    files = items_of(text.split("<|endoftext|>\n")[:-1], options.items, rng)
    failed = False
    with tempfile.TemporaryDirectory() as work:
        for run in options.runs:
            lm = HFLM(pretrained=run, device="cpu", dtype="float32", batch_size=32)
            for name, lines in files.items():
                path = os.path.join(work, name + (".tsv" if name == "texts" else ".jsonl"))
                write(path, lines)
                ours, totals = of_inkling(options.generate, run, path)
                if name == "texts":
                    theirs, means = [(scores, {}) for scores in texts_of_lm_eval(lm, lines)], {}
                else:
                    theirs, means = of_lm_eval(lm, name, path)
                most, same, ties, judged = 0, 0, 0, True
                for mine, (scores, measures) in zip(ours, theirs, strict=True):
                    most = max(most, *(abs(a - b) for a, b in zip(mine["loglikelihoods"], scores, strict=True)))
                    ties += None in mine["chosen"].values()
                    same += mine["chosen"]["sum"] in (None, numpy.argmax(scores))
                    judged = judged and all(mine["chosen"][MEASURES[m]] is None or
                                            (mine["chosen"][MEASURES[m]] == mine["answer"]) == (measures[m] == 1)
                                            for m in measures)
                bad = most > 1e-3 or same < len(ours) or not judged
                failed = failed or bad
                accuracy = totals["accuracy"]
                print(f"{run} {name}: {len(ours)} items, largest difference {most:.1e} nats, {same} equal choices, "
                      f"{ties} ties, {totals['cut']} texts cut; "
                      + ", ".join(f"{m} {accuracy[MEASURES[m]]:.4f} ({means[m]:.4f})" for m in means)
                      + (" DIFFERS" if bad else ""), flush=True)
    return failed


sys.exit(main())
