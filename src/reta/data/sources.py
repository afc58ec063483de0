"""`reta.data.open`: one call for every kind of source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reta.data import catalog
from reta.data.catalog.locate import default_root
from reta.data.catalog.reading import open_entry
from reta.data.dataset import Dataset, Made, content
from reta.data.folder import open_folder
from reta.data.hub import has_images_inside, holds_images, is_saved, open_hub
from reta.data.lists import open_list, open_split
from reta.data.shards import has_shards, open_shards
from reta.data.vision import open_torchvision
from reta.errors import BadInput, MissingData, nearest

LISTS = (".csv", ".jsonl", ".parquet")


def open(
    source: str | Path,
    root: str | Path | None = None,
    *,
    names: Sequence[str] | Mapping[str, str] | str | Path | None = None,
    split: str = "test",
    layout: str = "auto",
    n: int | None = None,
    seed: int = 0,
    allow_partial: bool = False,
    streaming: bool = False,
) -> Dataset:
    """Open a data set by its name in the catalog, an embedded set, or a path.

    - `shapes`, `shapes-a`, ...: the embedded world (`n` images, drawn from `seed`)
    - `dtd`, `imagenet-a`, `imagenet-a:legacy_6862`, ...: a set of the catalog, below `root` (or `RETA_DATA`)
    - a folder of images, with class sub-folders or flat; a folder of tar shards or of parquet files, or one that
      `save_to_disk` of Hugging Face's datasets wrote
    - a .csv, .jsonl or .parquet list, a .parquet file with the images inside, a split file in CoOp's JSON form, a
      .tar shard, a .toml catalog entry
    - `torchvision:DTD`, `hf:owner/name`
    - any of these with a corruption: `shapes@fog-3`, `photos/@gaussian_noise-5`

    `names` is a list of class names, a text file with one a line, or {folder: name}; `n` takes the first n
    images of any set. A set of the catalog whose count differs is refused unless `allow_partial`.

    >>> data = open("shapes", n=40)
    >>> len(data), data.image(0).size, data.labels[0] < len(data.names)
    (40, (64, 64), True)
    >>> open("shapes@fog-3", n=2).name
    'shapes@fog-3'
    """
    text, corruption = split_corruption(str(source))
    base = None if root is None else Path(root)
    if n is not None and n < 1:
        raise BadInput(f"n is at least 1, not {n}")
    try:
        data = _open(text, base, _names(names), split, layout, n, seed, allow_partial, streaming)
    except PermissionError as error:
        raise MissingData(
            f"cannot read {error.filename or text}: {error.strerror}; check its rights"
        ) from error
    if n is not None and n < len(data):
        data = data.take(range(n))
    if corruption is None:
        return data
    from reta.data.corrupted import corrupted

    return corrupted(data, *corruption, seed=seed)


def split_corruption(text: str) -> tuple[str, tuple[str, int] | None]:
    """`name@fog-3` -> the name and the corruption; a path that has an @ itself is left alone.

    >>> split_corruption("dtd@fog-3"), split_corruption("dtd")
    (('dtd', ('fog', 3)), ('dtd', None))
    """
    if "@" not in Path(text).name or Path(text).exists():
        return text, None
    from reta.data import corruptions

    found = corruptions.parse(text)
    assert found.corruption is not None
    return found.base, (found.corruption, found.severity)


def _open(
    text: str,
    root: Path | None,
    names: Any,
    split: str,
    layout: str,
    n: int | None,
    seed: int,
    allow_partial: bool,
    streaming: bool,
) -> Dataset:
    path = Path(text)
    if text in _embedded():
        return _world(text, n, seed)
    if text.startswith("torchvision:"):
        return open_torchvision(text.partition(":")[2], root or default_root(), split)
    if text.startswith("hf:"):
        return open_hub(text.partition(":")[2], split=split, names=_listed(names), streaming=streaming)
    name, _, variant = text.partition(":")
    if name in catalog.names():
        return open_entry(catalog.entry(name, variant), root or default_root(), allow_partial=allow_partial)
    if path.is_dir():
        if layout == "auto" and has_shards(path):
            return open_shards(path, split=split, names=_listed(names))
        if layout == "auto" and (is_saved(path) or has_images_inside(path)):
            return open_hub(text, split=split, names=_listed(names), streaming=streaming)
        return open_folder(path, names=names, layout=layout)
    if path.is_file():
        return _open_file(path, root, names, split, allow_partial, streaming)
    known = (*_embedded(), *catalog.names())
    raise MissingData(f"no such path, and no data set of this name: {text!r}; {nearest(name, known)}")


def _open_file(
    path: Path, root: Path | None, names: Any, split: str, allow_partial: bool, streaming: bool
) -> Dataset:
    kind = path.suffix.lower()
    if kind == ".parquet" and holds_images(path):
        return open_hub(str(path), split=split, names=_listed(names), streaming=streaming)
    if kind in LISTS:
        return open_list(path, root=root, names=_listed(names))
    if kind == ".json":
        return open_split(path, root=root or path.parent, split=split)
    if kind == ".tar":
        return open_shards(path, names=_listed(names))
    if kind == ".toml":
        return open_entry(catalog.read(path), root or path.parent, allow_partial=allow_partial)
    raise BadInput(f"{path} is not a folder or a file of {', '.join(LISTS)}, .json, .tar, .toml")


def _embedded() -> tuple[str, ...]:
    from reta.data import shapes

    return shapes.SETS


def _world(name: str, n: int | None, seed: int) -> Dataset:
    """An embedded set. A few of its pictures stand for the renderer in the version."""
    from reta.data import shapes

    whole = len(shapes.open(name))
    world = shapes.open(name, n=n or whole, seed=seed)
    refs = [Made(_Drawn(name, i, seed)) for i in range(len(world))]
    drawn = "".join(content(Made(_Drawn(name, i, seed))) for i in range(4))
    probe = hashlib.blake2b(drawn.encode(), digest_size=6).hexdigest()
    return Dataset(
        name,
        tuple(world.keys),
        refs,
        tuple(world.labels),
        tuple(world.names),
        templates={"single": ("a photo of a {}.",)},
        prompts=shapes.descriptions(),
        version=f"{name}/{probe} seed {seed}",
        partial=len(world) < whole,
        fixed=True,
    )


class _Drawn:
    """A picture of the embedded world, drawn when it is called; it can be sent to a worker process."""

    def __init__(self, name: str, index: int, seed: int):
        self.place = (name, index, seed)

    def __call__(self) -> Any:
        from reta.data import shapes

        return shapes.draw(*self.place)


def _names(names: Any) -> Any:
    if names is None or isinstance(names, Mapping):
        return names
    from reta.templates import class_list

    return class_list(names)


def _listed(names: Any) -> list[str] | None:
    return list(names.values()) if isinstance(names, Mapping) else names
