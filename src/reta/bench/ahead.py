"""Encodes what plans need before their first job: by several processes, and once for all plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from reta import engine
from reta.bench import processes
from reta.bench.building import SHARD_VIEWS, build
from reta.bench.identity import digest, identify, make_views
from reta.bench.plan import Plan
from reta.bench.reuse import bare, larger, ready
from reta.bench.stage import Options, Stage, Want
from reta.errors import RetaError

FEW = SHARD_VIEWS
"""So many views are encoded before other processes have begun."""


def encode(wants: Sequence[tuple[Plan, Mapping[Want, int]]], options: Options, workers: int = 1) -> None:
    """Build the feature stores that plans want and that are not there, each with the most views any wants.

    `workers` processes build together: each has one thread and takes shards that no other has.
    """
    stages = [Stage(plan, options) for plan, _ in wants]
    todo = _missing(stages, [table for _, table in wants])
    size = sum(item.size for item in todo)
    plans = [plan for plan, _ in wants]
    with _beside(_others(options, workers) if size > FEW else 0, plans, options, todo):
        for item in todo:
            data, model, recipe, more = _parts(stages[item.place], item.want)
            seed = plans[item.place].seed
            ready(data, model, recipe, item.views, seed, stages[0].root, options.progress, more)


class Item(NamedTuple):
    """A store to build: for which plan, of what, and how much work that is."""

    place: int
    want: Want
    views: int
    size: int


def _missing(stages: Sequence[Stage], wants: Sequence[Mapping[Want, int]]) -> list[Item]:
    """What must be built, the largest first; of two that differ in the number of views, the larger."""
    found: dict[str, tuple[Item, dict[str, Any]]] = {}
    for place, (stage, table) in enumerate(zip(stages, wants, strict=True)):
        for want, views in table.items():
            data, model, recipe, more = _parts(stage, want)
            identity = identify(data, model, make_views(model, recipe, views, stage.plan.seed, **more))
            key = digest(bare(identity))
            if key not in found or found[key][0].views < views:
                found[key] = Item(place, want, views, views * len(data)), identity
    todo = [item for item, identity in found.values() if larger(identity, stages[0].root) is None]
    return sorted(todo, key=lambda item: -item.size)


def _parts(stage: Stage, want: Want) -> tuple[Any, Any, str, dict[str, Any]]:
    return stage.data(want.data), stage.model(want.model), want.recipe, want.more


def _others(options: Options, workers: int) -> int:
    """How many processes beside this one; no more than there are GPUs, if they are what encodes."""
    if engine.pick(options.device).type == "cuda":
        workers = min(workers, torch.cuda.device_count())
    return workers - 1


@contextmanager
def _beside(others: int, plans: list[Plan], options: Options, todo: list[Item]) -> Iterator[None]:
    """Other processes that build as well, while this one does. They are not needed: what they leave undone,
    this process does, and it says what is wrong where they are silent."""
    if others < 1:
        yield
        return
    numbers = processes.counter()
    numbers.value = 1  # this process is the first
    started = [
        processes.CONTEXT.Process(target=_help, args=(plans, options, todo, numbers), daemon=True)
        for _ in range(others)
    ]
    with processes.unheard():
        for process in started:
            process.start()
    try:
        with processes.one_thread():
            yield
    finally:
        for process in started:
            process.terminate()
            process.join()


def _help(plans: list[Plan], options: Options, todo: list[Item], numbers: Any) -> None:
    """Build what no other process has in hand."""
    options = replace(options, device=processes.begin(options.device, numbers), progress=False)
    stages = [Stage(plan, options) for plan in plans]
    for item in todo:
        with suppress(RetaError):
            data, model, recipe, more = _parts(stages[item.place], item.want)
            seed = plans[item.place].seed
            build(data, model, recipe, item.views, seed, root=stages[0].root, wait=False, **more)
