"""The contrastive loss between a class's text and its visual prototype: its gradient, block by block."""

from __future__ import annotations

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
    totals = [
        (made[i] if keep else similarities(images, words, part, mask)).logsumexp(1)
        for i, part in enumerate(parts if len(parts) > 1 else [])
    ]
    total = torch.stack(totals).logsumexp(0)[:, None] if totals else None
    pulls = []
    for i, part in enumerate(parts):
        block = made[i] if keep else similarities(images, words, part, mask)
        error = block.softmax(1) if total is None else (block - total).exp()
        if symmetric:
            error = error + block.mT.softmax(1).mT  # down the columns a GPU takes twenty times as long
        if mask is not None:
            error = error * (mask[:, None] & mask[part])
        pulls.append(error.mT @ images)
    pull = pulls[0] if len(pulls) == 1 else torch.cat(pulls)
    grad = torch.sub(pull, images, alpha=2 if symmetric else 1) / (tau * held.sum().clamp_min(1))
    if mask is not None:
        grad = grad * mask[:, None]
    return grad if every else torch.zeros_like(text).index_copy(0, rows, grad)


def similarities(images: Tensor, words: Tensor, part: slice, mask: Tensor | None) -> Tensor:
    """All images against a block of texts; pairs that do not take part are far away."""
    block = images @ words[part].mT
    return block if mask is None else block.masked_fill(~(mask[:, None] & mask[part]), NEVER)
