"""Learning a context from labelled images (CoOp): cross-entropy on features that are encoded once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reta.errors import BadInput
from reta.progress import bar
from reta.prompts import PromptedText, save_context
from reta.task import Task


def few_shots(labels: Int[Tensor, " images"], shots: int, seed: int = 0) -> Int[Tensor, " chosen"]:
    """The places of `shots` images of every class, drawn with `seed`; all of a class that has fewer.

    >>> few_shots(torch.tensor([0, 0, 0, 1]), 2).tolist()[-1]
    3
    """
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=g)
    chosen = [order[labels[order] == c][:shots] for c in range(int(labels.max()) + 1)]
    return torch.cat(chosen)


def fit(
    task: Task,
    views: Float[Tensor, "images views dim"],
    labels: Int[Tensor, " images"],
    *,
    context: str | int = "a photo of a",
    epochs: int = 50,
    batch: int = 32,
    lr: float = 2e-3,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    seed: int = 0,
    progress: bool = False,
) -> tuple[Float[Tensor, "tokens width"], list[float]]:
    """A learned context and the mean loss of every epoch.

    The recipe is CoOp's: SGD, cosine schedule, a first epoch at 1e-5. Augmentation is what `views` holds: an
    epoch draws one view of each image, so several views stand for crops and flips made anew. `context` is
    words to start from, or a number of tokens to start at random (standard deviation 0.02).
    """
    if task.model is None:
        raise BadInput(
            "a context is learned through the model: build the task with reta.Task.build(model, ...)"
        )
    if (
        len(views) != len(labels)
        or not len(labels)
        or int(labels.max()) >= len(task)
        or int(labels.min()) < 0
    ):
        raise BadInput(f"{len(labels)} labels in 0..{len(task) - 1} are needed for {len(views)} images")
    prompts = PromptedText(task.model, task.names, context)
    g = torch.Generator().manual_seed(seed)
    x = prompts.context.clone()
    if isinstance(context, int):
        x = (0.02 * torch.randn(x.shape, generator=g)).to(x)
    velocity, losses = torch.zeros_like(x), []
    rounds = range(epochs)
    for epoch in bar(rounds, epochs, "learning a context", "epochs") if progress else rounds:
        rate = 1e-5 if epoch == 0 else lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
        total = 0.0
        for index, picked in _batches(views, batch, g):
            features, pull = prompts.pullback(x)
            logits = task.scale * picked.to(features) @ features.mT
            target = labels[index].to(logits.device)
            total += float(torch.nn.functional.cross_entropy(logits, target, reduction="sum"))
            error = logits.softmax(-1)
            error[torch.arange(len(target)), target] -= 1
            grad = pull(task.scale * error.mT @ picked.to(features) / len(target)) + weight_decay * x
            velocity = momentum * velocity + grad
            x = x - rate * velocity
        losses.append(total / len(labels))
    return x, losses


def _batches(views: Tensor, batch: int, g: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Every image once, in a new order, by one of its views."""
    order = torch.randperm(len(views), generator=g)
    which = torch.randint(views.shape[1], (len(views),), generator=g)
    for index in order.split(batch):
        rows = views[index, which[index]].float()
        yield index, rows / rows.norm(dim=-1, keepdim=True)


def save(path: str | Path, context: Tensor, task: Task, /, **about: Any) -> None:
    """Write a learned context for `CoOp`, `TPT` and `RLCF`, with the model it belongs to."""
    writable(path)
    if task.model is None:
        raise BadInput("a context belongs to a model: build the task with reta.Task.build(model, ...)")
    save_context(path, context, task.model, about)


def writable(path: str | Path) -> None:
    """Refuse a file that no method would take for a context."""
    if not str(path).endswith(".safetensors"):
        raise BadInput(f"a context is kept in a .safetensors file, not {path}")
