"""What the rest of the library asks of a model, whoever made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor


@dataclass(frozen=True)
class Preprocess:
    """How pictures become the square a model was trained on.

    `resize_mode` is `shortest` (resize the short side, cut the centre), `longest` (resize the long side, pad)
    or `squash` (ignore the aspect ratio). The library resizes first and normalises last, on the device.

    >>> import torch
    >>> Preprocess(size=2, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)).normalise(torch.ones(1, 3, 2, 2)).max()
    tensor(1.)
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bicubic"
    resize_mode: str = "shortest"

    def normalise(
        self, pixels: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch 3 height width"]:
        """Pixels in [0,1] as the image tower wants them."""
        mean = torch.tensor(self.mean, dtype=pixels.dtype, device=pixels.device).view(1, 3, 1, 1)
        std = torch.tensor(self.std, dtype=pixels.dtype, device=pixels.device).view(1, 3, 1, 1)
        return (pixels - mean) / std


@runtime_checkable
class Backbone(Protocol):
    """A frozen two-tower model. A class with these members can be used wherever `reta.load` could.

    `scale` is the factor s of the logits s * image @ text.T, `fingerprint` a name for the exact weights: it
    keys every cache and is written into every saved state. Features come back as unit rows.
    """

    @property
    def name(self) -> str: ...
    @property
    def tag(self) -> str | None: ...
    @property
    def dim(self) -> int: ...
    @property
    def scale(self) -> float: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def preprocess(self) -> Preprocess: ...
    @property
    def fingerprint(self) -> str: ...

    def images(
        self,
        pixels: Float[Tensor, "images 3 size size"] | UInt8[Tensor, "images 3 size size"],
        batch: int | None = None,
    ) -> Float[Tensor, "images dim"]: ...

    def texts(self, texts: Sequence[str], batch: int = 256) -> Float[Tensor, "texts dim"]: ...
