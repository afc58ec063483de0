"""Sentences per class: CuPL files known by their hash, and ImageNet's from clip-benchmark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reta.data.catalog import Entry
from reta.errors import BadInput, MissingData, require
from reta.templates import read_prompts

FAMILIES = ("coop", "tpt", "zero-ensemble", "tda", "dpe", "dmn")
"""Families of methods, each with templates of its own in the catalog."""


def family(entry: Entry | None, name: str) -> str | list[str]:
    """The templates of a family for a set of the catalog; for any other set the single one (coop, tpt) or the
    seven of OpenAI.

    >>> family(None, "tpt"), family(None, "dpe")
    ('single', 'openai-7')
    """
    if entry is not None:
        return entry.family(name)
    return "single" if name in ("coop", "tpt") else "openai-7"


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
    # One file serves the ImageNet family: for -A and -R most of its classes are not asked for.
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


def table(
    name: str,
    templates: str = "dpe",
    sentences: str | None = None,
    classes: str | None = None,
    root: Path | None = None,
) -> dict[str, Any]:
    """Everything that would be encoded for a data set: {"classes": [{"name", "sentences"}], "prompts": record}.

    `templates` is a family of the catalog, a set of `reta.templates`, or a template with {}; `sentences` a
    CuPL-form file, `clip-benchmark`, or `auto` (found below the root; ImageNet's from clip-benchmark).
    """
    from reta.templates import class_list, sentences_per_class

    entry = _catalogued(name)
    names, own = _names_of(name, entry, classes, root)
    chosen = templates
    if templates in FAMILIES:
        chosen = family(entry, templates)
    record: dict[str, Any] = {}
    extra: Mapping[str, Sequence[str]] | None = own
    if sentences is not None:
        found = load(_resolved(sentences, entry, root), names, entry)
        record, extra = found.record(), found.classes
    elif own:
        record = {"source": f"{name}'s own"}
    shared: str | list[str] = [chosen] if isinstance(chosen, str) and "{}" in chosen else chosen
    made = sentences_per_class(class_list(names), shared, extra)
    return {
        "classes": [{"name": n, "sentences": s} for n, s in zip(names, made, strict=True)],
        "prompts": record,
    }


def _catalogued(name: str) -> Entry | None:
    from reta.data import catalog

    base, _, variant = name.partition("@")[0].partition(":")
    return catalog.entry(base, variant) if base in catalog.names() else None


def _names_of(
    name: str, entry: Entry | None, classes: str | None, root: Path | None
) -> tuple[list[str], Mapping[str, Sequence[str]] | None]:
    """Class names, and the data's own sentences; ImageNet's names need no images."""
    from reta.data.names import imagenet_names
    from reta.data.sources import open as open_data
    from reta.templates import class_list

    if classes is not None:
        return class_list(classes), None
    if entry is not None and entry.subset:
        return imagenet_names(entry.subset)[: entry.classes], None
    data = open_data(name, root, allow_partial=True)
    if not data.names:
        raise BadInput(f"{name} has no class names: give --classes")
    return list(data.names), data.prompts


def _resolved(sentences: str, entry: Entry | None, root: Path | None) -> str | Path:
    from reta.data.catalog.locate import default_root

    if sentences != "auto":
        return sentences
    if entry is None:
        raise BadInput("--prompts auto is for sets of the catalog; name your file")
    found = find(entry, root or default_root())
    if found is None and entry.cupl.get("file") != "imagenet":
        wanted = f"CuPL_prompts_{entry.cupl.get('file', entry.name)}.json"
        raise MissingData(
            f"{wanted} is not below {root or default_root()}: it is in the repositories of the papers "
            "(folder gpt3_prompts) and carries no licence, so it does not come with this package"
        )
    return found or "clip-benchmark"
