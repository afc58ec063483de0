"""Features that are there already: view k of an image is the same whatever the number of views."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reta.bench.building import build
from reta.bench.identity import digest, identify, make_views
from reta.bench.store import Store, read_header, stores
from reta.bench.tables import Joined
from reta.errors import RetaError


def ready(
    data: Any,
    model: Any,
    recipe: str,
    views: int,
    seed: int,
    root: Path,
    progress: bool,
    more: Mapping[str, Any],
) -> Store:
    """A store with at least so many views: one that is there, or a new one."""
    found = larger(identify(data, model, make_views(model, recipe, views, seed, **more)), root)
    if found is not None:
        return found
    return build(data, model, recipe, views, seed, root=root, progress=progress, **more)


def larger(identity: Mapping[str, Any], root: Path) -> Store | None:
    """A finished store of these features with at least as many views, the smallest of several."""
    wanted, found = identity["views"]["n"], []
    for path in stores(root):
        try:
            theirs = read_header(path)["identity"]
            if bare(theirs) == bare(identity) and theirs["views"]["n"] >= wanted:
                found.append((theirs["views"]["n"], Store(path)))
        except RetaError:
            continue
    return min(found, key=lambda pair: pair[0])[1] if found else None


def bare(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity without the number of views."""
    return dict(identity) | {"views": {k: v for k, v in identity["views"].items() if k != "n"}}


def features(store: Store) -> str:
    """What a store's features are, however many views it has."""
    return digest(bare(store.identity))


def joined(paths: tuple[Path, ...]) -> Any:
    """The features of a job: one store, or several as one."""
    tables = [Store(path) for path in paths]
    return tables[0] if len(tables) == 1 else Joined(tables)
