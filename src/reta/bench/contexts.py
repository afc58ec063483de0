"""Contexts that CoOp learned: given as a file, or learned on the embedded world, and known by their content."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from reta.bench import processes
from reta.task import Task

SHOTS, VIEWS, EPOCHS, TRAIN_SEED = 16, 8, 50, 1


def wants_context(method: Any) -> bool:
    """Whether a method is nothing without a learned context, and has none yet."""
    field = next((f for f in dataclasses.fields(method) if f.name == "context"), None)
    return field is not None and type(method).__name__ == "CoOp" and method.context == field.default


def learned(method: Any, model: Any, root: Path, given: Path | None) -> Any:
    """The method with its context: the file given, or one learned on other pictures of the embedded world."""
    if not wants_context(method):
        return method
    path = given if given is not None else fitted(model, root)
    return dataclasses.replace(method, context=str(path))


def fitted(model: Any, root: Path) -> Path:
    """A context learned from 16 pictures per class of `shapes`, none of which is in the test set."""
    from reta import coop
    from reta.data import open as open_data
    from reta.data import shapes
    from reta.views import Views

    path = root / "contexts" / f"{model.fingerprint}-shapes-{SHOTS}.safetensors"
    if path.is_file():
        return path
    source = open_data("shapes", n=1000, seed=TRAIN_SEED)
    labels = torch.tensor(source.labels)
    rows = coop.few_shots(labels, SHOTS, TRAIN_SEED).tolist()
    pre = model.preprocess
    maker = Views(
        "crops", VIEWS, pre.size, TRAIN_SEED, interpolation=pre.interpolation, resize_mode=pre.resize_mode
    )
    task = Task.build(model, shapes.classes())
    # The last digits are part of the identity of CoOp's jobs; and threads would mostly wait for each other here.
    with processes.one_thread():
        views = torch.stack([model.images(maker.make(source.image(i), source.keys[i])).cpu() for i in rows])
        context, _ = coop.fit(task, views, labels[rows], epochs=EPOCHS, seed=TRAIN_SEED)
    path.parent.mkdir(parents=True, exist_ok=True)
    coop.save(path, context, task, data="shapes", shots=SHOTS, seed=TRAIN_SEED)
    return path


def named(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as an identity has them: a file by a hash of its content.

    >>> named({"context": "a photo of a", "steps": 1})
    {'context': 'a photo of a', 'steps': 1}
    """
    return {key: _content(value) if _is_file(value) else value for key, value in fields.items()}


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and value.endswith(".safetensors") and Path(value).is_file()


def _content(path: str) -> str:
    with Path(path).open("rb") as file:
        return f"file {hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()}"
