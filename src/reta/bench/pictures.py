"""The images a cache holds at the end, kept as one small picture so that a report needs no data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from reta import methods
from reta import state as states
from reta.bench import jobs
from reta.bench.manifest import Cell
from reta.bench.replay import Replay, replay, slots_of
from reta.errors import require

CLASSES, SIDE = 8, 64


def path_of(out: Path, plan: str, data: str) -> Path:
    """The picture of a plan's caches on a data set; beside it lies a JSON file that says what is where."""
    return out / "pictures" / f"{plan}-{data.replace('/', '_')}.png"


def make(out: Path, plan: str, cells: dict[Cell, jobs.Job], name: str, data: Any) -> Path | None:
    """Draw the caches that all methods of a plan had at the end of the first order on a data set that the plan
    calls `name`.

    Shown are the classes whose caches differ most in how many images are right.
    """
    found: dict[str, tuple[Replay, int]] = {}
    ids: dict[str, str] = {}
    labels, rows = torch.empty(0), torch.empty(0)
    for cell, job in cells.items():
        if cell.data == name and cell.order == 1:
            again = _again(out, job)
            if again is not None:
                found[cell.row], labels, rows = again
                ids[cell.row] = job.id
    if not found:
        return None
    tiles = _tiles(found, labels, len(data.names))
    for tile in tiles:
        tile["name"] = data.names[tile["class"]]
    sprite = Image.new("RGB", (SIDE * max(1, len(tiles)), SIDE), "white")
    for i, tile in enumerate(tiles):
        picture = data.image(int(rows[tile.pop("place")]))
        sprite.paste(_square(picture), (i * SIDE, 0))
    path = path_of(out, plan, name)
    with states.atomic(path) as temporary:
        sprite.save(temporary, "PNG")
    with states.atomic(path.with_suffix(".json")) as temporary:
        temporary.write_text(jobs.text({"ids": ids, "tiles": tiles}), encoding="utf-8")
    return path


def _again(out: Path, job: jobs.Job) -> tuple[tuple[Replay, int], Tensor, Tensor] | None:
    """A job's cache replayed from its rows per sample, the labels and the rows of the stream."""
    slots = slots_of(methods.create(job.method, **job.fields))
    path = jobs.samples_of(out, job.id)
    if slots is None or not path.is_file():
        return None
    table = require("bench", "pyarrow.parquet").read_table(path).to_pydict()
    if "cached" not in table:
        return None
    score = table.get("score", table.get("entropy"))
    # a method's own report calls the class an image is filed under "label"; the file keeps it as "filed"
    parts = (torch.tensor(table["filed"]), torch.tensor(score), torch.tensor(table["cached"]))
    labels = torch.tensor(table["label"])
    return (replay(*parts, labels, slots), slots), labels, torch.tensor(table["row"])


def _tiles(found: dict[str, tuple[Replay, int]], labels: Tensor, classes: int) -> list[dict[str, Any]]:
    """What to show: class, method, score and whether it is right, the most telling classes first."""

    def right(which: Replay, c: int) -> int:
        return sum(int(labels[item.place]) == c for item in which.queues.get(c, ()))

    def telling(c: int) -> tuple[int, int, int]:
        counts = [right(which, c) for which, _ in found.values()]
        held = sum(len(which.queues.get(c, ())) for which, _ in found.values())
        return max(counts) - min(counts), held - sum(counts), -c

    order = sorted(range(classes), key=telling, reverse=True)[:CLASSES]
    return [
        {
            "row": row,
            "class": c,
            "slot": slot,
            "place": item.place,
            "score": round(item.score, 4),
            "right": bool(int(labels[item.place]) == c),
        }
        for c in sorted(order)
        for row, (which, slots) in found.items()
        for slot, item in enumerate(which.queues.get(c, [])[:slots][:3])
    ]


def _square(picture: Image.Image) -> Image.Image:
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
