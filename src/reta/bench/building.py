"""Builds feature stores: in shards, each of which is there whole or not at all."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reta import state as states
from reta.bench.claims import Claim
from reta.bench.disk import free_space, write_once, writing
from reta.bench.identity import KINDS, digest, identify, make_views, place
from reta.bench.index import write_index
from reta.bench.store import Store, read_header, shard_path
from reta.data.dataset import Dataset
from reta.errors import BadImage, BadInput, Limit, MissingData, require
from reta.progress import bar
from reta.views import Views

SHARD_BYTES, SHARD_IMAGES, SHARD_VIEWS = 64 * 2**20, 2048, 2**14
GONE = ("missing", "unreadable")


class Row(NamedTuple):
    """One image as the index knows it."""

    key: str
    label: int | None
    ok: bool
    reason: str
    message: str
    content: str


def build(
    data: Dataset,
    model: Any,
    recipe: str = "augmix",
    n_views: int = 64,
    seed: int = 0,
    *,
    root: str | Path | None = None,
    precision: str = "fp16",
    batch: int = 256,
    shard: int | None = None,
    workers: int = 2,
    progress: bool = False,
    wait: bool = True,
    **more: Any,
) -> Store:
    """Encode `n_views` views of every image of `data` with `model` and give the store of them.

    A store that is there already is opened, one that is not finished is finished: kill it at any moment and
    run it again. Several processes may build the same store at once, each takes shards that no other has;
    with `wait` each returns when all are done. Images that cannot be decoded are listed in `store.bad`.
    `workers` threads read images ahead; `more` are further fields of `reta.views.Views` (`engine="pil"`,
    `area=(0.5, 1)`).
    """
    require("bench", "pyarrow.parquet")
    views = make_views(model, recipe, n_views, seed, **more)
    identity = identify(data, model, views, precision)
    path = place(identity, root)
    if not (path / "store.json").is_file():
        _begin(path, identity, data, views.count, model.dim, batch, shard)
    header = read_header(path)
    Builder(path, data, model, views, header["layout"], header["id"], KINDS[precision], workers).run(
        progress, wait
    )
    return Store(path)


def _begin(
    path: Path, identity: dict[str, Any], data: Dataset, views: int, dim: int, batch: int, shard: int | None
) -> None:
    """Write `store.json`; refuse to begin what will not fit on the disk."""
    if batch < 1 or (shard is not None and shard < 1):
        raise BadInput(f"batch={batch} and shard={shard} must be at least 1")
    row = views * dim * KINDS[identity["stored"]].itemsize
    need, free = row * len(data), free_space(path)
    if need > free:
        raise Limit(
            f"the store needs {need / 2**30:.2f} GiB, {path.parent} has {free / 2**30:.2f} GiB free: take fewer "
            "views, or another --root"
        )
    size = shard or default_shard(row, views, len(data))
    header = {
        "id": digest(identity),
        "identity": identity,
        "layout": {"images": len(data), "views": views, "dim": dim, "shard": size, "batch": batch},
        "names": list(data.names),
        "partial": data.partial,
        "notes": list(data.notes),
    }
    with writing(path):
        write_once(path / "store.json", json.dumps(header, indent=1, sort_keys=True) + "\n")


def default_shard(row: int, views: int, images: int) -> int:
    """Images per shard: a file of modest size, and no more work than one is ready to lose.

    >>> default_shard(row=64 * 512 * 2, views=64, images=50_000)
    256
    """
    return max(1, min(SHARD_BYTES // row, SHARD_VIEWS // views, SHARD_IMAGES, images))


@dataclass
class Builder:
    """One process's work on a store."""

    path: Path
    data: Dataset
    model: Any
    views: Views
    layout: dict[str, int]
    id: str
    kind: torch.dtype
    workers: int

    def missing(self) -> list[int]:
        count = -(-self.layout["images"] // self.layout["shard"])
        return [i for i in range(count) if not shard_path(self.path, i).is_file()]

    def run(self, progress: bool, wait: bool) -> None:
        """Build what no other process builds, then the index."""
        total = sum(len(self._rows(i)) for i in self.missing())
        if total:
            # An index without its shards would pass for a finished store.
            (self.path / "index.parquet").unlink(missing_ok=True)
        steps = self._steps(wait)
        for _ in bar(steps, total=total, what=f"encoding {self.data.name}") if progress and total else steps:
            pass
        while not self.missing() and not (self.path / "index.parquet").is_file():
            claim = Claim(self.path / "locks" / "index.lock")
            if self._take(claim):
                self._finish()
            elif wait:
                time.sleep(0.2)
            else:
                return

    def _finish(self) -> None:
        """Write the index, and clear away what killed processes left."""
        with writing(self.path):
            for left in (*self.path.glob(".store.json.*.tmp"), *self.path.glob(".index.parquet.*.tmp")):
                left.unlink(missing_ok=True)
            write_index(self.path)
            shutil.rmtree(self.path / "locks", ignore_errors=True)

    def _steps(self, wait: bool) -> Iterator[int]:
        """One item per finished image, whichever process made it."""
        done: set[int] = set()
        while todo := self.missing():
            # Lazily: claims behind the first free one must stay free for others.
            claims = ((i, Claim(self.path / "locks" / f"{i:05}.lock")) for i in todo)
            mine = next(((i, claim) for i, claim in claims if self._take(claim)), None)
            if mine is not None:
                yield from self._claimed(*mine)
                done.add(mine[0])
            elif wait:
                time.sleep(0.5)
            else:
                return
            for number in set(todo) - set(self.missing()) - done:
                done.add(number)
                yield from self._rows(number)

    def _take(self, claim: Claim) -> bool:
        with writing(self.path):
            return claim.take()

    def _claimed(self, number: int, claim: Claim) -> Iterator[int]:
        try:
            if not shard_path(self.path, number).is_file():
                yield from self._shard(number, claim)
        finally:
            claim.release()

    def _rows(self, number: int) -> range:
        size = self.layout["shard"]
        return range(number * size, min((number + 1) * size, self.layout["images"]))

    def _shard(self, number: int, claim: Claim) -> Iterator[int]:
        """Encode one shard, in groups of images that depend on nothing but the layout."""
        # Whoever holds the claim is alone here, so these are from processes that were killed.
        for left in self.path.glob(f"shards/.{number:05}.safetensors.*.tmp"):
            left.unlink(missing_ok=True)
        parts: list[Tensor] = []
        found: list[Row] = []
        # From the layout on disk, not from this call: other groups could round the last bit otherwise.
        group = max(1, self.layout["batch"] // self.layout["views"])
        with ThreadPoolExecutor(max(1, self.workers)) as pool:
            for start, loaded in _ahead(pool, self._load, self._rows(number), group):
                features, rows = self._encode(start, loaded)
                parts.append(features)
                found += rows
                claim.alive()
                yield from range(len(rows))
        # Rows travel in the shard's own header: features and index cannot come apart in a crash.
        self._refuse_if_gone(found)
        header = {"store": self.id, "shard": number, "rows": [list(row) for row in found]}
        with writing(self.path):
            states.save(shard_path(self.path, number), {"views": torch.cat(parts)}, header)

    def _refuse_if_gone(self, rows: list[Row]) -> None:
        """A disk that went away is no set of bad images."""
        if len(rows) > 1 and all(row.reason in GONE for row in rows):
            raise MissingData(
                f"{self.data.name}: {len(rows)} images in a row cannot be read any more ({rows[0].message}): is the "
                "disk still there? What is built is kept; run the same command again"
            )

    def _load(self, row: int) -> Any:
        try:
            return self.data.fetch(row)
        except BadImage as error:
            return error

    def _encode(self, start: int, loaded: list[Any]) -> tuple[Tensor, list[Row]]:
        """Features `[images, views, dim]` of a group, zero where the image is bad."""
        good = [i for i, item in enumerate(loaded) if not isinstance(item, BadImage)]
        out = torch.zeros(len(loaded), self.layout["views"], self.layout["dim"], dtype=self.kind)
        if good:
            keys = [self.data.keys[start + i] for i in good]
            device = self.model.device if self.views.engine == "batched" else None
            pixels = self.views.make_batch([loaded[i][0] for i in good], keys, device)
            with torch.no_grad():
                features = self.model.images(pixels.flatten(0, 1))
            out[good] = features.view(len(good), *out.shape[1:]).to("cpu", self.kind)
        rows = [self._row(start + i, item, out[i]) for i, item in enumerate(loaded)]
        # A NaN in the file would look like damage to `verify`; zero is what the guard refuses as well.
        out[[i for i, row in enumerate(rows) if not row.ok]] = 0
        return out, rows

    def _row(self, place: int, item: Any, features: Tensor) -> Row:
        key = self.data.keys[place]
        label = None if self.data.labels is None else self.data.labels[place]
        if isinstance(item, BadImage):
            return Row(key, label, False, item.reason, str(item), "")
        if not bool(features.isfinite().all()):
            return Row(key, label, False, "features", "the model's features are not finite", item[1])
        return Row(key, label, True, "", "", item[1])


def _ahead(pool: ThreadPoolExecutor, load: Any, rows: range, group: int) -> Iterator[tuple[int, list[Any]]]:
    """Groups of loaded images, the next group being read while one is encoded."""
    groups = [range(i, min(i + group, rows.stop)) for i in range(rows.start, rows.stop, group)]
    waiting: list[Future[Any]] = [pool.submit(load, i) for i in groups[0]]
    for here, after in zip(groups, [*groups[1:], range(0)], strict=True):
        current, waiting = waiting, [pool.submit(load, i) for i in after]
        yield here.start, [future.result() for future in current]
