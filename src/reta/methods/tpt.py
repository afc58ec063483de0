"""TPT: a prompt tuned on the views of one image, then forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reta.methods import ops
from reta.methods.base import Base, State, param
from reta.sample import Output, Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class TPT(Base):
    """Test-time prompt tuning.

    The context words of "a photo of a NAME." are moved by a step of AdamW so that the confident views of the
    image agree; the plain view is answered with the moved prompt. The gradient with respect to the class
    features has a closed form, so one vector-Jacobian product through the text tower is all a step costs.

    >>> import torch, reta
    >>> model = reta.load("reta-mini")
    >>> task = reta.Task.build(model, ["key", "star"])
    >>> views = model.images(torch.rand(8, 3, 64, 64))
    >>> TPT().step(task, {}, reta.Sample(views))[0].probs.shape
    torch.Size([2])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"prompt"})
    episodic: ClassVar[bool] = True
    summary: ClassVar[str] = "TPT: a prompt tuned on each image's views, then forgotten"
    equations: ClassVar[str] = (
        "v <- AdamW(v, H(mean over confident views of p(. | v))), p = softmax(s z . t(v))"
    )

    views: int = param(64, "how many views are used", low=1)
    recipe: str = param("augmix", "how views are made", choices=("plain", "crops", "augmix"))
    context: str = param("a photo of a", "initial context: words, or a file of `reta coop fit`")
    share: float = param(0.1, "share of the views, the most confident, that count", low=0, high=1)
    steps: int = param(1, "steps of AdamW", low=0)
    lr: float = param(5e-3, "learning rate", low=0)
    eps: float = param(1e-8, "AdamW's epsilon", low=1e-12)
    weight_decay: float = param(0.01, "AdamW's weight decay", low=0)

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        reward = None if sample.reward is None else sample.reward[None]
        out = self.many(task, sample.views[None], reward)
        return Output(out.probs[0], {k: v[0] for k, v in out.info.items()}), state

    def many(
        self, task: Task, views: Float[Tensor, "images views dim"], reward: Tensor | None = None
    ) -> Output:
        """Several images side by side, each with a context of its own; every row as if it came alone."""
        start = task.start(self.context)
        logits = task.scale * views @ start.features.mT
        chosen = torch.stack([self.select(rows) for rows in logits])
        kept = torch.take_along_dim(views, chosen[..., None], 1)
        judge = self.judge(task, reward, chosen)

        def gradient(context: Tensor) -> Tensor:
            if context is first:
                pulled = [start.pull(g) for g in self._pushed(task.scale, start.features, kept, judge)]
                return torch.stack(pulled)
            features, pull = start.prompts.pullback(context)
            return pull(self._pushed(task.scale, features, kept, judge))

        first = start.context.expand(len(views), -1, -1)
        context = ops.adamw(first, gradient, self.steps, self.lr, self.eps, self.weight_decay)
        features = start.prompts.features(context) if self.steps else start.features
        answer = task.scale * (features @ views[:, 0, :, None])[..., 0]
        marginal = torch.stack([ops.entropy(ops.marginal(rows)) for rows in logits])
        return Output(answer.softmax(-1), {"logits": answer, "entropy": marginal})

    def select(self, logits: Float[Tensor, "views classes"]) -> Tensor:
        """Which views count; decided once, at the initial context."""
        return ops.confident(logits, self.share)

    def judge(self, task: Task, reward: Tensor | None, chosen: Tensor) -> Tensor | None:
        """What a second model says of the kept views; nothing here."""
        return None

    def loss_grad(
        self, logits: Float[Tensor, "images kept classes"], judge: Tensor | None
    ) -> Float[Tensor, "images kept classes"]:
        """d loss / d logits: the entropy of the mean probabilities of the kept views."""
        return torch.stack([ops.marginal_grad(rows) for rows in logits])

    def _pushed(
        self, scale: float, features: Tensor, kept: Tensor, judge: Tensor | None
    ) -> Float[Tensor, "images classes dim"]:
        """d loss / d class features."""
        return scale * self.loss_grad(scale * kept @ features.mT, judge).mT @ kept
