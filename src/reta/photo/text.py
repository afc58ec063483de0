"""The text tower: all-MiniLM-L6-v2, mean-pooled, then attention over what the image tower knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from reta.errors import require


class TextHalf(nn.Module):
    """A sentence as each of the head's memories reads it, side by side."""

    pad_id = 0
    masks_padding = True
    centre: Tensor

    def __init__(self, transformer: nn.Module, centre: Float[Tensor, " width"], memories: Sequence[Memory]):
        super().__init__()
        self.transformer = transformer
        self.register_buffer("centre", centre.float())
        self.memories = nn.ModuleList(memories)

    def pooled(self, tokens: Int[Tensor, "texts length"]) -> Float[Tensor, "texts width"]:
        """Unit sentence embeddings, as the sentence-transformers package gives them."""
        mask = (tokens != self.pad_id).long()
        states = self.transformer(input_ids=tokens, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(self.centre.dtype)
        return normalize((states.to(self.centre.dtype) * weights).sum(1) / weights.sum(1), dim=-1)

    def forward(self, tokens: Int[Tensor, "texts length"]) -> Float[Tensor, "texts dim"]:
        pooled = self.pooled(tokens)
        with torch.autocast(tokens.device.type, enabled=False):
            query = normalize(pooled - self.centre, dim=-1)
            return torch.cat([memory(query) for memory in self.memories], dim=-1)


class Memory(nn.Module):
    """Named things the image tower can tell apart: their meanings, `keys`, and their directions, `values`.

    A sentence asks it with a softmax of the given `sharpness` over all keys and is answered with the mean of
    the directions, made unit. A name it does not hold is so answered from those that mean nearly the same.
    """

    keys: Tensor
    values: Tensor

    def __init__(
        self, keys: Float[Tensor, "things width"], values: Float[Tensor, "things part"], sharpness: float
    ):
        super().__init__()
        self.sharpness = sharpness
        self.register_buffer("keys", keys.float())
        self.register_buffer("values", values.float())

    def forward(self, query: Float[Tensor, "texts width"]) -> Float[Tensor, "texts part"]:
        return normalize((self.sharpness * query @ self.keys.T).softmax(-1) @ self.values, dim=-1)


def transformer(config: Path, weights: Path) -> nn.Module:
    """The sentence encoder with the package's weights; nothing is looked up on a hub."""
    bert = require("photo", "transformers.models.bert")
    load_file = require("photo", "safetensors.torch").load_file
    settings = bert.BertConfig(**json.loads(config.read_text("utf-8")))
    model = bert.BertModel(settings, add_pooling_layer=False)
    state = {k: v for k, v in load_file(weights).items() if not k.startswith("pooler.")}
    missing, unknown = model.load_state_dict(state, strict=False)
    assert not missing and set(unknown) <= {"embeddings.position_ids"}
    return model


class Tokenizer:
    """Sentences to token ids, all rows cut and padded to one length."""

    def __init__(self, path: Path):
        self.words: Any = require("photo", "tokenizers").Tokenizer.from_file(str(path))

    def __call__(self, texts: Sequence[str]) -> Int[Tensor, "texts length"]:
        return torch.tensor([row.ids for row in self.words.encode_batch(list(texts))], dtype=torch.long)
