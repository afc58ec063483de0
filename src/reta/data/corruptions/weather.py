"""Snow, frost, fog and brightness.

Layers of weather are drawn for a picture whose short side is 224 pixels and resized to the picture at hand.
The frost of ImageNet-C is five photographs; here it is drawn (`ice`), so the package carries no pictures.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float32
from torch import Tensor
from torch.nn.functional import interpolate

from reta.data.corruptions import fields
from reta.data.corruptions.chance import Chance
from reta.data.corruptions.fields import Images

SNOW = (  # mean, deviation, flake size, threshold, smear radius, smear sigma, share of the picture
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)
FROST = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))  # share of the picture, of the ice
FOG = ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))  # thickness, decay of the octaves
BRIGHTNESS = (0.1, 0.2, 0.3, 0.4, 0.5)
LONGEST = 512
LUMA = (0.299, 0.587, 0.114)


def snow(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Falling flakes over a whitened picture."""
    mean, deviation, size, threshold, radius, sigma, share = SNOW[level]
    flakes = mean + deviation * chance.normal(1, *canvas(images, scale))
    flakes = fields.zoom(flakes, size)
    flakes = flakes.masked_fill(flakes < threshold, 0).clamp(0, 1)
    flakes = fields.motion(flakes, radius, sigma, chance.uniform(-135, -45))
    flakes = fields.resized(flakes, *images.shape[-2:])
    grey = (images * images.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
    whitened = share * images + (1 - share) * images.maximum(grey * 1.5 + 0.5)
    return whitened + flakes + flakes.rot90(2, (2, 3))


def frost(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Ice on the pane, added to a darkened picture."""
    share, cover = FROST[level]
    layer = fields.resized(ice(chance, *canvas(images, scale)), *images.shape[-2:])
    return share * images + cover * layer


def ice(chance: Chance, height: int, width: int) -> Float32[Tensor, "batch 3 height width"]:
    """Frost ferns: crystals that grow from many seeds until they meet, six arms with barbs each, thick in some
    places of the pane and thin in others.
    """
    side = max(height, width)
    fern = torch.zeros(len(chance.streams), height, width, device=chance.device)
    for seeds, barb in ((14, 0.045), (40, 0.028)):
        fern = torch.maximum(fern, _crystals(chance, seeds, barb * side, side)[:, :height, :width])
    cover = (0.55 + 0.45 * _smooth(chance, 4, side)[:, :height, :width]).clamp(0, 1)
    grain = 0.05 * _smooth(chance, side // 2, side)[:, :height, :width]
    light = (0.1 + cover * (0.32 + 0.62 * fern + grain)).clamp(0, 1)[:, None]
    tint = light.new_tensor((0.8, 0.93, 1.0))[:, None, None]
    return light * (tint + (1 - tint) * light)


def _crystals(chance: Chance, seeds: int, barb: float, side: int) -> Float32[Tensor, "batch side side"]:
    """Brightness of ice crystals: arms that fade outwards, barbs at 60 degrees to them, seams where cells meet."""
    x, y = fields.pixel_grid(chance.uniform(0, 1, 1, side, side))
    bend_x, bend_y = (0.022 * side * _smooth(chance, 9, side) for _ in range(2))
    place = chance.uniform(-0.1 * side, 1.1 * side, seeds, 2)[..., None, None]
    away_x, away_y = (x + bend_x)[:, None] - place[:, :, 0], (y + bend_y)[:, None] - place[:, :, 1]
    squared = away_x**2 + away_y**2
    first, cell = squared.min(1, keepdim=True)
    second = squared.scatter(1, cell, torch.inf).amin(1)
    near, gap = first[:, 0].sqrt(), second.sqrt() - first[:, 0].sqrt()
    turn = chance.uniform(0, math.pi / 3, seeds, 1, 1).expand(-1, -1, side, side)
    angle = torch.atan2(away_y.gather(1, cell), away_x.gather(1, cell)) + turn.gather(1, cell)
    folded = (torch.remainder(angle, math.pi / 3) - math.pi / 6)[:, 0].abs()
    along, across = near * torch.cos(folded), near * torch.sin(folded)
    arm = torch.exp(-across / (0.12 * barb + 0.02 * along))
    barbs = (0.5 + 0.5 * torch.cos(2 * math.pi * (along - 0.58 * across) / barb)) ** 3
    seam = torch.exp(-gap / (0.5 * barb))
    return (0.75 * arm + 0.55 * barbs * torch.exp(-across / (3.5 * barb)) + 0.25 * seam).clamp(0, 1)


def _smooth(chance: Chance, cells: int, side: int) -> Float32[Tensor, "batch side side"]:
    coarse = chance.normal(1, cells + 3, cells + 3)
    return interpolate(coarse, (side, side), mode="bicubic", align_corners=True)[:, 0]


def fog(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Add clouds and take the brightest value back to where it was."""
    thickness, decay = FOG[level]
    height, width = canvas(images, scale)
    clouds = fields.plasma(chance, 1 << (max(height, width) - 1).bit_length(), decay)
    layer = fields.resized(clouds[:, None, :height, :width], *images.shape[-2:])
    brightest = images.amax((1, 2, 3), keepdim=True)
    return (images + thickness * layer) * brightest / (brightest + thickness)


def brightness(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Raise the value of hue-saturation-value; hue and saturation stay."""
    value = images.amax(1, keepdim=True)
    raised = (value + BRIGHTNESS[level]).clamp(max=1)
    return torch.where(value > 0, images * raised / value.clamp(min=1e-6), raised)


def canvas(images: Images, scale: float) -> tuple[int, int]:
    """The size at which layers are drawn; along a panorama they are stretched."""
    height, width = (min(max(round(side / scale), 1), LONGEST) for side in images.shape[-2:])
    return height, width
