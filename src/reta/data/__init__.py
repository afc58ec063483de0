"""Pictures to run on: `reta.data.open` reads any data set, `shapes` is the embedded world, `catalog` the
sets of the papers, `corruptions` what weather and cameras do to them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reta.data.dataset import Dataset as Dataset
    from reta.data.sources import open as open

_PUBLIC = {"open": "reta.data.sources", "Dataset": "reta.data.dataset"}

__all__ = ["Dataset", "open"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'reta.data' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
