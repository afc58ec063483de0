"""The table of time and gain: what an image costs, where the time goes, and what it buys."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from reta.bench import published
from reta.bench.collect import Results
from reta.bench.sheet import Column, Entry, Sheet, remarks

PARTS = {"decode": "decode", "views": "views", "encode": "encode", "adapt": "adapt"}
UNITS = {
    "minutes": "minutes for all images of a set",
    "part": "milliseconds per image",
    "rate": "images per second",
    "state": "state, MiB",
    "peak": "peak memory, MiB",
    "gain": "points over the first row",
}


def sheets(results: Results) -> list[Sheet]:
    """One table for each model."""
    return [_sheet(results, model) for model in results.manifest.shown["models"]]


def _sheet(results: Results, model: str) -> Sheet:
    man = results.manifest
    data, stream = tuple(man.shown["data"]), next(iter(man.settings["streams"]))
    cols = [Column(name, "minutes", (name,), stream, key=name) for name in data]
    cols += [Column(title, "part", data, stream, key=part) for part, title in PARTS.items()]
    cols += [
        Column(t, m, data, stream, key=m)
        for t, m in (("images/s", "rate"), ("state", "state"), ("peak", "peak"))
    ]
    cols += [
        Column("Acc.", "accuracy", data, stream, True, "Acc."),
        Column("Gain", "gain", data, stream, True, "Gain"),
    ]
    rows = [row["label"] for row in man.rows]
    sheet = Sheet(man.name, results.title, model, cols, {}, reference=man.shown["reference"])
    for row in rows:
        sheet.entries[row] = [_entry(results, sheet, row, col) for col in cols]
    base = sheet.entries[rows[0]][-2].value if rows else None
    for entries in sheet.entries.values():
        gain, accuracy = entries[-1], entries[-2].value
        gain.value = None if accuracy is None or base is None else accuracy - base
    sheet.notes = remarks(results)
    return sheet


def _entry(results: Results, sheet: Sheet, row: str, col: Column) -> Entry:
    places = [(row, sheet.model, name, col.stream) for name in col.data]
    entry = Entry(ids=tuple(id for place in places for id in results.ids(*place)))
    if all(results.complete(*place) for place in places) and col.metric != "gain":
        entry.value = fmean(_value(results.records[id], col) for id in entry.ids)
    world = bool(results.manifest.settings["world"])
    entry.printed = None if world else published.value(sheet.name, sheet.model, row, col.key)
    for text in published.notes(sheet.name, sheet.model, row, col.key) if entry.printed is not None else ():
        if text not in sheet.footnotes:
            sheet.footnotes.append(text)
        entry.notes.append(sheet.footnotes.index(text) + 1)
    return entry


def _value(record: dict[str, Any], col: Column) -> float:
    spent = record["time"]
    total = sum(spent.get(part, 0.0) for part in PARTS)
    if col.metric == "minutes":
        return total * record["samples"]["all"] / 60_000
    if col.metric == "part":
        return spent.get(col.key, 0.0)
    if col.metric == "rate":
        return 1000 / total if total else 0.0
    if col.metric in ("state", "peak"):
        return record["memory"][col.metric] / 2**20
    return record["metrics"]["accuracy"]
