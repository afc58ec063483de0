"""How ReTA's text members move: AdamW on residuals for one image, a progressive mean for all that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from reta.methods import ops
from reta.methods.lazy import class_blocks, piecewise

Gradient = Callable[[Tensor], Callable[[slice], Tensor]]


@dataclass(frozen=True)
class Residuals:
    """`steps` of AdamW on the residuals r of unit(base + r) (Eq. 16), in closed form: no optimiser, no autograd.

    The first step from r = 0 is -lr g / (|g| + eps) and weight decay does nothing there; the moments start
    anew for every image. "shared" residuals are one per class, moved by all its members together.
    """

    steps: int
    lr: float | Tensor
    eps: float | Tensor
    weight_decay: float | Tensor
    shared: bool = False
    adam_state: str = "exact"

    def move(
        self,
        base: Float[Tensor, "members classes dim"],
        text: Float[Tensor, "members classes dim"],
        start: Float[Tensor, "members classes dim"] | None,
        gradient: Gradient,
    ) -> tuple[Tensor, Tensor | None]:
        """The moved members, and the residuals if they had a `start`.

        `text` is unit(base + start), or `base` itself where that is unit; `gradient` is dL/dt at unit members,
        then of a slice of the classes.
        """
        if self.steps == 1 and start is None and not self.shared:
            part = gradient(text)
            length = None if text is base else lengths(base)

            def leap(here: slice) -> Tensor:
                far = None if length is None else length[:, here]
                g = ops.tangent(text[:, here], part(here), far)
                return ops.unit(ops.adam_step(base[:, here], g, self.lr, self.eps, self.adam_state))

            return piecewise(class_blocks(base), leap, 1), None
        first = torch.zeros_like(base) if start is None else start

        def pull(r: Tensor) -> Tensor:
            here = text if r is first else ops.unit(base + r)
            g = piecewise(class_blocks(base), gradient(here), 1)
            g = ops.tangent(here, g, lengths(base + r))
            return g.sum(0, keepdim=True).expand_as(base) if self.shared else g

        r = ops.adamw(first, pull, self.steps, self.lr, self.eps, self.weight_decay, self.adam_state)
        return ops.unit(base + r), None if start is None else r


def lengths(x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows 1"]:
    """The length of every row."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def evolve(
    text: Float[Tensor, "members classes dim"],
    moved: Float[Tensor, "members classes dim"],
    past: Float[Tensor, ""],
    normalise: bool,
) -> Float[Tensor, "members classes dim"]:
    """The progressive mean of the members, `past` earlier ones against the new one (Eq. 17)."""

    def part(here: slice) -> Tensor:
        mean = torch.lerp(moved[:, here], text[:, here], past / (past + 1))
        return ops.unit(mean) if normalise else mean

    return piecewise(class_blocks(text), part, 1)
