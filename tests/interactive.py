#!/usr/bin/env python3
"""Tests the programs on a pseudo-terminal.

`./generate -i` gets lines, edits, commands, Ctrl-C and Ctrl-D as from a user; both programs are also tested on simpler
terminals.

    tests/interactive.py     # BIN: directory of train and generate (default: .)

Prints `ok NAME` or `not ok NAME: why` for each check, then `done`.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

SECONDS = 60  # longer is a hang
failed = False


def check(name, ok, why=""):
    global failed
    failed |= not ok
    print(f"ok {name}" if ok else f"not ok {name}: {why!r}", flush=True)


class Session:
    """A program on a terminal; `out` is its stdout, which is separate from the terminal unless `stdout` is set."""

    def __init__(self, command, folder, environment=None, columns=300, stdout=False):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        self.terminal = master
        self.path = os.path.join(folder, "stdout")
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(command, cwd=folder, stdin=slave, stdout=slave if stdout else out, stderr=slave,
                                            start_new_session=True, env={**os.environ, "TERM": "xterm", **(environment or {})},
                                            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = b""
        self.at = 0  # of `seen`: what was looked at

    def read(self, seconds):
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.terminal, 65536)
        except OSError:
            data = b""
        self.seen += data
        return bool(data)

    def wait(self, pattern):
        """Waits until the terminal shows it, after the text of the previous wait."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = re.search(pattern, self.seen[self.at:])
            if found:
                self.at += found.end()
                return found
            if not self.read(0.2) and self.process.poll() is not None:
                break
        raise TimeoutError(f"no {pattern!r} in {self.seen[self.at:]!r}")

    def type(self, text):
        os.write(self.terminal, text)

    def say(self, text, pattern=rb"stopped: ([a-z ]+); seed (\d+)"):
        """Types a line and waits for the note after the answer and for the next prompt."""
        self.type(text + b"\r")
        found = self.wait(pattern)
        self.wait(rb"> ")
        return found

    def out(self):
        with open(self.path, "rb") as file:
            return file.read()

    def end(self):
        end = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        if self.process.poll() is None:
            self.process.kill()
        while self.read(0):
            pass
        os.close(self.terminal)
        return self.process.wait()


def single(generate, folder, text, seed, *more):
    return subprocess.run([generate, "a.run", "-p", text, "--seed", str(seed), "--quiet", "--device", "cpu", *more], cwd=folder,
                          capture_output=True, check=True).stdout


def texts(generate, folder):
    s = Session([generate, "a.run", "-i", "-n", "20", "--seed", "7", "--device", "cpu"], folder)
    s.wait(rb"> ")
    found = s.say(b"Once")
    first = s.out()
    check("a line is continued as by -p", first == single(generate, folder, "Once", 7, "-n", "20") + b"\n", first)
    check("with the seed that was given", found.group(2) == b"7", found)
    found = s.say(b"/retry")
    second = s.out()[len(first):]
    check("/retry has the next seed", found.group(2) == b"8" and
          second == single(generate, folder, "Once", 8, "-n", "20") + b"\n", second)
    story = b"Once" + second[:-1]
    s.say(b"/save story.txt", rb"bytes in story.txt")
    with open(os.path.join(folder, "story.txt"), "rb") as file:
        check("/save writes the text", file.read() == story)
    s.say(b"/save text.txt", rb"text.txt is there already")
    s.say(b"/save story.txt", rb"bytes in story.txt")
    with open(os.path.join(folder, "story.txt"), "ab") as file:
        file.write(b"mine")
    s.say(b"/save story.txt", rb"story.txt is there already")
    with open(os.path.join(folder, "story.txt"), "wb") as file:
        file.write(story)
    s.say(b"", rb"seed 9")
    longer = s.out()[len(first) + len(second):]
    check("an empty line goes on", longer == single(generate, folder, story.decode("latin-1"), 9, "-n", "20") + b"\n", longer)
    s.say(b"/undo", rb"back to")
    s.say(b"/n 5", rb"/n 5\r\n")
    before = len(s.out())
    s.say(b"/seed 9", rb"/seed 9\r\n")
    s.say(b"", rb"seed 9")
    shorter = s.out()[before:]
    check("/undo and /seed: the same once more, /n: shorter", longer.startswith(shorter[:-1]) and len(shorter) < len(longer),
          (longer, shorter))
    s.say(b"/temp 99999", rb"--temp: got \"99999\"")
    s.say(b"/temp 0.5", rb"/temp 0.5\r\n")
    s.say(b"/temp", rb"temp 0.5")
    for name, value in ((b"top-k", b"3"), (b"top-p", b"0.5"), (b"min-p", b"0.25"), (b"repeat-penalty", b"2"), (b"repeat-last-n", b"7"),
                        (b"presence-penalty", b"1"), (b"frequency-penalty", b"-1")):
        initial = s.say(b"/" + name, rb"m " + name + rb" ([0-9.]+)\r\n").group(1)
        s.say(b"/" + name + b" " + value, b"/" + name + b" " + value + rb"\r\n")
        s.say(b"/" + name, rb"m " + name + b" " + value + rb"\r\n")
        s.say(b"/" + name + b" " + initial, b"/" + name + b" " + initial + rb"\r\n")
    s.say(b"/nonsense", rb"/nonsense is no command; /help")
    s.say(b"/help", rb"frequency-penalty[^\r]*\r\n  Ctrl-C stops")
    s.say(b"/load story.txt", rb"bytes of story.txt")
    s.say(b"/load nothing.txt", rb"nothing.txt: No such file")
    before = len(s.out())
    s.say(b"/text", rb"/text\r\n")
    check("/load and /text", s.out()[before:] == story + b"\n", s.out()[before:])
    s.say(b"/new", rb"/new\r\n")
    before = len(s.out())
    s.say(b"/seed 7", rb"/seed 7\r\n")
    s.say(b"/temp 0.8", rb"0.8\r\n")
    s.say(b"/n 20", rb"20\r\n")
    s.say(b"Once")
    check("/new begins as at the beginning", s.out()[before:] == first, s.out()[before:])
    s.type(b"\x04")
    check("Ctrl-D ends with 0", s.end() == 0)


def editing(generate, folder):
    s = Session([generate, "a.run", "-i", "-n", "4", "--seed", "7", "--device", "cpu"], folder, {"LC_ALL": "C"})
    s.wait(rb"> ")
    if b"without libedit" in s.seen:
        print("skipped editing: built without libedit, or it is not installed")
        s.type(b"\x04")
        s.end()
        return
    s.say(b"Onxe\x1b[D\x1b[D\x1b[3~c")  # two to the left, delete, another letter
    s.say(b"/text", rb"/text\r\n")
    check("a line is edited", s.out().split(b"\n")[-2].startswith(b"Once"), s.out())
    s.say(b"/new", rb"/new\r\n")
    s.say(b"\x1b[A\x1b[A\x1b[A")  # three up
    s.say(b"/text", rb"/text\r\n")
    check("lines come again", s.out().split(b"\n")[-2].startswith(b"Once"), s.out())
    s.say(b"/new", rb"/new\r\n")
    s.say("éa€\x1b[D\x08b".encode())  # left, the one before it goes
    s.say(b"/text", rb"/text\r\n")
    check("characters beyond ASCII are edited whole", "éb€".encode() in s.out(), s.out())
    s.type(b"thrown away\x03")
    s.wait(rb"\^C")
    s.wait(rb"> ")
    s.say(b"/new", rb"/new\r\n")
    s.say(b"b")
    check("Ctrl-C drops the line", b"thrown" not in s.out())
    s.type(b"/quit\r")
    check("/quit ends with 0", s.end() == 0)


def interrupt_answer(s, line, size):
    """Types a line, and Ctrl-C once `size` bytes of the answer have come."""
    before = len(s.out())
    s.type(line + b"\r")
    end = time.monotonic() + SECONDS
    while len(s.out()) < before + size and time.monotonic() < end:
        time.sleep(0.01)
    s.type(b"\x03")
    s.wait(rb"stopped: interrupted")
    s.wait(rb"> ")


def interrupts(generate, folder):
    s = Session([generate, "a.run", "-i", "-n", "100000000", "--ignore-eos", "--seed", "7", "--device", "cpu"], folder)
    s.wait(rb"> ")
    for _ in range(3):
        interrupt_answer(s, b"Once", 50)
    check("Ctrl-C stops the text and not the program", s.process.poll() is None)
    s.process.send_signal(signal.SIGTERM)
    check("SIGTERM ends it", s.end() == 128 + signal.SIGTERM)
    s = Session([generate, "a.run", "-i", "-n", "100000000", "--ignore-eos", "--device", "cpu"], folder)
    s.wait(rb"> ")
    s.type(b"Once\r")
    s.wait(rb"\n")
    s.process.send_signal(signal.SIGTERM)
    check("SIGTERM ends an answer", s.end() == 128 + signal.SIGTERM)


def chats(generate, folder):
    """A model with a chat template, which has not learned to end its answers."""
    with open(os.path.join(folder, "chat.jsonl"), "w", encoding="ascii") as file:
        for i in range(100):
            file.write(json.dumps({"messages": [{"role": "user", "content": f"{i}"}, {"role": "assistant", "content": f"{i + 1}"}]}) + "\n")
    subprocess.run([os.path.join(os.path.dirname(generate), "train"), "chat.jsonl", "--layers", "1", "--heads", "2", "--dim", "32",
                    "--ctx", "192", "--batch", "8", "--steps", "2", "--tokenizer", "byte", "--sample-tokens", "0", "--device", "cpu",
                    "--quiet", "--out", "chat.run"], cwd=folder, check=True)
    s = Session([generate, "chat.run", "-i", "-n", "100000000", "--ignore-eos", "--device", "cpu"], folder)
    s.wait(rb"> ")
    for _ in range(2):
        interrupt_answer(s, b"1", 20)
    s.say(b"/n 2", rb"/n 2\r\n")
    check("Ctrl-C stops an answer, and the next message is answered", s.say(b"2").group(1) == b"length")
    s.say(b"/reset", rb"/reset\r\n")
    sizes = [int(s.say(b"3", rb"after a prompt of (\d+)").group(1))]
    s.say(b"x" * 200, rb"this message makes \d+ tokens; the context of 192 has no room for an answer")
    sizes.append(int(s.say(b"4", rb"after a prompt of (\d+)").group(1)))
    check("after a message that is too long, the chat goes on", sizes[1] > 2 * sizes[0], sizes)
    s.type(b"\x04")
    check("Ctrl-D ends a chat with 0", s.end() == 0)


def dumb(generate, folder):
    """The programs must write only what the terminal supports: escape codes, non-ASCII characters, columns."""
    train = os.path.join(os.path.dirname(generate), "train")
    shape = ["text.txt", "--layers", "1", "--heads", "2", "--dim", "32", "--ctx", "64", "--batch", "8", "--device", "cpu"]
    commands = {"train": [train, *shape, "--steps", "30", "--sample-tokens", "0", "--tokenizer", "byte", "--out", "b.run", "--overwrite"],
                "train --show": [train, *shape, "--dry-run", "--show", "1", "--tokenizer", "bpe"],
                "train --runs": [train, "--runs", "a.run"],
                "train --plot": [train, "--plot", "a.run"],
                "train, refused": [train, "text.txt", "--dim", "7"],
                "generate": [generate, "a.run", "-p", "Once", "-n", "30", "--device", "cpu"],
                "generate -i": [generate, "a.run", "-i", "-n", "5", "--device", "cpu"],
                "generate --heat": [generate, "a.run", "-n", "30", "--heat", "--device", "cpu"],
                "generate --novelty": [generate, "a.run", "-p", "Once", "-n", "90", "--novelty", "text.txt", "--device", "cpu"],
                "generate, refused": [generate, "a.run", "-p", "Once", "--score", "text.txt", "-n", "1"]}
    for name, command in commands.items():
        for environment, bad in (({"TERM": "dumb", "LC_ALL": "C"}, rb"[^ -~\r\n\t]"), ({"LC_ALL": "C"}, rb"[\x80-\xff]"),
                                 ({"NO_COLOR": "1", "LC_ALL": "de_DE.UTF-8"}, rb"\x1b\[[0-9;]*m|[0-9],[0-9]+ (nats|bits)")):
            if "NO_COLOR" in environment and name not in ("train", "generate", "train, refused"):
                continue
            s = Session(command, folder, environment, columns=40, stdout=True)
            if "-i" in command:
                s.wait(rb"> ")
                s.type(b"Once\r")
                s.wait(rb"seed")
                s.wait(rb"> ")
                s.type(b"\x04")
            status = s.end()
            found = re.search(bad, s.seen)
            check(f"{name} with {environment}", found is None and status == (2 if "refused" in name else 0) and s.seen, (status, s.seen))
    s = Session(commands["generate, refused"] + ["--json"], folder, {"NO_COLOR": "1"}, columns=40, stdout=True)
    s.end()
    lines = s.seen.replace(b"\r", b"").split(b"\n")
    check("messages fit into 40 columns", len(lines) > 2 and all(len(line) < 40 for line in lines), lines)


def scripts(generate, folder):
    def run(text, *more):
        return subprocess.run([generate, "a.run", "-i", "-n", "20", "--seed", "7", "--quiet", "--device", "cpu", *more], cwd=folder,
                              input=text, capture_output=True, check=False, timeout=SECONDS)
    done = run(b"Once\n/retry\n")
    expected = b"".join(single(generate, folder, "Once", seed, "-n", "20") + b"\n" for seed in (7, 8))
    check("lines of a pipe", done.returncode == 0 and done.stdout == expected and done.stderr == b"", done)
    done = run(b"/nonsense\nOnce\n")
    check("a mistake of a script ends it", done.returncode == 2 and done.stdout == b"" and b"no command" in done.stderr, done)
    done = run(b"//home\n", "-e")
    check("a line that begins with /", done.stdout == single(generate, folder, "/home", 7, "-n", "20") + b"\n", done)
    done = run(rb"a\nb" + b"\n", "-e")
    check("escapes", done.stdout == single(generate, folder, "a\nb", 7, "-n", "20") + b"\n", done)
    done = subprocess.run([generate, "a.run", "-i", "-n", "2", "--device", "cpu"], cwd=folder, capture_output=True, check=True,
                          input=rb"a\nb" + b"\n" + rb"c\nd" + b"\n", timeout=SECONDS)
    check("escapes without -e are noted, once", done.stderr.count(b"with -i -e, \\n is a line break") == 1, done)
    done = run(b"a\0" + rb"\n" * 50000 + b"\n", "-e")
    check("a zero byte and escapes", done.returncode == 0, done.returncode)
    done = run(b"/save a\0b\n")
    check("a command with a zero byte", done.returncode == 2 and b"zero byte" in done.stderr, done)
    done = run(b"Once\n/undo 5\n")
    check("an argument that has no meaning", done.returncode == 2 and b"takes no argument" in done.stderr, done)
    done = run(b"x" * 5000 + b"\n")
    check("a line longer than the context", done.returncode == 0 and len(done.stdout) > 1, done.returncode)
    done = run(b"a\x00b\xff\n")
    check("bytes that are no text", done.returncode == 0, done)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([generate, "a.run", "-i", "-n", "3", "--quiet", "--device", "cpu"], cwd=folder, input=b"Once\nOnce\n",
                              stdout=full, stderr=subprocess.PIPE, check=False, timeout=SECONDS)
    check("a full disk", done.returncode == 7 and b"stdout" in done.stderr, done)


def main():
    programs = os.path.abspath(os.environ.get("BIN", "."))
    generate = os.path.join(programs, "generate")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text.txt"), "w", encoding="ascii") as file:
            for i in range(400):
                file.write(f"Once there was a number {i}, and {i * 7919 % 100} was another.\n")
        subprocess.run([os.path.join(programs, "train"), "text.txt", "--layers", "1", "--heads", "2", "--dim", "32", "--ctx", "64",
                        "--batch", "8", "--steps", "60", "--tokenizer", "byte", "--device", "cpu", "--quiet", "--out", "a.run"],
                       cwd=folder, check=True)
        for test in (texts, editing, interrupts, chats, dumb, scripts):
            try:
                test(generate, folder)
            except TimeoutError as error:
                check(test.__name__, False, str(error))
    print("done")
    sys.exit(failed)


if __name__ == "__main__":
    main()
