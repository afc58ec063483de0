"""How the raw name of a class, a folder or a file, becomes the name the papers put into prompts."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from reta.data.folder import plain
from reta.errors import BadInput, MissingExtra, nearest

CALTECH = {"airplanes": "airplane", "Faces": "face", "Leopards": "leopard", "Motorbikes": "motorbike"}
EUROSAT = {
    "AnnualCrop": "Annual Crop Land",
    "HerbaceousVegetation": "Herbaceous Vegetation Land",
    "Highway": "Highway or Road",
    "Industrial": "Industrial Buildings",
    "Pasture": "Pasture Land",
    "PermanentCrop": "Permanent Crop Land",
    "Residential": "Residential Buildings",
    "SeaLake": "Sea or Lake",
}


def caltech(raw: str) -> str:
    """Four categories are renamed.

    >>> caltech("Faces"), caltech("ant")
    ('face', 'ant')
    """
    return plain(CALTECH.get(raw, raw))


def eurosat(raw: str) -> str:
    """The ten CamelCase names become phrases.

    >>> eurosat("Highway"), eurosat("Forest")
    ('Highway or Road', 'Forest')
    """
    return EUROSAT.get(raw, raw)


def cars(raw: str) -> str:
    """The year goes to the front.

    >>> cars("AM General Hummer SUV 2000")
    '2000 AM General Hummer SUV'
    """
    *words, year = raw.split()
    return " ".join([year, *words])


def sun(raw: str) -> str:
    """The words of the path, last one first; a leading letter folder is no word.

    >>> sun("a/apartment_building/outdoor"), sun("/a/abbey"), sun("abbey")
    ('outdoor apartment building', 'abbey', 'abbey')
    """
    parts = raw.strip("/").split("/")
    return plain(" ".join(reversed(parts[1:] if len(parts[0]) == 1 else parts)))


def ucf(raw: str) -> str:
    """CamelCase is split into words.

    >>> ucf("ApplyEyeMakeup"), ucf("Yo_Yo")
    ('Apply Eye Makeup', 'Yo Yo')
    """
    return plain(raw) if "_" in raw else " ".join(re.findall("[A-Z][^A-Z]*", raw)) or raw


def pets(raw: str) -> str:
    """The breed in lower case; the number at the end of a file name is no part of it.

    >>> pets("Egyptian_Mau_12.jpg"), pets("American Bulldog")
    ('egyptian mau', 'american bulldog')
    """
    return plain(re.sub(r"_\d+\.\w+$", "", raw)).lower()


def lowered(raw: str) -> str:
    """Underscores become blanks, letters small.

    >>> lowered("Bird_of_Paradise")
    'bird of paradise'
    """
    return plain(raw).lower()


RULES: dict[str, Callable[[str], str]] = {
    "plain": plain,
    "caltech": caltech,
    "eurosat": eurosat,
    "cars": cars,
    "sun": sun,
    "ucf": ucf,
    "pets": pets,
    "lower": lowered,
}


def rule(name: str) -> Callable[[str], str]:
    """A rule by its name in the catalog."""
    if name not in RULES:
        raise BadInput(f"unknown class-name rule {name!r}: {nearest(name, RULES)}")
    return RULES[name]


def raw_name(key: str, part: str) -> str:
    """The part of a path that names the class: its top folder, all its folders, or the file itself.

    >>> raw_name("a/abbey/1.jpg", "folders"), raw_name("ant/1.jpg", "folder"), raw_name("Beagle_1.jpg", "file")
    ('a/abbey', 'ant', 'Beagle_1.jpg')
    """
    folders, _, file = key.rpartition("/")
    return {"folder": folders.split("/")[0], "folders": folders, "file": file}[part]


def wnids(subset: str = "imagenet") -> list[str]:
    """The WordNet ids of ImageNet (1000) or of ImageNet-A or -R (200 each), sorted: the order of the labels.

    They are read from timm, which open_clip brings along.

    >>> len(wnids()), len(wnids("imagenet_a")), wnids() == sorted(wnids())
    (1000, 200, True)
    """
    # Found, not imported: importing timm takes seconds and nothing of it is run.
    spec = find_spec("timm")
    if spec is None or spec.origin is None:
        raise MissingExtra(
            "the ids of ImageNet's classes come with timm, which is not installed: pip install timm"
        )
    path = Path(spec.origin).parent / "data" / "_info" / f"{subset}_synsets.txt"
    if not path.is_file():
        raise MissingExtra(f"this timm has no {path.name}; install timm>=1.0.20")
    return path.read_text(encoding="utf-8").split()


def imagenet_names(subset: str = "imagenet") -> list[str]:
    """CLIP's names for the classes of `wnids(subset)`. Two names stand for two classes each: "missile" and
    "sunglasses"; what is the same in words cannot be told apart by words.

    >>> names = imagenet_names()
    >>> names[0], names.count("missile"), names.count("sunglasses"), len(imagenet_names("imagenet_r"))
    ('tench', 2, 2, 200)
    """
    from open_clip import IMAGENET_CLASSNAMES

    table = dict(zip(wnids(), IMAGENET_CLASSNAMES, strict=True))
    return [table[w] for w in wnids(subset)]
