"""RLCF on the image tower: its weights tuned on each image by the scores of a second model, then restored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from reta.backbone.tower import share
from reta.errors import BadInput
from reta.methods import ops
from reta.methods.base import Base, State, param
from reta.methods.reward import feedback_grad, scores
from reta.sample import Output, Sample
from reta.task import Task

VISUAL = "module.visual."


class Tower(nn.Module):
    """The image tower with its preparation, as one function of its weights, in the model's precision.

    It stands on a twin of the model: `functional_call` swaps weights in place, and another thread may be
    encoding with the model meanwhile.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.module = twin(model.module)
        self.model = model
        self.boost = 1000.0 if model.precision == "fp16" else 1.0  # fp16 would lose small gradients

    def forward(self, pixels: Float[Tensor, "views 3 size size"]) -> Float[Tensor, "views dim"]:
        with self.model.autocast():
            features = self.module.encode_image(self.model.prepare(pixels))
        return nn.functional.normalize(features.to(self.model.wide), dim=-1)

    def weights(self) -> dict[str, Tensor]:
        return {k: v.detach() for k, v in self.named_parameters() if k.startswith(VISUAL)}


def twin(module: nn.Module) -> Any:
    """Modules of their own over the same tensors, all the way down."""
    copy = share(module)
    for name, child in module.named_children():
        setattr(copy, name, twin(child))
    return copy


@dataclass(frozen=True, kw_only=True)
class RLCFTune(Base):
    """Reinforcement by CLIP feedback, on the whole image tower.

    The kept views go through the tower again after every step, so this is the slow variant. The weights of
    the model itself are never touched: each image works on a copy.

    >>> RLCFTune().needs == {"pixels", "reward"}
    True
    """

    needs: ClassVar[frozenset[str]] = frozenset({"pixels", "reward"})
    episodic: ClassVar[bool] = True
    summary: ClassVar[str] = "RLCF, image tower: weights tuned on each image by a second model, then restored"
    equations: ClassVar[str] = (
        "theta <- AdamW(theta, mean_k (r_k - mean r) (-ln p_k)), p = softmax(s z(theta) . t)"
    )

    views: int = param(64, "how many views are used", low=1)
    recipe: str = param("augmix", "how views are made", choices=("plain", "crops", "augmix"))
    text: str = param(
        "first", "text of a class: all prompts pooled, or the first", choices=("pooled", "first")
    )
    share: float = param(0.1, "share of the views, the most confident, that count", low=0, high=1)
    steps: int = param(3, "steps of AdamW", low=0)
    lr: float = param(1e-5, "learning rate", low=0)
    weight_decay: float = param(5e-4, "AdamW's weight decay", low=0)
    sampled: int = param(3, "classes sampled per view, the most probable", low=1, eq="K")
    reward_text: str = param("first", "the second model's text of a class", choices=("pooled", "first"))

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        if task.model is None or task.reward is None or sample.reward is None or sample.pixels is None:
            raise BadInput(
                "this method tunes the image tower: it needs a task of a model with a second one, "
                "Task.build(..., reward=model2), and samples with pixels, which reta.Stream makes"
            )
        tower = Tower(task.model)
        text = ops.class_text(task, self.text)
        start = self.begin(tower, state)
        logits = task.scale * self.look(tower, start, sample) @ text.mT
        chosen = ops.confident(logits, self.share)
        judged = scores(sample.reward[chosen], task.reward, self.reward_text)
        tuned = self.tune(tower, start, sample.pixels[chosen], task.scale * text, judged)
        features = functional_call(tower, tuned, (sample.pixels[:1],))
        answer = task.scale * (features @ text.mT)[0]
        info = {"logits": answer, "entropy": ops.entropy(ops.marginal(logits))}
        return Output(answer.softmax(-1), info), self.remember(state, tuned)

    def tune(
        self, tower: Tower, start: dict[str, Tensor], pixels: Tensor, classifier: Tensor, judged: Tensor
    ) -> dict[str, Tensor]:
        """Copies of the weights after the steps; the same views and scores in each of them."""
        with torch.inference_mode(False), torch.enable_grad():
            weights = {k: v.clone().requires_grad_() for k, v in start.items()}
            adam = torch.optim.AdamW(weights.values(), lr=self.lr, weight_decay=self.weight_decay, eps=1e-8)
            for _ in range(self.steps):
                logits = functional_call(tower, weights, (pixels,)) @ classifier.mT
                adam.zero_grad()
                logits.backward(tower.boost * feedback_grad(logits.detach(), judged, self.sampled))
                for leaf in weights.values():
                    leaf.grad = None if leaf.grad is None else leaf.grad / tower.boost
                adam.step()
        return {k: v.detach() for k, v in weights.items()}

    def begin(self, tower: Tower, state: State) -> dict[str, Tensor]:
        """The weights an image starts from: the model's own."""
        return tower.weights()

    def look(self, tower: Tower, start: dict[str, Tensor], sample: Sample) -> Tensor:
        """Features of the views at the start: those of the sample, as they are the model's own."""
        return sample.views

    def remember(self, state: State, tuned: dict[str, Tensor]) -> State:
        """Nothing is kept."""
        return state


@dataclass(frozen=True, kw_only=True)
class RLCFMomentum(RLCFTune):
    """RLCF on the image tower with a slow average of the tuned weights to start from.

    >>> RLCFMomentum().episodic
    False
    """

    episodic: ClassVar[bool] = False
    summary: ClassVar[str] = "RLCF, image tower, starting from a slow average of the tuned weights"

    momentum: float = param(0.9998, "weight of the old average", low=0, high=1)
    every: int = param(64, "after so many images the average becomes the start", low=1)

    def init(self, task: Task) -> State:
        if task.model is None:
            raise BadInput(
                "this method tunes the image tower: build its task from a model, Task.build(model, ...)"
            )
        weights = Tower(task.model).weights()
        count = torch.zeros((), dtype=torch.int64, device=task.prompts.device)
        old = {f"start.{k}": v.clone() for k, v in weights.items()}
        return old | {f"average.{k}": v.clone() for k, v in weights.items()} | {"count": count}

    def begin(self, tower: Tower, state: State) -> dict[str, Tensor]:
        return {k.removeprefix("start."): v for k, v in state.items() if k.startswith("start.")}

    def look(self, tower: Tower, start: dict[str, Tensor], sample: Sample) -> Tensor:
        """The views once more, through the weights the image starts from."""
        return functional_call(tower, start, (sample.pixels,))

    def remember(self, state: State, tuned: dict[str, Tensor]) -> State:
        count = state["count"] + 1
        due = count % self.every == 0
        new = {"count": ops.assign(state["count"], count)}
        for key, value in tuned.items():
            average = self.momentum * state[f"average.{key}"] + (1 - self.momentum) * value
            start = torch.where(due, average, state[f"start.{key}"])
            new[f"average.{key}"] = ops.assign(state[f"average.{key}"], average)
            new[f"start.{key}"] = ops.assign(state[f"start.{key}"], start)
        return new
