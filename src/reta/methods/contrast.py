"""The contrastive loss between what a class looks like and what it is called: its gradient, block by block."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reta.methods.lazy import blocks, piecewise, some

KEPT = 2**24
WIDTH = 1024
NEVER = -1e30


class Contrast:
    """InfoNCE: each query must find the key of its own class among the keys; if `symmetric`, each key its query too.

    It is averaged over the n classes in `held`; where their number may decide a shape, no others are computed.
    With P the softmax of the [n, n] similarities over the keys, plus that over the queries if symmetric, and
    s = 1 or 2, the gradients are (P^T q - s q) / (n tau) and (P k - s k) / (n tau), times `weight`. The
    similarities come in blocks of keys; many classes would not leave room for all of them, then they are made
    each time.
    """

    def __init__(
        self,
        queries: Float[Tensor, "classes dim"],
        keys: Float[Tensor, "classes dim"],
        held: Bool[Tensor, " classes"],
        tau: float | Tensor,
        weight: float | Tensor = 1.0,
        symmetric: bool = False,
    ):
        self.rows, self.mask = some(held)
        self.like, self.sides = queries, 2 if symmetric else 1
        self.queries, self.keys = self._held(queries), self._held(keys)
        self.words = self.keys / tau
        self.factor = (weight / tau) / held.sum().clamp_min(1)
        count = len(self.rows)
        self.parts = blocks(count, min(count, WIDTH), keys.device)
        kept = count**2 <= KEPT
        near = [self._near(part) for part in self.parts] if kept else None
        self.total = self._total(near)
        self.errors = None if near is None else [self._error(near.pop(0), part) for part in self.parts]

    def key_grad(self) -> Float[Tensor, "classes dim"]:
        """d loss / d keys."""
        table = torch.empty_like(self.queries) if self.mask is None else None
        pulled = piecewise(self.parts, lambda part: self._pairs(part).mT @ self.queries, 0, table)
        return self._spread(torch.sub(pulled, self.queries, alpha=self.sides))

    def query_grad(self) -> Float[Tensor, "classes dim"]:
        """d loss / d queries."""
        pulled = sum(self._pairs(part) @ self.keys[part] for part in self.parts)
        return self._spread(torch.sub(pulled, self.keys, alpha=self.sides))

    def _held(self, table: Tensor) -> Tensor:
        """The rows of classes that take part, if the shape may say which."""
        return table if len(self.rows) == len(table) else table[self.rows]

    def _near(self, part: slice) -> Tensor:
        """All queries against a block of keys; pairs that do not take part are far away."""
        near = self.queries @ self.words[part].mT
        return near if self.mask is None else near.masked_fill(~(self.mask[:, None] & self.mask[part]), NEVER)

    def _total(self, near: list[Tensor] | None) -> Tensor | None:
        """ln of the sum over all keys, per query; None where one block holds them all."""
        if len(self.parts) == 1:
            return None
        table = self.queries.new_empty(len(self.parts), len(self.rows)) if self.mask is None else None
        each = [slice(i, i + 1) for i in range(len(self.parts))]

        def part(row: slice) -> Tensor:
            block = self._near(self.parts[row.start]) if near is None else near[row.start]
            return block.logsumexp(1)[None]

        return piecewise(each, part, 0, table).logsumexp(0)[:, None]

    def _error(self, near: Tensor, part: slice) -> Tensor:
        """P of a block of keys."""
        error = near.softmax(1) if self.total is None else (near - self.total).exp()
        if self.sides == 2:
            error = error + near.mT.softmax(1).mT  # down the columns a GPU takes twenty times as long
        return error if self.mask is None else error * (self.mask[:, None] & self.mask[part])

    def _pairs(self, part: slice) -> Tensor:
        if self.errors is not None:
            return self.errors[self.parts.index(part)]
        return self._error(self._near(part), part)

    def _spread(self, grad: Tensor) -> Tensor:
        """The average; zero for the classes that do not take part."""
        grad = grad * (self.factor if self.mask is None else (self.mask * self.factor)[:, None])
        if len(grad) == len(self.like):
            return grad
        return torch.zeros_like(self.like).index_copy(0, self.rows, grad)
