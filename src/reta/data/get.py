"""Fetches what still can be fetched by a program, and prints the steps for the rest."""

from __future__ import annotations

import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

from reta.data.catalog import Entry
from reta.data.check import NOTE, Report, check
from reta.errors import MissingData, require

BLOCK = 2**20


@dataclass(frozen=True)
class Got:
    """What `get` did: where it fetched from, what is left to do by hand, and the check afterwards."""

    name: str
    fetched: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    report: Report | None = None


def get(entry: Entry, root: Path) -> Got:
    """Download a set by the means the catalog names (Hugging Face, torchvision, an archive) and check it."""
    root.mkdir(parents=True, exist_ok=True)
    before = check(entry, root)
    if before.status == "ok":
        return Got(entry.full, report=before)
    fetched = []
    nothing = {"folder", "images"} & {problem.kind for problem in before.problems}
    # Hugging Face and torchvision continue what was interrupted; an archive is fetched whole or not.
    if nothing or entry.hub or entry.reader == "torchvision":
        fetched = _fetch(entry, root)
    after = check(entry, root)
    steps = [] if after.status == "ok" else [*entry.steps, *(f"{NOTE} {line}" for line in entry.dead)]
    return Got(entry.full, fetched, steps, after)


def _fetch(entry: Entry, root: Path) -> list[str]:
    try:
        if entry.hub:
            return [_hub(entry, root)]
        if entry.torchvision:
            from reta.data.vision import build

            build(entry.torchvision, root, download=True)
            return [f"torchvision.datasets.{entry.torchvision}"]
        return [_archive(url, root / entry.folders[0].split("/")[0]) for url in entry.archives]
    except MissingData as error:
        raise MissingData(f"{error}\n{recipe(entry)}") from error
    except OSError as error:
        raise MissingData(f"{entry.full} cannot be fetched ({error}).\n{recipe(entry)}") from error


def recipe(entry: Entry) -> str:
    """The steps by hand, as text."""
    lines = [f"{entry.title}: {entry.source}", *(f"  {i}. {step}" for i, step in enumerate(entry.steps, 1))]
    return "\n".join([*lines, *(f"  Note: {line}" for line in entry.dead)])


def _hub(entry: Entry, root: Path) -> str:
    """The test shards of a repository on Hugging Face; an interrupted download goes on."""
    hub = require("data", "huggingface_hub")
    target = root / entry.folders[0]
    try:
        hub.snapshot_download(
            entry.hub, repo_type="dataset", local_dir=target, allow_patterns=["test/*", "*.txt"]
        )
    except Exception as error:  # the library raises its own, requests' and httpx's kinds
        raise MissingData(f"Hugging Face does not deliver {entry.hub}: {error}") from error
    return f"huggingface.co/datasets/{entry.hub}"


def _archive(url: str, folder: Path) -> str:
    """Download one archive whole, or not at all, and unpack it; members outside the folder are refused."""
    if urlparse(url).scheme not in ("https", "file"):
        raise MissingData(f"{url} is not an https address")
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (Path(urlparse(url).path).name + ".part")
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, part.open("wb") as file:  # noqa: S310
            for block in _blocks(answer):
                file.write(block)
            # Python takes a connection that was cut for the end of the file.
            wanted, got = answer.headers.get("Content-Length"), file.tell()
        if wanted and got != int(wanted):
            raise MissingData(f"{url} was cut off after {got:,} of {int(wanted):,} bytes; try again")
        _unpack(part, folder)
    except tarfile.TarError as error:
        raise MissingData(f"{url} is not a tar archive, or it is damaged ({error})") from error
    finally:
        part.unlink(missing_ok=True)
    return url


def _unpack(part: Path, folder: Path) -> None:
    """Unpack beside, then rename: half an archive would look like a set with images missing."""
    from reta.progress import bar

    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as beside:
        with tarfile.open(part) as archive:
            # The filter refuses members that leave the folder, links included.
            archive.extractall(beside, bar(archive, what="unpacking", unit="files"), filter="data")
        for entry in Path(beside).iterdir():
            entry.replace(folder / entry.name)


def _blocks(answer: object) -> Iterator[bytes]:
    from reta.progress import bar

    length = getattr(answer, "headers", {}).get("Content-Length")
    count = -(-int(length) // BLOCK) if length else None
    yield from bar(iter(lambda: answer.read(BLOCK), b""), total=count, what="fetching", unit="MiB")  # type: ignore[attr-defined]
