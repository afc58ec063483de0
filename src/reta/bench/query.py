"""Questions to all results, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reta.bench.collect import collect
from reta.bench.jobs import samples_of
from reta.errors import BadInput, require


def table(folders: Sequence[str | Path]) -> list[dict[str, Any]]:
    """One dict for each finished cell: its place, its metrics, its costs."""
    rows = []
    for results in collect([Path(f) for f in folders]):
        man = results.manifest
        for cell, id in man.cells.items():
            record = results.records.get(id)
            if record is None:
                continue
            method = record["job"]["method"]
            spent = {f"ms_{k}": v for k, v in record["time"].items()}
            memory = {f"bytes_{k}": v for k, v in record["memory"].items()}
            where = {"plan": man.name, "item": man.shown["item"], "world": man.settings["world"]}
            kept = {k: method[k] for k in ("preset", "code")} | {"method": method["name"]}
            rows.append(
                where | cell._asdict() | kept | {"job": id, "images": record["samples"]["all"]}
                | record["metrics"] | spent | memory
            )  # fmt: skip
    return rows


def query(sql: str, folders: Sequence[str | Path]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run SQL over the tables `results` (one row per cell) and, where the files are there, `samples` (one row
    per answer, with its `job`). Returns the column names and the rows.
    """
    duckdb, arrow = require("bench", "duckdb"), require("bench", "pyarrow")
    rows = table(folders)
    names = list(dict.fromkeys(key for row in rows for key in row))
    found = arrow.table({name: [row.get(name) for row in rows] for name in names})
    base = duckdb.connect()
    base.register("results", found)
    files = sorted(
        {str(p) for f in folders for row in rows if (p := samples_of(Path(f), row["job"])).is_file()}
    )
    try:
        if files:
            answers = base.read_parquet(files, union_by_name=True, filename=True)
            answers.project("* exclude (filename), parse_filename(filename, true) as job").create_view(
                "samples"
            )
        cursor = base.execute(sql)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()
    except duckdb.Error as error:
        raise BadInput(f"the question cannot be answered: {error}") from error
    finally:
        base.close()
