"""The pieces methods share. Branch-free: they run eagerly, in a CUDA graph and under `torch.func.vmap`.

A step returns new tensors and leaves its input alone. Where the caller owns the state and will not look
at the old one again (`reta.run` does), it says so with `donated()`, and `put_row` and `assign` write in
place: the same numbers without a copy of the cache per image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_donated: ContextVar[bool] = ContextVar("donated", default=False)


@contextmanager
def donated(on: bool = True) -> Iterator[None]:
    """Within this block a step may overwrite the state it is given."""
    token = _donated.set(on)
    try:
        yield
    finally:
        _donated.reset(token)


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
    slots = scores.shape[-1]
    row_keys, row_scores = (
        keys.index_select(0, label.reshape(1))[0],
        scores.index_select(0, label.reshape(1))[0],
    )
    place = (row_scores <= score).sum() + (~torch.isfinite(score)) * slots
    at = torch.arange(slots, device=scores.device)
    source = (at - (at > place).long()).clamp_min(0)
    new_keys = torch.where((at == place)[:, None], key.to(keys.dtype), row_keys[source])
    new_scores = torch.where(at == place, score.to(scores.dtype), row_scores[source])
    return put_row(keys, label, new_keys), put_row(scores, label, new_scores), place < slots


def prototypes(
    keys: Float[Tensor, "classes slots dim"], scores: Float[Tensor, "classes slots"]
) -> tuple[Float[Tensor, "classes dim"], Bool[Tensor, " classes"]]:
    """Mean of the items a class has cached, and which classes have any; an empty class is a zero row."""
    held = torch.isfinite(scores)
    count = held.sum(-1)
    total = torch.where(held[..., None], keys, torch.zeros_like(keys)).sum(-2)
    return total / count.clamp_min(1)[:, None], count > 0


def affinity(similarity: Tensor, alpha: float | Tensor, beta: float | Tensor) -> Tensor:
    """Cache logits from cosine similarity: alpha * exp(-beta * (1 - similarity))."""
    return alpha * torch.exp(-beta * (1 - similarity))


def contrastive(
    queries: Float[Tensor, "classes dim"],
    keys: Float[Tensor, "classes dim"],
    held: Bool[Tensor, " classes"],
    tau: float | Tensor,
) -> Float[Tensor, ""]:
    """InfoNCE over the classes in `held`: each query must find the key of its own class; 0 if none is held."""
    logits = (queries @ keys.mT / tau).masked_fill(~held, -torch.inf)
    logits = torch.where(held[:, None], logits, torch.zeros_like(logits))
    loss = logits.logsumexp(-1) - logits.diagonal(dim1=-2, dim2=-1)
    return torch.where(held, loss, torch.zeros_like(loss)).sum() / held.sum().clamp_min(1)


def entropy_grad(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch classes"]:
    """d entropy(logits) / d logits, in closed form: -p * (ln p + H)."""
    logp = logits.log_softmax(-1).clamp_min(-1e30)
    p = logp.exp()
    return -p * (logp - (p * logp).sum(-1, keepdim=True))


def adam_step(grad: Tensor, lr: float | Tensor, eps: float | Tensor) -> Tensor:
    """The first bias-corrected Adam(W) step from zero: -lr * g / (|g| + eps). Weight decay does nothing at zero."""
    return -lr * grad / (grad.abs() + eps)
