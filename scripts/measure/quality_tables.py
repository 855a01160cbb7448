"""Computes the means and tables of bench_quality.py from the runs that it prints."""

from statistics import mean


def loss_at(curve, seconds):
    """Interpolates linearly between the points; None before the first point, the last loss after the last point."""
    for (_, s0, l0), (_, s1, l1) in zip(curve, curve[1:]):
        if s0 <= seconds <= s1:
            return l0 + (l1 - l0) * (seconds - s0) / (s1 - s0)
    return curve[-1][2] if seconds > curve[-1][1] else None


def reaches(curve, loss):
    """(tokens, seconds) at which the curve first reaches the loss; None: never."""
    if curve[0][2] <= loss:
        return curve[0][:2]
    for (t0, s0, l0), (t1, s1, l1) in zip(curve, curve[1:]):
        if l1 <= loss:
            part = (l0 - loss) / (l0 - l1)
            return t0 + part * (t1 - t0), s0 + part * (s1 - s0)
    return None


def summarize(runs):
    """One row per system of a workload."""
    rows = []
    for name in dict.fromkeys(r["system"] for r in runs):
        its = [r for r in runs if r["system"] == name]
        losses, entropy = [r["loss"] for r in its], its[0]["entropy"]
        curve = [[mean(values) for values in zip(*points)] for points in zip(*(r["curve"] for r in its))]
        rows.append({"kind": "system", "workload": its[0]["workload"], "system": name, "n": len(its),
                     "loss": mean(losses), "loss_min": min(losses), "loss_max": max(losses), "tokens": curve[-1][0],
                     "seconds": curve[-1][1], "tokens_per_s": curve[-1][0] / curve[-1][1], "entropy": entropy,
                     "excess_percent": 100 * (mean(losses) / entropy - 1) if entropy else None, "curve": curve})
    fastest = min(r["seconds"] for r in rows)
    for row in rows:
        row.update(equal_seconds=fastest, loss_at_equal_seconds=loss_at(row["curve"], fastest), reached={})
        for goal in rows:
            if "adamw" in goal["system"] and goal is not row:
                found = reaches(row["curve"], goal["curve"][-1][2])
                row["reached"][goal["system"]] = found and {
                    "tokens": found[0], "seconds": found[1], "fewer_tokens": goal["tokens"] / found[0],
                    "fewer_seconds": goal["seconds"] / found[1]}
    return rows


def table(head, rows):
    """A Markdown table with aligned columns."""
    cells = [head, *[["" if cell is None else cell for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]) + "\n"


def loss_table(rows, equal_tokens):
    head = ["system", "tokens", "seconds", "loss", "smallest..largest", "seeds"]
    head += ["above the entropy"] if rows[0]["entropy"] else []
    head += [f"after {rows[0]['equal_seconds']:.3g} s"] if equal_tokens else []
    body = []
    for r in rows:
        body.append([r["system"], f"{r['tokens'] / 1e6:.3f} M", f"{r['seconds']:.1f}", f"{r['loss']:.4f}",
                     f"{r['loss_min']:.4f}..{r['loss_max']:.4f}", str(r["n"])])
        body[-1] += [f"{r['excess_percent']:.1f} %"] if r["entropy"] else []
        body[-1] += [r["loss_at_equal_seconds"] and f"{r['loss_at_equal_seconds']:.4f}"] if equal_tokens else []
    return table(head, body)


def seconds_table(rows):
    """A loss in parentheses: the run had already ended."""
    end = max(r["seconds"] for r in rows)
    tick = next((t for t in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800) if end <= 12 * t), end / 12)
    times = [(tick if end > 5 else end / 5) * i for i in range(1, 13)]
    times = [t for t in times if t <= 1.0001 * end]

    def cell(row, t):
        loss = loss_at(row["curve"], t)
        return loss and (f"({loss:.3f})" if t > row["seconds"] else f"{loss:.3f}")

    return table(["loss after", *(f"{t:.3g} s" for t in times)],
                 [[r["system"], *(cell(r, t) for t in times)] for r in rows])


def reached_table(rows):
    """When each system reached the final loss of each AdamW; empty without AdamW or without another system."""
    body = []
    for goal in dict.fromkeys(name for r in rows for name in r["reached"]):
        for r in rows:
            if goal in r["reached"]:
                got = r["reached"][goal]
                body.append([goal, r["system"], *((
                    f"{got['tokens'] / 1e6:.3f} M", f"{got['fewer_tokens']:.2f}x", f"{got['seconds']:.1f}",
                    f"{got['fewer_seconds']:.2f}x") if got else ("never", "", "", ""))])
    return body and table(["final loss of", "reached by", "tokens", "ratio", "seconds", "ratio"], body)


def about(runs):
    """Describes the machine and the measurement."""
    first = runs[0]
    versions = dict.fromkeys(f", PyTorch {r['version']}" for r in runs if r["version"])
    counts = sorted({row["threads"] for row in runs})
    threads = " or ".join(map(str, counts)) + (" thread" if counts == [1] else " threads")
    return (f"{first['processor']}, {threads}{''.join(versions)}. Losses are in nats per byte; seconds count training time "
            "only.")


def tables(runs):
    """All tables in Markdown, and the rows of their systems."""
    parts = [about(runs) + "\n"]
    systems = []
    for name in dict.fromkeys(r["workload"] for r in runs):
        its = [r for r in runs if r["workload"] == name]
        minutes, entropy = its[0]["minutes"], its[0]["entropy"]
        rows = summarize(its)
        systems += rows
        parts.append(f"### {name}: {f'{minutes:g} minutes each' if minutes else 'the same number of tokens'}\n")
        parts += [f"The entropy of the text is {entropy:.4f}.\n"] if entropy else []
        parts.append(loss_table(rows, not minutes))
        if minutes:
            continue
        parts += ["Losses after a given time, here and below, are measured on the beginning of the validation text, as during "
                  "a run. Values in parentheses: the run had already ended.\n", seconds_table(rows)]
        parts += filter(None, [reached_table(rows)])
    return "\n".join(parts), systems
