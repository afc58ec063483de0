"""Sentences per class: CuPL files known by their hash, ImageNet's from clip-benchmark, and suggestions."""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reta.data.catalog import Entry
from reta.errors import BadInput, MissingData, nearest, require
from reta.templates import read_prompts

FEWEST = 4


@dataclass(frozen=True)
class Sentences:
    """A prompt file as it enters results: what it holds and how to recognise it. `blob` is its git blob id,
    `known` who used the same file."""

    source: str
    sha256: str
    blob: str
    known: str
    classes: Mapping[str, Sequence[str]] = field(repr=False)

    @property
    def count(self) -> int:
        return sum(len(v) for v in self.classes.values())

    def record(self) -> dict[str, Any]:
        """What a result keeps."""
        return {"source": self.source, "sha256": self.sha256, "blob": self.blob, "known": self.known}


def load(source: str | Path, names: Sequence[str], entry: Entry | None = None) -> Sentences:
    """The sentences of a CuPL-form JSON, {class name: [sentences]}, for the classes `names`.

    `source` is a path, or `clip-benchmark` for ImageNet's sentences from that package. Classes of the file
    that are not asked for are left out when they belong to the full ImageNet list, and are an error
    otherwise; a class without sentences always is.
    """
    path = _clip_benchmark() if str(source) == "clip-benchmark" else Path(source)
    table = read_prompts(_imagenet_table(path) if str(source) == "clip-benchmark" else path)
    wanted = set(names)
    if entry is not None and entry.subset:
        table = {name: found for name, found in table.items() if name in wanted}
    missing = [name for name in names if not table.get(name)]
    foreign = [name for name in table if name not in wanted]
    if missing or foreign:
        parts = [f"no sentences for {missing[:5]}"] * bool(missing) + [f"no class {foreign[:5]}"] * bool(
            foreign
        )
        raise BadInput(f"{source} does not fit the classes: {'; '.join(parts)}")
    data = path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    known = dict(entry.cupl.get("known", {})) if entry is not None else {}
    used = next((who for start, who in known.items() if blob.startswith(start)), "")
    title = "clip-benchmark" if str(source) == "clip-benchmark" else path.name
    return Sentences(title, hashlib.sha256(data).hexdigest(), blob, used, table)


def _clip_benchmark() -> Path:
    """ImageNet's CuPL file in the installed package, which is not imported: it is heavy."""
    spec = find_spec("clip_benchmark")
    if spec is None or spec.origin is None:
        require("data", "clip_benchmark")
        raise MissingData("clip-benchmark has no files: install it again, pip install 'reta[data]'")
    path = Path(spec.origin).parent / "datasets" / "cupl_prompts.json"
    if not path.is_file():
        raise MissingData(f"this clip-benchmark has no {path.name}: pip install 'clip-benchmark>=1.6.2'")
    return path


def _imagenet_table(path: Path) -> dict[str, list[str]]:
    """998 names for 1000 classes: the two pairs of equal names share their sentences."""
    import json

    return json.loads(path.read_text(encoding="utf-8"))["imagenet1k"]


def find(entry: Entry, root: Path) -> Path | None:
    """A set's CuPL file below `root`, where the papers' repositories keep it: gpt3_prompts/CuPL_prompts_*.json."""
    name = f"CuPL_prompts_{entry.cupl.get('file', entry.name)}.json"
    places = (root / "gpt3_prompts", root / "prompts", root, *(root / f for f in entry.folders))
    return next((place / name for place in places if (place / name).is_file()), None)


@cache
def grammar() -> dict[str, dict[str, Any]]:
    """The domains `suggest` knows: shots, links and ends that are combined into sentences."""
    return tomllib.loads(files("reta.data").joinpath("grammar.toml").read_text(encoding="utf-8"))


def suggest(names: Sequence[str], domain: str = "photo", n: int = 12) -> dict[str, list[str]]:
    """Sentences to start from, for people who have no CuPL file: `n` per class (at least 4) from the grammar
    of a domain. Edit them: what tells your classes apart is worth more than any frame around the name.

    >>> table = suggest(["river", "annual crop"], "satellite", n=4)
    >>> table["river"][0], len(table["annual crop"])
    ('a satellite photo of river.', 4)
    """
    if n < FEWEST:
        raise BadInput(
            f"n must be at least {FEWEST}: the methods split a class's sentences into three groups"
        )
    if domain not in grammar():
        raise BadInput(f"unknown domain {domain!r}: {nearest(domain, grammar())}")
    frames = _frames(domain)
    if n > len(frames):
        raise BadInput(f"the grammar of {domain!r} makes {len(frames)} sentences; ask for no more")
    clean = list(dict.fromkeys(name.strip().replace("_", " ") for name in names))
    if not clean or not all(clean):
        raise BadInput("no class names: give at least one, and none that is empty")
    return {name: [_fill(frame, name) for frame in frames[:n]] for name in clean}


def _frames(domain: str) -> list[str]:
    """All combinations, in an order that changes every part early."""
    parts = grammar()[domain]
    table = [list(parts["shots"]), list(parts["links"]), list(parts["ends"])]
    combined = list(itertools.product(*(range(len(t)) for t in table)))
    combined.sort(key=lambda c: ((c[1] - c[0]) % len(table[1]) + (c[2] - c[0]) % len(table[2]), c))
    return [f"{table[0][a]} {table[1][b]}{table[2][c]}." for a, b, c in combined]


def _fill(frame: str, name: str) -> str:
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return frame.replace("{a}", f"{article} {name}").replace("{}", name)
