"""How fast the feature store is read, against the same rows of a tensor in memory.

    python benchmarks/store.py          -> results/bench/store.json

The store has the size of a real one per image (512 numbers, 64 views, fp16: 64 KiB); its features come from a
stand-in model that costs nothing. Reading is in random order, in the blocks of the engine, after one pass that
puts the files into the disk cache. Last, one method runs over the store: how much of its time is reading?
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import reta
from reta.backbone import Preprocess
from reta.bench import Store, build
from reta.data import Dataset
from reta.data.dataset import Made
from reta.engine import CHUNK
from reta.state import atomic

DIM, VIEWS, CLASSES = 512, 64, 100


class StandIn:
    """Random unit rows of the width of ViT-B/16."""

    name, tag, dim, scale, fingerprint = "stand-in", None, DIM, 100.0, "0"
    device = torch.device("cpu")
    preprocess = Preprocess(size=1, mean=(0.0,) * 3, std=(1.0,) * 3)

    def __init__(self) -> None:
        self.noise = torch.Generator().manual_seed(0)

    def images(self, pixels: torch.Tensor, batch: int = 0) -> torch.Tensor:
        rows = torch.randn(len(pixels), DIM, generator=self.noise)
        return rows / rows.norm(dim=-1, keepdim=True)


def dot(color: int) -> Image.Image:
    return Image.new("RGB", (1, 1), (color % 256, color // 256, 0))


def made(images: int, root: Path) -> Store:
    refs = [Made(partial(dot, i)) for i in range(images)]
    keys, labels = tuple(map(str, range(images))), tuple(i % CLASSES for i in range(images))
    data = Dataset("dots", keys, refs, labels, tuple(f"class {c}" for c in range(CLASSES)), fixed=True)
    return build(data, StandIn(), "crops", VIEWS, root=root, batch=4096)


def rate(read: Callable[[torch.Tensor], Any], images: int, repeats: int = 5) -> float:
    """Images a second, the best of several passes in random order."""
    best = 0.0
    for seed in range(repeats + 1):
        order = torch.randperm(images, generator=torch.Generator().manual_seed(seed))
        start = time.perf_counter()
        for part in order.split(CHUNK):
            read(part)
        if seed:
            best = max(best, images / (time.perf_counter() - start))
    return best


class Timed:
    """A store that knows how long it was read."""

    def __init__(self, store: Store):
        self.store, self.seconds = store, 0.0

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        return self.store[index]

    def read(self, index: torch.Tensor, n_views: int | None = None) -> torch.Tensor:
        start = time.perf_counter()
        rows = self.store.read(index, n_views)
        self.seconds += time.perf_counter() - start
        return rows


def running(store: Store, name: str, views: int, images: int) -> dict[str, Any]:
    """One method over part of the store, as `reta.run` does it."""
    noise = torch.Generator().manual_seed(1)
    task = reta.Task.from_features(torch.randn(CLASSES, 4, DIM, generator=noise))
    method = reta.methods.create(name, views=views) if name != "zeroshot" else reta.methods.create(name)
    order = torch.randperm(len(store), generator=noise)[:images]
    table = Timed(store)
    reta.run(method, task, table, order=order[:32], device="cpu")
    table.seconds, start = 0.0, time.perf_counter()
    reta.run(method, task, table, order=order, device="cpu")
    total = time.perf_counter() - start
    return {
        "method": name,
        "views": views,
        "images_per_second": round(images / total),
        "reading_images_per_second": round(images / table.seconds),
        "share_of_time_reading": round(table.seconds / total, 4),
    }


def measure(images: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as root:
        store = made(images, Path(root))
        memory = store.read(torch.arange(images))
        reading = {}
        for views in (1, 16, VIEWS):
            ours = rate(lambda rows, v=views: store.read(rows, v), images)
            theirs = rate(lambda rows, v=views: memory[rows, :v], images)
            reading[str(views)] = {"images_per_second": round(ours), "in_memory": round(theirs)}
            reading[str(views)]["ratio"] = round(ours / theirs, 2)
        runs = [running(store, "zeroshot", 1, images), running(store, "tda", VIEWS, 1000)]
        size = sum(p.stat().st_size for p in store.path.rglob("*") if p.is_file())
    return {
        "images": images,
        "bytes_per_image": round(size / images),
        "read": reading,
        "run": runs,
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load": round(os.getloadavg()[0], 1),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--out", type=Path, default=Path("results/bench/store.json"))
    options = parser.parse_args()
    found = measure(options.images)
    with atomic(options.out) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
