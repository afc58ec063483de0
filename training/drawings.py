"""Named drawings to learn from: three free emoji sets from the npm registry, each thing drawn a few ways.

Noto is Apache-2.0, both Fluent sets are MIT. Pictures of flags, clocks, signs and skin tones are left out: they
carry no name that a user would ask for.
"""

from __future__ import annotations

import io
import json
import random
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter, ImageOps

SETS = {
    "noto": ("@iconify-json/noto", "1.2.9"),
    "flat": ("@iconify-json/fluent-emoji-flat", "1.2.6"),
    "mono": ("@iconify-json/fluent-emoji-high-contrast", "1.2.6"),
}
SIZE = 224
LEFT_OUT = re.compile(
    "-(light|medium|dark|medium-light|medium-dark)$|skin-tone|flag|keycap|button|clock|thirty|arrow|square|circle"
    "|diamond|heart|letter|sign$|symbol|zodiac|moon-|-moon|hand|finger|fist|japanese|blood-type|no-|non-|input"
    "|^(sos|cl|up|new|ok|free|id|vs|top|soon|on|back|end)-|copyright|registered|trade|infinity|plus|minus|multiply"
    "|divide|equals|exclam|question|mark|wavy|curly|loop|part-alternation|bright|dim|recycl|trident|fleur|hollow"
    "|asterisk"
)


class Drawing(NamedTuple):
    """A name, the way it is drawn, and the picture."""

    name: str
    style: str
    picture: Image.Image


def fetch(folder: Path) -> None:
    """The sets' packages, at the versions above; npm checks what it gets against the registry's hashes."""
    folder.mkdir(parents=True, exist_ok=True)
    for style, (package, version) in SETS.items():
        if (folder / f"{style}.json").is_file():
            continue
        done = subprocess.run(
            ["npm", "pack", "--silent", f"{package}@{version}"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        with tarfile.open(folder / done.stdout.strip()) as file:
            icons = file.extractfile("package/icons.json")
            assert icons is not None
            (folder / f"{style}.json").write_bytes(icons.read())


def icons(folder: Path, style: str) -> Iterator[tuple[str, str]]:
    """Name and SVG of every drawing of a set."""
    table = json.loads((folder / f"{style}.json").read_text("utf-8"))
    usual = {"width": table.get("width", 32), "height": table.get("height", 32)}
    for name, icon in table["icons"].items():
        if LEFT_OUT.search(name):
            continue
        box = usual | icon
        view = f"{box.get('left', 0)} {box.get('top', 0)} {box['width']} {box['height']}"
        body = icon["body"].replace("currentColor", "#000")
        yield (
            name.replace("-", " ").removesuffix(" face"),
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'viewBox="{view}" width="256" height="256">{body}</svg>',
        )


def draw(folder: Path, seed: int = 0) -> Iterator[Drawing]:
    """Every thing as it is, moved and turned on a coloured ground, and as a drawing in lines."""
    import resvg_py

    rng = random.Random(seed)
    for style in SETS:
        for name, svg in icons(folder, style):
            art = Image.open(io.BytesIO(bytes(resvg_py.svg_to_bytes(svg_string=svg)))).convert("RGBA")
            yield Drawing(name, style, place(art, rng.uniform(0.7, 0.98)))
            yield Drawing(name, f"{style}, moved", moved(art, rng, plain=style == "mono"))
            if style != "mono":
                yield Drawing(name, f"{style}, lines", lines(moved(art, rng, plain=True), rng))


def moved(art: Image.Image, rng: random.Random, plain: bool) -> Image.Image:
    ground = (255, 255, 255)
    if not plain and rng.random() < 0.6:
        ground = tuple(rng.randint(150, 255) for _ in range(3))
    if rng.random() < 0.5:
        art = ImageOps.mirror(art)
    turned = art.rotate(rng.uniform(-20, 20), Image.Resampling.BICUBIC, expand=True)
    return place(turned, rng.uniform(0.5, 0.95), ground)


def place(art: Image.Image, share: float, ground: tuple[int, ...] = (255, 255, 255)) -> Image.Image:
    """In the middle of a square, its longer side `share` of the square's."""
    art = art.crop(art.getbbox() or (0, 0, *art.size))
    ratio = SIZE * share / max(art.size)
    art = art.resize([max(1, round(side * ratio)) for side in art.size], Image.Resampling.LANCZOS)
    sheet = Image.new("RGBA", (SIZE, SIZE), (*ground, 255))
    sheet.alpha_composite(art, ((SIZE - art.width) // 2, (SIZE - art.height) // 2))
    return sheet.convert("RGB")


def lines(picture: Image.Image, rng: random.Random) -> Image.Image:
    """Dark lines on white where brightness changes: the difference of two blurs."""
    grey = picture.convert("L")
    fine, coarse = (
        np.asarray(grey.filter(ImageFilter.GaussianBlur(radius)), np.float32) for radius in (1, 2)
    )
    ink = np.abs(fine - coarse) * rng.uniform(9, 16)
    return Image.fromarray((255 - ink.clip(0, 255)).astype(np.uint8)).convert("RGB")
