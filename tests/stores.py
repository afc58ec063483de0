"""A backbone that costs nothing and small data, for tests of stores."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from reta.backbone import Preprocess
from reta.data.dataset import Dataset, Made


class Fake:
    """Features that are a fixed projection of the pixels: quick, and different for different images."""

    name, tag, dim, scale, precision = "fake", "v1", 16, 10.0, "fp32"
    device = torch.device("cpu")
    preprocess = Preprocess(size=8, mean=(0.0,) * 3, std=(1.0,) * 3, interpolation="bilinear")

    def __init__(self, delay: float = 0.0, fingerprint: str = "abc"):
        self.delay, self.fingerprint, self.calls = delay, fingerprint, 0
        self.weight = torch.randn(3 * 64, 16, generator=torch.Generator().manual_seed(7))

    def images(self, pixels: torch.Tensor, batch: int = 64) -> torch.Tensor:
        time.sleep(self.delay)
        self.calls += 1
        features = (pixels.reshape(len(pixels), -1) - 0.4) @ self.weight
        return features / features.norm(dim=-1, keepdim=True)

    def texts(self, texts: list[str], batch: int = 256) -> torch.Tensor:
        seeds = [int(hashlib.sha256(t.encode()).hexdigest()[:8], 16) for t in texts]
        rows = torch.stack([torch.randn(16, generator=torch.Generator().manual_seed(s)) for s in seeds])
        return rows / rows.norm(dim=-1, keepdim=True)


class Noise:
    """A picture of seeded noise."""

    def __init__(self, seed: int):
        self.seed = seed

    def __call__(self) -> Image.Image:
        return Image.fromarray(np.random.default_rng(self.seed).integers(0, 256, (12, 10, 3), np.uint8))


def noise(n: int = 20, name: str = "noise") -> Dataset:
    refs = [Made(Noise(i)) for i in range(n)]
    return Dataset(
        name, tuple(f"{name}/{i}" for i in range(n)), refs, tuple(i % 4 for i in range(n)), tuple("abcd")
    )


def folder(root: Path, n: int = 6) -> Path:
    """Two class folders of good PNGs."""
    for i in range(n):
        place = root / ("cat", "dog")[i % 2] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Noise(i)().save(place)
    return root


def tree(path: Path) -> dict[str, bytes]:
    """Every file of a store but the locks."""
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in path.rglob("*")
        if p.is_file() and "locks" not in p.parts
    }


def build_apart(root: Path, delay: float) -> int:
    """Build the store of 40 images in a process of its own; its id."""
    from reta.bench import build

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            build(noise(40), Fake(delay), "crops", 4, root=root, shard=6, batch=8)
            code = 0
        finally:
            os._exit(code)
    return pid
