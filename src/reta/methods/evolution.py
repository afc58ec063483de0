"""How ReTA's text members move: AdamW on residuals for one image, a progressive mean for all that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from reta.methods import ops
from reta.methods.lazy import blocks

BETA1, BETA2 = 0.9, 0.999
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
                return self._leap(base[:, here], text[:, here], part(here), far)

            return by_blocks(base, leap), None
        r = torch.zeros_like(base) if start is None else start
        r = self._walk(base, text, r, gradient)
        return ops.unit(base + r), None if start is None else r

    def _leap(self, base: Tensor, text: Tensor, grad: Tensor, length: Tensor | None) -> Tensor:
        """One step from r = 0."""
        g = tangent(text, grad, length)
        if self.adam_state == "fp16":
            return ops.unit(base + ops.adam_step_fp16(g, self.lr, self.eps))
        if isinstance(self.lr, Tensor):
            return ops.unit(base + ops.adam_step(g, self.lr, self.eps))
        return ops.unit(
            torch.addcdiv(base, g, g.abs() + self.eps, value=-self.lr)
        )  # the same in fewer passes

    def _walk(self, base: Tensor, text: Tensor, r: Tensor, gradient: Gradient) -> Tensor:
        """The residuals after AdamW as torch.optim has it."""
        m = v = torch.zeros_like(base)
        for k in range(1, self.steps + 1):
            g = tangent(text, by_blocks(base, gradient(text)), lengths(base + r))
            if self.shared:
                g = g.sum(0, keepdim=True).expand_as(base)
            m = BETA1 * m + (1 - BETA1) * g
            v = self._held(BETA2 * v + (1 - BETA2) * g.square())
            scaled = (m / (1 - BETA1**k)) / ((v / (1 - BETA2**k)).sqrt() + self.eps)
            r = r * (1 - self.lr * self.weight_decay) - self.lr * scaled
            text = ops.unit(base + r)
        return r

    def _held(self, v: Tensor) -> Tensor:
        """The second moment as it is stored."""
        return v.half().to(v.dtype) if self.adam_state == "fp16" else v


def lengths(x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows 1"]:
    """The length of every row."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def tangent(
    unit: Float[Tensor, "*rows dim"],
    grad: Float[Tensor, "*rows dim"],
    length: Float[Tensor, "*rows 1"] | None = None,
) -> Float[Tensor, "*rows dim"]:
    """The gradient at x = length * unit of a function whose gradient at unit(x) is `grad`; length 1 if not given."""
    across = torch.addcmul(grad, unit, (unit * grad).sum(-1, keepdim=True), value=-1)
    return across if length is None else across / length


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

    return by_blocks(text, part)


def by_blocks(like: Tensor, part: Callable[[slice], Tensor]) -> Tensor:
    """What `part` makes of all classes, made a few at a time where that keeps it in a CPU's cache."""
    parts = [part(here) for here in blocks(like.shape[1], like[:, 0].numel(), like.device)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
