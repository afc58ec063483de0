"""Work that a closed gate would throw away, skipped where asking is free.

A step is branch-free: both sides of a gate are computed and a mask picks. On a CPU, outside of `vmap` and
tracing, the value of a flag can be read at no cost, and what it would discard need not be computed. The
numbers are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Tensors = TypeVar("Tensors", Tensor, tuple[Tensor, ...])


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


def when(flag: Bool[Tensor, ""], new: Callable[[], Tensors], old: Tensors | Callable[[], Tensors]) -> Tensors:
    """`new()` where the flag is set, else `old`, made or to be made; one tensor or a tuple of them.

    >>> when(torch.tensor(False), lambda: torch.ones(2), torch.zeros(2))
    tensor([0., 0.])
    """
    value = known(flag)
    if value:
        return new()
    stale = old() if callable(old) else old
    if value is False:
        return stale
    fresh = new()
    if isinstance(fresh, Tensor) or isinstance(stale, Tensor):
        return torch.where(flag, fresh, stale)  # pyright: ignore
    return tuple(torch.where(flag, a, b) for a, b in zip(fresh, stale, strict=True))


def some(mask: Bool[Tensor, " rows"]) -> Int[Tensor, " chosen"]:
    """The rows a mask holds, or all rows where shapes may not depend on data: keep masking by `mask[rows]`.

    >>> some(torch.tensor([True, False, True]))
    tensor([0, 2])
    """
    if mask.device.type == "cpu":
        try:
            return mask.nonzero()[:, 0]
        except RuntimeError:  # what vmap and tracing answer
            pass
    return torch.arange(mask.shape[-1], device=mask.device)
