"""What a method's cache held, replayed from what it reported: right items, wrong items, and who is left."""

from __future__ import annotations

import bisect
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Item(NamedTuple):
    """An image in the cache: `place` is its position in the stream."""

    score: float
    place: int


class Replay(NamedTuple):
    """The queues at the end, and the share of right items (in percent) after every sample."""

    queues: dict[int, list[Item]]
    accuracy: Float[Tensor, " samples"]


def replay(
    queue: Int[Tensor, " samples"],
    score: Float[Tensor, " samples"],
    taken: Bool[Tensor, " samples"],
    labels: Int[Tensor, " samples"],
    slots: int,
) -> Replay:
    """Run the priority queues again: `queue` is the class an image was cached under, `score` what it was
    ranked by, `taken` whether it got in. The lowest scores stay; of equal ones, the older.

    >>> found = replay(torch.tensor([0, 0, 0]), torch.tensor([.5, .2, .1]), torch.ones(3).bool(),
    ...                labels=torch.tensor([1, 0, 0]), slots=2)
    >>> [item.place for item in found.queues[0]], found.accuracy.tolist()
    ([2, 1], [0.0, 50.0, 100.0])
    """
    queues: dict[int, list[Item]] = {}
    held = right = 0
    share = torch.zeros(len(queue), dtype=torch.float64)
    rows = zip(queue.tolist(), score.tolist(), taken.tolist(), strict=True)
    truth = labels.tolist()
    for place, (name, value, ok) in enumerate(rows):
        if ok:
            items = queues.setdefault(name, [])
            bisect.insort(items, Item(value, place))
            held, right = held + 1, right + (truth[place] == name)
            if len(items) > slots:
                lost = items.pop()
                held, right = held - 1, right - (truth[lost.place] == name)
        share[place] = 100 * right / held if held else 0.0
    return Replay(queues, share)


def slots_of(method: object) -> int | None:
    """How many items a class holds in this method's cache, if it has one."""
    found = next((getattr(method, n) for n in ("slots", "memory") if hasattr(method, n)), None)
    return found if isinstance(found, int) else None
