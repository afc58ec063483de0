"""Draw one contact sheet per set of the embedded world: every class, a few times.

python training/contact_sheets.py --out docs/assets
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image, ImageDraw

from reta.data import shapes

COLUMNS = 10


def sheet(name: str, copies: int) -> Image.Image:
    """All classes of a set in rows of ten; each cell shows the first `copies` images of a class."""
    found: dict[int, list[Image.Image]] = {c: [] for c in range(len(shapes.classes()))}
    index = 0
    while any(len(v) < copies for v in found.values()):
        images = found[shapes.label(name, index)]
        if len(images) < copies:
            images.append(shapes.draw(name, index))
        index += 1
    rows = -(-len(found) // COLUMNS)
    canvas = Image.new("RGB", (COLUMNS * 68, rows * (copies * 66 + 14)), "white")
    pen = ImageDraw.Draw(canvas)
    for c, images in found.items():
        x, y = c % COLUMNS * 68 + 2, c // COLUMNS * (copies * 66 + 14)
        pen.text((x, y + 1), shapes.classes()[c][:11], fill="black")
        for i, image in enumerate(images):
            canvas.paste(image, (x, y + 13 + i * 66))
    return canvas


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/assets"))
    parser.add_argument("--copies", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in shapes.SETS:
        path = options.out / ("shapes.png" if name == "shapes" else f"{name}.png")
        sheet(name, options.copies).quantize(128).save(path, optimize=True)
        print(path, path.stat().st_size // 1024, "KB")


if __name__ == "__main__":
    main()
