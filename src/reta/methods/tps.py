"""TPS: shift the text prototypes of one image by one gradient step, in feature space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reta.methods import ops
from reta.methods.base import Base, State, param
from reta.sample import Output, Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class TPS(Base):
    """Test-time prototype shifting: the shift starts at zero for every image.

    One AdamW step from zero is known in closed form (weight decay does nothing there), and so is the
    gradient of the entropy of the mean prediction: no autograd, no optimiser.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=4.0)
    >>> view = torch.tensor([[0.8, 0.6, 0.0]])
    >>> tps = TPS(lr=0.05)
    >>> output, _ = tps.step(task, tps.init(task), reta.Sample(view))
    >>> bool(output.probs[0] > (4 * view[0]).softmax(-1)[0])
    True
    """

    episodic: ClassVar[bool] = True
    summary: ClassVar[str] = "TPS: text prototypes shifted by one entropy step per image"
    equations: ClassVar[str] = (
        "r = AdamW(H(mean_i softmax(s v_i . unit(t + r)))), p = softmax(s v_0 . unit(t + r))"
    )

    views: int = param(64, "how many views are used", low=1)
    recipe: str = param("augmix", "how views are made", choices=("plain", "crops", "augmix"))
    text: str = param(
        "pooled",
        "prototype: all prompts pooled, the first, or templates and descriptions averaged apart and then together",
        choices=("pooled", "first", "micro"),
        eq="t",
    )
    templates: int = param(80, "with text='micro': how many leading prompts are templates", low=0)
    share: float = param(
        0.1, "share of the views, the most confident, that count", low=0, high=1, eq="q", static=True
    )
    lr: float = param(5e-3, "learning rate of the one step", low=0)
    eps: float = param(1e-8, "epsilon of AdamW", low=1e-12)

    def init(self, task: Task) -> State:
        return {"text": ops.unit(self.prototype(task))}

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        text = state["text"]
        logits = task.scale * sample.views @ text.mT
        top = ops.confident(logits, self.share)
        pull = task.scale * ops.marginal_grad(logits[top]).mT @ sample.views[top]
        shifted = ops.adam_step(text, ops.unit_grad(text, pull), self.lr, self.eps)
        answer = task.scale * ops.unit(shifted) @ sample.views[0]
        entropy = ops.entropy(ops.marginal(logits[top]))
        return Output(answer.softmax(-1), {"logits": answer, "entropy": entropy}), state

    def prototype(self, task: Task) -> Float[Tensor, "classes dim"]:
        """One feature per class."""
        if self.text != "micro":
            return ops.class_text(task, self.text)
        leading = torch.arange(task.mask.shape[1], device=task.mask.device) < self.templates
        parts = [masked_mean(task.prompts, task.mask & group) for group in (leading, ~leading)]
        return parts[0] + parts[1]


def masked_mean(
    prompts: Float[Tensor, "classes prompts dim"], mask: Bool[Tensor, "classes prompts"]
) -> Float[Tensor, "classes dim"]:
    """Mean of the marked prompts, not made unit; zero for a class that has none."""
    return (prompts * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)
