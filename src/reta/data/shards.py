"""Images inside larger files: tar shards in WebDataset form, and Hugging Face data sets, both lazily."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from reta.data.dataset import Dataset, Made, Part
from reta.data.folder import is_image, listing, plain, walk
from reta.errors import BadInput, MissingData, require

LABEL_FIELDS = ("label", "cls", "class", "fine_label", "labels")
IMAGE_FIELDS = ("image", "img", "jpg", "png", "webp")


def open_shards(place: Path, *, split: str = "test", names: Sequence[str] | None = None) -> Dataset:
    """Tar shards: members NAME.jpg (or .png, ...) with NAME.cls or NAME.json beside them for the label.

    Only the headers are read here; an image is read from its offset when it is asked for. `classnames.txt`
    beside the shards gives the names. Where `nshards.txt` says how many shards there are, that many must be
    there.
    """
    tars = _tars(place, split)
    rows = [row for tar in tars for row in _members(tar)]
    if not rows:
        raise MissingData(f"no images in the {len(tars)} shards of {place}")
    marked = [label for _, _, label in rows if label is not None]
    if marked and len(marked) != len(rows):
        raise BadInput(
            f"{place}: {len(rows) - len(marked)} of {len(rows)} images have no .cls or .json label"
        )
    labels = tuple(marked) or None
    given = names if names is not None else _classnames(place)
    if given is None:
        given = [str(i) for i in range(max(labels) + 1)] if labels else []
    return Dataset(
        place.stem,
        tuple(key for key, _, _ in rows),
        [part for _, part, _ in rows],
        labels,
        tuple(plain(n) for n in given),
        version=f"shards:{split}",
        root=place if place.is_dir() else place.parent,
    )


def _tars(place: Path, split: str) -> list[Path]:
    if place.is_file():
        return [place]
    folder = place / split if (place / split).is_dir() else place
    tars = [p for p in walk(folder) if p.suffix == ".tar"]
    if not tars:
        raise MissingData(f"no .tar shards in {folder}")
    declared = folder / "nshards.txt"
    # A shard that is silently absent gives wrong numbers, not an error.
    if declared.is_file() and declared.read_text().strip() != str(len(tars)):
        raise MissingData(
            f"{folder} has {len(tars)} shards, nshards.txt says {declared.read_text().strip()}: fetch the rest"
        )
    # By length first: 10.tar comes after 9.tar.
    return sorted(tars, key=lambda p: (len(p.name), p.name))


def _members(tar: Path) -> list[tuple[str, Part, int | None]]:
    """(key, image, label) of one archive."""
    images: dict[str, Part] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(tar, "r:") as archive:
            for member in archive:
                stem = member.name.rpartition(".")[0]
                if member.isfile() and is_image(member.name):
                    images[stem] = Part(tar, member.offset_data, member.size)
                elif member.isfile() and member.name.endswith((".cls", ".json")):
                    label = _label(archive.extractfile(member).read(), member.name)  # type: ignore[union-attr]
                    if label is not None:
                        labels[stem] = label
    except (tarfile.TarError, OSError) as error:
        raise MissingData(f"{tar} is not a whole, uncompressed tar file ({error}); fetch it again") from error
    return [(f"{tar.stem}/{stem}", part, labels.get(stem)) for stem, part in images.items()]


def _label(data: bytes, name: str) -> int | None:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadInput(f"{name}: {data[:20]!r} is no label: a number is expected") from error
    if isinstance(value, dict):
        value = next((value[f] for f in LABEL_FIELDS if f in value), None)
    return None if value is None else int(value)


def _classnames(place: Path) -> list[str] | None:
    folder = place if place.is_dir() else place.parent
    for path in (folder / "classnames.txt", folder.parent / "classnames.txt"):
        if path.is_file():
            return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return None


def has_shards(folder: Path) -> bool:
    """Whether a folder holds tar shards, itself or in its test split."""
    places = [p for p in (folder, folder / "test") if p.is_dir()]
    return any(e.name.endswith(".tar") for p in places for e in listing(p))


class Rows:
    """The images of a streamed Hugging Face split, by position, for several readers. Going forward reads on
    and keeps the last few rows; going further back starts over: a store is built in order and reads each once.
    """

    KEPT = 1024

    def __init__(self, stream: Iterable[Any], field: str):
        self.stream, self.field, self.lock = stream, field, Lock()
        self.rows, self.at = iter(stream), 0
        self.kept: dict[int, Any] = {}

    def image(self, index: int) -> Any:
        with self.lock:
            if index < self.at and index not in self.kept:
                self.rows, self.at, self.kept = iter(self.stream), 0, {}
            while self.at <= index:
                row = next(self.rows, None)
                if row is None:
                    raise MissingData(f"the stream ended before image {index}; run it again")
                self.kept[self.at] = row[self.field]
                self.kept.pop(self.at - self.KEPT, None)
                self.at += 1
            return _decoded(self.kept[index])


def open_hub(
    repo: str, *, split: str = "test", names: Sequence[str] | None = None, streaming: bool = False
) -> Dataset:
    """A Hugging Face data set, by the name of its repository or a folder of parquet files.

    Images are not decoded here. With `streaming` nothing is stored: labels are read first, images as they
    come.
    """
    hub = require("data", "datasets")
    try:
        rows = hub.load_dataset(repo, split=split, streaming=streaming)
    except Exception as error:  # the library raises a dozen kinds for "not there"
        raise MissingData(
            f"Hugging Face's datasets cannot open {repo!r}, split {split!r}: {error}"
        ) from error
    picture = _field(rows.features, IMAGE_FIELDS, repo, "images")
    mark = next((f for f in LABEL_FIELDS if f in rows.features), None)
    # Undecoded: our own decoder has the limits and the typed errors.
    rows = rows.cast_column(picture, hub.Image(decode=False))
    values = None if mark is None else [row[mark] for row in rows.select_columns([mark])]
    count = len(values) if values is not None else sum(1 for _ in rows)
    labels, classes = None, tuple(names or ())
    if values is not None and mark is not None:
        labels = tuple(int(v) for v in values)
        known = names or getattr(rows.features[mark], "names", None) or map(str, range(max(labels) + 1))
        classes = tuple(plain(n) for n in known)
    reader = Rows(rows, picture)
    fetch = reader.image if streaming else partial(_row, rows, picture)
    refs = [Made(partial(fetch, i)) for i in range(count)]
    keys = tuple(f"{split}/{i}" for i in range(count))
    return Dataset(Path(repo).name, keys, refs, labels, classes, version=f"hf:{repo}:{split}")


def _field(features: Any, known: Sequence[str], repo: str, what: str) -> str:
    found = next((f for f in known if f in features), None)
    if found is None:
        raise BadInput(
            f"{repo} has no field of {what} named {', '.join(known)}: it has {', '.join(features)}"
        )
    return found


def _row(rows: Any, field: str, index: int) -> Any:
    return _decoded(rows[index][field])


def _decoded(value: Any) -> Any:
    """What `images.decode` takes: the bytes, or the path where only that is kept."""
    if isinstance(value, dict):
        return value["bytes"] if value.get("bytes") is not None else Path(value["path"])
    return value
