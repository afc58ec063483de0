"""The semantic voting committee of ReTA: adjacent text members, projection, votes and their weight."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from reta.methods.ops import get_row, unit

CHUNK = 256
DIGITS = 9


def members(
    prompts: Float[Tensor, "classes prompts dim"],
    mask: Bool[Tensor, "classes prompts"],
    count: int,
    binning: str = "ascending",
    edges: str = "floor_mk",
) -> Float[Tensor, "members classes dim"]:
    """M adjacent text embeddings per class by progressive binning (Eq. 5 and the text below it).

    The prompts of a class are ranked by their summed cosine to the others, outliers first; member m is the
    unit mean of the first Q_m of them. "descending" ranks the other way round; "uniform" does not rank and
    takes Q_m prompts at equal intervals. The last member is always the pooled prototype.

    >>> angles = torch.tensor([[0.0, 0.1, 1.0]])
    >>> prompts = torch.stack([angles.cos(), angles.sin()], -1)
    >>> members(prompts, torch.ones(1, 3, dtype=torch.bool), 3)[0]    # the outlier alone
    tensor([[0.5403, 0.8415]])
    """
    parts = [
        _pools(p, m, count, binning, edges)
        for p, m in zip(prompts.split(CHUNK), mask.split(CHUNK), strict=True)
    ]
    return torch.cat(parts, dim=1)


def _pools(prompts: Tensor, mask: Tensor, count: int, binning: str, edges: str) -> Tensor:
    """The members of one chunk of classes, summed in double precision."""
    wide = prompts.double() * mask[..., None]
    sizes = mask.sum(-1)
    bins = bin_sizes(sizes, count, edges)[..., None]
    place = torch.arange(mask.shape[-1], device=mask.device)
    if binning == "uniform":
        total = sizes[:, None]
        taken = -(-(place + 1) * bins // total) > -(-place * bins // total)
    else:
        sims = (wide * wide.sum(1, keepdim=True)).sum(-1) - 1
        # Equal up to rounding must mean equal, or the last bit would decide between two prompts.
        sims = sims.round(decimals=DIGITS) * (1 if binning == "ascending" else -1)
        order = sims.masked_fill(~mask, torch.inf).argsort(dim=-1, stable=True)
        taken = order.argsort(dim=-1) < bins
    pooled = torch.einsum("mck,ckd->mcd", (taken & mask).double(), wide)
    return unit(pooled).to(prompts.dtype)


def bin_sizes(sizes: Int[Tensor, " classes"], count: int, edges: str) -> Int[Tensor, "members classes"]:
    """Q_m, how many ranked prompts member m pools: floor(m K / M), or m floor(K / M) with the rest in the last.

    >>> bin_sizes(torch.tensor([5]), 3, "floor_mk").flatten(), bin_sizes(torch.tensor([5]), 3, "m_floor").flatten()
    (tensor([1, 3, 5]), tensor([1, 2, 5]))
    """
    m = torch.arange(1, count + 1, device=sizes.device)[:, None]
    if edges == "floor_mk":
        return m * sizes // count
    return torch.where(m == count, sizes, m * (sizes // count))


def votes(
    text: Float[Tensor, "members classes dim"],
    basis: Float[Tensor, "rank dim"] | None,
    x: Float[Tensor, " dim"],
) -> Int[Tensor, " members"]:
    """The class each member sees in the image projected to the text subspace (Eq. 7 to 9)."""
    projected = x if basis is None else basis.mT @ (basis @ x)
    return (text @ projected).argmax(-1)


def dissent(
    ballots: Int[Tensor, " members"],
    label: Int[Tensor, ""],
    classes: int,
    gamma: float | Tensor,
    *,
    stability: bool = True,
    consistency: bool = True,
) -> Float[Tensor, ""]:
    """R S (Eq. 10 to 12): M over the largest number of equal votes, times gamma if the vote differs from y.

    Of several most frequent classes the one with the smallest index is the committee's.

    >>> dissent(torch.tensor([4, 4, 7]), torch.tensor(7), 10, gamma=2.0)
    tensor(3., dtype=torch.float64)
    """
    count = (ballots[:, None] == ballots).sum(-1)
    mode = get_row(ballots, (count * classes - ballots).argmax())
    s = len(ballots) / count.max().double() if stability else torch.ones_like(mode, dtype=torch.double)
    return torch.where(mode == label, s, gamma * s) if consistency else s


def weight(rs: Float[Tensor, ""], score: str, ratio: float | Tensor) -> Float[Tensor, ""]:
    """The stability-consistency score w (Eq. 13), 1 for a unanimous and consistent committee.

    `ratio` scales how far w is above one.

    >>> [round(float(weight(torch.tensor(2.0), form, 1.0)), 3) for form in ("log", "product", "exp", "sqrt")]
    [1.693, 2.0, 2.718, 1.414]
    """
    excess = {
        "log": torch.log,
        "product": lambda v: v - 1,
        "exp": lambda v: torch.expm1(v - 1),
        "sqrt": lambda v: v.sqrt() - 1,
    }
    return 1 + ratio * excess[score](rs)
