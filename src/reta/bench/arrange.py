"""A plan's stream on a scene: which rows come in which order, which classes the task knows, what counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from reta.bench import streams
from reta.bench.scene import restrict
from reta.errors import BadPlan
from reta.task import Task

POISON = -2
OWN = ("leave_out", "only")


class Place(NamedTuple):
    """The task of a stream, a label for every row (-1: its class is not in the task, -2: poison), the order."""

    task: Task
    labels: Int[Tensor, " rows"]
    order: Int[Tensor, " samples"]


def arrange(stream: Mapping[str, Any], task: Task, labels: Int[Tensor, " rows"], table: Any) -> Place:
    """Lay out a stream. Beside the fields of `reta.bench.streams`, a plan may say `leave_out`, the share of
    classes that the task does not know, and `only`, how many classes come at all.

    >>> labels = torch.arange(8) % 4
    >>> task = Task.from_features(torch.eye(4)[:, None])
    >>> arrange({"kind": "iid", "only": 1}, task, labels, torch.zeros(8, 1, 4)).labels[[0, 4]].tolist()
    [0, 0]
    """
    fields = {k: v for k, v in stream.items() if k not in (*OWN, "kind")}
    strange = chosen(len(task), stream.get("leave_out", 0.0))
    absent = rarer(labels, len(task), stream["only"]) if "only" in stream else []
    pool = fooled(task, labels, table) if fields.get("poison") else None
    made = streams.create(stream["kind"], **fields | {"unknown_classes": tuple(strange or absent)})
    order = made.order(labels, getattr(table, "domains", None), pool)
    place = streams.known_labels(labels, strange)
    if pool is not None:
        place[pool] = POISON
    return Place(
        restrict(task, [c for c in range(len(task)) if c not in strange]) if strange else task,
        place,
        order.index,
    )


def chosen(classes: int, share: float) -> list[int]:
    """A share of the classes, the same in every order of the stream.

    >>> chosen(4, 0.5) == chosen(4, 0.5), len(chosen(4, 0.5)), chosen(4, 0)
    (True, 2, [])
    """
    if not 0 <= share < 1:
        raise BadPlan(f"a stream must keep at least one class: a share of {share:g} cannot be left out")
    return sorted(np.random.default_rng(0).permutation(classes)[: round(share * classes)].tolist())


def rarer(labels: Int[Tensor, " rows"], classes: int, only: int) -> list[int]:
    """All classes but the `only` most frequent; of equally frequent ones the first stay."""
    if only < 1:
        raise BadPlan(f"a stream needs at least one class, not only = {only}")
    counts = torch.bincount(labels, minlength=classes)
    return sorted(counts.argsort(descending=True, stable=True)[only:].tolist())


def fooled(task: Task, labels: Int[Tensor, " rows"], table: Any) -> Int[Tensor, " pool"]:
    """The half of its mistakes that the frozen model is most sure of."""
    parts = []
    for start in range(0, len(labels), 1024):
        rows = torch.arange(start, min(start + 1024, len(labels)))
        plain = table.read(rows, 1)[:, 0] if hasattr(table, "read") else table[rows, 0]
        parts.append((task.scale * plain.float() @ task.text.float().cpu().mT).softmax(-1))
    probs = torch.cat(parts)
    mistakes = int((probs.argmax(-1) != labels).sum())
    if not mistakes:
        raise BadPlan("the stream wants poison, and the frozen model is never wrong on these images")
    return streams.confident_wrong(probs, labels, max(1, mistakes // 2))
