#!/usr/bin/env python3
"""How far a reader must walk through the source to follow a function: walk.py FUNCTION...

Enters every function where it is named first, in the order of the source, and prints how many functions that are, in
how many files, and the climbs: how often the walk enters a file that it had left. Once for all of the source, and once
for train.c and src/train alone. Needs Universal Ctags; reads the source in the current directory."""
import glob
import json
import re
import subprocess
import sys

SOURCES = ["train.c", "generate.c", "model.c"] + [s for s in glob.glob("src/**/*.c", recursive=True) if "/mpi/" not in s]


def names_in(function):
    """The names in the text of a function that may be those of functions: no fields and no variables."""
    text = re.sub(r'/\*.*?\*/|"(\\.|[^"\\])*"|(\.|->)\s*\w+', "", function[function.find("("):], flags=re.S)
    variables = {name for word, name in re.findall(r"\b(\w+)[ *]+(?=(\w+))", text) if word not in ("return", "else")}
    variables |= set(re.findall(r", \*?(\w+)(?= = |;)", text))
    return [name for name in re.findall(r"\b[a-z_]\w*\b", text) if name not in variables]


def read_functions():
    """The names in each (function, file), and the files of the functions that other files can call."""
    command = ["ctags", "--output-format=json", "--fields=+ne", "--kinds-C=f", "-f", "-", *SOURCES]
    tags = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names, files = {}, {}
    for tag in map(json.loads, tags.splitlines()):
        with open(tag["path"], encoding="utf-8") as file:
            lines = file.read().split("\n")[tag["line"] - 1:tag["end"]]
        names[tag["name"], tag["path"]] = names_in("\n".join(lines))
        if not tag.get("file"):
            files[tag["name"]] = tag["path"]
    return names, files


def walk(start, names, files, beginnings):
    seen, rooms, climbs, here = set(), set(), 0, None

    def enter(function):
        nonlocal climbs, here
        seen.add(function)
        climbs += function[1] != here and function[1] in rooms
        here = function[1]
        rooms.add(here)
        for name in names[function]:
            file = function[1] if (name, function[1]) in names else files.get(name)
            if file and (name, file) not in seen and file.startswith(beginnings):
                enter((name, file))

    enter(start)
    return f"{len(seen)} functions, {len(rooms)} files, {climbs} climbs"


def main():
    sys.setrecursionlimit(10000)
    names, files = read_functions()
    for start in [function for name in sys.argv[1:] for function in names if function[0] == name]:
        print(f"{start[0]} ({start[1]}): {walk(start, names, files, '')}; "
              f"in ./train: {walk(start, names, files, (start[1], 'train.c', 'src/train/'))}")


main()
