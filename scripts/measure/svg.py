"""SVG elements as text, and axes, for the charts in docs/."""

import math
from xml.sax.saxutils import escape

BLUE, GRAY, GREEN, DARK = "#3b6ea5", "#777", "#20603d", "#222"
FONT = 'font-family="system-ui, Helvetica, Arial, sans-serif"'


def write_text(x, y, text, size=10, anchor="middle", color=DARK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="{size}" text-anchor="{anchor}" fill="{color}" '
            f'font-weight="{weight}">{escape(text)}</text>')


def write_line(x1, y1, x2, y2, color, width=1):
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{color}" stroke-width="{width}"/>'


def write_curve(places, color, width, dash=""):
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="{width}"{dashed}/>'


class LogAxis:
    """A logarithmic axis: `low` is at pixel `start`, `high` at `end`."""

    def __init__(self, low, high, start, end):
        self.low, self.start, self.end = math.log(low), start, end
        self.size = math.log(high) - self.low or 1

    def __call__(self, value):
        return self.start + (math.log(value) - self.low) / self.size * (self.end - self.start)


def ticks(low, high):
    """1, 2, 5 for at most three decades, otherwise powers of ten."""
    factors = (1, 2, 5) if high / low < 1000 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [f * 10.0 ** p for p in powers for f in factors if low <= f * 10.0 ** p <= high]
