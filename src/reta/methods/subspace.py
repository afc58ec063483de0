"""The text subspace an image is projected to before the committee votes: singular, principal or discriminant axes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reta.methods.lazy import when
from reta.methods.ops import unit

BLOCK = 4096
RIDGE = 1e-3
ROUNDS = {torch.float32: 2, torch.float64: 3}


def basis(
    text: Float[Tensor, "members classes dim"], rank: int, projection: str
) -> Float[Tensor, "rank dim"]:
    """At most `rank` orthonormal axes of the text embeddings (Eq. 6), fewer when the text spans fewer.

    "svd": right singular vectors of all rows; "pca": of the centred rows; "lda": directions that separate
    the classes, the members of a class being its samples. The shape depends only on shapes; axes the text
    does not span are zero rows.
    """
    if projection == "lda":
        return discriminants(text.double(), rank)
    rows = rows_of(text, projection)
    values, vectors = torch.linalg.eigh(gram(rows, torch.float64))
    return signed(leading(values, vectors, rows, rank))


def rows_of(text: Float[Tensor, "members classes dim"], projection: str) -> Float[Tensor, "rows dim"]:
    """The embeddings as rows, centred for principal components."""
    rows = text.flatten(0, 1)
    return rows - rows.mean(0) if projection == "pca" else rows


def gram(rows: Float[Tensor, "rows dim"], dtype: torch.dtype | None = None) -> Float[Tensor, "small small"]:
    """The smaller of the two Gram matrices: its eigenvectors give the singular ones with no full SVD.

    Summed in `dtype` a few rows at a time, so that many classes need no wide copy of their text.
    """
    tall = rows if len(rows) > rows.shape[-1] else rows.mT
    blocks = (block.to(dtype or rows.dtype) for block in tall.split(BLOCK))
    first = next(blocks)
    return sum((block.mT @ block for block in blocks), start=first.mT @ first)


def signed(axes: Float[Tensor, "rank dim"]) -> Float[Tensor, "rank dim"]:
    """Axes whose largest entry is positive, so that the same text gives the same numbers."""
    negative = axes.gather(1, axes.abs().argmax(1, keepdim=True)) < 0
    return torch.where(negative, -axes, axes)


def leading(
    values: Float[Tensor, " small"],
    vectors: Float[Tensor, "small small"],
    rows: Float[Tensor, "rows dim"],
    rank: int,
) -> Float[Tensor, "rank dim"]:
    """The right singular vectors of `rows` that belong to the largest eigenvalues of their Gram matrix."""
    values, order = values.sort(descending=True, stable=True)
    values, axes = values[:rank], vectors[:, order[:rank]].mT
    if len(rows) <= rows.shape[-1]:
        axes = unit(axes @ rows.to(axes.dtype))
    spanned = (values > _noise(axes.dtype, max(rows.shape)) * values[0])[:, None]
    return torch.where(spanned, axes, torch.zeros_like(axes))


def _noise(dtype: torch.dtype, size: int) -> float:
    """Squared singular values below this share of the largest are rounding, not text."""
    eps = torch.finfo(dtype).eps
    return max((size * eps) ** 2, 100 * eps)


def follow(
    vectors: Float[Tensor, "small small"],
    old: Float[Tensor, "rank dim"],
    rows: Callable[[], Float[Tensor, "rows dim"]],
    rank: int,
    changed: Bool[Tensor, ""],
) -> tuple[Tensor, Tensor]:
    """Eigenvectors and axes of a text, its `rows`, that may have changed a little.

    On a CPU they are computed anew if it has. A CUDA graph can neither ask nor decompose: there the old
    eigenvectors are turned until they fit, in matrix products alone.
    """

    def fresh() -> tuple[Tensor, Tensor]:
        now = rows()
        values, turned = turn(vectors, now, rank) if now.is_cuda else torch.linalg.eigh(gram(now))
        return turned, leading(values, turned, now, rank)

    vectors, old = when(changed, fresh, (vectors, old))
    return vectors, old


def turn(
    vectors: Float[Tensor, "small small"], rows: Float[Tensor, "rows dim"], rank: int
) -> tuple[Float[Tensor, " small"], Float[Tensor, "small small"]]:
    """Turn nearly right eigenvectors of the Gram matrix of `rows` into right ones; the eigenvalues too.

    Every round turns all pairs at once by the angle that would make the pair orthogonal under the matrix,
    were it alone (Jacobi), and makes the columns orthonormal again (Newton-Schulz); the error is squared. The
    products are those of the turned rows, not of their Gram matrix: in fp32 that is exacter than `eigh`. Where
    the text moves by more than it reaches beyond its leading axes, some more images bring them there.
    """
    tall = rows if len(rows) > rows.shape[-1] else rows.mT
    away, rest = _apart(vectors), max(0, len(vectors) - rank)
    noise = 4 * torch.finfo(vectors.dtype).eps
    turned = tall @ vectors
    for _ in range(ROUNDS[vectors.dtype]):
        inner, overlap = turned.mT @ turned, vectors.mT @ vectors
        values = inner.diagonal()
        pull = 2 * inner - overlap * (values[:, None] + values)
        heard = pull.abs() > noise * torch.maximum(values[:, None], values)
        gap, pull = values[:, None] - values + away, torch.where(heard, pull, 0.0)
        tangents = _bounded(pull / (gap + torch.hypot(gap, pull).copysign(gap)), rest)
        vectors = torch.addmm(vectors, vectors, tangents, alpha=-1)
        vectors = vectors * (1 + tangents.square().sum(0)).rsqrt()
        for _ in range(2):
            vectors = torch.addmm(vectors, vectors, vectors.mT @ vectors, beta=1.5, alpha=-0.5)
        turned = tall @ vectors
    return turned.square().sum(0), vectors


def _apart(matrix: Float[Tensor, "small small"]) -> Float[Tensor, "small small"]:
    """What keeps equal eigenvalues apart, on one side of the diagonal or the other, and no value from itself."""
    at = torch.arange(len(matrix), device=matrix.device)
    side = (at - at[:, None]).sign().to(matrix.dtype) * torch.finfo(matrix.dtype).tiny ** 0.5
    return side.masked_fill(at == at[:, None], torch.inf)


def _bounded(tangents: Float[Tensor, "small small"], rest: int) -> Float[Tensor, "small small"]:
    """No larger than one, those between the axes and the rest for themselves, and those within either.

    Where many eigenvalues are nearly the same, as those of directions the text does not span, all pairs would
    turn far at once. The axes do not depend on these turns, and must not wait for them.
    """
    squares = tangents.square()
    across = 2 * squares[rest:, :rest].sum()
    at = torch.arange(len(tangents), device=tangents.device) >= rest
    inside = (squares.sum() - across).clamp_min(0)
    return tangents / torch.where(at[:, None] == at, inside, across).clamp_min(1).sqrt()


def discriminants(text: Float[Tensor, "members classes dim"], rank: int) -> Float[Tensor, "rank dim"]:
    """Orthonormal axes spanning the leading linear discriminants.

    With fewer members than dimensions the scatter within classes is singular, so a little of the total
    scatter is added to it on the diagonal. Texts that do not scatter at all (one class) span no axis.
    """
    mean = text.mean(0)
    inner = _scatter((text - mean).flatten(0, 1))
    outer = len(text) * _scatter(mean - mean.mean(0))
    ridge = RIDGE * (inner + outer).diagonal().mean()
    ridge = torch.where(ridge > 0, ridge, 1.0)
    eye = torch.eye(text.shape[-1], dtype=text.dtype, device=text.device)
    factor = torch.linalg.cholesky(inner + ridge * eye)
    half = torch.linalg.solve_triangular(factor, outer, upper=False)
    white = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = torch.linalg.eigh((white + white.mT) / 2)
    keep = min(rank, text.shape[1] - 1, text.shape[-1])
    axes = torch.linalg.solve_triangular(factor.mT, vectors.flip(-1)[:, :keep], upper=True)
    spanned = (values.flip(-1)[:keep] > _noise(mean.dtype, max(mean.shape)) * values[-1])[:, None]
    rows = torch.linalg.qr(axes)[0].mT
    return torch.where(spanned, rows, torch.zeros_like(rows))


def _scatter(rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "dim dim"]:
    return sum((block.mT @ block for block in rows.split(BLOCK)), start=rows.new_zeros(()))
