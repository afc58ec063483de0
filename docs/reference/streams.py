"""Draw docs/reference/streams.png: the class and the domain of every sample of each stream.

python docs/reference/streams.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from reta.bench.streams import STREAMS, create

LABELS = torch.arange(480) % 8
DOMAINS = torch.arange(480) // 120
FIELDS = {"correlated": {"concentration": 0.02}, "gradual": {"width": 0.6}, "recurring": {"rounds": 3}}

figure, axes = plt.subplots(len(STREAMS), 2, figsize=(9, 7), sharex="col", layout="constrained")
for row, kind in zip(axes, STREAMS, strict=True):
    index = create(kind, seed=2, **FIELDS.get(kind, {})).order(LABELS, DOMAINS).index
    for axis, values, colors in zip(row, (LABELS, DOMAINS), ("tab10", "viridis"), strict=True):
        axis.scatter(range(len(index)), values[index], c=values[index], s=3, cmap=colors, linewidths=0)
        axis.set(yticks=[], xlim=(0, 480))
        axis.spines[["top", "right", "left"]].set_visible(False)
    row[0].set_ylabel(kind, rotation=0, ha="right", va="center")
axes[0, 0].set_title("class", fontsize=10)
axes[0, 1].set_title("domain", fontsize=10)
axes[-1, 0].set_xlabel("place in the stream")
axes[-1, 1].set_xlabel("place in the stream")
figure.savefig(Path(__file__).with_name("streams.png"), dpi=110)
