"""Defocus, glass, motion and zoom blur. All lengths are pixels at a side of 224 and grow with the picture."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from reta.data.corruptions import fields
from reta.data.corruptions.chance import Chance
from reta.data.corruptions.fields import Images

DEFOCUS = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))  # radius, smoothing
GLASS = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))  # sigma, displacement, passes
MOTION = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))  # radius, sigma
ZOOM = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))  # end, step
FINE = 9


def defocus_blur(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Convolve with a lightly smoothed disk."""
    radius, smoothing = DEFOCUS[level]
    return fields.convolve(images, disk(radius * scale, smoothing * scale, wide=radius > 8))


def disk(radius: float, smoothing: float, wide: bool = False) -> np.ndarray:
    """The share of each pixel that lies in the disk, smoothed over 3 x 3 (or 5 x 5) pixels; sums to one."""
    reach = int(np.ceil(radius + 0.5)) + (2 if wide else 1)
    offsets = (np.arange(FINE) + 0.5) / FINE - 0.5
    place = (np.arange(-reach, reach + 1)[:, None] + offsets).ravel()
    inside = (place[:, None] ** 2 + place**2 <= radius**2).astype(float)
    kernel = inside.reshape(2 * reach + 1, FINE, 2 * reach + 1, FINE).mean((1, 3))
    near = 2 if wide else 1
    taps = np.exp(-0.5 * (np.arange(-near, near + 1) / max(smoothing, 1e-6)) ** 2)
    for _ in range(2):
        kernel = np.stack([np.convolve(line, taps / taps.sum(), "same") for line in kernel]).T
    return kernel / kernel.sum()


def glass_blur(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Blur, swap pixels with near neighbours, blur again."""
    sigma, reach, passes = GLASS[level]
    wander = (scale * reach) ** 2 * passes
    near = max(round(reach * scale), 1)
    images = fields.gaussian(images, sigma * scale)
    height, width = images.shape[-2:]
    order = torch.stack([_swapped(s, height, width, near, wander / near**2) for s in chance.streams])
    index = order.to(images.device)[:, None].expand(-1, images.shape[1], -1)
    swapped = images.flatten(2).gather(2, index).view(images.shape)
    return fields.gaussian(swapped, sigma * scale)


def _swapped(
    stream: np.random.Generator, height: int, width: int, reach: int, passes: float
) -> Int[Tensor, " pixels"]:
    """Which pixel stands where after each, from the last to the first, changed places with a neighbour.

    Part of a pass touches that share of the pixels: small pictures need less than one whole pass.
    """
    order = list(range(height * width))
    rows, columns = (np.arange(side - reach, reach, -1) for side in (height, width))
    here = (rows[:, None] * width + columns).ravel()
    while passes > 0:
        moves = stream.integers(-reach, reach, (len(here), 2))
        there = here + moves[:, 0] * width + moves[:, 1]
        chosen = stream.random(len(here)) < passes
        for one, other in zip(here[chosen].tolist(), there[chosen].tolist(), strict=True):
            order[one], order[other] = order[other], order[one]
        passes -= 1
    return torch.tensor(order)


def motion_blur(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Smear along a direction within 45 degrees of the horizontal."""
    radius, sigma = MOTION[level]
    return fields.motion(images, radius * scale, sigma * scale, chance.uniform(-45, 45))


def zoom_blur(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """The mean of the picture and of its enlargements from 1 to a given factor; the same at any size."""
    factors = np.arange(1, *ZOOM[level])
    return (images + sum(fields.zoom(images, float(factor)) for factor in factors)) / (len(factors) + 1)
