#!/usr/bin/env python3
"""Checks README.md, CONTRIBUTING.md and docs/*.md: every link has a target, every named file exists, every function
named with its file is defined in that file, exit statuses have the words of --help, and every script can be run as the
pages run it."""
import os
import re
import sys

failed = False


def check(name, wrong):
    global failed
    failed = failed or bool(wrong)
    print(("not ok " if wrong else "ok ") + name)
    for line in wrong:
        print("  " + line)


def pages():
    docs = sorted("docs/" + name for name in os.listdir("docs") if name.endswith(".md"))
    return ["README.md", "CONTRIBUTING.md"] + docs


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    out = set()
    for line in open(path, encoding="utf-8"):
        if re.match(r"#+ ", line):
            title = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower().replace("`", ""))
            out.add(title.replace(" ", "-"))
    return out


def broken_links(page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(path):
            yield f"{page}: {target} is not there"
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            yield f"{page}: {target}: no such heading"


SOURCE = r"(?:[a-z_0-9]+/)*[a-zA-Z_0-9]+\.(?:cuh|cu|c|h|py|sh|mk)"


def missing_files(page, text):
    for path in re.findall(r"`((?:[a-z_0-9]+/)+[a-zA-Z_0-9]+\.(?:cuh|cu|c|h|py|sh|mk))\b", text):
        if not os.path.exists(path) and not os.path.exists(os.path.join("docs", path)):
            yield f"{page}: {path} is not there"


def missing_functions(page, text):
    for path, function in re.findall(r"`(" + SOURCE + r"):\s+([a-z_0-9]+)\(\)`", text):
        source = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        if not re.search(r"^[\w *]*\b" + function + r"\([^;]*?\) \{", source, re.M | re.S):
            yield f"{page}: {path} does not define {function}()"


def other_statuses(page):
    """The exit statuses that --help explains in other words than the page does, or not at all."""
    source = open("src/base/error.h", encoding="utf-8").read()
    rows = re.findall(r'ROW\(EXIT_\w+,\s*(\d+(?: \+ n)?),\s*"([^"]+)"\)', source)
    listed = {status: words for status, words in re.findall(r"^\| (\d+(?: \+ n)?) \| ([^|]+?) \|$", page, re.M)}
    if len(rows) < 10 or len(rows) != len(listed):
        yield f"{len(listed)} statuses instead of {len(rows)}"
    for status, words in rows:
        if not listed.get(status, "").startswith(words):
            yield f"{status} is \"{listed.get(status, '')}\" instead of \"{words}\""


def scripts_without_permission():
    for folder in (".ci", "data", "scripts", "tests"):
        for parent, _, names in os.walk(folder):
            for path in (os.path.join(parent, name) for name in names):
                with open(path, "rb") as file:
                    if file.read(2) == b"#!" and not os.access(path, os.X_OK):
                        yield f"{path} is not executable"


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    texts = {page: open(page, encoding="utf-8").read() for page in pages()}
    check("links lead somewhere", [line for page in texts for line in broken_links(page, texts[page])])
    check("files that are named are there", [line for page in texts for line in missing_files(page, texts[page])])
    check("functions are in their files", [line for page in texts for line in missing_functions(page, texts[page])])
    check("exit statuses have the words of --help", list(other_statuses(texts["docs/runs.md"])))
    check("scripts are executable", list(scripts_without_permission()))
    heading = "## " + open("VERSION", encoding="utf-8").read().strip() + " (20"  # the date, which man pages have
    check("CHANGELOG.md dates the version", [] if heading in open("CHANGELOG.md", encoding="utf-8").read() else [heading])
    check("the README has at most 160 lines", [] if texts["README.md"].count("\n") <= 160 else ["README.md is longer"])
    print("done")
    return 1 if failed else 0


sys.exit(main())
