"""Opens a set of the catalog: found, read, counted; one whose count differs is refused."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from reta.data.catalog import Entry
from reta.data.catalog.locate import Place, locate
from reta.data.dataset import Dataset, File
from reta.data.folder import is_image, listing, open_folder, plain, printable
from reta.data.lists import open_split
from reta.data.names import imagenet_names, rule, wnids
from reta.errors import BadInput, MissingData


def open_entry(entry: Entry, root: Path, *, allow_partial: bool = False) -> Dataset:
    """A set of the catalog from below `root`. A count that is not the catalog's raises `MissingData`, unless
    `allow_partial`: then what is there is read, and the set is marked partial.
    """
    data, missing = read_entry(entry, root)
    wrong = counts_wrong(entry, data, missing)
    if not wrong:
        return data
    if not allow_partial:
        raise MissingData(
            f"{entry.full} is not complete: {'; '.join(wrong)}. Run `reta data check {entry.full}`, or allow a "
            "partial set (--allow-partial), which every result then says"
        )
    if missing:
        data = data.take([i for i, key in enumerate(data.keys) if key not in missing])
    return replace(data, partial=True, notes=(*data.notes, f"partial: {'; '.join(wrong)}"))


def read_entry(entry: Entry, root: Path) -> tuple[Dataset, set[str]]:
    """The set as its files say, and the keys whose image is not there; counts are not looked at."""
    if entry.reader == "torchvision":
        data, missing = _torchvision(entry, root), set()
    else:
        place = found(entry, root)
        data = READERS[entry.reader](entry, place)
        missing = absent(data)
    # Two copies of a split file give other numbers: its hash belongs to the version.
    version = f"{entry.full}/{entry.version}"
    if entry.reader in ("split", "variants"):
        version += f"+{split_hash(found(entry, root))}"
    return replace(
        data,
        name=entry.full,
        version=version,
        fixed=True,
        root=root,
        notes=entry.notes,
        templates={family: tuple(entry.family(family)) for family in entry.templates},
    ), missing


def found(entry: Entry, root: Path) -> Place:
    """Where the set lies, or an error that says what to do."""
    place = locate(entry, root)
    hint = f"`reta data show {entry.full}` says how to get it, `reta data check {entry.full}` what is there"
    if place is None:
        raise MissingData(f"{entry.full} is not below {root}: no folder {' or '.join(entry.folders)}; {hint}")
    if place.images is None:
        raise MissingData(f"{place.folder} has no folder {' or '.join(entry.images)} with images; {hint}")
    if entry.split and place.split is None:
        raise MissingData(f"{place.folder} lacks {entry.split[0]}; {hint}")
    return place


def split_hash(place: Place) -> str:
    """The first 12 digits of the split file's SHA-256: part of the version that is recorded in results."""
    assert place.split is not None
    return hashlib.sha256(place.split.read_bytes()).hexdigest()[:12]


def absent(data: Dataset) -> set[str]:
    """Keys whose file is not there; each folder is listed once, which is quick on network disks too."""
    there: dict[Path, set[str]] = {}
    gone = set()
    for key, ref in zip(data.keys, data.refs, strict=True):
        if not isinstance(ref, File):
            continue
        folder = ref.path.parent
        if folder not in there:
            there[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
        if ref.path.name not in there[folder]:
            gone.add(key)
    return gone


def counts_wrong(entry: Entry, data: Dataset, missing: set[str]) -> list[str]:
    """What differs from the catalog, in words."""
    wrong = []
    if missing:
        wrong.append(f"{len(missing)} of {len(data)} listed images are not there")
    if len(data) != entry.test:
        wrong.append(f"{len(data)} test images, {entry.test} expected")
    if len(data.names) != entry.classes:
        wrong.append(f"{len(data.names)} class names, {entry.classes} expected")
    empty = len(data.names) - len(set(data.labels or ()))
    if empty and data.labels is not None:
        wrong.append(f"{empty} classes have no test image")
    return wrong


def _split(entry: Entry, place: Place) -> Dataset:
    assert place.images is not None and place.split is not None
    return open_split(place.split, root=place.images)


def _variants(entry: Entry, place: Place) -> Dataset:
    """Aircraft: the official lists, `variants.txt` and `images_variant_test.txt`."""
    assert place.images is not None and place.split is not None
    listed = place.split.parent / "variants.txt"
    if not listed.is_file():
        raise MissingData(f"{listed} is missing: it names the classes; take it from the same archive")
    names = [line.strip() for line in listed.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows = [line.strip().split(" ", 1) for line in place.split.read_text(encoding="utf-8").splitlines()]
    foreign = [row for row in rows if len(row) != 2 or row[1] not in names]
    if foreign:
        raise BadInput(f"{place.split}: {' '.join(foreign[0])!r} is not an image and a line of {listed.name}")
    keys = tuple(f"{image}.jpg" for image, _ in rows)
    refs = [File(place.images / key) for key in keys]
    labels = tuple(names.index(name) for _, name in rows)
    return Dataset(entry.name, keys, refs, labels, tuple(names), root=place.images)


def _wnid(entry: Entry, place: Place) -> Dataset:
    """Folders named by WordNet id; those of ImageNet-V2 are numbers, and then the number is the label."""
    assert place.images is not None
    ids, names = wnids(entry.subset)[: entry.classes], imagenet_names(entry.subset)[: entry.classes]
    table = {wnid: i for i, wnid in enumerate(ids)}
    folders = [e.name for e in listing(place.images) if e.is_dir()]
    # V2 is shipped with numbers, some repositories rename its folders to WordNet ids.
    if not any(f in table for f in folders) and any(f.isdecimal() for f in folders):
        if entry.subset != "imagenet":
            raise BadInput(
                f"{place.images}: the class folders of {entry.name} must be WordNet ids, not numbers"
            )
        table |= {str(i): i for i in range(len(ids))}
    chosen = sorted((f for f in folders if f in table), key=table.__getitem__)
    items = [(f, e.name) for f in chosen for e in listing(place.images / f) if is_image(e.name)]
    items = [(f, file) for f, file in items if not (entry.exclude and entry.exclude in file)]
    keys = tuple(printable(Path(f, file)) for f, file in items)
    refs = [File(place.images / f / file) for f, file in items]
    return Dataset(entry.name, keys, refs, tuple(table[f] for f, _ in items), tuple(names), root=place.images)


def _folder(entry: Entry, place: Place) -> Dataset:
    assert place.images is not None
    return _renamed(entry, open_folder(place.images, layout="classes"))


def _shards(entry: Entry, place: Place) -> Dataset:
    from reta.data.shards import open_shards

    data = open_shards(place.folder)
    if entry.subset and len(data.names) == entry.classes:
        data = replace(data, names=tuple(imagenet_names(entry.subset)[: entry.classes]))
    return data


READERS = {"split": _split, "variants": _variants, "wnid": _wnid, "folder": _folder, "shards": _shards}


def _torchvision(entry: Entry, root: Path) -> Dataset:
    from reta.data.vision import open_torchvision

    return _renamed(entry, open_torchvision(entry.torchvision, root))


def _renamed(entry: Entry, data: Dataset) -> Dataset:
    """Raw class names by the entry's rule, the dropped classes left out and the labels closed up."""
    named, dropped = rule(entry.rule), {plain(name) for name in entry.drop}
    kept = [i for i, name in enumerate(data.names) if plain(name) not in dropped]
    place = {old: new for new, old in enumerate(kept)}
    labels = data.labels or ()
    chosen = [i for i, label in enumerate(labels) if label in place]
    return replace(
        data,
        keys=tuple(data.keys[i] for i in chosen),
        refs=[data.refs[i] for i in chosen],
        labels=tuple(place[labels[i]] for i in chosen),
        names=tuple(named(data.names[i]) for i in kept),
    )
