"""The same views on tensors, CPU or GPU: all views of many images together, in chunks that fit the cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from reta.views import resample
from reta.views.mix import augmix
from reta.views.params import CHAINS, DEPTH, Draws, joined

CHUNK = {"cpu": 2**21, "cuda": 2**28}  # bytes of crops that go through the operations together


def views(
    images: Sequence[UInt8[Tensor, "3 _ _"]],
    draws: Sequence[Draws],
    recipe: str,
    size: int,
    interpolation: str,
    mode: str,
    fill: int,
) -> Float32[Tensor, "images views 3 size size"]:
    """Row 0 of each image is its plain view, the others are as drawn. All images lie on one device."""
    count, device = 1 + len(draws[0].flip), images[0].device
    out = torch.empty(len(images) * count, 3, size, size, device=device)
    rows = joined([part for drawn in draws for part in (_NOTHING, drawn)])
    step = max(CHUNK.get(device.type, 2**20) // (3 * size**2), 1)
    for start in range(0, len(out), step):
        stop = min(start + step, len(out))
        base = _bases(images, rows, range(start, stop), count, size, interpolation, mode, fill)
        if recipe == "augmix":
            augmix(base, Draws(*(field[start:stop] for field in rows)), out[start:stop])
        else:
            torch.div(base, 255, out=out[start:stop])
    return out.view(len(images), count, 3, size, size)


_NOTHING = Draws(
    box=np.zeros((1, 4), np.int64),
    flip=np.zeros(1, bool),
    keep=np.ones(1, np.float32),
    weight=np.zeros((1, CHAINS), np.float32),
    op=np.full((1, CHAINS, DEPTH), -1),
    amount=np.zeros((1, CHAINS, DEPTH)),
)


def _bases(
    images: Sequence[UInt8[Tensor, "3 _ _"]],
    draws: Draws,
    rows: range,
    count: int,
    size: int,
    interpolation: str,
    mode: str,
    fill: int,
) -> UInt8[Tensor, "rows 3 size size"]:
    """Plain views and crops for a run of rows of the flattened (image, view) list."""
    parts = []
    for number in range(rows.start // count, (rows.stop - 1) // count + 1):
        first, last = max(rows.start, number * count), min(rows.stop, (number + 1) * count)
        if first == number * count:
            parts.append(resample.plain(images[number], size, interpolation, mode, fill)[None])
            first += 1
        if first < last:
            parts.append(resample.crops(images[number], draws.box[first:last], draws.flip[first:last], size))
    return torch.cat(parts)
