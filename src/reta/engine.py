"""Runs a method over a stream: one sample after another, the state moving along."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reta import guard
from reta import state as states
from reta.device import pick
from reta.errors import BadInput
from reta.graph import Graph, Layout, capturable
from reta.methods.base import Method
from reta.methods.ops import donated, unit
from reta.sample import Output, Sample
from reta.task import Task

CHUNK = 256
TOGETHER = 8


@dataclass
class Run:
    """What a run gives back: one row per sample, in the order they came.

    `valid` is False where a sample had a non-finite or zero feature: it never reached the method, its
    probabilities are uniform and its info is NaN, False or -1.
    """

    probs: Float[Tensor, "samples classes"]
    info: dict[str, Tensor]
    state: states.State
    valid: Tensor
    labels: Int[Tensor, " samples"] | None = None

    @property
    def predictions(self) -> Int[Tensor, " samples"]:
        """The most probable class of each sample, -1 where it was not usable."""
        return torch.where(self.valid, self.probs.argmax(-1), -1)

    @property
    def accuracy(self) -> float:
        """Share of right predictions, in percent; what was not usable counts as wrong. Needs labels."""
        if self.labels is None:
            raise BadInput("accuracy needs labels: reta.run(..., labels=...)")
        return 100 * float(((self.predictions == self.labels) & self.valid).double().mean())


@dataclass
class Collector:
    """Keeps every output on the device until the end, so that no step waits for a copy."""

    answers: list[Output | Tensor] = field(default_factory=list)
    layouts: list[Layout | None] = field(default_factory=list)
    valid: list[bool] = field(default_factory=list)

    def add(self, answer: Output | Tensor | None, layout: Layout | None = None) -> None:
        """An output, the row of bytes of one with its layout, or nothing."""
        self.valid.append(answer is not None)
        if answer is not None:
            self.answers.append(answer)
            self.layouts.append(layout)

    def rows(self, classes: int) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Stack, with neutral rows where a sample was not usable."""
        valid = torch.tensor(self.valid, dtype=torch.bool)
        if not self.answers:
            return torch.full((len(valid), classes), 1.0 / classes), {}, valid
        runs = itertools.groupby(zip(self.layouts, self.answers, strict=True), key=lambda pair: pair[0])
        parts = [_stacked(layout, [answer for _, answer in run]) for layout, run in runs]
        probs = torch.cat([part.probs for part in parts]).float()
        info = {key: torch.cat([part.info[key] for part in parts]) for key in parts[0].info}
        return (
            _spread(probs, valid, 1.0 / classes),
            {k: _spread(v, valid, _blank(v)) for k, v in info.items()},
            valid,
        )


def _stacked(layout: Layout | None, answers: list[Any]) -> Output:
    """Outputs of one kind as one, on the CPU."""
    if layout is not None:
        return layout.unpack(torch.stack(answers).cpu())
    info = {key: torch.stack([a.info[key] for a in answers]).cpu() for key in answers[0].info}
    return Output(torch.stack([a.probs for a in answers]).cpu(), info)


def _blank(value: Tensor) -> Any:
    return float("nan") if value.is_floating_point() else False if value.dtype == torch.bool else -1


def _spread(rows: Tensor, valid: Tensor, fill: Any) -> Tensor:
    if bool(valid.all()):
        return rows
    full = torch.full((len(valid), *rows.shape[1:]), fill, dtype=rows.dtype)
    full[valid] = rows
    return full


def run(
    method: Method,
    task: Task,
    views: Any,
    labels: Tensor | None = None,
    *,
    reward: Any = None,
    order: Tensor | Sequence[int] | None = None,
    state: states.State | None = None,
    device: str | torch.device = "auto",
    engine: str = "auto",
    progress: bool = False,
) -> Run:
    """Adapt over a whole stream and return everything it answered.

    `views` is a tensor or array `[N,V,D]`, a feature store, or an iterable of `Sample`; `order` visits the
    rows of the first three in another order (labels are reordered with them). `reward` holds what a second
    model sees, row by row, for methods that ask for it. `state` continues from an earlier run.

    >>> task = Task.from_features(torch.eye(3).unsqueeze(1), scale=10.0)
    >>> from reta.methods import create
    >>> run(create("zeroshot"), task, torch.eye(3).unsqueeze(1), labels=torch.arange(3)).accuracy
    100.0
    """
    where = where_to(method, task, device)
    task = task.to(where)
    views, reward = as_table(views), as_table(reward)
    order = None if order is None else torch.as_tensor(order).cpu()
    take, mode = stepper(method, task, engine), quiet(method, where)
    state = method.init(task) if state is None else {k: v.clone().to(where) for k, v in state.items()}
    total = len(order) if order is not None else len(views) if hasattr(views, "__len__") else None
    out = Collector()
    stream = track(samples(method, task, views, reward, order), total, progress)
    with torch.no_grad(), donated():
        if hasattr(method, "many") and method.episodic:
            for group in groups(stream, TOGETHER):
                for answer in side_by_side(method, task, group):
                    out.add(answer)
        else:
            for sample in stream:
                if sample is None:
                    out.add(None)
                    continue
                with mode():
                    answer, layout, state = take(state, sample)
                out.add(answer, layout)
    probs, info, valid = out.rows(len(task))
    state = {k: v.clone() if v.is_inference() else v for k, v in state.items()}
    if labels is not None:
        labels = torch.as_tensor(labels).cpu()
        labels = checked(labels if order is None else labels[order], len(probs))
    return Run(probs, info, state, valid, labels)


def quiet(method: Method, where: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """What a step is taken in: no gradients; on a CPU also none of what torch keeps for them, a tenth of a small
    step's time.

    A plug-in may differentiate inside its step, and the methods through the encoders do: they get the former.
    """
    ours = type(method).__module__.startswith("reta.methods.")
    if ours and where.type == "cpu" and not method.needs & {"prompt", "pixels"}:
        return torch.inference_mode
    return torch.no_grad


def where_to(method: Method, task: Task, device: str | torch.device) -> torch.device:
    """The device of a run: the one named; else that of a model the steps go through, else the GPU if any."""
    model = task.model if method.needs & {"prompt", "pixels"} else None
    if model is None:
        return pick(device)
    home = torch.device(model.device)
    if device != "auto" and pick(device).type != home.type:
        raise BadInput(
            f"the steps go through {model.name}, which is on {home}: load it with device={str(device)!r}"
        )
    return home


def stepper(
    method: Method, task: Task, engine: str
) -> Callable[[states.State, Sample], tuple[Output | Tensor, Layout | None, states.State]]:
    """How one step is taken: eagerly, or as a CUDA graph captured at the first sample, its answer packed."""
    if engine not in ("auto", "eager", "graph"):
        raise BadInput(f"unknown engine {engine!r}: auto, eager or graph")
    possible = capturable(method, task)
    if engine == "graph" and not possible:
        raise BadInput("a graph needs a GPU and a method on features alone; use engine='auto'")
    graph: Graph | None = None

    def take(state: states.State, sample: Sample) -> tuple[Output | Tensor, Layout | None, states.State]:
        nonlocal graph
        if engine == "eager" or not possible:
            output, new = method.step(task, state, sample)
            return output, None, new
        if graph is None or not graph.fits(sample):
            graph = Graph(method, task, state, sample)
        return graph(sample), graph.layout, graph.state

    return take


def groups(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The items in lists of `size`, the last one shorter."""
    iterator = iter(items)
    while group := list(itertools.islice(iterator, size)):
        yield group


def side_by_side(method: Any, task: Task, group: list[Sample | None]) -> Iterator[Output | None]:
    """An episodic method that can take several images at once, `many`; the answers are those of single steps."""
    good = [s for s in group if s is not None]
    alike = len({(s.views.shape, s.reward is None, s.pixels is None) for s in good}) == 1
    if not alike or any(s.pixels is not None for s in good):
        yield from (None if s is None else method.step(task, {}, s)[0] for s in group)
        return
    reward = None if good[0].reward is None else torch.stack([s.reward for s in good if s.reward is not None])
    out = method.many(task, torch.stack([s.views for s in good]), reward)
    rows = iter(range(len(good)))
    for sample in group:
        if sample is None:
            yield None
        else:
            i = next(rows)
            yield Output(out.probs[i], {k: v[i] for k, v in out.info.items()})


def samples(
    method: Method, task: Task, views: Any, reward: Any, order: Tensor | None
) -> Iterator[Sample | None]:
    """Unit features of the views a method uses, on the task's device; None where a sample is not usable."""
    if isinstance(views, Tensor) or hasattr(views, "read"):
        yield from _rows(method, task, views, reward, order)
        return
    if order is not None or reward is not None:
        raise BadInput(
            "order and reward need a tensor or a feature store of views; samples of an iterable come in "
            "their own order and carry their own reward"
        )
    for sample in views:
        if not isinstance(sample, Sample):
            raise BadInput(
                f"an iterable must give reta.Sample, not {type(sample).__name__}: wrap each, "
                "reta.Sample(views), or stack them into one tensor [N,V,D]"
            )
        yield prepare(method, task, sample)


def checked(labels: Tensor, samples: int) -> Int[Tensor, " samples"]:
    """Labels that are one number for each sample."""
    if labels.shape != (samples,):
        raise BadInput(f"{labels.numel()} labels for {samples} samples: give one number for each")
    return labels


def as_table(views: Any) -> Any:
    """Arrays as tensors; everything else as it is."""
    return torch.as_tensor(views) if hasattr(views, "__array__") else views


def _rows(
    method: Method, task: Task, views: Any, reward: Any, order: Tensor | None
) -> Iterator[Sample | None]:
    if isinstance(views, Tensor) and (views.ndim != 3 or not views.shape[1]):
        raise BadInput(f"views must be [N,V,D] with a view or more, not {list(views.shape)}")
    if reward is not None and len(reward) != len(views):
        raise BadInput(f"the second model's features have {len(reward)} rows, the views {len(views)}")
    asks = "reward" in method.needs and reward is not None and task.reward is not None
    places = torch.arange(len(views)) if order is None else order
    for start in range(0, len(places), CHUNK):
        index = places[start : start + CHUNK]
        block = _unit_block(views, index, method, task)
        second = _unit_block(reward, index, method, task.reward) if asks and task.reward else None
        good = guard.usable(block) if second is None else guard.usable(block) & guard.usable(second)
        for i, ok in enumerate(good.tolist()):
            yield (
                Sample(block[i], None if second is None else second[i], key=str(int(index[i])))
                if ok
                else None
            )


def _unit_block(table: Any, index: Tensor, method: Method, task: Task) -> Tensor:
    if isinstance(table, Tensor):
        block = table[index.to(table.device), : method.views]
    else:
        block = table.read(index, method.views)
    if block.shape[-1] != task.dim:
        raise BadInput(
            f"views have {block.shape[-1]} dimensions, the task's text features {task.dim}: same model?"
        )
    return unit(block.to(device=task.prompts.device, dtype=task.prompts.dtype, non_blocking=True))


def prepare(method: Method, task: Task, sample: Sample) -> Sample | None:
    """A sample as a method wants it: its first views, unit rows, the task's device and precision."""

    def ready(x: Tensor | None, scale_to_unit: bool = True) -> Tensor | None:
        if x is None:
            return None
        x = x[: method.views].to(device=task.prompts.device, dtype=task.prompts.dtype)
        return unit(x) if scale_to_unit else x

    if sample.views.ndim != 2 or sample.views.shape[-1] != task.dim or not len(sample.views):
        raise BadInput(
            f"a sample's views must be [V,{task.dim}] with a view or more, not {list(sample.views.shape)}"
        )
    reward = sample.reward if "reward" in method.needs else None
    if not all(bool(guard.usable(x[: method.views])) for x in (sample.views, reward) if x is not None):
        return None
    views = ready(sample.views)
    assert views is not None
    return Sample(views, ready(reward), ready(sample.pixels, scale_to_unit=False), sample.key)


def track(items: Iterable[Any], total: int | None, progress: bool) -> Iterable[Any]:
    """A progress bar with rate and time left on standard error, if asked for."""
    if not progress:
        return items
    from reta.progress import bar

    return bar(items, total=total, what="adapting")
