"""ReTA: presets and the four rows of the paper's Table 3 on real features and on the embedded world.

    python benchmarks/reta_results.py real --features DIR      -> results/reta/real.json
    python benchmarks/reta_results.py world                    -> results/reta/world.json, docs/assets/reta-stream.png
    python benchmarks/reta_results.py page                     -> the tables of docs/methods/reta.md

The data, the measures and the files are those of `benchmarks/peers.py`: three random orders, one view per image on
the real features, 64 on the world.
"""

from __future__ import annotations

import argparse
import heapq
import json
from pathlib import Path
from typing import Any

import peers
import peers_table
import torch
from torch import Tensor

import reta
from reta.methods import create

PAGE = Path("docs/methods/reta.md")
ROWS = {
    "zero-shot": ("zeroshot", None, {}),
    "ensemble": ("ensemble", None, {}),
    "TDA": ("tda", "fixed", {}),
    "ReTA, paper": ("reta", "paper", {}),
    "ReTA, paper literal": ("reta", "paper_literal", {}),
    "ReTA, fixed": ("reta", "fixed", {}),
    "ReTA, released/eurosat": ("reta", "released/eurosat", {}),
    "ReTA, released/imagenet": ("reta", "released/imagenet", {}),
    "paper, neither CER nor DDC": ("reta", "paper", {"cer": False, "ddc": False}),
    "paper, CER alone": ("reta", "paper", {"ddc": False}),
    "paper, DDC alone": ("reta", "paper", {"cer": False}),
    "fixed, neither CER nor DDC": ("reta", "fixed", {"cer": False, "ddc": False}),
    "fixed, CER alone": ("reta", "fixed", {"ddc": False}),
    "fixed, DDC alone": ("reta", "fixed", {"cer": False}),
}
SAME_VIEWS = {"recipe": "augmix"}


def rows(data: peers.Features) -> list[dict[str, Any]]:
    """One result per row and order."""
    results = []
    for label, (name, preset, changes) in ROWS.items():
        fields = changes | SAME_VIEWS if name == "reta" else changes
        method = create(name, preset, **fields)
        for seed in range(peers.ORDERS):
            order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(seed))
            probs, _, cost = peers.follow(method, data, order)
            head = {"dataset": data.dataset, "model": data.model, "order": seed, "images": len(data.labels)}
            head |= {"label": label, "method": name, "preset": preset, "fields": fields}
            results.append(head | peers.measure(probs, data.labels[order]) | cost)
            print(
                f"{data.dataset:14} {data.model:10} {seed} {label:28} {results[-1]['accuracy']:6.2f}",
                flush=True,
            )
    return results


def cache_accuracy(info: dict[str, Tensor], score: str, labels: Tensor, slots: int) -> list[float]:
    """Share of right items in the cache after every image, from what a run reports: class, score, taken or not."""
    queues: dict[int, list[tuple[float, int]]] = {}
    right, held, curve = 0, 0, []
    for i, (guess, value, taken) in enumerate(zip(info["label"], info[score], info["cached"], strict=True)):
        if bool(taken):
            item = (-float(value), int(guess == labels[i]))
            queue = queues.setdefault(int(guess), [])
            gone = heapq.heappushpop(queue, item) if len(queue) == slots else heapq.heappush(queue, item)
            held += gone is None
            right += item[1] - (0 if gone is None else gone[1])
        curve.append(100 * right / max(held, 1))
    return curve


def picture(data: peers.Features, out: Path) -> None:
    """Cache accuracy and accuracy along one stream: ReTA against a cache ordered by entropy alone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(0))
    labels = data.labels[order]
    drawn = {
        "ensemble": (create("ensemble"), None),
        "TDA": (create("tda", "fixed"), "entropy"),
        "ReTA without CER": (create("reta", "fixed", cer=False), "score"),
        "ReTA": (create("reta", "fixed"), "score"),
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for i, (label, (method, score)) in enumerate(drawn.items()):
        line = {"label": label, "color": f"C{i}"}
        run = reta.run(method, data.task, data.views(method), data.labels, order=order, device="cpu")
        hits = (run.predictions == labels).double()
        along = 100 * hits.cumsum(0) / torch.arange(1, len(hits) + 1)
        right.plot(range(50, len(hits)), along[50:], **line)
        if score:
            curve = cache_accuracy(run.info, score, labels, 3)
            left.plot(
                range(50, len(curve)), curve[50:], linewidth=6 - 1.5 * i, **line
            )  # one under another shows
    left.set(title=f"right items in the cache, {data.dataset}", xlabel="images seen", ylabel="%")
    right.set(title=f"accuracy so far, {data.dataset}", xlabel="images seen", ylabel="%")
    for axes in (left, right):
        axes.legend(fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=120)


def lines_of(path: Path) -> list[str]:
    """The table of a results file; its rows are named by their labels."""
    if not path.is_file():
        return ["Not measured yet."]
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return peers_table.table([row | {"method": row["label"], "preset": "fixed"} for row in rows])


def page() -> None:
    """Fill the tables of the docs page from the committed results."""
    tables = {name: lines_of(Path(f"results/reta/{name}.json")) for name in ("real", "world")}
    peers_table.fill_page(PAGE, tables)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="page", choices=("real", "world", "page"))
    parser.add_argument("--features", type=Path, metavar="DIR", help="real: where the feature files are")
    parser.add_argument("--images", type=int, default=500, metavar="N", help="world: images of each set")
    parser.add_argument("--root", type=Path, metavar="DIR", help="world: where to keep encoded views")
    options = parser.parse_args()
    if options.what == "page":
        return page()
    torch.set_num_threads(1)
    Path("results/reta").mkdir(parents=True, exist_ok=True)
    source = (
        peers.real(options.features) if options.what == "real" else peers.world(options.images, options.root)
    )
    results = []
    for data in source:
        results += rows(data)
        if data.dataset == "shapes-v2":
            picture(data, Path("docs/assets/reta-stream.png"))
    return peers.write(Path(f"results/reta/{options.what}.json"), options.what, results)


if __name__ == "__main__":
    main()
