"""Encodes the images of one shard, in the same groups on whichever machine: the same images, the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reta.data.dataset import Dataset
from reta.errors import BadImage
from reta.views import Views


class Row(NamedTuple):
    """One image as the index knows it."""

    key: str
    label: int | None
    ok: bool
    reason: str
    message: str
    content: str


@dataclass
class Encoder:
    """What turns images into rows of a shard. `layout` is the store's, `kind` the precision that is kept."""

    model: Any
    views: Views
    layout: dict[str, int]
    kind: torch.dtype
    workers: int

    def groups(
        self, data: Dataset, rows: range
    ) -> Iterator[tuple[Float[Tensor, "images views dim"], list[Row]]]:
        """Features and rows of some images of `data`, group by group; `workers` threads read ahead."""
        # From the layout on disk, not from this call: other groups could round the last bit otherwise.
        group = max(1, self.layout["batch"] // self.layout["views"])
        with ThreadPoolExecutor(max(1, self.workers)) as pool:
            for here, loaded in _ahead(pool, data, rows, group):
                yield self._encode(data, here, loaded)

    def _encode(self, data: Dataset, here: range, loaded: list[Any]) -> tuple[Tensor, list[Row]]:
        """Features of a group, zero where the image is bad."""
        good = [i for i, item in enumerate(loaded) if not isinstance(item, BadImage)]
        out = torch.zeros(len(loaded), self.layout["views"], self.layout["dim"], dtype=self.kind)
        if good:
            keys = [data.keys[here[i]] for i in good]
            device = self.model.device if self.views.engine == "batched" else None
            pixels = self.views.make_batch([loaded[i][0] for i in good], keys, device)
            with torch.no_grad():
                features = self.model.images(pixels.flatten(0, 1), batch=self.layout["batch"])
            out[good] = features.view(len(good), *out.shape[1:]).to("cpu", self.kind)
        rows = [_row(data, here[i], item, out[i]) for i, item in enumerate(loaded)]
        # A NaN in the file would look like damage to `verify`; zero is what the guard refuses as well.
        out[[i for i, row in enumerate(rows) if not row.ok]] = 0
        return out, rows


def _row(data: Dataset, place: int, item: Any, features: Float[Tensor, "views dim"]) -> Row:
    key = data.keys[place]
    label = None if data.labels is None else data.labels[place]
    if isinstance(item, BadImage):
        return Row(key, label, False, item.reason, str(item), "")
    if not bool(features.isfinite().all()):
        return Row(key, label, False, "features", "the model's features are not finite", item[1])
    return Row(key, label, True, "", "", item[1])


def _ahead(
    pool: ThreadPoolExecutor, data: Dataset, rows: range, group: int
) -> Iterator[tuple[range, list[Any]]]:
    """Groups of loaded images, the next group being read while one is encoded."""
    groups = [range(i, min(i + group, rows.stop)) for i in range(rows.start, rows.stop, group)]
    waiting: list[Future[Any]] = [pool.submit(_load, data, i) for i in groups[0]]
    for here, after in zip(groups, [*groups[1:], range(0)], strict=True):
        current, waiting = waiting, [pool.submit(_load, data, i) for i in after]
        yield here, [future.result() for future in current]


def _load(data: Dataset, row: int) -> Any:
    try:
        return data.fetch(row)
    except BadImage as error:
        return error
