"""ReTA with CLIP reward (the paper's appendix): the entropy loss gives way to the praise of a second model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from reta.errors import BadInput
from reta.methods.base import param
from reta.methods.calibration import Pull
from reta.methods.reta import ReTA
from reta.methods.reward import feedback_grad, scores
from reta.sample import Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class ReTAReward(ReTA):
    """ReTA whose members move towards the classes that a larger CLIP scores above the mean.

    Three steps of AdamW as RLCF takes; sampling, score and baseline are RLCF's. It needs a task with a second
    model, and that model's features of the views.

    >>> ReTAReward().steps, ReTAReward().needs == {"reward"}
    (3, True)
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    summary: ClassVar[str] = "ReTA with the scores of a second model in place of the entropy loss"

    steps: int = param(3, "steps of AdamW", low=0, eq="16")
    sampled: int = param(3, "classes sampled per view, the most probable", low=1, eq="K")
    reward_text: str = param("first", "the second model's text of a class", choices=("pooled", "first"))

    def pull(self, task: Task, sample: Sample) -> Pull:
        if task.reward is None or sample.reward is None:
            raise BadInput(
                "this method asks for a second model: build the task with Task.build(..., reward=model2) and pass "
                "its features of the views, reta.run(..., reward=features) or Stream(..., reward=model2)"
            )
        judged = scores(sample.reward[: self.views], task.reward, self.reward_text)

        def pull(chosen: Tensor, logits: Tensor) -> Tensor:
            # under `evidence="topq_mean"` or one view, `chosen` still numbers rows of the sample's views
            return feedback_grad(logits, torch.index_select(judged, 0, chosen), self.sampled)

        return pull
