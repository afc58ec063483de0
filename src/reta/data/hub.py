"""Data sets of Hugging Face: by name, in parquet files, or as their library saves them; read lazily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from reta.data.dataset import Dataset, Made
from reta.data.folder import listing, plain
from reta.data.shards import LABEL_FIELDS
from reta.errors import BadInput, MissingData, require

IMAGE_FIELDS = ("image", "img", "jpg", "png", "webp")


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
    """A Hugging Face data set: the name of a repository, a parquet file or a folder of such files, or a folder
    that `save_to_disk` wrote.

    Images are not decoded here. With `streaming` nothing is stored: labels are read first, images as they
    come.
    """
    hub = require("data", "datasets")
    local = Path(repo) if Path(repo).exists() else None
    try:
        rows = _loaded(hub, repo, local, split, streaming)
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
    # What lies on this disk may move; its content is hashed whatever its place.
    source = repo if local is None else local.name
    return Dataset(Path(repo).stem, keys, refs, labels, classes, version=f"hf:{source}:{split}", root=local)


def _loaded(hub: Any, repo: str, local: Path | None, split: str, streaming: bool) -> Any:
    if local is not None and local.is_file():
        # A single file has no splits: all of it is what was asked for.
        return hub.load_dataset("parquet", data_files=repo, split="train", streaming=streaming)
    if local is None or not is_saved(local):
        return hub.load_dataset(repo, split=split, streaming=streaming)
    found = hub.load_from_disk(repo)
    found = found[split] if isinstance(found, dict) else found
    return found.to_iterable_dataset() if streaming else found


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` of Hugging Face's datasets wrote this folder."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def has_images_inside(folder: Path) -> bool:
    """Whether a folder holds parquet files with images, itself or in `data`, as Hugging Face lays them out."""
    places = [p for p in (folder, folder / "data") if p.is_dir()]
    files = [p / e.name for p in places for e in listing(p) if e.name.endswith(".parquet")]
    return bool(files) and holds_images(files[0])


def holds_images(path: Path) -> bool:
    """Whether a parquet file holds the images themselves, not their paths."""
    parquet = require("data", "pyarrow.parquet")
    try:
        columns = parquet.read_schema(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is not a valid parquet file ({error})") from error
    kinds = [str(columns.field(name).type) for name in columns.names if name in IMAGE_FIELDS]
    return any(kind.startswith(("struct", "binary", "large_binary")) for kind in kinds)


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
