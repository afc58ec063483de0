"""A scene: the task and the labels a job runs on, in one file that any process can read without the model."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from reta import state as states
from reta.errors import BadInput, MissingData
from reta.task import Task


@dataclass(frozen=True)
class Text:
    """The sentences of every class, and what is recorded about where they are from."""

    templates: str
    sentences: tuple[tuple[str, ...], ...]
    source: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """A hash of all sentences."""
        parts = "\x00\x00".join("\x00".join(group) for group in self.sentences)
        return hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()


def text_of(data: Any, spec: str, prompts: str | Path | None = None) -> Text:
    """What a row's `text` means on a data set: templates, and after `+cupl` the sentences of each class.

    A set outside the catalog has no templates of a method family: `coop` and `tpt` are then the single
    template, the others the seven of OpenAI; and if it has no sentences of its own and none are given, the
    templates stand alone. Both are recorded.
    """
    from reta.templates import sentences_per_class

    name, _, more = spec.partition("+")
    if more not in ("", "cupl"):
        raise BadInput(f"text is templates, or templates+cupl, not {spec!r}")
    templates, notes = _templates(data, name)
    table, source = _sentences(data, prompts) if more else (None, {})
    if more and table is None:
        notes.append("no sentences per class: give --prompts FILE")
    if more and table is None and _entry(data) is not None:
        raise MissingData(
            f"{data.name}: no CuPL file found; put CuPL_prompts_*.json into gpt3_prompts/ below the data root, "
            "or give --prompts FILE"
        )
    sentences = sentences_per_class(data.names, templates, table)
    return Text(spec, tuple(map(tuple, sentences)), dict(source) | ({"notes": notes} if notes else {}))


def _templates(data: Any, name: str) -> tuple[str | list[str], list[str]]:
    from reta.data import prompts as files

    if name not in files.FAMILIES:
        return ([name] if "{}" in name else name), []
    entry = _entry(data)
    found = files.family(entry, name)
    return found, [] if entry is not None else [f"templates {name}: {found}"]


def _sentences(
    data: Any, prompts: str | Path | None
) -> tuple[Mapping[str, Sequence[str]] | None, Mapping[str, Any]]:
    from reta.data import prompts as files
    from reta.data.catalog.locate import default_root

    entry = _entry(data)
    if prompts is None and entry is not None:
        prompts = files.find(entry, data.root or default_root())
        if prompts is None and entry.cupl.get("file") == "imagenet":
            prompts = "clip-benchmark"
    if prompts is not None:
        found = files.load(prompts, data.names, entry)
        return found.classes, found.record()
    return data.prompts, ({"source": f"{data.name}'s own"} if data.prompts else {})


def _entry(data: Any) -> Any:
    """The catalog's entry of a data set, if it has one."""
    from reta.data import catalog

    name, _, variant = data.name.partition("@")[0].partition(":")
    return catalog.entry(name, variant) if name in catalog.names() else None


def save(path: Path, task: Task, labels: Int[Tensor, " rows"], about: Mapping[str, Any]) -> None:
    """Write a scene; the reward task, if there is one, goes with it."""
    body = {"prompts": task.prompts, "mask": task.mask, "labels": labels}
    header = {"names": list(task.names), "sentences": [list(s) for s in task.sentences], "scale": task.scale}
    if task.reward is not None:
        body |= {"reward.prompts": task.reward.prompts, "reward.mask": task.reward.mask}
        header |= {"reward_scale": task.reward.scale}
    states.save(path, {k: v.cpu() for k, v in body.items()}, header | {"about": dict(about)})


def load(path: Path) -> tuple[Task, Int[Tensor, " rows"], dict[str, Any]]:
    """The task, the labels and what was recorded."""
    body, header = states.load(path)
    names, sentences = tuple(header["names"]), tuple(map(tuple, header["sentences"]))
    task = Task(names, body["prompts"], body["mask"], header["scale"], sentences)
    if "reward.prompts" in body:
        second = Task(names, body["reward.prompts"], body["reward.mask"], header["reward_scale"], sentences)
        task = dataclasses.replace(task, reward=second)
    return task, body["labels"], header["about"]


def restrict(task: Task, known: Sequence[int]) -> Task:
    """The task with some of its classes only."""
    rows = torch.as_tensor(list(known))
    return dataclasses.replace(
        task,
        names=tuple(task.names[i] for i in known),
        prompts=task.prompts[rows],
        mask=task.mask[rows],
        sentences=tuple(task.sentences[i] for i in known) if task.sentences else (),
        reward=None if task.reward is None else restrict(task.reward, known),
    )
