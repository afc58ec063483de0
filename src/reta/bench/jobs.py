"""A job is one method on one stream; its result is one JSON file, there whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reta import state as states
from reta.errors import BadState, require

FORMAT = 1


@dataclass(frozen=True)
class Job:
    """Everything a process needs to make one result, as plain values and paths.

    `identity` is all that determines the result and `id` its hash; `scene` is a file with the task and the
    labels, `store` the features, `reward` the features of the second model, `pictures` the data sets
    themselves for a method that wants pixels.
    """

    label: str
    method: str
    fields: Mapping[str, Any]
    identity: Mapping[str, Any] = field(repr=False)
    scene: Path
    store: tuple[Path, ...]
    reward: tuple[Path, ...] = ()
    stream: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    pictures: tuple[Any, ...] = ()
    device: str = "auto"
    precision: str = "auto"

    @property
    def id(self) -> str:
        """The hash of everything that determines the result."""
        text = json.dumps(self.identity, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def path_of(out: Path, id: str) -> Path:
    """Where the result of a job lies."""
    return out / "jobs" / f"{id}.json"


def samples_of(out: Path, id: str) -> Path:
    """Where the answers of a job lie, one row per sample."""
    return out / "samples" / f"{id}.parquet"


def write(out: Path, id: str, record: Mapping[str, Any], samples: Mapping[str, Any]) -> None:
    """Write a result and its answers."""
    write_files(out, id, text(record).encode(), parquet(samples))


def write_files(out: Path, id: str, record: bytes, samples: bytes) -> None:
    """The answers first, then the result: a result that is there is complete."""
    with states.atomic(samples_of(out, id)) as temporary:
        temporary.write_bytes(samples)
    with states.atomic(path_of(out, id)) as temporary:
        temporary.write_bytes(record)


def parquet(samples: Mapping[str, Any]) -> bytes:
    """Columns as the bytes of a parquet file."""
    arrow, files = require("bench", "pyarrow"), require("bench", "pyarrow.parquet")
    buffer = io.BytesIO()
    files.write_table(arrow.table(dict(samples)), buffer)
    return buffer.getvalue()


def text(record: Mapping[str, Any]) -> str:
    """JSON with one line for each entry: short, and a change shows where it is."""
    lines = [f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in record.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(out: Path, id: str) -> dict[str, Any] | None:
    """The result of a job, or None if it has not been made; a file that is not that result is refused."""
    path = path_of(out, id)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadState(f"{path} cannot be read ({error}); remove it and run the plan again") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT or record.get("id") != id:
        raise BadState(f"{path} is not the result its name says; remove it and run the plan again")
    return record


def sweep_up(out: Path) -> None:
    """Remove what killed processes left half-written."""
    for folder in ("jobs", "samples", "plans", "pictures"):
        for left in (out / folder).glob(".*.tmp"):
            left.unlink(missing_ok=True)
