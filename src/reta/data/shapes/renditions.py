"""Renditions: the same things as a cartoon, pixel art, stained glass, embroidery, neon, mosaic, paint, print."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from PIL import Image

from . import paint
from .looks import Look
from .trace import FINE, SIZE, Tones, body, cover, detail, edges, fill, outline, pose

_Y, _X = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)


def rendition(rng: Generator, look: Look, name: str) -> Image.Image:
    """Draw one class in one of the styles."""
    tones = fill(outline(rng, look, name), pose(rng, look))
    style = STYLES[int(rng.integers(len(STYLES)))]
    return paint.finish(style(rng, tones))


def _two(rng: Generator, gap: float = 90.0) -> tuple[paint.Colour, paint.Colour]:
    """Two colours that stand apart."""
    for _ in range(20):
        first, second = paint.colour(rng)[1], paint.colour(rng)[1]
        if paint.apart(first, second) > gap:
            return first, second
    return np.full(3, 20, np.float32), np.full(3, 235, np.float32)


def _flat(rng: Generator, tones: Tones) -> tuple[paint.Picture, paint.Colour]:
    """Object and ground in plain colours, details in a third."""
    base, ink = _two(rng)
    picture = paint.mix(paint.ground(rng, "plain", base, base), ink, body(tones))
    return paint.mix(picture, mean(base, ink), detail(tones)), ink


def mean(first: paint.Colour, second: paint.Colour) -> paint.Colour:
    """The colour half way."""
    return (first + second) / 2


def cartoon(rng: Generator, tones: Tones) -> paint.Picture:
    """Flat bright fill with a thick black outline."""
    picture, _ = _flat(rng, tones)
    return paint.mix(picture, 12.0, cover(edges(tones, int(rng.integers(4, 7)))))


def pixel_art(rng: Generator, tones: Tones) -> paint.Picture:
    """A coarse grid of squares with few colours."""
    picture, ink = _flat(rng, tones)
    picture = paint.mix(picture, ink * 0.55, cover(edges(tones, 4)) * body(tones))
    grid = int(rng.choice([16, 21]))
    small = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).resize(
        (grid, grid), Image.Resampling.BOX
    )
    coarse = (np.asarray(small).astype(np.int32) + 20) // 40 * 40
    image = Image.fromarray(np.clip(coarse, 0, 255).astype(np.uint8)).resize(
        (SIZE, SIZE), Image.Resampling.NEAREST
    )
    return np.asarray(image, dtype=np.float32)


def _cells(rng: Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The index of the nearest of `count` random seeds at each pixel, and how near a cell border is."""
    side = int(np.ceil(np.sqrt(count)))
    step = SIZE / side
    seeds = (np.mgrid[0:side, 0:side].reshape(2, -1).T + rng.uniform(0, 1, (side * side, 2))) * step
    seeds = seeds.astype(np.float32)
    far = (_Y[..., None] - seeds[:, 0]) ** 2 + (_X[..., None] - seeds[:, 1]) ** 2
    two = np.sqrt(np.partition(far, 1, axis=2)[:, :, :2])
    return far.argmin(2), (two[:, :, 1] - two[:, :, 0])[:, :, None]


def stained_glass(rng: Generator, tones: Tones) -> paint.Picture:
    """Panes of coloured glass between dark leads; the object is of one hue."""
    base, ink = _two(rng, 80)
    cell, border = _cells(rng, 49)
    hue = rng.uniform(-35, 35, (64, 3)).astype(np.float32)[cell]
    picture = paint.mix(base + hue, ink + hue, body(tones)) * (0.9 + 0.3 * paint.ramp(rng))
    leads = np.maximum(np.clip(1.4 - border, 0, 1) * 0.8, cover(edges(tones, 4)))
    return paint.mix(picture, 20.0, leads)


def embroidery(rng: Generator, tones: Tones) -> paint.Picture:
    """Threads in rows on woven cloth."""
    base, ink = _two(rng, 85)
    weave = 6 * (((_X + _Y) % 2) + ((_X - _Y) % 4 < 2))[:, :, None]
    a = rng.uniform(0, np.pi)
    u = _X * np.float32(np.cos(a)) + _Y * np.float32(np.sin(a))
    v = _Y * np.float32(np.cos(a)) - _X * np.float32(np.sin(a))
    thread = np.abs(u / 2.5 % 1 - 0.5) + 0.3 * ((v / 6 + np.floor(u / 2.5) * 0.5) % 1 < 0.2)
    stitched = ink * (1.1 - 0.75 * thread[:, :, None])
    picture = paint.mix(base - weave, stitched, body(tones))
    rim = cover(edges(tones, 3)) * ((_X + _Y) % 5 < 3)[:, :, None]
    return paint.mix(picture, ink * 0.5, rim * 0.8)


def neon(rng: Generator, tones: Tones) -> paint.Picture:
    """Glowing tubes along the outline, in the dark."""
    ink = paint.colour(rng)[1]
    ink = ink / max(float(ink.max()), 60.0) * 255
    tube = cover(edges(tones, 4))
    glow = paint.soften(np.repeat(tube * 255, 3, 2), 3) / 255
    night = np.full((SIZE, SIZE, 3), rng.uniform(8, 40), dtype=np.float32)
    inside = paint.mix(night, ink, 0.35 * body(tones))
    return paint.mix(inside + 1.2 * ink * glow, 0.4 * ink + 150, tube)


def mosaic(rng: Generator, tones: Tones) -> paint.Picture:
    """Small tiles with grout between them."""
    picture, _ = _flat(rng, tones)
    cell, border = _cells(rng, 256)
    flat, count = cell.ravel(), np.maximum(np.bincount(cell.ravel(), minlength=256), 1)
    tile = np.stack([np.bincount(flat, picture[:, :, c].ravel(), 256) / count for c in range(3)], 1)
    shade = rng.uniform(-22, 22, (256, 1))
    return paint.mix((tile + shade).astype(np.float32)[cell], 225.0, np.clip(1.0 - border, 0, 1) * 0.7)


def watercolour(rng: Generator, tones: Tones) -> paint.Picture:
    """Pale washes that pool at the rim, on rough paper."""
    ink = paint.colour(rng)[1] * np.float32(0.85)
    ink = np.minimum(ink, 190)
    paper = 244 + 5 * paint.clouds(rng, 32)
    wash = body(tones) * (0.55 + 0.3 * paint.clouds(rng, int(rng.integers(4, 9))))
    pool = cover(edges(tones, 3)) * 0.55
    share = paint.soften(np.repeat((wash + pool) * 255, 3, 2), 0.7) / 255
    spread = paint.mix(np.repeat(paper, 3, 2), ink, np.clip(share, 0, 1))
    return paint.mix(spread, ink * 0.5, detail(tones) * 0.5)


def woodcut(rng: Generator, tones: Tones) -> paint.Picture:
    """A print in one ink: the object cut with parallel lines."""
    fine = np.arange(SIZE * FINE, dtype=np.float64)
    slope = rng.uniform(-0.6, 0.6)
    rows = (fine[:, None] + slope * fine[None] + 6 * np.sin(fine[None] / 21)) % 14 < 7.5
    ink = cover((tones == 1) & rows | (tones == 2) | edges(tones, 3))
    paper, black = rng.uniform(205, 250, 3).astype(np.float32), rng.uniform(10, 60, 3).astype(np.float32)
    return paint.mix(np.broadcast_to(paper, (SIZE, SIZE, 3)), black, ink)


STYLES: tuple[Callable[[Generator, Tones], paint.Picture], ...] = (
    cartoon, pixel_art, stained_glass, embroidery, neon, mosaic, watercolour, woodcut,
)  # fmt: skip
