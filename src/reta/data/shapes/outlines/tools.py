"""Things to hold and to work or play with."""

from __future__ import annotations

import numpy as np

from .pen import DETAIL, HOLE, Knob, Pen


def anchor(pen: Pen, k: Knob) -> None:
    """A ring, a shank with a cross-bar, and two curved arms with points."""
    w, reach = k(0.14, 0.2), k(0.66, 0.8)
    pen.ring(0, -0.74, 0.23, 0.11)
    pen.line([(0, -0.56), (0, 0.9)], w).line([(-0.4, -0.3), (0.4, -0.3)], w, round_ends=True)
    pen.arc(0, 0.1, reach, 0.74, 10, 170, w)
    for s in (-1, 1):
        pen.poly([(s * (reach - 0.28), 0.3), (s * (reach + 0.02), -0.12), (s * (reach + 0.22), 0.42)])


def arrow(pen: Pen, k: Knob) -> None:
    """A straight shaft with a broad triangular head."""
    w, head, back = k(0.2, 0.34), k(0.5, 0.68), k(-0.05, 0.25)
    pen.box(-0.95, -w / 2, 0.4, w / 2)
    pen.poly([(back, -head), (0.97, 0), (back, head)])


def bell(pen: Pen, k: Knob) -> None:
    """A flared bell with a rim, a knob on top and a clapper below."""
    w, lip = k(0.4, 0.52), k(0.74, 0.86)
    pen.disc(0, -0.85, 0.12).disc(0, 0.78, 0.17)
    pen.blob(
        [
            (0, -0.8),
            (w * 0.75, -0.6),
            (w, -0.1),
            (lip * 0.82, 0.45),
            (lip, 0.68),
            (0, 0.72),
            (-lip, 0.68),
            (-lip * 0.82, 0.45),
            (-w, -0.1),
            (-w * 0.75, -0.6),
        ]
    )
    pen.line([(-lip * 0.86, 0.44), (lip * 0.86, 0.44)], 0.08, DETAIL)


def fork(pen: Pen, k: Knob) -> None:
    """A handle and a head with four tines."""
    w, tine = k(0.26, 0.34), k(0.09, 0.12)
    pen.line([(0, 0.1), (0, 0.92)], 0.15, round_ends=True)
    pen.blob([(-w, -0.4), (w, -0.4), (w * 0.9, -0.12), (0.1, 0.16), (-0.1, 0.16), (-w * 0.9, -0.12)])
    for x in np.linspace(-w + 0.02, w - 0.02, 4):
        pen.line([(x, -0.3), (x, -0.95)], tine)


def guitar(pen: Pen, k: Knob) -> None:
    """A waisted body with a round hole, a long neck and a peg head."""
    upper, lower = k(0.32, 0.4), k(0.46, 0.56)
    pen.line([(0, 0.1), (0, -0.8)], 0.13)
    pen.poly([(-0.13, -1.0), (0.13, -1.0), (0.1, -0.7), (-0.1, -0.7)])
    for y in (-0.93, -0.8):
        pen.line([(-0.22, y), (0.22, y)], 0.06)
    pen.blob(
        [
            (0, -0.12),
            (upper * 0.8, -0.05),
            (upper, 0.14),
            (upper * 0.72, 0.32),
            (lower, 0.62),
            (lower * 0.7, 0.93),
            (0, 1.0),
            (-lower * 0.7, 0.93),
            (-lower, 0.62),
            (-upper * 0.72, 0.32),
            (-upper, 0.14),
            (-upper * 0.8, -0.05),
        ]
    )
    pen.disc(0, 0.32, k(0.13, 0.17), tone=DETAIL)
    pen.line([(-0.2, 0.74), (0.2, 0.74)], 0.08, DETAIL)


def hammer(pen: Pen, k: Knob) -> None:
    """A handle with a heavy head across it, one end flat and one a claw."""
    h = k(0.28, 0.38)
    pen.line([(0, -0.6), (0, 0.92)], k(0.17, 0.24), DETAIL, round_ends=True)
    pen.box(-0.22, -0.6 - h / 2, 0.5, -0.6 + h / 2).box(0.42, -0.65 - h / 2, 0.66, -0.55 + h / 2)
    pen.poly(
        [
            (-0.2, -0.6 - h / 2),
            (-0.55, -0.62 - h / 2.4),
            (-0.86, -0.3),
            (-0.5, -0.5 + h / 4),
            (-0.2, -0.6 + h / 2),
        ]
    )


def key(pen: Pen, k: Knob) -> None:
    """A round bow with a hole, a shaft and two teeth."""
    bow, tooth = k(0.3, 0.4), k(0.22, 0.34)
    pen.ring(-0.58, 0, bow, bow * 0.52)
    pen.box(-0.3, -0.09, 0.95, 0.09)
    pen.box(0.74, 0, 0.92, tooth + 0.08).box(0.42, 0, 0.58, tooth)


def ladder(pen: Pen, k: Knob) -> None:
    """Two long rails joined by rungs."""
    top, foot, w = k(0.26, 0.36), k(0.36, 0.46), k(0.1, 0.14)
    for s in (-1, 1):
        pen.line([(s * top, -0.97), (s * foot, 0.97)], w)
    n = round(k(4, 6))
    for y in np.linspace(-0.72, 0.72, n):
        x = top + (foot - top) * (y + 0.97) / 1.94
        pen.line([(-x, y), (x, y)], w * 0.95)


def padlock(pen: Pen, k: Knob) -> None:
    """A block with a keyhole under a rounded shackle."""
    w, top = k(0.56, 0.68), k(0.34, 0.44)
    pen.arc(0, -0.3, top, k(0.5, 0.6), 180, 360, 0.17)
    for s in (-1, 1):
        pen.line([(s * top, -0.35), (s * top, 0.1)], 0.17)
    pen.box(-w, -0.08, w, 0.9)
    pen.disc(0, 0.3, 0.13, tone=DETAIL).poly([(-0.05, 0.3), (0.05, 0.3), (0.1, 0.65), (-0.1, 0.65)], DETAIL)


def scissors(pen: Pen, k: Knob) -> None:
    """Two crossed blades with finger loops."""
    spread, loop = k(0.28, 0.42), k(0.25, 0.31)
    for s in (-1, 1):
        pen.poly(
            [
                (-s * spread - s * 0.02, -0.97),
                (-s * spread * 0.3 + s * 0.12, -0.3),
                (s * 0.16, 0.3),
                (s * 0.02, 0.3),
                (-s * 0.16, 0.05),
            ]
        )
        pen.line([(s * 0.04, 0.1), (s * spread * 0.85, 0.5)], 0.13)
        x = s * (spread * 0.62 + 0.16)
        pen.disc(x, 0.66, loop * 0.88, loop).disc(x, 0.66, loop * 0.88 - 0.12, loop - 0.12, tone=HOLE)
    pen.disc(0, 0.12, 0.06, tone=DETAIL)


def spoon(pen: Pen, k: Knob) -> None:
    """An oval bowl on a long thin handle."""
    pen.line([(0, -0.2), (0, 0.93)], k(0.11, 0.15), round_ends=True)
    w = k(0.26, 0.34)
    pen.disc(0, -0.55, w, 0.42)
    pen.disc(0.02, -0.55, w * 0.6, 0.28, tone=DETAIL)


def umbrella(pen: Pen, k: Knob) -> None:
    """A domed canopy with a scalloped edge, a stick and a hooked handle."""
    w, h = k(0.82, 0.97), k(0.7, 0.86)
    angle = np.linspace(np.pi, 2 * np.pi, 21)
    rim = np.linspace(w, -w, 25)
    scallop = 0.05 - 0.13 * np.abs(np.sin(np.linspace(0, 4 * np.pi, 25)))
    canopy = np.stack([w * np.cos(angle), h * np.sin(angle)], 1)
    pen.line([(0, -0.98), (0, 0.72)], 0.1)
    pen.arc(0.17, 0.72, 0.17, 0.2, 180, 0, 0.1)
    pen.poly(np.concatenate([canopy, np.stack([rim, scallop], 1)]))
    for s in (-1, 1):
        pen.line([(0, -h + 0.04), (s * w * 0.35, -0.3), (s * w * 0.5, 0.02)], 0.05, DETAIL)
