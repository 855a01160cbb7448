#!/usr/bin/env python3
"""Draws the terminal of a training run as SVG: docs/terminal.svg, the picture in README.md.

    make && make build/stories
    scripts/measure/terminal_picture.py                      # a few minutes: ./train stories.txt, until 60 % of the steps
    scripts/measure/terminal_picture.py --at 0.3 -- --steps 200 --seed 1    # options after -- are passed to ./train

The text is 1 MB from build/stories. ./train runs in a pseudo-terminal; the picture shows its screen at the fraction
--at of the run, which then is stopped.
"""

import argparse
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from xml.sax.saxutils import escape

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CELL_WIDTH, CELL_HEIGHT, FONT_SIZE, MARGIN, BAR_HEIGHT = 7.8, 18, 13, 14, 26  # pixels
BACKGROUND, FRAME, PLAIN, DIM = "#14181d", "#242a32", "#d5dae0", "#7d8794"
COLORS = {"31": "#f07178", "33": "#e6c07b", "36": "#6cc7d9"}  # what src/cli/console.c writes: error, warning, note
BLOCKS = "▁▂▃▄▅▆▇█"


class Screen:
    """Rows of [character, color]. Interprets the control sequences of ./train: CR, LF, erase to end of line, colors."""

    TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n])")

    def __init__(self, columns):
        self.rows, self.columns, self.column, self.color = [[]], columns, 0, PLAIN

    def write(self, text):
        for parameters, command, control, character in self.TOKEN.findall(text):
            if control == "\r":
                self.column = 0
            elif control == "\n":
                self.rows.append([])
            elif command == "K":
                del self.rows[-1][self.column:]
            elif command == "m":
                self.color = COLORS.get(parameters, PLAIN)
            elif command:
                sys.exit(f"terminal_picture.py: unknown control sequence ESC[{parameters}{command}")
            else:
                if self.column == self.columns:
                    self.rows.append([])
                    self.column = 0
                self.rows[-1][self.column:self.column + 1] = [[character, self.color]]
                self.column += 1

    def done(self):
        """The fraction of steps that the progress line shows, or 0."""
        step = re.match(r"step (\d+)/(\d+) ", "".join(character for character, _ in self.rows[-1]))
        return int(step[1]) / int(step[2]) if step else 0


def record(command, folder, columns, at):
    """Runs the command in a pseudo-terminal until the fraction `at` of its steps is done; returns the screen."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8")
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command, cwd=folder, stdin=inner, stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    screen, rest = Screen(columns), b""
    while screen.done() < at:
        try:
            rest += os.read(outer, 65536)
        except OSError:  # the program has ended
            break
        *lines, rest = re.split(rb"(?<=\x1b\[K)|(?<=\n)", rest)  # neither a character nor a sequence is cut in two
        for line in lines:
            if screen.done() < at:
                screen.write(line.decode())
    process.send_signal(signal.SIGINT)
    try:
        while os.read(outer, 65536):
            pass
    except OSError:
        pass
    if process.wait() not in (0, 128 + signal.SIGINT):
        sys.exit(f"terminal_picture.py: {' '.join(command)} ended with status {process.returncode}")
    return screen.rows


def draw_block(character, x, y, color):
    """Draws block characters as rectangles, which look the same in every font."""
    if character == "░":
        return f'<rect x="{x:.1f}" y="{y + 3}" width="{CELL_WIDTH}" height="{CELL_HEIGHT - 6}" fill="{color}" opacity="0.25"/>'
    height = (BLOCKS.index(character) + 1) / len(BLOCKS) * (CELL_HEIGHT - 6)
    return (f'<rect x="{x:.1f}" y="{y + CELL_HEIGHT - 3 - height:.1f}" width="{CELL_WIDTH}" height="{height:.1f}" '
            f'fill="{color}"/>')


def draw_row(row, y):
    """Draws runs of one color as text of fixed length, so that columns stay aligned in any monospace font."""
    out, start = [], 0
    for end in range(1, len(row) + 1):
        is_block = row[start][0] in BLOCKS + "░"
        if end < len(row) and row[end][1] == row[start][1] and not is_block and row[end][0] not in BLOCKS + "░":
            continue
        text, x = "".join(character for character, _ in row[start:end]), MARGIN + start * CELL_WIDTH
        if is_block:
            out.append(draw_block(text, x, y, "#7fb77e"))
        elif text.strip():
            text = text.replace(" ", "\u00a0")  # not every program keeps spaces
            out.append(f'<text x="{x:.1f}" y="{y + FONT_SIZE}" textLength="{len(text) * CELL_WIDTH:.1f}" '
                       f'fill="{row[start][1]}">{escape(text)}</text>')
        start = end
    return out


def picture(command, rows, columns):
    """The window with the command and the rows below it."""
    width = round(2 * MARGIN + columns * CELL_WIDTH)
    height = BAR_HEIGHT + 2 * MARGIN + (len(rows) + 1) * CELL_HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           f'role="img" aria-label="The terminal while {escape(command)} runs">',
           f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
           f'<path d="M0 {BAR_HEIGHT}V8a8 8 0 0 1 8-8H{width - 8}a8 8 0 0 1 8 8V{BAR_HEIGHT}z" fill="{FRAME}"/>']
    out += [f'<circle cx="{18 + 16 * i}" cy="{BAR_HEIGHT / 2}" r="4.5" fill="{DIM}"/>' for i in range(3)]
    out.append(f'<g font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="{FONT_SIZE}">')
    prompt = [["$", DIM], [" ", DIM]] + [[character, "#ffffff"] for character in command]
    for i, row in enumerate([prompt, *rows]):
        out += draw_row(row, BAR_HEIGHT + MARGIN + i * CELL_HEIGHT)
    return "\n".join([*out, "</g>", "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", type=float, default=0.6, help="share of the steps that are done (default: %(default)s)")
    parser.add_argument("--columns", type=int, default=118, help="width of the terminal (default: %(default)s)")
    parser.add_argument("-o", "--output", default=os.path.join(HERE, "docs/terminal.svg"))
    parser.add_argument("options", nargs="*", help="options of ./train, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(HERE, "train"), os.path.join(folder, "train"))
        subprocess.run([os.path.join(HERE, "build/stories"), "--bytes", "1000000", "-o", "stories.txt"], cwd=folder,
                       check=True, stderr=subprocess.DEVNULL)
        command = ["./train", "stories.txt", *options.options]
        rows = record(command, folder, options.columns, options.at)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(picture(" ".join(command), rows, options.columns))


if __name__ == "__main__":
    main()
