"""Runs one job and measures it: what was answered, how long it took, how much it kept."""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from reta import engine, state
from reta.bench import metrics, replay
from reta.bench.arrange import POISON
from reta.bench.jobs import FORMAT, Job
from reta.bench.timing import watch
from reta.sample import Sample
from reta.task import Task

BLOCK = 4096
KEPT = ("entropy", "label", "score", "cached", "updated", "w", "reliable")


@dataclass
class Answers:
    """The answers of a whole stream, in the order of the stream; only what is needed of each is kept."""

    rows: Int[Tensor, " samples"]
    labels: Int[Tensor, " samples"]
    probs: Tensor
    valid: Bool[Tensor, " samples"]
    info: Mapping[str, Tensor]
    frozen: Int[Tensor, " samples"]
    seconds: float
    peak: int
    state: int
    confidence: Tensor = field(init=False)
    predictions: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.confidence, self.predictions = self.probs.max(-1)

    @property
    def known(self) -> Bool[Tensor, " samples"]:
        """Samples whose class is in the task, poison left out."""
        return self.labels >= 0

    @property
    def right(self) -> Bool[Tensor, " samples"]:
        return self.predictions == self.labels


def run(
    method: Any,
    task: Task,
    table: Any,
    labels: Tensor,
    order: Tensor,
    device: str,
    reward: Any = None,
    pixels: Callable[[int], Tensor] | None = None,
) -> Answers:
    """Go through the stream in blocks, so that memory does not grow with what a method reports. `pixels`
    makes the views of a row for a method that wants them."""
    parts, here, frozen, seconds, fresh = [], None, [], 0.0, _peak_reset(device)
    now = watch(engine.pick(device))
    for start in range(0, len(order), BLOCK):
        block = order[start : start + BLOCK]
        begun = now()
        if pixels is None:
            out = engine.run(method, task, table, reward=reward, order=block, state=here, device=device)
        else:
            stream = (_sample(table, reward, pixels, int(i)) for i in block)
            out = engine.run(method, task, stream, state=here, device=device)
        seconds, here = seconds + now() - begun, out.state
        info = {k: v for k, v in out.info.items() if k in KEPT and v.ndim == 1}
        parts.append((out.probs, out.valid, info))
        frozen.append(_frozen(task, table, block))
    names = parts[0][2].keys()
    return Answers(
        order,
        labels[order],
        torch.cat([p for p, _, _ in parts]),
        torch.cat([v for _, v, _ in parts]),
        {k: torch.cat([info[k] for _, _, info in parts]) for k in names},
        torch.cat(frozen),
        seconds,
        _peak(device, fresh),
        state.nbytes(here or {}),
    )


def _sample(table: Any, reward: Any, pixels: Callable[[int], Tensor], row: int) -> Sample:
    """A row with the pixels of its views."""
    first = table[row]
    made = pixels(row)
    second = None if reward is None else reward[row].views[: len(made)]
    return Sample(first.views[: len(made)], second, made, first.key)


def _frozen(task: Task, table: Any, rows: Tensor) -> Int[Tensor, " samples"]:
    """What the frozen model with the same prompts says to the plain view."""
    plain = table.read(rows, 1)[:, 0] if hasattr(table, "read") else table[rows, 0]
    return (plain.float() @ task.text.float().cpu().mT).argmax(-1)


def _peak_reset(device: str) -> bool:
    """Forget the largest memory use so far; False where the system cannot."""
    if engine.pick(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return True
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _peak(device: str, fresh: bool) -> int:
    """The largest memory use since `_peak_reset`, in bytes; of the whole process where that is not known."""
    if engine.pick(device).type == "cuda":
        return torch.cuda.max_memory_allocated()
    if fresh:
        lines = Path("/proc/self/status").read_text().splitlines()
        found = next((line for line in lines if line.startswith("VmHWM")), None)
        if found is not None:
            return int(found.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def record(job: Job, method: Any, answers: Answers, split: Mapping[str, float]) -> dict[str, Any]:
    """The result of a job, ready for its file. Accuracy counts a sample that could not be used as wrong."""
    known = answers.known
    right = (answers.right & answers.valid)[known]
    labels, predictions = answers.labels[known], answers.predictions[known]
    numbers: dict[str, Any] = {"accuracy": metrics.rounded(100 * right.double().mean())}
    numbers |= metrics.calibration(answers.probs[known], labels)
    numbers |= metrics.changes(predictions, answers.frozen[known], labels)
    asked = answers.labels > POISON
    auroc = metrics.unknown(answers.confidence[asked], known[asked])
    numbers |= {} if auroc is None else {"auroc": auroc}
    curves = {"accuracy": metrics.running(answers.right.float() * known, known.float())}
    cache = cached(method, answers)
    if cache is not None:
        curves["cache"] = [metrics.rounded(cache.accuracy[i], 3) for i in metrics.points(len(known))]
        numbers["cache_accuracy"] = curves["cache"][-1]
    return {
        "format": FORMAT,
        "id": job.id,
        "job": dict(job.identity),
        "metrics": numbers,
        "samples": {"all": len(known), "known": int(known.sum()), "unusable": int((~answers.valid).sum())},
        "classes": metrics.per_class(predictions, labels, answers.probs.shape[-1]),
        "reliability": metrics.reliability(answers.confidence[known], right),
        "curves": curves,
        "answers": packed(answers),
        "time": dict(split) | {"adapt": metrics.rounded(1e3 * answers.seconds / len(known), 4)},
        "memory": {"peak": answers.peak, "state": answers.state},
        "environment": environment(job.device),
    }


def packed(answers: Answers) -> dict[str, str]:
    """Rows, predictions and whether they are right, sorted by row: the same for every order of a set."""
    place = answers.rows.argsort(stable=True)
    table = {
        "rows": answers.rows[place],
        "predictions": answers.predictions[place],
        "right": (answers.right & answers.valid)[place],
    }
    if torch.equal(table["rows"], torch.arange(len(place))):
        del table["rows"]
    return {key: metrics.pack(value) for key, value in table.items()}


def cached(method: Any, answers: Answers) -> replay.Replay | None:
    """The method's cache along the stream, if it has one and reports what enters it."""
    slots, info = replay.slots_of(method), answers.info
    if slots is None or not {"cached", "label"} <= info.keys() or not {"score", "entropy"} & info.keys():
        return None
    score = info.get("score", info.get("entropy"))
    assert score is not None
    return replay.replay(info["label"], score, info["cached"], answers.labels, slots)


def samples(answers: Answers) -> dict[str, Any]:
    """One row per sample, in the order of the stream."""
    table = {
        "row": answers.rows,
        "label": answers.labels,
        "prediction": answers.predictions,
        "confidence": answers.confidence,
        "frozen": answers.frozen,
        "usable": answers.valid,
    }
    info = {("filed" if k == "label" else k): v for k, v in answers.info.items()}
    return {k: v.numpy() for k, v in (table | info).items()}


def environment(device: str) -> dict[str, str]:
    """What the numbers were made with; results of different environments agree only to rounding."""
    where = engine.pick(device)
    from reta import __version__

    name = torch.cuda.get_device_name(where) if where.type == "cuda" else platform.machine()
    return {
        "reta": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": f"{where.type} {name}",
    }
