"""The text tower of an open_clip model: runs it on fewer positions, or on other embeddings, untouched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from reta.errors import RetaError


def share(module: nn.Module) -> nn.Module:
    """A second module over the same tensors and children, which may be given others of its own.

    Everything below is done on such a copy, so a model can serve several threads at once.
    """
    twin = module.__class__.__new__(module.__class__)
    twin.__dict__ = {k: v.copy() if isinstance(v, dict) else v for k, v in module.__dict__.items()}
    return twin


class TextTower:
    """Token ids to text features, at the smallest exact cost.

    `exact` says what is exact for this tower: `packed` (causal, pooled at the end token: what follows the
    end token is never seen, and prompts can share one row), `cut` (CoCa: a class token is appended, and the
    first padding position is visible to it; or the module says `masks_padding`) or `full` (bidirectional:
    every position counts).
    """

    def __init__(self, model: nn.Module, tokenizer: Callable[[list[str]], Tensor]):
        self.module: Any = model.text if isinstance(getattr(model, "text", None), nn.Module) else model
        self.tokenizer = tokenizer
        embedding = getattr(self.module, "token_embedding", None)
        embedding = self.module.transformer.get_input_embeddings() if embedding is None else embedding
        self.embedding: nn.Embedding = embedding
        self.path = next(name for name, module in self.module.named_modules() if module is embedding)
        self.pool = "text_pool_type" if hasattr(self.module, "text_pool_type") else "pool_type"
        self.exact = self._exact()

    def _exact(self) -> str:
        if getattr(self.module, "masks_padding", False):
            return "cut"
        mask = getattr(self.module, "attn_mask", None)
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            return "full"
        if not torch.equal(mask.isinf(), torch.ones_like(mask, dtype=torch.bool).triu(1)):
            return "full"
        if getattr(self.module, "cls_emb", None) is not None:
            return "cut"
        return "packed" if getattr(self.module, self.pool, None) in ("argmax", "eos") else "full"

    @property
    def width(self) -> int:
        return self.embedding.embedding_dim

    @property
    def bytes_per_token(self) -> int:
        """Memory that the activations of one position take until the backward pass.

        Counted: 10 widths a layer with GELU, 14 with QuickGELU; the rest is working space.
        """
        weights = sum(p.numel() for p in self.module.transformer.parameters())
        layers = max(1, round(weights / (12 * self.width**2)))
        return 16 * self.width * layers * self.embedding.weight.element_size()

    def tokens(self, texts: Sequence[str]) -> Int[Tensor, "texts length"]:
        return self.tokenizer(list(texts)).to(self.embedding.weight.device)

    def overlong(self, texts: list[str], tokens: Int[Tensor, "texts length"]) -> list[str]:
        """The texts that do not fit and lost their end to the tokenizer."""
        size = getattr(self.tokenizer, "context_length", None)
        padding = self.tokens([""])[0, -1]
        full = [texts[i] for i in (tokens[:, -1] != padding).nonzero().flatten().tolist()]
        if size is None or not full:
            return []
        more: Any = self.tokenizer
        last = more(full, context_length=size + 1)[:, -1].to(padding.device)
        return [text for text, odd in zip(full, (last != padding).tolist(), strict=True) if odd]

    def ends(self, tokens: Int[Tensor, "texts length"]) -> Int[Tensor, " texts"]:
        """Where the tower reads each text's feature; only for a tower whose `exact` is `packed`."""
        if getattr(self.module, self.pool) == "argmax":
            return tokens.argmax(-1)
        eos = getattr(self.module, "text_eos_id", getattr(self.module, "eos_id", None))
        return (tokens == eos).int().argmax(-1)

    def lengths(self, tokens: Int[Tensor, "texts length"]) -> Int[Tensor, " texts"]:
        """How many positions of each text the tower must see to give exactly the same feature."""
        size = tokens.shape[1]
        if self.exact == "packed":
            return self.ends(tokens) + 1
        if self.exact == "cut":
            last = size - 1 - (tokens != self.module.pad_id).int().flip(-1).argmax(-1)
            return (last + 2).clamp_max(size)
        return torch.full((len(tokens),), size, device=tokens.device)

    def rows(
        self,
        tokens: Int[Tensor, "texts length"],
        context: Float[Tensor, "texts context width"] | None = None,
        start: int = 0,
    ) -> Float[Tensor, "texts dim"]:
        """One row per text; rows may be cut to the longest of their `lengths`. `context` as in `packed`."""
        size = tokens.shape[1]
        if self.exact == "full" or not hasattr(self.module, "positional_embedding"):
            return self._call(share(self.module), tokens, context, start)
        table = self.module.positional_embedding
        if self.exact == "cut":
            # the appended class token keeps its own, last position
            return self._call(self._twin(torch.cat([table[:size], table[-1:]])), tokens, context, start)
        return self._call(self._twin(table[:size]), tokens, context, start)

    def packed(
        self,
        tokens: Int[Tensor, "rows length"],
        positions: Int[Tensor, " length"],
        seen: Bool[Tensor, "length length"],
        context: Float[Tensor, "rows context width"] | None = None,
        start: int = 0,
    ) -> Float[Tensor, "rows length dim"]:
        """Many texts in one row: `positions` is the place of each token in its own text, `seen[i, j]` whether
        token i attends to token j. The embeddings of the tokens from `start` on are replaced by `context`.
        """
        mask = torch.zeros_like(seen, dtype=self.embedding.weight.dtype).masked_fill_(~seen, float("-inf"))
        twin = self._twin(self.module.positional_embedding[positions], mask)
        setattr(twin, self.pool, "none")
        return self._call(twin, tokens, context, start)

    def _twin(self, positions: Tensor, mask: Tensor | None = None) -> Any:
        twin: Any = share(self.module)
        twin.positional_embedding = nn.Parameter(positions.detach(), requires_grad=False)
        twin.attn_mask = self.module.attn_mask[: len(positions), : len(positions)] if mask is None else mask
        return twin

    def _call(self, twin: Any, tokens: Tensor, context: Tensor | None, start: int) -> Tensor:
        fired = [] if context is not None else [True]
        if context is not None:
            node = twin
            for part in self.path.split("."):
                setattr(node, part, share(getattr(node, part)))
                node = getattr(node, part)
            node.register_forward_hook(_replace(context, start, fired))
        out = twin.encode_text(tokens) if hasattr(twin, "encode_text") else twin(tokens)
        if not fired:
            raise RetaError(f"{type(self.module).__name__} never looks up {self.path}: it cannot be prompted")
        return out[0] if isinstance(out, tuple) else out


def _replace(context: Tensor, start: int, fired: list[bool]) -> Callable[..., Tensor]:
    """A forward hook that puts `context` in the place of the embeddings from position `start` on."""

    def hook(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        fired.append(True)
        tail = output[:, start + context.shape[1] :]
        return torch.cat([output[:, :start], context.to(output.dtype), tail], dim=1)

    return hook
