"""SVG elements as text, for the charts in docs/."""

from xml.sax.saxutils import escape

BLUE, GRAY, DARK = "#3b6ea5", "#777", "#222"
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
