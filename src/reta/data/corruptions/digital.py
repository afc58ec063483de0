"""Contrast, elastic transform, pixelate and JPEG compression."""

from __future__ import annotations

import io

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from PIL import Image
from torch import Tensor

from reta.data.corruptions import fields
from reta.data.corruptions.chance import Chance
from reta.data.corruptions.fields import Images

CONTRAST = (0.4, 0.3, 0.2, 0.1, 0.05)
ELASTIC = (  # displacement, its smoothness, jitter of the affine map, in units of 244 pixels
    (2, 0.7, 0.1),
    (2, 0.08, 0.2),
    (0.05, 0.01, 0.02),
    (0.07, 0.01, 0.02),
    (0.12, 0.01, 0.02),
)
PIXELATE = (0.6, 0.5, 0.4, 0.3, 0.25)
JPEG = (25, 18, 15, 10, 7)


def contrast(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Draw every value towards the mean of its channel."""
    mean = images.mean((2, 3), keepdim=True)
    return (images - mean) * CONTRAST[level] + mean


def elastic_transform(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """A random affine map, then a smooth random displacement of every pixel."""
    strength, smoothness, jitter = (244 * scale * part for part in ELASTIC[level])
    images = _affine(images, jitter, chance)
    fields_xy = chance.uniform(-1, 1, 2, *images.shape[-2:])
    # Smoothing weakens noise in proportion to its width in pixels, so the strength takes the scale twice.
    shift = fields.gaussian(fields_xy, smoothness, "reflect", 3.0) * strength * scale
    x, y = fields.pixel_grid(images)
    return fields.sample(images, x + shift[:, 0], y + shift[:, 1], "reflection")


def _affine(images: Images, jitter: float, chance: Chance) -> Images:
    """The map that takes three corners of a square in the middle to places up to `jitter` pixels away."""
    height, width = images.shape[-2:]
    reach = min(height, width) // 3
    middle = torch.tensor([width // 2, height // 2]).float()
    corners = middle + torch.tensor([[1.0, 1], [1, -1], [-1, -1]]) * reach
    moved = corners.to(images) + jitter * chance.uniform(-1, 1, 3, 2)
    ones = moved.new_ones(len(images), 3, 1)
    target = corners.to(images).expand(len(images), -1, -1)
    back = torch.linalg.solve(torch.cat([moved, ones], 2), target)
    x, y = fields.pixel_grid(images)
    source = torch.stack([x, y, torch.ones_like(x)], -1) @ back[:, None]
    return fields.sample(images, source[..., 0], source[..., 1], "reflection")


def pixelate(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Shrink by averaging boxes, enlarge by repeating; what a block is wider than a pixel goes with the scale."""
    factor = 1 / (1 + (1 / PIXELATE[level] - 1) * scale)
    return _by_pil(images, lambda image: _blocks(image, factor))


def _blocks(image: Image.Image, factor: float) -> Image.Image:
    small = (max(int(image.width * factor), 1), max(int(image.height * factor), 1))
    return image.resize(small, Image.Resampling.BOX).resize(image.size, Image.Resampling.BOX)


def jpeg_compression(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Through a JPEG file; the step of its quantiser goes with the scale."""
    quality = jpeg_quality(JPEG[level], scale)
    return _by_pil(images, lambda image: _through_jpeg(image, quality))


def jpeg_quality(quality: int, scale: float) -> int:
    """The quality whose quantiser is `scale` times as coarse, by libjpeg's rule.

    >>> jpeg_quality(25, 1.0), jpeg_quality(25, 64 / 224), jpeg_quality(7, 64 / 224)
    (25, 71, 24)
    """
    step = scale * (5000 / quality if quality < 50 else 200 - 2 * quality)
    return min(max(round(5000 / step if step > 100 else 100 - step / 2), 1), 100)


def _through_jpeg(image: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def _by_pil(images: Images, change) -> Images:
    made = [change(Image.fromarray(pixels)) for pixels in levels(images).permute(0, 2, 3, 1).cpu().numpy()]
    return (
        torch.from_numpy(np.stack([np.asarray(image) for image in made])).permute(0, 3, 1, 2).to(images) / 255
    )


def levels(images: Float32[Tensor, "..."]) -> UInt8[Tensor, "..."]:
    """Values in [0, 1] to the nearest of 256 levels."""
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)
