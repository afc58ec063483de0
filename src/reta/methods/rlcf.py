"""RLCF: a prompt tuned on each image by the praise of a second, larger CLIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from reta.errors import BadInput
from reta.methods.base import param
from reta.methods.reward import feedback_grad, scores
from reta.methods.tpt import TPT
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class RLCF(TPT):
    """Reinforcement by CLIP feedback, on the prompt.

    Each kept view samples its most probable classes; the reward model scores them, and classes scored above
    their mean become more probable. It needs a task with a second model, and its features of the views.

    >>> RLCF().needs == {"prompt", "reward"}
    True
    """

    needs: ClassVar[frozenset[str]] = frozenset({"prompt", "reward"})
    summary: ClassVar[str] = "RLCF: a prompt tuned on each image by the scores of a second model"
    equations: ClassVar[str] = (
        "L = mean_k (r_k - mean r) (-ln p_k), r = 2.5 max(cos_reward, 0), k the top classes of a view"
    )

    lr: float = param(7e-3, "learning rate", low=0)
    weight_decay: float = param(5e-4, "AdamW's weight decay", low=0)
    steps: int = param(3, "steps of AdamW", low=0)
    sampled: int = param(3, "classes sampled per view, the most probable", low=1, eq="K")
    reward_text: str = param("first", "the second model's text of a class", choices=("pooled", "first"))

    def judge(
        self, task: Task, reward: Tensor | None, chosen: Tensor
    ) -> Float[Tensor, "images kept classes"]:
        if task.reward is None or reward is None:
            raise BadInput(
                "this method asks for a second model: build the task with Task.build(..., reward=model2) and pass "
                "its features of the views, reta.run(..., reward=features) or Stream(..., reward=model2)"
            )
        return scores(torch.take_along_dim(reward, chosen[..., None], 1), task.reward, self.reward_text)

    def loss_grad(self, logits: Tensor, judge: Tensor | None) -> Tensor:
        assert judge is not None
        return feedback_grad(logits, judge, self.sampled)
