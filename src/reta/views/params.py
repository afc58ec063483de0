"""The random choices of a view, drawn once and applied by either engine.

Every view owns 64 uniform numbers: row v of the PCG64 stream whose seed is a blake2b hash of (run seed, image
key). Row v never depends on how many views are asked for, on other images, or on who draws it, so views are the
same for any worker count, batch size and order, and after a resume. Raw PCG64 output is used, whose stream NumPy
guarantees for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

OPS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
CHAINS, DEPTH, TRIES, WIDTH = 3, 3, 10, 64


class Draws(NamedTuple):
    """What happens to each view: the crop, the flip, and three chains of AugMix operations with their weights.

    `op` indexes `OPS`, -1 beyond the depth of a chain. `amount` is ready to use: bits for posterize, a threshold
    for solarize, signed degrees for rotate, signed pixels for translate, a signed slope for shear.
    """

    box: Int[np.ndarray, "views 4"]  # top, left, height, width
    flip: Bool[np.ndarray, " views"]
    keep: Float32[np.ndarray, " views"]
    weight: Float32[np.ndarray, "views 3"]
    op: Int[np.ndarray, "views 3 3"]
    amount: Float[np.ndarray, "views 3 3"]


def draw(
    seed: int, key: str, n: int, width: int, height: int, size: int, area: tuple[float, float] = AREA
) -> Draws:
    """The choices for views 1 to n - 1 of one image (view 0 is the plain view and has none).

    >>> few, many = (draw(0, "cat.jpg", n, 640, 480, 224) for n in (4, 64))
    >>> bool((few.box == many.box[:3]).all())
    True
    """
    u = uniforms(seed, key, n)[1:]
    weight = -np.log1p(-u[:, 23:26])  # unit exponentials over their sum are Dirichlet(1, 1, 1)
    depth = (u[:, 27:30] * DEPTH).astype(np.int64) + 1
    op = (u[:, 30:39] * len(OPS)).astype(np.int64).reshape(-1, CHAINS, DEPTH)
    level = 0.1 + 0.9 * u[:, 39:48].reshape(op.shape)
    sign = np.where(u[:, 48:57].reshape(op.shape) > 0.5, -1.0, 1.0)
    return Draws(
        box=boxes(u[:, :22], width, height, area),
        flip=u[:, 22] < 0.5,
        keep=u[:, 26].astype(np.float32),
        weight=(weight / weight.sum(1, keepdims=True)).astype(np.float32),
        op=np.where(np.arange(DEPTH) < depth[..., None], op, -1),
        amount=amounts(op, level, sign, size),
    )


def uniforms(seed: int, key: str, n: int) -> Float[np.ndarray, "n 64"]:
    """n rows of 64 numbers in [0, 1)."""
    digest = blake2b(
        f"{seed}\0{key}".encode("utf-8", "surrogateescape"), digest_size=16, person=b"reta.views"
    )
    stream = np.random.PCG64(int.from_bytes(digest.digest(), "little"))
    return (stream.random_raw(n * WIDTH) >> np.uint64(11)).reshape(n, WIDTH) * 2.0**-53


def boxes(
    u: Float[np.ndarray, "views 22"], width: int, height: int, area: tuple[float, float]
) -> Int[np.ndarray, "views 4"]:
    """The rule of torchvision's RandomResizedCrop: ten tries, then a central crop of a ratio allowed."""
    target = width * height * (area[0] + u[:, 0:20:2] * (area[1] - area[0]))
    low, high = np.log(RATIO)
    ratio = np.exp(low + u[:, 1:20:2] * (high - low))
    wide, tall = np.rint(np.sqrt(target * ratio)), np.rint(np.sqrt(target / ratio))
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    first = fits.argmax(1)[:, None]
    size = np.stack([np.take_along_axis(side, first, 1)[:, 0] for side in (tall, wide)], 1).astype(np.int64)
    corner = (u[:, 20:22] * (np.array([height, width]) - size + 1)).astype(np.int64)
    return np.where(fits.any(1)[:, None], np.concatenate([corner, size], 1), central(width, height))


def central(width: int, height: int) -> Int[np.ndarray, "4"]:
    """The largest central crop whose ratio is allowed."""
    ratio = width / height
    tall = round(width / RATIO[0]) if ratio < RATIO[0] else height
    wide = round(height * RATIO[1]) if ratio > RATIO[1] else width
    return np.array([(height - tall) // 2, (width - wide) // 2, tall, wide])


def amounts(
    op: Int[np.ndarray, "..."], level: Float[np.ndarray, "..."], sign: Float[np.ndarray, "..."], size: int
) -> Float[np.ndarray, "..."]:
    """Strengths at severity 1, with the roundings of the published code (so posterize always keeps 4 bits)."""
    none = np.zeros_like(level)
    shear, shift = 0.03 * level * sign, np.floor(level * (size / 3) / 10) * sign
    table = [
        none,
        none,
        4 - np.floor(level * 0.4),
        np.floor(level * 3) * sign,
        256 - np.floor(level * 25.6),
        shear,
        shear,
        shift,
        shift,
    ]
    return np.choose(op, table)


def joined(draws: Sequence[Draws]) -> Draws:
    """The draws of several images, one after another."""
    return Draws(*(np.concatenate(parts) for parts in zip(*draws, strict=True)))
