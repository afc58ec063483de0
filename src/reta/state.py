"""A state is a dict of tensors; a file of it is safetensors with one JSON key, whole and checked or refused."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reta.errors import BadState, MissingData

State = dict[str, Tensor]
FORMAT = 1


def clone(state: Mapping[str, Tensor]) -> State:
    """A copy that shares no memory."""
    return {key: value.clone() for key, value in state.items()}


def equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    """Bit for bit the same: keys, types, shapes and values (NaN equals NaN)."""
    return a.keys() == b.keys() and digest(a) == digest(b)


def nbytes(state: Mapping[str, Tensor]) -> int:
    """How much memory the tensors take."""
    return sum(value.numel() * value.element_size() for value in state.values())


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A hash of all names, types, shapes and values."""
    total = hashlib.blake2b(digest_size=16)
    for key in sorted(tensors):
        value = tensors[key].detach().cpu().contiguous()
        total.update(f"{key}\x00{value.dtype}\x00{tuple(value.shape)}\x00".encode())
        total.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A temporary path that replaces `path` when the block ends well: the old file or the new one, never a third."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save(path: str | Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a JSON header; the same input gives the same bytes."""
    from safetensors.torch import save as to_bytes

    body = _apart(tensors)
    seal = {"format": FORMAT, "payload": digest(body), "header": dict(header)}
    text = json.dumps(seal, sort_keys=True)
    check = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    with atomic(path) as temporary:
        # written here and not by safetensors, so that a full disk is an OSError like any other
        temporary.write_bytes(
            to_bytes(body, {"json": json.dumps({"check": check, "seal": text}, sort_keys=True)})
        )


def _apart(tensors: Mapping[str, Tensor]) -> State:
    """The tensors as a file holds them: plain ones, none of which shares memory with another."""
    body, places = {}, set()
    for key, value in tensors.items():
        value = value.detach().cpu().contiguous()
        place = value.untyped_storage().data_ptr()
        body[key] = value.clone() if place in places else value
        places.add(place)
    return body


def load(path: str | Path) -> tuple[State, dict[str, Any]]:
    """Read what `save` wrote; anything else is refused with the reason. No code in the file is ever run."""
    seal, body = read(path)
    if digest(body) != seal["payload"]:
        raise BadState(f"{path} is damaged: its content does not match its checksum; use an older copy")
    return body, seal["header"]


def read(path: str | Path) -> tuple[dict[str, Any], State]:
    """The sealed header and the tensors of a file, the header checked."""
    with _opened(path) as file:
        body = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
        return _sealed(path, file.metadata() or {}), body


def header(path: str | Path) -> dict[str, Any]:
    """The header alone, checked; the tensors are not read."""
    with _opened(path) as file:
        return _sealed(path, file.metadata() or {})["header"]


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise MissingData(f"{'a folder, not a' if Path(path).is_dir() else 'no such'} state file: {path}")
    try:
        with safe_open(str(path), framework="pt") as file:
            yield file
    except (SafetensorError, ValueError, OSError, RuntimeError, TypeError, KeyError, AttributeError) as error:
        raise BadState(f"{path} is not a state file of reta, or it is damaged ({error})") from error


def _sealed(path: str | Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        outer = json.loads(metadata["json"])
        text = outer["seal"]
        if hashlib.blake2b(text.encode(), digest_size=16).hexdigest() != outer["check"]:
            raise BadState(f"{path} is damaged: its header does not match its checksum; use an older copy")
        seal = json.loads(text)
        version, _, _ = seal["format"], seal["payload"], seal["header"]
    except (KeyError, TypeError, ValueError, AttributeError, UnicodeError) as error:
        raise BadState(f"{path} is a safetensors file, but not a state of reta") from error
    if version != FORMAT:
        raise BadState(f"{path} has format {version}, this version of reta reads {FORMAT}: update reta")
    return seal
