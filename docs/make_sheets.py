"""Draw the contact sheets of the pages on views and on corruptions.

    python docs/make_sheets.py          -> docs/assets/views.png, docs/assets/corruptions.jpg

Both show a scene drawn below (400 x 300) and a picture of the embedded world (64 x 64).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from reta.data import shapes
from reta.data.corruptions import NAMES, corrupt
from reta.views import ENGINES, Views

ASSETS = Path(__file__).parent / "assets"
TILE, GAP, MARGIN = 100, 4, 130


def scene(width: int = 400, height: int = 300) -> Image.Image:
    """A house under a tree on a hill, with sky, grain and shade; every line of it drawn here."""
    rng = np.random.default_rng(3)
    up = np.linspace(0, 1, height)[:, None, None]
    sky = (1 - up) * np.array([90, 150, 220]) + up * np.array([225, 235, 240])
    image = Image.fromarray(np.broadcast_to(sky, (height, width, 3)).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    pen.ellipse((300, 25, 350, 75), fill=(255, 225, 120))
    pen.polygon([(0, 200), (110, 120), (230, 205), (400, 150), (400, 300), (0, 300)], fill=(95, 140, 80))
    pen.rectangle((70, 170, 190, 255), fill=(200, 90, 70), outline=(90, 40, 30))
    pen.polygon([(58, 172), (130, 110), (202, 172)], fill=(80, 60, 70))
    for left in (84, 150):
        pen.rectangle((left, 185, left + 26, 213), fill=(240, 235, 180), outline=(70, 50, 40))
    pen.rectangle((117, 205, 141, 255), fill=(95, 60, 40))
    pen.rectangle((286, 165, 302, 262), fill=(90, 62, 40))
    for x, y in rng.normal((294, 135), (34, 26), (160, 2)):
        shade = int(rng.integers(70, 150))
        pen.ellipse((x - 11, y - 11, x + 11, y + 11), fill=(shade // 3, shade, shade // 3))
    for x, y in rng.uniform((0, 262), (width, height), (900, 2)):
        pen.line((x, y, x + rng.normal(0, 2), y - 9), fill=(60, int(rng.integers(110, 170)), 50))
    soft = np.asarray(image.filter(ImageFilter.GaussianBlur(0.7))) + rng.normal(0, 4, (height, width, 3))
    return Image.fromarray(soft.clip(0, 255).astype(np.uint8))


def sheet(rows: list[tuple[str, list[Image.Image]]], columns: list[str]) -> Image.Image:
    """Tiles in rows, each with its name on the left."""
    font = ImageFont.load_default(13)
    size = (MARGIN + len(columns) * (TILE + GAP), 20 + len(rows) * (TILE + GAP))
    page = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(page)
    for number, title in enumerate(columns):
        pen.text((MARGIN + number * (TILE + GAP) + 2, 2), title, fill="black", font=font)
    for line, (name, tiles) in enumerate(rows):
        top = 20 + line * (TILE + GAP)
        pen.text((4, top + TILE // 2 - 8), name, fill="black", font=font)
        for number, tile in enumerate(tiles):
            page.paste(tile.resize((TILE, TILE), _taps(tile)), (MARGIN + number * (TILE + GAP), top))
    return page


def _taps(tile: Image.Image) -> Image.Resampling:
    return Image.Resampling.NEAREST if tile.width < TILE else Image.Resampling.LANCZOS


def picture(pixels: torch.Tensor) -> Image.Image:
    """From [3, H, W], uint8 or in [0, 1]."""
    levels = pixels if pixels.dtype == torch.uint8 else (pixels * 255).round().clamp(0, 255).to(torch.uint8)
    return Image.fromarray(levels.permute(1, 2, 0).numpy())


def views_sheet(count: int = 9) -> Image.Image:
    """The same choices applied by both engines, to both pictures."""
    rows = []
    for title, image, size in (("scene, 224", scene(), 224), ("shapes, 64", shapes.draw("shapes", 1), 64)):
        for recipe in ("crops", "augmix"):
            made = {e: Views(recipe, count, size, engine=e).make(image, "sheet") for e in ENGINES}
            rows += [
                (f"{title}\n{recipe}, {e}", [picture(view) for view in made[e]]) for e in ("pil", "batched")
            ]
    return sheet(rows, ["plain", *(f"view {number}" for number in range(1, count))])


def corruptions_sheet() -> Image.Image:
    """Every corruption at every severity, at 224 and at 64 pixels."""
    pictures = [
        Views("plain", size=224).make(scene())[0],
        Views("plain", size=64).make(shapes.draw("shapes", 1))[0],
    ]
    pixels = [(view * 255).round().to(torch.uint8)[None] for view in pictures]
    rows = []
    for name in NAMES:
        tiles = [corrupt(p, name, severity, ["sheet"])[0] for p in pixels for severity in range(1, 6)]
        rows.append((name.replace("_", " "), [picture(tile) for tile in tiles]))
    return sheet(rows, [f"{size} px, {severity}" for size in (224, 64) for severity in range(1, 6)])


if __name__ == "__main__":
    views_sheet().save(ASSETS / "views.png", optimize=True)
    corruptions_sheet().save(ASSETS / "corruptions.jpg", quality=88)
