"""Every method on real photographs, paintings, cartoons and sketches, with the model that needs no hub.

    python benchmarks/photo.py --images DIR --root FEATURES     -> results/photo/pacs.json
    python benchmarks/photo_page.py             -> the tables and the chart of docs/photo.md and of the model card

DIR is a folder domain/class/image (PACS has this form: photo, art_painting, cartoon, sketch). Each domain is a
stream of its own, in three random orders; methods that forget each image need only one. Views are encoded once
and kept (`--root`); a method that takes more than `--views` works with those there are. Texts and learned prompts
are in fp32 whatever the images are in. Methods that ask a second model are judged by this very one.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peers
import torch
from torch import Tensor

import reta
import reta.data
from reta import state as states
from reta.bench import build
from reta.bench.stage import look
from reta.methods import create, dmn, ops, presets

ROOT = Path(__file__).parents[1]
KINDS = ("photo", "art_painting", "cartoon", "sketch")
PROMPTED = {"coop": "a photo of a", "tpt": "fixed", "difftpt": "no generated views"}
JUDGED = {"rlcf": "its own judge", "reta-reward": "its own judge"}
SHOWN = ("paper", "fixed")
OFF = {
    "neither CER nor DDC": {"cer": False, "ddc": False},
    "CER alone": {"ddc": False},
    "DDC alone": {"cer": False},
}


Contenders = Iterator[tuple[str, str, Any]]


def on_features() -> Contenders:
    """Name, preset and method of every row, for all that work on features alone."""
    yield from peers.contenders()
    yield "dmn", "oracle weight", create("dmn", oracle_weight_search=True)


def through_encoders() -> Contenders:
    """What moves the prompt or asks a second model, but neither needs labels nor encodes again.

    CoOp with words in place of a learned context is where the learned prompts start from.
    """
    yield from ((name, label, create(name)) for name, label in (PROMPTED | JUDGED).items())


def reta_in_parts() -> Contenders:
    """ReTA with every further preset, and with its two components switched off."""
    for preset in presets("reta"):
        if preset not in SHOWN:
            yield "reta", preset, create("reta", preset)
    for preset in SHOWN:
        for label, off in OFF.items():
            yield "reta", f"{preset}, {label}", create("reta", preset, **off)


PARTS = {"features": on_features, "encoders": through_encoders, "reta": reta_in_parts}


def domains(folder: Path) -> list[Path]:
    """The sub-folders, from photographs to sketches where they have PACS's names."""
    found = [p for p in folder.iterdir() if p.is_dir()] if folder.is_dir() else []
    if not found:
        raise reta.MissingData(f"{folder} must hold one folder a domain, with one folder a class in each")
    return sorted(found, key=lambda p: (KINDS.index(p.name) if p.name in KINDS else len(KINDS), p.name))


def opened(folder: Path, views: int, root: Path | None, precision: str) -> Iterator[peers.Features]:
    """Every domain with its views, encoded when a method first asks for them."""
    model, reader = (reta.load("reta-photo", precision=kind) for kind in (precision, "fp32"))
    for domain in domains(folder):
        data = reta.data.open(domain)
        task = reta.Task.build(reader, data.names, templates="openai-7")

        @functools.cache
        def made(recipe: str, area: float, count: int, data: Any = data) -> Tensor:
            more: dict[str, Any] = {} if area < 0 else {"area": (area, 1.0)}
            store = build(data, model, recipe, count, root=root, progress=True, **more)
            return ops.unit(store.read(torch.arange(len(store)), store.n_views).float())

        def seen(method: Any, made: Any = made) -> Tensor:
            return made(*look(method), min(views, method.views))

        yield peers.Features(domain.name, "reta-photo", task, torch.tensor(data.labels), seen)


def rows(data: peers.Features, part: str) -> Iterator[dict[str, Any]]:
    """One result per method and order."""
    task = dataclasses.replace(data.task, reward=data.task)
    for name, preset, method in PARTS[part]():
        views = data.views(method)
        for seed in range(1 if method.episodic else peers.ORDERS):
            order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(seed))
            out = reta.run(method, task, views, reward=views, order=order, device="cpu")
            probs, labels = out.probs, data.labels[order]
            if preset == "oracle weight":
                probs = dmn.oracle(out.info, labels).probs
            head = {"part": part, "dataset": data.dataset, "images": len(labels), "views": views.shape[1]}
            told = {"method": name, "preset": preset, "oracle": preset == "oracle weight", "order": seed}
            size = {"state_bytes": states.nbytes(out.state)}
            yield head | told | peers.measure(probs, labels) | size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, metavar="DIR")
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--precision", default="auto", help="of the image tower: auto, fp32, bf16, fp16")
    parser.add_argument("--root", type=Path, metavar="DIR", help="where encoded views are kept")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "photo" / "pacs.json")
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="only these rows; others stay as they are"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen, results = options.part or list(PARTS), []
    if options.out.is_file():
        old = json.loads(options.out.read_text(encoding="utf-8"))["rows"]
        results = [row for row in old if row["part"] not in chosen]
    for data in opened(options.images, options.views, options.root, options.precision):
        for part in chosen:
            for row in rows(data, part):
                results.append(row)
                place = f"{row['dataset']:14} {row['order']} {row['method']:13} {row['preset']:26}"
                print(f"{place} {row['accuracy']:6.2f} {row['ece']:6.2f}", flush=True)
    peers.write(options.out, f"PACS-shaped folder, views encoded in {options.precision}", results)


if __name__ == "__main__":
    main()
