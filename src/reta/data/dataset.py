"""A data set: keys, references to images, labels, class names, and what is recorded about it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from reta import images
from reta.errors import BadImage, BadInput, MissingData


class Reference(Protocol):
    """Where one image is. `load` gives something `reta.images.decode` takes; `size` its bytes, if known."""

    def load(self) -> Any: ...
    def size(self) -> int | None: ...


@dataclass(frozen=True)
class File:
    """An image in a file of its own."""

    path: Path

    def load(self) -> Path:
        return self.path

    def size(self) -> int | None:
        """Bytes on disk; -1 where the file is missing."""
        try:
            return self.path.stat().st_size
        except OSError:
            return -1


@dataclass(frozen=True)
class Part:
    """An image inside a larger file, such as a member of a tar archive."""

    path: Path
    offset: int
    length: int

    def load(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.length)

    def size(self) -> int | None:
        return self.length


@dataclass(frozen=True)
class Made:
    """An image that is computed or fetched when it is asked for."""

    make: Callable[[], Any]

    def load(self) -> Any:
        return self.make()

    def size(self) -> int | None:
        return None


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images that can be named, counted and read one at a time; nothing is decoded before it is asked for.

    `keys` are unique and stable: views and corruptions are drawn from them. `labels` count from 0 in the order
    of `names`; both may be absent. `templates` holds the templates of each method family, `prompts` sentences
    per class where the set has its own. `version` goes into every result, `partial` says that the set is not
    complete. `root` is the folder it was found in, `notes` what a person should know, `skipped` which files
    were not taken for images.

    >>> from PIL import Image
    >>> data = Dataset("two", ("a", "b"), [Made(lambda: Image.new("RGB", (8, 8)))] * 2, (0, 1), ("cat", "dog"))
    >>> len(data), data.image(0).size, data.counts()
    (2, (8, 8), {'cat': 1, 'dog': 1})
    """

    name: str
    keys: tuple[str, ...]
    refs: Sequence[Any] = field(repr=False)
    labels: tuple[int, ...] | None = field(default=None, repr=False)
    names: tuple[str, ...] = ()
    templates: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    prompts: Mapping[str, Sequence[str]] | None = field(default=None, repr=False)
    version: str = ""
    partial: bool = False
    fixed: bool = False
    root: Path | None = None
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    change: Callable[[Image.Image, str], Image.Image] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.keys:
            raise MissingData(f"{self.name}: no images; see `reta data check {self.name}`")
        if len(self.refs) != len(self.keys):
            raise BadInput(f"{self.name}: {len(self.refs)} images for {len(self.keys)} keys")
        if len(set(self.keys)) != len(self.keys):
            double = next(key for key, n in Counter(self.keys).items() if n > 1)
            raise BadInput(f"{self.name}: the key {double!r} occurs more than once; keys must be unique")
        if self.labels is not None:
            self._check_labels(self.labels)

    def _check_labels(self, labels: tuple[int, ...]) -> None:
        if len(labels) != len(self.keys):
            raise BadInput(f"{self.name}: {len(labels)} labels for {len(self.keys)} images")
        wrong = next((i for i, label in enumerate(labels) if not 0 <= label < len(self.names)), None)
        if wrong is not None:
            raise BadInput(
                f"{self.name}: {self.keys[wrong]!r} has label {labels[wrong]}, but there are "
                f"{len(self.names)} class names (0 to {len(self.names) - 1}): is the class list complete?"
            )

    def __len__(self) -> int:
        return len(self.keys)

    def image(self, index: int) -> Image.Image:
        """Decode one image, upright RGB, with the corruption of the set applied; `BadImage` says why not."""
        return self.fetch(index)[0]

    def fetch(self, index: int) -> tuple[Image.Image, str]:
        """An image and the hash of what it was decoded from, read once."""
        try:
            source = held(self.refs[index])
        except OSError as error:
            raise BadImage(f"{self.keys[index]!r} cannot be read ({error})", "unreadable") from error
        try:
            picture = images.decode(source)
        except BadImage as error:
            if not isinstance(source, bytes):
                raise
            text = str(error).replace(f"these {len(source)} bytes", repr(self.keys[index]))
            raise BadImage(text, error.reason) from error
        mark = "" if isinstance(source, Path) else fingerprint_of(source)
        return picture if self.change is None else self.change(picture, self.keys[index]), mark

    def __getitem__(self, index: int) -> tuple[Image.Image, int | None]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside a set of {len(self)}")
        return self.image(index), None if self.labels is None else self.labels[index]

    def __iter__(self) -> Iterator[tuple[Image.Image, int | None]]:
        return (self[i] for i in range(len(self)))

    def counts(self) -> dict[str, int]:
        """Images per class name; empty without labels. Classes that share a name are counted together."""
        table = dict.fromkeys(self.names, 0) if self.labels is not None else {}
        for label in self.labels or ():
            table[self.names[label]] += 1
        return table

    def take(self, indices: Sequence[int]) -> Dataset:
        """Some of the images, in the order given; the result is marked partial."""
        chosen = list(indices)
        labels = None if self.labels is None else tuple(self.labels[i] for i in chosen)
        keys = tuple(self.keys[i] for i in chosen)
        partial = self.partial or len(chosen) < len(self)
        return replace(self, keys=keys, refs=[self.refs[i] for i in chosen], labels=labels, partial=partial)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any key, label, class name, the version, or the images.

        Of a set of the catalog (`fixed`) the sizes of the files stand for their content, which is verified
        against the catalog; of anything else the content itself is read.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update("\0".join((self.name, self.version, *self.names)).encode(errors="surrogateescape"))
        for i, key in enumerate(self.keys):
            label = -1 if self.labels is None else self.labels[i]
            # Encoding takes far longer than reading, so reading all to know what was encoded is cheap.
            mark = self.refs[i].size() if self.fixed else content(self.refs[i])
            digest.update(f"\0{key}\0{label}\0{mark}".encode(errors="surrogateescape"))
        return digest.hexdigest()


def held(ref: Reference) -> Any:
    """What a reference holds, a file as its bytes; a path where there is nothing to read, or too much."""
    source = ref.load()
    if isinstance(source, Path):
        with suppress(OSError):
            if 0 < source.stat().st_size <= images.DEFAULT.bytes:
                return source.read_bytes()
    return source


def content(ref: Reference) -> str:
    """A hash of what a reference holds: the bytes of a file, or the pixels of a picture that is made."""
    try:
        source = held(ref)
    except OSError as error:
        return f"unread {error.errno}"
    return f"unread {ref.size()}" if isinstance(source, Path) else fingerprint_of(source)


def fingerprint_of(source: Any) -> str:
    """The hash of bytes, of a picture, or of an array of pixels."""
    if isinstance(source, Image.Image):
        source = f"{source.mode}{source.size}".encode() + source.tobytes()
    elif not isinstance(source, bytes):
        source = images.decode(source).tobytes()
    return hashlib.blake2b(source, digest_size=12).hexdigest()
