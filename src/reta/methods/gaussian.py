"""The class-wise Gaussian of ReTA's text members: refined logits, the surrogate loss and its gradient.

Two forms of the term z^T W_{c,y} z / 2 tau^2 of the surrogate loss. With members t_m^c, their class mean
mu^c, D_m^c = t_m^c - mu^c and the divisor n, the cross-class covariance is
Sigma^{cy} = sum_m D_m^c (D_m^y)^T / n, so that

    full:      z^T W_{c,y} z         = sum_m (z . (D_m^c - D_m^y))^2 / n
    diagonal:  sum_d z_d^2 (W_{c,y})_dd = sum_d z_d^2 sum_m (D_m^c - D_m^y)_d^2 / n

Neither builds a covariance: the first needs the members' products with the views, the second one [C, D] table.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


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
        return self._diagonal(text, views, label)[0]

    def grad(
        self,
        text: Float[Tensor, "members classes dim"],
        views: Float[Tensor, "views dim"],
        label: Int[Tensor, ""],
    ) -> Float[Tensor, "members classes dim"]:
        """weight * d L_surr / d text: L_surr is the mean over the views of the cross-entropy to the label (Eq. 20)."""
        if self.cov == "full":
            return self._full_grad(text, views, label)
        return self._diagonal_grad(text, views, label)

    def _error(self, logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """weight * d L_surr / d logits, and where the class is the label."""
        is_label = torch.arange(logits.shape[-1], device=logits.device) == label
        return (logits.softmax(-1) - is_label.to(logits.dtype)) * (self.weight / len(logits)), is_label

    def _full(self, text: Tensor, views: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and E[b,m,c] = z_b . (D_m^c - D_m^y)."""
        members, classes, dim = text.shape
        near = (views @ text.reshape(-1, dim).mT).reshape(-1, members, classes)
        mean = near.mean(1)
        apart = near - mean[:, None]
        apart = apart - apart.index_select(-1, label.reshape(1))
        centre = near[:, -1] if self.center == "last" else mean
        spread = apart.square().sum(1) / self.divisor
        return self.scale * centre + 0.5 * self.scale**2 * spread, apart

    def _full_grad(self, text: Tensor, views: Tensor, label: Tensor) -> Tensor:
        members = len(text)
        logits, apart = self._full(text, views, label)
        error, is_label = self._error(logits, label)
        pull = (self.scale**2 / self.divisor) * error[:, None] * apart
        pull = pull - is_label * pull.sum(-1, keepdim=True)
        if self.center == "last":
            pull = torch.cat([pull[:, :-1], pull[:, -1:] + self.scale * error[:, None]], 1)
        else:
            pull = pull + self.scale / members * error[:, None]
        return (pull.reshape(len(views), -1).mT @ views).reshape(text.shape)

    def _diagonal(self, text: Tensor, views: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and E_m^c = D_m^c - D_m^y."""
        mean = text.mean(0)
        apart = text - mean
        apart = apart - apart.index_select(1, label.reshape(1))
        table = apart.square().sum(0) / self.divisor
        centre = text[-1] if self.center == "last" else mean
        spread = views.square() @ table.mT
        return self.scale * views @ centre.mT + 0.5 * self.scale**2 * spread, apart

    def _diagonal_grad(self, text: Tensor, views: Tensor, label: Tensor) -> Tensor:
        members = len(text)
        logits, apart = self._diagonal(text, views, label)
        error, is_label = self._error(logits, label)
        pull = (self.scale**2 / self.divisor) * apart * (error.mT @ views.square())
        pull = pull - is_label[:, None] * pull.sum(1, keepdim=True)
        centre = self.scale * error.mT @ views
        if self.center == "last":
            return torch.cat([pull[:-1], pull[-1:] + centre])
        return pull + centre / members


def divisor(members: int, kind: str) -> float:
    """The number a covariance of so many members is divided by.

    >>> divisor(3, "M"), divisor(3, "M+1"), divisor(1, "M-1")
    (3.0, 4.0, 1.0)
    """
    return float(max(1, members + {"M": 0, "M+1": 1, "M-1": -1}[kind]))
