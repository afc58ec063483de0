"""The catalog: one TOML file per data set says what is expected, where it lies and how to get it.

A set of your own is a TOML file too: put its folder into the environment variable `RETA_CATALOG`, or open it
by its path.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from reta.errors import BadInput, MissingData, nearest

READERS = ("split", "variants", "wnid", "folder", "shards", "torchvision")


@dataclass(frozen=True)
class Entry:
    """What the catalog says about a set. `test` and `classes` are the counts a complete copy has.

    >>> entry("dtd").test, entry("dtd").classes, entry("imagenet-a", "legacy_6862").test
    (1692, 47, 6862)
    """

    name: str
    title: str
    version: str
    licence: str
    source: str
    reader: str
    test: int
    classes: int
    folders: tuple[str, ...]
    images: tuple[str, ...] = (".",)
    split: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    rule: str = "plain"
    named_by: str = ""
    subset: str = ""
    exclude: str = ""
    drop: tuple[str, ...] = ()
    torchvision: str = ""
    hub: str = ""
    archives: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    cupl: Mapping[str, Any] = field(default_factory=dict)
    templates: Mapping[str, tuple[str, ...] | str] = field(default_factory=dict)
    variant: str = ""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def full(self) -> str:
        """The name with the variant: `imagenet-a:legacy_6862`."""
        return f"{self.name}:{self.variant}" if self.variant else self.name

    def family(self, family: str) -> list[str]:
        """The templates a method family uses on this set: `coop`, `tpt`, `zero-ensemble`, `tda`, `dpe`, `dmn`.

        >>> entry("dtd").family("tda"), len(entry("imagenet-r").family("dpe"))
        (['{} texture.'], 80)
        """
        from reta.templates import template_set

        if family not in self.templates:
            raise BadInput(f"{self.name} has no templates {family!r}: {nearest(family, self.templates)}")
        return template_set(self.templates[family])


def names() -> list[str]:
    """Every set of the catalog, those of `RETA_CATALOG` included.

    >>> len(names()) >= 15
    True
    """
    return list(_paths())


def _paths() -> dict[str, Path]:
    own = [Path(p) for p in os.environ.get("RETA_CATALOG", "").split(os.pathsep) if p]
    table: dict[str, Path] = {}
    for folder in [Path(str(files("reta.data.catalog"))), *own]:
        if not folder.is_dir():
            raise MissingData(f"RETA_CATALOG names {folder}, which is not a folder")
        # Later folders win, so that a set of the package can be corrected without touching it.
        table |= {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return table


def entry(name: str, variant: str = "") -> Entry:
    """A set of the catalog by name, or in one of its variants."""
    table = _paths()
    if name not in table:
        raise BadInput(f"the catalog has no set {name!r}: {nearest(name, table)}")
    return read(table[name], variant)


def read(path: Path, variant: str = "") -> Entry:
    """An entry from its TOML file."""
    found = _read(path, path.stat().st_mtime_ns if path.is_file() else 0)
    if not variant:
        return found
    if variant not in found.variants:
        hint = nearest(variant, found.variants) if found.variants else "it has none"
        raise BadInput(f"{found.name} has no variant {variant!r}: {hint}")
    changes = _frozen(found.variants[variant])
    _known_fields(changes, path)
    return _checked(replace(found, variant=variant, variants={}, **changes), path)


@cache
def _read(path: Path, stamp: int) -> Entry:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingData(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path} is not valid TOML ({error})") from error
    table.setdefault("name", path.stem)
    _known_fields(table, path)
    needed = ("title", "version", "licence", "source", "reader", "test", "classes", "folders")
    missing = [key for key in needed if key not in table]
    if missing:
        raise BadInput(f"{path} lacks {', '.join(missing)}; compare with another entry of the catalog")
    variants = table.pop("variants", {})
    return _checked(Entry(**_frozen(table), variants=variants), path)


def _known_fields(table: Mapping[str, Any], path: Path) -> None:
    legal = [f.name for f in fields(Entry)]
    foreign = next((key for key in table if key not in legal), None)
    if foreign is not None:
        raise BadInput(f"{path}: unknown field {foreign!r}: {nearest(foreign, legal)}")


def _frozen(table: Mapping[str, Any]) -> dict[str, Any]:
    def freeze(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        return {k: freeze(v) for k, v in value.items()} if isinstance(value, dict) else value

    return {key: freeze(value) for key, value in table.items()}


def _checked(entry: Entry, path: Path) -> Entry:
    if entry.reader not in READERS:
        raise BadInput(f"{path}: reader {entry.reader!r}: {nearest(entry.reader, READERS)}")
    for key in ("test", "classes"):
        value = getattr(entry, key)
        if not isinstance(value, int) or value < 1:
            raise BadInput(f"{path}: {key} must be a whole number from 1, not {value!r}")
    return entry
