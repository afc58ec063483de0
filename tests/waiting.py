"""Waiting for what another process does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any


def wait_for(found: Callable[[], Any], longest: float = 120.0) -> Any:
    """What `found` gives as soon as it is something."""
    end = time.monotonic() + longest
    while not (value := found()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return value


def gone(group: int) -> bool:
    """Whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
