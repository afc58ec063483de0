"""What the demo leaves behind: a figure and one self-contained HTML page."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import Any

from reta.errors import require

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #1c2b2a; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; text-align: right; border-bottom: 1px solid #d5dfdd; }
th:first-child, td:first-child { text-align: left; } .best { font-weight: 700; background: #e3f3ef; }
.wide { overflow-x: auto; } img { max-width: 100%; }
.pictures img { image-rendering: pixelated; width: 72px; margin: 2px; }
h3 { margin-bottom: .2rem; } p { max-width: 46rem; } code { background: #eef3f2; padding: 0 .3em; }
@media (prefers-color-scheme: dark) {
  body { background: #14201f; color: #dbe7e5; } th, td { border-color: #334744; }
  .best { background: #1f4a42; } code { background: #22312f; }
}
"""


def figure(out: Path, table: dict[str, dict[str, float]], names: list[str], curves: dict[str, Any]) -> None:
    """Gain over the frozen model per set, and accuracy along the stream of the set that moved most."""
    require("bench", "matplotlib").use("Agg")
    plot = require("bench", "matplotlib.pyplot")
    base = "ensemble" if "ensemble" in table else next(iter(table))
    others = [m for m in table if m != base]
    moved = max(names, key=lambda n: max((abs(table[m][n] - table[base][n]) for m in others), default=0))
    drawing, (left, right) = plot.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    colour = {m: plot.get_cmap("tab10")(i % 10) for i, m in enumerate(table)}
    for i, method in enumerate(others):
        gains = [table[method][n] - table[base][n] for n in names]
        width = 0.8 / max(1, len(others))
        left.bar(
            [x + (i + 0.5) * width - 0.4 for x in range(len(names))],
            gains,
            width,
            label=method,
            color=colour[method],
        )
    left.axhline(0, color="0.4", lw=0.8)
    left.set(title=f"gain over the frozen model ({base})", ylabel="points of accuracy")
    left.set_xticks(range(len(names)), names)
    for method in table:
        curve = curves[f"{moved}/{method}"].tolist()
        skip = min(20, len(curve) - 1)  # the first few images make the mean jump
        wide = 2.2 if method in ("reta", base) else 1.1
        right.plot(range(skip + 1, len(curve) + 1), curve[skip:], label=method, lw=wide, color=colour[method])
    right.set(title=f"accuracy along the stream, {moved}", xlabel="images seen", ylabel="% right so far")
    drawing.legend(
        *right.get_legend_handles_labels(), loc="outside lower center", ncols=len(table), fontsize=8
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    drawing.savefig(out / "figure.png", dpi=130)
    plot.close(drawing)


def page(
    out: Path,
    table: dict[str, dict[str, float]],
    names: list[str],
    settings: dict[str, Any],
    summaries: dict[str, str],
) -> None:
    """Table, figure, what the methods are and a row of pictures of every set, in one file."""
    picture = base64.b64encode((out / "figure.png").read_bytes()).decode()
    items = "".join(f"<li><b>{html.escape(m)}</b> {html.escape(s)}</li>" for m, s in summaries.items())
    body = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>reta demo</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>
<h1>A small CLIP under shift</h1>
<p>The embedded model <code>reta-mini</code> was trained on drawings in the style of <code>shapes</code> and
meets four other styles. Every method saw the same {settings["images"]} images per set, the same
{settings["views"]} views and the same prompts, in the same order (seed {settings["seed"]}), without labels.
It took {settings["seconds"]:.0f} seconds in all. A few hundred images are a demonstration, not a benchmark:
differences of a point or two are noise.</p>
<p>{_reading(table)}</p>
<div class="wide">{_table(table, names)}</div>
<img src="data:image/png;base64,{picture}" alt="gain per set, and accuracy along the stream">
<h2>What the methods are</h2><ul>{items}</ul>
<h2>What the sets look like</h2>{"".join(_pictures(name) for name in names)}
</body></html>"""
    (out / "report.html").write_text(body, encoding="utf-8")


def _reading(table: dict[str, dict[str, float]]) -> str:
    """The outcome in a sentence: who is best on average, and by how much over the frozen model."""
    mean = {m: sum(row.values()) / len(row) for m, row in table.items()}
    base = "ensemble" if "ensemble" in table else next(iter(table))
    ranked = sorted((m for m in table if m != base), key=lambda m: -mean[m])
    gains = ", ".join(f"{html.escape(m)} {mean[m] - mean[base]:+.1f}" for m in ranked)
    return f"Average over the sets: {html.escape(base)} {mean[base]:.1f}; against it {gains or 'nothing'}."


def _table(table: dict[str, dict[str, float]], names: list[str]) -> str:
    rows = {m: [row[n] for n in names] for m, row in table.items()}
    rows = {m: [*values, sum(values) / len(values)] for m, values in rows.items()}
    best = [max(column) for column in zip(*rows.values(), strict=True)]
    head = "".join(f"<th>{html.escape(n)}</th>" for n in ["method", *names, "average"])
    lines = "".join(
        f"<tr><td>{html.escape(m)}</td>"
        + "".join(
            f"<td{' class=best' if v == b else ''}>{v:.1f}</td>" for v, b in zip(values, best, strict=True)
        )
        + "</tr>"
        for m, values in rows.items()
    )
    return f"<table><caption>top-1 accuracy, %</caption><tr>{head}</tr>{lines}</table>"


def _pictures(name: str, count: int = 12) -> str:
    from reta.data import shapes

    world, cells = shapes.open(name, n=count), []
    for i in range(count):
        image, label = world[i]
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        data = base64.b64encode(buffer.getvalue()).decode()
        title = html.escape(world.names[label])
        cells.append(f'<img src="data:image/png;base64,{data}" alt="{title}" title="{title}">')
    return f'<h3>{html.escape(name)}</h3><div class="pictures">{"".join(cells)}</div>'
