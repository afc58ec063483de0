"""Every error a user can meet: one base class, a few children, each message says what to do next."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class RetaError(Exception):
    """Base of all errors raised on purpose by `reta`. `exit_code` is what the command line returns."""

    exit_code = 1


class BadInput(RetaError, ValueError):
    """A call or a command line that cannot be meant: wrong name, value out of range, wrong shape."""

    exit_code = 2


class BadImage(RetaError):
    """An image that is not decoded. `reason` is one word a machine can count."""

    def __init__(self, message: str, reason: str = "unreadable"):
        super().__init__(message)
        self.reason = reason


class BadState(RetaError):
    """A state file that is damaged, foreign, or belongs to another method, class list or model."""


class BadPlan(RetaError):
    """A benchmark plan or a set of results that cannot be run or mixed."""

    exit_code = 2


class MissingData(RetaError):
    """Weights, data sets or files that are not on this machine."""


class Limit(RetaError):
    """More than the configured limits allow."""


class MissingExtra(RetaError, ImportError):
    """An optional dependency that is not installed."""


def require(extra: str, module: str) -> ModuleType:
    """Import an optional `module`, or say which extra brings it.

    >>> require("bench", "json").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"this needs {module.split('.')[0]!r}, which is not installed: pip install 'reta[{extra}]'"
        ) from error


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an "unknown name" message: the closest known name, or all of them when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
