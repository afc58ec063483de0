"""Figures of a plan, as PNG and SVG. The same results give the same bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from PIL import Image

from reta.bench import metrics, pictures
from reta.bench.collect import Results
from reta.bench.plan import METRICS
from reta.bench.sheet import averages
from reta.errors import require

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")
"""Okabe and Ito's, which colour-blind readers can tell apart; lines differ in their dashes as well."""
KNOWN = (
    "reta",
    "tda",
    "dpe",
    "boostadapter",
    "dmn",
    "tps",
    "ensemble",
    "zeroshot",
    "tpt",
    "zero",
    "coop",
    "rlcf",
)
DASHES = ("-", "--", "-.", ":")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e8e7",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "reta",
    "svg.fonttype": "path",
}


class Canvas:
    """A row or grid of axes in our style; `files` gives its PNG and SVG."""

    def __init__(self, rows: int, columns: int, width: float = 3.6, height: float = 2.7):
        require("bench", "matplotlib").use("Agg")
        self.plot = require("bench", "matplotlib.pyplot")
        with self.plot.rc_context(STYLE):
            self.figure, axes = self.plot.subplots(
                rows, columns, figsize=(width * columns, height * rows), layout="constrained", squeeze=False
            )
        self.axes = axes

    def legend(self, columns: int = 6) -> None:
        """One legend for all axes, below them."""
        found: dict[str, Any] = {}
        for axes in self.axes.flat:
            found |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        if found:
            self.figure.legend(
                found.values(),
                found.keys(),
                loc="outside lower center",
                ncols=min(columns, len(found)),
                frameon=False,
            )

    def files(self) -> dict[str, bytes]:
        """`{"png": ..., "svg": ...}` without dates or versions in them."""
        out = {}
        with self.plot.rc_context(STYLE):
            for kind, extra in (
                ("png", {"metadata": {"Software": None}, "dpi": 130}),
                ("svg", {"metadata": {"Date": None}}),
            ):
                buffer = io.BytesIO()
                self.figure.savefig(buffer, format=kind, facecolor="white", **extra)
                out[kind] = buffer.getvalue()
        self.plot.close(self.figure)
        return out


def figures(results: Results) -> dict[str, dict[str, bytes]]:
    """Every figure of a plan by its name, `NAME` or `NAME-more`; a plan that is a table only has none."""
    name, layout = results.manifest.name, results.manifest.settings["layout"]
    draw: dict[str, Callable[[Results], Canvas | None]] = {"curve": curve, "stream": stream, "bars": bars}
    found: dict[str, Canvas | None] = {}
    if layout in draw and results.records:
        found[name] = draw[layout](results)
    if layout == "pictures":
        found |= {
            f"{name}-{data}".replace("/", "_"): gallery(results, data)
            for data in results.manifest.shown["data"]
        }
    if "ece" in results.manifest.settings["metrics"]:
        found[f"{name}-reliability"] = diagram(results)
    return {key: canvas.files() for key, canvas in found.items() if canvas is not None}


def look(k: int) -> tuple[str, str]:
    """The colour and the dashes of the k-th line, different for any number there can be read.

    >>> len({look(k) for k in range(32)})
    32
    """
    return COLOURS[k % len(COLOURS)], DASHES[(k + k // len(COLOURS)) % len(DASHES)]


def looks(results: Results) -> dict[str, tuple[str, str]]:
    """The look of every row: a method that is there once looks the same in all figures."""
    rows = results.manifest.rows
    methods = [row["method"] for row in rows]
    if len(set(methods)) < len(methods) or not set(methods) <= set(KNOWN):
        return {row["label"]: look(k) for k, row in enumerate(rows)}
    return {row["label"]: look(KNOWN.index(row["method"])) for row in rows}


def _places(results: Results, row: str, model: str, data: list[str]) -> list[tuple[str, str, str, str]]:
    stream = next(iter(results.manifest.settings["streams"]))
    return [(row, model, name, stream) for name in data]


def curve(results: Results) -> Canvas | None:
    """A metric over the values of one field; a panel for each field and group, a line for each series."""
    man = results.manifest
    rows = [row for row in man.rows if row["x"] is not None]
    panels = list(
        dict.fromkeys(row["panel"] or row["label"].rpartition(" = ")[0].rpartition(", ")[2] for row in rows)
    )
    groups = {title: list(names) for title, names in averages(results).items()}
    if not rows:
        return None
    turned = len(panels) == 1
    canvas = Canvas(1, len(groups)) if turned else Canvas(len(groups), len(panels))
    for i, (title, data) in enumerate(groups.items()):
        for j, panel in enumerate(panels):
            axes = canvas.axes[0][i] if turned else canvas.axes[i][j]
            inside = [
                r
                for r in rows
                if (r["panel"] or r["label"].rpartition(" = ")[0].rpartition(", ")[2]) == panel
            ]
            places = _ticks(axes, sorted({row["x"] for row in inside}))
            for k, series in enumerate(dict.fromkeys(row["series"] for row in inside)):
                _line(axes, results, [r for r in inside if r["series"] == series], data, k, places)
            _room(axes)
            axes.set(
                xlabel=panel,
                ylabel="accuracy, %" if j + turned * i == 0 else "",
                title=title if len(groups) > 1 else "",
            )
    canvas.legend()
    return canvas


def _line(
    axes: Any,
    results: Results,
    rows: list[dict[str, Any]],
    data: list[str],
    k: int,
    places: Mapping[float, float],
) -> None:
    model = results.manifest.shown["models"][0]
    points = []
    for row in sorted(rows, key=lambda row: row["x"]):
        values = [results.values("accuracy", *place) for place in _places(results, row["label"], model, data)]
        if all(values):
            orders = [fmean(v[o % len(v)] for v in values) for o in range(max(map(len, values)))]
            points.append((places[row["x"]], fmean(orders), pstdev(orders)))
    if points:
        x, y, spread = zip(*points, strict=True)
        colour, dash = look(k)
        axes.plot(x, y, "o", ls=dash, color=colour, ms=4, lw=1.6, label=rows[0]["series"] or None)
        low, high = (
            [a - b for a, b in zip(y, spread, strict=True)],
            [a + b for a, b in zip(y, spread, strict=True)],
        )
        axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)


def _ticks(axes: Any, x: list[float]) -> dict[float, float]:
    """Where values stand on the axis, each with its own tick: doubling values on a doubling axis, and values
    so close that their numbers would run into each other at equal distances."""
    places = x
    if len(x) > 3 and min(x) > 0 and max(x) / min(x) >= 32:
        axes.set_xscale("log", base=2)
    elif len(x) > 2 and min(b - a for a, b in pairwise(x)) < (max(x) - min(x)) / 10:
        places = [float(k) for k in range(len(x))]
    axes.set_xticks(places, [f"{value:g}" for value in x])
    axes.minorticks_off()
    return dict(zip(x, places, strict=True))


def _room(axes: Any, least: float = 1.0) -> None:
    """At least one point from bottom to top, so that a flat line looks flat."""
    low, high = axes.get_ylim()
    if high - low < least:
        axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)


def _settled(axes: Any) -> None:
    """The range of all lines after the first tenth: before, a few images swing them from 0 to 100."""
    values = [v for line in axes.lines for v in line.get_ydata()[len(line.get_ydata()) // 10 :]]
    if values:
        pad = max(0.5, 0.06 * (max(values) - min(values)))
        axes.set_ylim(min(values) - pad, max(values) + pad)


def stream(results: Results) -> Canvas | None:
    """Cache accuracy above, running accuracy below, a column for each data set."""
    man = results.manifest
    data, model = man.shown["data"], man.shown["models"][0]
    kinds = [("cache", "cached images right, %"), ("accuracy", "answers right so far, %")]
    canvas = Canvas(len(kinds), len(data))
    for j, name in enumerate(data):
        for i, (kind, title) in enumerate(kinds):
            axes = canvas.axes[i][j]
            for row in man.rows:
                place = _places(results, row["label"], model, [name])[0]
                found = [results.records[id] for id in results.ids(*place)]
                lines = [r["curves"][kind] for r in found if kind in r["curves"]]
                if lines:
                    colour, dash = looks(results)[row["label"]]
                    at = [p + 1 for p in metrics.points(found[0]["samples"]["all"])]
                    axes.plot(
                        at,
                        [fmean(v) for v in zip(*lines, strict=True)],
                        color=colour,
                        ls=dash,
                        lw=1.6,
                        # dashes above solid lines: of two that coincide both are seen
                        zorder=2.1 + 0.1 * DASHES.index(dash),
                        label=row["label"],
                    )
            _settled(axes)
            axes.set(
                title=name if i == 0 else "",
                xlabel="images seen" if i else "",
                ylabel=title if j == 0 else "",
            )
    canvas.legend()
    return canvas


def bars(results: Results) -> Canvas | None:
    """One panel for each metric: the methods side by side on every data set."""
    man = results.manifest
    data, model, rows = man.shown["data"], man.shown["models"][0], [row["label"] for row in man.rows]
    width = max(5.2, 0.34 * len(data) * len(rows))
    canvas = Canvas(1, len(man.settings["metrics"]), width=width)
    for axes, metric in zip(canvas.axes[0], man.settings["metrics"], strict=True):
        for k, row in enumerate(rows):
            values = [results.values(metric, *place) for place in _places(results, row, model, data)]
            heights = [fmean(v) if v else 0.0 for v in values]
            width = 0.8 / len(rows)
            at = [x + (k + 0.5) * width - 0.4 for x in range(len(data))]
            made = axes.bar(at, heights, width * 0.92, color=looks(results)[row][0], label=row)
            axes.bar_label(made, [f"{h:.1f}" if h else "" for h in heights], fontsize=6, padding=1)
        axes.set_xticks(range(len(data)), data)
        axes.grid(axis="x", visible=False)
        axes.set(title=METRICS[metric], ylim=(0.0, 1.06 * axes.get_ylim()[1]))
    canvas.legend()
    return canvas


def diagram(results: Results) -> Canvas | None:
    """Reliability: accuracy against confidence in 20 bins, all images of all sets, a panel for each method."""
    man = results.manifest
    model, rows = man.shown["models"][0], [row["label"] for row in man.rows]
    if not results.records:
        return None
    canvas = Canvas(1, len(rows), width=2.7)
    for k, (axes, row) in enumerate(zip(canvas.axes[0], rows, strict=True)):
        places = _places(results, row, model, man.shown["data"])
        found = [results.records[id]["reliability"] for place in places for id in results.ids(*place)]
        bins = [_pooled([record[b] for record in found]) for b in range(metrics.BINS)]
        axes.plot([0, 1], [0, 1], color="#9aa5a3", lw=1, ls="--")
        _shaded(axes, bins, looks(results)[row][0])
        axes.set(
            title=row,
            xlabel="confidence",
            xlim=(0, 1),
            ylim=(0, 1),
            ylabel="share that is right" if k == 0 else "",
        )
    canvas.figure.supxlabel("the stronger the colour, the more answers in a bin", fontsize=7)
    return canvas


def _pooled(rows: list[list[float]]) -> tuple[float, float]:
    """Images and accuracy of one bin over several results."""
    n = sum(row[0] for row in rows)
    return n, sum(row[0] * row[2] for row in rows) / n if n else 0.0


def _shaded(axes: Any, bins: list[tuple[float, float]], colour: str) -> None:
    """Bars whose strength tells how many answers a bin holds."""
    most = max((n for n, _ in bins), default=0) or 1
    for b, (n, right) in enumerate(bins):
        if n:
            axes.bar(
                (b + 0.5) / len(bins), right, 0.92 / len(bins), color=colour, alpha=0.25 + 0.75 * n / most
            )


def gallery(results: Results, data: str) -> Canvas | None:
    """Cached images by class and method, their scores below, framed green where right and red where wrong."""
    plan, ids = results.manifest.name, set(results.manifest.cells.values())
    for folder in dict.fromkeys(results.places.values()):
        path = pictures.path_of(folder, plan, data)
        if path.is_file():
            about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            if set(about["ids"].values()) <= ids and about["tiles"]:
                rows = [row["label"] for row in results.manifest.rows if row["label"] in about["ids"]]
                return _gallery(about["tiles"], rows, np.asarray(Image.open(path).convert("RGB")))
    return None


def _gallery(tiles: list[dict[str, Any]], rows: list[str], sprite: np.ndarray) -> Canvas:
    classes = list(dict.fromkeys(tile["name"] for tile in tiles))
    slots = 1 + max(tile["slot"] for tile in tiles)
    canvas = Canvas(1, 1, width=len(rows) * (slots * 0.85 + 0.35) + 1.2, height=len(classes) * 1.12 + 0.5)
    axes, side, wide = canvas.axes[0][0], sprite.shape[0], slots * 1.12 + 0.3
    for i, tile in enumerate(tiles):
        x = rows.index(tile["row"]) * wide + tile["slot"] * 1.12
        y = -1.35 * classes.index(tile["name"])
        colour = "#2b9348" if tile["right"] else "#c9184a"
        axes.imshow(
            sprite[:, i * side : (i + 1) * side], extent=(x, x + 1, y, y + 1), interpolation="nearest"
        )
        dash = "-" if tile["right"] else (0, (1.5, 1))
        axes.plot([x, x + 1, x + 1, x, x], [y, y, y + 1, y + 1, y], color=colour, lw=2.4, ls=dash)
        axes.text(x + 0.5, y - 0.04, f"{tile['score']:.2f}", ha="center", va="top", fontsize=8, color=colour)
    for name in classes:
        axes.text(-0.15, 0.5 - 1.35 * classes.index(name), name, ha="right", va="center")
    for k, row in enumerate(rows):
        axes.text(k * wide + slots * 0.56, 1.2, row, ha="center", weight="bold")
    told = "green, solid: right; red, dashed: wrong\nnumber: the score it is ranked by, lowest first"
    below = axes.text(
        len(rows) * wide / 2 - 0.8, 0.75 - 1.35 * len(classes), told, ha="center", va="top", fontsize=7
    )
    below.set_in_layout(False)
    axes.set(xlim=(-1.6, len(rows) * wide), ylim=(-1.35 * len(classes) + 0.3, 1.5), aspect="equal")
    axes.axis("off")
    return canvas
