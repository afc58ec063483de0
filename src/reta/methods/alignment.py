"""The contrastive loss between a class's text and its visual prototype: its gradient, block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reta.methods.lazy import blocks, some

KEPT = 2**24
WIDTH = 1024
NEVER = -1e30


def align_grad(
    visual: Float[Tensor, "classes dim"],
    text: Float[Tensor, "classes dim"],
    held: Bool[Tensor, " classes"],
    tau: float | Tensor,
    symmetric: bool,
) -> Float[Tensor, "classes dim"]:
    """d L_align / d text (Eq. 21), averaged over the classes in `held`.

    An image must find its text among the texts and, if `symmetric`, a text its image among the images:
    (softmax over texts + softmax over images - 2 I)^T visual / (n tau). The [n, n] similarities come in
    blocks of texts; many classes would not leave room for all of them, then they are made twice.
    """
    rows, mask = some(held)
    every = len(rows) == len(visual)
    images, words = (visual, text / tau) if every else (visual[rows], text[rows] / tau)
    parts = blocks(len(rows), min(len(rows), WIDTH), text.device)
    keep = len(rows) ** 2 <= KEPT
    made = [similarities(images, words, part, mask) for part in parts] if keep else []

    def block(i: int) -> Tensor:
        return made[i] if keep else similarities(images, words, parts[i], mask)

    total = None
    if len(parts) > 1:
        table = images.new_empty(len(parts), len(rows))
        each = [slice(i, i + 1) for i in range(len(parts))]
        total = stacked(table, each, lambda i: block(i).logsumexp(1)[None], mask is None)
        total = total.logsumexp(0)[:, None]

    def pull(i: int) -> Tensor:
        near = block(i)
        error = near.softmax(1) if total is None else (near - total).exp()
        if symmetric:
            error = error + near.mT.softmax(1).mT  # down the columns a GPU takes twenty times as long
        if mask is not None:
            error = error * (mask[:, None] & mask[parts[i]])
        return error.mT @ images

    pulls = stacked(torch.empty_like(images), parts, pull, mask is None)
    grad = torch.sub(pulls, images, alpha=2 if symmetric else 1) / (tau * held.sum().clamp_min(1))
    if mask is not None:
        grad = grad * mask[:, None]
    return grad if every else torch.zeros_like(text).index_copy(0, rows, grad)


def stacked(table: Tensor, parts: Sequence[slice], make: Callable[[int], Tensor], inside: bool) -> Tensor:
    """`make(i)` for every part, below one another: written into `table` if it may be.

    Small results that stay between large ones that go would leave the heap full of holes, gigabytes of them.
    `vmap` and tracing know no writing in place: there they are put together at the end.
    """
    if len(parts) == 1 or not inside:
        return torch.cat([make(i) for i in range(len(parts))])
    for i, part in enumerate(parts):
        table[part] = make(i)
    return table


def similarities(images: Tensor, words: Tensor, part: slice, mask: Tensor | None) -> Tensor:
    """All images against a block of texts; pairs that do not take part are far away."""
    block = images @ words[part].mT
    return block if mask is None else block.masked_fill(~(mask[:, None] & mask[part]), NEVER)
