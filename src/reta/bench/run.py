"""Runs a plan: finished jobs stay as they are, the others are done here, by processes, or on a cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from reta.bench import jobs, manifest, pictures
from reta.bench.jobs import Job
from reta.bench.perform import perform
from reta.bench.plan import Plan
from reta.bench.prepare import prepare
from reta.bench.stage import Options
from reta.errors import BadInput, RetaError
from reta.progress import bar


@dataclass
class Summary:
    """What a run did: jobs of the plan, those found finished, those done now, those that failed."""

    plan: str
    jobs: int = 0
    found: int = 0
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(
    plan: Plan,
    out: str | Path,
    options: Options | None = None,
    *,
    workers: int = 1,
    ray: str = "",
    fresh: bool = False,
) -> Summary:
    """Run a plan into a folder. What is finished is kept, so that a run killed at any moment loses at most
    the jobs in hand. `workers` processes share the machine; `ray` is the address of a cluster instead.

    `fresh` forgets which cells an earlier run of this plan had (with other settings, say), not its results.
    """
    out, options = Path(out), options or Options()
    if workers < 1:
        raise BadInput(f"--jobs is at least 1, not {workers}")
    jobs.sweep_up(out)
    ready = prepare(plan, options)
    content = manifest.of(ready.plan, {c: j.id for c, j in ready.cells.items()}, ready.skipped, ready.notes)
    manifest.add(out, content, fresh)
    distinct = {job.id: job for job in ready.cells.values()}
    todo = [job for id, job in distinct.items() if jobs.read(out, id) is None]
    summary = Summary(plan.name, len(distinct), len(distinct) - len(todo), 0, {}, ready.skipped, ready.notes)
    for job, error in _display(_execute(todo, out, workers, ray), len(todo), plan.name, options.progress):
        if error:
            summary.failed[job.label] = error
        else:
            summary.done += 1
    if plan.layout == "pictures" and not summary.failed:
        for name in plan.data:
            pictures.make(out, plan.name, ready.cells, ready.stage.data(name))
    return summary


def _display(steps: Iterable[Any], total: int, name: str, progress: bool) -> Iterable[Any]:
    return bar(steps, total=total, what=name, unit="jobs") if progress and total else steps


def _execute(todo: list[Job], out: Path, workers: int, ray: str) -> Iterator[tuple[Job, str]]:
    """Each job as it is finished, and what went wrong with it."""
    if ray:
        from reta.bench.cluster import on_cluster

        yield from on_cluster(todo, out, ray)
    elif workers == 1 or len(todo) < 2:
        yield from ((job, _guarded(job, out)) for job in todo)
    else:
        yield from _by_processes(todo, out, min(workers, len(todo)))


def _by_processes(todo: list[Job], out: Path, workers: int) -> Iterator[tuple[Job, str]]:
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // workers)
    numbers = context.Value("i", 0)
    with ProcessPoolExecutor(workers, context, _begin, (threads, numbers)) as pool:
        waiting = {pool.submit(_guarded, job, out): job for job in todo}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise RetaError(
                "a worker process died (killed, or out of memory): run the same command again, finished jobs "
                "are kept; fewer --jobs need less memory"
            ) from error


_gpu: str | None = None


def _begin(threads: int, numbers: Any) -> None:
    """A worker's share of the machine: some threads, and one of the GPUs."""
    global _gpu
    torch.set_num_threads(threads)
    with numbers.get_lock():
        number, numbers.value = numbers.value, numbers.value + 1
    if torch.cuda.is_available():
        _gpu = f"cuda:{number % torch.cuda.device_count()}"


def _guarded(job: Job, out: Path) -> str:
    """Do a job and write its result; the error in words if it fails."""
    try:
        jobs.write(out, job.id, *perform(job, _gpu))
    except RetaError as error:
        return str(error)
    return ""
