"""The embedded world: 40 everyday silhouettes at 64 x 64, drawn on demand, in five test sets.

`shapes` is the world the embedded models were trained on (with other seeds); `shapes-a` is cluttered,
occluded and oddly posed; `shapes-v2` is redrawn; `shapes-r` holds renditions; `shapes-sketch` outlines.
An image is a function of (set, index, seed) alone.

Example:
    >>> from reta.data import shapes
    >>> world = shapes.open("shapes-sketch", n=100)
    >>> image, label = world[7]
    >>> image.size, world.names[label] == shapes.classes()[shapes.label("shapes-sketch", 7)]
    ((64, 64), True)
"""

from .world import SETS, World, classes, descriptions, draw, label, open, scene

__all__ = ["SETS", "World", "classes", "descriptions", "draw", "label", "open", "scene"]
