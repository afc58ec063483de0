"""Text features kept on disk by content: model fingerprint and prompt in, feature out."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from reta import state
from reta.errors import BadState, RetaError

if TYPE_CHECKING:
    from reta.backbone import Backbone

log = logging.getLogger("reta")


def cache_dir() -> Path:
    """Where everything that can be made again is kept: `$RETA_CACHE`, or the platform's cache folder."""
    if os.environ.get("RETA_CACHE"):
        return Path(os.environ["RETA_CACHE"]).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "reta"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "reta"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reta"


def cached_texts(model: Backbone, texts: Sequence[str]) -> Float[Tensor, "texts dim"]:
    """`model.texts(texts)`, each prompt encoded once ever by this model in this precision.

    A file holds the prompts whose hash begins with one digit. Files are replaced whole, so readers never
    wait; of two writers at the same moment one may lose rows, which are then encoded again later.
    """
    precision = getattr(model, "precision", "fp32")
    folder = cache_dir() / "texts" / f"{model.fingerprint}-{precision}"
    keys = {text: hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for text in dict.fromkeys(texts)}
    known: dict[str, Tensor] = {}
    for digit in sorted({key[0] for key in keys.values()}):
        known |= _read(folder / f"{digit}.safetensors", model.dim)
    new = [text for text, key in keys.items() if key not in known]
    if new:
        fresh = dict(zip((keys[text] for text in new), model.texts(new).cpu(), strict=True))
        known |= fresh
        sound = {key: row for key, row in fresh.items() if bool(row.isfinite().all())}
        _add(folder, sound, {"model": model.name, "fingerprint": model.fingerprint, "precision": precision})
    if not texts:
        return model.texts([])
    return torch.stack([known[keys[text]] for text in texts]).to(model.device)


def _read(path: Path, dim: int, quiet: bool = False) -> dict[str, Tensor]:
    """Key to feature; a damaged file counts as empty and is said so."""
    if not path.is_file():
        return {}
    try:
        body, _ = state.load(path)
        keys, rows = body["keys"], body["rows"]
        if keys.shape != (len(rows), 16) or rows.shape[1:] != (dim,):
            raise BadState("its tensors have other shapes")
    except (RetaError, KeyError) as error:
        if not quiet:
            log.warning("text cache: %s is damaged and its prompts are encoded again (%s)", path, error)
        return {}
    names = [bytes(row).hex() for row in keys.numpy()]
    return dict(zip(names, rows, strict=True))


def _add(folder: Path, fresh: Mapping[str, Tensor], about: dict[str, Any]) -> None:
    """Merge new rows into their files as they are now."""
    for digit in sorted({key[0] for key in fresh}):
        path = folder / f"{digit}.safetensors"
        rows = _read(path, next(iter(fresh.values())).shape[0], quiet=True)
        rows |= {key: row for key, row in fresh.items() if key[0] == digit}
        names = sorted(rows)
        table = {
            "keys": torch.tensor([list(bytes.fromhex(name)) for name in names], dtype=torch.uint8),
            "rows": torch.stack([rows[name] for name in names]),
        }
        try:
            state.save(path, table, about)
        except OSError as error:
            log.warning("text cache: %s cannot be written (%s); prompts are encoded each time", folder, error)
            return
