"""The published pipeline, image by image, on PIL: torchvision's crops and the AugMix operations of ImageOps."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32
from PIL import Image, ImageOps
from torch import Tensor

from reta.views.fit import fit, window
from reta.views.params import OPS, Draws

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def plain(image: Image.Image, size: int, interpolation: str, mode: str, fill: int = 0) -> Image.Image:
    """The plain view: resized and cut as the model was trained."""
    top, left, height, width = window(image.height, image.width, mode)
    image = image.crop((left, top, left + width, top + height))
    height, width, top, left = fit(height, width, size, mode)
    resized = image.resize((width, height), FILTERS[interpolation])
    if min(top, left) >= 0:
        return resized.crop((left, top, left + size, top + size))
    canvas = Image.new("RGB", (size, size), (fill,) * 3)
    canvas.paste(resized, (-left, -top))
    return canvas


def crop(image: Image.Image, draws: Draws, view: int, size: int) -> Image.Image:
    """RandomResizedCrop and horizontal flip, as drawn."""
    top, left, height, width = (int(number) for number in draws.box[view])
    cut = image.crop((left, top, left + width, top + height)).resize((size, size), FILTERS["bilinear"])
    return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draws.flip[view] else cut


def operate(image: Image.Image, op: str, amount: float) -> Image.Image:
    """One AugMix operation."""
    tones = {
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
        "posterize": lambda: ImageOps.posterize(image, int(amount)),
        "solarize": lambda: ImageOps.solarize(image, int(amount)),
        "rotate": lambda: image.rotate(amount, resample=Image.Resampling.BILINEAR),
    }
    return tones[op]() if op in tones else _affine(image, op, amount)


def _affine(image: Image.Image, op: str, amount: float) -> Image.Image:
    matrix = {
        "shear_x": (1, amount, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, amount, 1, 0),
        "translate_x": (1, 0, amount, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, amount),
    }[op]
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


def augmix(base: Image.Image, draws: Draws, view: int) -> Float32[Tensor, "3 size size"]:
    """keep * base + (1 - keep) * weighted sum of three chains, each starting from the base."""
    mixed = torch.zeros(3, base.height, base.width)
    for chain in range(draws.op.shape[1]):
        image = base
        for op, amount in zip(draws.op[view, chain], draws.amount[view, chain], strict=True):
            image = operate(image, OPS[op], amount) if op >= 0 else image
        mixed += float(draws.weight[view, chain]) * tensor(image)
    keep = float(draws.keep[view])
    return (keep * tensor(base) + (1 - keep) * mixed).clamp_(max=1)  # the weights sum to one but for rounding


def tensor(image: Image.Image) -> Float32[Tensor, "3 height width"]:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)


def views(
    image: Image.Image, draws: Draws, recipe: str, size: int, interpolation: str, mode: str, fill: int
) -> Float32[Tensor, "views 3 size size"]:
    """The plain view and one row per drawn view."""
    rows = [tensor(plain(image, size, interpolation, mode, fill))]
    for view in range(len(draws.flip)):
        base = crop(image, draws, view, size)
        rows.append(augmix(base, draws, view) if recipe == "augmix" else tensor(base))
    return torch.stack(rows)
