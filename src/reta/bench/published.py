"""The numbers the paper printed, and what is known to be doubtful about them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def tables() -> dict[str, dict[str, Any]]:
    """Every table by the name of its plan.

    >>> tables()["table1"]["rows"]["ViT-B-16/openai"]["ReTA"][-1]
    71.37
    """
    return tomllib.loads(files("reta.bench").joinpath("published.toml").read_text(encoding="utf-8"))


def value(plan: str, model: str, row: str, column: str) -> float | None:
    """A printed number, None where there is none.

    >>> value("table2", "RN50/openai", "DPE", "imagenet-r"), value("table2", "RN50/openai", "DPE", "dtd")
    (63.72, None)
    """
    table = tables().get(plan)
    if table is None or column not in table["columns"]:
        return None
    row_values = table["rows"].get(model, {}).get(row, [])
    at = table["columns"].index(column)
    return row_values[at] if at < len(row_values) else None


def source(plan: str) -> str:
    """Where in the paper a table stands.

    >>> source("table2"), source("mine")
    ('Table 2', '')
    """
    return str(tables().get(plan, {}).get("source", ""))


def only_model(plan: str) -> str | None:
    """The model a printed table is about, where it is about one."""
    models = list(tables().get(plan, {}).get("rows", {}))
    return models[0] if len(models) == 1 else None


def notes(plan: str, model: str, row: str, column: str) -> list[str]:
    """What is known against a printed number.

    >>> notes("table1", "ViT-B-16/openai", "DiffTPT", "Average")[0]
    'The mean of the printed cells is 64.92, not 65.47.'
    """
    place = {"model": model, "row": row, "column": column}
    return [note["text"] for note in tables().get(plan, {}).get("notes", []) if _fits(note, place)]


def _fits(note: Mapping[str, Any], place: Mapping[str, str]) -> bool:
    for key, value in place.items():
        wanted = note.get(key, value)
        if value not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True
