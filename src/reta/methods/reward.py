"""What a second model thinks of a view, and the gradient of making the classes it likes more probable."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from reta.methods import ops
from reta.task import Task

WEIGHT = 2.5


def scores(
    views: Float[Tensor, "*batch views reward_dim"], task: Task, text: str = "first"
) -> Float[Tensor, "*batch views classes"]:
    """CLIPScore of every view with every class: 2.5 max(cos, 0)."""
    return WEIGHT * (views @ ops.class_text(task, text).mT).clamp_min(0)


def feedback_grad(
    logits: Float[Tensor, "*batch views classes"],
    score: Float[Tensor, "*batch views classes"],
    sampled: int,
) -> Float[Tensor, "*batch views classes"]:
    """d loss / d logits of the mean over views and their `sampled` top classes of (r - mean r) * (-ln p).

    The rewards of a view sum to zero, so the softmax drops out: what is left is minus the reward, at the
    sampled classes.
    """
    sampled = min(sampled, logits.shape[-1])
    top = logits.topk(sampled, -1).indices
    r = score.gather(-1, top)
    r = r - r.mean(-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, top, -r) / (sampled * logits.shape[-2])
