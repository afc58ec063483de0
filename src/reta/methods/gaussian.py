"""The class-wise Gaussian of ReTA's text members: refined logits, the surrogate loss and its gradient.

Two forms of the term z^T W_{c,y} z / 2 tau^2 of the surrogate loss. With members t_m^c, their class mean
mu^c, D_m^c = t_m^c - mu^c, E_m^c = D_m^c - D_m^y and the divisor n, the cross-class covariance is
Sigma^{cy} = sum_m D_m^c (D_m^y)^T / n, so that

    full:      z^T W_{c,y} z               = sum_m (z . E_m^c)^2 / n
    diagonal:  sum_d z_d^2 (W_{c,y})_dd    = sum_d z_d^2 sum_m (E_m^c)_d^2 / n

Neither builds a covariance: the first needs the members' products with the views, the second one [C, D] table.
Gradients are given as functions of a slice of the classes, so that no second [M, C, D] tensor is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reta.methods.lazy import class_blocks, piecewise

Part = Callable[[slice], Tensor]


@dataclass(frozen=True)
class Surrogate:
    """How the surrogate loss is formed: centre, covariance, divisor, weight; the model's scale is 1 / tau."""

    scale: float
    center: str = "last"
    cov: str = "full"
    divisor: float = 3.0
    weight: float | Tensor = 1.0

    def logits(
        self,
        text: Float[Tensor, "members classes dim"],
        views: Float[Tensor, "views dim"],
        label: Int[Tensor, ""],
    ) -> Float[Tensor, "views classes"]:
        """<z, centre> / tau + z^T W_{c,y} z / 2 tau^2 for every class; the last term is 0 at c = y (Eq. 20)."""
        if self.cov == "full":
            return self._full(text, views, label)[0]
        squares = views.square()
        own = deviation(text, label)
        return piecewise(
            class_blocks(text), lambda part: self._diagonal(text[:, part], views, squares, own), -1
        )

    def grad(
        self,
        text: Float[Tensor, "members classes dim"],
        views: Float[Tensor, "views dim"],
        label: Int[Tensor, ""],
        logits: Float[Tensor, "views classes"] | None = None,
    ) -> Part:
        """weight * d L_surr / d text of a slice of classes, `[members, slice, dim]`.

        L_surr is the mean over the views of the cross-entropy of the refined logits to the label (Eq. 20),
        which need not be made again where they are known.
        """
        if self.cov == "full":
            return self._full_grad(text, views, label)
        known = self.logits(text, views, label) if logits is None else logits
        return self._diagonal_grad(text, views, label, known)

    def _error(self, logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """weight * d L_surr / d logits, and where the class is the label."""
        is_label = torch.arange(logits.shape[-1], device=logits.device) == label
        return (logits.softmax(-1) - is_label.to(logits.dtype)) * (self.weight / len(logits)), is_label

    def _full(self, text: Tensor, views: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and z_b . E_m^c as [views, members, classes]."""
        near = (views @ text.flatten(0, 1).mT).reshape(len(views), *text.shape[:2])
        mean = near.mean(1)
        apart = near - mean[:, None]
        apart = apart - apart.index_select(-1, label.reshape(1))
        centre = near[:, -1] if self.center == "last" else mean
        spread = apart.square().sum(1)
        return self.scale * centre + (0.5 * self.scale**2 / self.divisor) * spread, apart

    def _full_grad(self, text: Tensor, views: Tensor, label: Tensor) -> Part:
        logits, apart = self._full(text, views, label)
        error, is_label = self._error(logits, label)
        pull = (self.scale**2 / self.divisor) * error[:, None] * apart
        pull = pull - is_label * pull.sum(-1, keepdim=True)
        self._centre(pull.movedim(1, 0), error)

        def part(here: slice) -> Tensor:
            chosen = pull[..., here]
            return (chosen.flatten(1).mT @ views).reshape(*chosen.shape[1:], -1)

        return part

    def _diagonal(self, text: Tensor, views: Tensor, squares: Tensor, own: Tensor) -> Tensor:
        """Logits of a slice of classes."""
        mean = text.mean(0)
        table = (text - mean - own[:, None]).square().sum(0)
        centre = text[-1] if self.center == "last" else mean
        spread = squares @ table.mT
        return self.scale * (views @ centre.mT) + (0.5 * self.scale**2 / self.divisor) * spread

    def _diagonal_grad(self, text: Tensor, views: Tensor, label: Tensor, logits: Tensor) -> Part:
        error, is_label = self._error(logits, label)
        strength = self.scale**2 / self.divisor
        squares, own = views.square(), deviation(text, label)
        # The errors of a view sum to zero over the classes, so E may be D in what the label is pulled by.
        spread = error @ text
        total = strength * (squares * (spread - spread.mean(0))).sum(1)

        def part(here: slice) -> Tensor:
            some, chosen = text[:, here], error[:, here]
            pull = (some - some.mean(0) - own[:, None]) * (strength * (chosen.mT @ squares))
            pull = torch.addcmul(pull, is_label[here, None].to(pull.dtype), total[:, None], value=-1)
            self._centre(pull, chosen.mT @ views)
            return pull

        return part

    def _centre(self, pull: Float[Tensor, "members *rest"], error: Float[Tensor, "*rest"]) -> None:
        """Add what pulls the members through the centre: the last one alone, or each by its share."""
        if self.center == "mean":
            pull.add_(error, alpha=self.scale / len(pull))
        else:
            pull[-1].add_(error, alpha=self.scale)


def deviation(
    text: Float[Tensor, "members classes dim"], label: Int[Tensor, ""]
) -> Float[Tensor, "members dim"]:
    """D_m^y: how far the members of one class are from their mean."""
    own = text.index_select(1, label.reshape(1)).squeeze(1)
    return own - own.mean(0)


def divisor(members: int, kind: str) -> float:
    """The number a covariance of so many members is divided by.

    >>> divisor(3, "M"), divisor(3, "M+1"), divisor(1, "M-1")
    (3.0, 4.0, 1.0)
    """
    return float(max(1, members + {"M": 0, "M+1": 1, "M-1": -1}[kind]))
