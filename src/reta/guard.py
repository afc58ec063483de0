"""What may pass: features a method can use, and states worth keeping."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def usable(views: Float[Tensor, "*batch views dim"]) -> Bool[Tensor, "*batch"]:
    """Samples whose every view is finite and has a length; the others never reach a method.

    >>> usable(torch.tensor([[[3.0, 4.0]], [[0.0, 0.0]], [[float("nan"), 1.0]]]))
    tensor([ True, False, False])
    """
    length = views.float().norm(dim=-1)
    return (torch.isfinite(length) & (length > 0)).all(-1)


def sane(state: Mapping[str, Tensor]) -> bool:
    """No NaN anywhere (an infinite score is how a free slot looks)."""
    return not any(bool(value.isnan().any()) for value in state.values() if value.is_floating_point())
