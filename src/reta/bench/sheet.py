"""A table before it is written down: what stands in each cell, where it comes from, how sure it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from reta.bench import published
from reta.bench.collect import Results
from reta.bench.compare import Comparison, compare

LOWER = ("ece", "nll")
SHORT = {"cache_accuracy": "cache", "auroc": "AUROC", "ece": "ECE", "nll": "NLL"}


@dataclass
class Entry:
    """One cell. `value` is the mean over orders, `spread` their standard deviation, `ids` the jobs behind it."""

    value: float | None = None
    spread: float | None = None
    ids: tuple[str, ...] = ()
    best: bool = False
    printed: float | None = None
    foreign: bool = False
    against: Comparison | None = None
    notes: list[int] = field(default_factory=list)

    @property
    def difference(self) -> float | None:
        """Ours minus the printed value, where both are about the same data and model."""
        if self.value is None or self.printed is None or self.foreign:
            return None
        return round(self.value, 2) - self.printed


@dataclass(frozen=True)
class Column:
    """A column: a data set, a stream, or an average over `members`, of one metric."""

    title: str
    metric: str
    data: tuple[str, ...]
    stream: str
    average: bool = False
    key: str = ""


@dataclass
class Sheet:
    """A table of one plan and one model. Rows are labels, `entries[row][i]` belongs to `columns[i]`."""

    name: str
    title: str
    model: str
    columns: list[Column]
    entries: dict[str, list[Entry]]
    footnotes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reference: str = ""


def sheets(results: Results) -> list[Sheet]:
    """The tables of a plan, one for each model."""
    return [_sheet(results, model) for model in results.manifest.shown["models"]]


def columns(results: Results) -> list[Column]:
    """The columns a plan shows, with one metric after the other in each."""
    man = results.manifest
    settings, shown = man.settings, man.shown
    kind, streams = settings["columns"], list(settings["streams"])
    metrics, many = settings["metrics"], len(settings["metrics"]) > 1
    data, groups = shown["data"], averages(results)
    out: list[Column] = []

    def add(title: str, names: Sequence[str], stream: str, average: bool) -> None:
        for metric in metrics:
            label = f"{title}, {SHORT.get(metric, metric)}" if many and metric != "accuracy" else title
            key = {"moved": "Changed"}.get(metric, title) if many else title
            out.append(Column(label, metric, tuple(names), stream, average, key))

    if kind == "streams":
        for stream in streams:
            joint = settings["streams"][stream].get("domains", False)
            add(stream, ["all"] if joint else data, stream, average=len(data) > 1)
        return out
    if kind == "data":
        for name in data:
            add(name, (name,), streams[0], average=False)
    for title, names in groups.items():
        if kind == "groups" or len(names) > 1:
            add(title, names, streams[0], average=True)
    return out


def averages(results: Results) -> dict[str, tuple[str, ...]]:
    """The averages a plan shows: title -> data sets; of two over the same sets the first."""
    shown = results.manifest.shown
    found: dict[tuple[str, ...], str] = {}
    for title, names in (shown["groups"] or {"Average": shown["data"]}).items():
        found.setdefault(tuple(names), title)
    return {title: names for names, title in found.items()}


def _sheet(results: Results, model: str) -> Sheet:
    man = results.manifest
    cols = [col for col in columns(results) if _measured(results, model, col)]
    rows = [
        row["label"] for row in man.rows if any(c.row == row["label"] and c.model == model for c in man.cells)
    ]
    reference = man.shown["reference"] if man.shown["reference"] in rows else ""
    sheet = Sheet(man.name, results.title, model, cols, {}, reference=reference)
    for row in rows:
        sheet.entries[row] = [_entry(results, sheet, row, col) for col in cols]
    for i, col in enumerate(cols):
        _mark_best([entries[i] for entries in sheet.entries.values()], col.metric)
    sheet.notes = remarks(results)
    return sheet


def _measured(results: Results, model: str, col: Column) -> bool:
    """Whether a column can have numbers: not the AUROC of a stream without unknown images, say."""
    places = [(row["label"], model, data, col.stream) for row in results.manifest.rows for data in col.data]
    ids = [id for place in places for id in results.ids(*place)]
    plain = col.metric in ("accuracy", "moved") or not ids
    return plain or any(col.metric in results.records[id]["metrics"] for id in ids)


def _entry(results: Results, sheet: Sheet, row: str, col: Column) -> Entry:
    places = [(row, sheet.model, data, col.stream) for data in col.data]
    entry = Entry(ids=tuple(id for place in places for id in results.ids(*place)))
    if all(results.complete(*place) for place in places):
        values = [_values(results, sheet, col.metric, place) for place in places]
        if all(values):
            entry.value = fmean(fmean(v) for v in values)
            entry.spread = _spread(values)
        if sheet.reference and row != sheet.reference and col.metric == "accuracy":
            entry.against = _against(results, sheet, places)
    _print(results, sheet, row, col, entry)
    return entry


def _values(results: Results, sheet: Sheet, metric: str, place: tuple[str, str, str, str]) -> list[float]:
    if metric != "moved":
        return results.values(metric, *place)
    if place[0] == sheet.reference:
        return []
    mine, theirs = results.predictions(*place), results.predictions(sheet.reference, *place[1:])
    return [100 * float((a != b).mean()) for a, b in zip(mine, theirs, strict=False)]


def _spread(values: Sequence[Sequence[float]]) -> float | None:
    """The deviation over orders of the mean over data sets; a single order has none."""
    orders = max(len(v) for v in values)
    if orders < 2:
        return None
    return pstdev([fmean(v[o] if len(v) > 1 else v[0] for v in values) for o in range(orders)])


def _against(
    results: Results, sheet: Sheet, places: Sequence[tuple[str, str, str, str]]
) -> Comparison | None:
    """The paired test of a row's places against the reference row's."""
    first, second = [], []
    for place in places:
        mine, theirs = results.rates(*place), results.rates(sheet.reference, *place[1:])
        if mine is None or theirs is None or len(mine[0]) != len(theirs[0]) or (mine[1] != theirs[1]).any():
            return None
        first.append(mine[0])
        second.append(theirs[0])
    return compare(first, second)


def _print(results: Results, sheet: Sheet, row: str, col: Column, entry: Entry) -> None:
    """The printed value beside ours; of other data, without a difference, where only averages are shown, and
    then beside the first of them."""
    man = results.manifest
    world = bool(man.settings["world"])
    model = published.only_model(man.name) if world and man.settings["columns"] == "groups" else sheet.model
    first = col.data == next(iter(averages(results).values()))
    key = "Average" if world and col.average and col.key != "Changed" else col.key
    key = key if first or not world else ""
    entry.printed = published.value(man.name, model or "", row, key)
    entry.foreign = world
    if entry.printed is None:
        return
    for text in published.notes(man.name, model or "", row, key):
        if text not in sheet.footnotes:
            sheet.footnotes.append(text)
        entry.notes.append(sheet.footnotes.index(text) + 1)


def _mark_best(entries: Sequence[Entry], metric: str) -> None:
    there = [entry for entry in entries if entry.value is not None]
    values = {round(entry.value, 2) for entry in there if entry.value is not None}
    if len(values) < 2 or metric in ("changed", "better", "moved"):
        return
    best = (min if metric in LOWER else max)(values)
    for entry in there:
        entry.best = entry.value is not None and round(entry.value, 2) == best


def readable(note: str) -> str:
    """A note as a reader is told it; as results keep it, it is part of what identifies a job.

    >>> readable("shapes, photos: templates dpe: openai-7.")
    'shapes, photos: not in the catalog, so the prompts named dpe are made with the templates openai-7.'
    """
    told = r"\1: not in the catalog, so the prompts named \2 are made with the templates \3."
    return re.sub(r"^(.*): templates (\S+): (\S+)\.$", told, note)


def remarks(results: Results) -> list[str]:
    """What a reader must know about these numbers as a whole."""
    man, notes = results.manifest, []
    settings = man.settings
    if settings["limit"]:
        notes.append(f"Partial: a fixed random subset of {settings['limit']} images of each set.")
    if settings["views"]:
        notes.append(f"At most {settings['views']} views per image.")
    notes += map(readable, man.notes)
    unusable = sum(record["samples"]["unusable"] for record in results.records.values())
    if unusable:
        notes.append(
            f"{unusable} answers, over all jobs, for images that could not be read; counted as wrong."
        )
    for row, versions in results.versions().items():
        notes.append(f"{row}: made with {len(versions)} versions of the method's code; run the plan again.")
    for name in results.mixed():
        notes.append(f"{name}: results with more than one version of it stand here; run the plan again.")
    places = {
        record["environment"]["device"] + record["environment"]["torch"]
        for record in results.records.values()
    }
    if len(places) > 1:
        notes.append(
            f"Made on {len(places)} kinds of machine or versions of torch, which agree to rounding only."
        )
    if results.missing:
        notes.append(f"Unfinished: {results.missing} of {len(man.cells)} jobs have no result yet.")
    return notes + [f"Left out: {text}" for text in man.skipped]
