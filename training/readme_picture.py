"""Draw the picture of the README: what the embedded world looks like, and what each method gains in it.

python training/readme_picture.py

Reads results/peers/world.json (`python benchmarks/peers.py world`), writes docs/assets/demo.png.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np

from reta.data import shapes

matplotlib.use("Agg")
from matplotlib import pyplot as plot

ROOT = Path(__file__).parents[1]
METHODS = ("zero", "tps", "tda", "boostadapter", "dmn", "dpe", "reta")
SHOWN = {"shapes": 0, "shapes-a": 7, "shapes-v2": 0, "shapes-r": 2, "shapes-sketch": 0}


def accuracies() -> dict[tuple[str, str], float]:
    """Mean accuracy over the orders, by method and set, `fixed` presets."""
    found = defaultdict(list)
    for row in json.loads((ROOT / "results/peers/world.json").read_text())["rows"]:
        if row["preset"] == "fixed" and not row["oracle"]:
            found[row["method"], row["dataset"]].append(row["accuracy"])
    return {key: float(np.mean(values)) for key, values in found.items()}


def main() -> None:
    table = accuracies()
    drawing = plot.figure(figsize=(10, 4.2), layout="constrained")
    grid = drawing.add_gridspec(2, len(SHOWN), height_ratios=(1, 2.1))
    below = drawing.add_subplot(grid[1, :])
    for x, (name, index) in enumerate(SHOWN.items()):
        axes = drawing.add_subplot(grid[0, x])
        strip = [np.asarray(shapes.draw(name, i)) for i in (index, index + 1)]
        axes.imshow(np.concatenate(strip, 1), interpolation="nearest")
        axes.set_title(f"{name}: {table['ensemble', name]:.0f} %", fontsize=10)
        axes.axis("off")
    width = 0.8 / len(METHODS)
    for i, method in enumerate(METHODS):
        gains = [table[method, name] - table["ensemble", name] for name in SHOWN]
        places = [x + (i + 0.5) * width - 0.4 for x in range(len(SHOWN))]
        colour = "tab:red" if method == "reta" else plot.get_cmap("GnBu")(0.3 + 0.1 * i)
        below.bar(places, gains, width, label=method, color=colour)
    below.axhline(0, color="0.4", lw=0.8)
    below.set(ylim=(-6, 16), ylabel="points over the frozen model", xticks=range(len(SHOWN)))
    below.set_xticklabels(list(SHOWN))
    below.spines[["top", "right"]].set_visible(False)
    below.legend(fontsize=8, ncols=4, loc="upper left")
    drawing.savefig(ROOT / "docs/assets/demo.png", dpi=110)


if __name__ == "__main__":
    main()
