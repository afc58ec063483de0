"""Draw the training stream once into a file of bytes, with what each picture shows."""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from reta.data import shapes

CHUNK = 500


def _chunk(start: int) -> tuple[np.ndarray, list[dict[str, object]]]:
    """`CHUNK` training images from `start` on."""
    drawn = [shapes.scene("train", i) for i in range(start, start + CHUNK)]
    return np.stack([np.asarray(image) for image, _ in drawn]), [vars(scene) for _, scene in drawn]


def render(folder: Path, count: int, workers: int = 2) -> tuple[np.ndarray, list[dict[str, object]]]:
    """The first `count` training images `[count, 64, 64, 3]` and their scenes, from `folder` if drawn before."""
    images, scenes = folder / f"train-{count}.npy", folder / f"train-{count}.json"
    if not scenes.exists():
        folder.mkdir(parents=True, exist_ok=True)
        out = np.lib.format.open_memmap(images, "w+", np.uint8, (count, 64, 64, 3))
        words: list[dict[str, object]] = []
        with ProcessPoolExecutor(workers) as pool:
            starts = range(0, count, CHUNK)
            for start, (pixels, found) in zip(starts, pool.map(_chunk, starts), strict=True):
                out[start : start + CHUNK] = pixels[: count - start]
                words += found[: count - start]
        out.flush()
        partial = scenes.with_suffix(".part")
        partial.write_text(json.dumps(words))
        os.replace(partial, scenes)
    return np.load(images, mmap_mode="r"), json.loads(scenes.read_text())
