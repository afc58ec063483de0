"""Paint for 64-pixel pictures: named colours, grounds, textures, light and clutter (float arrays, 0 to 255)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFilter

from .trace import SIZE

Picture = Float[np.ndarray, "size size 3"]
Colour = Float[np.ndarray, "3"]

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (205, 40, 40), "orange": (235, 130, 30), "yellow": (240, 210, 50), "green": (50, 150, 60),
    "turquoise": (40, 175, 175), "blue": (45, 85, 200), "purple": (130, 60, 170), "pink": (240, 140, 180),
    "brown": (120, 75, 40), "white": (240, 240, 236), "grey": (135, 135, 135), "black": (28, 28, 30),
}  # fmt: skip
GROUNDS = ("plain", "shaded", "cloudy", "striped", "checkered", "speckled", "horizon")
TEXTURES = ("plain", "striped", "spotted", "checkered", "mottled")
_Y, _X = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)


def colour(rng: Generator, palette: str = "plain") -> tuple[str, Colour]:
    """A named colour and a random shade of it."""
    names = list(COLOURS)
    name = names[int(rng.integers(len(names)))]
    shade = np.array(COLOURS[name]) + rng.uniform(-26, 26, 3)
    if palette == "pastel":
        shade = 0.62 * shade + 0.38 * (185.0 + rng.uniform(-30, 30))
    return name, np.clip(shade, 0, 255).astype(np.float32)


def apart(first: Colour, second: Colour) -> float:
    """How well two colours can be told apart: brightness counts more than hue."""
    d = first.astype(np.float64) - second
    return float(abs(d @ (0.3, 0.59, 0.11)) + 0.45 * np.sqrt(d @ d))


def mix(under: np.ndarray, over: np.ndarray | float, share: np.ndarray | float) -> np.ndarray:
    """`over` on `under`, by share."""
    return under + (over - under) * share


def clouds(rng: Generator, cells: int, side: int = SIZE) -> Float[np.ndarray, "size size 1"]:
    """Smooth noise in [-1, 1] with about `cells` bumps a side."""
    grid = Image.fromarray(rng.integers(0, 256, (cells, cells), dtype=np.uint8))
    smooth = grid.resize((side, side), Image.Resampling.BICUBIC)
    return (np.asarray(smooth, dtype=np.float32) / 127.5 - 1)[:, :, None]


def ramp(rng: Generator) -> Float[np.ndarray, "size size 1"]:
    """A straight slope across the picture in a random direction, from 0 to 1."""
    a = rng.uniform(0, 2 * np.pi)
    slope = (_X - 31.5) * np.float32(np.cos(a)) + (_Y - 31.5) * np.float32(np.sin(a))
    return (slope / 90 + 0.5)[:, :, None]


def pattern(rng: Generator, kind: str) -> Float[np.ndarray, "size size 1"]:
    """A pattern between 0 and 1: striped, checkered, spotted, speckled, mottled or cloudy."""
    if kind in ("mottled", "cloudy"):
        return clouds(rng, int(rng.integers(3, 14))) * 0.5 + 0.5
    if kind == "speckled":
        return (rng.random((SIZE, SIZE, 1), dtype=np.float32) < 0.12).astype(np.float32)
    a, pitch, shift = rng.uniform(0, np.pi), rng.uniform(4, 12), rng.uniform(0, 12)
    u = (_X * np.float32(np.cos(a)) + _Y * np.float32(np.sin(a)) + np.float32(shift)) / np.float32(pitch)
    v = (_Y * np.float32(np.cos(a)) - _X * np.float32(np.sin(a)) + np.float32(shift)) / np.float32(pitch)
    if kind == "striped":
        return np.clip(8 * np.abs(u % 1 - 0.5) - 1.5, 0, 1)[:, :, None]
    if kind == "checkered":
        return ((np.floor(u) + np.floor(v)) % 2)[:, :, None]
    return np.clip(5 * (0.32 - np.sqrt((u % 1 - 0.5) ** 2 + (v % 1 - 0.5) ** 2)), 0, 1)[:, :, None]


def ground(rng: Generator, kind: str, first: Colour, second: Colour) -> Picture:
    """A background of the given kind in two colours."""
    flat = np.broadcast_to(first, (SIZE, SIZE, 3)).astype(np.float32)
    if kind == "plain":
        return flat
    if kind == "shaded":
        return mix(flat, second, ramp(rng))
    if kind == "horizon":
        line = rng.uniform(28, 52) + rng.uniform(-0.15, 0.15) * (_X - 32)
        return mix(flat, second, np.clip(_Y - line, 0, 1).astype(np.float32)[:, :, None])
    return mix(flat, second, pattern(rng, kind))


def texture(rng: Generator, kind: str, first: Colour, second: Colour) -> Picture:
    """The surface of an object."""
    flat = np.broadcast_to(first, (SIZE, SIZE, 3)).astype(np.float32)
    return flat if kind == "plain" else mix(flat, second, 0.75 * pattern(rng, kind))


def scatter(
    rng: Generator,
    picture: Picture,
    count: int,
    big: tuple[float, float],
    middle: tuple[float, float] = (32.0, 32.0),
    spread: float = 32.0,
) -> Picture:
    """Strew `count` discs, arcs and tiles within `spread` of the middle; `big` bounds their half-length."""
    if count == 0:
        return picture
    fine = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).resize(
        (128, 128), Image.Resampling.NEAREST
    )
    pen = ImageDraw.Draw(fine)
    for _ in range(count):
        centre = rng.uniform(-spread, spread, 2) * 2 + np.array(middle) * 2
        _piece(rng, pen, centre, rng.uniform(*big) * 2)
    return np.asarray(fine.reduce(2), dtype=np.float32)


def _piece(rng: Generator, pen: ImageDraw.ImageDraw, centre: np.ndarray, reach: float) -> None:
    """One disc, arc, tile or triangle in a random colour."""
    turn = rng.uniform(0, np.pi)
    ink = tuple(int(c) for c in colour(rng)[1])
    kind, thick = int(rng.integers(4)), rng.uniform(0.15, 1.0)
    frame = [round(float(v)) for v in (*(centre - reach), *(centre + reach))]
    if kind == 0:
        pen.ellipse(frame, fill=ink)
    elif kind == 1:
        pen.arc(frame, round(turn * 57), round(turn * 57) + 200, fill=ink, width=3 + round(4 * thick))
    else:
        along = reach * np.array([np.cos(turn), np.sin(turn)])
        across = thick * np.array([-along[1], along[0]])
        corners = [along + across, across - along, -along - across, along - across][: 4 if kind == 2 else 3]
        pen.polygon([tuple(int(v) for v in np.rint(centre + c)) for c in corners], fill=ink)


def soften(picture: Picture, radius: float) -> Picture:
    """A box blur."""
    image = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    return np.asarray(image.filter(ImageFilter.BoxBlur(radius)), dtype=np.float32)


def grain(rng: Generator, picture: Picture, sigma: float) -> Picture:
    """Camera noise."""
    return picture + sigma * rng.standard_normal((SIZE, SIZE, 3), dtype=np.float32)


def finish(picture: Picture) -> Image.Image:
    """The picture as 8-bit RGB."""
    return Image.fromarray(np.clip(np.rint(picture), 0, 255).astype(np.uint8))
