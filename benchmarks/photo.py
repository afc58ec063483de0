"""Every method on real photographs, paintings, cartoons and sketches, with the model that needs no hub.

    python benchmarks/photo.py --images DIR     -> results/photo/pacs.json
    python benchmarks/photo_page.py             -> the tables and the chart of docs/photo.md and of the model card

DIR is a folder domain/class/image (PACS has this form: photo, art_painting, cartoon, sketch). Each domain is a
stream of its own, in three random orders. Views are encoded once and kept (`--root`); a method that takes more
views than there are works with those there are, and the results say how many there were.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peers
import peers_table
import torch
from torch import Tensor

import reta
import reta.data
from reta.bench import build
from reta.bench.stage import look
from reta.methods import ops

ROOT = Path(__file__).parents[1]
KINDS = ("photo", "art_painting", "cartoon", "sketch")


def domains(folder: Path) -> list[Path]:
    """The sub-folders, from photographs to sketches where they have PACS's names."""
    found = [p for p in folder.iterdir() if p.is_dir()] if folder.is_dir() else []
    if not found:
        raise reta.MissingData(f"{folder} must hold one folder a domain, with one folder a class in each")
    return sorted(found, key=lambda p: (KINDS.index(p.name) if p.name in KINDS else len(KINDS), p.name))


def opened(folder: Path, views: int, root: Path | None, precision: str) -> Iterator[peers.Features]:
    """Every domain with its views, encoded when a method first asks for them."""
    model = reta.load("reta-photo", precision=precision)
    for domain in domains(folder):
        data = reta.data.open(domain)
        task = reta.Task.build(model, data.names, templates="openai-7")

        @functools.cache
        def made(recipe: str, area: float, count: int, data: Any = data) -> Tensor:
            more = {} if area < 0 else {"area": (area, 1.0)}
            store = build(data, model, recipe=recipe, n_views=count, root=root, progress=True, **more)
            return ops.unit(store.read(torch.arange(len(store)), store.n_views).float())

        def seen(method: Any, made: Any = made) -> Tensor:
            return made(*look(method), min(views, method.views))

        yield peers.Features(domain.name, "reta-photo", task, torch.tensor(data.labels), seen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, metavar="DIR")
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--precision", default="auto", help="of the towers: auto, fp32, bf16, fp16")
    parser.add_argument("--root", type=Path, metavar="DIR", help="where encoded views are kept")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "photo" / "pacs.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for data in opened(options.images, options.views, options.root, options.precision):
        found = list(peers.rows(data))
        results += [row | {"images": len(data.labels), "views": options.views} for row in found]
        print("\n".join(peers_table.table(results)), flush=True)
    peers.write(options.out, f"PACS-shaped folder, views encoded in {options.precision}", results)


if __name__ == "__main__":
    main()
