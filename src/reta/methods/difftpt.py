"""DiffTPT: TPT with views made by a diffusion model, filtered by how much they look like the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reta.methods import ops
from reta.methods.base import param
from reta.methods.tpt import TPT


@dataclass(frozen=True, kw_only=True)
class DiffTPT(TPT):
    """TPT on standard and generated views.

    Views whose logits point another way than the plain view's are dropped first, then uncertain ones. Rows
    after the first 64 or so are the generated views (`reta.views.extra` says where they come from); without
    any, the filters work on what there is.

    >>> import torch
    >>> views = torch.tensor([[9.0, 0, 0], [9, 1, 0], [9, 0, 2], [0, 9, 0], [1, 0, 0], [0, 0, 9]])
    >>> DiffTPT(similar=0.6, share=0.5).select(views).tolist()  # 0, 1, 2 and 4 look alike; 4 is unsure
    [0, 1]
    """

    summary: ClassVar[str] = "DiffTPT: TPT with generated views and a filter by similarity"
    equations: ClassVar[str] = (
        "keep the views with the largest cos(l_i, l_0), of them the lowest entropy; then as TPT"
    )

    views: int = param(128, "how many views are used: plain, standard and generated", low=1)
    generated: int = param(63, "how many of them are generated", low=0)
    similar: float = param(0.8, "share of the other views kept by cosine of their logits", low=0, high=1)
    share: float = param(0.3, "share of those, the most confident, that count", low=0, high=1)
    steps: int = param(4, "steps of AdamW", low=0)

    def select(self, logits: Float[Tensor, "views classes"]) -> Int[Tensor, " kept"]:
        """The plain view and the most similar others, then the most confident of these."""
        unit = ops.unit(logits)
        near = (unit[1:] @ unit[0]).sort(descending=True, stable=True).indices
        near = 1 + near[: int(self.similar * (len(logits) - 1))]
        pool = torch.cat([near.new_zeros(1), near])
        return pool[ops.confident(logits[pool], self.share)]
