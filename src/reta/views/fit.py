"""How a whole picture is fitted into a model's square: the geometry of the plain view, for both engines."""

from __future__ import annotations

from typing import NamedTuple

MODES = ("shortest", "squash", "longest")
LONGEST = 16


class Fit(NamedTuple):
    """Resize to (height, width), then cut the square whose corner is (top, left); negative means padding."""

    height: int
    width: int
    top: int
    left: int


def fit(height: int, width: int, size: int, mode: str = "shortest") -> Fit:
    """The same numbers as torchvision's Resize + CenterCrop and as open_clip's three resize modes.

    >>> fit(480, 640, 224)
    Fit(height=224, width=298, top=0, left=37)
    >>> fit(480, 640, 224, "longest")
    Fit(height=168, width=224, top=-28, left=0)
    """
    if mode == "squash":
        return Fit(size, size, 0, 0)
    if mode == "longest":
        ratio = max(height, width) / size
        new = (max(round(height / ratio), 1), max(round(width / ratio), 1))
    elif width <= height:
        new = (int(size * height / width), size)
    else:
        new = (size, int(size * width / height))
    return Fit(*new, *(_corner(side, size) for side in new))


def window(height: int, width: int, mode: str) -> tuple[int, int, int, int]:
    """The part of the picture (top, left, height, width) that is resized: all of it, but for strips.

    Bringing the short side of a strip to the model's size would blow the long side up without bound, only to
    throw nearly all of it away; of pictures longer than 16 to 1 the middle is taken first.

    >>> window(10, 100_000, "shortest")
    (0, 49920, 10, 160)
    """
    if mode != "shortest":
        return 0, 0, height, width
    tall, wide = min(height, LONGEST * width), min(width, LONGEST * height)
    return (height - tall) // 2, (width - wide) // 2, tall, wide


def _corner(side: int, size: int) -> int:
    return -((size - side) // 2) if side < size else round((side - size) / 2)
