"""BoostAdapter: TDA whose positive cache also holds, for one image at a time, the image's own confident views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reta.methods import ops
from reta.methods.base import param
from reta.methods.tda import TDA


@dataclass(frozen=True, kw_only=True)
class BoostAdapter(TDA):
    """TDA with boosting views.

    Each confident view is offered, for this image only, to the queue of the class it names itself, which has
    `extra` more places. Only the classes so named change, so nothing is copied: their queues are merged with
    the views by rank. A single view has nothing to boost itself with, and the method is then TDA.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> boost, views = BoostAdapter(), torch.eye(3)[[1, 1, 0]]
    >>> output, state = boost.step(task, boost.init(task), reta.Sample(views))
    >>> int(output.probs.argmax()), int(state["scores"].isfinite().sum())
    (1, 1)
    """

    summary: ClassVar[str] = "BoostAdapter: TDA, and the image's own confident views in its cache"
    equations: ClassVar[str] = "logits = s x . t + A(x; positive + boosting views) - A(x; negative)"

    views: int = param(64, "how many views are used", low=1)
    recipe: str = param("crops", "how views are made", choices=("plain", "crops", "augmix"))
    extra: int = param(1, "places a queue has for boosting views beyond its slots", low=0, eq="delta")
    query: str = param(
        "confident",
        "what is cached and answered for: the mean of the confident views, or the plain view",
        choices=("confident", "plain"),
    )

    def evidence(
        self, views: Float[Tensor, "views dim"], logits: Float[Tensor, "views classes"]
    ) -> ops.Evidence:
        count = 1 if self.query == "plain" else len(views)
        return ops.evidence(views[:count], logits[:count], self.share)

    def positive(
        self,
        keys: Float[Tensor, "classes slots dim"],
        scores: Float[Tensor, "classes slots"],
        seen: ops.Evidence,
        views: Float[Tensor, "views dim"],
        logits: Float[Tensor, "views classes"],
    ) -> Float[Tensor, " classes"]:
        """Every item of a queue merged with the boosting views speaks for its class."""
        weight = ops.cache_logits(seen.feature, keys, torch.isfinite(scores), self.alpha, self.beta)
        if len(views) == 1:
            return weight.sum(-1)
        top = ops.confident(logits, self.share)
        label, height = logits[top].argmax(-1), ops.entropy(logits[top])
        rival = label[:, None] == label
        boost = ops.affinity(views[top] @ seen.feature, self.alpha, self.beta)
        queue = torch.cat([scores[label], torch.where(rival, height, torch.inf)], -1)
        value = torch.cat([weight[label], boost.expand(rival.shape)], -1)
        rank = queue.sort(stable=True).indices[:, : self.slots + self.extra]
        merged = torch.where(torch.isfinite(queue.gather(-1, rank)), value.gather(-1, rank), 0.0).sum(-1)
        return weight.sum(-1).index_put((label,), merged)
