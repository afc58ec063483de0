"""The sets of the embedded world: which class an index has, and its picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence
from PIL import Image

from ...errors import BadInput
from .looks import LOOKS
from .outlines import OUTLINES
from .photo import Scene, photo
from .renditions import rendition
from .sketch import sketch

SETS: tuple[str, ...] = ("shapes", "shapes-a", "shapes-v2", "shapes-r", "shapes-sketch")
_CODES = {"train": 0, "shapes": 1, "shapes-a": 2, "shapes-v2": 3, "shapes-r": 4, "shapes-sketch": 5}
_BLOCK = 2000


def classes() -> list[str]:
    """The class names, in the order of the labels."""
    return list(OUTLINES)


def descriptions() -> dict[str, list[str]]:
    """Sentences for each class that tell its visual form (the shape of a CuPL file)."""
    return json.loads(
        resources.files("reta.data.shapes").joinpath("descriptions.json").read_text(encoding="utf-8")
    )


@lru_cache(maxsize=256)
def _order(code: int, block: int) -> np.ndarray:
    """The labels of a block of 2,000 indices: every class 50 times, shuffled."""
    labels = np.arange(_BLOCK) % len(OUTLINES)
    return _generator(0, code, block, 1).permutation(labels)


def _generator(*key: int) -> Generator:
    return Generator(PCG64(SeedSequence(key)))


def _code(set: str, index: int) -> int:
    if set not in _CODES:
        raise BadInput(f"there is no set {set!r}; choose one of {', '.join(_CODES)}")
    if index < 0:
        raise BadInput(f"an index is zero or more, got {index}")
    return _CODES[set]


def label(set: str, index: int) -> int:
    """The class of an image, without drawing it."""
    return int(_order(_code(set, index), index // _BLOCK)[index % _BLOCK])


def draw(set: str, index: int, seed: int = 0) -> Image.Image:
    """One image, 64 x 64 RGB. `set` is one of `SETS`, or `train` for the training stream."""
    rng = _generator(seed, _code(set, index), index, 0)
    name, look = classes()[label(set, index)], LOOKS[set]
    if look.style == "sketch":
        return sketch(rng, look, name)
    return rendition(rng, look, name) if look.style == "rendition" else photo(rng, look, name)[0]


def scene(set: str, index: int, seed: int = 0) -> tuple[Image.Image, Scene]:
    """An image of a photographic set with what it shows in words, for captions."""
    rng, look = _generator(seed, _code(set, index), index, 0), LOOKS[set]
    if look.style != "photo":
        raise BadInput(f"{set!r} is not photographic; use draw()")
    return photo(rng, look, classes()[label(set, index)])


@dataclass(frozen=True)
class World:
    """A set as a sequence of (image, label).

    Example:
        >>> world = World("shapes", 40)
        >>> len(world), world.keys[3]
        (40, 'shapes/0/3')
    """

    set: str
    n: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        _code(self.set, 0)
        if self.n < 1:
            raise BadInput(f"n is at least 1, got {self.n}")

    @property
    def names(self) -> list[str]:
        """The class names."""
        return classes()

    @property
    def labels(self) -> list[int]:
        """The label of every image."""
        return [label(self.set, i) for i in range(self.n)]

    @property
    def keys(self) -> list[str]:
        """A name for every image that no other image has: set/seed/index."""
        return [f"{self.set}/{self.seed}/{i}" for i in range(self.n)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        if not -self.n <= index < self.n:
            raise IndexError(f"index {index} is outside a set of {self.n}")
        index %= self.n
        return draw(self.set, index, self.seed), label(self.set, index)

    def __iter__(self) -> Iterator[tuple[Image.Image, int]]:
        return (self[i] for i in range(self.n))


def open(set: str, n: int = 2000, seed: int = 0) -> World:
    """A set of `n` images; the published test sets are `n=2000, seed=0`."""
    return World(set, n, seed)
