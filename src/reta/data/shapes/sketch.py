"""Black outlines on white paper."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from PIL import Image

from . import paint
from .looks import Look
from .trace import Cover, Pose, cover, edges, fill, outline, pose


def sketch(rng: Generator, look: Look, name: str) -> Image.Image:
    """Draw the outline of one class by hand: thin, shaky, broken here and there, often gone over twice."""
    where = pose(rng, look)
    line = _stroke(rng, look, name, where)
    if rng.random() < 0.6:
        line = np.maximum(line, 0.7 * _stroke(rng, look, name, where))
    line = line * np.clip(0.7 + 0.9 * paint.clouds(rng, int(rng.integers(8, 16))), 0, 1)
    paper = np.full((paint.SIZE, paint.SIZE, 3), rng.uniform(238, 255), dtype=np.float32)
    return paint.finish(paint.grain(rng, paint.mix(paper, float(rng.uniform(5, 80)), line), 1.5))


def _stroke(rng: Generator, look: Look, name: str, where: Pose) -> Cover:
    """One try at the outline in a given pose."""
    return cover(edges(fill(outline(rng, look, name), where), int(rng.integers(1, 3))))
