"""From parts to pixels: pose the polygons, fill them at four times the size, find their outlines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8
from numpy.random import Generator
from PIL import Image, ImageDraw

from .looks import Look, Range
from .outlines import BODY, DETAIL, Part, parts

SIZE = 64
FINE = 4
Tones = UInt8[np.ndarray, "fine fine"]
Cover = Float[np.ndarray, "size size 1"]


@dataclass(frozen=True)
class Pose:
    """Where the object is and how it is turned; `size` is half its side in parts of half the picture."""

    size: float
    matrix: np.ndarray
    centre: np.ndarray


def pick(rng: Generator, ranges: tuple[Range, ...]) -> float:
    """A number from one of the ranges."""
    low, high = ranges[int(rng.integers(len(ranges)))]
    return float(rng.uniform(low, high))


def pose(rng: Generator, look: Look) -> Pose:
    """A random pose inside the picture."""
    size, turn = float(rng.uniform(*look.size)), np.radians(pick(rng, look.turn))
    stretch = float(rng.uniform(1 - look.stretch, 1 + look.stretch))
    flip = 1.0 if rng.random() < 0.5 else -1.0
    shear = float(rng.uniform(-look.shear, look.shear))
    rotate = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    form = np.array([[flip * stretch, shear], [0.0, 1 / stretch]])
    room = (1 - size) * 0.9 + 0.04
    return Pose(size, size * rotate @ form, rng.uniform(-room, room, 2))


def outline(rng: Generator, look: Look, name: str) -> list[Part]:
    """The parts of a class with the knobs and the wobble of a look."""
    drawn = parts(name, lambda low, high: low + (high - low) * pick(rng, look.knob))
    amount = float(rng.uniform(*look.wobble))
    if amount == 0.0:
        return drawn
    wave, phase = rng.uniform(2.0, 7.0, (3, 2, 2)), rng.uniform(0, 2 * np.pi, (3, 2))
    return [Part(_wobble(p.points, amount, wave, phase), p.tone) for p in drawn]


def _wobble(points: np.ndarray, amount: float, wave: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """Split each side in four and shift the corners by a smooth random field."""
    t = (np.arange(4) / 4)[None, :, None]
    fine = (points[:, None] * (1 - t) + np.roll(points, -1, 0)[:, None] * t).reshape(-1, 2)
    return fine + amount * np.sin(np.einsum("fij,nj->fni", wave, fine) + phase[:, None]).sum(0)


def fill(drawn: list[Part], where: Pose) -> Tones:
    """The tone at every fine pixel: 0 outside, 1 body, 2 detail."""
    side = SIZE * FINE
    image = Image.new("L", (side, side))
    pen = ImageDraw.Draw(image)
    for part in drawn:
        corners = (part.points @ where.matrix.T + where.centre + 1) * (side / 2)
        pen.polygon(np.rint(corners).astype(int).ravel().tolist(), fill=int(part.tone))
    return np.asarray(image)


def cover(inside: np.ndarray) -> Cover:
    """The part of each pixel that is inside, from a fine mask."""
    coarse = Image.fromarray(inside.astype(np.uint8) * 255).reduce(FINE)
    return (np.asarray(coarse, dtype=np.float32) / 255)[:, :, None]


def body(tones: Tones) -> Cover:
    """How much of each pixel the object covers."""
    return cover(tones >= BODY)


def detail(tones: Tones) -> Cover:
    """How much of each pixel is in the second shade."""
    return cover(tones == DETAIL)


def edges(tones: Tones, reach: int) -> np.ndarray:
    """The fine mask of all borders between tones, `2 * reach` fine pixels wide."""
    side = tones.shape[0]
    wide = np.pad(tones, reach)
    near = round(reach * 0.7)
    found = np.zeros(tones.shape, dtype=bool)
    for dx, dy in (
        (reach, 0),
        (-reach, 0),
        (0, reach),
        (0, -reach),
        (near, near),
        (near, -near),
        (-near, near),
        (-near, -near),
    ):
        x, y = reach + dx, reach + dy
        found |= wide[y : y + side, x : x + side] != tones
    return found
