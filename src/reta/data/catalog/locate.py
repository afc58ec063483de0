"""Where a set of the catalog lies below a root folder; every repository of the field has its own layout."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from reta.data.catalog import Entry
from reta.data.folder import listing
from reta.errors import MissingData


@dataclass(frozen=True)
class Place:
    """The folder of a set, the folder its image paths are relative to, and its split file."""

    folder: Path
    images: Path | None
    split: Path | None


def default_root() -> Path:
    """The environment variable `RETA_DATA`, or `data` here."""
    return Path(os.environ.get("RETA_DATA") or "data")


def absent(root: Path) -> MissingData:
    """What is said of a root that is not there."""
    return MissingData(f"no such folder: {root}; name the folder of the data sets by --root or RETA_DATA")


def locate(entry: Entry, root: Path) -> Place | None:
    """The first of the entry's folders that is there, spelled in any way (`Oxford_Pets` is `oxfordpets`).

    A folder with images wins over one without: downloads leave empty ones behind.
    """
    if not root.is_dir():
        raise absent(root)
    found = [p for p in (descend(root, f) for f in entry.folders) if p is not None]
    places = [Place(p, _images(entry, p), _split(entry, p, root)) for p in found]
    # torchvision leaves empty folders behind when a download fails.
    ready = [p for p in places if p.images is not None]
    whole = [p for p in ready if p.split is not None or not entry.split]
    return next(iter(whole + ready + places), None)


def _images(entry: Entry, folder: Path) -> Path | None:
    for name in entry.images:
        path = folder if name == "." else descend(folder, name)
        if path is not None and (name != "." or _holds(entry, path)):
            return path
    return None


def _holds(entry: Entry, folder: Path) -> bool:
    """Whether a set's own folder may hold the images directly: it has sub-folders that look like it."""
    folders = [e.name for e in listing(folder) if e.is_dir()]
    if entry.reader != "wnid":
        return bool(folders) or entry.reader in ("folder", "shards")
    return any(re.fullmatch(r"n\d{8}|\d{1,3}", name) for name in folders)


def _split(entry: Entry, folder: Path, root: Path) -> Path | None:
    for name in entry.split:
        for place in (folder, root, root / "splits"):
            if (place / name).is_file():
                return place / name
    return None


def descend(root: Path, path: str) -> Path | None:
    """The folder `path` below `root`; letters' case, blanks, dashes and underscores do not matter."""
    here = root
    for part in path.split("/"):
        exact = here / part
        if not exact.is_dir():
            alike = [e.name for e in listing(here) if _bare(e.name) == _bare(part) and e.is_dir()]
            if not alike:
                return None
            exact = here / alike[0]
        here = exact
    return here


def _bare(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()
