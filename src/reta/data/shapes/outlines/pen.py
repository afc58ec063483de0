"""The pen with which every silhouette is drawn: filled polygons in a box of side 2 around the origin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

Knob = Callable[[float, float], float]
Tone = Literal[0, 1, 2]
HOLE, BODY, DETAIL = 0, 1, 2


class Part(NamedTuple):
    """One polygon of a silhouette: its corners `[n, 2]` and what it does to what is under it."""

    points: np.ndarray
    tone: Tone


class Pen:
    """Collects the parts of one silhouette; x to the right, y down, both in [-1, 1].

    A part is `BODY` (the silhouette), `DETAIL` (a second shade on the body) or a `HOLE`.

    Example:
        >>> pen = Pen()
        >>> pen.disc(0, 0, 0.5).box(-0.1, -0.9, 0.1, 0.9, tone=2)
        Pen(parts=2)
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def __repr__(self) -> str:
        return f"Pen(parts={len(self.parts)})"

    def poly(self, points: Sequence[Sequence[float]] | np.ndarray, tone: Tone = BODY) -> Pen:
        """A polygon."""
        self.parts.append(Part(np.asarray(points, dtype=np.float64), tone))
        return self

    def blob(self, points: Sequence[Sequence[float]], tone: Tone = BODY) -> Pen:
        """A smooth closed curve through the points."""
        return self.poly(smooth(points), tone)

    def disc(
        self, x: float, y: float, rx: float, ry: float | None = None, turn: float = 0.0, tone: Tone = BODY
    ) -> Pen:
        """An ellipse, turned by `turn` degrees."""
        angle = np.linspace(0.0, 2 * np.pi, 28, endpoint=False)
        a, b = rx * np.cos(angle), (rx if ry is None else ry) * np.sin(angle)
        c, s = np.cos(np.radians(turn)), np.sin(np.radians(turn))
        return self.poly(np.stack([x + c * a - s * b, y + s * a + c * b], 1), tone)

    def box(self, x0: float, y0: float, x1: float, y1: float, tone: Tone = BODY) -> Pen:
        """A rectangle by two corners."""
        return self.poly([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], tone)

    def line(
        self,
        points: Sequence[Sequence[float]] | np.ndarray,
        width: float,
        tone: Tone = BODY,
        round_ends: bool = False,
    ) -> Pen:
        """A broken line of the given width."""
        path = np.asarray(points, dtype=np.float64)
        step = np.gradient(path, axis=0)
        normal = np.stack([-step[:, 1], step[:, 0]], 1)
        normal *= width / 2 / np.maximum(np.hypot(normal[:, 0], normal[:, 1]), 1e-9)[:, None]
        self.poly(np.concatenate([path + normal, (path - normal)[::-1]]), tone)
        if round_ends:
            for x, y in (path[0], path[-1]):
                self.disc(x, y, width / 2, tone=tone)
        return self

    def arc(
        self,
        x: float,
        y: float,
        rx: float,
        ry: float,
        start: float,
        stop: float,
        width: float,
        tone: Tone = BODY,
    ) -> Pen:
        """A piece of an ellipse's rim from `start` to `stop` degrees (0 = right, 90 = down)."""
        angle = np.radians(np.linspace(start, stop, 22))
        return self.line(np.stack([x + rx * np.cos(angle), y + ry * np.sin(angle)], 1), width, tone)

    def ring(self, x: float, y: float, radius: float, width: float) -> Pen:
        """A disc with a hole."""
        return self.disc(x, y, radius).disc(x, y, radius - width, tone=HOLE)


def smooth(points: Sequence[Sequence[float]], steps: int = 5) -> np.ndarray:
    """A closed Catmull-Rom curve through the points, `steps` corners for each."""
    p = np.asarray(points, dtype=np.float64)
    before, after, far = np.roll(p, 1, 0), np.roll(p, -1, 0), np.roll(p, -2, 0)
    t = (np.arange(steps) / steps)[None, :, None]
    a, b, c, d = (q[:, None, :] for q in (before, p, after, far))
    curve = 2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3
    return (curve / 2).reshape(-1, 2)
