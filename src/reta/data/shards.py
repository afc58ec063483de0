"""Images inside larger files: tar shards in WebDataset form, read lazily."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

from reta.data.dataset import Dataset, Part
from reta.data.folder import is_image, listing, plain, walk
from reta.errors import BadInput, MissingData

LABEL_FIELDS = ("label", "cls", "class", "fine_label", "labels")


def open_shards(place: Path, *, split: str = "test", names: Sequence[str] | None = None) -> Dataset:
    """Tar shards: members NAME.jpg (or .png, ...) with NAME.cls or NAME.json beside them for the label.

    Only the headers are read here; an image is read from its offset when it is asked for. `classnames.txt`
    beside the shards gives the names. Where `nshards.txt` says how many shards there are, that many must be
    there.
    """
    tars = _tars(place, split)
    rows = [row for tar in tars for row in _members(tar)]
    if not rows:
        raise MissingData(f"no images in the {len(tars)} shards of {place}")
    marked = [label for _, _, label in rows if label is not None]
    if marked and len(marked) != len(rows):
        raise BadInput(
            f"{place}: {len(rows) - len(marked)} of {len(rows)} images have no .cls or .json label"
        )
    labels = tuple(marked) or None
    given = names if names is not None else _classnames(place)
    if given is None:
        given = [str(i) for i in range(max(labels) + 1)] if labels else []
    return Dataset(
        place.stem,
        tuple(key for key, _, _ in rows),
        [part for _, part, _ in rows],
        labels,
        tuple(plain(n) for n in given),
        version=f"shards:{split}",
        root=place if place.is_dir() else place.parent,
    )


def _tars(place: Path, split: str) -> list[Path]:
    if place.is_file():
        return [place]
    folder = place / split if (place / split).is_dir() else place
    tars = [p for p in walk(folder) if p.suffix == ".tar"]
    if not tars:
        raise MissingData(f"no .tar shards in {folder}")
    declared = folder / "nshards.txt"
    # A shard that is silently absent gives wrong numbers, not an error.
    if declared.is_file() and declared.read_text().strip() != str(len(tars)):
        raise MissingData(
            f"{folder} has {len(tars)} shards, nshards.txt says {declared.read_text().strip()}: fetch the rest"
        )
    # By length first: 10.tar comes after 9.tar.
    return sorted(tars, key=lambda p: (len(p.name), p.name))


def _members(tar: Path) -> list[tuple[str, Part, int | None]]:
    """(key, image, label) of one archive."""
    images: dict[str, Part] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(tar, "r:") as archive:
            for member in archive:
                stem = member.name.rpartition(".")[0]
                if member.isfile() and is_image(member.name):
                    if stem in images:
                        raise BadInput(f"{tar} has two images named {stem!r}; give each a name of its own")
                    images[stem] = Part(tar, member.offset_data, member.size)
                elif member.isfile() and member.name.endswith((".cls", ".json")):
                    label = _label(archive.extractfile(member).read(), member.name)  # type: ignore[union-attr]
                    if label is not None:
                        labels[stem] = label
            # A file cut between two members looks whole to tarfile; whole ones end in empty blocks.
            if tar.stat().st_size < archive.offset + tarfile.BLOCKSIZE:
                raise tarfile.ReadError("it has no end")
    except (tarfile.TarError, OSError) as error:
        raise MissingData(f"{tar} is not a whole, uncompressed tar file ({error}); fetch it again") from error
    return [(f"{tar.stem}/{stem}", part, labels.get(stem)) for stem, part in images.items()]


def _label(data: bytes, name: str) -> int | None:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadInput(f"{name}: {data[:20]!r} is no label: a number is expected") from error
    if isinstance(value, dict):
        value = next((value[f] for f in LABEL_FIELDS if f in value), None)
    return None if value is None else int(value)


def _classnames(place: Path) -> list[str] | None:
    folder = place if place.is_dir() else place.parent
    for path in (folder / "classnames.txt", folder.parent / "classnames.txt"):
        if path.is_file():
            return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return None


def has_shards(folder: Path) -> bool:
    """Whether a folder holds tar shards, itself or in its test split."""
    places = [p for p in (folder, folder / "test") if p.is_dir()]
    return any(e.name.endswith(".tar") for p in places for e in listing(p))
