"""What is wrong with a copy of a catalog set, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reta.data.catalog import Entry
from reta.data.catalog.locate import Place, absent, locate
from reta.data.catalog.reading import counts_wrong, read_entry, split_hash
from reta.data.dataset import Dataset
from reta.data.folder import listing
from reta.data.names import imagenet_names, raw_name, rule, wnids
from reta.errors import RetaError

NOTE = "Note:"
"""How a line of a recipe begins that is no step."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: its kind (folder, split, count, missing, empty, names, hash, read) in one word
    for machines, and a sentence."""

    kind: str
    text: str


@dataclass
class Report:
    """What `check` found. `status` is `ok`, `wrong` (something is there, but it is not the set) or `absent`.

    >>> Report("dtd", 1692, 47, problems=[Problem("folder", "no folder dtd")]).status
    'absent'
    """

    name: str
    expected_test: int
    expected_classes: int
    test: int = 0
    classes: int = 0
    folder: str = ""
    split: str = ""
    split_hash: str = ""
    version: str = ""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    recipe: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        if not self.problems:
            return "ok"
        return "absent" if self.problems[0].kind == "folder" else "wrong"

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {"status": self.status} | asdict(self)


def check(entry: Entry, root: Path) -> Report:
    """Compare what lies below `root` with the catalog: counts, split files, class lists, empty files."""
    report = Report(entry.full, entry.test, entry.classes, notes=list(entry.notes))
    try:
        place = None if entry.reader == "torchvision" else _place(entry, root, report)
        if not report.problems:
            _contents(entry, root, report, place)
    except RetaError as error:
        report.problems.append(Problem("read", str(error)))
    # Whatever is wrong, the steps from the start are the surest way.
    if report.problems:
        report.recipe = [*entry.steps, *(f"{NOTE} {line}" for line in entry.dead)]
    return report


def _place(entry: Entry, root: Path, report: Report) -> Place | None:
    if not root.is_dir():
        report.problems.append(Problem("folder", str(absent(root))))
        return None
    place = locate(entry, root)
    if place is None:
        report.problems.append(Problem("folder", f"no folder {' or '.join(entry.folders)} in {root}"))
        return None
    report.folder = str(place.folder)
    if place.images is None:
        wanted = " or ".join(entry.images)
        report.problems.append(Problem("images", f"no folder {wanted} with images in {place.folder}"))
    if entry.split and place.split is None:
        report.problems.append(Problem("split", f"{entry.split[0]} is not in {place.folder}"))
    if place.split is not None:
        report.split, report.split_hash = str(place.split), split_hash(place)
        known = {k[: len(report.split_hash)] for k in entry.known}
        if known and report.split_hash not in known:
            text = f"{place.split.name} has hash {report.split_hash}, known are {', '.join(sorted(known))}"
            report.problems.append(Problem("hash", f"{text}: it is another version, or damaged"))
    return place


def _contents(entry: Entry, root: Path, report: Report, place: Place | None) -> None:
    data, missing = read_entry(entry, root)
    report.test, report.classes, report.version = len(data) - len(missing), len(data.names), data.version
    if missing:
        example = sorted(missing)[0]
        text = f"{len(missing)} of {len(data)} listed images are not there, such as {example}"
        report.problems.append(Problem("missing", text))
    report.problems += [Problem("count", text) for text in counts_wrong(entry, data, set())]
    empty = [key for key, ref in zip(data.keys, data.refs, strict=True) if ref.size() == 0]
    if empty:
        report.problems.append(Problem("empty", f"{len(empty)} files are empty, such as {empty[0]}"))
    report.problems += [Problem("names", text) for text in _names(entry, data)]
    if entry.reader == "wnid" and place is not None and place.images is not None:
        report.problems += [Problem("names", text) for text in _wnid_folders(entry, place.images)]


def _names(entry: Entry, data: Dataset) -> list[str]:
    """Class names against what the image paths say, by the set's own rule."""
    if not entry.named_by or data.labels is None:
        return []
    named = rule(entry.rule)
    wrong: dict[str, str] = {}
    for key, label in zip(data.keys, data.labels, strict=True):
        by_path = named(raw_name(key, entry.named_by))
        if by_path != data.names[label]:
            wrong.setdefault(data.names[label], f"{data.names[label]!r} is the name of {key}")
    if not wrong:
        return []
    return [f"{len(wrong)} class names do not fit their images: {next(iter(wrong.values()))}"]


def _wnid_folders(entry: Entry, images: Path) -> list[str]:
    ids = wnids(entry.subset)[: entry.classes]
    there = {e.name for e in listing(images) if e.is_dir()}
    numbers = {str(i) for i in range(len(ids))}
    wanted = numbers if not there & set(ids) and there & numbers else set(ids)
    texts = []
    if wanted - there:
        texts.append(f"{len(wanted - there)} class folders are missing, such as {sorted(wanted - there)[0]}")
    if there - wanted:
        texts.append(f"{len(there - wanted)} folders are no class of this set: {sorted(there - wanted)[0]}")
    return texts + _classnames(entry, images)


def _classnames(entry: Entry, images: Path) -> list[str]:
    """A `classnames.txt` beside the images, as CoOp wants it, must agree with CLIP's names."""
    for folder in (images, images.parent, images.parent.parent):
        path = folder / "classnames.txt"
        if path.is_file():
            rows = [line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines() if line]
            theirs = {row[0]: row[-1].strip() for row in rows}
            ids, names = wnids(entry.subset), imagenet_names(entry.subset)
            wrong = [w for w, n in zip(ids, names, strict=True) if w in theirs and theirs[w] != n]
            if wrong:
                return [
                    f"{path} gives {len(wrong)} classes another name, such as {wrong[0]}: {theirs[wrong[0]]!r}"
                ]
            return []
    return []
