"""CoOp: a context learned from a few labelled images, used as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reta.methods import ops
from reta.methods.base import Base, State, param
from reta.sample import Output, Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class CoOp(Base):
    """The frozen model behind a learned context: the plain view against [context] NAME.

    `context` is a file that `reta coop fit` wrote; with words it is the zero-shot model of that template.

    >>> import torch, reta
    >>> model = reta.load("reta-mini")
    >>> task = reta.Task.build(model, ["key", "star"])
    >>> view = model.images(torch.rand(1, 3, 64, 64))
    >>> plain = reta.methods.create("zeroshot").step(task, {}, reta.Sample(view))[0].probs
    >>> torch.allclose(CoOp().step(task, {}, reta.Sample(view))[0].probs, plain, atol=1e-4)
    True
    """

    needs: ClassVar[frozenset[str]] = frozenset({"prompt"})
    episodic: ClassVar[bool] = True
    summary: ClassVar[str] = "CoOp: a context learned from a few labelled images, then fixed"
    equations: ClassVar[str] = "p = softmax(s z . t(v)), v learned by cross-entropy on labelled images"

    views: int = param(1, "how many views are used", choices=(1,))
    recipe: str = param("plain", "how views are made", choices=("plain",))
    context: str = param("a photo of a", "a file of `reta coop fit`, or words")

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        logits = task.scale * task.start(self.context).features @ sample.views[0]
        return Output(logits.softmax(-1), {"logits": logits, "entropy": ops.entropy(logits)}), state
