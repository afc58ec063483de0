"""The results file of `reta classify`: written as answers come, exact again after a kill.

Answers go to a journal, `NAME.journal`, one JSON line each, and the state that produced them to
`NAME.state` now and then. Whoever opens the journal again goes back to the last saved state and drops the
answers that came after it, so that a resumed run answers as if it had never stopped. The file itself
appears when the run ends, whole.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from reta import state as states
from reta.errors import BadState, require

FIELDS = ("path", "name", "prob", "entropy", "top", "error", "reason")


class Results:
    """Rows by path, in the order they came, and how many of them the saved state has seen."""

    def __init__(self, path: Path, rows: list[dict[str, Any]], identity: str):
        self.path, self.rows, self.identity = path, rows, identity
        self.done = {row["path"] for row in rows}
        self.journal = path.with_name(path.name + ".journal")
        self.state = path.with_name(path.name + ".state")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._rewrite()
        self._file = self.journal.open("a", encoding="utf-8")

    @classmethod
    def open(cls, path: Path, stream: Any) -> Results:
        """A new file, or the one an earlier run left; the stream goes back to where its journal is whole."""
        identity = _identity(stream)
        journal, state = path.with_name(path.name + ".journal"), path.with_name(path.name + ".state")
        if not journal.exists():
            if path.exists():
                raise BadState(
                    f"{path} exists and has no journal beside it: choose another --out, or remove it"
                )
            return cls(path, [], identity)
        lines = _whole_lines(journal)
        if not lines or lines[0].get("identity") != identity:
            raise BadState(
                f"{journal} was made with other settings (model, classes, prompts, method or seed): "
                "use the same ones, or choose another --out"
            )
        if not state.exists():
            return cls(path, [], identity)
        body, header = states.load(state)
        stream.state = {k: v.to(stream.task.prompts.device) for k, v in body.items()}
        stream.seen = header["seen"]
        return cls(path, lines[1 : 1 + header["rows"]], identity)

    def add(self, path: str, row: dict[str, Any]) -> None:
        self.rows.append({"path": path} | row)
        self.done.add(path)
        self._file.write(json.dumps(self.rows[-1], ensure_ascii=False) + "\n")
        self._file.flush()

    @property
    def bad(self) -> int:
        return sum("error" in row for row in self.rows)

    def checkpoint(self, stream: Any) -> None:
        """From here on a killed run resumes at this row."""
        os.fsync(self._file.fileno())
        states.save(self.state, stream.state, {"seen": stream.seen, "rows": len(self.rows)})

    def close(self, stream: Any) -> None:
        """Save the state and write the file in its own format; the journal stays for a later run."""
        self.checkpoint(stream)
        self._file.close()
        with states.atomic(self.path) as temporary:
            WRITERS[self.path.suffix](temporary, self.rows)

    def _rewrite(self) -> None:
        with states.atomic(self.journal) as temporary:
            lines = [{"identity": self.identity}, *self.rows]
            temporary.write_text(
                "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines), encoding="utf-8"
            )


def _identity(stream: Any) -> str:
    """Changes with anything that changes an answer."""
    parts = (stream.model.fingerprint, stream.task.fingerprint, repr(stream.method), stream.seed)
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _whole_lines(journal: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a last one that a kill cut in half is dropped."""
    lines = []
    for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerows([_flat(row).get(key, "") for key in FIELDS] for row in rows)


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    arrow, parquet = require("data", "pyarrow"), require("data", "pyarrow.parquet")
    flat = [_flat(row) for row in rows]
    kinds = {"prob": arrow.float64(), "entropy": arrow.float64()}
    columns = {
        key: arrow.array([row.get(key) for row in flat], kinds.get(key, arrow.string())) for key in FIELDS
    }
    parquet.write_table(arrow.table(columns), path)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return row | ({"top": json.dumps(row["top"], ensure_ascii=False)} if "top" in row else {})


WRITERS = {".jsonl": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
