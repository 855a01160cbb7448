#!/usr/bin/env python3
"""Tests chats of GGUF files in llama.cpp: its prompts have the ids of transformers' apply_chat_template, and its answers
are those of ./generate -i.

    pip install xllamacpp transformers torch
    tests/llamacpp_chat.py     # BIN: the directory of train and generate (default: .)

Prints `ok NAME` or `not ok NAME: why` for each check, then `done`.
"""

import json
import os
import random
import sys
import tempfile
import urllib.request

try:
    import xllamacpp
    from chat_families import DATE, FAMILIES, conversations, ids_of, save_model
    from transformers import AutoTokenizer
except ImportError as missing:
    print(f"skipped llamacpp_chat: {missing.name} is missing\ndone")
    sys.exit(0)

import chat_session
from chat_session import CTX, check, conversation, run

CHATS = 10


def serve(path):
    """Returns a function that posts a request to llama.cpp's server for a model."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.cpuparams.n_threads = path, CTX, 1, 1
    params.port, params.warmup, params.use_jinja, params.verbosity = 0, False, True, 0
    server = xllamacpp.Server(params)

    def post(name, **request):
        head = {"Content-Type": "application/json"}
        body = urllib.request.Request(f"{server.listening_address}/{name}", json.dumps(request).encode(), head)
        with urllib.request.urlopen(body, timeout=60) as reply:
            return json.load(reply)
    return post


def check_prompts(name, model, tokenizer, post, system):
    """The prompts of a model's template, for conversations that end with a question."""
    wrong = []
    more = [0] if name == "Zephyr" else []  # llama.cpp begins a text with <s>, which this template does not have
    for messages in conversations(11, CHATS, system):
        messages = messages[:-1] if messages[-1]["role"] == "assistant" else messages
        want = more + ids_of(tokenizer, messages, add_generation_prompt=True)
        text = post("apply-template", messages=messages, chat_template_kwargs=DATE)["prompt"]
        found = post("tokenize", content=text, add_special=True, parse_special=True)["tokens"]
        count = post("v1/chat/completions", messages=messages, max_tokens=1, chat_template_kwargs=DATE)["usage"]["prompt_tokens"]
        ours = run("generate", model, "--prompts", "-", "-n", "1", "--quiet", text=json.dumps({"messages": messages}) + "\n")
        read = len(more) + json.loads(ours.stdout)["usage"]["prompt_tokens"]
        if found != want or count != len(want) or read != len(want):
            wrong.append((messages, found, want, count, read))
    check(f"{name}: the prompts of apply_chat_template", not wrong, wrong[:1])


def families():
    for name, (template, special, bos, eos, _, system) in FAMILIES.items():
        tokenizer = save_model("base", template, special, bos, eos)
        out = run("generate", "base", "--gguf", "base.gguf", "--quiet")
        check(f"{name}: a GGUF file", out.returncode == 0, out)
        check_prompts(name, "base", tokenizer, serve("base.gguf"), system)


def answers():
    """A model that has learned to answer, in chats of one to five questions."""
    rng = random.Random(2)
    with open("say.jsonl", "w", encoding="utf-8") as file:
        for _ in range(900):
            file.write(json.dumps({"messages": conversation(rng)}) + "\n")
    out = run("train", "say.jsonl", "--out", "say.run", "--arch", "llama", "--tokenizer", "bpe", "--vocab-size", "280", "--layers", "2",
              "--heads", "2", "--dim", "64", "--ctx", str(CTX), "--steps", "260", "--sample-tokens", "0", "--quiet")
    check("training", out.returncode == 0, out)
    out = run("generate", "say.run", "--gguf", "say.gguf", "--gguf-type", "f32", "--quiet")
    check("a GGUF file", out.returncode == 0, out)
    post, said = serve("say.gguf"), []
    for i in range(CHATS):
        lines = [f"say {rng.choice(chat_session.NUMBERS[:9])}" if turn == 0 or rng.random() < 0.6 else "again" for turn in range(i % 5 + 1)]
        out = run("generate", "say.run", "-i", "--greedy", "--dtype", "f32", text="".join(line + "\n" for line in lines))
        ours, theirs, messages = out.stdout.split("\n")[:-1], [], []
        for line, answer in zip(lines, ours):
            messages.append({"role": "user", "content": line})
            choice = post("v1/chat/completions", messages=messages, temperature=0, max_tokens=40)["choices"][0]
            theirs.append((choice["message"]["content"], choice["finish_reason"]))
            messages.append({"role": "assistant", "content": answer})
        check(f"the same answers in chat {i + 1}", len(ours) == len(lines) and theirs == [(a, "stop") for a in ours],
              (lines, ours, theirs))
        said += ours
    check("different answers", len(set(said)) > 5, said)
    check_prompts("a new model", "say.run", AutoTokenizer.from_pretrained("say.run"), post, True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        answers()
        families()
    print("done")
    sys.exit(chat_session.failed)


if __name__ == "__main__":
    main()
