"""Work that a closed gate would throw away, and memory a CPU's cache would not hold: neither is needed.

A step is branch-free: both sides of a gate are computed and a mask picks. On a CPU, outside of `vmap` and
tracing, the value of a flag can be read at no cost, and what it would discard need not be computed. The
numbers are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Tensors = TypeVar("Tensors", Tensor, tuple[Tensor, ...])
BLOCK = 2**18


def known(flag: Bool[Tensor, ""]) -> bool | None:
    """The flag's value where it can be read without a wait; None on a GPU, under `vmap` and in tracing.

    >>> known(torch.tensor(True))
    True
    """
    if flag.device.type != "cpu":
        return None
    try:
        return bool(flag)
    except RuntimeError:  # what vmap and tracing answer
        return None


def when(flag: Bool[Tensor, ""], new: Callable[[], Tensors], old: Tensors) -> Tensors:
    """`new()` where the flag is set, else `old`; one tensor or a tuple of them.

    >>> when(torch.tensor(False), lambda: torch.ones(2), torch.zeros(2))
    tensor([0., 0.])
    """
    value = known(flag)
    if value is not None:
        return new() if value else old
    fresh = new()
    if isinstance(fresh, Tensor) or isinstance(old, Tensor):
        return torch.where(flag, fresh, old)  # pyright: ignore
    return tuple(torch.where(flag, a, b) for a, b in zip(fresh, old, strict=True))


def some(mask: Bool[Tensor, " rows"]) -> tuple[Int[Tensor, " chosen"], Bool[Tensor, " chosen"] | None]:
    """The rows a mask holds; or all rows and the mask, where shapes may not depend on data.

    >>> some(torch.tensor([True, False, True]))
    (tensor([0, 2]), None)
    """
    if known(mask.any()) is not None:
        return mask.nonzero()[:, 0], None
    return torch.arange(mask.shape[-1], device=mask.device), mask


def blocks(count: int, width: int, device: torch.device) -> list[slice]:
    """Slices of `count` rows of `width` numbers: small ones for a CPU, all rows at once elsewhere.

    >>> blocks(1000, 512, torch.device("cpu"))
    [slice(0, 512, None), slice(512, 1000, None)]
    """
    size = max(1, BLOCK // max(1, width) if device.type == "cpu" else count)
    return [slice(i, min(i + size, count)) for i in range(0, count, size)] or [slice(0, 0)]


def class_blocks(text: Float[Tensor, "members classes dim"]) -> list[slice]:
    """Slices of the classes of a text, as many at a time as a CPU's cache takes."""
    return blocks(text.shape[1], text[:, 0].numel(), text.device)


def piecewise(
    parts: Sequence[slice], make: Callable[[slice], Tensor], dim: int = 0, table: Tensor | None = None
) -> Tensor:
    """`make(part)` for every part, end to end along `dim`; written into `table`, of which `dim` is the first, if given.

    Small results that stay between large ones that go would leave the heap full of holes, gigabytes of them:
    a table avoids it. `vmap` and tracing know no writing in place: there none may be given.

    >>> piecewise([slice(0, 2), slice(2, 3)], lambda part: torch.arange(3)[part])
    tensor([0, 1, 2])
    """
    if table is None or len(parts) == 1:
        pieces = [make(part) for part in parts]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim)
    for part in parts:
        table[part] = make(part)
    return table
