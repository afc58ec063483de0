"""Several tables of features as one, for streams that go through several domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from reta.errors import BadInput
from reta.sample import Sample


class Joined:
    """Stores (or tensors `[N,V,D]` with labels) one after the other: rows count on, `domains` says which
    table a row is from. What `reta.run` can read, it can read joined.

    >>> a, b = torch.zeros(3, 4, 8), torch.ones(2, 4, 8)
    >>> both = Joined([a, b], labels=[torch.tensor([0, 1, 0]), torch.tensor([1, 1])])
    >>> len(both), both.domains.tolist(), both.read(torch.tensor([4, 0]), 1)[:, 0, 0].tolist()
    (5, [0, 0, 0, 1, 1], [1.0, 0.0])
    """

    def __init__(self, tables: Sequence[Any], labels: Sequence[Tensor] | None = None):
        if not tables:
            raise BadInput("nothing to join: give at least one table")
        self.tables = list(tables)
        self.lengths = [len(t) for t in self.tables]
        self.starts = torch.tensor([0, *self.lengths]).cumsum(0)
        self.domains: Int[Tensor, " rows"] = torch.repeat_interleave(torch.tensor(self.lengths))
        names = [tuple(getattr(t, "names", ()) or ()) for t in self.tables]
        if any(n != names[0] for n in names):
            raise BadInput(
                "the tables have different class names; only sets with the same classes can be joined"
            )
        self.names = names[0]
        parts = labels if labels is not None else [getattr(t, "labels", None) for t in self.tables]
        known = [p for p in parts if p is not None]
        self.labels = (
            torch.cat([torch.as_tensor(p) for p in known]) if len(known) == len(self.tables) else None
        )
        if self.labels is not None and len(self.labels) != len(self):
            raise BadInput(f"{len(self.labels)} labels for {len(self)} rows")
        self.keys = tuple(key for t in self.tables for key in getattr(t, "keys", ())) or None

    def __len__(self) -> int:
        return sum(self.lengths)

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} is outside a table of {len(self)}")
        index %= len(self)
        key = str(index) if self.keys is None else self.keys[index]
        return Sample(self.read(torch.tensor([index]))[0].float(), key=key)

    def read(
        self, index: Int[Tensor, " rows"], n_views: int | None = None
    ) -> Float[Tensor, "rows views dim"]:
        """Features of some rows, in their order, the first `n_views` views of each."""
        index = torch.as_tensor(index)
        home = self.domains[index]
        parts: list[tuple[Tensor, Tensor]] = []
        for number in home.unique().tolist():
            where = (home == number).nonzero()[:, 0]
            parts.append((where, self._part(number, index[where] - self.starts[number], n_views)))
        # Tables may differ in views; a block of rows has one shape.
        fewest = min((part.shape[1] for _, part in parts), default=0)
        if not parts:
            raise BadInput("no rows asked for")
        out = parts[0][1].new_empty(len(index), fewest, parts[0][1].shape[2])
        for where, part in parts:
            out[where] = part[:, :fewest].to(out.dtype)
        return out

    def _part(self, number: int, rows: Tensor, n_views: int | None) -> Tensor:
        table = self.tables[number]
        return (
            table[rows.to(table.device), :n_views] if isinstance(table, Tensor) else table.read(rows, n_views)
        )
