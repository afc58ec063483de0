"""Builds feature stores: in shards, each of which is there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from reta import state as states
from reta.bench.claims import Claim
from reta.bench.disk import free_space, readable, write_once, writing
from reta.bench.encoding import Encoder, Row
from reta.bench.identity import KINDS, digest, identify, make_views, place
from reta.bench.index import write_index
from reta.bench.store import Store, checksum, read_header, shard_path
from reta.data.dataset import Dataset
from reta.errors import BadInput, Limit, MissingData, require
from reta.progress import bar

SHARD_BYTES, SHARD_IMAGES, SHARD_VIEWS = 64 * 2**20, 2048, 2**14
GONE = ("missing", "unreadable")


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
    ray: str = "",
    **more: Any,
) -> Store:
    """Encode `n_views` views of every image of `data` with `model` and give the store of them.

    A store that is there already is opened, one that is not finished is finished: kill it at any moment and
    run it again. Several processes may build the same store at once, each takes shards that no other has;
    with `wait` each returns when all are done. Images that cannot be decoded are listed in `store.bad`.
    `workers` threads read images ahead; `ray` is the address of a cluster that encodes instead of this
    process; `more` are further fields of `reta.views.Views` (`engine="pil"`, `area=(0.5, 1)`).
    """
    require("bench", "pyarrow.parquet")
    views = make_views(model, recipe, n_views, seed, **more)
    identity = identify(data, model, views, precision)
    path = place(identity, root)
    if not (path / "store.json").is_file():
        _begin(path, identity, data, views.count, model.dim, batch, shard)
    header = read_header(path)
    encoder = Encoder(model, views, header["layout"], KINDS[precision], workers)
    Builder(path, data, encoder, header["id"]).run(progress, wait, ray)
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
            f"the store needs {readable(need)}, {path.parent} has {readable(free)} free: take fewer views, or "
            "another --root"
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
        header["check"] = checksum(header)
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
    encoder: Encoder
    id: str

    def missing(self) -> list[int]:
        """The shards that nobody has finished."""
        layout = self.encoder.layout
        count = -(-layout["images"] // layout["shard"])
        return [i for i in range(count) if not shard_path(self.path, i).is_file()]

    def rows(self, number: int) -> range:
        """The images of a shard."""
        layout = self.encoder.layout
        return range(number * layout["shard"], min((number + 1) * layout["shard"], layout["images"]))

    def left(self) -> int:
        """How many images are still to be encoded."""
        return sum(len(self.rows(i)) for i in self.missing())

    def run(self, progress: bool, wait: bool, ray: str = "") -> None:
        """Build what no other process builds, then the index."""
        index = self.path / "index.parquet"
        stale = index.is_file()
        total = self.left()
        # An index without its shards would pass for a finished store; one that came since is another's.
        if total and stale:
            index.unlink(missing_ok=True)
        steps = self._on_cluster(ray, wait) if ray and total else self._steps(wait)
        if progress and total:
            steps = bar(steps, total=total, what=f"encoding {self.data.name}")
        try:
            for _ in steps:
                pass
        except KeyboardInterrupt as stop:
            stop.add_note(self._kept())
            raise
        while not self.missing() and not index.is_file():
            claim = self.claim("index")
            if claim is not None:
                self._finish()
            elif wait:
                time.sleep(0.2)
            else:
                return
        if index.is_file():  # one who was killed after writing it left the claims
            shutil.rmtree(self.path / "locks", ignore_errors=True)

    def _kept(self) -> str:
        """What an interruption leaves, and how to go on."""
        images, size = (self.encoder.layout[k] for k in ("images", "shard"))
        kept = images - self.left()
        return (
            f"stopped; {kept:,} of {images:,} images are encoded and kept (shards of {size:,} are written whole); "
            "the same command goes on there"
        )

    def _on_cluster(self, address: str, wait: bool) -> Iterator[int]:
        from reta.bench.encode_ray import on_cluster

        return on_cluster(self, address, wait)

    def _finish(self) -> None:
        """Write the index, and clear away what killed processes left."""
        with writing(self.path):
            for left in (*self.path.glob(".store.json.*.tmp"), *self.path.glob(".index.parquet.*.tmp")):
                left.unlink(missing_ok=True)
            write_index(self.path)

    def _steps(self, wait: bool) -> Iterator[int]:
        """One item per finished image, whichever process made it."""
        done: set[int] = set()
        while todo := self.missing():
            # Lazily: claims behind the first free one must stay free for others.
            claims = ((i, self.claim(f"{i:05}")) for i in todo)
            mine = next(((i, claim) for i, claim in claims if claim is not None), None)
            if mine is not None:
                yield from self._claimed(*mine)
                done.add(mine[0])
            elif wait:
                time.sleep(0.5)
            else:
                return
            for number in set(todo) - set(self.missing()) - done:
                done.add(number)
                yield from self.rows(number)

    def claim(self, what: str) -> Claim | None:
        """The claim of a piece of work, or None where another process has it."""
        claim = Claim(self.path / "locks" / f"{what}.lock")
        with writing(self.path):
            return claim if claim.take() else None

    def _claimed(self, number: int, claim: Claim) -> Iterator[int]:
        try:
            if not shard_path(self.path, number).is_file():
                yield from self._shard(number, claim)
        finally:
            claim.release()

    def _shard(self, number: int, claim: Claim) -> Iterator[int]:
        """Encode one shard."""
        parts: list[Tensor] = []
        found: list[Row] = []
        for features, rows in self.encoder.groups(self.data, self.rows(number)):
            parts.append(features)
            found += rows
            claim.alive()
            yield from range(len(rows))
        self.keep(number, torch.cat(parts), found)

    def keep(self, number: int, features: Float[Tensor, "images views dim"], rows: list[Row]) -> None:
        """Write a shard. Only who has its claim may."""
        self._refuse_if_gone(rows)
        # Whoever holds the claim is alone here, so these are from processes that were killed.
        for left in self.path.glob(f"shards/.{number:05}.safetensors.*.tmp"):
            left.unlink(missing_ok=True)
        # Rows travel in the shard's own header: features and index cannot come apart in a crash.
        header = {"store": self.id, "shard": number, "rows": [list(row) for row in rows]}
        with writing(self.path):
            states.save(shard_path(self.path, number), {"views": features}, header)

    def _refuse_if_gone(self, rows: list[Row]) -> None:
        """A disk that went away is no set of bad images, nor is it when it went in the middle of a shard."""
        gone = [row for row in rows if row.reason in GONE]
        if gone and (1 < len(gone) == len(rows) or self._root_is_gone()):
            raise MissingData(
                f"{self.data.name}: {len(gone)} images cannot be read any more ({gone[0].message}): is the disk "
                "still there? What is built is kept; run the same command again"
            )

    def _root_is_gone(self) -> bool:
        """Whether the folder of the data is away, or empty as a mount point without its disk is."""
        root = self.data.root
        try:
            return root is not None and not any(os.scandir(root))
        except OSError:
            return True
