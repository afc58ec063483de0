"""Many settings and stream orders in one pass: the same step, vectorised over all of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from reta import guard
from reta import state as states
from reta.device import pick
from reta.engine import CHUNK, _unit_block, as_table, checked, track
from reta.errors import BadInput, nearest
from reta.methods.base import Method
from reta.methods.ops import donated
from reta.sample import Sample
from reta.task import Task


@dataclasses.dataclass
class Sweep:
    """What every setting scored on every order: `accuracy[s, o]` in percent belongs to `settings[s]`.

    Samples that are not usable are predicted as -1 and count as wrong.
    """

    settings: list[dict[str, Any]]
    predictions: Int[Tensor, "settings orders samples"]
    accuracy: Float[Tensor, "settings orders"]

    def rows(self) -> list[dict[str, Any]]:
        """Settings with the mean and the spread of their accuracy, best first."""
        spread = self.accuracy.std(1, correction=0)
        rows = [
            s | {"accuracy": round(float(a.mean()), 3), "std": round(float(d), 3)}
            for s, a, d in zip(self.settings, self.accuracy, spread, strict=True)
        ]
        return sorted(rows, key=lambda row: -row["accuracy"])


def sweep(
    method: Method,
    task: Task,
    views: Any,
    labels: Tensor,
    *,
    grid: Mapping[str, Sequence[Any]],
    orders: int | Tensor = 1,
    lanes: int = 32,
    device: str | torch.device = "auto",
    progress: bool = False,
) -> Sweep:
    """Score every combination of `grid` on every stream order.

    Fields that are real numbers are vectorised, others (counts, switches, numbers that decide a shape) make
    groups that run one after another. `orders` is how many: the stream as it is, then seeded shuffles; or a
    tensor `[O,N]`. `lanes` bounds how many streams run at once. Samples that are not usable are passed over
    as `reta.run` does. The best row of a sweep was chosen with labels: say so where you show it.

    >>> from reta.methods import create
    >>> task = Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> views = torch.eye(3).unsqueeze(1)
    >>> sweep(create("zeroshot"), task, views, torch.arange(3), grid={"views": [1]}, orders=2).accuracy
    tensor([[100., 100.]])
    """
    if method.needs:
        raise BadInput(
            f"{type(method).__name__} asks for {min(method.needs)}; a sweep is for methods on features alone: "
            "call reta.run for each setting"
        )
    if not dataclasses.is_dataclass(method):
        raise BadInput(f"a sweep changes fields, and {type(method).__name__} is no dataclass: make it one")
    fields = {f.name: f for f in dataclasses.fields(method)}
    for key in grid:
        if key not in fields:
            raise BadInput(f"{type(method).__name__} has no field {key!r}: {nearest(key, fields)}")
        if not len(grid[key]):
            raise BadInput(f"no values for {key!r}: give a list of at least one")
    if lanes < 1 or (isinstance(orders, int) and orders < 1):
        raise BadInput(f"lanes={lanes} and orders={orders} must be at least 1")
    where = pick(device)
    task = task.to(where)
    views = as_table(views)
    labels = checked(torch.as_tensor(labels).cpu(), len(views))
    order = stream_orders(orders, len(views))
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    vector = [
        k for k in grid if isinstance(fields[k].default, float) and not fields[k].metadata.get("static")
    ]
    predictions = torch.empty(len(settings), len(order), order.shape[1], dtype=torch.long)
    jobs = list(_jobs(settings, vector, len(order), lanes))
    for job in track(jobs, len(jobs), progress):
        answer = _together(
            method, task, views, order, [settings[s] for s, _ in job], [o for _, o in job], vector
        )
        for (s, o), row in zip(job, answer, strict=True):
            predictions[s, o] = row
    right = (predictions == labels[order]) & (predictions >= 0)
    return Sweep(settings, predictions, 100 * right.double().mean(-1).float())


def stream_orders(orders: int | Tensor, samples: int) -> Int[Tensor, "orders samples"]:
    """The stream as it is, then shuffles with seeds 1, 2, ...; or the orders given."""
    if isinstance(orders, Tensor):
        return orders.cpu().reshape(-1, orders.shape[-1])
    rows = [torch.arange(samples)]
    for seed in range(1, orders):
        rows.append(torch.randperm(samples, generator=torch.Generator().manual_seed(seed)))
    return torch.stack(rows)


def _jobs(
    settings: list[dict[str, Any]], vector: list[str], orders: int, lanes: int
) -> Iterator[list[tuple[int, int]]]:
    """Groups of (setting, order) that differ in real numbers only, at most `lanes` in each."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for s, setting in enumerate(settings):
        static = repr(sorted((k, v) for k, v in setting.items() if k not in vector))
        groups.setdefault(static, []).extend((s, o) for o in range(orders))
    for pairs in groups.values():
        for start in range(0, len(pairs), lanes):
            yield pairs[start : start + lanes]


def _together(
    method: Method,
    task: Task,
    views: Any,
    order: Tensor,
    settings: list[dict[str, Any]],
    which: list[int],
    vector: list[str],
) -> Int[Tensor, "lanes samples"]:
    """Run all lanes side by side; every lane reads the stream in its own order."""
    made = [dataclasses.replace(method, **s) for s in settings]  # type: ignore[type-var]
    base = made[0]
    numbers = {k: torch.tensor([float(s[k]) for s in settings], device=task.prompts.device) for k in vector}
    inits = [m.init(task) for m in made]
    state = {k: torch.stack([i[k] for i in inits]) for k in inits[0]}

    def step(values: dict[str, Tensor], state: states.State, rows: Tensor) -> tuple[Tensor, states.State]:
        output, new = dataclasses.replace(base, **values).step(task, state, Sample(rows))  # type: ignore[type-var]
        return output.probs.argmax(-1), new

    vectorised = torch.func.vmap(step, in_dims=(0, 0, 0), randomness="error")
    answers = []
    with torch.no_grad(), donated():
        for start in range(0, order.shape[1], CHUNK):
            index = order[which, start : start + CHUNK]
            distinct, place = index.unique(return_inverse=True)
            block = _unit_block(views, distinct, base, task)
            good = guard.usable(block)
            whole = bool(good.all())
            block = block if whole else torch.where(good[:, None, None], block, task.text[0])
            for column in place.to(block.device).mT:
                label, new = vectorised(numbers, state, block[column])
                state = new if whole else _kept(good[column], new, state)
                answers.append(label if whole else torch.where(good[column], label, -1))
    return torch.stack(answers, -1).cpu()


def _kept(good: Bool[Tensor, " lanes"], new: states.State, old: states.State) -> states.State:
    """The new state in the lanes whose sample was usable, the old one in the others."""
    return {k: torch.where(good.view(-1, *[1] * (v.ndim - 1)), v, old[k]) for k, v in new.items()}
