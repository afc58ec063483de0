"""Autocontrast, equalize, posterize and solarize as look-up tables, for many images at once.

A table is [planes, 256] (a plane is one channel of one image). Operations in a row compose into one table and the
histogram follows through it, so pixels are touched once however many tone operations there are. The numbers are
those of PIL's ImageOps, exactly.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

TONES = ("autocontrast", "equalize", "posterize", "solarize")
NEED_HISTOGRAM = ("autocontrast", "equalize")


def identity(planes: int, device: torch.device) -> Int[Tensor, "planes 256"]:
    return torch.arange(256, device=device).repeat(planes, 1)


def histogram(index: Int[Tensor, "planes pixels"]) -> Int[Tensor, "planes 256"]:
    """How often each value occurs in each plane."""
    one = torch.ones((), dtype=torch.int64, device=index.device).expand(index.shape)
    return index.new_zeros(len(index), 256).scatter_add_(1, index, one)


def through(table: Int[Tensor, "planes 256"], counts: Int[Tensor, "planes 256"]) -> Int[Tensor, "planes 256"]:
    """The histogram after the table was applied."""
    return torch.zeros_like(counts).scatter_add_(1, table, counts)


def autocontrast(counts: Int[Tensor, "planes 256"]) -> Int[Tensor, "planes 256"]:
    """Stretch the range of each plane to 0..255; a plane of one value stays as it is."""
    ramp = torch.arange(256, device=counts.device)
    present = counts > 0
    low = torch.where(present, ramp, 256).amin(1, keepdim=True)
    high = torch.where(present, ramp, -1).amax(1, keepdim=True)
    width = (high - low).clamp(min=1).double()
    scale = torch.full_like(width, 255) / width  # 255.0 / width would be a product, and less exact
    stretched = (ramp * scale + -low * scale).trunc().clamp(0, 255).long()
    return torch.where(high > low, stretched, ramp)


def equalize(counts: Int[Tensor, "planes 256"]) -> Int[Tensor, "planes 256"]:
    """Flatten the histogram of each plane; planes with too few pixels for 255 steps stay as they are."""
    ramp = torch.arange(256, device=counts.device)
    last = torch.where(counts > 0, ramp, 0).amax(1, keepdim=True)
    step = (counts.sum(1, keepdim=True) - counts.gather(1, last)) // 255
    below = counts.cumsum(1) - counts
    flat = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, flat, ramp)


def posterize(bits: Float[Tensor, " planes"]) -> Int[Tensor, "planes 256"]:
    """Keep the upper bits."""
    ramp = torch.arange(256, device=bits.device)
    return ramp & (-1 << (8 - bits.long()))[:, None]


def solarize(threshold: Float[Tensor, " planes"]) -> Int[Tensor, "planes 256"]:
    """Invert the values at or above the threshold."""
    ramp = torch.arange(256, device=threshold.device)
    return torch.where(ramp < threshold[:, None], ramp, 255 - ramp)


def look_up(
    table: UInt8[Tensor, "planes 256"] | Float[Tensor, "planes 256"], index: Int[Tensor, "planes pixels"]
) -> Tensor:
    """Apply one table to each plane; `index` holds its pixels as int64."""
    return table.gather(1, index)
