"""The fifteen usual corruptions (those of ImageNet-C) at five severities, on batches of uint8 pictures of any size.

At a short side of 224 pixels the parameters are the published ones. At other sizes they are scaled so that the
picture, looked at in the same size, is harmed alike: lengths with the side, noise with its square root, layers of
weather drawn at 224 and resized. Each image draws from its own stream, seeded by (seed, corruption, key).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from reta.data.corruptions import blur, digital, noise, weather
from reta.data.corruptions.chance import Chance
from reta.data.corruptions.fields import Images
from reta.errors import BadInput, nearest

SIDE, STRIP = 224, 16

CORRUPTIONS: dict[str, Callable[[Images, int, Chance, float], Images]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": weather.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
}
NAMES = tuple(CORRUPTIONS)
SEVERITIES = (1, 2, 3, 4, 5)


class Corrupted(NamedTuple):
    """A data set and what is done to it; `corruption` is None and `severity` 0 where nothing is."""

    base: str
    corruption: str | None
    severity: int


def parse(name: str) -> Corrupted:
    """`name@corruption-severity`.

    >>> parse("shapes@fog-3")
    Corrupted(base='shapes', corruption='fog', severity=3)
    >>> parse("dtd")
    Corrupted(base='dtd', corruption=None, severity=0)
    """
    base, at, rest = name.rpartition("@")
    if not at:
        return Corrupted(name, None, 0)
    match = re.fullmatch(r"([a-z_]+)-(\d+)", rest)
    if match is None or not base:
        raise BadInput(f"{name!r}: a corruption is written name@corruption-severity, such as shapes@fog-3")
    check(match[1], int(match[2]))
    return Corrupted(base, match[1], int(match[2]))


def check(name: str, severity: int) -> None:
    """Refuse a corruption or a severity that does not exist."""
    if name not in CORRUPTIONS:
        raise BadInput(f"unknown corruption {name!r}: {nearest(name, NAMES)}")
    if severity not in SEVERITIES:
        raise BadInput(f"{name} has severities 1 to 5, not {severity}")


def corrupt(
    images: UInt8[Tensor, "batch 3 height width"],
    name: str,
    severity: int,
    keys: Sequence[str],
    seed: int = 0,
) -> UInt8[Tensor, "batch 3 height width"]:
    """The same pictures, corrupted; every image depends on its own pixels and key alone.

    >>> corrupt(torch.full((2, 3, 8, 8), 50, dtype=torch.uint8), "brightness", 1, ["a", "b"]).unique().tolist()
    [76]
    """
    check(name, severity)
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3 or 0 in images.shape:
        raise BadInput(f"corruptions take uint8 [B, 3, H, W], not {images.dtype} {list(images.shape)}")
    if len(keys) != len(images):
        raise BadInput(f"{len(images)} images and {len(keys)} keys: give one key for each image")
    chance = Chance(seed, name, keys, images.device)
    scale = scale_of(*images.shape[-2:])
    return digital.levels(CORRUPTIONS[name](images.float() / 255, severity - 1, chance, scale))


def corrupt_picture(image: Image.Image, name: str, severity: int, key: str, seed: int = 0) -> Image.Image:
    """One RGB picture, corrupted.

    >>> corrupt_picture(Image.new("RGB", (20, 16), "navy"), "fog", 5, "a.jpg").size
    (20, 16)
    """
    pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)[None]
    return Image.fromarray(corrupt(pixels, name, severity, [key], seed)[0].permute(1, 2, 0).numpy())


def scale_of(height: int, width: int) -> float:
    """How large the picture is against a side of 224; strips longer than 16 to 1 count by their length.

    >>> scale_of(448, 640), scale_of(64, 64) == 64 / 224
    (2.0, True)
    """
    return max(min(height, width), max(height, width) / STRIP) / SIDE
