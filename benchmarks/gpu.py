"""What the library does on a GPU: steps in CUDA graphs, image encoding, views, sweeps.

    python benchmarks/gpu.py --images 500 --out results/gpu/speed.json
    python benchmarks/gpu.py --page            -> the tables of docs/gpu.md

Every step is timed as `reta.run` takes it (a captured graph, replayed for each image) and eagerly; ReTA also in the
literal form of the released code (tests/reference_reta.py) on the same GPU, where that fits. Answers of graph and
CPU are compared. Encoding is through `reta.load` with random weights: speed does not depend on them. The clock is the
wall's, the device synchronised at both ends.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import open_clip
import peers_table
import torch
from safetensors.torch import save_file
from step import CONSTANTS, DIM, VIEWS, features, literal

import reta
from reta import state as states
from reta.backbone.openclip import BATCH
from reta.graph import Graph
from reta.methods import create, find, names
from reta.methods.ops import unit
from reta.views import Views

TAGS = {
    "ViT-B-16": "openai",
    "RN50": "openai",
    "ViT-L-14": "openai",
    "EVA02-B-16": "merged2b_s8b_b131k",
    "coca_ViT-B-32": "laion2b_s13b_b90k",
}
PARTS = ("released", "encode", "prompts", "views_made", "sweep", "steps")
PRESETS = {"reta": ("paper", "fixed", "released/imagenet")}


def seconds(work: Callable[[], Any], rounds: int = 3) -> float:
    """The best of some rounds, after one to warm up."""
    work()
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def contenders() -> list[tuple[str, str]]:
    light = [name for name in names() if not find(name).needs]
    return [(name, preset) for name in light for preset in PRESETS.get(name, ("fixed",))]


def step(name: str, preset: str, classes: int, images: int) -> dict[str, Any]:
    """Milliseconds per image of a method: the whole run, the bare replay of its graph, and eagerly."""
    images = images if classes <= 1000 else images // 5
    task, views = features(classes, images)
    method = create(name, preset)
    here, there = task.to("cuda"), views.cuda()
    out = {"method": name, "preset": preset, "classes": classes, "images": images}
    out["run_ms"] = 1e3 * seconds(lambda: reta.run(method, here, there, device="cuda"), 2) / images
    graph = Graph(method, here, method.init(here), reta.Sample(there[0, : method.views]))
    out["replay_ms"] = 1e3 * seconds(lambda: [graph.graph.replay() for _ in range(images)], 2) / images
    few = slice(0, 40)
    eager = seconds(lambda: reta.run(method, here, there[few], device="cuda", engine="eager"), 1)
    out["eager_ms"] = 1e3 * eager / len(there[few])
    if classes <= 1000:
        gpu = reta.run(method, here, there[few], device="cuda")
        cpu = reta.run(method, task, views[few], device="cpu")
        out["largest_gap"] = float((cpu.probs - gpu.probs).abs().max())
        out["same_answers"] = float((cpu.predictions == gpu.predictions).double().mean())
    return out


def released(classes: int, images: int) -> dict[str, Any]:
    """The literal form of the released step, everything on the GPU, in fp32."""
    task, views = features(classes, images)
    here, there = task.to("cuda"), views.cuda()
    with torch.device("cuda"):
        method = create("reta", "released/imagenet")
        reference = literal(here, method.init(here))
        reference(there[0])
        torch.cuda.synchronize()
        start = time.perf_counter()
        for row in there[1:]:
            reference(row)
        torch.cuda.synchronize()
    return {"classes": classes, "images": images, "ms": 1e3 * (time.perf_counter() - start) / (images - 1)}


def random_model(name: str, precision: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        save_file(open_clip.create_model(name).state_dict(), path)
        return reta.load(name, TAGS[name], weights=path, device="cuda", precision=precision)


def encode(name: str, images: int = 8192) -> list[dict[str, Any]]:
    """Images per second through a tower of random weights, uint8 pixels on the GPU."""
    rows = []
    for precision in ("fp32", "bf16", "fp16") if name == "ViT-B-16" else ("fp16",):
        model = random_model(name, precision)
        size = model.preprocess.size
        pixels = torch.randint(0, 256, (images, 3, size, size), dtype=torch.uint8, device="cuda")
        few = pixels[: images // 8] if precision == "fp32" else pixels
        row = {"model": name, "precision": precision, "batch": BATCH["cuda"]}
        row["images_per_second"] = len(few) / seconds(lambda m=model, x=few: m.images(x))
        rows.append(row)
    return rows


def prompts(classes: int, images: int = 16) -> dict[str, Any]:
    """Milliseconds per image of tuning a prompt through ViT-B/16's text tower, image features given."""
    model = random_model("ViT-B-16", "fp16")
    names = [f"number {i} of the things" for i in range(classes)]
    task = reta.Task.build(model, names, reward=model)
    views = unit(torch.randn(images, VIEWS, model.dim, device="cuda"))
    row: dict[str, Any] = {"classes": classes, "images": images}
    for name in ("tpt", "difftpt", "rlcf"):
        spent = seconds(lambda n=name: reta.run(create(n), task, views, reward=views, device="cuda"), 1)
        row[f"{name}_ms"] = 1e3 * spent / images
    return row


def make_views(recipe: str, images: int) -> dict[str, Any]:
    """64 views of photograph-sized pictures, made on the GPU."""
    pictures = [torch.randint(0, 256, (3, 375, 500), dtype=torch.uint8) for _ in range(images)]
    maker = Views(recipe, VIEWS, 224)
    keys = [str(i) for i in range(images)]
    spent = seconds(lambda: maker.make_batch(pictures, keys, "cuda"))
    row = {"recipe": recipe, "views_per_second": images * VIEWS / spent, "images_per_second": images / spent}
    return row


def sweep(classes: int, images: int, lanes: int) -> dict[str, Any]:
    """Steps per second when many settings go side by side."""
    task, views = features(classes, images)
    grid = {"eta": [0.1 * k for k in range(1, lanes + 1)]}
    method, labels = create("reta"), torch.zeros(images, dtype=torch.long)
    spent = seconds(
        lambda: reta.sweep(
            method, task.to("cuda"), views.cuda(), labels, grid=grid, lanes=lanes, device="cuda"
        ),
        1,
    )
    return {"classes": classes, "lanes": lanes, "images": images, "ms_per_step": 1e3 * spent / images / lanes}


def tables(results: Path) -> dict[str, list[str]]:
    """The tables of docs/gpu.md by their names."""
    body = json.loads(results.read_text(encoding="utf-8"))
    sizes = list(dict.fromkeys(row["classes"] for row in body["steps"]))
    steps = ["| method | " + " | ".join(f"C = {c:,}" for c in sizes) + " | without a graph, C = 100 |"]
    steps.append("|---|" + "--:|" * (len(sizes) + 1))
    for key in dict.fromkeys((row["method"], row["preset"]) for row in body["steps"]):
        mine = {row["classes"]: row for row in body["steps"] if (row["method"], row["preset"]) == key}
        cells = [f"{mine[c]['run_ms']:.2f}" for c in sizes] + [f"{mine[100]['eager_ms']:.1f}"]
        steps.append(f"| {' '.join(key)} | " + " | ".join(cells) + " |")
    literal = [f"{row['ms']:.0f}" for row in body["released"]] + ["does not fit", "-"]
    steps.append("| *reta, the released form written literally* | " + " | ".join(literal) + " |")
    encode = ["| model | precision | images a second |", "|---|---|--:|"]
    encode += [f"| {r['model']} | {r['precision']} | {r['images_per_second']:,.0f} |" for r in body["encode"]]
    words = ["| classes | TPT | DiffTPT | RLCF |", "|--:|--:|--:|--:|"]
    for row in body["prompts"]:
        cells = [f"{row[f'{name}_ms']:.0f} ms" for name in ("tpt", "difftpt", "rlcf")]
        words.append(f"| {row['classes']:,} | " + " | ".join(cells) + " |")
    views = ["| recipe | views a second | pictures a second |", "|---|--:|--:|"]
    for r in body["views_made"]:
        views.append(f"| {r['recipe']} | {r['views_per_second']:,.0f} | {r['images_per_second']:.0f} |")
    swept = ["| classes | time per image and setting |", "|--:|--:|"]
    swept += [f"| {r['classes']:,} | {r['ms_per_step']:.2f} ms |" for r in body["sweep"]]
    return {"steps": steps, "encode": encode, "prompts": words, "views": views, "sweep": swept}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000, 10000])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--skip", nargs="*", default=[], choices=PARTS)
    parser.add_argument("--page", action="store_true", help="fill the docs page from the committed results")
    args = parser.parse_args()
    if args.page:
        peers_table.fill_page(Path("docs/gpu.md"), tables(Path("results/gpu/speed.json")))
        return
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU; benchmarks/step.py is the one for CPUs")
    body: dict[str, Any] = {
        "machine": f"one {torch.cuda.get_device_name()}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "views": VIEWS,
        "dim": DIM,
        "constants": CONSTANTS,
    }
    parts: dict[str, Iterator[dict[str, Any]]] = {
        "released": (released(classes, 60) for classes in args.classes if classes <= 1000),
        "encode": (row for name in TAGS for row in encode(name)),
        "prompts": (prompts(classes) for classes in (100, 1000)),
        "views_made": (make_views(recipe, 64) for recipe in ("crops", "augmix")),
        "sweep": (sweep(classes, 200, 32) for classes in (100, 1000)),
        "steps": (step(*method, c, args.images) for c in args.classes for method in contenders()),
    }
    for part, rows in parts.items():
        body[part] = []
        for row in rows if part not in args.skip else ():
            body[part].append(row)
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
            if args.out:  # after every row: a machine that is taken back keeps nothing
                with states.atomic(args.out) as path:
                    path.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
