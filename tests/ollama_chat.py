#!/usr/bin/env python3
"""Tests the TEMPLATE of Modelfiles: rendered as ollama does it, conversations are those of transformers' apply_chat_template.

    apt install golang-go; pip install transformers torch
    tests/ollama_chat.py     # BIN: the directory of generate (default: .)

Prints `ok NAME` or `not ok NAME: why` for each check, then `done`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    from chat_families import FAMILIES, conversations, save_model, text_of
except ImportError as missing:
    print(f"skipped ollama_chat: {missing.name} is missing\ndone")
    sys.exit(0)

import chat_session
from chat_session import check, run

# What ollama's template.go does with a template that uses .Messages, for conversations without two messages of a role in a row.
RENDER = """
package main

import (
	"encoding/json"
	"os"
	"strings"
	"text/template"
)

type Message struct{ Role, Content string }

func main() {
	var chats [][]Message
	var texts []string
	text, _ := os.ReadFile("TEMPLATE")
	made := template.Must(template.New("").Option("missingkey=zero").Parse(string(text)))
	if err := json.NewDecoder(os.Stdin).Decode(&chats); err != nil {
		panic(err)
	}
	for _, messages := range chats {
		var system, out strings.Builder
		for _, m := range messages {
			if m.Role == "system" {
				system.WriteString(m.Content)
			}
		}
		values := map[string]any{"System": system.String(), "Messages": messages, "Response": ""}
		if err := made.Execute(&out, values); err != nil {
			panic(err)
		}
		texts = append(texts, out.String())
	}
	json.NewEncoder(os.Stdout).Encode(texts)
}
"""


def family(name):
    template, special, bos, eos, _, system = FAMILIES[name]
    tokenizer = save_model("base", template, special, bos, eos)
    out = run("generate", "base", "--gguf", "base.gguf", "--modelfile", "Modelfile", "--quiet")
    check(f"{name}: a Modelfile", out.returncode == 0, out)
    text = re.search(r'^TEMPLATE """(.*?)"""$', open("Modelfile", encoding="utf-8").read(), re.DOTALL | re.MULTILINE).group(1)
    check(f"{name}: ollama gives it the messages", "range .Messages" in text, text)
    with open("TEMPLATE", "w", encoding="utf-8") as file:
        file.write(text)
    chats = [chat[:-1] if chat[-1]["role"] == "assistant" else chat for chat in conversations(13, 40, system, ragged=False)]
    done = subprocess.run(["./render"], input=json.dumps(chats), capture_output=True, text=True, check=False)
    found = json.loads(done.stdout) if done.returncode == 0 else []
    want = [text_of(tokenizer, chat, add_generation_prompt=True).removeprefix(bos or "") for chat in chats]
    wrong = [(ours, theirs) for ours, theirs in zip(found, want) if ours != theirs]
    check(f"{name}: the text of apply_chat_template", len(found) == len(want) and not wrong, wrong[:1] or done.stderr)


def main():
    if not shutil.which("go"):
        print("skipped ollama_chat: go is missing\ndone")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("render.go", "w", encoding="utf-8") as file:
            file.write(RENDER)
        done = subprocess.run(["go", "build", "-o", "render", "render.go"], capture_output=True, text=True, check=False,
                              env={**os.environ, "GOCACHE": os.path.join(folder, "cache")})
        check("a program that renders templates", done.returncode == 0, done.stderr)
        for name in FAMILIES:
            family(name)
    print("done")
    sys.exit(chat_session.failed)


if __name__ == "__main__":
    main()
