"""Methods through the encoders on the embedded world, beside those on features.

    python benchmarks/encoders.py --images 100 --out results/encoders/world.json
    python benchmarks/encoders.py --page            -> the table of docs/methods/encoders.md

`reta-mini` adapts, `reta-mini-l` rewards; CoOp learns its context from 16 drawn training images per class of
`shapes`. All methods see the same images, the same 64 views of their recipe and the same orders; ensemble, TDA, DPE
and ReTA have seven templates and the descriptions, all others and the second model "a photo of a NAME.". DiffTPT runs
without generated views (none can be made for drawings): its filters and four steps on the standard ones.
Milliseconds are processor time per image, after the encoders, except for rlcf-tune and rlcf-momentum, whose steps
encode again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import peers_table
import torch
from torch import Tensor

import reta
from reta import coop, grid, methods
from reta.data import shapes
from reta.sample import Sample
from reta.views import Views

POOLED = ("ensemble", "tda", "dpe", "reta", "reta, paper", "reta-reward", "reta-reward, paper")


def lineup(context: str) -> dict[str, Any]:
    """Row label -> method; ReTA with and without reward by the same two presets."""
    rows = {name: methods.create(name, "fixed") for name in ("zeroshot", "ensemble", "tda", "dpe", "reta")}
    rows |= {"reta, paper": methods.create("reta", "paper")}
    rows |= {"coop": methods.create("coop", context=context), "tpt": methods.create("tpt")}
    rows |= {"tpt + coop": methods.create("tpt", context=context), "difftpt": methods.create("difftpt")}
    rows |= {"rlcf": methods.create("rlcf"), "rlcf + coop": methods.create("rlcf", context=context)}
    rows |= {name: methods.create(name) for name in ("rlcf-tune", "rlcf-momentum")}
    rows |= {"reta-reward": methods.create("reta-reward", "fixed")}
    return rows | {"reta-reward, paper": methods.create("reta-reward", "paper")}


def learn_context(model: Any, task: reta.Task, path: Path, shots: int = 16) -> dict[str, Any]:
    """CoOp on drawn training images; the test sets are never touched."""
    labels = torch.tensor([shapes.label("train", i) for i in range(4000)])
    chosen = coop.few_shots(labels, shots)
    maker = Views("crops", 8, model.preprocess.size, interpolation=model.preprocess.interpolation)
    rows = [model.images(maker.make(shapes.draw("train", int(i)), key=f"train/{i}")) for i in chosen]
    start = time.process_time()
    learned, losses = coop.fit(task, torch.stack(rows), labels[chosen], epochs=50)
    coop.save(path, learned, task, shots=shots)
    about = {"shots": shots, "images": len(chosen), "first_loss": losses[0], "last_loss": losses[-1]}
    return about | {"seconds": round(time.process_time() - start, 1)}


def encode(
    name: str, n: int, views: int, models: list[Any], recipes: set[str]
) -> tuple[dict[str, Any], dict[str, Any], Tensor]:
    """Features of every view by each model, per recipe, and the pixels of the AugMix ones."""
    world = shapes.open(name, n=n)
    labels = torch.tensor([world[i][1] for i in range(n)])
    bank: dict[str, list[Tensor]] = {}
    pixels = {}
    for recipe in sorted(recipes):
        maker = Views(
            recipe, views, models[0].preprocess.size, interpolation=models[0].preprocess.interpolation
        )
        made = torch.cat([maker.make_batch([world[i][0]], [world.keys[i]]) for i in range(n)])
        flat = made.flatten(0, 1)
        bank[recipe] = [model.images(flat, batch=256).unflatten(0, (n, -1)) for model in models]
        if recipe == "augmix":
            pixels[recipe] = (made * 255).round().to(torch.uint8)
    return bank, pixels, labels


def run(
    method: Any, task: reta.Task, bank: Any, pixels: Any, labels: Tensor, order: Tensor
) -> dict[str, Any]:
    own, second = bank[method.recipe]
    start = time.process_time()
    if "pixels" in method.needs:
        stream = (Sample(own[i], second[i], pixels[method.recipe][i].float() / 255) for i in order.tolist())
        out = reta.run(method, task, stream, labels[order])
    else:
        out = reta.run(method, task, own, labels, reward=second, order=order)
    spent = time.process_time() - start
    return {"accuracy": round(out.accuracy, 3), "ms": round(1e3 * spent / len(order), 2)}


def table(results: Path) -> list[str]:
    """Mean accuracy over the orders, per set, and processor time."""
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"]
    lines = [
        "| method | " + " | ".join(shapes.SETS) + " | mean | ms |",
        "|---|" + "--:|" * (len(shapes.SETS) + 2),
    ]
    for label in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == label]
        cells = [statistics.fmean(r["accuracy"] for r in mine if r["set"] == name) for name in shapes.SETS]
        spent = statistics.fmean(row["ms"] for row in mine)
        values = [f"{value:.1f}" for value in (*cells, statistics.fmean(cells), spent)]
        lines.append(f"| {label} | " + " | ".join(values) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--orders", type=int, default=3, help="stream orders for online methods")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", action="store_true", help="fill the docs page from the committed results")
    args = parser.parse_args()
    if args.page:
        lines = table(Path("results/encoders/world.json"))
        peers_table.fill_page(Path("docs/methods/encoders.md"), {"world": lines})
        return
    torch.set_num_threads(1)
    model, reward = reta.load("reta-mini", device="cpu"), reta.load("reta-mini-l", device="cpu")
    task = reta.Task.build(model, shapes.classes(), reward=reward)
    wide = reta.Task.build(model, shapes.classes(), templates="openai-7", prompts=shapes.descriptions())
    wide = dataclasses.replace(wide, reward=task.reward)
    context = Path("training/runs/context.safetensors")
    learned = learn_context(model, task, context)
    print("coop:", learned, flush=True)
    rows, judge = lineup(str(context)), methods.create("zeroshot")
    recipes = {method.recipe for method in (judge, *rows.values())}
    results = []
    for name in shapes.SETS:
        bank, pixels, labels = encode(name, args.images, args.views, [model, reward], recipes)
        orders = grid.stream_orders(args.orders + 1, len(labels))[1:]
        better = reta.run(judge, task.reward, bank["plain"][1], labels).accuracy
        results.append(
            {
                "set": name,
                "method": "zeroshot of reta-mini-l",
                "order": 0,
                "accuracy": round(better, 3),
                "ms": 0,
            }
        )
        for label, method in rows.items():
            for i, order in enumerate(orders[: 1 if method.episodic else args.orders]):
                row = {"set": name, "method": label, "order": i}
                given = wide if label in POOLED else task
                results.append(row | run(method, given, bank, pixels, labels, order))
                print(json.dumps(results[-1]), flush=True)
    machine = (
        f"{platform.machine()}, one thread, PyTorch {torch.__version__}; the machine was shared while it ran"
    )
    settings = {
        "reta": reta.__version__,
        "images": args.images,
        "views": args.views,
        "orders": args.orders,
        "machine": machine,
        "coop": learned,
    }
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(
            json.dumps({"settings": settings, "rows": results}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
