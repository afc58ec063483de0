"""DPE: dual prototypes, textual and visual, moved by one gradient step per image; the textual ones evolve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reta.methods import ops
from reta.methods.base import Base, State, like, param
from reta.sample import Output, Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class DPE(Base):
    """Dual prototype evolving.

    The cache gives one visual prototype per class. Residuals on both sets of prototypes start at zero, take
    one AdamW step on entropy + align * InfoNCE, and are used for this image; then the moved text joins the
    running mean if the answer is confident, and the visual residual is forgotten. The step and its gradients
    are in closed form.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> dpe = DPE()
    >>> output, state = dpe.step(task, dpe.init(task), reta.Sample(torch.eye(3)[:1]))
    >>> int(output.probs.argmax()), bool(output.info["updated"]), int(state["count"])
    (0, True, 1)
    """

    summary: ClassVar[str] = "DPE: text and cached prototypes moved by a gradient step, the text evolves"
    equations: ClassVar[str] = (
        "logits = s z . unit(t + r_t) + alpha exp(-beta (1 - z . unit(k + r_v))), loss = H + lambda InfoNCE"
    )

    views: int = param(64, "how many views are used", low=1)
    recipe: str = param("augmix", "how views are made", choices=("plain", "crops", "augmix"))
    text: str = param(
        "pooled", "text of a class: all prompts pooled, or the first", choices=("pooled", "first")
    )
    share: float = param(
        0.1, "share of the views, the most confident, that count", low=0, high=1, static=True
    )
    slots: int = param(3, "cached items per class", low=1)
    alpha: float = param(6.0, "weight of the cache", eq="alpha")
    beta: float = param(5.0, "sharpness of the cache", low=0, eq="beta")
    align: float = param(0.5, "weight of the contrastive loss between the prototypes", low=0, eq="lambda")
    tau: float = param(0.01, "temperature of the contrastive loss", low=1e-6, eq="tau")
    lr: float = param(6e-4, "learning rate of the one step, text and image", low=0)
    eps: float = param(1e-3, "epsilon of AdamW", low=1e-12)
    adam_state: str = param(
        "exact",
        "AdamW's second moment: exact, or rounded to fp16 as in the release",
        choices=("exact", "fp16"),
    )
    cutoff: float = param(0.1, "normalised entropy below which an answer moves the text", low=0)
    entropy_base: str = param(
        "ln", "entropy in nats is divided by ln C, or by log2 C as in the release", choices=("ln", "log2")
    )
    answer: str = param(
        "plain", "answer for the plain view, or the confident views' mean", choices=("plain", "confident")
    )

    def init(self, task: Task) -> State:
        c = len(task)
        return {
            "text": ops.class_text(task, self.text).clone(),
            "count": like(task, dtype=torch.int64),
            "keys": like(task, c, self.slots, task.dim),
            "scores": like(task, c, self.slots, fill=torch.inf),
        }

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        old, views = state["text"], sample.views
        seen = ops.evidence(views, task.scale * views @ ops.unit(old).mT, self.share)
        score = ops.normalised(seen.entropy, len(task), self.entropy_base)
        keys, scores, cached = ops.insert(state["keys"], state["scores"], seen.label, seen.feature, score)
        visual, held = ops.prototypes(keys, scores)
        text, visual = self.move(task.scale, old, visual, held, seen)
        image = views[0] if self.answer == "plain" else seen.feature
        logits = task.scale * text @ image + ops.cache_logits(image, visual, held, self.alpha, self.beta)
        sure = ops.normalised(ops.entropy(logits), len(task), self.entropy_base) < self.cutoff
        count = state["count"] + sure
        mean = old.lerp(text, sure.to(old.dtype) / (count + 1))
        info = {"logits": logits, "entropy": seen.entropy, "label": seen.label, "cached": cached}
        info |= {"confident": sure, "updated": sure}
        text, count = ops.assign(old, mean), ops.assign(state["count"], count)
        return Output(logits.softmax(-1), info), {
            "text": text,
            "count": count,
            "keys": keys,
            "scores": scores,
        }

    def move(
        self,
        scale: float,
        text: Float[Tensor, "classes dim"],
        visual: Float[Tensor, "classes dim"],
        held: Bool[Tensor, " classes"],
        seen: ops.Evidence,
    ) -> tuple[Tensor, Tensor]:
        """Unit prototypes after one step of the residuals."""
        t, k = ops.unit(text), ops.unit(visual)
        cache = ops.cache_logits(seen.feature, k, held, self.alpha, self.beta)
        pull = ops.entropy_grad(seen.logits + cache)
        text_grad = scale * pull[:, None] * seen.feature
        visual_grad = (self.beta * pull * cache)[:, None] * seen.feature
        if isinstance(self.align, Tensor) or self.align > 0:
            contrast = ops.Contrast(k, t, held, self.tau, self.align)
            text_grad = text_grad + contrast.key_grad()
            visual_grad = visual_grad + contrast.query_grad()
        return self.moved(text, text_grad), self.moved(visual, visual_grad)

    def moved(
        self, start: Float[Tensor, "classes dim"], grad: Float[Tensor, "classes dim"]
    ) -> Float[Tensor, "classes dim"]:
        """unit(start + r) after AdamW has moved r from zero against the gradient at unit(start)."""
        inner = ops.unit_grad(start, grad)
        return ops.unit(ops.adam_step(start, inner, self.lr, self.eps, self.adam_state))
