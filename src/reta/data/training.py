"""Images to learn from: the training part of a source, never the pictures it is tested on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reta.data import catalog
from reta.data.catalog.locate import Place, default_root
from reta.data.catalog.reading import READERS, found
from reta.data.dataset import Dataset
from reta.data.folder import open_folder
from reta.data.lists import open_split
from reta.data.names import imagenet_names, wnids
from reta.data.shapes import SETS
from reta.data.sources import open as open_source
from reta.data.sources import split_corruption
from reta.errors import BadInput, MissingData


def open(source: str, root: Path | None = None, seed: int = 0) -> Dataset:
    """The training images of a source that `reta.data.open` takes.

    Sets of the catalog give their training split, embedded sets pictures drawn with another seed than the
    tested ones; a folder or a list is what it is.

    >>> open("shapes").keys[0]
    'shapes/1/0'
    """
    base, corruption = split_corruption(source)
    if corruption is not None:
        raise BadInput(f"{source}: learn from the clean images, {base!r}")
    if source in SETS:
        return open_source(source, seed=seed + 1)
    name, _, variant = source.partition(":")
    if name in catalog.names():
        return _entry(catalog.entry(name, variant), root or default_root())
    return open_source(source, root, split="train")


def _entry(entry: catalog.Entry, root: Path) -> Dataset:
    if entry.reader == "split":
        place = found(entry, root)
        assert place.split is not None and place.images is not None
        return open_split(place.split, root=place.images, split="train", title=entry.name)
    if entry.reader == "variants":
        place = found(entry, root)
        assert place.split is not None
        listed = place.split.with_name(place.split.name.replace("test", "train"))
        if not listed.is_file():
            raise MissingData(f"{listed} is missing: it lists the training images; take it from the archive")
        return READERS["variants"](entry, replace(place, split=listed))
    if entry.name == "imagenet" and entry.reader == "wnid":
        return _imagenet(entry, found(entry, root))
    raise MissingData(
        f"{entry.full} has test images only: give training images as a folder with a sub-folder per class"
    )


def _imagenet(entry: catalog.Entry, place: Place) -> Dataset:
    """Class folders below `train`, beside those of the tested images."""
    assert place.images is not None
    folder = place.images.parent / "train"
    if not folder.is_dir():
        raise MissingData(f"no training images of ImageNet: {folder} is not there")
    names = dict(zip(wnids("imagenet"), imagenet_names("imagenet"), strict=True))
    return open_folder(folder, names=dict(list(names.items())[: entry.classes]), layout="classes")
