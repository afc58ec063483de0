"""Test-time adaptation of vision-language models.

The names below are the public interface; each is imported when it is first used, so that
`import reta` and `reta --help` do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reta import data as data
    from reta import methods as methods
    from reta.backbone import load as load
    from reta.checks import check_method as check_method
    from reta.engine import Run as Run
    from reta.engine import run as run
    from reta.errors import (
        BadImage as BadImage,
    )
    from reta.errors import (
        BadInput as BadInput,
    )
    from reta.errors import (
        BadPlan as BadPlan,
    )
    from reta.errors import (
        BadState as BadState,
    )
    from reta.errors import (
        Limit as Limit,
    )
    from reta.errors import (
        MissingData as MissingData,
    )
    from reta.errors import (
        MissingExtra as MissingExtra,
    )
    from reta.errors import (
        RetaError as RetaError,
    )
    from reta.grid import Sweep as Sweep
    from reta.grid import sweep as sweep
    from reta.sample import Output as Output
    from reta.sample import Sample as Sample
    from reta.stream import Prediction as Prediction
    from reta.stream import Stream as Stream
    from reta.task import Task as Task

__version__ = "0.1.0"

_PUBLIC = {
    "methods": "reta.methods",
    "data": "reta.data",
    "load": "reta.backbone:load",
    "Task": "reta.task:Task",
    "Sample": "reta.sample:Sample",
    "Output": "reta.sample:Output",
    "Stream": "reta.stream:Stream",
    "Prediction": "reta.stream:Prediction",
    "run": "reta.engine:run",
    "Run": "reta.engine:Run",
    "sweep": "reta.grid:sweep",
    "Sweep": "reta.grid:Sweep",
    "check_method": "reta.checks:check_method",
    "RetaError": "reta.errors:RetaError",
    "BadInput": "reta.errors:BadInput",
    "BadImage": "reta.errors:BadImage",
    "BadState": "reta.errors:BadState",
    "BadPlan": "reta.errors:BadPlan",
    "MissingData": "reta.errors:MissingData",
    "MissingExtra": "reta.errors:MissingExtra",
    "Limit": "reta.errors:Limit",
}

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'reta' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    found = importlib.import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
