"""What a method is given and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Sample(NamedTuple):
    """One image after the encoder. Row 0 of `views` is the plain view, the others are augmented.

    `reward` holds the same views seen by a second model, `pixels` the views themselves; both are
    there only for methods that ask for them in `needs`.

    >>> import torch
    >>> Sample(torch.zeros(64, 512), key="photo.jpg").views.shape
    torch.Size([64, 512])
    """

    views: Float[Tensor, "views dim"]
    reward: Float[Tensor, "views reward_dim"] | None = None
    pixels: Float[Tensor, "views 3 height width"] | None = None
    key: str = ""


class Output(NamedTuple):
    """What one step answers: probabilities that sum to one, and what the method has to tell."""

    probs: Float[Tensor, " classes"]
    info: dict[str, Tensor]
