"""Where `reta classify` finds its images, and whether it will be able to write what it makes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from reta.errors import BadInput, RetaError


def find_images(paths: list[str]) -> Iterator[str]:
    """Files as given, every image below a folder (sorted), what a glob matches, and `-` for a list on stdin.

    A folder's files are taken by suffix; the others are noted on standard error, hidden ones are not looked at.
    """
    from reta.data.folder import is_image, walk

    for path in paths:
        if path == "-":
            yield from _listed()
        elif os.path.isdir(path):
            files = list(map(str, walk(Path(path))))
            yield from filter(is_image, files)
            _note_others(path, [f for f in files if not is_image(f)])
        elif os.path.exists(path) or not any(c in path for c in "*?["):
            yield path
        else:
            root = Path(Path(path).anchor)
            matched = sorted(map(str, root.glob(str(Path(path).relative_to(root)))))
            if not matched:
                raise BadInput(f"nothing matches {path}; check the pattern and the folder it starts from")
            yield from find_images(matched)


def _listed() -> Iterator[str]:
    """The lines of standard input as they come; a name is bytes, and need not be UTF-8."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    for line in sys.stdin:
        if line.strip():
            yield line.rstrip("\r\n")


def _note_others(folder: str, files: list[str]) -> None:
    if files:
        shown = ", ".join(printable(os.path.relpath(f, folder)) for f in files[:3])
        more = ", ..." if len(files) > 3 else ""
        print(f"note: not taken for images in {folder}, by their names: {shown}{more}", file=sys.stderr)


def printable(path: str) -> str:
    """A path as text that any file and terminal can hold; bytes that are not UTF-8 become escapes.

    >>> printable("caf\\udce9/1.png")
    'caf\\\\xe9/1.png'
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def check_writable(path: Path) -> None:
    """Refuse before the work starts what could not be written when it ends."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if path.is_dir() or not folder.is_dir():
        what = "it is a folder" if path.is_dir() else f"{folder} is no folder"
        raise RetaError(f"cannot write {path}: {what}; choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RetaError(f"cannot write {path}: no right to write in {folder}; choose another place")
