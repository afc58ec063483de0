"""What a folder of results holds: for each plan its settings, and which job each of its cells is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from reta import state as states
from reta.bench.plan import Plan
from reta.errors import BadPlan, BadState

FORMAT = 1
SETTINGS = ("layout", "columns", "metrics", "streams", "world", "limit", "views", "seed", "prompts")


class Cell(NamedTuple):
    """One job's place in a plan."""

    row: str
    model: str
    data: str
    stream: str
    order: int


@dataclass
class Manifest:
    """A plan as it was run: `shown` is what a report needs of the plan, `cells` the job of each place."""

    name: str
    settings: dict[str, Any]
    shown: dict[str, Any]
    rows: list[dict[str, Any]]
    cells: dict[Cell, str]
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """What may be shown in one table: the plan and all settings that change its numbers."""
        return f"{self.name} {json.dumps(self.settings, sort_keys=True)}"

    def merged(self, newer: Manifest) -> Manifest:
        """Both runs in one: what is in both comes from the newer, and rows whose meaning changed lose the
        cells of the older."""
        if self.key != newer.key:
            raise BadPlan(f"plan {self.name}: {difference(self.settings, newer.settings)}")
        fresh = {row["label"]: row for row in newer.rows}
        kept = [fresh.get(row["label"], row) for row in self.rows]
        labels = {row["label"] for row in kept}
        kept += [row for row in newer.rows if row["label"] not in labels]
        same = {row["label"] for row in self.rows if fresh.get(row["label"], row)["digest"] == row["digest"]}
        cells = {cell: id for cell, id in self.cells.items() if cell.row in same} | newer.cells
        shown = dict(newer.shown)
        for name in ("data", "models"):
            shown[name] = [*self.shown[name], *(x for x in newer.shown[name] if x not in self.shown[name])]
        titles = [*newer.shown["groups"], *self.shown["groups"]]
        shown["groups"] = {
            key: [
                *self.shown["groups"].get(key, []),
                *(
                    d
                    for d in newer.shown["groups"].get(key, [])
                    if d not in self.shown["groups"].get(key, [])
                ),
            ]
            for key in dict.fromkeys(titles)
        }
        shown["reference"] = newer.shown["reference"] or self.shown["reference"]
        notes = [*self.notes, *(n for n in newer.notes if n not in self.notes)]
        present = {row["label"] for row in kept}
        skipped = [
            s for s in dict.fromkeys([*self.skipped, *newer.skipped]) if s.partition(":")[0] not in present
        ]
        return Manifest(self.name, newer.settings, shown, kept, cells, skipped, notes)


def of(plan: Plan, cells: Mapping[Cell, str], skipped: Iterable[str], notes: Iterable[str]) -> Manifest:
    """The manifest of a plan about to run."""
    table = dataclasses.asdict(plan)
    settings = json.loads(json.dumps({key: table[key] for key in SETTINGS}))
    shown = {
        key: table[key]
        for key in ("title", "item", "note", "data", "models", "groups", "reference", "reward")
    }
    present = {cell.row for cell in cells}
    rows = [_row(dataclasses.asdict(row)) for row in plan.rows if row.label in present]
    return Manifest(
        plan.name, settings, json.loads(json.dumps(shown)), rows, dict(cells), list(skipped), list(notes)
    )


def _row(row: dict[str, Any]) -> dict[str, Any]:
    what = {k: row[k] for k in ("method", "preset", "fields", "text", "model")}
    digest = hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=6).hexdigest()
    return {k: row[k] for k in ("label", "method", "x", "series", "panel")} | {"digest": digest}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Which settings keep two runs from being one table."""
    parts = [f"{k} {old.get(k)!r} there, {new.get(k)!r} here" for k in new if old.get(k) != new.get(k)]
    return f"the results there were made with other settings ({'; '.join(parts)}): choose another --out, or --fresh"


def path_of(out: Path, name: str) -> Path:
    return out / "plans" / f"{name}.json"


def save(out: Path, manifest: Manifest) -> None:
    """Write it; one line for each cell. Streams and groups stay in the order of the plan: tables follow it."""
    body = {
        "format": FORMAT,
        "name": manifest.name,
        "settings": manifest.settings,
        "shown": manifest.shown,
        "skipped": manifest.skipped,
        "notes": manifest.notes,
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in body.items()]
    rows = ",\n ".join(json.dumps(row, sort_keys=True) for row in manifest.rows)
    cells = ",\n ".join(json.dumps([*cell, id]) for cell, id in manifest.cells.items())
    lines += [f'"rows": [\n {rows}\n]', f'"cells": [\n {cells}\n]']
    with states.atomic(path_of(out, manifest.name)) as temporary:
        temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(path: Path) -> Manifest:
    """A manifest from its file."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["format"] != FORMAT:
            raise BadState(f"{path} has format {body['format']}, this reta reads {FORMAT}")
        cells = {Cell(*place): id for *place, id in body["cells"]}
        keys = ("name", "settings", "shown", "rows", "skipped", "notes")
        return Manifest(cells=cells, **{key: body[key] for key in keys})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadState(f"{path} is not a plan's table of contents ({error}); run the plan again") from error


def add(out: Path, manifest: Manifest, fresh: bool = False) -> Manifest:
    """Put a plan about to run into a folder, beside what an earlier run of it left there."""
    path = path_of(out, manifest.name)
    if path.is_file() and not fresh:
        manifest = read(path).merged(manifest)
    save(out, manifest)
    return manifest
