"""The feature store: every image encoded once, kept on disk, read lazily by every method and stream order.

A store is a folder:

- `store.json`: what it is made from (model, data, views, precision), and how it is laid out
- `shards/00000.safetensors`, ...: features `[images, views, dim]` in fp16, with their rows in the header
- `index.parquet`: one row per image: key, label, whether it could be read, why not, and a hash of its content

The name of the folder ends in a hash of the first: change anything that matters and it is another store.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float16, Int
from torch import Tensor

from reta.errors import BadInput, BadState, MissingData, require
from reta.sample import Sample
from reta.textcache import cache_dir

FORMAT = 1


@dataclass(frozen=True)
class Bad:
    """An image that could not be read: its place, its key, the reason in one word and in words."""

    row: int
    key: str
    reason: str
    message: str


class Store:
    """A finished store, read where it lies.

    `read` gives features by row; rows of images that could not be read are zero, `ok` is False there and
    `bad` tells why: a run answers them with `valid=False`. Slices of views cost nothing: the first 16 of 64
    are read as such.

    >>> import tempfile, reta, reta.data
    >>> from reta.bench import build
    >>> model, data = reta.load("reta-mini"), reta.data.open("shapes", n=8)
    >>> store = build(data, model, recipe="crops", n_views=4, root=tempfile.mkdtemp())
    >>> store.read(torch.tensor([5, 0]), 2).shape == (2, 2, model.dim), len(store), len(store.names)
    (True, 8, 40)
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.header = read_header(self.path)
        layout = self.header["layout"]
        self.size, self.n_views, self.dim = layout["shard"], layout["views"], layout["dim"]
        self.images: int = layout["images"]
        self.names: tuple[str, ...] = tuple(self.header["names"])
        self.partial: bool = self.header["partial"]
        missing = self.missing()
        if missing:
            raise MissingData(
                f"{self.path} is not finished: {len(missing)} of {self.shards} shards are missing; run the "
                "same `reta features build` again, it goes on where it stopped"
            )
        table = read_index(self.path)
        self.keys: tuple[str, ...] = tuple(table["key"])
        self.ok: Bool[Tensor, " images"] = torch.tensor(table["ok"], dtype=torch.bool)
        self.content: tuple[str, ...] = tuple(table["content"])
        self.labels: Int[Tensor, " images"] | None = _labels(table["label"])
        self.bad = tuple(
            Bad(i, key, reason, message)
            for i, (key, ok, reason, message) in enumerate(
                zip(table["key"], table["ok"], table["reason"], table["message"], strict=True)
            )
            if not ok
        )
        if len(self.keys) != self.images:
            raise BadState(
                f"{self.path}: the index has {len(self.keys)} rows for {self.images} images; {AGAIN}"
            )
        self._map = lru_cache(maxsize=512)(self._open)

    @property
    def shards(self) -> int:
        return -(-self.images // self.size)

    @property
    def id(self) -> str:
        """The hash of everything it is made from."""
        return self.header["id"]

    @property
    def identity(self) -> dict[str, Any]:
        """What it is made from."""
        return self.header["identity"]

    def missing(self) -> list[int]:
        return [i for i in range(self.shards) if not shard_path(self.path, i).is_file()]

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} is outside a store of {len(self)}")
        index %= len(self)
        return Sample(self.read(torch.tensor([index]))[0].float(), key=self.keys[index])

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def read(
        self, index: Int[Tensor, " rows"] | Sequence[int], n_views: int | None = None
    ) -> Float16[Tensor, "rows views dim"]:
        """Features of some rows, in their order, the first `n_views` views of each (all there are, if fewer)."""
        rows = np.asarray(index, dtype=np.int64)
        if rows.size and (rows.min() < 0 or rows.max() >= self.images):
            raise BadInput(f"rows run from 0 to {self.images - 1}; asked for {rows.min()} to {rows.max()}")
        views = self.n_views if n_views is None else min(n_views, self.n_views)
        if views < 1:
            raise BadInput(f"n_views is at least 1, not {n_views}")
        out = np.empty((len(rows), views, self.dim), np.float16 if self.half else np.float32)
        shard = rows // self.size
        for number in np.unique(shard):
            where = np.flatnonzero(shard == number)
            inside = rows[where] - number * self.size
            source = self._map(int(number))
            # The common case of one shard needs no second copy.
            if len(where) == len(rows):
                np.take(source[:, :views], inside, axis=0, out=out, mode="clip")
            else:
                out[where] = source[inside, :views]
        return torch.from_numpy(out)

    @property
    def half(self) -> bool:
        return self.identity["stored"] == "fp16"

    def _open(self, number: int) -> np.ndarray:
        """A shard as an array over the mapped file: what is not asked for is not read."""
        path = shard_path(self.path, number)
        count = min(self.size, self.images - number * self.size)
        kind = np.dtype(np.float16 if self.half else np.float32)
        # Safetensors puts the one tensor right behind its header, so the file can be mapped as it is.
        wanted = count * self.n_views * self.dim * kind.itemsize
        try:
            with path.open("rb") as file:
                start = 8 + int.from_bytes(file.read(8), "little")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BadState(f"{path} cannot be read ({error}); {AGAIN}") from error
        if len(mapped) != start + wanted:
            raise BadState(f"{path} has {len(mapped)} bytes, {start + wanted} expected; {AGAIN}")
        return np.frombuffer(mapped, kind, offset=start).reshape(count, self.n_views, self.dim)


AGAIN = "run `reta features verify`, which says what to do"


def _labels(values: Sequence[int | None]) -> Tensor | None:
    return None if not values or values[0] is None else torch.tensor(values, dtype=torch.int64)


def features_root(root: str | Path | None = None) -> Path:
    """Where stores are kept: as given, or `features` in reta's cache folder (`RETA_CACHE`)."""
    return Path(root).expanduser() if root is not None else cache_dir() / "features"


def shard_path(store: Path, number: int) -> Path:
    return store / "shards" / f"{number:05}.safetensors"


def read_header(path: Path) -> dict[str, Any]:
    """`store.json`, its form checked."""
    place = path / "store.json"
    if not place.is_file():
        raise MissingData(f"{path} is not a feature store (no store.json); `reta features list` lists them")
    try:
        header = json.loads(place.read_text(encoding="utf-8"))
        if header["identity"]["format"] != FORMAT:
            raise BadState(f"{path} has format {header['identity']['format']}, this reta reads {FORMAT}")
        _ = [header[key] for key in ("id", "names", "partial")], header["layout"]["shard"]
        # Stores of before have no checksum.
        if header.pop("check", None) not in (None, checksum(header)):
            raise ValueError("its checksum is another")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadState(
            f"{place} is damaged ({error!r}); remove the store (`reta features rm`) and build it again"
        ) from error
    return header


def checksum(header: Mapping[str, Any]) -> str:
    """Of what `store.json` holds, so that a flipped bit does not pass for another class name."""
    return hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=8).hexdigest()


def read_index(path: Path) -> dict[str, list[Any]]:
    """The columns of `index.parquet`."""
    parquet = require("bench", "pyarrow.parquet")
    place = path / "index.parquet"
    if not place.is_file():
        raise MissingData(f"{path} has no index yet; run the same `reta features build` again")
    try:
        return parquet.read_table(place).to_pydict()
    except (OSError, ValueError) as error:
        raise BadState(f"{place} is damaged ({error}); {AGAIN}") from error


def stores(root: str | Path | None = None) -> list[Path]:
    """The folders of all stores below `root`, finished or not."""
    base = features_root(root)
    return sorted(p.parent for p in base.glob("*/store.json")) if base.is_dir() else []
