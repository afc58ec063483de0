"""Images in folders: one sub-folder per class, or flat without labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reta.data.dataset import Dataset, File
from reta.errors import BadInput, MissingData

SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pnm")
)
LAYOUTS = ("auto", "classes", "flat")


def is_image(name: str) -> bool:
    """By its suffix; whether it can be decoded shows when it is read."""
    return os.path.splitext(name)[1].lower() in SUFFIXES


def walk(folder: Path, seen: frozenset[str] = frozenset()) -> Iterator[Path]:
    """All files below a folder, sorted, hidden ones left out; links are followed, loops are not."""
    place = os.path.realpath(folder)
    if place in seen:
        return
    for entry in listing(folder):
        path = folder / entry.name
        if entry.is_dir():
            yield from walk(path, seen | {place})
        else:
            yield path


def listing(folder: Path) -> list[os.DirEntry[str]]:
    """The visible entries of a folder, by name; a folder that cannot be read is an error."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    except FileNotFoundError as error:
        raise MissingData(f"no such folder: {folder}; check the path") from error
    except NotADirectoryError as error:
        raise MissingData(f"not a folder: {folder}") from error
    except OSError as error:
        raise MissingData(f"cannot read the folder {folder}: {error.strerror}; check its rights") from error


def open_folder(
    root: Path,
    *,
    names: Sequence[str] | Mapping[str, str] | None = None,
    layout: str = "auto",
    title: str | None = None,
) -> Dataset:
    """Read a folder of images. Sub-folders are classes (`layout="classes"`) unless it holds images itself
    (`layout="flat"`: no labels, everything below is taken); if it holds both, say which is meant.

    `names` gives the class names: a list, of which each sub-folder must be one, or {sub-folder: name}.
    """
    if layout not in LAYOUTS:
        raise BadInput(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    entries = listing(root)
    folders = [e.name for e in entries if e.is_dir()]
    loose = [e.name for e in entries if not e.is_dir() and is_image(e.name)]
    if layout == "auto":
        # Either guess would be wrong for someone, and would not show.
        if folders and loose:
            raise BadInput(
                f"{root} holds images and sub-folders: is every sub-folder a class (layout='classes', on the "
                "command line --layout classes) or is everything below it one set without labels "
                "(layout='flat', --layout flat)?"
            )
        layout = "classes" if folders else "flat"
    files = [p for p in walk(root) if layout == "flat" or p.parent != root]
    good = [p for p in files if is_image(p.name)]
    skipped = tuple(printable(p.relative_to(root)) for p in files if not is_image(p.name))
    if not good:
        raise MissingData(f"no images in {root}: files are taken by suffix ({', '.join(sorted(SUFFIXES))})")
    keys = tuple(printable(p.relative_to(root)) for p in good)
    classes, labels = (), None
    if layout == "classes":
        classes, table = class_table(folders, names)
        labels = tuple(table[p.relative_to(root).parts[0]] for p in good)
    elif names is not None:
        classes = tuple(names.values()) if isinstance(names, Mapping) else tuple(names)
    return Dataset(
        title or root.resolve().name or str(root),
        keys,
        [File(p) for p in good],
        labels,
        classes,
        version="folder",
        root=root,
        skipped=skipped,
        notes=_notes(folders if layout == "classes" else [], {p.relative_to(root).parts[0] for p in good}),
    )


def printable(path: Path) -> str:
    """A relative path as text that any file can hold; bytes that are not UTF-8 become escapes."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def class_table(
    folders: Sequence[str], names: Sequence[str] | Mapping[str, str] | None
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Class names in the order of the labels, and the label of each folder.

    >>> class_table(["hot_dog", "tea"], None)
    (('hot dog', 'tea'), {'hot_dog': 0, 'tea': 1})
    >>> class_table(["tea"], ["soup", "tea"])
    (('soup', 'tea'), {'tea': 1})
    """
    if names is None:
        return tuple(plain(f) for f in folders), {f: i for i, f in enumerate(folders)}
    if isinstance(names, Mapping):
        known = list(names)
        table = {folder: i for i, folder in enumerate(known)}
        display = tuple(names.values())
    else:
        display = tuple(plain(n) for n in names)
        table = {f: display.index(plain(f)) for f in folders if plain(f) in display}
    foreign = [f for f in folders if f not in table]
    if foreign:
        raise BadInput(
            f"the class list has {len(display)} names, there are {len(folders)} class folders, and "
            f"{len(foreign)} of these are not in the list (first: {foreign[0]!r}): correct the list, or give "
            "{folder: name}"
        )
    return display, table


def plain(name: str) -> str:
    """A class name as it is put into a prompt.

    >>> plain("Apply_Eye_Makeup")
    'Apply Eye Makeup'
    """
    return name.replace("_", " ").strip()


def _notes(folders: Sequence[str], filled: set[str]) -> tuple[str, ...]:
    empty = [f for f in folders if f not in filled]
    return (f"{len(empty)} class folders hold no image: {', '.join(empty[:5])}",) if empty else ()
