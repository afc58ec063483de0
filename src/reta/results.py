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
    """Rows by path, in the order they came, and the state after the last of them."""

    def __init__(self, path: Path, rows: list[dict[str, Any]], head: dict[str, str], stream: Any):
        self.path, self.rows, self.head = path, rows, head
        self._kept = (len(rows), stream.state, stream.seen)
        self.done = {row["path"] for row in rows}
        self.journal = path.with_name(path.name + ".journal")
        self.state = path.with_name(path.name + ".state")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._rewrite()
        self._file = self.journal.open("a", encoding="utf-8")

    @classmethod
    def open(cls, path: Path, stream: Any, settings: tuple[Any, ...] = ()) -> Results:
        """A new file, or the one an earlier run left; the stream goes back to where its journal is whole."""
        head = {"identity": _identity(stream, settings), "start": states.digest(stream.state)}
        journal, saved = path.with_name(path.name + ".journal"), path.with_name(path.name + ".state")
        if not journal.exists():
            if path.exists():
                raise BadState(
                    f"{path} exists and has no journal beside it: choose another --out, or remove it"
                )
            return cls(path, [], head, stream)
        lines = _whole_lines(journal)
        if not lines or lines[0].get("identity") != head["identity"]:
            raise BadState(
                f"{journal} was made with other settings (model, classes, prompts, method, seed, --adapt or "
                "--top): use the same ones, or choose another --out"
            )
        body, header = states.load(saved) if saved.exists() else ({}, {"rows": 0})
        if head["start"] not in (lines[0].get("start"), states.digest(body)):
            raise BadState(
                f"{journal} started from another state than the one given: use the same --state, or choose "
                "another --out"
            )
        if body or header["rows"]:
            stream.state = {k: v.to(stream.task.prompts.device) for k, v in body.items()}
            stream.seen = header["seen"]
        return cls(path, lines[1 : 1 + header["rows"]], lines[0], stream)

    def add(self, path: str, row: dict[str, Any], stream: Any) -> None:
        """One more row, and the state that has seen its image: together or, if interrupted, not at all."""
        self.rows.append({"path": path} | row)
        self.done.add(path)
        self._file.write(json.dumps(self.rows[-1], ensure_ascii=False) + "\n")
        self._file.flush()
        self._kept = (len(self.rows), stream.state, stream.seen)

    @property
    def bad(self) -> int:
        return sum("error" in row for row in self.rows)

    def checkpoint(self) -> None:
        """From here on a killed run resumes at this row."""
        rows, state, seen = self._kept
        os.fsync(self._file.fileno())
        states.save(self.state, state, {"seen": seen, "rows": rows})

    def close(self, stream: Any) -> None:
        """Save the state and write the file in its own format; the journal stays for a later run."""
        rows, stream.state, stream.seen = self._kept
        del self.rows[rows:]
        with self._file:
            self.checkpoint()
        with states.atomic(self.path) as temporary:
            WRITERS[self.path.suffix](temporary, self.rows)

    def _rewrite(self) -> None:
        with states.atomic(self.journal) as temporary:
            lines = [self.head, *self.rows]
            temporary.write_text(
                "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines), encoding="utf-8"
            )


def _identity(stream: Any, settings: tuple[Any, ...]) -> str:
    """Changes with anything that changes an answer or its form."""
    second = None if stream.reward is None else stream.reward.fingerprint
    parts = (
        stream.model.fingerprint,
        stream.task.fingerprint,
        repr(stream.method),
        stream.seed,
        second,
        settings,
    )
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _whole_lines(journal: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a last one that a kill cut in half is dropped."""
    lines = []
    # Not splitlines: names may hold other line separators, and JSON keeps them as they are.
    for line in journal.read_text(encoding="utf-8", errors="replace").split("\n"):
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
