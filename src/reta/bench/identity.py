"""What a store is made from: change anything that matters and it is another store."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch

from reta.bench.store import FORMAT, features_root
from reta.data.dataset import Dataset
from reta.errors import BadInput, nearest
from reta.views import Views

VIEWS_VERSION = 1
"""Raise this when the same recipe, seed and key give other views than before: old stores are then not used."""
KINDS = {"fp16": torch.float16, "fp32": torch.float32}


def make_views(model: Any, recipe: str = "augmix", n_views: int = 64, seed: int = 0, **more: Any) -> Views:
    """The views a model wants: its size and interpolation, and what the caller asks for."""
    pre = model.preprocess
    shape = {"size": pre.size, "interpolation": pre.interpolation, "resize_mode": pre.resize_mode}
    known = {f.name for f in dataclasses.fields(Views)}
    foreign = next((key for key in more if key not in known), None)
    if foreign is not None:
        raise BadInput(f"views have no option {foreign!r}: {nearest(foreign, known)}")
    return Views(recipe, n_views, seed=seed, **(shape | more))


def identify(data: Dataset, model: Any, views: Views, precision: str = "fp16") -> dict[str, Any]:
    """Everything the features depend on, as plain values."""
    if precision not in KINDS:
        raise BadInput(f"precision must be {' or '.join(KINDS)}, not {precision!r}")
    identity = {
        "format": FORMAT,
        "data": {"name": data.name, "version": data.version, "fingerprint": data.fingerprint},
        "model": {
            "name": model.name,
            "tag": model.tag,
            "fingerprint": model.fingerprint,
            "precision": getattr(model, "precision", "fp32"),
            "preprocess": dataclasses.asdict(model.preprocess),
        },
        "views": dataclasses.asdict(views) | {"n": views.count, "version": VIEWS_VERSION},
        "stored": precision,
    }
    # Through JSON once, so that tuples compare equal to the lists that come back from disk.
    return json.loads(json.dumps(identity))


def digest(identity: dict[str, Any]) -> str:
    """An identity as 16 hex digits.

    >>> digest({"a": 1}) == digest({"a": 1}) != digest({"a": 2})
    True
    """
    return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=8).hexdigest()


def place(identity: dict[str, Any], root: str | Path | None = None) -> Path:
    """The folder of the store with this identity, there or not."""
    views, model = identity["views"], identity["model"]
    words = (identity["data"]["name"], model["name"], f"{views['recipe']}{views['n']}", digest(identity))
    return features_root(root) / "-".join(re.sub(r"[^\w.@]+", "_", word) for word in words)
