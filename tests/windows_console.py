#!/usr/bin/env python3
"""Runs a command on a terminal and types: windows_console.py TEXT KEYS [TEXT KEYS]... -- COMMAND...

TEXT @FILE appears when there is a file of that name. Types KEYS (\\x03: Ctrl-C) when TEXT has appeared, one after another; other keys than Ctrl-C not before wine reads single keys,
which it does from the first time that a program asks for some. Prints what the command wrote, and ends with its status."""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

LIMIT = 30  # seconds

split = sys.argv.index("--")
typed = [word.encode() for word in sys.argv[1:split]]
steps = [(typed[i], typed[i + 1].decode("unicode_escape").encode("latin-1").decode("utf-8").encode())
         for i in range(0, len(typed), 2)]
child, terminal = pty.fork()
if child == 0:
    os.environ["TERM"] = "xterm-256color"
    os.execvp(sys.argv[split + 1], sys.argv[split + 1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
output, seen, status, deadline = b"", 0, None, time.monotonic() + LIMIT
while status is None and time.monotonic() < deadline:  # wine's server keeps the terminal open
    ended, code = os.waitpid(child, os.WNOHANG)
    status = os.waitstatus_to_exitcode(code) if ended else None
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            output += os.read(terminal, 65536)
        except OSError:
            time.sleep(0.1)  # the program has closed it
    text = steps[0][0] if steps else b""
    if text.startswith(b"@"):
        text, there = b"", os.path.exists(text[1:])
    else:
        there = steps and text in output[seen:]
    if there and (steps[0][1] in (b"\x03", b"") or not termios.tcgetattr(terminal)[3] & termios.ICANON):
        seen = output.index(text, seen) + len(text)
        os.write(terminal, steps.pop(0)[1])
if status is None:
    os.kill(child, signal.SIGKILL)
    print("timed out")
sys.stdout.buffer.write(output)
sys.stdout.flush()
sys.exit(1 if status is None else status % 256)
