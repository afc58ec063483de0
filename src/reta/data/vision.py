"""Any data set class of torchvision, by its name; nothing is downloaded here."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reta.data.dataset import Dataset, File, Made
from reta.data.folder import plain
from reta.errors import BadInput, MissingData, nearest

LABELS = ("_labels", "targets", "y", "labels")
FILES = ("_image_files", "_images")


def open_torchvision(name: str, root: Path, split: str = "test") -> Dataset:
    """`torchvision.datasets.NAME` with labels and class names, images read one at a time."""
    data = build(name, root, split)
    labels = _labels(data)
    classes = getattr(data, "classes", None) or getattr(data, "categories", None)
    raw: Any = classes if classes is not None else [str(i) for i in range(max(labels) + 1)]
    names = tuple(plain(_first(name)) for name in raw)
    # Files keep their bytes for the content hash; torchvision would decode them without our limits.
    files = _files(data, len(labels))
    if files is not None:
        base = Path(data.root)
        keys = tuple(
            p.relative_to(base).as_posix() if p.is_relative_to(base) else p.as_posix() for p in files
        )
        return Dataset(
            name, keys, [File(p) for p in files], labels, names, version=f"torchvision:{split}", root=root
        )
    keys = tuple(f"{split}/{i}" for i in range(len(labels)))
    refs = [Made(partial(_image, data, i)) for i in range(len(labels))]
    return Dataset(name, keys, refs, labels, names, version=f"torchvision:{split}", root=root)


def build(name: str, root: Path, split: str = "test", download: bool = False) -> Any:
    """The torchvision object itself. Classes without a split argument give all they have."""
    from torchvision import datasets

    known = [n for n in dir(datasets) if n[0].isupper()]
    if name not in known:
        raise BadInput(f"torchvision has no data set {name!r}: {nearest(name, known)}")
    cls = getattr(datasets, name)
    takes = inspect.signature(cls).parameters
    if "root" not in takes:
        raise BadInput(f"torchvision.datasets.{name} reads no folder, so it cannot be opened by its name")
    options: dict[str, Any] = {"split": split} if "split" in takes else {}
    if "train" in takes:
        options["train"] = split == "train"
    if "download" in takes:
        options["download"] = download
    try:
        return cls(root, **options)
    except (RuntimeError, FileNotFoundError, NotADirectoryError) as error:
        raise MissingData(f"torchvision finds no {name} in {root}: {error}") from error
    except (ValueError, TypeError) as error:
        raise BadInput(f"torchvision refuses {name} with a folder and a split: {error}") from error


def _labels(data: Any) -> tuple[int, ...]:
    for name in LABELS:
        found: Any = getattr(data, name, None)
        if isinstance(found, Sequence) or hasattr(found, "tolist"):
            return tuple(int(x) for x in found)
    samples = getattr(data, "samples", None) or getattr(data, "_samples", None)
    if samples:
        return tuple(int(label) for _, label in samples)
    return tuple(int(data[i][1]) for i in range(len(data)))


def _files(data: Any, count: int) -> list[Path] | None:
    """The files behind the images, where the class tells; others are read through the class."""
    for name in FILES:
        found = getattr(data, name, None)
        if isinstance(found, list) and len(found) == count:
            return [Path(p) for p in found]
    samples = getattr(data, "samples", None) or getattr(data, "_samples", None)
    if isinstance(samples, list) and len(samples) == count and isinstance(samples[0][0], str | Path):
        return [Path(p) for p, _ in samples]
    return None


def _image(data: Any, index: int) -> Any:
    return data[index][0]


def _first(name: Any) -> str:
    return name if isinstance(name, str) else str(name[0])
