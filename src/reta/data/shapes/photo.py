"""The usual style: a textured object under a light, with its shadow, before a background."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image

from . import paint
from .looks import Look
from .trace import Cover, Pose, Tones, body, cover, detail, edges, fill, outline, pose


@dataclass(frozen=True)
class Scene:
    """What a picture shows, in words; training captions are made from it.

    `colour` and `ground_colour` are keys of `paint.COLOURS`, `texture` one of `paint.TEXTURES`, `ground`
    one of `paint.GROUNDS`; `size` is half the object's side in parts of half the picture, `light` the
    mean brightness factor.
    """

    name: str
    colour: str
    ground_colour: str
    texture: str
    ground: str
    size: float
    light: float
    blurred: bool


def photo(rng: Generator, look: Look, name: str) -> tuple[Image.Image, Scene]:
    """Draw one class in the usual style."""
    where = pose(rng, look)
    tones = fill(outline(rng, look, name), where)
    ink_name, ink, ground_name, base = _colours(rng, look)
    busy = rng.random() < look.busy
    ground = paint.GROUNDS[int(rng.integers(2, len(paint.GROUNDS)) if busy else rng.integers(2))]
    picture = paint.ground(rng, ground, base, _near(rng, base, 55 if busy else 40))
    picture = paint.scatter(rng, picture, int(rng.integers(look.clutter[0], look.clutter[1] + 1)), (2.0, 9.0))
    solid = body(tones)
    picture = _shadow(rng, picture, solid)
    surface = paint.TEXTURES[int(rng.integers(len(paint.TEXTURES))) if rng.random() < 0.5 else 0]
    picture = _object(rng, picture, tones, solid, ink, surface)
    picture = _occlude(rng, look, picture, where)
    light = float(rng.uniform(*look.light))
    picture = picture * (light + rng.uniform(0, 0.5) * (paint.ramp(rng) - 0.5))
    blurred = bool(rng.random() < look.blur)
    if blurred:
        picture = paint.soften(picture, float(rng.uniform(0.4, 1.1)))
    picture = paint.grain(rng, picture, float(rng.uniform(*look.noise)))
    scene = Scene(name, ink_name, ground_name, surface, ground, where.size, light, blurred)
    return paint.finish(picture), scene


def _colours(rng: Generator, look: Look) -> tuple[str, paint.Colour, str, paint.Colour]:
    """Colours of object and ground whose contrast is in the look's range (the nearest of 12 draws)."""
    low, high = look.contrast
    best, miss = None, np.inf
    for _ in range(12):
        first, second = paint.colour(rng, look.palette), paint.colour(rng, look.palette)
        gap = paint.apart(first[1], second[1])
        off = max(low - gap, gap - high, 0.0)
        if off < miss:
            best, miss = (*first, *second), off
        if off == 0.0:
            break
    assert best is not None
    return best


def _near(rng: Generator, base: paint.Colour, spread: float) -> paint.Colour:
    """A colour not far from the base."""
    return np.clip(base + rng.uniform(-spread, spread, 3), 0, 255).astype(np.float32)


def _shadow(rng: Generator, picture: paint.Picture, solid: Cover) -> paint.Picture:
    """Darken the ground beside the object, three times out of five."""
    if rng.random() > 0.6:
        return picture
    dx, dy = (int(v) for v in rng.integers(-5, 6, 2))
    moved = np.roll(solid, (dy, dx), (0, 1)) * 255
    return picture * (1 - rng.uniform(0.15, 0.45) * paint.soften(moved[:, :, 0], 2)[:, :, None] / 255)


def _object(
    rng: Generator, picture: paint.Picture, tones: Tones, solid: Cover, ink: paint.Colour, surface: str
) -> paint.Picture:
    """The object: surface, shading, second shade, and sometimes a rim; one in ten is of glass."""
    second = _near(rng, ink, 70)
    skin = paint.texture(rng, surface, ink, second) * (1 + rng.uniform(0, 0.5) * (paint.ramp(rng) - 0.5))
    dark = ink.mean() > 110
    shade = ink * rng.uniform(0.45, 0.7) if dark else mix_up(ink, rng.uniform(0.3, 0.5))
    glass = rng.random() < 0.1
    picture = paint.mix(picture, skin, solid * (rng.uniform(0.2, 0.5) if glass else 1.0))
    if rng.random() < 0.85:
        picture = paint.mix(picture, shade, detail(tones) * rng.uniform(0.5, 1.0))
    if glass or rng.random() < 0.25:
        rim = cover(edges(tones, int(rng.integers(2, 5))))
        picture = paint.mix(picture, ink if glass else shade, rim * rng.uniform(0.6, 1.0))
    return picture


def mix_up(ink: paint.Colour, share: float) -> paint.Colour:
    """A lighter shade of a dark colour."""
    return ink + (255 - ink) * np.float32(share)


def _occlude(rng: Generator, look: Look, picture: paint.Picture, where: Pose) -> paint.Picture:
    """Put pieces of a few things in front of the object, each hiding up to a sixth of it."""
    if look.occluders[1] == 0:
        return picture
    count = int(rng.integers(look.occluders[0], look.occluders[1] + 1))
    x, y = (where.centre + 1) * (paint.SIZE / 2)
    reach = 32 * where.size
    return paint.scatter(rng, picture, count, (0.16 * reach, 0.34 * reach), (x, y), 0.7 * reach)
