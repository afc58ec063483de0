"""Miniature copies of the fifteen sets, in the layouts people have them in, and catalogs with their counts."""

from __future__ import annotations

import io
import json
import re
from importlib.resources import files
from pathlib import Path

from PIL import Image

CLASSES, TRAIN, TEST = 3, 1, 2

# set -> (image folder, {class name in the split: path of image i})
SPLIT_SETS: dict[str, tuple[str, dict[str, str]]] = {
    "caltech101": (
        "caltech-101/101_ObjectCategories",
        {
            "airplane": "airplanes/{i:04}.png",
            "face": "Faces/{i:04}.png",
            "water_lilly": "water_lilly/{i:04}.png",
        },
    ),
    "dtd": ("DTD/images", {n: f"{n}/{n}_{{i:04}}.png" for n in ("banded", "polka-dotted", "zigzagged")}),
    "eurosat": (
        "EuroSAT/2750",
        {
            "Annual Crop Land": "AnnualCrop/AnnualCrop_{i}.png",
            "Forest": "Forest/Forest_{i}.png",
            "Highway or Road": "Highway/Highway_{i}.png",
        },
    ),
    "flowers102": (
        "Flower102/jpg",
        {
            "pink primrose": "image_0{i}.png",
            "king protea": "image_1{i}.png",
            "spear thistle": "image_2{i}.png",
        },
    ),
    "food101": (
        "food-101/images",
        {n: f"{n}/{{i}}.png" for n in ("carrot_cake", "cheese_plate", "cheesecake")},
    ),
    "pets": (
        "oxford-iiit-pet/images",
        {n.lower(): f"{n}_{{i}}.png" for n in ("Abyssinian", "Egyptian_Mau", "american_bulldog")},
    ),
    "cars": (
        "StanfordCars",
        {"2000 AM General Hummer SUV": "cars_test/0{i}.png", "2012 Acura RL Sedan": "cars_test/1{i}.png"}
        | {"2012 Acura TL Sedan": "cars_test/2{i}.png"},
    ),
    "sun397": (
        "SUN397/SUN397",
        {
            "abbey": "a/abbey/sun_{i}.png",
            "outdoor apartment_building": "a/apartment_building/outdoor/sun_{i}.png",
            "indoor volcano": "v/volcano/indoor/sun_{i}.png",
        },
    ),
    "ucf101": (
        "ucf101/UCF-101-midframes",
        {n: f"{n}/v_{n.replace('_', '')}_g{{i:02}}.png" for n in ("Apply_Eye_Makeup", "Tai_Chi", "Yo_Yo")},
    ),
}
WNID_SETS = {
    "imagenet": "imagenet/images/val",
    "imagenet-a": "imagenet-adversarial/imagenet-a",
    "imagenet-v2": "imagenetv2/imagenetv2-matched-frequency-format-val",
    "imagenet-r": "imagenet-rendition/imagenet-r",
    "imagenet-sketch": "ImageNet-Sketch/images",
}
FIFTEEN = (*SPLIT_SETS, "aircraft", *WNID_SETS)


def picture(color: int = 0) -> bytes:
    """A small PNG; other numbers, other bytes."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (color % 256, color // 256 % 256, 90)).save(file, "PNG")
    return file.getvalue()


def put(path: Path, color: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture(color))


def catalog(folder: Path, **counts: int) -> Path:
    """A copy of the package's catalog with the counts of the miniatures; point RETA_CATALOG at it."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in Path(str(files("reta.data.catalog"))).glob("*.toml"):
        head, mark, tail = source.read_text(encoding="utf-8").partition("\n[variants")
        count = {"test": CLASSES * TEST, "classes": CLASSES} | counts
        for key, value in count.items():
            head = re.sub(rf"(?m)^{key} = \d+$", f"{key} = {value}", head)
        tail = tail.replace("test = 6862", f"test = {CLASSES * TEST - 1}")
        (folder / source.name).write_text(head + mark + tail, encoding="utf-8")
    return folder


def build(name: str, root: Path) -> Path:
    """Draw one set below `root`; gives its image folder."""
    if name in SPLIT_SETS:
        return _split_set(name, root)
    return _aircraft(root) if name == "aircraft" else _wnid_set(name, root)


def _split_set(name: str, root: Path) -> Path:
    from reta.data import catalog as entries

    folder, classes = SPLIT_SETS[name]
    images = root / folder
    split: dict[str, list[list[object]]] = {"train": [], "val": [], "test": []}
    for label, (title, path) in enumerate(classes.items()):
        for i in range(TRAIN + TEST):
            place = path.format(i=i + 1)
            put(images / place, 10 * label + i)
            split["train" if i < TRAIN else "test"].append([place, label, title])
    home = root / folder.split("/")[0]
    (home / entries.entry(name).split[0]).write_text(json.dumps(split))
    return images


def _aircraft(root: Path) -> Path:
    home = root / "fgvc-aircraft-2013b" / "data"
    names = ("707-320", "A330-200", "Boeing 717")
    lines = []
    for label, title in enumerate(names):
        for i in range(TEST):
            number = f"{label}{i:06}"
            put(home / "images" / f"{number}.jpg", 10 * label + i)
            lines.append(f"{number} {title}")
    (home / "variants.txt").write_text("\n".join(names) + "\n")
    (home / "images_variant_test.txt").write_text("\n".join(lines) + "\n")
    return home / "images"


def _wnid_set(name: str, root: Path) -> Path:
    from reta.data.catalog import entry
    from reta.data.names import wnids

    images = root / WNID_SETS[name]
    folders = (
        [str(i) for i in range(CLASSES)] if name == "imagenet-v2" else wnids(entry(name).subset)[:CLASSES]
    )
    for label, folder in enumerate(folders):
        for i in range(TEST):
            odd = name == "imagenet-a" and label == i == 0
            put(images / folder / f"0.{i}_{'shark' if odd else 'fox'}.png", 10 * label + i)
    return images
