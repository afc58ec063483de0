"""The same jobs on a Ray cluster: tasks with retries whose results come back here and become the same files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from reta.bench import jobs
from reta.bench.jobs import Job
from reta.errors import RetaError, require

RETRIES = 5
AHEAD = 4


def on_cluster(todo: list[Job], out: Path, address: str) -> Iterator[tuple[Job, str]]:
    """Each job as it is finished, and what went wrong with it.

    `address` is a Ray address (`auto`, `host:port`, `local`). Nothing but this process touches `out`; the
    files a job reads travel through Ray, once to each machine, so that no disk has to be shared. A worker or a
    machine that dies costs its jobs in hand, which start again elsewhere.
    """
    ray = connect(address)
    need = 1 if ray.cluster_resources().get("GPU") else 0
    task = ray.remote(num_cpus=1, num_gpus=need / 4, max_retries=RETRIES)(remote)
    content: dict[Path, Any] = {}
    waiting, queue = {}, list(reversed(todo))
    room = max(2, AHEAD * int(ray.cluster_resources().get("CPU", 1)))
    while queue or waiting:
        while queue and len(waiting) < room:
            job = queue.pop()
            parts = {path: _put(ray, content, path) for path in paths(job)}
            waiting[task.remote(job, [str(p) for p in parts], *parts.values())] = job
        ready, _ = ray.wait(list(waiting), num_returns=1)
        for reference in ready:
            yield _finish(ray, reference, waiting.pop(reference), out)


def connect(address: str) -> Any:
    """Ray, connected to a cluster."""
    ray = require("cluster", "ray")
    if not ray.is_initialized():
        try:
            ray.init(
                address=None if address == "local" else address, log_to_driver=False, logging_level="ERROR"
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RetaError(
                f"no Ray cluster at {address!r} ({error}); `ray start --head` begins one"
            ) from error
    return ray


def _finish(ray: Any, reference: Any, job: Job, out: Path) -> tuple[Job, str]:
    try:
        record, samples = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, RetaError):
            return job, str(cause)
        raise
    except ray.exceptions.RayError as error:
        return job, f"lost on the cluster {RETRIES} times: {type(error).__name__}"
    jobs.write_files(out, job.id, record, samples)
    return job, ""


def paths(job: Job) -> list[Path]:
    """The files and folders a job reads."""
    contexts = [Path(v) for v in job.fields.values() if isinstance(v, str) and v.endswith(".safetensors")]
    return [job.scene, *job.store, *job.reward, *contexts]


def _put(ray: Any, content: dict[Path, Any], path: Path) -> Any:
    """A file, or the files of a folder, in Ray's memory: name -> bytes, put there once."""
    if path not in content:
        names = [path] if path.is_file() else sorted(p for p in path.rglob("*") if _kept(p))
        base = path.parent
        content[path] = ray.put({p.relative_to(base).as_posix(): p.read_bytes() for p in names})
    return content[path]


def _kept(path: Path) -> bool:
    return path.is_file() and path.suffix in (".json", ".parquet", ".safetensors")


def remote(job: Job, names: list[str], *parts: dict[str, bytes]) -> tuple[bytes, bytes]:
    """On the cluster: lay the files out on this machine, do the job, send its two files back."""
    import torch

    from reta.bench.perform import perform

    torch.set_num_threads(1)
    here = {
        name: _lay(name, tuple(sorted(part))) / Path(name).name
        for name, part in zip(names, parts, strict=True)
    }
    for name, part in zip(names, parts, strict=True):
        for inside, data in part.items():
            _write(here[name].parent / inside, data)
    fields = {k: str(here[v]) if v in here else v for k, v in job.fields.items()}
    moved = replace(
        job,
        scene=here[str(job.scene)],
        store=tuple(here[str(p)] for p in job.store),
        reward=tuple(here[str(p)] for p in job.reward),
        fields=fields,
    )
    record, samples = perform(moved)
    return jobs.text(record).encode(), jobs.parquet(samples)


@cache
def _lay(name: str, inside: tuple[str, ...]) -> Path:
    """A folder of this process for one of the driver's paths."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="reta-"))


def _write(path: Path, data: bytes) -> None:
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
