"""Any data set with its pictures corrupted as they are read: `shapes@fog-3`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PIL import Image

from reta.data import corruptions
from reta.data.dataset import Dataset


@dataclass(frozen=True)
class Change:
    """What is done to a picture after it is decoded. It depends on the picture and its key alone."""

    kind: str
    severity: int
    seed: int = 0

    def __call__(self, picture: Image.Image, key: str) -> Image.Image:
        return corruptions.corrupt_picture(picture, self.kind, self.severity, key, self.seed)


def corrupted(data: Dataset, kind: str, severity: int, seed: int = 0) -> Dataset:
    """The same set, corrupted: same keys and labels, another name and version.

    >>> from reta.data import open
    >>> clean = open("shapes", n=1)
    >>> foggy = corrupted(clean, "fog", 3)
    >>> foggy.name, foggy.keys == clean.keys, foggy.image(0).tobytes() == clean.image(0).tobytes()
    ('shapes@fog-3', True, False)
    """
    corruptions.check(kind, severity)
    return replace(
        data,
        name=f"{data.name}@{kind}-{severity}",
        version=f"{data.version} {kind}-{severity} seed {seed}",
        change=Change(kind, severity, seed),
    )
