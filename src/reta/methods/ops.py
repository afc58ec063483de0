"""The pieces methods share. Branch-free: they run eagerly, in a CUDA graph and under `torch.func.vmap`.

A step returns new tensors and leaves its input alone. Where the caller owns the state and will not look
at the old one again (`reta.run` does), it says so with `donated()`, and `put_row` and `assign` write in
place: the same numbers without a copy of the cache per image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from reta.methods.contrast import Contrast

if TYPE_CHECKING:
    from reta.task import Task

__all__ = ["Contrast"]  # one of the pieces, in a file of its own

_donated: ContextVar[bool] = ContextVar("donated", default=False)


@contextmanager
def donated(on: bool = True) -> Iterator[None]:
    """Within this block a step may overwrite the state it is given."""
    token = _donated.set(on)
    try:
        yield
    finally:
        _donated.reset(token)


def get_row(table: Tensor, index: Int[Tensor, ""]) -> Tensor:
    """`table[index]` without a wait for the index."""
    return table.index_select(0, index.reshape(1)).squeeze(0)


def put_row(table: Tensor, index: Int[Tensor, ""], row: Tensor) -> Tensor:
    """`table` with `table[index] = row`; in place if the state was donated."""
    where = (index.reshape(1),)
    value = row.unsqueeze(0).to(table.dtype)
    return table.index_put_(where, value) if _donated.get() else table.index_put(where, value)


def assign(old: Tensor, new: Tensor) -> Tensor:
    """`new` in the place of `old`: its storage too, if the state was donated."""
    return old.copy_(new) if _donated.get() else new


def unit(x: Tensor, dim: int = -1) -> Tensor:
    """Rows of length one; a zero row stays zero."""
    return x / x.norm(dim=dim, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


def entropy(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    """Entropy of softmax(logits) in nats; a class of probability zero adds nothing."""
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp.clamp_min(-1e30)).sum(-1)


def marginal(logits: Float[Tensor, "views classes"]) -> Float[Tensor, " classes"]:
    """Log of the mean over views of softmax(logits): itself a vector of logits."""
    return logits.log_softmax(-1).logsumexp(-2) - math.log(logits.shape[-2])


def kept(views: int, share: float) -> int:
    """How many of `views` a share keeps: rounded down as published, but never none.

    >>> kept(64, 0.1), kept(64, 0.3), kept(1, 0.1)
    (6, 19, 1)
    """
    return max(1, int(views * share))


def confident(logits: Float[Tensor, "views classes"], share: float) -> Int[Tensor, " kept"]:
    """The views of lowest entropy, most confident first; equal ones in their own order."""
    return entropy(logits).sort(stable=True).indices[: kept(logits.shape[-2], share)]


class Evidence(NamedTuple):
    """What the most confident views of an image say together."""

    feature: Float[Tensor, " dim"]
    logits: Float[Tensor, " classes"]
    log_probs: Float[Tensor, " classes"]
    entropy: Float[Tensor, ""]
    label: Int[Tensor, ""]


def evidence(
    views: Float[Tensor, "views dim"], logits: Float[Tensor, "views classes"], share: float
) -> Evidence:
    """Mean feature (not made unit), mean logits, log of the mean probabilities, its entropy, and the label
    of the mean logits, over the confident views; with one view, that view.
    """
    top = confident(logits, share)
    chosen = logits[top]
    together = marginal(chosen)
    mean = chosen.mean(-2)
    return Evidence(views[top].mean(-2), mean, together, entropy(together), mean.argmax(-1))


def class_text(task: Task, choice: str) -> Float[Tensor, "classes dim"]:
    """One text feature per class: all its prompts "pooled", or the "first" one."""
    return task.prompts[:, 0] if choice == "first" else task.text


def normalised(entropy: Tensor, classes: int, base: str) -> Tensor:
    """Entropy in nats over ln C (from 0 to 1), or over log2 C as several releases have it (0 to 0.693).

    >>> normalised(torch.tensor(math.log(8)), 8, "ln"), normalised(torch.tensor(math.log(8)), 8, "log2")
    (tensor(1.), tensor(0.6931))
    """
    return entropy if classes == 1 else entropy / (math.log(classes) if base == "ln" else math.log2(classes))


def insert(
    keys: Float[Tensor, "classes slots dim"],
    scores: Float[Tensor, "classes slots"],
    label: Int[Tensor, ""],
    key: Float[Tensor, " dim"],
    score: Float[Tensor, ""],
) -> tuple[Tensor, Tensor, Bool[Tensor, ""]]:
    """Offer `key` to the queue of class `label`; say whether it was taken.

    The slots of a class stay sorted by score, lowest first, free slots (inf) last. A new item goes behind
    its equals and pushes the last one out: with a full queue that is "replace the worst if strictly better,
    then sort stably". A score that is not finite is never taken.
    """
    (keys,), scores, taken = offer((keys,), scores, label, (key,), score)
    return keys, scores, taken


def offer(
    tables: Sequence[Tensor],
    scores: Float[Tensor, "classes slots"],
    label: Int[Tensor, ""],
    items: Sequence[Tensor],
    score: Float[Tensor, ""],
    fifo: bool = False,
) -> tuple[tuple[Tensor, ...], Tensor, Bool[Tensor, ""]]:
    """`insert` for items of several parts, one table `[classes, slots, ...]` for each part.

    With `fifo` the slots stay in the order of arrival and a full queue loses its oldest item.
    """
    row = get_row(scores, label)
    size, at = len(row), torch.arange(len(row), device=scores.device)
    held = row != torch.inf
    place = held.sum().clamp_max(size - 1) if fifo else (row <= score).sum()
    place = torch.where(score.abs() < torch.inf, place, size)
    if fifo:
        source = at + (held.all() & (at < place)).long() * (place < size)
    else:
        source = at - (at > place).long()
    here = at == place

    def write(table: Tensor, old: Tensor, item: Tensor) -> Tensor:
        where = here.reshape(-1, *[1] * (old.ndim - 1))
        return put_row(table, label, torch.where(where, item.to(table.dtype), old[source]))

    pairs = zip(tables, items, strict=True)
    written = tuple(write(table, get_row(table, label), item) for table, item in pairs)
    return written, write(scores, row, score), place < size


def prototypes(
    keys: Float[Tensor, "*classes slots dim"], scores: Float[Tensor, "*classes slots"]
) -> tuple[Float[Tensor, "*classes dim"], Bool[Tensor, "*classes"]]:
    """Mean of the items a class has cached, and which classes have any; an empty class is a zero row.

    Free slots are zero rows of `keys`, as `insert` leaves them.
    """
    count = (scores != torch.inf).sum(-1)
    return keys.sum(-2) / count.clamp_min(1)[..., None], count > 0


def affinity(similarity: Tensor, alpha: float | Tensor, beta: float | Tensor) -> Tensor:
    """Cache logits from cosine similarity: alpha * exp(-beta * (1 - similarity))."""
    return alpha * torch.exp(-beta * (1 - similarity))


def cache_logits(
    query: Float[Tensor, " dim"],
    keys: Float[Tensor, "*rows dim"],
    held: Bool[Tensor, "*rows"],
    alpha: float | Tensor,
    beta: float | Tensor,
) -> Float[Tensor, "*rows"]:
    """The affinity of a query to every key that is there, 0 where none is."""
    value = affinity(keys @ query, alpha, beta)
    return torch.where(held, value, torch.zeros_like(value))


def entropy_grad(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch classes"]:
    """d entropy(logits) / d logits, in closed form: -p * (ln p + H)."""
    logp = logits.log_softmax(-1).clamp_min(-1e30)
    p = logp.exp()
    return -p * (logp - (p * logp).sum(-1, keepdim=True))


def marginal_grad(logits: Float[Tensor, "views classes"]) -> Float[Tensor, "views classes"]:
    """d entropy(marginal(logits)) / d logits, in closed form."""
    p, m = logits.softmax(-1), marginal(logits).clamp_min(-1e30)
    return p * (m - (p * m).sum(-1, keepdim=True)) * (-1 / logits.shape[-2])


def tangent(
    unit: Float[Tensor, "*rows dim"],
    grad: Float[Tensor, "*rows dim"],
    length: Float[Tensor, "*rows 1"] | None = None,
) -> Float[Tensor, "*rows dim"]:
    """The gradient at x = length * unit of a function whose gradient at unit(x) is `grad`; length 1 if not given."""
    across = torch.addcmul(grad, unit, (unit * grad).sum(-1, keepdim=True), value=-1)
    return across if length is None else across / length


def unit_grad(x: Float[Tensor, "*rows dim"], grad: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
    """The gradient at `x` of a function whose gradient at `unit(x)` is `grad`; 0 for a zero row."""
    length = x.norm(dim=-1, keepdim=True)
    inverse = torch.where(length > 0, 1 / length, 0.0)
    return tangent(x * inverse, grad) * inverse


def adam_step(
    x: Tensor, grad: Tensor, lr: float | Tensor, eps: float | Tensor, adam_state: str = "exact"
) -> Tensor:
    """`x` after the first bias-corrected AdamW step of a residual from zero: x - lr * g / (|g| + eps).

    Weight decay does nothing at zero. With `adam_state` "fp16" the second moment 0.001 g^2 is held in fp16,
    in which it vanishes for |g| under 0.005.
    """
    if adam_state == "fp16":
        return x - lr * grad / ((_held(1e-3 * grad.square(), adam_state) / 1e-3).sqrt() + eps)
    if isinstance(lr, Tensor):
        return x - lr * grad / (grad.abs() + eps)
    return torch.addcdiv(x, grad, grad.abs() + eps, value=-lr)  # the same in fewer passes


def adamw(
    x: Tensor,
    gradient: Callable[[Tensor], Tensor],
    steps: int,
    lr: float | Tensor,
    eps: float | Tensor,
    weight_decay: float | Tensor,
    adam_state: str = "exact",
) -> Tensor:
    """`steps` of AdamW from `x` with fresh moments, as an expression; each element moves by itself."""
    m, v = torch.zeros_like(x), torch.zeros_like(x)
    for k in range(1, steps + 1):
        g = gradient(x)
        m, v = 0.9 * m + 0.1 * g, _held(0.999 * v + 0.001 * g.square(), adam_state)
        scaled = (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)).sqrt() + eps)
        x = x * (1 - lr * weight_decay) - lr * scaled
    return x


def _held(second: Tensor, adam_state: str) -> Tensor:
    """AdamW's second moment as it is stored."""
    return second.half().to(second.dtype) if adam_state == "fp16" else second
