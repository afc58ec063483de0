"""The version of a method's code: a hash of what its files do, not of how they are written down."""

from __future__ import annotations

import ast
import hashlib
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SHARED = ("reta.methods.base", "reta.methods.ops")


def version(method: type[Any]) -> str:
    """Changes when a file this method is made of changes: its own, the pieces it imports from
    `reta.methods`, and the shared ones. Comments, docstrings and layout do not count.

    >>> from reta.methods import find
    >>> version(find("zeroshot")) == version(find("ensemble")) != version(find("tda"))
    True
    """
    own = [cls.__module__ for cls in method.__mro__ if cls not in (object,)]
    paths = {name: _path(name) for name in (*own, *SHARED)}
    waiting = [name for name, path in paths.items() if path is not None]
    while waiting:
        path = paths[waiting.pop()]
        for name in imported(path, _stamp(path)) if path else ():
            if name not in paths:
                paths[name] = _path(name)
                waiting.append(name)
    parts = [meaning(path, _stamp(path)) for path in paths.values() if path is not None]
    return hashlib.blake2b("".join(sorted(parts)).encode(), digest_size=8).hexdigest()


def _path(module: str) -> Path | None:
    """The file of a module of ours or of a plug-in; None for anything of Python's or another package's."""
    if module in sys.modules and module.startswith("reta_plugin_"):
        return Path(str(sys.modules[module].__file__))
    loaded = sys.modules.get(module)
    if not module.startswith("reta."):
        file = getattr(loaded, "__file__", None)
        if file is None or "site-packages" in file or file.startswith(sys.base_prefix):
            return None
        return Path(file)
    spec = find_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin else None


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns


@cache
def imported(path: Path, stamp: int) -> tuple[str, ...]:
    """The modules of `reta.methods` that a file imports."""
    found: list[str] = []
    for node in ast.walk(_tree(path, stamp)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return tuple(name for name in found if name.startswith("reta.methods.") and _exists(name))


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@cache
def meaning(path: Path, stamp: int) -> str:
    """A hash of a file's syntax tree without docstrings."""
    return hashlib.blake2b(_shape(_tree(path, stamp)).encode(), digest_size=16).hexdigest()


@cache
def _tree(path: Path, stamp: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _shape(node: Any) -> str:
    """The tree as text, the same for every version of Python: empty fields are left out."""
    if isinstance(node, list):
        return "[" + " ".join(_shape(item) for item in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list) and value and _is_docstring(value[0]):
            value = value[1:]
        if value is not None and value != [] and name not in ("kind", "type_comment"):
            fields.append(f"{name}={_shape(value)}")
    return f"({type(node).__name__} {' '.join(fields)})"


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
