"""What each set may do: ranges for pose, outline, light and clutter. Training sees only `shapes`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Range = tuple[float, float]
Style = Literal["photo", "rendition", "sketch"]


@dataclass(frozen=True)
class Look:
    """The ranges from which one set draws its scenes.

    `knob` says how far an outline's free parameters go: inside [0, 1] is the usual form, outside is a
    redrawn one. Lengths are parts of half the picture, angles are degrees, colours 0 to 255.

    Example:
        >>> LOOKS["shapes"].style
        'photo'
    """

    style: Style = "photo"
    knob: tuple[Range, ...] = ((0.0, 1.0),)
    size: Range = (0.5, 0.9)
    turn: tuple[Range, ...] = ((-28.0, 28.0),)
    shear: float = 0.14
    stretch: float = 0.14
    wobble: Range = (0.0, 0.0)
    contrast: Range = (60.0, 400.0)
    clutter: tuple[int, int] = (0, 3)
    occluders: tuple[int, int] = (0, 0)
    busy: float = 0.35
    noise: Range = (0.0, 14.0)
    blur: float = 0.25
    light: Range = (0.65, 1.15)
    palette: Literal["plain", "pastel"] = "plain"


_PHOTO = Look()
LOOKS: dict[str, Look] = {
    "train": _PHOTO,
    "shapes": _PHOTO,
    "shapes-a": replace(_PHOTO, size=(0.5, 0.8), turn=((-50.0, -15.0), (15.0, 50.0)), shear=0.2, stretch=0.18,
                        contrast=(65.0, 300.0), clutter=(2, 5), occluders=(0, 1), busy=0.45, noise=(0.0, 14.0),
                        light=(0.55, 1.1)),
    "shapes-v2": replace(_PHOTO, knob=((-0.45, -0.1), (1.1, 1.45)), size=(0.46, 0.96), turn=((-40.0, 40.0),),
                         wobble=(0.012, 0.032), contrast=(55.0, 400.0), clutter=(1, 4), busy=0.45, noise=(0.0, 14.0),
                         palette="pastel"),
    "shapes-r": replace(_PHOTO, style="rendition", size=(0.62, 0.92), turn=((-20.0, 20.0),), wobble=(0.0, 0.03)),
    "shapes-sketch": replace(_PHOTO, style="sketch", knob=((-0.3, 1.3),), size=(0.45, 0.95), turn=((-35.0, 35.0),),
                             shear=0.2, wobble=(0.02, 0.05)),
}  # fmt: skip
