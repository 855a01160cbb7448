"""Draws the charts of bench_quality.py: per workload, a row of panels with loss against tokens and seconds."""

from svg import BLUE, DARK, GRAY, escape, write_curve, write_line, write_text

COLORS = {"inkling adamw": "#8fb1d6", "inkling muon": BLUE, "inkling muon bf16": "#12365f",
          "pytorch adamw": "#e0b080", "pytorch muon": "#b5651d"}
WIDTH, TOP, HEIGHT, PANEL = 960, 96, 290, 456
LEFT, RIGHT, ABOVE, BELOW = 52, 16, 34, 44  # of the axes in a panel


def steps(low, high, most):
    """Round numbers between the limits, at most as many as given."""
    unit = next(f * 10.0 ** p for p in range(-6, 12) for f in (1, 2, 5) if (high - low) / (f * 10.0 ** p) <= most - 1)
    first = int(low // unit) + (low % unit > 1e-9 * unit)
    return [unit * (first + i) for i in range(most + 1) if unit * (first + i) <= high * (1 + 1e-9)]


def limits(rows):
    """The limits of the loss axis, without the first tenth of the runs, where the loss falls from its initial value."""
    shown = [loss for row in rows for count, _, loss in row["curve"] if count > row["tokens"] / 10]
    low = min([*shown, *(row["entropy"] for row in rows if row["entropy"])])
    return low - 0.03 * (max(shown) - low), max(shown)


def panel(left, top, rows, column, unit, scale):
    """`column` of the curves: 0 tokens, 1 seconds."""
    low, high = limits(rows)
    end = max(row["curve"][-1][column] for row in rows)
    bottom, right = top + HEIGHT - BELOW, left + PANEL - RIGHT

    def x(value):
        return left + LEFT + value / end * (right - left - LEFT)

    def y(loss):
        return bottom - (min(loss, high) - low) / ((high - low) or 1) * (bottom - top - ABOVE)

    out = [write_text(left + LEFT, top + 18, f"{rows[0]['workload']}: loss by {unit}", 12.5, "start", weight="bold")]
    for loss in steps(low, high, 6):
        out += [write_line(left + LEFT, y(loss), right, y(loss), "#e4e4e4"),
                write_text(left + LEFT - 5, y(loss) + 3.5, f"{loss:.3g}", anchor="end")]
    for value in steps(0, end / scale, 7):
        out += [write_line(x(value * scale), bottom, x(value * scale), bottom + 4, "#999"),
                write_text(x(value * scale), bottom + 17, f"{value:g}")]
    out += [write_line(left + LEFT, bottom, right, bottom, "#999"), write_text(right, bottom + 32, unit, anchor="end")]
    if rows[0]["entropy"]:
        out += [write_curve([(left + LEFT, y(rows[0]["entropy"])), (right, y(rows[0]["entropy"]))], GRAY, 1.2, "5 4"),
                write_text(right, y(rows[0]["entropy"]) - 5, "entropy", 9, "end", GRAY)]
    for row in rows:
        points = [(x(point[column]), y(point[2])) for point in row["curve"] if point[2] <= high]
        out.append(write_curve(points, COLORS.get(row["system"], DARK), 1.8))
        out.append(f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="3" '
                   f'fill="{COLORS.get(row["system"], DARK)}"/>')
    return out


def picture(systems, about):
    """systems: as tables() returns them; about: a line that describes the machine."""
    workloads = list(dict.fromkeys(row["workload"] for row in systems))
    height = TOP + HEIGHT * len(workloads) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
           f'role="img" aria-label="Validation loss of {escape(", ".join(COLORS))}">',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           write_text(20, 30, "Validation loss, nats per byte: mean of the seeds", 17, "start", weight="bold"),
           write_text(20, 51, about, 11, "start", "#555")]
    names = [name for name in COLORS if any(row["system"] == name for row in systems)]
    for i, name in enumerate(names):
        out += [write_line(22 + 186 * i, 73, 50 + 186 * i, 73, COLORS[name], 3),
                write_text(57 + 186 * i, 77, name, 11.5, "start")]
    for i, name in enumerate(workloads):
        rows = [row for row in systems if row["workload"] == name]
        out += panel(12, TOP + i * HEIGHT, rows, 0, "million tokens", 1e6)
        out += panel(12 + PANEL + 12, TOP + i * HEIGHT, rows, 1, "seconds", 1)
    return "\n".join(out) + "\n</svg>\n"
