"""Images named in a file: a CSV, JSONL or parquet list, or a split file in CoOp's JSON form."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from reta.data.dataset import Dataset, File
from reta.data.folder import plain
from reta.errors import BadInput, MissingData, require

PATH_COLUMNS = ("path", "image", "file", "filename", "file_name", "filepath")
LABEL_COLUMNS = ("label", "class", "name", "category", "target")
SPLITS = ("train", "val", "test")
NUMBER, MOST = re.compile(r"-?[0-9]+(\.0+)?"), 1_000_000


def open_list(
    path: Path, *, root: Path | None = None, names: Sequence[str] | None = None, title: str | None = None
) -> Dataset:
    """Read a list with a column of paths (`path`, `image`, `file`, ...) and, if it has one, of labels
    (`label`, `class`, ...): class names, or numbers from 0 that count in `names`. Paths are relative to
    `root`, by default the folder of the list.
    """
    base = path.parent if root is None else root
    rows = _rows(path)
    if not rows:
        raise MissingData(f"{path} lists no images; the first line of a CSV names the columns")
    columns = {str(c).lower(): c for c in rows[0]}
    place = next((columns[c] for c in PATH_COLUMNS if c in columns), None)
    if place is None:
        raise BadInput(
            f"{path} has no column of paths: its columns are {', '.join(map(str, rows[0]))}; name one "
            f"{', '.join(PATH_COLUMNS)}"
        )
    mark = next((columns[c] for c in LABEL_COLUMNS if c in columns), None)
    keys = tuple(inside(_relative(str(row.get(place) or ""), base, path), path) for row in rows)
    values = None if mark is None else [row.get(mark) for row in rows]
    labels, classes = (None, tuple(names or ())) if values is None else labelled(values, names, path)
    refs = [File(base / key) for key in keys]
    return Dataset(title or path.stem, keys, refs, labels, classes, version="list", root=base)


def _rows(path: Path) -> list[dict[Any, Any]]:
    try:
        if path.suffix.lower() == ".csv":
            with path.open(newline="", encoding="utf-8-sig") as file:
                return list(csv.DictReader(file))
        if path.suffix.lower() == ".jsonl":
            # Not splitlines: JSON may hold other line separators inside a text, as they are.
            lines = path.read_text(encoding="utf-8").split("\n")
            rows = [json.loads(line) for line in lines if line.strip()]
            if not all(isinstance(row, dict) for row in rows):
                raise BadInput(f'{path}: every line must be a JSON object such as {{"path": ...}}')
            return rows
        return require("data", "pyarrow.parquet").read_table(path).to_pylist()
    except FileNotFoundError as error:
        raise MissingData(f"no such file: {path}") from error
    except OSError as error:
        raise MissingData(f"cannot read {path}: {error}") from error
    except BadInput:
        raise
    except (ValueError, csv.Error) as error:
        raise BadInput(f"{path} is not a valid {path.suffix[1:]} file ({error})") from error


def _relative(text: str, base: Path, source: Path) -> str:
    """A path of a list as one below `base`: people pad cells, Windows writes backslashes, programs whole paths."""
    tidy = text.strip().replace("\\", "/")
    # All of that may be meant, too: the file decides.
    if tidy != text and os.path.exists(base / text):
        tidy = text
    if not tidy.startswith("/"):
        return tidy
    for folder in (base.absolute(), base.resolve()):
        if Path(tidy).is_relative_to(folder):
            return str(Path(tidy).relative_to(folder))
    if os.path.exists(tidy):
        raise BadInput(
            f"{source} names {text!r}, which is not below {base}: give the folder of the images as root"
        )
    return tidy


def inside(relative: str, source: Path) -> str:
    """A path of a list as a key; one that is empty or leads out of the folder is refused.

    >>> inside("/a/abbey/1.jpg", Path("list.csv"))
    'a/abbey/1.jpg'
    """
    parts = PurePosixPath(relative.lstrip("/")).parts
    # Lists come from elsewhere; what they name is opened and its errors are shown.
    if not parts or ".." in parts or "\0" in relative:
        raise BadInput(f"{source} names {relative!r}, which is not a path below the image folder")
    return "/".join(parts)


def labelled(
    values: Sequence[Any], names: Sequence[str] | None, source: Path
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Labels and class names from a column: names as text, or numbers that count in `names`.

    >>> labelled(["tea", "soup", "tea"], None, Path("list.csv"))
    ((1, 0, 1), ('soup', 'tea'))
    >>> labelled(["1.0", "0"], ["tea", "soup"], Path("list.csv"))
    ((1, 0), ('tea', 'soup'))
    """
    blank = next((i for i, v in enumerate(values) if v is None or str(v).strip() == ""), None)
    if blank is not None:
        raise BadInput(f"{source}: row {blank + 1} has no label; fill it in, or leave the column out")
    text = [str(v).strip() for v in values]
    if all(NUMBER.fullmatch(t) for t in text):
        labels = tuple(int(t.partition(".")[0]) for t in text)
        wrong = next((i for i, label in enumerate(labels) if not 0 <= label < MOST), None)
        if wrong is not None:
            raise BadInput(
                f"{source}: row {wrong + 1} has label {text[wrong]}; numbers count the classes from 0"
            )
        given = names if names is not None else [str(i) for i in range(max(labels) + 1)]
        return labels, tuple(plain(n) for n in given)
    text = [plain(t) for t in text]
    classes = tuple(plain(n) for n in names) if names is not None else tuple(sorted(set(text)))
    # Reversed, so that of two equal names the first keeps the label.
    table = {name: i for i, name in reversed(list(enumerate(classes)))}
    foreign = sorted(set(text) - set(table))
    if foreign:
        raise BadInput(f"{source} has {len(foreign)} classes that are not in the class list: {foreign[:5]}")
    return tuple(table[t] for t in text), classes


def open_split(path: Path, *, root: Path, split: str = "test", title: str | None = None) -> Dataset:
    """Read a split file in CoOp's form, {"train"|"val"|"test": [[path, label, class name], ...]}; paths are
    relative to `root`. Names and labels both come from the file, never from a list kept elsewhere.
    """
    table = read_split(path)
    if split not in table:
        raise BadInput(f"{path} has no split {split!r}: it has {', '.join(table)}")
    names = split_names(table, path)
    rows = table[split]
    keys = tuple(inside(_relative(row[0], root, path), path) for row in rows)
    refs = [File(root / key) for key in keys]
    labels = tuple(row[1] for row in rows)
    return Dataset(title or path.stem, keys, refs, labels, names, version=f"split:{split}", root=root)


def read_split(path: Path) -> dict[str, list[Any]]:
    """The JSON of a split file, its form checked."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingData(f"no such split file: {path}") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as JSON ({error}); fetch it again") from error
    if not isinstance(table, Mapping) or not set(table) & set(SPLITS):
        raise BadInput(f"{path} is not a split file: it must hold {{'test': [[path, label, name], ...]}}")
    for name, rows in table.items():
        for row in rows:
            if not (isinstance(row, list) and len(row) == 3 and isinstance(row[1], int)):
                raise BadInput(f"{path}: an entry of {name!r} is not [path, label, class name]: {row!r}")
    return dict(table)


def split_names(table: Mapping[str, list[Any]], path: Path) -> tuple[str, ...]:
    """Class names by label, over all splits; a label with two names or none at all is refused."""
    found: dict[int, str] = {}
    for rows in table.values():
        for _, label, name in rows:
            if found.setdefault(label, name) != name:
                raise BadInput(
                    f"{path}: label {label} is named {found[label]!r} and {name!r}; fetch it again"
                )
    missing = sorted(set(range(len(found))) - set(found))
    if missing:
        raise BadInput(f"{path}: no class has label {missing[0]}, but labels go up to {max(found)}")
    return tuple(plain(found[i]) for i in range(len(found)))
