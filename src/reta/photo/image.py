"""The image tower: EfficientNet-Lite0 as timm has it, with the package's weights under timm's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from reta.backbone import Preprocess
from reta.errors import require
from reta.photo.folding import folded

ARCHITECTURE = "tf_efficientnet_lite0"
# on a CPU, the maps of more pictures at once leave the cache: each takes up to twice as long
BLOCK = 8
OUTSIDE = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
FIRST = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
OTHERS = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


class ImageHalf(nn.Module):
    """Pooled features of the network as each of the head's memories looks at them, side by side."""

    def __init__(self, network: nn.Module, looks: Sequence[tuple[Tensor, Tensor]]):
        super().__init__()
        self.network: Any = network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.looks = nn.ModuleList(Look(centre, matrix) for centre, matrix in looks)

    def pooled(self, pixels: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch wide"]:
        """What the classifier's last layer would be given."""
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        if pixels.device.type != "cpu" or len(pixels) <= BLOCK:
            return self._pooled(pixels)
        return torch.cat([self._pooled(block) for block in pixels.split(BLOCK)])

    def _pooled(self, pixels: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch wide"]:
        return self.network.forward_head(self.network.forward_features(pixels), pre_logits=True)

    def forward(self, pixels: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch dim"]:
        pooled = self.pooled(pixels)
        with torch.autocast(pixels.device.type, enabled=False):
            return torch.cat([look(pooled) for look in self.looks], dim=-1)


class Look(nn.Module):
    """Features less a centre, in the directions that texts can tell apart, made unit."""

    centre: Tensor
    matrix: Tensor

    def __init__(self, centre: Float[Tensor, " wide"], matrix: Float[Tensor, "wide part"]):
        super().__init__()
        self.register_buffer("centre", centre.float())
        self.register_buffer("matrix", matrix.float())

    def forward(self, pooled: Float[Tensor, "batch wide"]) -> Float[Tensor, "batch part"]:
        return normalize((pooled.to(self.centre.dtype) - self.centre) @ self.matrix, dim=-1)


def network(path: Path) -> tuple[nn.Module, Preprocess]:
    """The ImageNet classifier with the weights of the original package, and how it wants its pictures."""
    timm = require("photo", "timm")
    models = require("photo", "timm.models")
    net = timm.create_model(ARCHITECTURE, pretrained=False)
    # the file is a pickle: this reader takes tensors out of it and refuses everything else
    weights = models.load_state_dict(str(path), weights_only=True)
    net.load_state_dict(renamed(weights, net))
    cfg = net.pretrained_cfg
    return folded(net.eval()), Preprocess(
        size=cfg["input_size"][-1],
        mean=tuple(cfg["mean"]),
        std=tuple(cfg["std"]),
        interpolation=cfg["interpolation"],
    )


def renamed(weights: Mapping[str, Tensor], net: Any) -> dict[str, Tensor]:
    """The original package numbers all blocks in one row; timm counts them stage by stage."""
    rows = [f"blocks.{s}.{i}" for s, stage in enumerate(net.blocks) for i in range(len(stage))]

    def name(key: str) -> str:
        if not key.startswith("_blocks."):
            layer, _, rest = key.partition(".")
            return f"{OUTSIDE[layer]}.{rest}"
        _, index, layer, rest = key.split(".")
        table = FIRST if index == "0" else OTHERS
        return f"{rows[int(index)]}.{table[layer]}.{rest}"

    return {name(key): value for key, value in weights.items()}
