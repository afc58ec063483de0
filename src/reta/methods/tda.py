"""TDA: a positive and a negative cache of test features, no gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reta.methods import ops
from reta.methods.base import Base, State, like, param
from reta.sample import Output, Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class TDA(Base):
    """Training-free dynamic adapter.

    An image joins the queue of its predicted class before it is answered; the least confident item leaves.
    An image of middling entropy also joins the negative cache, whose items speak against every class they
    held likely. At most 1/mask_low classes can be that likely, so an item keeps their numbers, not a row of
    C probabilities; C itself stands for "none".

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> tda = TDA()
    >>> output, state = tda.step(task, tda.init(task), reta.Sample(torch.eye(3)[1:2]))
    >>> int(output.probs.argmax()), bool(output.info["cached"]), state["scores"].isfinite().sum(-1).tolist()
    (1, True, [0, 1, 0])
    """

    summary: ClassVar[str] = "TDA: positive and negative caches of test features"
    equations: ClassVar[str] = (
        "logits = s x . t + A(x; positive) - A(x; negative), A = alpha sum exp(-beta (1 - x . k)) y"
    )

    views: int = param(1, "how many views are used; of several, the confident ones are averaged", low=1)
    recipe: str = param("plain", "how views are made", choices=("plain", "crops", "augmix"))
    text: str = param(
        "pooled", "text of a class: all prompts pooled, or the first", choices=("pooled", "first")
    )
    share: float = param(
        0.1, "share of the views, the most confident, that count", low=0, high=1, static=True
    )
    slots: int = param(3, "positive cache: items per class", low=1)
    alpha: float = param(2.0, "positive cache: weight", eq="alpha")
    beta: float = param(5.0, "positive cache: sharpness", low=0, eq="beta")
    negative_slots: int = param(2, "negative cache: items per class", low=1)
    negative_alpha: float = param(0.117, "negative cache: weight")
    negative_beta: float = param(1.0, "negative cache: sharpness", low=0)
    negative_queue: str = param(
        "priority", "who leaves a full negative queue: worst or oldest", choices=("priority", "fifo")
    )
    low: float = param(0.2, "normalised entropy above which an image is a negative item", low=0)
    high: float = param(0.5, "normalised entropy below which an image is a negative item", low=0)
    entropy_base: str = param(
        "ln", "entropy in nats is divided by ln C, or by log2 C as in the release", choices=("ln", "log2")
    )
    mask_low: float = param(
        0.03, "a negative item speaks against classes more likely than this", low=0, static=True
    )
    mask_high: float = param(1.0, "and less likely than this", low=0)

    def init(self, task: Task) -> State:
        c, d = len(task), task.dim
        bounded = self.mask_low * c > 1
        likely = int(1 / self.mask_low) if bounded else c
        return {
            "keys": like(task, c, self.slots, d),
            "scores": like(task, c, self.slots, fill=torch.inf),
            "negative_keys": like(task, c, self.negative_slots, d),
            "negative_scores": like(task, c, self.negative_slots, fill=torch.inf),
            "negative_classes": like(task, c, self.negative_slots, likely, fill=c, dtype=torch.int32),
        }

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        logits = task.scale * sample.views @ ops.class_text(task, self.text).mT
        seen = self.evidence(sample.views, logits)
        keys, scores, cached = ops.insert(
            state["keys"], state["scores"], seen.label, seen.feature, seen.entropy
        )
        against, refused = self.insert_negative(state, seen)
        positive = self.positive(keys, scores, seen, sample.views, logits)
        answer = seen.logits + positive - self.negative(against, seen)
        info = {"logits": answer, "entropy": seen.entropy, "label": seen.label}
        info |= {"cached": cached, "cached_negative": refused}
        return Output(answer.softmax(-1), info), {"keys": keys, "scores": scores} | against

    def evidence(
        self, views: Float[Tensor, "views dim"], logits: Float[Tensor, "views classes"]
    ) -> ops.Evidence:
        """What is cached, asked and answered for: the mean of the confident views."""
        return ops.evidence(views, logits, self.share)

    def insert_negative(self, state: State, seen: ops.Evidence) -> tuple[State, Tensor]:
        """Offer the image to the negative cache if its entropy is middling."""
        height = ops.normalised(seen.entropy, len(seen.logits), self.entropy_base)
        middling = (height > self.low) & (height < self.high)
        tables = (state["negative_keys"], state["negative_classes"])
        (keys, classes), scores, taken = ops.offer(
            tables,
            state["negative_scores"],
            seen.label,
            (seen.feature, self.likely(seen.log_probs, tables[1].shape[-1])),
            torch.where(middling, seen.entropy, torch.inf),
            fifo=self.negative_queue == "fifo",
        )
        return {"negative_keys": keys, "negative_classes": classes, "negative_scores": scores}, taken

    def likely(self, log_probs: Float[Tensor, " classes"], width: int) -> Int[Tensor, " width"]:
        """The classes with a probability between the two bounds, padded with C."""
        p, index = log_probs.exp().topk(width)
        return torch.where((p > self.mask_low) & (p < self.mask_high), index, len(log_probs))

    def positive(
        self,
        keys: Float[Tensor, "classes slots dim"],
        scores: Float[Tensor, "classes slots"],
        seen: ops.Evidence,
        views: Float[Tensor, "views dim"],
        logits: Float[Tensor, "views classes"],
    ) -> Float[Tensor, " classes"]:
        """Every item speaks for its class."""
        return ops.cache_logits(seen.feature, keys, torch.isfinite(scores), self.alpha, self.beta).sum(-1)

    def negative(self, cache: State, seen: ops.Evidence) -> Float[Tensor, " classes"]:
        """Every item speaks for each class it keeps the number of."""
        held = torch.isfinite(cache["negative_scores"])
        weight = ops.cache_logits(
            seen.feature, cache["negative_keys"], held, self.negative_alpha, self.negative_beta
        )
        index = cache["negative_classes"].long()
        total = weight.new_zeros(len(seen.logits) + 1)
        return total.scatter_add(0, index.flatten(), weight[..., None].expand(index.shape).flatten())[:-1]
