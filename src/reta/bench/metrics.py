"""What is measured on a run: how often it was right, how well it knew, and what it remembered."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from reta.errors import BadInput, require

VERSION = 1
BINS = 20
POINTS = 60


def calibration(probs: Float[Tensor, "samples classes"], labels: Int[Tensor, " samples"]) -> dict[str, float]:
    """Expected calibration error over 20 bins, in percent, and negative log-likelihood in nats.

    >>> calibration(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([0, 0]))
    {'ece': 25.0, 'nll': 0.346574}
    """
    scores = require("bench", "torchmetrics.functional.classification")
    probs = normalised(probs)
    error = scores.multiclass_calibration_error(probs, labels, probs.shape[-1], n_bins=BINS, norm="l1")
    likely = probs.double().gather(-1, labels[:, None]).clamp_min(1e-12)
    return {"ece": rounded(100 * error), "nll": rounded(-likely.log().mean())}


def normalised(probs: Float[Tensor, "samples classes"]) -> Float[Tensor, "samples classes"]:
    """Probabilities that are probabilities: torchmetrics silently takes a softmax of anything else."""
    if not bool(((probs >= 0) & (probs <= 1 + 1e-4)).all()):
        raise BadInput("probabilities must lie between 0 and 1: did the method answer with logits?")
    total = probs.sum(-1)
    if not bool(((total - 1).abs() < 1e-3).all()):
        worst = float(total[(total - 1).abs().argmax()])
        raise BadInput(f"probabilities must sum to 1; a row sums to {worst:.4f}")
    return (probs / total[:, None]).clamp(0, 1)


def reliability(confidence: Float[Tensor, " samples"], right: Bool[Tensor, " samples"]) -> list[list[float]]:
    """The reliability curve: for each of 20 bins the number of answers, their mean confidence and accuracy."""
    place = (confidence * BINS).ceil().long().sub(1).clamp(0, BINS - 1)
    rows = []
    for b in range(BINS):
        inside = place == b
        n = int(inside.sum())
        sure = rounded(confidence[inside].double().mean()) if n else 0.0
        rows.append([n, sure, rounded(right[inside].double().mean()) if n else 0.0])
    return rows


def per_class(
    predictions: Int[Tensor, " samples"], labels: Int[Tensor, " samples"], classes: int
) -> list[float | None]:
    """Accuracy of each class in percent, None where a class has no image."""
    scores = require("bench", "torchmetrics.functional.classification")
    found = scores.multiclass_accuracy(predictions, labels, classes, average=None)
    there = torch.bincount(labels, minlength=classes) > 0
    return [rounded(100 * value) if ok else None for value, ok in zip(found, there, strict=True)]


def unknown(confidence: Float[Tensor, " samples"], known: Bool[Tensor, " samples"]) -> float | None:
    """How well confidence tells known images from unknown ones: the area under the ROC curve, in percent."""
    if bool(known.all()) or not bool(known.any()):
        return None
    scores = require("bench", "torchmetrics.functional.classification")
    return rounded(100 * scores.binary_auroc(confidence.clamp(0, 1), known.long()))


def changes(
    predictions: Int[Tensor, " samples"], before: Int[Tensor, " samples"], labels: Int[Tensor, " samples"]
) -> dict[str, float]:
    """Share of predictions that differ from `before`, and of those the shares for the better and the worse."""
    differ = predictions != before
    n = max(1, int(differ.sum()))
    better = (differ & (predictions == labels)).sum() / n
    worse = (differ & (before == labels)).sum() / n
    share = differ.double().mean() if len(differ) else torch.tensor(0.0)
    return {"changed": rounded(100 * share), "better": rounded(100 * better), "worse": rounded(100 * worse)}


def running(hits: Float[Tensor, " samples"], total: Float[Tensor, " samples"]) -> list[float]:
    """100 * cumulated hits / cumulated total, at 60 points along the stream; 0 before there is anything."""
    sums, counts = hits.double().cumsum(0), total.double().cumsum(0)
    share = torch.where(counts > 0, sums / counts.clamp_min(1), torch.zeros_like(sums))
    return [rounded(100 * share[i], 3) for i in points(len(hits))]


def points(n: int) -> list[int]:
    """Where along a stream of n samples the curves are kept.

    >>> points(3), len(points(500)), points(500)[-1]
    ([0, 1, 2], 60, 499)
    """
    return sorted({round((k + 1) * n / POINTS) - 1 for k in range(POINTS) if round((k + 1) * n / POINTS) > 0})


def rounded(value: Any, digits: int = 6) -> float:
    """A float short enough for a file and long enough for any table."""
    return round(float(value), digits)


def pack(values: Int[Tensor, " samples"]) -> str:
    """Whole numbers or yes and no as short text: results carry their predictions, so that any two results can
    be compared later.

    >>> unpack(pack(torch.tensor([3, 1, 2]))).tolist(), unpack(pack(torch.tensor([True, False]))).tolist()
    ([3, 1, 2], [True, False])
    """
    array = values.numpy()
    if array.dtype == np.bool_:
        return f"bits {len(array)} {_text(np.packbits(array).tobytes())}"
    kind = next(k for k in ("u1", "<u2", "<i4", "<i8") if _holds(k, array))
    return f"{kind} {len(array)} {_text(zlib.compress(array.astype(kind).tobytes(), 9))}"


def unpack(text: str) -> Tensor:
    """What `pack` packed."""
    kind, count, body = text.split(" ")
    data = base64.b64decode(body)
    if kind == "bits":
        return torch.from_numpy(np.unpackbits(np.frombuffer(data, np.uint8), count=int(count)).astype(bool))
    return torch.from_numpy(np.frombuffer(zlib.decompress(data), kind).astype(np.int64))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _holds(kind: str, array: np.ndarray) -> bool:
    range_ = np.iinfo(kind)
    return not len(array) or (int(array.min()) >= range_.min and int(array.max()) <= range_.max)
