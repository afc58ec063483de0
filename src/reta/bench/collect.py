"""Results as they lie in folders, joined into what one table needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reta.bench import jobs, manifest, metrics
from reta.bench.manifest import Cell, Manifest
from reta.errors import MissingData


@dataclass
class Results:
    """One plan's results, from all folders that hold some of it with the same settings."""

    manifest: Manifest
    places: dict[str, Path] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    @cached_property
    def orders(self) -> dict[tuple[str, str, str, str], list[int]]:
        """The orders of each (row, model, data, stream) in the plan, finished or not."""
        table: dict[tuple[str, str, str, str], list[int]] = {}
        for cell in self.manifest.cells:
            table.setdefault(tuple(cell[:4]), []).append(cell.order)  # type: ignore[arg-type]
        return {key: sorted(value) for key, value in table.items()}

    def ids(self, row: str, model: str, data: str, stream: str) -> list[str]:
        """The finished jobs of a place, one for each order."""
        found = [
            self.manifest.cells[Cell(row, model, data, stream, o)]
            for o in self.orders.get((row, model, data, stream), [])
        ]
        return [id for id in found if id in self.records]

    def complete(self, row: str, model: str, data: str, stream: str) -> bool:
        """Whether every order of a place is there, and there is at least one."""
        wanted = self.orders.get((row, model, data, stream), [])
        return bool(wanted) and len(self.ids(row, model, data, stream)) == len(wanted)

    def values(self, metric: str, *place: str) -> list[float]:
        """A metric in each finished order of a place; empty where it was not measured."""
        found = [self.records[id]["metrics"].get(metric) for id in self.ids(*place)]
        return [float(value) for value in found if value is not None]

    def rates(self, *place: str) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
        """For each image the share of orders that got it right, and which images these are. Streams that hold
        other images in each order are laid end to end."""
        found = [self.records[id]["answers"] for id in self.ids(*place)]
        if not found:
            return None
        rows = [_rows(answers) for answers in found]
        right = [metrics.unpack(answers["right"]).numpy().astype(float) for answers in found]
        if all(np.array_equal(rows[0], other) for other in rows):
            return np.stack(right).mean(0), rows[0]
        return np.concatenate(right), np.concatenate([row + (k << 32) for k, row in enumerate(rows)])

    def predictions(self, *place: str) -> list[NDArray[np.int64]]:
        """The predictions of every finished order, by image."""
        found = [self.records[id]["answers"] for id in self.ids(*place)]
        return [metrics.unpack(answers["predictions"]).numpy() for answers in found]

    @property
    def title(self) -> str:
        """The plan's title, and that it is about the embedded world where it is."""
        shown, world = self.manifest.shown["title"], self.manifest.settings["world"]
        return f"{shown} on the embedded world" if world else shown

    @property
    def missing(self) -> int:
        """How many jobs of the plan have no result yet."""
        return sum(id not in self.records for id in self.manifest.cells.values())

    def versions(self) -> dict[str, list[str]]:
        """Rows whose results come from more than one version of the method's code."""
        table: dict[str, set[str]] = {}
        for cell, id in self.manifest.cells.items():
            if id in self.records:
                table.setdefault(cell.row, set()).add(self.records[id]["job"]["method"]["code"])
        return {row: sorted(found) for row, found in table.items() if len(found) > 1}

    def mixed(self) -> list[str]:
        """Data sets and models that are not the same ones, though they have one name, in all results."""
        table: dict[str, set[str]] = {}
        for record in self.records.values():
            job = record["job"]
            model = job["text"]["model"]
            table.setdefault(model["name"], set()).add(model["fingerprint"])
            for data in job["data"]:
                table.setdefault(data["name"], set()).add(data.get("source", ""))
        return [name for name, found in table.items() if len(found) > 1]


def _rows(answers: dict[str, str]) -> NDArray[np.int64]:
    if "rows" in answers:
        return metrics.unpack(answers["rows"]).numpy()
    return np.arange(len(metrics.unpack(answers["right"])))


def collect(folders: Sequence[Path]) -> list[Results]:
    """The results below some folders, one entry for each plan and setting, in the order of the plans."""
    table: dict[str, Results] = {}
    for folder in folders:
        for found in manifests(folder):
            here = table.get(found.key)
            joined = Results(found if here is None else here.manifest.merged(found))
            joined.places = (here.places if here else {}) | dict.fromkeys(found.cells.values(), folder)
            table[found.key] = joined
    for results in table.values():
        for id in results.manifest.cells.values():
            record = jobs.read(results.places[id], id) if id in results.places else None
            if record is not None:
                results.records[id] = record
    if not table:
        raise MissingData(
            f"no results in {', '.join(map(str, folders))}: a folder of results has plans/ and jobs/ in it; "
            "`reta bench run PLAN --out FOLDER` makes one"
        )
    return sorted(table.values(), key=_rank)


def stale(folders: Sequence[Path]) -> list[str]:
    """Methods whose results were made with another version of their code than is installed."""
    from reta import methods
    from reta.bench.version import version

    made: dict[tuple[str, str], int] = {}
    for results in collect(folders):
        for record in results.records.values():
            method = record["job"]["method"]
            made[(method["name"], method["code"])] = made.get((method["name"], method["code"]), 0) + 1
    known = {name: version(methods.find(name)) for name, _ in made if name in methods.known()}
    return [
        f"{count} results of {name} were made with another version of its code; run the plan again for new ones"
        for (name, code), count in made.items()
        if known.get(name, code) != code
    ]


def manifests(folder: Path) -> Iterator[Manifest]:
    """The plans of one folder of results."""
    for path in sorted((folder / "plans").glob("*.json")):
        yield manifest.read(path)


def _rank(results: Results) -> tuple[int, str]:
    from reta.bench.plan import ORDER

    name = results.manifest.name
    return (ORDER.index(name) if name in ORDER else len(ORDER), results.manifest.key)
