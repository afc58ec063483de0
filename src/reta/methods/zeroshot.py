"""The frozen model: one template (`zeroshot`) or all prompts pooled (`ensemble`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from reta.methods import ops
from reta.methods.base import Base, State, param
from reta.sample import Output, Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class ZeroShot(Base):
    """CLIP as it comes: the plain view against the first prompt of each class.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> output, state = ZeroShot().step(task, {}, reta.Sample(torch.eye(3)[:1]))
    >>> int(output.probs.argmax())
    0
    """

    episodic: ClassVar[bool] = True
    summary: ClassVar[str] = "the frozen model with the first prompt of each class"
    equations: ClassVar[str] = "p = softmax(s z . t_1)"

    views: int = param(1, "how many views are used", choices=(1,))
    recipe: str = param("plain", "how views are made", choices=("plain",))

    def text(self, task: Task) -> Float[Tensor, "classes dim"]:
        return task.prompts[:, 0]

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        logits = task.scale * sample.views[0] @ self.text(task).mT
        return Output(logits.softmax(-1), {"logits": logits, "entropy": ops.entropy(logits)}), state


@dataclass(frozen=True, kw_only=True)
class Ensemble(ZeroShot):
    """CLIP with prompt ensembling: the plain view against the unit mean of all prompts of each class.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> output, state = Ensemble().step(task, {}, reta.Sample(torch.eye(3)[2:]))
    >>> int(output.probs.argmax())
    2
    """

    summary: ClassVar[str] = "the frozen model with all prompts of a class pooled"
    equations: ClassVar[str] = "p = softmax(s z . t), t = unit(mean_k t_k)"

    def text(self, task: Task) -> Float[Tensor, "classes dim"]:
        return task.text
