"""What all streams share: how ordinary samples, strangers, duplicates and poison become one order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from reta.errors import BadInput


class Order(NamedTuple):
    """Rows in the order they come, and what each is: a sample whose class the task does not know, a
    duplicate of one just seen, or poison."""

    index: Int[Tensor, " samples"]
    unknown: Bool[Tensor, " samples"]
    duplicate: Bool[Tensor, " samples"]
    poison: Bool[Tensor, " samples"]

    def clean(self) -> Bool[Tensor, " samples"]:
        """Samples on which accuracy is counted: all but unknown classes and poison."""
        return ~(self.unknown | self.poison)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream:
    """Common ground. `length` cuts the stream or, longer than the data, goes through it again in the same
    manner; `unknown`, `duplicates` and `poison` are the shares of such samples in the whole stream.

    Samples of unknown classes are the rows whose label is in `unknown_classes`; they are left out where the
    share is 0. Poison are rows of the pool given to `order`: images a model is confidently wrong about.

    >>> from reta.bench.streams import Iid
    >>> sorted(Iid(seed=1).order(torch.arange(4)).index.tolist())
    [0, 1, 2, 3]
    """

    kind: ClassVar[str] = ""
    seed: int = 0
    length: int | None = None
    unknown: float = 0.0
    unknown_classes: tuple[int, ...] = ()
    duplicates: float = 0.0
    poison: float = 0.0

    def __post_init__(self) -> None:
        for name in ("unknown", "duplicates", "poison"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{name} is a share from 0 to below 1, not {getattr(self, name)}")
        if self.unknown + self.duplicates + self.poison >= 1:
            raise BadInput("unknown, duplicates and poison together leave no ordinary sample")
        if self.unknown and not self.unknown_classes:
            raise BadInput(
                "a share of unknown samples needs unknown_classes: the labels the task does not know"
            )
        if self.length is not None and self.length < 1:
            raise BadInput(f"length is at least 1, not {self.length}")

    def parameters(self) -> dict[str, Any]:
        """What a result records: the kind and every field."""
        return {"kind": self.kind} | dataclasses.asdict(self)

    def order(
        self,
        labels: Int[Tensor, " rows"] | Sequence[int],
        domains: Int[Tensor, " rows"] | Sequence[int] | None = None,
        poison: Int[Tensor, " pool"] | Sequence[int] | None = None,
    ) -> Order:
        """The stream over rows with these labels (and domains); `poison` is the pool of poisoned rows."""
        y = np.asarray(labels, dtype=np.int64)
        d = np.zeros_like(y) if domains is None else np.asarray(domains, dtype=np.int64)
        if len(y) == 0 or y.ndim != 1 or d.shape != y.shape:
            raise BadInput(
                f"labels {y.shape} and domains {d.shape} must be two lists of one length, not empty"
            )
        rng = np.random.default_rng((self.seed, 0x7E7A))
        pool = np.empty(0, np.int64) if poison is None else np.asarray(poison, dtype=np.int64)
        # Poisoned rows are kept out of all others, or they would come twice.
        other = ~np.isin(np.arange(len(y)), pool)
        strange = np.isin(y, self.unknown_classes)
        usable = np.flatnonzero(~strange & other)
        if not len(usable):
            raise BadInput("no ordinary rows are left: all are of unknown classes or poison")
        base, count = self._base(usable, y, d, rng)
        return self._mixed(base, np.flatnonzero(strange & other), pool, count, rng)

    def _base(
        self, rows: np.ndarray, labels: np.ndarray, domains: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, int]]:
        """The ordinary rows, one pass or as many as `length` needs, and how many of the others join them."""
        found = [self.arrange(rows, labels[rows], domains[rows], rng)]
        rest = 1 - self.unknown - self.duplicates - self.poison
        total = self.length if self.length is not None else round(len(found[0]) / rest)
        count = {k: round(getattr(self, k) * total) for k in ("unknown", "duplicates", "poison")}
        wanted = len(found[0]) if self.length is None else total - sum(count.values())
        while sum(map(len, found)) < wanted:
            found.append(self.arrange(rows, labels[rows], domains[rows], rng))
        return np.concatenate(found)[:wanted], count

    def arrange(
        self, rows: np.ndarray, labels: np.ndarray, domains: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """One pass: the rows in this stream's order."""
        raise BadInput(
            f"{type(self).__name__} arranges nothing: use one of the streams of reta.bench.streams"
        )

    def _mixed(
        self, base: np.ndarray, strange: np.ndarray, pool: np.ndarray, count: dict[str, int], rng: Any
    ) -> Order:
        """Put the other samples at random places; a duplicate comes right after what it repeats."""
        for kind, source, what in (("unknown", strange, "unknown_classes"), ("poison", pool, "poison=rows")):
            if count[kind] and not len(source):
                raise BadInput(
                    f"the stream asks for {kind} samples, and there are no rows for them: give {what}"
                )
        total = len(base) + count["unknown"] + count["poison"]
        kinds = np.zeros(total, np.int64)
        places = rng.permutation(total)[: total - len(base)]
        kinds[places[: count["unknown"]]] = 1
        kinds[places[count["unknown"] :]] = 2
        index = np.empty(total, np.int64)
        index[kinds == 0] = base
        index[kinds == 1] = _drawn(strange, count["unknown"], rng)
        index[kinds == 2] = _drawn(pool, count["poison"], rng)
        # Only ordinary samples are repeated: the shares of the others stay exact.
        copies = np.ones(total, np.int64)
        np.add.at(copies, rng.choice(np.flatnonzero(kinds == 0), count["duplicates"]), 1)
        index, kinds = np.repeat(index, copies), np.repeat(kinds, copies)
        # After the repeat, the first of each group is the original.
        first = np.concatenate([[0], copies.cumsum()[:-1]])
        again = np.ones(len(index), bool)
        again[first] = False
        flags = (kinds == 1, again, kinds == 2)
        return Order(torch.from_numpy(index), *(torch.from_numpy(flag) for flag in flags))


def _drawn(pool: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` rows of a pool, each used once before any is used again."""
    if not count:
        return np.empty(0, np.int64)
    return np.concatenate([rng.permutation(pool) for _ in range(-(-count // len(pool)))])[:count]


def confident_wrong(
    probs: Float[Tensor, "rows classes"], labels: Int[Tensor, " rows"], n: int
) -> Int[Tensor, " pool"]:
    """The `n` rows a model is most confidently wrong about: a pool of poison.

    >>> probs = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> confident_wrong(probs, torch.tensor([1, 1, 1]), 1).tolist()
    [0]
    """
    wrong = (probs.argmax(-1) != labels).nonzero()[:, 0]
    if len(wrong) < n:
        raise BadInput(f"only {len(wrong)} of {len(labels)} rows are wrong; ask for no more than that")
    return wrong[probs[wrong].amax(-1).argsort(descending=True, stable=True)[:n]]


def known_labels(labels: Int[Tensor, " rows"], unknown_classes: Sequence[int]) -> Int[Tensor, " rows"]:
    """Labels as a task without the unknown classes counts them; -1 where the class is unknown.

    >>> known_labels(torch.tensor([0, 1, 2, 3]), [1]).tolist()
    [0, -1, 1, 2]
    """
    strange = torch.isin(labels, torch.tensor(list(unknown_classes), dtype=labels.dtype))
    below = sum((labels > c).long() for c in set(unknown_classes)) if unknown_classes else 0
    return torch.where(strange, -1, labels - below)
