"""The silhouettes: one function per class, each a few strokes of a `Pen` with free `Knob`s."""

from __future__ import annotations

from collections.abc import Callable

from . import home, nature, tools, vehicles
from .pen import BODY, DETAIL, HOLE, Knob, Part, Pen

__all__ = ["BODY", "DETAIL", "HOLE", "OUTLINES", "Knob", "Part", "Pen", "parts"]

_FUNCTIONS: tuple[Callable[[Pen, Knob], None], ...] = (
    nature.apple, nature.butterfly, nature.cactus, nature.cat, nature.crescent_moon, nature.fish, nature.flower,
    nature.lightning_bolt, nature.mushroom, nature.pine_tree, nature.rabbit, nature.snail, nature.star,
    tools.anchor, tools.arrow, tools.bell, tools.fork, tools.guitar, tools.hammer, tools.key, tools.ladder,
    tools.padlock, tools.scissors, tools.spoon, tools.umbrella,
    home.bottle, home.candle, home.chair, home.crown, home.cup, home.heart, home.hourglass, home.house,
    home.light_bulb, home.teapot, home.wine_glass,
    vehicles.airplane, vehicles.car, vehicles.rocket, vehicles.sailboat,
)  # fmt: skip

OUTLINES: dict[str, Callable[[Pen, Knob], None]] = {
    f.__name__.replace("_", " "): f for f in sorted(_FUNCTIONS, key=lambda f: f.__name__)
}


def parts(name: str, knob: Knob) -> list[Part]:
    """The parts of the class `name`, drawn with the given knob."""
    pen = Pen()
    OUTLINES[name](pen, knob)
    return pen.parts
