"""Things that move."""

from __future__ import annotations

from .pen import DETAIL, HOLE, Knob, Pen


def airplane(pen: Pen, k: Knob) -> None:
    """A long body with swept wings and a tail, seen from above."""
    sweep, span = k(0.2, 0.42), k(0.84, 0.98)
    pen.blob([(0, -1.0), (0.13, -0.7), (0.13, 0.4), (0.06, 0.95), (-0.06, 0.95), (-0.13, 0.4), (-0.13, -0.7)])
    for s in (-1, 1):
        pen.poly([(s * 0.08, -0.3), (s * span, -0.05 + sweep), (s * span, 0.14 + sweep), (s * 0.08, 0.18)])
        pen.poly([(s * 0.04, 0.6), (s * 0.4, 0.8), (s * 0.4, 0.93), (s * 0.04, 0.88)])
    pen.disc(0, -0.7, 0.07, 0.1, tone=DETAIL)


def car(pen: Pen, k: Knob) -> None:
    """A low body with a cabin, windows and two wheels."""
    roof, wheel = k(-0.5, -0.34), k(0.2, 0.26)
    front = k(0.3, 0.45)
    pen.poly([(-0.6, 0.05), (-0.4, roof), (0.2, roof), (front + 0.15, 0.05)])
    pen.blob(
        [
            (-0.95, 0.1),
            (-0.6, -0.04),
            (0.4, -0.04),
            (0.9, 0.08),
            (0.97, 0.3),
            (0.9, 0.42),
            (-0.9, 0.42),
            (-0.98, 0.3),
        ]
    )
    pen.poly([(-0.47, 0.0), (-0.34, roof + 0.1), (-0.12, roof + 0.1), (-0.12, 0.0)], DETAIL)
    pen.poly([(-0.02, 0.0), (-0.02, roof + 0.1), (0.15, roof + 0.1), (front, 0.0)], DETAIL)
    for x in (-0.52, 0.52):
        pen.disc(x, 0.42, wheel + 0.05, tone=HOLE).disc(x, 0.44, wheel).disc(
            x, 0.44, wheel * 0.4, tone=DETAIL
        )


def rocket(pen: Pen, k: Knob) -> None:
    """A pointed hull with a porthole, side fins and a flame."""
    w, fin = k(0.26, 0.36), k(0.55, 0.7)
    pen.blob([(0, 1.0), (0.16, 0.7), (0.1, 0.55), (-0.1, 0.55), (-0.16, 0.7)], DETAIL)
    for s in (-1, 1):
        pen.poly([(s * w * 0.8, 0.05), (s * fin, 0.45), (s * fin, 0.8), (s * w * 0.5, 0.58)])
    pen.blob(
        [
            (0, -1.0),
            (w * 0.75, -0.55),
            (w, 0.0),
            (w * 0.7, 0.6),
            (-w * 0.7, 0.6),
            (-w, 0.0),
            (-w * 0.75, -0.55),
        ]
    )
    pen.disc(0, -0.25, k(0.11, 0.16), tone=DETAIL)


def sailboat(pen: Pen, k: Knob) -> None:
    """A hull with a mast and two triangular sails."""
    main, jib = k(0.62, 0.8), k(0.5, 0.68)
    pen.line([(0, -0.98), (0, 0.6)], 0.08)
    pen.poly([(0.08, -0.92), (main, 0.34), (0.08, 0.34)])
    pen.poly([(-0.08, -0.75), (-jib, 0.34), (-0.08, 0.34)])
    keel = k(0.82, 0.94)
    pen.poly([(-0.9, 0.48), (0.92, 0.48), (0.6, keel), (-0.6, keel)])
    pen.line([(-0.84, 0.58), (0.84, 0.58)], 0.08, DETAIL)
