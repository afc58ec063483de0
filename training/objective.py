"""What a training run is made of: its plan, its pictures, its loss and its learning rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from torch import Tensor, nn


@dataclass(frozen=True)
class Plan:
    """Everything a run depends on.

    The first `read` steps train the text tower alone (sentences on the same class attract each other), and it
    then stands still until step `settle`: two untrained towers pull each other into one point.
    """

    config: str
    steps: int
    images: int = 100_000
    batch: int = 96
    claims: int = 24
    rate: float = 1.5e-3
    text_rate: float = 5e-4
    read: int = 120
    settle: int = 600
    decay: float = 0.05
    warmup: int = 100
    cooldown: float = 0.25
    average: float = 0.998
    seed: int = 0


def prepare(pixels: np.ndarray, seed: int, device: torch.device) -> Tensor:
    """Bytes to normalised pictures: a random zoom, shift, turn, mirror and gain for each."""
    draw = torch.Generator().manual_seed(seed)
    n = len(pixels)
    x = torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2).float().div_(255)
    u = torch.rand(6, n, generator=draw)
    zoom, turn = 0.72 + 0.38 * u[0], (u[1] - 0.5) * 0.35
    flip = torch.where(u[2] < 0.5, -1.0, 1.0)
    shift = (u[3:5] - 0.5) * 0.36
    rows = [torch.stack([zoom * turn.cos() * flip, -zoom * turn.sin(), shift[0]], 1),
            torch.stack([zoom * turn.sin() * flip, zoom * turn.cos(), shift[1]], 1)]  # fmt: skip
    grid = nn.functional.affine_grid(torch.stack(rows, 1), [n, 3, *x.shape[2:]], align_corners=False)
    x = nn.functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    x = x * (0.8 + 0.4 * u[5])[:, None, None, None]
    mean, std = (torch.tensor(v)[:, None, None] for v in (OPENAI_DATASET_MEAN, OPENAI_DATASET_STD))
    x = (x.clamp_(0, 1) - mean) / std
    return x.to(device, memory_format=torch.channels_last)


def contrast(
    images: Float[Tensor, "n dim"], texts: Float[Tensor, "m dim"], true: Bool[Tensor, "n m"], scale: Tensor
) -> Tensor:
    """Both ways, cross-entropy against an equal share for everything that is true."""
    logits = scale * images @ texts.T
    losses = []
    for side, mask in ((logits, true), (logits.T, true.T)):
        share = mask / mask.sum(1, keepdim=True).clamp(min=1)
        each = -(share * side.log_softmax(1)).sum(1) - _entropy(share)
        losses.append(each[mask.any(1)].mean())
    return (losses[0] + losses[1]) / 2


def _entropy(share: Tensor) -> Tensor:
    return -torch.special.xlogy(share, share).sum(1)


def schedule(step: int, start: int, plan: Plan) -> float:
    """Linear warm-up from `start`, a plateau, and a straight way to zero over the last `cooldown` of the steps."""
    rest = (plan.steps - step) / max(plan.cooldown * plan.steps, 1)
    return min(max(step + 1 - start, 0) / plan.warmup, 1.0, rest)
