"""Black outlines on white paper."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from PIL import Image

from . import paint
from .looks import Look
from .trace import cover, edges, fill, outline, pose


def sketch(rng: Generator, look: Look, name: str) -> Image.Image:
    """Draw the outline of one class, once or twice over, with pen or pencil."""
    where = pose(rng, look)
    reach = int(rng.integers(2, 4))
    line = cover(edges(fill(outline(rng, look, name), where), reach))
    if rng.random() < 0.4:
        line = np.maximum(line, 0.7 * cover(edges(fill(outline(_again(rng), look, name), where), reach)))
    if rng.random() < 0.4:
        line = line * (0.75 + 0.25 * paint.clouds(rng, 16))
    paper = np.full((paint.SIZE, paint.SIZE, 3), rng.uniform(238, 255), dtype=np.float32)
    ink = float(np.float32(rng.uniform(5, 60)))
    return paint.finish(paint.grain(rng, paint.mix(paper, ink, np.clip(line, 0, 1)), 1.5))


def _again(rng: Generator) -> Generator:
    """A generator for a second try at the same outline."""
    return np.random.Generator(np.random.PCG64(int(rng.integers(2**31))))
