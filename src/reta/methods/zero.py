"""Zero: every confident view casts one vote at zero temperature; no gradient, no memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from reta.methods import ops
from reta.methods.base import Base, State, param
from reta.sample import Output, Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class Zero(Base):
    """The majority of the most confident views.

    A tie is broken by the views that were not kept, from most to least confident: the first that names a
    tied class casts one more vote. If none does, the first of them votes for the tied class it likes best
    (the most confident view, when all were kept). `probs` are the shares of the votes.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> views = torch.eye(3)[[1, 1, 0]]
    >>> output, _ = Zero(share=1.0).step(task, {}, reta.Sample(views))
    >>> [round(p, 2) for p in output.probs.tolist()]
    [0.33, 0.67, 0.0]
    """

    episodic: ClassVar[bool] = True
    summary: ClassVar[str] = "Zero: the vote of the most confident views, first prompt of each class"
    equations: ClassVar[str] = "p = mean over kept views of onehot(argmax v . t)"

    views: int = param(64, "how many views are used", low=1)
    recipe: str = param("crops", "how views are made", choices=("plain", "crops", "augmix"))
    text: str = param(
        "first", "text of a class: its first prompt, or all pooled", choices=("first", "pooled")
    )
    share: float = param(0.3, "share of the views that vote", low=0, high=1, eq="q", static=True)
    vote_temperature: float = param(
        0.0, "0 counts votes; the release softens them (fp16 epsilon, 9.77e-4)", low=0
    )
    half_logits: bool = param(False, "round cosines to fp16, as the release does under autocast")
    tie_mask: str = param(
        "tied",
        "last resort of a tie: among the tied classes, or with the release's wrong mask",
        choices=("tied", "published"),
    )

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        cosines = sample.views @ ops.class_text(task, self.text).mT
        if self.half_logits:
            cosines = cosines.half().to(cosines.dtype)
        logits = task.scale * cosines
        order = ops.entropy(logits).sort(stable=True).indices
        count = ops.kept(len(order), self.share)
        votes = self.votes(cosines[order[:count]])
        tied = votes == votes.max()
        tie = tied.sum() > 1
        last = self.break_tie(cosines[order], count, tied)
        won = (torch.arange(len(votes), device=votes.device) == last) & tie
        shares = torch.where(won, votes.max() + 1, votes)
        probs = shares / shares.sum()
        together = ops.marginal(logits[order[:count]])
        info = {"logits": together, "entropy": ops.entropy(together), "votes": votes, "tied": tie}
        return Output(probs, info), state

    def votes(self, cosines: Float[Tensor, "kept classes"]) -> Float[Tensor, " classes"]:
        """How many votes each class gets; a view with equal best classes votes for the first."""
        sharp = self.vote_temperature
        if isinstance(sharp, Tensor) or sharp > 0:
            tiny = torch.finfo(cosines.dtype).tiny
            sharp = sharp.clamp_min(tiny) if isinstance(sharp, Tensor) else sharp
            return ((cosines - cosines.amax(-1, keepdim=True)) / sharp).softmax(-1).sum(-2)
        classes = torch.arange(cosines.shape[-1], device=cosines.device)
        return (cosines.argmax(-1)[:, None] == classes).to(cosines.dtype).sum(-2)

    def break_tie(
        self, cosines: Float[Tensor, "views classes"], count: int, tied: Bool[Tensor, " classes"]
    ) -> Int[Tensor, ""]:
        """The class that wins a tie; `cosines` come most confident first, the first `count` have voted."""
        hidden = ~tied if self.tie_mask == "tied" else tied.flip(-1)
        resort = cosines[count % len(cosines)].masked_fill(hidden, -torch.inf).argmax(-1)
        if count == len(cosines):
            return resort
        firsts = cosines[count:].argmax(-1)
        named = tied[firsts]
        return torch.where(named.any(), ops.get_row(firsts, named.long().argmax()), resort)


@dataclass(frozen=True, kw_only=True)
class ZeroEnsemble(Zero):
    """Zero with all prompts of a class pooled.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> output, _ = ZeroEnsemble().step(task, {}, reta.Sample(torch.eye(3)[2:]))
    >>> output.probs.tolist()
    [0.0, 0.0, 1.0]
    """

    summary: ClassVar[str] = "Zero-Ensemble: the vote of the most confident views, prompts pooled"

    text: str = param(
        "pooled", "text of a class: its first prompt, or all pooled", choices=("first", "pooled")
    )
