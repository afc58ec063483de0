"""Animals, plants and the sky."""

from __future__ import annotations

import numpy as np

from .pen import DETAIL, HOLE, Knob, Pen


def apple(pen: Pen, k: Knob) -> None:
    """A round fruit with a dent at the top, a stem and a leaf."""
    w, dent = k(0.68, 0.86), k(0.12, 0.26)
    pen.blob(
        [
            (0, -0.5 + dent),
            (0.35 * w, -0.56),
            (w, -0.15),
            (0.82 * w, 0.5),
            (0.38, 0.9),
            (0, 0.8),
            (-0.38, 0.9),
            (-0.82 * w, 0.5),
            (-w, -0.15),
            (-0.35 * w, -0.56),
        ]
    )
    pen.line([(0.0, -0.28), (0.03, -0.6), (0.1, -0.95)], 0.1)
    pen.disc(0.36, -0.8, 0.28, k(0.1, 0.16), -25)


def butterfly(pen: Pen, k: Knob) -> None:
    """Four wings, a thin body and two feelers."""
    upper, lower = k(0.5, 0.72), k(0.36, 0.5)
    for s in (-1, 1):
        pen.blob(
            [
                (0, -0.1),
                (s * 0.45, -0.3 - upper * 0.75),
                (s * 0.95, -0.35 - upper * 0.6),
                (s * 0.9, -0.15),
                (s * 0.5, 0.1),
            ]
        )
        pen.blob(
            [(0, 0.0), (s * 0.6, 0.05), (s * 0.8, 0.1 + lower), (s * 0.45, 0.4 + lower), (s * 0.12, 0.35)]
        )
        pen.disc(s * 0.58, -0.45, k(0.1, 0.18), tone=DETAIL)
        pen.line([(0, -0.4), (s * 0.12, -0.7), (s * 0.28, -0.95)], 0.07)
    pen.disc(0, 0.0, 0.1, 0.55, tone=DETAIL)


def cactus(pen: Pen, k: Knob) -> None:
    """A thick stem with two raised arms."""
    w, left, right = k(0.34, 0.46), k(-0.45, -0.15), k(-0.65, -0.3)
    pen.line([(0, 0.95), (0, -0.72)], w).disc(0, -0.72, w / 2)
    for s, top, bend in ((-1, left, k(0.2, 0.4)), (1, right, k(0.0, 0.2))):
        pen.line([(0, bend), (s * 0.62, bend)], 0.25).disc(s * 0.62, bend, 0.125)
        pen.line([(s * 0.62, bend), (s * 0.62, top)], 0.25).disc(s * 0.62, top, 0.125)
    for y in (-0.6, -0.2, 0.2, 0.6):
        pen.disc(0.05, y, 0.05, tone=DETAIL)


def cat(pen: Pen, k: Knob) -> None:
    """A sitting cat seen from behind or the front: pointed ears, round body, curled tail."""
    tail = k(0.5, 0.68)
    pen.blob([(-0.2, -0.2), (0.2, -0.2), (0.5, 0.45), (0.48, 0.88), (0, 0.95), (-0.48, 0.88), (-0.5, 0.45)])
    pen.disc(0, -0.38, k(0.37, 0.44), 0.34)
    for s in (-1, 1):
        pen.poly([(s * 0.38, -0.4), (s * 0.36, -k(0.92, 1.0)), (s * 0.04, -0.64)])
        pen.disc(s * 0.16, -0.42, 0.065, 0.08, tone=DETAIL)
    pen.poly([(-0.07, -0.29), (0.07, -0.29), (0, -0.2)], DETAIL)
    pen.line(
        [(0.3, 0.84), (tail + 0.1, 0.8), (tail + 0.24, 0.5), (tail + 0.1, 0.25), (tail + 0.2, 0.05)], 0.16
    )


def crescent_moon(pen: Pen, k: Knob) -> None:
    """A disc with a shifted disc cut out of it."""
    cut = k(0.3, 0.5)
    pen.disc(0, 0, 0.9).disc(cut, k(-0.12, 0.02), 0.9 - cut * 0.32, tone=HOLE)


def fish(pen: Pen, k: Knob) -> None:
    """An oval body, a forked tail, fins and an eye."""
    h, tail = k(0.34, 0.52), k(0.32, 0.5)
    pen.poly([(0.3, 0), (0.95, -tail), (0.8, 0), (0.95, tail)])
    pen.poly([(-0.3, -h * 0.7), (0.05, -h - 0.28), (0.28, -h * 0.4)])
    pen.poly([(-0.1, h * 0.7), (0.1, h + 0.22), (0.25, h * 0.5)])
    pen.blob(
        [
            (-0.95, 0.02),
            (-0.6, -h * 0.75),
            (-0.15, -h),
            (0.3, -h * 0.6),
            (0.58, 0),
            (0.3, h * 0.6),
            (-0.15, h),
            (-0.6, h * 0.75),
        ]
    )
    pen.disc(-0.6, -0.1, 0.09, tone=DETAIL)
    pen.arc(-0.55, 0, 0.25, h * 0.8, -60, 60, 0.07, DETAIL)


def flower(pen: Pen, k: Knob) -> None:
    """Round petals about a centre, on a stem with a leaf."""
    n, petal = round(k(5, 7)), k(0.2, 0.26)
    pen.line([(0, -0.3), (0.03, 0.4), (0, 1.0)], 0.11)
    pen.disc(0.27, 0.62, 0.27, 0.11, -30).disc(-0.25, 0.72, 0.25, 0.1, 30)
    for i in range(n):
        a = 2 * np.pi * i / n
        pen.disc(0.36 * np.sin(a), -0.4 - 0.36 * np.cos(a), petal + 0.02, petal - 0.03, np.degrees(a) - 90)
    pen.disc(0, -0.4, k(0.15, 0.22), tone=DETAIL)


def lightning_bolt(pen: Pen, k: Knob) -> None:
    """A jagged zigzag that ends in a point."""
    w, kink = k(0.3, 0.5), k(-0.05, 0.12)
    pen.poly(
        [
            (0.1 - w / 2, -0.95),
            (0.1 + w, -0.95),
            (0.2, -0.2 + kink),
            (0.62, -0.2 + kink),
            (-0.45, 0.98),
            (-0.1, 0.12 + kink),
            (-0.55, 0.12 + kink),
        ]
    )


def mushroom(pen: Pen, k: Knob) -> None:
    """A domed cap with spots on a stout stem."""
    cap, stem = k(0.78, 0.95), k(0.18, 0.32)
    pen.blob(
        [
            (-stem, 0.0),
            (stem, 0.0),
            (stem * 0.95, 0.5),
            (stem * 1.25, 0.9),
            (-stem * 1.25, 0.9),
            (-stem * 0.95, 0.5),
        ]
    )
    angle = np.linspace(np.pi, 2 * np.pi, 20)
    rise = k(0.85, 1.05)
    pen.poly(np.stack([cap * np.cos(angle), 0.15 + rise * np.sin(angle)], 1))
    for x, y, r in ((-0.4, -0.2, 0.12), (0.05, -0.5, 0.15), (0.42, -0.12, 0.11)):
        pen.disc(x, y, r, tone=DETAIL)


def pine_tree(pen: Pen, k: Knob) -> None:
    """Three stacked triangles on a short trunk."""
    w, droop = k(0.6, 0.8), k(0.0, 0.1)
    pen.box(-0.11, 0.6, 0.11, 0.98, DETAIL)
    for top, low, half in ((-0.98, -0.35, 0.55), (-0.62, 0.15, 0.78), (-0.2, 0.72, 1.0)):
        pen.poly([(0, top), (w * half, low), (0, low - droop), (-w * half, low)])


def rabbit(pen: Pen, k: Knob) -> None:
    """A hare in profile: long ears, round back and a puff of a tail."""
    ear = k(0.34, 0.44)
    pen.blob(
        [
            (-0.3, 0.3),
            (0.0, -0.05),
            (0.45, 0.0),
            (0.7, 0.45),
            (0.55, 0.88),
            (0.0, 0.92),
            (-0.4, 0.9),
            (-0.34, 0.6),
        ]
    )
    pen.disc(-0.42, -0.05, 0.32, 0.27, 15)
    pen.disc(-0.4, -0.56, 0.11, ear, -14).disc(-0.14, -0.52, 0.11, ear, k(14, 30))
    pen.disc(0.74, 0.6, k(0.14, 0.2))
    pen.disc(-0.52, -0.09, 0.06, tone=DETAIL)
    pen.arc(0.38, 0.62, 0.3, 0.3, 180, 290, 0.07, DETAIL)


def snail(pen: Pen, k: Knob) -> None:
    """A coiled shell on a flat foot, with two stalks."""
    r = k(0.5, 0.6)
    pen.blob(
        [
            (-0.85, 0.3),
            (-0.62, 0.32),
            (-0.5, 0.6),
            (0.4, 0.6),
            (0.98, 0.82),
            (0.6, 0.9),
            (-0.55, 0.88),
            (-0.85, 0.75),
        ]
    )
    pen.line([(-0.8, 0.4), (-0.95, -0.02)], 0.08, round_ends=True)
    pen.line([(-0.66, 0.38), (-0.62, -0.02)], 0.08, round_ends=True)
    pen.disc(0.16, 0.1, r)
    turn = np.linspace(0, k(3.6, 4.4) * np.pi, 40)
    grow = r * (0.06 + 0.78 * turn / turn[-1])
    pen.line(np.stack([0.16 + grow * np.cos(turn), 0.1 + grow * np.sin(turn)], 1), 0.08, DETAIL)


def star(pen: Pen, k: Knob) -> None:
    """A star of five points."""
    inner, angle = k(0.36, 0.5), np.pi * np.arange(10) / 5
    radius = np.where(np.arange(10) % 2 == 0, 0.98, 0.98 * inner)
    pen.poly(np.stack([radius * np.sin(angle), -radius * np.cos(angle)], 1))
