"""How many prompts with one beginning are laid out for a text tower, so that it does no work twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from reta.backbone.tower import TextTower
from reta.errors import BadInput

LAYOUTS = ("packed", "cut", "full")
ROW = 256  # tokens of a packed row: longer ones lose to attention between texts that do not see each other
WAVE = 4096  # tokens of a group of rows on a GPU: they fill it, and few are padded to a much longer one


@dataclass(frozen=True)
class Block:
    """Some classes, laid out for one pass through the text tower: a row each, or all in one packed row."""

    classes: Int[Tensor, " classes"]
    tokens: Int[Tensor, "rows length"]
    positions: Int[Tensor, " length"] | None = None
    seen: Bool[Tensor, "length length"] | None = None
    ends: Int[Tensor, " classes"] | None = None


def blocks(
    tower: TextTower, tokens: Int[Tensor, "classes length"], layout: str, shared: int, limit: int
) -> list[Block]:
    """All classes, those of about the same length together, at most `limit` tokens in a block.

    `shared` is how many tokens all prompts begin with. On a GPU "auto" does not pack: one pass over many
    short rows takes fewer and larger kernels than a pass for each packed row.
    """
    best = LAYOUTS.index(tower.exact)
    if layout == "auto":
        layout = "cut" if tokens.is_cuda and tower.exact == "packed" else tower.exact
    if layout not in LAYOUTS[best:]:
        raise BadInput(f"layout {layout!r} is not exact for this model: auto, {', '.join(LAYOUTS[best:])}")
    lengths = tower.lengths(tokens)
    if layout == "full":
        lengths = torch.full_like(lengths, tokens.shape[1])
    if layout != "packed":
        groups = _groups(lengths, 0, min(limit, WAVE) if tokens.is_cuda else limit, widen=True)
        return [Block(index, tokens[index, : int(lengths[index].max())]) for index in groups]
    groups = _groups(lengths, shared, min(limit, ROW), widen=False)
    return [pack(index, tokens, lengths, shared) for index in groups]


def _groups(lengths: Tensor, shared: int, limit: int, widen: bool) -> list[Tensor]:
    """Places by rising length, split so that no group costs more than `limit`; `widen` pads to the longest."""
    order = lengths.argsort(stable=True)
    groups: list[list[int]] = [[]]
    for place, size in zip(order.tolist(), (lengths[order] - shared).tolist(), strict=True):
        row = groups[-1]
        cost = len(row) * size if widen else sum(int(lengths[i]) - shared for i in row)
        if row and shared + cost + size > limit:
            groups.append([])
        groups[-1].append(place)
    return [torch.tensor(group, device=lengths.device) for group in groups]


def place(probes: Tensor, tokens: Tensor, context: str, names: Sequence[str]) -> tuple[int, int]:
    """Where the context starts, and how many tokens it has, told from the tokens alone.

    `probes` are the context alone, nothing, and a word: the last two share their first token if it is a begin
    token. The context alone and the context before a name agree up to where the context ends.
    """
    alone, nothing, word = probes
    start = int(nothing[0] == word[0])
    same = (tokens == alone).int().cumprod(dim=1).sum(dim=1)
    length = int(same.max()) - start
    if length < 1:
        raise BadInput(f"a context needs at least one word, not {context!r}")
    if start + length >= tokens.shape[1] - 1:
        raise BadInput(f"{length} context tokens leave no room for a name in {tokens.shape[1]} positions")
    odd = (same != same.max()).nonzero()
    if len(odd):
        name = names[int(odd[0])]
        raise BadInput(
            f"the tokenizer reads the context {context!r} differently before {name!r}: end it in a word"
        )
    return start, length


def pack(classes: Tensor, tokens: Tensor, lengths: Tensor, shared: int) -> Block:
    """One row: the shared beginning, then the rest of every prompt, each seeing the beginning and itself."""
    rests = [tokens[i, shared:n] for i, n in zip(classes.tolist(), lengths[classes].tolist(), strict=True)]
    sizes = torch.tensor([len(rest) for rest in rests], device=tokens.device)
    owner = torch.repeat_interleave(torch.arange(1, len(rests) + 1, device=tokens.device), sizes)
    owner = torch.cat([owner.new_zeros(shared), owner])
    offsets = [torch.arange(shared, shared + len(rest), device=tokens.device) for rest in rests]
    positions = torch.cat([torch.arange(shared, device=tokens.device), *offsets])
    earlier = positions[:, None] >= positions[None, :]
    seen = earlier & ((owner[:, None] == owner[None, :]) | (owner[None, :] == 0))
    row = torch.cat([tokens[classes[0], :shared], *rests])[None]
    return Block(classes, row, positions, seen, shared + sizes.cumsum(0) - 1)
