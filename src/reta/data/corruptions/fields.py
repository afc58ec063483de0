"""Filters and textures that several corruptions share, for a batch of images `[B, C, H, W]`."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor
from torch.nn.functional import conv2d, grid_sample, interpolate

from reta.data.corruptions.chance import Chance

Images = Float32[Tensor, "batch channels height width"]


def folded(index: np.ndarray, side: int, border: str) -> np.ndarray:
    """Indices outside 0 .. side - 1 brought inside: `edge` repeats the last pixel, `reflect` mirrors about the
    border (abc|cba), `mirror` about the last pixel (abc|ba).
    """
    if border == "edge" or side == 1:
        return index.clip(0, side - 1)
    period = 2 * side if border == "reflect" else 2 * side - 2
    index = index % period
    return np.where(index < side, index, period - index - (1 if border == "reflect" else 0))


def gaussian(images: Images, sigma: float, border: str = "edge", truncate: float = 4.0) -> Images:
    """Gaussian blur as two products with a banded matrix, so that any width works on any size."""
    down, across = (_blur_matrix(side, sigma, border, truncate) for side in images.shape[-2:])
    return down.to(images) @ images @ across.to(images).T


def _blur_matrix(side: int, sigma: float, border: str, truncate: float) -> Float32[Tensor, "side side"]:
    reach = int(truncate * sigma + 0.5)
    taps = np.arange(-reach, reach + 1)
    weight = np.exp(-0.5 * (taps / max(sigma, 1e-6)) ** 2)
    matrix = np.zeros((side, side))
    rows = np.arange(side)
    for tap, amount in zip(taps, weight / weight.sum(), strict=True):
        matrix[rows, folded(rows + tap, side, border)] += amount
    return torch.from_numpy(matrix).float()


def convolve(images: Images, kernel: np.ndarray) -> Images:
    """The same odd-sized kernel on every channel; the border is mirrored."""
    reach, sides = kernel.shape[0] // 2, images.shape[-2:]
    rows, columns = (torch.from_numpy(folded(np.arange(-reach, n + reach), n, "mirror")) for n in sides)
    wide = images.index_select(2, rows.to(images.device)).index_select(3, columns.to(images.device))
    weight = torch.from_numpy(kernel).to(images)[None, None]
    return conv2d(wide.flatten(0, 1)[:, None], weight).view(images.shape)


def sample(
    images: Images, x: Float32[Tensor, "batch h w"], y: Float32[Tensor, "batch h w"], border: str
) -> Images:
    """Bilinear samples at pixel coordinates; `border` and `reflection` are torch's padding modes."""
    height, width = images.shape[-2:]
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    return grid_sample(images, grid, mode="bilinear", padding_mode=border, align_corners=False)


def pixel_grid(images: Images) -> tuple[Float32[Tensor, "1 h w"], Float32[Tensor, "1 h w"]]:
    """The x and y coordinate of every pixel."""
    height, width = images.shape[-2:]
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return x[None].to(images), y[None].to(images)


def motion(images: Images, radius: float, sigma: float, angle: Float32[Tensor, " batch"]) -> Images:
    """A one-sided Gaussian smear along each image's own direction (degrees)."""
    x, y = pixel_grid(images)
    taps = range(min(round(2 * radius), math.ceil(4 * sigma)) + 1)
    weights = [math.exp(-0.5 * (tap / sigma) ** 2) for tap in taps]
    step_x, step_y = (wave(torch.deg2rad(angle))[:, None, None] for wave in (torch.cos, torch.sin))
    out = torch.zeros_like(images)
    for tap, weight in zip(taps, weights, strict=True):
        out += weight / sum(weights) * sample(images, x + tap * step_x, y + tap * step_y, "border")
    return out


def zoom(images: Images, factor: float) -> Images:
    """The middle of the picture, enlarged to its size."""
    height, width = images.shape[-2:]
    x, y = pixel_grid(images)
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    x, y = (x - middle_x) / factor + middle_x, (y - middle_y) / factor + middle_y
    return sample(images, x.expand(len(images), -1, -1), y.expand(len(images), -1, -1), "border")


def plasma(chance: Chance, side: int, decay: float) -> Float32[Tensor, "batch side side"]:
    """Clouds by diamond-square on a torus whose side is a power of two: each octave `decay**2` weaker."""
    field, wibble = torch.zeros(len(chance.streams), 1, 1, device=chance.device), 100.0
    while field.shape[-1] < side:
        n = field.shape[-1]
        noise = chance.uniform(-(wibble**2), wibble**2, 3, n, n)
        wide = field.new_empty(len(field), 2 * n, 2 * n)
        wide[:, ::2, ::2] = field
        below = field + field.roll(-1, 1)
        middle = (below + below.roll(-1, 2)) / 4 + noise[:, 0]
        wide[:, 1::2, 1::2] = middle
        wide[:, ::2, 1::2] = (field + field.roll(-1, 2) + middle + middle.roll(1, 1)) / 4 + noise[:, 1]
        wide[:, 1::2, ::2] = (field + field.roll(-1, 1) + middle + middle.roll(1, 2)) / 4 + noise[:, 2]
        field, wibble = wide, wibble / decay
    field = field - field.amin((1, 2), keepdim=True)
    return field / field.amax((1, 2), keepdim=True).clamp(min=1e-12)


def resized(layer: Images, height: int, width: int) -> Images:
    """A layer brought to the size of the picture."""
    return interpolate(layer, (height, width), mode="bilinear", antialias=True)
