"""DMN: a memory of fifty features per class, read anew by every image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reta.methods import ops
from reta.methods.base import Base, State, like, param
from reta.sample import Output, Sample
from reta.task import Task

WEIGHTS = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class DMN(Base):
    """Dual memory networks without training (DMN-ZS).

    The prototype of a class is a mean of its memory weighted by closeness to the image, and only its cosine
    with the image matters: sum_j w_j d_j / sqrt(w' G w), with d_j = v . f_j and G the Gram matrix of the
    class, kept up to date one row at a time. The text of a class is its last, permanent item.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> dmn = DMN(memory=4)
    >>> output, state = dmn.step(task, dmn.init(task), reta.Sample(torch.eye(3)[2:]))
    >>> int(output.probs.argmax()), state["entropies"].isfinite().sum(-1).tolist()
    (2, [0, 0, 1])
    """

    summary: ClassVar[str] = "DMN-ZS: a memory of features per class, read by every image"
    equations: ClassVar[str] = (
        "a_c = unit(sum_j exp(-beta (1 - v . f_cj)) f_cj), p = (softmax(s v . t) + b softmax(s v . a)) / (1 + b)"
    )

    views: int = param(32, "how many views are used", low=1)
    recipe: str = param("augmix", "how views are made", choices=("plain", "crops", "augmix"))
    crop_area: float = param(0.5, "smallest share of the picture a view keeps", low=0.01, high=1, static=True)
    text: str = param(
        "pooled", "text of a class: all prompts pooled, or the first", choices=("pooled", "first")
    )
    share: float = param(
        0.1, "share of the views, the most confident, that count", low=0, high=1, static=True
    )
    memory: int = param(50, "items per class", low=1)
    beta: float = param(5.5, "sharpness of the read-out", low=0, eq="beta")
    fusion: float = param(
        1.0,
        "weight of the memory's answer beside the text's; the released sets' were chosen with test labels (oracle)",
        low=0,
        eq="b",
    )
    oracle_weight_search: bool = param(
        False, "also report what `oracle` needs to choose the weight by the labels, as the release does"
    )

    def init(self, task: Task) -> State:
        c, m = len(task), self.memory
        text = ops.class_text(task, self.text)
        gram = like(task, c, m + 1, m + 1)
        gram[:, m, m] = (text * text).sum(-1)
        return {
            "features": like(task, c, m, task.dim),
            "entropies": like(task, c, m, fill=torch.inf),
            "gram": gram,
        }

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        image, text = sample.views[0], ops.class_text(task, self.text)
        logits = task.scale * sample.views @ text.mT
        seen = ops.evidence(sample.views, logits, self.share)
        label = seen.log_probs.argmax(-1)
        state, close, cached = self.write(state, label, seen.entropy, image, text)
        memory = task.scale * self.read(state, close)
        p_text, p_memory = logits[0].softmax(-1), memory.softmax(-1)
        info = {"logits": logits[0], "memory_logits": memory, "entropy": seen.entropy}
        info |= {"label": label, "cached": cached}
        if self.oracle_weight_search:
            info |= {"oracle_p_text": p_text, "oracle_p_memory": p_memory}
        return Output((p_text + self.fusion * p_memory) / (1 + self.fusion), info), state

    def write(
        self,
        state: State,
        label: Int[Tensor, ""],
        entropy: Float[Tensor, ""],
        image: Float[Tensor, " dim"],
        text: Float[Tensor, "classes dim"],
    ) -> tuple[State, Float[Tensor, "classes items"], Tensor]:
        """Put the image into a free slot of its class, or in the place of the worst item if that is worse."""
        row = ops.get_row(state["entropies"], label)
        at = torch.arange(self.memory + 1, device=row.device)
        cached = row.max() > entropy
        here = (at == row.argmax()) & cached
        place = label * self.memory + row.argmax()
        flat = state["features"].flatten(0, 1)
        features = ops.put_row(flat, place, torch.where(cached, image, ops.get_row(flat, place)))
        features = features.unflatten(0, state["features"].shape[:2])
        close = torch.cat([features @ image, (text @ image)[:, None]], -1)
        mine, gram = ops.get_row(close, label), ops.get_row(state["gram"], label)
        gram = torch.where(here[:, None], mine, torch.where(here, mine[:, None], gram))
        new = {
            "features": features,
            "entropies": ops.put_row(state["entropies"], label, torch.where(here[:-1], entropy, row)),
            "gram": ops.put_row(state["gram"], label, gram),
        }
        return new, close, cached

    def read(self, state: State, close: Float[Tensor, "classes items"]) -> Float[Tensor, " classes"]:
        """Cosine of the image with the prototype it calls up from each class."""
        held = torch.nn.functional.pad(torch.isfinite(state["entropies"]), (0, 1), value=True)
        weight = torch.where(held, ops.affinity(close, 1.0, self.beta), torch.zeros_like(close))
        square = ((state["gram"] @ weight[..., None]).squeeze(-1) * weight).sum(-1)
        return (weight * close).sum(-1) / square.clamp_min(torch.finfo(square.dtype).tiny).sqrt()


class Oracle(NamedTuple):
    """The best of the published weights, chosen with the labels of the test set: not a result of the method."""

    weight: float
    probs: Float[Tensor, "samples classes"]
    accuracies: tuple[float, ...]
    name: str = "DMN (oracle weight: chosen with the test labels)"


def oracle(info: dict[str, Tensor], labels: Int[Tensor, " samples"]) -> Oracle:
    """Try the 13 published weights on the test labels and keep the best, the smallest of equals.

    `info` comes from a run with `oracle_weight_search=True`.
    """
    fused = [(info["oracle_p_text"] + weight * info["oracle_p_memory"]) / (1 + weight) for weight in WEIGHTS]
    accuracies = tuple(100 * float((p.argmax(-1) == labels).double().mean()) for p in fused)
    best = accuracies.index(max(accuracies))
    return Oracle(WEIGHTS[best], fused[best], accuracies)
