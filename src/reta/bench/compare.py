"""Paired tests: two methods on the same images, so that a difference is held against its own noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

DRAWS = 2000
LEVEL = 0.05


class Comparison(NamedTuple):
    """`difference` in points (first minus second), its 95 % bootstrap interval, and McNemar's p."""

    difference: float
    low: float
    high: float
    p: float
    images: int

    @property
    def significant(self) -> bool:
        """The interval leaves out zero and McNemar's test agrees at 5 %."""
        return (self.low > 0 or self.high < 0) and self.p < LEVEL


def compare(
    first: Sequence[Float[np.ndarray, " images"]],
    second: Sequence[Float[np.ndarray, " images"]],
    seed: int = 0,
) -> Comparison:
    """Compare the shares of right answers image by image. Several data sets are several arrays, each of which
    counts the same, and images are drawn within their set.

    An array holds, for each image, the share of stream orders that got it right. McNemar's test takes an
    image as right if most orders got it right.

    >>> same = compare([np.ones(50)], [np.ones(50)])
    >>> same.difference, same.p, same.significant
    (0.0, 1.0, False)
    >>> compare([np.ones(50)], [np.r_[np.zeros(10), np.ones(40)]]).significant
    True
    """
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    low, high = interval(gaps, seed)
    pairs = [(a > 0.5, b > 0.5) for a, b in zip(first, second, strict=True)]
    won = sum(int((a & ~b).sum()) for a, b in pairs)
    lost = sum(int((~a & b).sum()) for a, b in pairs)
    difference = 100 * float(np.mean([gap.mean() for gap in gaps]))
    return Comparison(round(difference, 6), low, high, mcnemar(won, lost), sum(len(gap) for gap in gaps))


def interval(gaps: Sequence[NDArray[np.float64]], seed: int) -> tuple[float, float]:
    """The 2.5 % and 97.5 % quantiles of the mean difference over 2000 redraws of the images."""
    rng = np.random.Generator(np.random.PCG64(seed))
    means = np.zeros(DRAWS)
    for gap in gaps:
        values, counts = np.unique(gap, return_counts=True)
        drawn = rng.multinomial(len(gap), counts / len(gap), size=DRAWS)
        means += drawn @ values / len(gap) / len(gaps)
    low, high = np.quantile(100 * means, [LEVEL / 2, 1 - LEVEL / 2])
    return round(float(low), 4), round(float(high), 4)


def mcnemar(won: int, lost: int) -> float:
    """Exact two-sided p: how often a fair coin would split `won + lost` at least as unevenly.

    >>> mcnemar(5, 5), round(mcnemar(10, 0), 6)
    (1.0, 0.001953)
    """
    n, k = won + lost, min(won, lost)
    if n == 0 or won == lost:
        return 1.0
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(k + 1)]
    top = max(logs)
    tail = top + math.log(math.fsum(math.exp(x - top) for x in logs)) - n * math.log(2)
    return min(1.0, 2 * math.exp(tail))
