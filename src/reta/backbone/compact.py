"""Small weight files: fp16, and of the token table only the rows that training has touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from reta.errors import BadInput

TABLE, ROWS, IDS = "token_embedding.weight", "token_embedding.rows", "token_embedding.ids"


def compact(weights: Mapping[str, Tensor], ids: Iterable[int]) -> dict[str, Tensor]:
    """The fp16 form of an open_clip state dict that keeps the token rows `ids` only.

    >>> small = compact({"token_embedding.weight": torch.randn(100, 4)}, {7, 3})
    >>> small["token_embedding.ids"].tolist(), small["token_embedding.rows"].shape
    ([3, 7], torch.Size([2, 4]))
    """
    kept = torch.tensor(sorted(set(ids)), dtype=torch.int32)
    small = {
        name: (value.half() if value.is_floating_point() else value).detach().cpu().contiguous()
        for name, value in weights.items()
    }
    table = small.pop(TABLE)
    if not len(kept) or int(kept[0]) < 0 or int(kept[-1]) >= len(table):
        raise BadInput(f"token ids must lie between 0 and {len(table) - 1}, and there must be one")
    return small | {ROWS: table[kept.long()].contiguous(), IDS: kept}


def expand(small: Mapping[str, Tensor], vocabulary: int) -> tuple[dict[str, Tensor], Int[Tensor, " tokens"]]:
    """The fp32 state dict again, and the ids of the tokens it knows.

    Rows that were left out are filled as an untrained table would be, the same on every machine.
    """
    ids = small[IDS].long()
    rows = small[ROWS].float()
    if rows.ndim != 2 or ids.shape != rows.shape[:1] or int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
        raise BadInput(f"{ROWS} and {IDS} do not belong together, or not to {vocabulary} tokens")
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(vocabulary, rows.shape[1], generator=generator) * 0.02
    table[ids] = rows
    weights = {
        name: value.float() if value.is_floating_point() else value
        for name, value in small.items()
        if name not in (ROWS, IDS)
    }
    return weights | {TABLE: table}, ids


def is_compact(path: str | Path) -> bool:
    """Whether a safetensors file is of this form."""
    from safetensors import safe_open

    if Path(path).suffix != ".safetensors":
        return False
    with safe_open(str(path), framework="pt") as file:
        return IDS in file.keys()  # noqa: SIM118
