"""Who builds which shard: lock files that several processes, on one machine or many, can trust enough.

A claim only saves double work. A shard has the same content whoever builds it and appears whole by a rename,
so two builders of one shard do no harm.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from pathlib import Path

STALE = 900.0
"""Seconds without a sign of life after which a claim from another machine is void."""


class Claim:
    """The lock file of one piece of work. `take` gets it or says no, `alive` is the sign of life.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> first, second = Claim(folder / "7.lock"), Claim(folder / "7.lock")
    >>> first.take(), second.take(), first.release(), second.take()
    (True, False, None, True)
    """

    def __init__(self, path: Path):
        self.path, self.token = path, uuid.uuid4().hex

    def take(self) -> bool:
        """Get the claim if it is free or its holder is gone. The folder of locks may vanish: all is done then."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._take()
        except FileNotFoundError:
            return False

    def _take(self) -> bool:
        mine = self.path.with_name(f".{self.path.name}.{self.token}.tmp")
        mine.write_text(json.dumps(_me() | {"token": self.token}))
        try:
            # A hard link is created or refused in one step on local disks and on NFS, unlike O_EXCL on old NFS.
            os.link(mine, self.path)
            return True
        except FileExistsError:
            if not self._stale(mine.stat().st_mtime):
                return False
            # Two takers may both see a stale claim; the one whose token stays has it.
            os.replace(mine, self.path)
            return self._holder().get("token") == self.token
        finally:
            mine.unlink(missing_ok=True)

    def alive(self) -> None:
        """Say that the work goes on."""
        try:
            os.utime(self.path)
        except FileNotFoundError:
            return

    def release(self) -> None:
        """Give the claim back, if it is still ours."""
        if self._holder().get("token") == self.token:
            self.path.unlink(missing_ok=True)

    def _holder(self) -> dict[str, object]:
        try:
            found = json.loads(self.path.read_text())
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            return {}

    def _stale(self, now: float) -> bool:
        """`now` is the clock of the disk, which the machines share."""
        holder, me = self._holder(), _me()
        if holder.get("host") == me["host"]:
            return _started(int(str(holder.get("pid", 0)))) != holder.get("started")
        try:
            return now - self.path.stat().st_mtime > STALE
        except FileNotFoundError:
            return True


def _me() -> dict[str, object]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "started": _started(pid)}


def _started(pid: int) -> str | None:
    """When a process began, so that a number used again is not taken for the old process; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else _running(pid)
    except OSError:
        return "?"
    state, *rest = text.rpartition(")")[2].split()
    # A killed child stays in the table as a zombie until its parent looks: it works no more.
    return None if state in "ZX" else rest[18]


def _running(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return "?"
    return "?"
