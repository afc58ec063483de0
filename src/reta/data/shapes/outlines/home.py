"""Things of the house, and the house."""

from __future__ import annotations

import numpy as np

from .pen import DETAIL, HOLE, Knob, Pen


def bottle(pen: Pen, k: Knob) -> None:
    """A tall body with shoulders, a narrow neck and a label."""
    w, neck, shoulder = k(0.3, 0.4), k(0.1, 0.14), k(-0.3, -0.1)
    pen.box(-neck, -0.95, neck, 0.0).box(-neck - 0.04, -0.97, neck + 0.04, -0.82)
    pen.poly(
        [
            (-neck, shoulder - 0.25),
            (neck, shoulder - 0.25),
            (w * 0.85, shoulder),
            (w, shoulder + 0.2),
            (w, 0.95),
            (-w, 0.95),
            (-w, shoulder + 0.2),
            (-w * 0.85, shoulder),
        ]
    )
    pen.box(-w, 0.25, w, 0.65, DETAIL)


def candle(pen: Pen, k: Knob) -> None:
    """A wax cylinder with a flame, on a saucer with a loop."""
    w, top = k(0.15, 0.22), k(-0.35, -0.1)
    pen.box(-w, top, w, 0.72)
    pen.blob([(-0.7, 0.7), (0, 0.66), (0.7, 0.7), (0.5, 0.92), (-0.5, 0.92)])
    pen.disc(0.74, 0.66, 0.2).disc(0.74, 0.66, 0.1, tone=HOLE)
    pen.line([(0, top), (0, top - 0.16)], 0.07)
    pen.blob(
        [(0, top - 0.62), (0.15, top - 0.28), (0.09, top - 0.12), (-0.09, top - 0.12), (-0.15, top - 0.28)],
        DETAIL,
    )


def chair(pen: Pen, k: Knob) -> None:
    """A straight back, a flat seat and legs, seen from the side."""
    leg, seat = k(0.11, 0.15), k(0.05, 0.18)
    pen.line([(-0.55, -0.97), (-0.45, seat), (-0.5, 0.97)], leg + 0.03)
    pen.line([(-0.5, seat), (0.55, seat)], 0.18)
    pen.line([(0.46, seat), (0.52, 0.97)], leg)
    pen.line([(-0.46, 0.6), (0.5, 0.6)], 0.07)
    pen.line([(-0.18, seat), (-0.2, 0.8)], leg * 0.8).line([(0.2, seat), (0.22, 0.8)], leg * 0.8)


def crown(pen: Pen, k: Knob) -> None:
    """A band with three or more tall points, each tipped with a ball."""
    tip, valley, low = k(0.6, 0.8), k(0.0, 0.2), k(0.5, 0.7)
    pen.poly(
        [
            (-0.85, -tip + 0.15),
            (-0.42, valley),
            (0, -tip),
            (0.42, valley),
            (0.85, -tip + 0.15),
            (0.68, low),
            (-0.68, low),
        ]
    )
    for x, y in ((-0.85, -tip + 0.1), (0, -tip - 0.04), (0.85, -tip + 0.1)):
        pen.disc(x, y, 0.11)
    pen.box(-0.68, low - 0.22, 0.68, low - 0.1, DETAIL)
    pen.disc(0, low - 0.42, 0.08, tone=DETAIL)


def cup(pen: Pen, k: Knob) -> None:
    """A mug, wider than a glass, with a handle at one side and steam above."""
    w, foot, low = k(0.48, 0.58), k(0.38, 0.54), k(0.7, 0.85)
    pen.arc(w - 0.08, 0.12, 0.38, 0.32, -95, 95, 0.14)
    pen.poly([(-w, -0.35), (w, -0.35), (foot, low), (-foot, low)])
    pen.disc(0, -0.35, w, 0.1, tone=DETAIL)
    for x in (-0.2, 0.15):
        y = np.linspace(-0.55, -0.98, 9)
        pen.line(np.stack([x + 0.07 * np.sin((y + 0.55) * 13), y], 1), 0.07)


def heart(pen: Pen, k: Knob) -> None:
    """Two round lobes that meet in a notch above a point."""
    t = np.linspace(0, 2 * np.pi, 44, endpoint=False)
    wide, notch = k(0.052, 0.06), k(4.0, 6.2)
    x = wide * 16 * np.sin(t) ** 3
    y = -0.058 * (13 * np.cos(t) - notch * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
    pen.poly(np.stack([x, y - 0.1], 1))


def hourglass(pen: Pen, k: Knob) -> None:
    """Two glass cones tip to tip between two plates, with sand."""
    w, neck = k(0.44, 0.56), k(0.04, 0.09)
    pen.box(-w - 0.12, -0.97, w + 0.12, -0.8).box(-w - 0.12, 0.8, w + 0.12, 0.97)
    pen.poly(
        [
            (-w, -0.82),
            (w, -0.82),
            (w * 0.92, -0.5),
            (neck, 0),
            (w * 0.92, 0.5),
            (w, 0.82),
            (-w, 0.82),
            (-w * 0.92, 0.5),
            (-neck, 0),
            (-w * 0.92, -0.5),
        ]
    )
    pen.poly([(-w * 0.55, -0.4), (w * 0.55, -0.4), (0, -0.04)], DETAIL)
    pen.poly([(-w * 0.75, 0.8), (0, 0.4), (w * 0.75, 0.8)], DETAIL)


def house(pen: Pen, k: Knob) -> None:
    """Walls under a pitched roof, with a chimney, a door and a window."""
    w, eave, roof = k(0.6, 0.72), k(-0.2, -0.02), k(0.82, 0.95)
    pen.box(0.36, -0.88, 0.56, eave)
    pen.box(-w, eave - 0.02, w, 0.92).poly([(-roof, eave), (0, -0.92), (roof, eave)])
    door = k(-0.4, -0.25)
    pen.box(door, 0.3, door + 0.34, 0.92, DETAIL).box(0.16, 0.2, 0.46, 0.5, DETAIL)


def light_bulb(pen: Pen, k: Knob) -> None:
    """A round glass that narrows to a ribbed screw base."""
    r, base = k(0.52, 0.64), k(0.2, 0.26)
    pen.disc(0, -0.33, r)
    pen.poly([(-r * 0.85, -0.05), (r * 0.85, -0.05), (base + 0.03, 0.5), (-base - 0.03, 0.5)])
    pen.box(-base, 0.45, base, 0.85).disc(0, 0.86, base * 0.65, 0.11)
    for y in (0.53, 0.69):
        pen.line([(-base - 0.04, y), (base + 0.04, y)], 0.08, DETAIL)
    pen.line([(-0.12, 0.45), (-0.16, -0.2), (0, -0.02), (0.16, -0.2), (0.12, 0.45)], 0.06, DETAIL)


def teapot(pen: Pen, k: Knob) -> None:
    """A round pot with a spout, a handle, and a lid with a knob."""
    w, h = k(0.5, 0.6), k(0.44, 0.54)
    pen.arc(w - 0.02, 0.12, 0.32, 0.34, -100, 100, 0.12)
    pen.poly([(-w * 0.7, 0.42), (-w * 0.8, 0.0), (-0.86, -0.32), (-1.0, -0.28), (-0.86, 0.15)])
    pen.disc(0, 0.2, w, h)
    pen.box(-w * 0.55, 0.55, w * 0.55, 0.76)
    pen.disc(0, -0.26, w * 0.5, 0.13).disc(0, -0.44, 0.1)
    pen.arc(0, -0.08, w * 0.62, 0.14, 170, 10, 0.06, DETAIL)


def wine_glass(pen: Pen, k: Knob) -> None:
    """A deep bowl on a thin stem and a flat foot."""
    w, deep = k(0.4, 0.52), k(0.1, 0.25)
    pen.blob(
        [
            (-w * 0.85, -0.95),
            (w * 0.85, -0.95),
            (w, -0.5),
            (w * 0.6, deep - 0.15),
            (0, deep),
            (-w * 0.6, deep - 0.15),
            (-w, -0.5),
        ]
    )
    pen.line([(0, 0.0), (0, 0.9)], k(0.08, 0.12)).disc(0, 0.9, k(0.36, 0.46), 0.09)
    pen.blob(
        [
            (-w * 0.82, -0.5),
            (w * 0.82, -0.5),
            (w * 0.5, deep - 0.2),
            (0, deep - 0.08),
            (-w * 0.5, deep - 0.2),
        ],
        DETAIL,
    )
