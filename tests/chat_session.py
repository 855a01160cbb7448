#!/usr/bin/env python3
"""Tests talking to a model with a chat template: ./generate -i, -p and --prompts with messages.

    tests/chat_session.py     # BIN: the directory of train and generate (default: .)

A tiny model learns to answer, and to end its answers. Prints `ok NAME` or `not ok NAME: why` for each check, then `done`.
"""

import json
import os
import random
import re
import subprocess
import tempfile

BIN = os.path.abspath(os.environ.get("BIN", "."))
CTX = 256
NUMBERS = "one two three four five six seven eight nine ten".split()
failed = False


def check(name, ok, why=""):
    global failed
    failed |= not ok
    print(f"ok {name}" if ok else f"not ok {name}: {str(why)[:600]!r}", flush=True)


def run(program, *flags, text=""):
    return subprocess.run([os.path.join(BIN, program), *flags], input=text, capture_output=True, text=True, timeout=300,
                          check=False)


def conversation(rng):
    """The answer to a number is the next one, and after "again" the same one."""
    messages, n = [{"role": "system", "content": "Be brief."}] if rng.random() < 0.2 else [], 0
    for _ in range(rng.randint(1, 4)):
        again = messages and messages[-1]["role"] == "assistant" and rng.random() < 0.4
        n = n if again else rng.randrange(9)
        messages.append({"role": "user", "content": "again" if again else f"say {NUMBERS[n]}"})
        messages.append({"role": "assistant", "content": f"{NUMBERS[n + 1]}."})
    return messages


def sizes(log):
    """(tokens of the answer, of the prompt, of these the new ones) of each note."""
    found = re.findall(r"note: (\d+) tokens? after a prompt of (\d+)(?:, (\d+) of them new)?", log)
    return [(int(a), int(p), int(new or p)) for a, p, new in found]


def talk(*lines, flags=()):
    return run("generate", "t.run", "-i", "--greedy", *flags, text="".join(line + "\n" for line in lines))


def request(messages, **more):
    line = json.dumps({"messages": messages, "temperature": 0, **more})
    out = run("generate", "t.run", "--prompts", "-", text=line + "\n")
    return json.loads(out.stdout) if out.stdout else {"stderr": out.stderr}


def sessions():
    lines = ["say two", "again", "say seven", "again"]
    out = talk(*lines)
    answers = out.stdout.split("\n")[:-1]
    check("answers end by themselves", len(answers) == 4 and out.stderr.count("end of text") == 4, out)
    check("answers are right", answers == ["three.", "three.", "eight.", "eight."], answers)
    messages = []
    for line, answer in zip(lines, answers):
        messages.append({"role": "user", "content": line})
        reply = request(messages)
        check(f"the same with the whole conversation: {line}", reply["choices"][0]["message"]["content"] == answer, reply)
        messages.append({"role": "assistant", "content": answer})
    notes = sizes(out.stderr)
    check("prompts grow by what was said", all(b[1] - b[2] == a[1] + a[0] for a, b in zip(notes, notes[1:])), notes)
    check("only new tokens are computed", all(new < 16 for _, _, new in notes), notes)

    long = talk(*["say four", "again"] * 30)
    notes = sizes(long.stderr)
    check("60 turns are answered", long.stdout.split("\n")[:-1] == ["five."] * 60, long.stdout)
    check("the context is never exceeded", len(notes) == 60 and all(a + p <= CTX for a, p, _ in notes), notes)
    whole = [n for n in notes if n[2] == n[1]]
    check("the whole prompt is computed only when the context was full",
          len(whole) == 1 + long.stderr.count("no longer sees") and len(whole) < 12, whole)

    out = talk("say two", "/retry", "/undo", "say nine", "/text", "/reset", "say one", "/text")
    check("/retry, /undo, /reset, /text", out.stdout.split("\n")[:-1] ==
          ["three.", "three.", "ten.", "user: say nine", "assistant: ten.", "two.", "user: say one", "assistant: two."], out)
    with open("answer.jsonl", "w", encoding="utf-8") as file:
        file.write('{"messages": [{"role": "assistant", "content": "three."}]}\n')
    out = talk("/load answer.jsonl", "/retry", "say two")
    check("/retry of a loaded answer without a question", out.returncode == 0 and out.stdout.endswith("three.\n"), out)
    out = talk("/system Be brief.", "say two", "/save saved.jsonl", "/reset", "/load saved.jsonl", "again", "/text")
    saved = json.load(open("saved.jsonl", encoding="utf-8"))
    check("/save writes messages", saved["messages"] == [{"role": "system", "content": "Be brief."},
                                                         {"role": "user", "content": "say two"},
                                                         {"role": "assistant", "content": "three."}], saved)
    check("/load goes on", out.stdout.endswith("user: again\nassistant: three.\n") and "system: Be brief." in out.stdout, out)
    check("what was saved can be learned", run("train", "saved.jsonl", "--dry-run", "--ctx", "64").returncode == 0)
    out = talk("say two", "/reset", "/text", "say one", "/text", flags=["--system", "Be brief."])
    check("--system begins a chat and stays", out.stdout.split("\n")[:-1] ==
          ["three.", "system: Be brief.", "two.", "system: Be brief.", "user: say one", "assistant: two."], out)
    out = talk("say two", "/system Be brief.", "/system brief.", "/text", "again", "/system")
    check("/system adds and replaces a system prompt", out.stdout.split("\n")[:-1] ==
          ["three.", "system: brief.", "user: say two", "assistant: three.", "three."] and out.stderr.endswith("note: brief.\n"), out)
    out = talk("/n 0", "say two", "/n 5", "say one", "/save part.jsonl", "/load part.jsonl", "/text")
    check("/save leaves out what has no answer", out.stdout == "\ntwo.\nuser: say one\nassistant: two.\n", out)
    with open("long.jsonl", "w", encoding="utf-8") as file:
        json.dump({"messages": [{"role": "user", "content": "say two"}, {"role": "assistant", "content": "three."}] * 10000}, file)
    out = talk("/load long.jsonl", "say nine", "again")
    notes = sizes(out.stderr)
    check("a chat of 20000 messages", len(notes) == 2 and CTX // 3 < notes[0][1] <= CTX // 2 and notes[1][2] < 16, out)
    out = talk("say seven", "/text", "say two", "/save half.jsonl", flags=["--stop", "gh"])
    check("a stop text inside a word of a vocabulary of words", out.stdout ==
          "ei\nuser: say seven\nassistant: \nthree.\n" and "first 0 of its 2 bytes" in out.stderr, out)
    out = talk("say two", "say seven", "/text", "say one", flags=["--stop", "."])
    check("a stop text after a word stays cut there", out.stdout.endswith("assistant: eight\ntwo\n") and
          "bytes" not in out.stderr, out)
    out = talk("/system " + "say two " * 200)
    check("a system prompt that is too long", out.returncode == 3 and "this system prompt makes 40" in out.stderr, out)
    with open("question.jsonl", "w", encoding="utf-8") as file:
        file.write('{"messages": [{"role": "user", "content": "say two"}]}\n')
    out = talk("/load question.jsonl", " ", "say nine")
    check("a question without an answer is left out", out.stdout == "ten.\n" and "has no answer" in out.stderr, out)
    out = talk("/system nonsense")
    check("a system prompt that cannot be encoded", out.returncode == 3 and "nonsense" in out.stderr, out)
    out = talk("say two", "/load missing.jsonl")
    check("a missing file is one line", out.returncode == 3 and out.stderr.strip().split("\n")[-1].startswith("generate: "), out)


def prompts():
    out = run("generate", "t.run", "-p", "say two", "--greedy")
    check("-p is the turn of a user", out.stdout.strip() == "three.", out)
    plain = run("generate", "t.run", "-p", "<|im_start|>user\nsay two<|im_end|>\n<|im_start|>assistant\n", "--raw",
                "--special", "--greedy")
    check("--raw takes the bytes as they are", plain.stdout == out.stdout, plain)
    system = run("generate", "t.run", "-p", "say two", "--system", "Be brief.", "--greedy", "--json")
    count = json.loads(system.stdout)["usage"]["prompt_tokens"]
    check("--system is a turn of its own", count > json.loads(
        run("generate", "t.run", "-p", "say two", "--greedy", "--json").stdout)["usage"]["prompt_tokens"], system)
    reply = request([{"role": "user", "content": "say two"}], n=2)
    check("a chat completion", reply["object"] == "chat.completion" and len(reply["choices"]) == 2 and
          reply["choices"][1]["message"] == {"role": "assistant", "content": "three."} and
          reply["choices"][0]["finish_reason"] == "stop" and reply["usage"]["prompt_tokens"] > 5, reply)
    out = run("generate", "t.run", "--prompts", "-", "--system", "Be brief.", "--greedy",
              text=json.dumps({"messages": [{"role": "user", "content": "say two"}]}) + "\n")
    check("--system is for requests without one", json.loads(out.stdout)["usage"]["prompt_tokens"] == count, out)
    long = [{"role": "system", "content": "Be brief."}]
    for number, following in list(zip(NUMBERS, NUMBERS[1:])) * 4:
        long += [{"role": "user", "content": f"say {number}"}, {"role": "assistant", "content": f"{following}."}]
    long.append({"role": "user", "content": "say four"})
    reply = request(long)
    check("a conversation that is too long", "drops its oldest messages" in reply.get("error", {}).get("message", ""), reply)
    out = run("generate", "t.run", "--prompts", "-", "--greedy", "--truncate-prompt", "left", text=json.dumps({"messages": long}) + "\n")
    reply = json.loads(out.stdout)
    same = [request(long[:1] + long[at:])["usage"]["prompt_tokens"] for at in range(41, len(long), 2)]
    check("--truncate-prompt left drops its oldest messages", CTX // 3 < reply["usage"]["prompt_tokens"] <= CTX // 2 and
          reply["usage"]["prompt_tokens"] in same and reply["choices"][0]["message"]["content"] == "five.", (out, same))
    words = {"messages": [{"role": "user", "content": "say two " * 200}]}
    reply = request(words["messages"])
    check("there is no advice for one long message", "than the context of" in reply["error"]["message"] and
          "--truncate-prompt" not in reply["error"]["message"], reply)
    out = run("generate", "t.run", "--prompts", "-", "--truncate-prompt", "left", text=json.dumps(words) + "\n")
    check("a message is not cut", "this message makes" in out.stdout, out)
    cut = request([{"role": "user", "content": "say two"}], max_tokens=1)
    check("an answer that is cut", cut["choices"][0]["finish_reason"] == "length", cut)
    user = {"role": "user", "content": "one"}
    for name, messages, why in [("no message", [], "the user"), ("two of the user", [user, user], "second in a row"),
                                ("an answer last", [user, {"role": "assistant", "content": "two."}], "the user"),
                                ("another role", [{"role": "tool", "content": "one"}], "role"),
                                ("a number", 3, "a number"), ("nothing in it", [{"role": "user", "content": ""}], "empty")]:
        reply = request(messages)
        check(f"refused: {name}", why in reply.get("error", {}).get("message", ""), reply)


def files_for_others():
    run("train", "t.jsonl", "--out", "b.run", "--tokenizer", "byte", "--layers", "1", "--heads", "1", "--dim", "32", "--steps", "1",
        "--sample-tokens", "0", "--quiet")
    out = run("generate", "b.run", "--gguf", "t.gguf", "--modelfile", "Modelfile")
    template = json.load(open("b.run/tokenizer_config.json", encoding="utf-8"))["chat_template"].encode()
    key, length = b"tokenizer.chat_template", len(template).to_bytes(8, "little")
    check("the GGUF has the template", key + (8).to_bytes(4, "little") + length + template in open("t.gguf", "rb").read(), out)
    want = 'TEMPLATE """{{ range .Messages }}'
    for role in "system", "user", "assistant":
        want += f'{{{{ if eq .Role "{role}" }}}}<|im_start|>{role}\n{{{{ .Content }}}}<|im_end|>\n{{{{ end }}}}'
    want += '{{ end }}<|im_start|>assistant\n"""\nPARAMETER stop "<|im_end|>"\n'
    check("the Modelfile has it", want in open("Modelfile", encoding="utf-8").read(), open("Modelfile", encoding="utf-8").read())
    check("llama.cpp's command is a chat", out.stdout.startswith("llama-cli -m t.gguf -cnv"), out)


def main():
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        rng = random.Random(1)
        with open("t.jsonl", "w", encoding="utf-8") as file:
            for _ in range(900):
                file.write(json.dumps({"messages": conversation(rng)}) + "\n")
        made = run("train", "t.jsonl", "--out", "t.run", "--tokenizer", "words", "--layers", "2", "--heads", "2", "--dim", "64", "--ctx",
                   str(CTX), "--steps", "260", "--sample-tokens", "0", "--threads", "2")
        check("training", made.returncode == 0, made)
        check("its last line is how to talk to it", re.search(r"Talk to it: \S*generate t.run -i$", made.stderr.strip()), made.stderr)
        sessions()
        prompts()
        files_for_others()
    print("done")


if __name__ == "__main__":
    main()
