"""Writing to disks that may be full, read-only or shared."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from reta.errors import Limit, RetaError

FULL = (errno.ENOSPC, errno.EDQUOT)


class NotWritable(RetaError):
    """A folder that cannot be written to."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what a full or read-only disk says into an error with the next step."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        # Safetensors writes from Rust and tells the error number only in its text.
        if getattr(error, "errno", None) in FULL or "os error 28" in str(error):
            raise Limit(
                f"the disk of {path} is full: free some space and run the same command again; what is built "
                "is kept, and nothing half-written is left"
            ) from error
        raise NotWritable(
            f"cannot write to {path} ({error}); check that the folder can be written"
        ) from error


def free_space(folder: Path) -> int:
    """Bytes free where `folder` is, or will be.

    >>> free_space(Path("no/such/folder/yet")) > 0
    True
    """
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def readable(count: float) -> str:
    """A number of bytes for people.

    >>> readable(200), readable(3 * 2**29)
    ('200 B', '1.5 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def write_once(path: Path, text: str) -> None:
    """Write a file whole, unless it is there: of several writers the first wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        # A rename would overwrite what another process has begun with, perhaps with another layout.
        os.link(name, path)
    except (FileExistsError, FileNotFoundError):
        if not path.is_file():
            raise
    finally:
        Path(name).unlink(missing_ok=True)
