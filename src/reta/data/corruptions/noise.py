"""Gaussian, shot and impulse noise.

Noise is independent from pixel to pixel, so a picture of fewer pixels has fewer to average over. To harm a picture
of any size alike, amplitudes go with the square root of its side over 224 (and photons per pixel with its inverse).
"""

from __future__ import annotations

from reta.data.corruptions.chance import Chance
from reta.data.corruptions.fields import Images

GAUSSIAN = (0.08, 0.12, 0.18, 0.26, 0.38)
SHOT = (60, 25, 12, 5, 3)
IMPULSE = (0.03, 0.06, 0.09, 0.17, 0.27)


def gaussian_noise(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Add normal noise of a given standard deviation."""
    return images + GAUSSIAN[level] * scale**0.5 * chance.normal(*images.shape[1:])


def shot_noise(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Count photons: Poisson with mean value x photons."""
    photons = SHOT[level] / scale
    return chance.poisson(images * photons) / photons


def impulse_noise(images: Images, level: int, chance: Chance, scale: float) -> Images:
    """Replace a share of the values, half by 0 and half by 1."""
    share = min(IMPULSE[level] * scale**0.5, 0.9)
    draw = chance.uniform(0, 1, *images.shape[1:])
    return images.masked_fill(draw < share / 2, 0.0).masked_fill(draw >= 1 - share / 2, 1.0)
