"""Resizing with an antialiased filter, as PIL does it: horizontally, then vertically, in whole levels.

On a CPU each crop goes through torch's uint8 kernel (the algorithm of PIL, vectorised). Elsewhere all crops of an
image are two batched matrix products with the same filter weights. They agree to one level.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int, UInt8
from torch import Tensor
from torch.nn.functional import interpolate, pad

from reta.views.fit import fit, window

BUDGET = 2**28  # bytes of intermediate pixels per matrix product


def crops(
    image: UInt8[Tensor, "3 height width"],
    box: Int[np.ndarray, "n 4"],
    flip: Bool[np.ndarray, " n"],
    size: int,
) -> UInt8[Tensor, "n 3 size size"]:
    """Each box (top, left, height, width) resized to a square, mirrored where `flip` says so."""
    cut = _crops_one_by_one if image.device.type == "cpu" else crops_by_products
    return cut(image, box, flip, size)


def _crops_one_by_one(
    image: UInt8[Tensor, "3 height width"], box: np.ndarray, flip: np.ndarray, size: int
) -> UInt8[Tensor, "n 3 size size"]:
    pixels = image[None].contiguous(memory_format=torch.channels_last)
    out = torch.empty(len(box), 3, size, size, dtype=torch.uint8)
    for row, (top, left, height, width), mirrored in zip(out, box.tolist(), flip.tolist(), strict=True):
        cut = pixels[:, :, top : top + height, left : left + width]
        small = interpolate(cut, (size, size), mode="bilinear", antialias=True)[0]
        row.copy_(small.flip(-1) if mirrored else small)
    return out


def crops_by_products(
    image: UInt8[Tensor, "3 height width"], box: np.ndarray, flip: np.ndarray, size: int
) -> UInt8[Tensor, "n 3 size size"]:
    """The same as two matrix products for all boxes together."""
    pixels, step = image.float(), max(BUDGET // (12 * image.shape[1] * size), 1)
    out = []
    for start in range(0, len(box), step):
        top, left, height, width = torch.from_numpy(box[start : start + step]).to(image.device).T
        across = weights(left, width, image.shape[2], size, "bilinear")
        mirrored = torch.from_numpy(flip[start : start + step]).to(image.device)
        across = torch.where(mirrored[:, None, None], across.flip(1), across)
        down = weights(top, height, image.shape[1], size, "bilinear")
        rows = _levels(pixels @ across.mT[:, None])
        out.append(_levels(down[:, None] @ rows).to(torch.uint8))
    return torch.cat(out)


def _levels(values: Float32[Tensor, "..."]) -> Float32[Tensor, "..."]:
    return (values + 0.5).floor_().clamp_(0, 255)


def weights(
    start: Int[Tensor, " n"], length: Int[Tensor, " n"], side: int, size: int, kind: str
) -> Float32[Tensor, "n size side"]:
    """Filter weights that resize pixels start .. start + length of a line of `side` pixels to `size`."""
    scale = (length.double() / size)[:, None, None]
    stretch = scale.clamp(min=1)
    pixel = torch.arange(side, device=start.device)
    centre = start[:, None, None] + (torch.arange(size, device=start.device)[:, None] + 0.5) * scale
    taps = _kernel((pixel + 0.5 - centre) / stretch, kind)
    first, end = start[:, None, None], (start + length)[:, None, None]
    taps = taps * ((pixel >= first) & (pixel < end))
    return (taps / taps.sum(-1, keepdim=True)).float()


def _kernel(x: Tensor, kind: str) -> Tensor:
    x = x.abs()
    if kind == "bilinear":
        return (1 - x).clamp(min=0)
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def plain(
    image: UInt8[Tensor, "3 height width"], size: int, interpolation: str, mode: str, fill: int = 0
) -> UInt8[Tensor, "3 size size"]:
    """The plain view: resized and cut (or padded) as the model was trained."""
    top, left, height, width = window(image.shape[1], image.shape[2], mode)
    image = image[:, top : top + height, left : left + width]
    height, width, top, left = fit(height, width, size, mode)
    resize = _resize if image.device.type == "cpu" else resize_by_products
    resized = resize(image, height, width, interpolation)
    if min(top, left) < 0:
        return pad(resized, (-left, size - width + left, -top, size - height + top), value=fill)
    return resized[:, top : top + size, left : left + size]


def _resize(
    image: UInt8[Tensor, "3 _ _"], height: int, width: int, interpolation: str
) -> UInt8[Tensor, "3 height width"]:
    pixels = image[None].contiguous(memory_format=torch.channels_last)
    return interpolate(pixels, (height, width), mode=interpolation, antialias=True)[0]


def resize_by_products(
    image: UInt8[Tensor, "3 _ _"], height: int, width: int, interpolation: str
) -> UInt8[Tensor, "3 height width"]:
    """The whole picture resized by two matrix products."""
    start = torch.zeros(1, dtype=torch.int64, device=image.device)
    down, across = image.shape[1:]
    rows = _levels(image.float() @ weights(start, start + across, across, width, interpolation)[0].T)
    return _levels(weights(start, start + down, down, height, interpolation)[0] @ rows).to(torch.uint8)
