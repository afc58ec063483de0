"""Runs a plan: finished jobs stay as they are, the others are done here, by processes, or on a cluster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from reta import methods
from reta.bench import ahead, jobs, manifest, pictures, processes
from reta.bench.jobs import Job
from reta.bench.perform import perform
from reta.bench.plan import Plan
from reta.bench.prepare import Prepared, prepare, wants
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


def run(plan: Plan, out: str | Path, options: Options | None = None, **more: Any) -> Summary:
    """Run one plan into a folder; see `run_all`."""
    return run_all([plan], out, options, **more)[0]


def run_all(
    plans: Sequence[Plan],
    out: str | Path,
    options: Options | None = None,
    *,
    workers: int = 1,
    ray: str = "",
    fresh: bool = False,
) -> list[Summary]:
    """Run plans into a folder. What is finished is kept, so that a run killed at any moment loses at most
    the jobs in hand. `workers` processes share the machine; `ray` is the address of a cluster instead.

    A plan about time has jobs of its own, which are done one by one when the others are finished.
    Plans share features and jobs; of all jobs those begin first that take longest, so that no process is left
    alone with them. `fresh` forgets which cells an earlier run of these plans had (with other settings, say),
    not its results.
    """
    out, options = Path(out), options or Options()
    if workers < 1:
        raise BadInput(f"--jobs is at least 1, not {workers}")
    jobs.sweep_up(out)
    ahead.encode([(plan, wants(plan, options)) for plan in plans], options, 1 if ray else workers)
    ready = [prepare(plan, options) for plan in plans]
    for one in ready:
        content = manifest.of(one.plan, {c: j.id for c, j in one.cells.items()}, one.skipped, one.notes)
        manifest.add(out, content, fresh)
    todo = {job.id: job for one in ready for job in one.cells.values()}
    todo = {id: job for id, job in todo.items() if jobs.read(out, id) is None}
    order = sorted(todo.values(), key=cost, reverse=True)
    alone = [job for job in order if "alone" in job.identity]
    others = _execute([job for job in order if "alone" not in job.identity], out, workers, ray)
    steps = chain(others, _execute(alone, out, 1, ray))
    name = ready[0].plan.name if len(ready) == 1 else f"{len(ready)} plans"
    try:
        errors = {job.id: error for job, error in _display(steps, len(todo), name, options.progress)}
    except KeyboardInterrupt as stop:
        done = sum(jobs.read(out, id) is not None for id in todo)
        stop.add_note(
            f"stopped; {done:,} of {len(todo):,} jobs are done and kept; the same command does the others"
        )
        raise
    for one in ready:
        if one.plan.layout == "pictures" and not any(errors.get(job.id) for job in one.cells.values()):
            for data in one.plan.data:
                pictures.make(out, one.plan.name, one.cells, data, one.stage.data(data))
    return [_summary(one, errors) for one in ready]


def _summary(one: Prepared, errors: dict[str, str]) -> Summary:
    """What became of a plan's jobs; `errors` has those run now, with an empty text where all went well."""
    ours = {job.id: job for job in one.cells.values()}
    failed = {job.label: errors[id] for id, job in ours.items() if errors.get(id)}
    now = len(ours.keys() & errors.keys())
    return Summary(
        one.plan.name, len(ours), len(ours) - now, now - len(failed), failed, one.skipped, one.notes
    )


def cost(job: Job) -> float:
    """Roughly how long a job takes, to put the longest first: images, times how often a method goes through
    an encoder for one."""
    needs, steps = methods.find(job.method).needs, max(1, int(job.fields.get("steps", 1)))
    through = 1000.0 * steps if "pixels" in needs else 100.0 * steps if "prompt" in needs else 1.0
    return through * sum(part["images"] for part in job.identity["data"])


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
    numbers = processes.counter()
    with ProcessPoolExecutor(workers, processes.CONTEXT, _begin, (numbers,)) as pool:
        with processes.unheard():
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
        except (KeyboardInterrupt, GeneratorExit):
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


_device: str | None = None


def _begin(numbers: Any) -> None:
    """A worker's share of the machine."""
    global _device
    _device = processes.begin("auto", numbers)


def _guarded(job: Job, out: Path) -> str:
    """Do a job and write its result; the error in words if it fails."""
    try:
        with processes.one_thread():
            jobs.write(out, job.id, *perform(job, _device))
    except RetaError as error:
        return str(error)
    return ""
