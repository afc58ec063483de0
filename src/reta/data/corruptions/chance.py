"""Randomness of corruptions: one stream per (seed, corruption, image key), whatever the batch or the device."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor


class Chance:
    """Random fields for a batch of images, each drawn from the image's own stream on the CPU.

    The severity is not part of the seed: the same grain, flakes or clouds grow stronger.

    >>> one, other = Chance(0, "fog", ["a", "b"]), Chance(0, "fog", ["b"])
    >>> bool((one.uniform(0, 1, 4)[1] == other.uniform(0, 1, 4)[0]).all())
    True
    """

    def __init__(self, seed: int, name: str, keys: Sequence[str], device: torch.device | str = "cpu"):
        self.device = device
        self.streams = [np.random.Generator(np.random.PCG64(_number(seed, name, key))) for key in keys]

    def normal(self, *shape: int) -> Float32[Tensor, "batch ..."]:
        """Standard normal numbers."""
        return self._stack([stream.standard_normal(shape, np.float32) for stream in self.streams])

    def uniform(self, low: float, high: float, *shape: int) -> Float32[Tensor, "batch ..."]:
        """Numbers spread evenly from `low` to `high`."""
        return self._stack([low + (high - low) * stream.random(shape, np.float32) for stream in self.streams])

    def poisson(self, rate: Float32[Tensor, "batch ..."]) -> Float32[Tensor, "batch ..."]:
        """Counts at the given rates."""
        rates = rate.cpu().double().numpy()
        return self._stack([stream.poisson(mean) for stream, mean in zip(self.streams, rates, strict=True)])

    def _stack(self, fields: list[np.ndarray]) -> Float32[Tensor, "batch ..."]:
        return torch.from_numpy(np.stack(fields).astype(np.float32)).to(self.device)


def _number(seed: int, name: str, key: str) -> int:
    text = f"{seed}\0{name}\0{key}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=16, person=b"reta.corrupt").digest(), "little")
