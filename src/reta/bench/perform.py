"""Does one job: everything it needs is in its paths, so any process on any machine that sees them will do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from reta import methods
from reta.bench import measure, scene, timing
from reta.bench.arrange import arrange
from reta.bench.jobs import Job
from reta.bench.reuse import joined
from reta.bench.stage import open_model
from reta.bench.store import Store
from reta.errors import BadState
from reta.views import Views


def perform(job: Job, device: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result of a job and its rows per sample; on `device` if it leaves the choice open."""
    device = device if device and job.device == "auto" else job.device
    method = methods.create(job.method, **job.fields)
    task, labels, table, reward = _stage(job.scene, job.store, job.reward)
    if method.needs & {"prompt", "pixels"}:
        task = with_models(task, job, device)
    place = arrange(job.stream, task, labels, table)
    pixels = _pixels(job, method) if job.pictures else None
    answers = measure.run(method, place.task, table, place.labels, place.order, device, reward, pixels)
    return measure.record(job, method, answers, spent(job)), measure.samples(answers)


@lru_cache(maxsize=2)
def _stage(path: Path, store: tuple[Path, ...], reward: tuple[Path, ...]) -> tuple[Any, Any, Any, Any]:
    task, labels, _ = scene.load(path)
    return task, labels, joined(store), joined(reward) if reward else None


def _pixels(job: Job, method: Any) -> Callable[[int], torch.Tensor]:
    """Makes the views of a row again, as they were made for its features."""
    table = joined(job.store)
    made = [Views(**(part["views"] | {"n": method.views})) for part in _views(job)]
    domains = getattr(table, "domains", torch.zeros(len(table), dtype=torch.long))
    starts = torch.tensor([0, *(len(data) for data in job.pictures)]).cumsum(0)

    def pixels(row: int) -> torch.Tensor:
        where = int(domains[row])
        data, inside = job.pictures[where], row - int(starts[where])
        return made[where].make(data.image(inside), data.keys[inside])

    return pixels


def _views(job: Job) -> list[dict[str, Any]]:
    return [
        {"views": {k: v for k, v in Store(p).identity["views"].items() if k != "version"}} for p in job.store
    ]


def with_models(task: Any, job: Job, device: str) -> Any:
    """The task with its models, for methods that learn a prompt or tune a tower."""
    models = [open_model(name, device, job.precision) for name in job.models]
    wanted = [job.identity["text"]["model"], job.identity["text"]["reward"]]
    for model, about in zip(models, wanted, strict=False):
        if model.fingerprint != about["fingerprint"]:
            raise BadState(f"the weights of {model.name} changed while the plan ran; run the plan again")
    reward = None if task.reward is None else replace(task.reward, model=models[1])
    return replace(task, model=models[0], reward=reward)


def spent(job: Job) -> dict[str, float]:
    """Milliseconds per image for decoding, views and encoding, as measured beside the first store."""
    path = timing.path_of(job.store[0])
    if not path.is_file():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    share = job.identity["views"]["used"] / found.pop("n")
    return {k: round(v if k == "decode" else v * share, 4) for k, v in found.items()}
