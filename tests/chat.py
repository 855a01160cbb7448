#!/usr/bin/env python3
"""Tests conversations: their tokens against transformers' apply_chat_template, their loss against PyTorch, and what is
refused.

    tests/chat.py     # BIN: the directory of train (default: .)

Prints `ok NAME` or `not ok NAME: why` for each check, then `done`.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    from chat_families import FAMILIES, IM, conversations, ids_of, save_model, text_of
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as missing:
    print(f"skipped chat: {missing.name} is missing\ndone")
    sys.exit(0)

TRAIN = os.path.join(os.path.abspath(os.environ.get("BIN", ".")), "train")
TINY = ["--layers", "1", "--heads", "2", "--dim", "32", "--steps", "1", "--sample-tokens", "0", "--device", "cpu",
        "--dtype", "f32", "--threads", "1", "--quiet"]
failed = False


def check(name, ok, why=""):
    global failed
    failed |= not ok
    print(f"ok {name}" if ok else f"not ok {name}: {str(why)[:600]!r}", flush=True)


def train(*flags):
    return subprocess.run([TRAIN, *flags], capture_output=True, text=True, timeout=120, check=False)


def write(path, made):
    with open(path, "w", encoding="utf-8") as file:
        for messages in made:
            file.write(json.dumps({"messages": messages}) + "\n")


def read_tokens(path):
    """The documents of a token file: lists of ids, of whether the loss counts each, and of places of turns."""
    data = open(path, "rb").read()
    width, mask = numpy.frombuffer(data, "<u4", 2, 8).tolist()
    vocab = int(numpy.frombuffer(data, "<i4", 1, 56)[0])
    words = numpy.frombuffer(data, f"<u{width}", offset=80)
    bit = 1 << (8 * width - 1) if mask else 0
    made = [([], [], [])]
    for word in words.tolist():
        token = word & ~bit
        if token == vocab - 2:
            made.append(([], [], []))
        elif token == vocab - 1:
            made[-1][2].append(len(made[-1][0]))
        else:
            made[-1][0].append(token)
            made[-1][1].append(not word & bit)
    return made[:-1]


def in_loss(tokenizer, messages, ids, end, trims):
    """Which tokens overlap a content of the assistant, or the token that ends it."""
    text = text_of(tokenizer, messages)
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert offsets["input_ids"] == ids
    spans, at = [], 0
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        said = message["content"].strip() if trims else message["content"]
        head = text_of(tokenizer, messages[:i], add_generation_prompt=True)
        at = text.find(said + end, max(at, len(head)))
        spans.append((at, at + len(said) + len(end)))
    return [any(a < stop and b > begin for begin, stop in spans) for a, b in offsets["offset_mapping"]]


def check_tokens(name, run, made, end, masks=True, trims=False):
    tokenizer = AutoTokenizer.from_pretrained(run)
    documents = read_tokens(f"{run}/tokens.bin")
    check(f"{name}: conversations", len(documents) == len(made), len(documents))
    wrong = [(ids, ids_of(tokenizer, messages)) for (ids, _, _), messages in zip(documents, made)
             if ids != ids_of(tokenizer, messages)]
    check(f"{name}: the ids of apply_chat_template", not wrong, wrong[:1])
    if not masks or wrong:
        return
    wrong = [(messages, counted) for (ids, counted, _), messages in zip(documents, made)
             if counted != in_loss(tokenizer, messages, ids, end, trims)]
    check(f"{name}: the loss counts answers and their ends", not wrong, wrong[:1])


# ---- new models ----

def new_models():
    made = conversations(1, 200)
    write("chats.jsonl", made)
    kinds = {"byte": made, "bpe": made, "chars": made, "words": conversations(2, 200, ragged=False)}
    for kind, texts in kinds.items():
        write("kind.jsonl", texts)
        out = train("kind.jsonl", *TINY, "--ctx", "512", "--tokenizer", kind, "--val-frac", "0", "--out", f"{kind}.run")
        check(f"{kind}: a run", out.returncode == 0, out.stderr)
        if out.returncode == 0:
            check_tokens(kind, f"{kind}.run", texts, "<|im_end|>", kind in ("byte", "bpe"))
    tokenizer = AutoTokenizer.from_pretrained("bpe.run")
    check("eos_token ends a turn", tokenizer.eos_token == "<|im_end|>", tokenizer.eos_token)
    config = json.load(open("bpe.run/tokenizer_config.json", encoding="utf-8"))
    check("both files have the template", config["chat_template"] == open("bpe.run/chat_template.jinja").read())
    out = train("chats.jsonl", *TINY, "--tokenizer", "ids", "--out", "ids.run")
    check("no vocabulary of ids", out.returncode == 3 and "--tokenizer ids" in out.stderr, out.stderr)
    out = train("chats.jsonl", *TINY, "--ctx", "512", "--tokenizer", "byte", "--val-frac", "0", "--train-on", "all",
                "--out", "all.run")
    ids, counted, _ = read_tokens("all.run/tokens.bin")[0]
    text = bytes(i for i, c in zip(ids, counted) if c and i < 256).decode()
    check("--train-on all", text == "".join(m["content"] for m in made[0]), text)
    out = train("--resume=bpe.run", "--steps", "2", "--device", "cpu", "--quiet")
    check("a run is resumed", out.returncode == 0, out.stderr)
    out = train("chats.jsonl", *TINY, "--init", "bpe.run", "--out", "again.run", *["--ctx", "256"])
    check("a run is fine-tuned", out.returncode == 0, out.stderr)


def special_texts():
    said = "x<|im_end|>\n<|im_start|>system\ny<|endoftext|>"
    write("special.jsonl", [[{"role": "user", "content": said}, {"role": "assistant", "content": said}]] * 3)
    out = train("special.jsonl", *TINY[:-1], "--ctx", "256", "--tokenizer", "byte", "--val-frac", "0", "--out",
                "special.run")
    ids, _, _ = read_tokens("special.run/tokens.bin")[0]
    check("and are mentioned", "<|im_start|> 6 times" in out.stderr, out.stderr)
    check("special tokens in contents stay text", [i for i in ids if i > 255] == [257, 258, 257, 258], out.stderr)
    with open("plain.txt", "w", encoding="utf-8") as file:
        file.write("one <|im_start|>two<|im_end|> three\n" * 40)
    for flags, found in ([], 0), (["--special"], 40):
        out = train("plain.txt", *TINY, "--ctx", "16", "--init", "byte.run", "--val-frac", "0", *flags, "--out",
                    f"plain{found}.run")
        words = numpy.frombuffer(open(f"plain{found}.run/tokens.bin", "rb").read(), "<u2", offset=80)
        check(f"a plain text {flags}", (words == 257).sum() == found, out.stderr)
    out = subprocess.run([TRAIN, "plain.txt", *TINY[:-1], "--ctx", "16", "--init", "byte.run", "--out", "noted.run"],
                         capture_output=True, text=True, timeout=120, check=False)
    check("special tokens in a plain text are mentioned", "<|im_start|> 36 times" in out.stderr and
          "--special" in out.stderr, out.stderr)


def other_forms():
    """The same conversations in other fields and files, with documents and pairs in one folder."""
    made = conversations(3, 20, system=False, ragged=False)
    pairs = [[messages[0], messages[1]] for messages in made]
    os.makedirs("same", exist_ok=True)
    names = {"user": "human", "assistant": "gpt"}
    sharegpt = [{"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in t]} for t in pairs]
    alpaca = [{"instruction": q["content"].split(" ", 1)[0], "input": q["content"].partition(" ")[2],
               "output": a["content"]} for q, a in pairs]
    joined = [[{"role": "user", "content": q["content"].replace(" ", "\n", 1)}, a] for q, a in pairs]
    parts = [{"messages": [{"role": m["role"], "content": [{"type": "text", "text": m["content"][:3]},
                                                          {"type": "text", "text": m["content"][3:]}]}
                           for m in t]} for t in pairs]
    lines = "\n\n".join("\n".join(f"{'Ann' if m['role'] == 'assistant' else 'Bob'}: {m['content']}" for m in t)
                        for t in pairs)
    brief = [[{"role": "system", "content": "Be brief."}, *(m[:-1] if len(m) % 2 else m)] for m in made]
    asked = [[[q["content"], a["content"]] for q, a in zip(t[1::2], t[2::2])] for t in brief]
    history = [{"system": "Be brief.", "history": t[:-1], "instruction": t[-1][0], "output": t[-1][1]} for t in asked]
    system = [{"system": "Be brief.", "messages": t[1:]} for t in brief]
    forms = {"sharegpt.jsonl": ("\n".join(map(json.dumps, sharegpt)), pairs, []),
             "alpaca.json": (json.dumps(alpaca, indent=1), joined, []),
             "parts.jsonl": ("\n".join(map(json.dumps, parts)), pairs, []),
             "history.json": (json.dumps(history), brief, []),
             "system.jsonl": ("\n".join(map(json.dumps, system)), brief, []),
             "colon.chat": (lines.replace("Ann:", "Ann: B:").replace(": ", ":\t"), pairs, ["--speaker", "Ann:\tB"]),
             "lines.txt": (lines, pairs, ["--speaker", "Ann"]), "lines.chat": (lines, pairs, ["--speaker", "Ann"])}
    for name, (text, expected, flags) in forms.items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        out = train(name, *TINY, "--ctx", "512", "--tokenizer", "byte", "--val-frac", "0", *flags, "--out",
                    f"{name}.run")
        check(f"{name}: a run", out.returncode == 0, out.stderr)
        if out.returncode == 0:
            check_tokens(name, f"{name}.run", expected, "<|im_end|>")
    with open("same/a.jsonl", "w", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, sharegpt)) + '\n{"text": "a document"}\n')
    with open("same/b.tsv", "w", encoding="utf-8") as file:
        file.write("ask=\tanswer\n")
    with open("same/c.txt", "w", encoding="utf-8") as file:
        file.write("a text")
    out = train("same", *TINY, "--ctx", "256", "--tokenizer", "byte", "--val-frac", "0", "--out", "same.run")
    check("mixed documents: a run", out.returncode == 0, out.stderr)
    found = read_tokens("same.run/tokens.bin")[-3:]
    shown = [bytes(i for i in ids if i < 256).decode() for ids, _, _ in found]
    check("mixed documents: texts", shown == ["a document", "ask=answer", "a text"], shown)
    check("mixed documents: loss", [sum(c) for _, c, _ in found] == [11, 7, 7], found)
    with open("same/d.chat", "w", encoding="utf-8") as file:
        file.write("Bob: a\nAnn: b")
    out = train("same", *TINY, "--ctx", "256", "--tokenizer", "byte", "--val-frac", "0", "--speaker", "Ann", "--out",
                "log.run")
    shown = [bytes(i for i in ids if i < 256).decode() for ids, _, _ in read_tokens("log.run/tokens.bin")[-2:]]
    check("a log beside documents", shown == ["a text", "user\na\nassistant\nb\n"], (shown, out.stderr))
    with open("long.json", "w", encoding="utf-8") as file:
        json.dump(alpaca * 5, file, indent=2)
    out = train("long.json", *TINY, "--ctx", "256", "--tokenizer", "byte", "--out", "long.run")
    parts = [read_tokens(f"long.run/{name}") for name in ("tokens.bin", "val.tokens.bin")]
    check("an array is cut between records", [len(p) for p in parts] in ([90, 10], [89, 11], [91, 9]), out.stderr)


# ---- the loss ----

def kept(ids, turns, ctx):
    """The indices that are kept of a conversation: its system prompt and its newest turns."""
    if len(ids) - 1 <= ctx:
        return list(range(len(ids)))
    for turn in turns:
        if turns[0] + len(ids) - turn - 1 <= ctx:
            return list(range(turns[0])) + list(range(turn, len(ids)))
    return []


def losses():
    write("loss.jsonl", conversations(5, 120))
    write("val.jsonl", conversations(6, 80))
    for ctx in 512, 96:
        run = f"loss{ctx}.run"
        out = train("loss.jsonl", "--val", "val.jsonl", *TINY, "--arch", "llama", "--ctx", str(ctx), "--tokenizer",
                    "bpe", "--vocab-size", "300", "--lr", "1e-2", "--out", run)
        check(f"context {ctx}: a run", out.returncode == 0, out.stderr)
        model = AutoModelForCausalLM.from_pretrained(run).double()
        total, count, cut = 0.0, 0, 0
        for ids, counted, turns in read_tokens(f"{run}/val.tokens.bin"):
            chosen = kept(ids, turns, ctx)
            cut += len(chosen) < len(ids)
            targets = [ids[i] if counted[i] else -100 for i in chosen][1:]
            if not any(t >= 0 for t in targets):
                continue
            logits = model(torch.tensor([[ids[i] for i in chosen]])[:, :-1]).logits[0]
            total += torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="sum").item()
            count += sum(t >= 0 for t in targets)
        result = json.load(open(f"{run}/result.json", encoding="utf-8"))["kept"]
        check(f"context {ctx}: some are cut", (cut > 0) == (ctx < 512), cut)
        check(f"context {ctx}: the loss of PyTorch", abs(result["loss"] - total / count) < 1e-6,
              (result, total / count))
    lost = sum(len(ids) - len(kept(ids, turns, ctx)) for ids, _, turns in read_tokens(f"{run}/tokens.bin"))
    out = train("--resume=" + run, "--steps", "2", "--dry-run", "--device", "cpu")
    check("the plan says what is lost", f"never sees {lost / 1000:.1f}k tokens" in out.stderr, (lost, out.stderr))


# ---- what is refused ----

def shown_and_exported():
    out = train("special.jsonl", "--ctx", "256", "--tokenizer", "byte", "--val-frac", "0", "--dry-run", "--show", "1",
                "--device", "cpu")
    shown = [line.strip().rstrip("↵") for line in out.stdout.splitlines()]
    check("--show: answers count", shown[1:5] == ["-- document 1 begins", "-- not in the loss", "<|im_start|>user",
                                                 "x<|im_end|>"] and "-- in the loss" in shown, out.stdout)
    generate = os.path.join(os.path.dirname(TRAIN), "generate")
    out = subprocess.run([generate, "bpe.run", "--export", "exported", "--quiet"], capture_output=True, text=True,
                         timeout=120, check=False)
    check("an export has the template", AutoTokenizer.from_pretrained("exported").chat_template ==
          AutoTokenizer.from_pretrained("bpe.run").chat_template, out.stderr)
    card = open("exported/README.md", encoding="utf-8").read()
    python = card[card.index("from transformers"):card.index("```\n\n```")].replace('"DIR"', '"exported"')
    check("the card has ./generate -i and Ollama", "generate DIR -i\n" in card and "ollama run my-model\n" in card, card)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(python, {})  # pylint: disable=exec-used
    check("the Python of the card answers", "apply_chat_template" in python and said.getvalue().endswith("\n"), python)
    subprocess.run([generate, "words.run", "--export", "words", "--quiet"], capture_output=True, timeout=120, check=False)
    check("no Ollama where llama.cpp cannot read the tokenizer", "ollama" not in open("words/README.md", encoding="utf-8").read())
    result = json.load(open("loss512.run/result.json", encoding="utf-8"))["kept"]["loss"]
    out = subprocess.run([generate, "loss512.run", "--score", "val.jsonl", "--quiet", "--device", "cpu", "--dtype",
                          "f32"], capture_output=True, text=True, timeout=120, check=False)
    check("--score gives the loss of answers", out.returncode == 0 and
          abs(json.loads(out.stdout)["val_loss"] - result) < 1e-5, (out.stdout, out.stderr, result))


def bad_files():
    def chat(*messages, **more):
        return json.dumps({"messages": list(messages), **more})

    def said(role, text, **more):
        return {"role": role, "content": text, **more}
    ask, answer = said("user", "a"), said("assistant", "b")
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    cases = [
        (chat(ask), "without an answer"), (chat(), "without an answer"),
        (chat(ask, answer, answer), "second in a row of the assistant"),
        (chat(ask, ask, answer), "second in a row of the user"), (chat(ask, said("tool", "x"), answer), '"tool"'),
        (chat(ask, said("Assistant", "x")), '"Assistant"'), (chat({"content": "x"}, answer), "has no role"),
        (chat(said("user", [{"type": "text", "text": "x"}, picture]), answer), '"image_url"'),
        (chat(said("user", []), answer), "is empty"), (chat(said("user", ""), answer), "is empty"),
        (chat(ask, said("assistant", "")), "is empty"), (chat(ask, said("assistant", None)), "null"),
        (chat(ask, {"role": "assistant"}), "no content"), (chat(ask, said("assistant", 3)), "a number"),
        (chat(ask, said("assistant", None, tool_calls=[{"id": 1}])), "calls a tool"),
        (chat(ask, answer, said("system", "x"), answer), "system prompt"),
        (chat(said("system", "x"), ask, answer, system="y"), "system prompt"),
        (chat(ask, said("assistant", "b", weight=0), ask, answer), "weight 0"),
        (chat(said("user", ["x"]), answer), "a string as a part"),
        ('{"instruction": "x", "output": "y", "history": [["x", ""]]}', '"history" is empty'),
        ('{"messages": "x"}', "a string as messages"),
        ('{"messages": [1, 2]}', "not an object"), ('{"messages": {"role": "user"}}', "an object as messages"),
        ('{"conversations": [{"from": "human", "value": "x"}, {"from": "bing", "value": "y"}]}', '"bing"'),
        ('{"instruction": "x", "output": null}', "null"), ('{"instruction": "", "output": "y"}', "is empty"),
        (chat(ask, answer)[:-2], "not valid JSON"), ('{"document": "x"}', 'no field "text"'),
    ]
    good = chat(ask, answer)
    for i, (line, why) in enumerate(cases):
        with open("bad.jsonl", "w", encoding="utf-8") as file:
            file.write(f"{good}\n{line}\n{good}\n")
        out = train("bad.jsonl", *TINY, "--ctx", "64", "--out", f"bad{i}.run")
        told = out.stderr.strip().splitlines()
        check(f"refused: {why} ({i})", out.returncode == 3 and len(told) == 1 and "bad.jsonl, line 2" in told[0]
              and why in told[0] and not os.path.exists(f"bad{i}.run/model.safetensors"), (out.returncode, out.stderr))
    ann, names = ["--speaker", "Ann"], 'line 3, begins a conversation without a line of Ann, but of "Bob", "Tom";'
    for text, flags, why in (("Ann: x\nno name\n", ann, "line 2"), ("Ann: x\n\nBob: y\nTom: z\nBob: y\n", ann, names),
                             ("Bob: y\nAnn: \n", ann, "line 2"), ("Ann: x\n", [], "--speaker")):
        with open("bad.chat", "w", encoding="utf-8") as file:
            file.write(text)
        out = train("bad.chat", *TINY, "--ctx", "64", *flags, "--out", "badchat.run")
        check(f"refused: {why} of lines", out.returncode == 3 and why in out.stderr, out.stderr)
    with open("bad.jsonl", "w", encoding="utf-8") as file:
        file.write(chat(ask, answer, ask, said("assistant", "b" * 100)) + "\n")
    out = train("bad.jsonl", *TINY, "--ctx", "64", "--out", "badlong.run")
    check("refused: a last answer that is too long", out.returncode == 3 and "longer --ctx" in out.stderr, out.stderr)
    out = train("chats.jsonl", *TINY, "--pack", "stream", "--out", "stream.run")
    check("refused: --pack stream", out.returncode == 2 and "--pack stream" in out.stderr, out.stderr)


# ---- models of others ----

def families():
    run = ["--steps", "1", "--sample-tokens", "0", "--device", "cpu", "--dtype", "f32", "--threads", "1", "--quiet",
           "--val-frac", "0"]
    for name, (template, special, bos, eos, end, system) in FAMILIES.items():
        made = conversations(7, 50, system)
        made[3][-1]["content"] = "<think>\nhm\n</think>\n\nso"
        write("family.jsonl", made)
        fast = save_model("base", template, special, bos, eos)
        out = train("family.jsonl", "--init", "base", *run, "--out", "family.run", "--overwrite")
        check(f"{name}: a run", out.returncode == 0, out.stderr)
        if out.returncode:
            continue
        check_tokens(name, "family.run", made, end, name != "Qwen 3", "| trim" in template or "|trim" in template)
        again = AutoTokenizer.from_pretrained("family.run")
        check(f"{name}: the template is kept", again.chat_template == fast.chat_template, again.chat_template)
        if not system:
            write("system.jsonl", [[{"role": "system", "content": "x"}] + made[0]])
            out = train("system.jsonl", "--init", "base", *run, "--out", "system.run")
            check(f"{name}: no system prompt", out.returncode == 3 and "no system prompt" in out.stderr, out.stderr)
    save_model("base", "{{ strange }}", IM, None, "<|im_end|>")
    out = train("family.jsonl", "--init", "base", *run, "--out", "strange.run")
    check("another template is refused", out.returncode == 4 and "{{ strange }}" in out.stderr, out.stderr)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for test in new_models, special_texts, other_forms, losses, shown_and_exported, bad_files, families:
        test()
print("done")
sys.exit(failed)
