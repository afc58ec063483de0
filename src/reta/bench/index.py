"""The index of a store, made from its shards, and the check that both are what they were."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from reta import state as states
from reta.bench.store import Store, read_header, read_index, shard_path
from reta.errors import BadInput, BadState, RetaError, require

NAME = re.compile("-[0-9a-f]{16}$")
COLUMNS = ("key", "label", "ok", "reason", "message", "content")


def write_index(path: Path) -> None:
    """Collect the rows of all shards into `index.parquet`; the same shards give the same bytes."""
    arrow, parquet = require("bench", "pyarrow"), require("bench", "pyarrow.parquet")
    rows = [row for number in range(count(path)) for row in shard_rows(path, number)]
    kinds = {"label": arrow.int32(), "ok": arrow.bool_()}
    table = arrow.table(
        {
            name: arrow.array([row[i] for row in rows], kinds.get(name, arrow.string()))
            for i, name in enumerate(COLUMNS)
        }
    )
    with states.atomic(path / "index.parquet") as temporary:
        parquet.write_table(table, temporary)


def count(path: Path) -> int:
    """How many shards a store has when it is finished."""
    layout = read_header(path)["layout"]
    return -(-layout["images"] // layout["shard"])


def shard_rows(path: Path, number: int) -> list[list[Any]]:
    """The rows a shard keeps in its header; the features are not read."""
    header = states.header(shard_path(path, number))
    if header.get("store") != read_header(path)["id"] or header.get("shard") != number:
        raise BadState(
            f"{shard_path(path, number)} belongs to another store, or to another place in this one"
        )
    return header["rows"]


def verify(path: Path, repair: bool = False, progress: bool = False) -> list[str]:
    """Everything that is wrong with a store, in words; an empty list is a sound one.

    Every byte is read and compared with its checksum. With `repair` what is damaged is removed, so that
    building again makes it anew.
    """
    from reta.progress import bar

    try:
        header = read_header(path)
    except BadState as error:
        # Shards of a layout that nobody knows any more would pass for others.
        if repair:
            remove(path)
        return [str(error)]
    gone = [i for i in range(count(path)) if not shard_path(path, i).is_file()]
    if gone and not (path / "index.parquet").is_file():
        return [f"not finished: {len(gone)} of {count(path)} shards are missing; run the same build again"]
    wrong: list[str] = []
    numbers: Iterable[int] = range(count(path))
    rows: list[list[Any]] = []
    for number in bar(numbers, total=count(path), what="verifying", unit="shards") if progress else numbers:
        problem = _shard_problem(path, number, header, rows)
        # `--repair` never mends in place: what is doubtful is encoded again.
        if problem:
            wrong.append(problem)
            if repair:
                shard_path(path, number).unlink(missing_ok=True)
                (path / "index.parquet").unlink(missing_ok=True)
    if not wrong:
        wrong += _index_problems(path, rows)
        if wrong and repair:
            (path / "index.parquet").unlink(missing_ok=True)
    return wrong


def _shard_problem(path: Path, number: int, header: dict[str, Any], rows: list[list[Any]]) -> str:
    """What is wrong with one shard; its rows are added to `rows`."""
    file = shard_path(path, number)
    layout = header["layout"]
    if not file.is_file():
        return f"{file.name} is missing"
    try:
        body, inside = states.load(file)
        mine = shard_rows(path, number)
    except RetaError as error:
        return f"{file.name}: {error}"
    expected = min(layout["shard"], layout["images"] - number * layout["shard"])
    views = body.get("views")
    if (
        views is None
        or list(views.shape) != [expected, layout["views"], layout["dim"]]
        or len(mine) != expected
    ):
        return f"{file.name}: it does not hold {expected} x {layout['views']} x {layout['dim']} features"
    ok = torch.tensor([row[COLUMNS.index("ok")] for row in inside["rows"]])
    length = views.float().norm(dim=-1)
    if bool((length[ok] - 1).abs().gt(0.01).any()) or bool(length[~ok].gt(0).any()):
        return f"{file.name}: features are not unit rows, or a bad image has features"
    rows += mine
    return ""


def _index_problems(path: Path, rows: list[list[Any]]) -> list[str]:
    try:
        table = read_index(path)
    except RetaError as error:
        return [str(error)]
    if [list(row) for row in zip(*(table[name] for name in COLUMNS), strict=True)] != rows:
        return ["index.parquet does not fit the shards"]
    keys = table["key"]
    return [] if len(set(keys)) == len(keys) else ["index.parquet names a key twice"]


def changed(store: Store, data: Any) -> list[str]:
    """Keys whose image is no longer what was encoded: the files are read and compared with their hashes."""
    from reta.data.dataset import content

    if tuple(data.keys) != store.keys:
        raise BadInput(f"{data.name} has other images than the store: they cannot be compared one by one")
    return [
        key
        for key, ref, mark in zip(data.keys, data.refs, store.content, strict=True)
        if mark and content(ref) != mark
    ]


def remove(path: Path) -> None:
    """Delete a store, a damaged one too; anything that is not one is refused."""
    if not (path / "store.json").is_file() or not NAME.search(path.name):
        read_header(path)
    # First, so that a removal that is interrupted leaves no store behind.
    (path / "store.json").unlink()
    shutil.rmtree(path)


def describe(path: Path) -> dict[str, Any]:
    """One store in a line: what it is made from, how big it is, whether it is finished, or that it is damaged."""
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    try:
        header = read_header(path)
    except BadState as error:
        unknown = dict.fromkeys(("version", "model", "recipe", "views", "seed", "images"), "?")
        known = {"id": path.name[-16:], "data": path.name, "partial": False, "done": 0.0, "bytes": size}
        return known | unknown | {"path": str(path), "problem": str(error)}
    identity, layout = header["identity"], header["layout"]
    done = sum(shard_path(path, i).is_file() for i in range(count(path)))
    return {
        "id": header["id"],
        "data": identity["data"]["name"],
        "version": identity["data"]["version"],
        "model": "/".join(filter(None, (identity["model"]["name"], identity["model"]["tag"]))),
        "recipe": identity["views"]["recipe"],
        "views": layout["views"],
        "seed": identity["views"]["seed"],
        "images": layout["images"],
        "partial": header["partial"],
        "done": round(100 * done / count(path), 1),
        "bytes": size,
        "path": str(path),
        "problem": "",
    }
