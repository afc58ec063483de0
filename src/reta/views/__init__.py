"""Augmented views of an image: what the methods adapt on.

Three recipes: `plain` (the picture as the model wants it, one view), `crops` (random resized crops and flips) and
`augmix` (the same crops, then AugMix). Row 0 is always the plain view. Two engines apply the same random choices:
`pil`, the published pipeline image by image, and `batched`, tensors on CPU or GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor

from reta import images as decoding
from reta.errors import BadInput, nearest
from reta.views import batched, pil
from reta.views import extra as extra
from reta.views.fit import MODES
from reta.views.params import AREA as AREA
from reta.views.params import Draws, draw

RECIPES = ("plain", "crops", "augmix")
ENGINES = ("batched", "pil")


@dataclass(frozen=True)
class Views:
    """How views are made; `make` and `make_batch` are its two verbs.

    `n` counts all views with the plain one (the recipe `plain` has one whatever `n` says). `size`,
    `interpolation` and `resize_mode` (`shortest`, `squash`, `longest`) belong to the model and shape the plain
    view; crops are always bilinear, as published. `area` is the share of the picture a crop covers (DMN: 0.5 to
    1). `seed` is the seed of the run.

    >>> import numpy as np
    >>> views = Views("augmix", n=4, size=32).make(np.zeros((60, 80, 3), np.uint8), key="a.jpg")
    >>> views.shape, views.dtype
    (torch.Size([4, 3, 32, 32]), torch.float32)
    """

    recipe: str = "augmix"
    n: int = 64
    size: int = 224
    seed: int = 0
    engine: str = "batched"
    interpolation: str = "bicubic"
    resize_mode: str = "shortest"
    area: tuple[float, float] = AREA
    fill: int = 0

    def __post_init__(self) -> None:
        _choice("recipe", self.recipe, RECIPES)
        _choice("engine", self.engine, ENGINES)
        _choice("interpolation", self.interpolation, tuple(pil.FILTERS))
        _choice("resize_mode", self.resize_mode, MODES)
        if self.n < 1 or self.size < 1:
            raise BadInput(f"n={self.n} and size={self.size} must be at least 1")
        low, high = self.area
        if not 0 < low <= high <= 1:
            raise BadInput(f"area={self.area} must be two shares of the picture, 0 < low <= high <= 1")

    @property
    def count(self) -> int:
        """How many views come out."""
        return 1 if self.recipe == "plain" else self.n

    def draws(self, width: int, height: int, key: str) -> Draws:
        """The random choices for one image."""
        return draw(self.seed, key, self.count, width, height, self.size, self.area)

    def make(self, image: Any, key: str = "") -> Float32[Tensor, "views 3 size size"]:
        """Views of one image (anything `images.decode` takes), in [0, 1], not normalised."""
        return self.make_batch([image], [key])[0]

    def make_batch(
        self, images: Sequence[Any], keys: Sequence[str], device: str | torch.device | None = None
    ) -> Float32[Tensor, "images views 3 size size"]:
        """Views of several images, each under its own key; the same as one by one."""
        if len(images) != len(keys) or not images:
            raise BadInput(
                f"{len(images)} images and {len(keys)} keys: give one key for each image, at least one"
            )
        if self.engine == "pil":
            made = torch.stack([self._by_pil(image, key) for image, key in zip(images, keys, strict=True)])
            return made if device is None else made.to(device)
        pixels = [decoding.pixels(image) for image in images]
        home = pixels[0].device if device is None else torch.device(device)
        draws = [self.draws(p.shape[2], p.shape[1], key) for p, key in zip(pixels, keys, strict=True)]
        return batched.views([p.to(home) for p in pixels], draws, self.recipe, *self._geometry())

    def _by_pil(self, image: Any, key: str) -> Float32[Tensor, "views 3 size size"]:
        picture = decoding.decode(image)
        return pil.views(picture, self.draws(*picture.size, key), self.recipe, *self._geometry())

    def _geometry(self) -> tuple[int, str, str, int]:
        return self.size, self.interpolation, self.resize_mode, self.fill


def make(
    image: Any,
    recipe: str = "augmix",
    n: int = 64,
    size: int = 224,
    seed: int = 0,
    key: str = "",
    **more: Any,
) -> Float32[Tensor, "views 3 size size"]:
    """Views of one image; `more` are the other fields of `Views`.

    >>> from PIL import Image
    >>> make(Image.new("RGB", (50, 40)), "crops", n=3, size=16, key="b.png", engine="pil").shape
    torch.Size([3, 3, 16, 16])
    """
    return Views(recipe, n, size, seed, **more).make(image, key)


def make_batch(
    images: Sequence[Any],
    keys: Sequence[str],
    recipe: str = "augmix",
    n: int = 64,
    size: int = 224,
    seed: int = 0,
    device: str | torch.device | None = None,
    **more: Any,
) -> Float32[Tensor, "images views 3 size size"]:
    """Views of several images, each under its own key."""
    return Views(recipe, n, size, seed, **more).make_batch(images, keys, device)


def _choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadInput(f"unknown {name} {value!r}: {nearest(str(value), known)}")
