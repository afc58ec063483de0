"""What long work says when it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C stops the work inside; what is kept of it, as the work notes it, is told."""
    try:
        yield
    except KeyboardInterrupt as stop:
        for note in getattr(stop, "__notes__", ()):
            print(note, file=sys.stderr)
        raise
