"""The contrastive loss between a class's text and its visual prototype: its gradient, block by block."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reta.methods.lazy import some

BLOCK = 2**24
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
    (softmax over texts + softmax over images - 2 I)^T visual / (n tau). The [n, n] similarities are made a
    block of texts at a time.
    """
    rows = some(held)
    images, words, mask = visual[rows], text[rows], held[rows]
    size = max(1, BLOCK // max(1, len(rows)))
    parts = words.split(size)
    first = [similarities(images, parts[0], mask, mask[:size], tau)]
    again = (similarities(images, p, mask, mask[i * size :][: len(p)], tau) for i, p in enumerate(parts))
    blocks = first if len(parts) == 1 else again
    log_total = torch.stack([b.logsumexp(1) for b in blocks]).logsumexp(0)
    pulls = []
    for i, part in enumerate(parts):
        here = slice(i * size, i * size + len(part))
        block = first[0] if len(parts) == 1 else similarities(images, part, mask, mask[here], tau)
        error = (block - log_total[:, None]).exp()
        if symmetric:
            error = error + block.softmax(0)
        error = error * (mask[:, None] & mask[here])
        pulls.append(error.mT @ images - (2 if symmetric else 1) * images[here] * mask[here, None])
    grad = torch.cat(pulls) / (tau * mask.sum().clamp_min(1))
    return torch.zeros_like(text).index_copy(0, rows, grad)


def similarities(images: Tensor, words: Tensor, mask: Tensor, here: Tensor, tau: float | Tensor) -> Tensor:
    """Image rows against a block of text rows, over tau; pairs that do not take part are far away."""
    return (images @ words.mT / tau).masked_fill(~(mask[:, None] & here), NEVER)
