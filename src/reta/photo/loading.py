"""Putting the two halves together behind the same class that holds every open_clip model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reta.backbone import OpenClip
from reta.photo import files, image, text


class TwoTowers(nn.Module):
    """The members an open_clip model has that the library uses."""

    def __init__(self, visual: image.ImageHalf, text: text.TextHalf, scale: float):
        super().__init__()
        self.visual, self.text = visual, text
        self.logit_scale = nn.Parameter(torch.tensor(math.log(scale)))

    def encode_image(self, pixels: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch dim"]:
        return self.visual(pixels)


def load(device: torch.device, precision: str) -> OpenClip:
    """The model `reta-photo`. Needs the extra `photo`, and nothing from any network."""
    head, about = files.head()
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        net, preprocess = image.network(files.checked(files.NETWORK, about["files"]))
        looks = [(head[f"{part}.centre"], head[f"{part}.matrix"]) for part in files.PARTS]
        module = TwoTowers(image.ImageHalf(net, looks), _reader(head, about), about["scale"])
    return OpenClip(
        module,
        text.Tokenizer(files.checked(files.WORDS, about["files"])),
        name="reta-photo",
        tag=None,
        dim=sum(matrix.shape[1] for _, matrix in looks),
        preprocess=preprocess,
        config={"image": image.ARCHITECTURE, "text": "all-MiniLM-L6-v2", "sharpness": about["sharpness"]},
        device=device,
        precision=precision,
    )


def _reader(head: Mapping[str, Tensor], about: Mapping[str, Any]) -> text.TextHalf:
    paths = [files.checked(file, about["files"]) for file in (files.SHAPE, files.SENTENCES)]
    memories = [
        text.Memory(head[f"{part}.keys"], head[f"{part}.values"], about["sharpness"][part])
        for part in files.PARTS
    ]
    return text.TextHalf(text.transformer(*paths), head["text.centre"], memories)
