"""In what order images arrive. Methods with a memory depend on it; the papers shuffle, the world does not.

A stream is a small frozen dataclass; its fields go into results. `order(labels, domains)` gives the rows to visit,
`reta.run(..., order=stream.order(labels).index)`, without touching an image.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from reta.bench.arrival import Order as Order
from reta.bench.arrival import Stream as Stream
from reta.bench.arrival import confident_wrong as confident_wrong
from reta.bench.arrival import known_labels as known_labels
from reta.errors import BadInput, nearest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Iid(Stream):
    """Shuffled: what the papers report."""

    kind: ClassVar[str] = "iid"

    def arrange(self, rows: Any, labels: Any, domains: Any, rng: Any) -> np.ndarray:
        return rng.permutation(rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sorted(Stream):
    """One class after the other, the classes in random order: a folder read by name, a site visited once."""

    kind: ClassVar[str] = "sorted"

    def arrange(self, rows: Any, labels: Any, domains: Any, rng: Any) -> np.ndarray:
        rank = rng.permutation(labels.max() + 1)
        mixed = rng.permutation(len(rows))
        return rows[mixed[np.argsort(rank[labels[mixed]], kind="stable")]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Correlated(Stream):
    """Neighbours tend to be of one class. The stream is cut into `slots` (by default four per class);
    over them each class spreads its samples by a Dirichlet draw: `concentration` near 0 puts a class into one
    slot, a large one spreads it evenly. Within a slot samples are shuffled.

    >>> import torch
    >>> y = torch.arange(400) % 4
    >>> def repeats(s): return float((y[s.order(y).index].diff() == 0).float().mean())
    >>> repeats(Correlated(concentration=0.01)) > 0.5 > repeats(Correlated(concentration=1000))
    True
    """

    kind: ClassVar[str] = "correlated"
    concentration: float = 0.1
    slots: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.concentration <= 0 or (self.slots is not None and self.slots < 1):
            raise BadInput("concentration must be above 0, and slots at least 1")

    def arrange(self, rows: Any, labels: Any, domains: Any, rng: Any) -> np.ndarray:
        classes = rng.permutation(np.unique(labels))
        slots = self.slots or 4 * len(classes)
        filled: list[list[int]] = [[] for _ in range(slots)]
        for c in classes:
            mine = rng.permutation(rows[labels == c])
            shares = rng.dirichlet(np.full(slots, self.concentration))
            cuts = np.round(shares.cumsum()[:-1] * len(mine)).astype(int)
            for slot, part in zip(filled, np.split(mine, cuts), strict=True):
                slot.extend(part)
        return np.concatenate([rng.permutation(np.array(slot, np.int64)) for slot in filled])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Abrupt(Stream):
    """One domain after the other, in the order of their numbers, shuffled within."""

    kind: ClassVar[str] = "abrupt"

    def arrange(self, rows: Any, labels: Any, domains: Any, rng: Any) -> np.ndarray:
        mixed = rng.permutation(len(rows))
        return rows[mixed[np.argsort(domains[mixed], kind="stable")]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gradual(Stream):
    """One domain fades into the next: around each change, over the share `width` of a domain's length on
    either side, the two are mixed, the new one ever more likely. `width` 0 is abrupt."""

    kind: ClassVar[str] = "gradual"
    width: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.width <= 1:
            raise BadInput(f"width is a share from 0 to 1, not {self.width}")

    def arrange(self, rows: Any, labels: Any, domains: Any, rng: Any) -> np.ndarray:
        mixed = rng.permutation(len(rows))
        when = np.empty(len(rows))
        start = 0
        for domain in np.unique(domains):
            mine = mixed[domains[mixed] == domain]
            size = len(mine)
            # Jitter reaches over the border by half the width, and the neighbours' jitter reaches back.
            jitter = rng.uniform(-1, 1, size) * self.width * size / 2
            when[mine] = start + np.arange(size) + jitter
            start += size
        return rows[np.argsort(when, kind="stable")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurring(Stream):
    """Domains come in turns, `rounds` times each: what was learned once should still be there."""

    kind: ClassVar[str] = "recurring"
    rounds: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1:
            raise BadInput(f"rounds is at least 1, not {self.rounds}")

    def arrange(self, rows: Any, labels: Any, domains: Any, rng: Any) -> np.ndarray:
        parts = {
            d: np.array_split(rng.permutation(rows[domains == d]), self.rounds) for d in np.unique(domains)
        }
        return np.concatenate([parts[d][turn] for turn in range(self.rounds) for d in parts])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixed(Stream):
    """All domains at once, shuffled, equally many of each: the smallest domain says how many."""

    kind: ClassVar[str] = "mixed"

    def arrange(self, rows: Any, labels: Any, domains: Any, rng: Any) -> np.ndarray:
        names, sizes = np.unique(domains, return_counts=True)
        kept = [rng.permutation(rows[domains == d])[: sizes.min()] for d in names]
        return rng.permutation(np.concatenate(kept))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelShift(Stream):
    """Some classes are frequent, most are rare: classes in random order keep a share of their samples that
    falls exponentially from 1 to `smallest`."""

    kind: ClassVar[str] = "label-shift"
    smallest: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.smallest <= 1:
            raise BadInput(f"smallest is a share above 0, at most 1, not {self.smallest}")

    def arrange(self, rows: Any, labels: Any, domains: Any, rng: Any) -> np.ndarray:
        # Its own generator: in a stream of several passes the frequent classes stay the frequent ones.
        classes = np.random.default_rng((self.seed, 0x1ABE1)).permutation(np.unique(labels))
        shares = self.smallest ** (np.arange(len(classes)) / max(len(classes) - 1, 1))
        kept = []
        for c, share in zip(classes, shares, strict=True):
            mine = rng.permutation(rows[labels == c])
            kept.append(mine[: max(1, round(share * len(mine)))])
        return rng.permutation(np.concatenate(kept))


STREAMS: dict[str, type[Stream]] = {
    cls.kind: cls for cls in (Iid, Sorted, Correlated, Abrupt, Gradual, Recurring, Mixed, LabelShift)
}


def create(kind: str, **fields: Any) -> Stream:
    """A stream by its kind, the inverse of `parameters`.

    >>> create(**Correlated(seed=3).parameters()) == Correlated(seed=3)
    True
    """
    if kind not in STREAMS:
        raise BadInput(f"unknown stream {kind!r}: {nearest(kind, STREAMS)}")
    known = {f.name for f in dataclasses.fields(STREAMS[kind])}
    foreign = next((key for key in fields if key not in known), None)
    if foreign is not None:
        raise BadInput(f"stream {kind!r} has no field {foreign!r}: {nearest(foreign, known)}")
    if "unknown_classes" in fields:
        fields["unknown_classes"] = tuple(fields["unknown_classes"])
    return STREAMS[kind](**fields)
