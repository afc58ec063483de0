"""Where tensors live: one reading of the word a user types."""

from __future__ import annotations

import torch

from reta.errors import BadInput


def pick(device: str | torch.device = "auto") -> torch.device:
    """The device to use: the one named, or the GPU if there is one.

    >>> pick("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from error
    return where
