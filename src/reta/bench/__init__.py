"""Measuring: feature stores, streams in every order, plans, runs and reports."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reta.bench.building import build as build
    from reta.bench.store import Store as Store
    from reta.bench.tables import Joined as Joined

_PUBLIC = {"build": "reta.bench.building", "Store": "reta.bench.store", "Joined": "reta.bench.tables"}

__all__ = ["Joined", "Store", "build"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'reta.bench' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value
