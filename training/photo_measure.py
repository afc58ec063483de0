"""What each part of the head of `reta-photo` is worth on pictures: looks only, nothing is fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from photo_head import Drawn, Memory, Towers, compare, directions
from torch import Tensor
from torch.nn.functional import normalize

from reta.templates import template_set
from reta.views import make

Score = Callable[[Tensor, Tensor], Tensor]


def pictures(folder: Path) -> Iterator[tuple[str, str, Path]]:
    for path in sorted(folder.glob("*/*/*")):
        yield path.parts[-3], path.parts[-2], path


def measure(folder: Path, towers: Towers, variants: dict[str, Score]) -> list[dict[str, Any]]:
    """Accuracy of each variant on the plain view of every picture, by domain."""
    found = list(pictures(folder))
    classes = sorted({c for _, c, _ in found})
    queries = towers.sentences(
        [t.format(c.replace("_", " ")) for c in classes for t in template_set("single")]
    )
    pixels = [make(path, "plain", size=towers.preprocess.size) for _, _, path in found]
    features = torch.cat([towers.features(block) for block in pixels])
    labels = torch.tensor([classes.index(c) for _, c, _ in found])
    rows = []
    for name, score in variants.items():
        right = (score(features, queries).argmax(1) == labels).double()
        for domain in sorted({d for d, _, _ in found}):
            here = torch.tensor([d == domain for d, _, _ in found])
            rows.append({"head": name, "domain": domain, "images": int(here.sum())})
            rows[-1]["accuracy"] = round(100 * float(right[here].mean()), 2)
    return rows


def variants(
    towers: Towers, centre: Tensor, meanings: Tensor, known: Memory, drawn: Drawn, about: dict[str, Any]
) -> dict[str, Score]:
    """The heads that `measure` compares, from the plainest to the one that is shipped."""
    first, second = about["sharpness"]["photos"], about["sharpness"]["drawings"]
    learned = drawn.memory(about["shrinkage"])
    vocabulary = torch.cat([known.keys, learned.keys])

    def asked(queries: Tensor) -> Tensor:
        return normalize(queries - centre, dim=-1)

    def expected(x: Tensor, queries: Tensor) -> Tensor:
        probs = (x @ towers.rows.T + towers.bias).softmax(-1)
        return normalize(probs @ (meanings - centre), dim=-1) @ asked(queries).T

    def parts(*chosen: tuple[Memory, float]) -> Score:
        made = [(m, s, directions(m, s, vocabulary)) for m, s in chosen]
        return lambda x, queries: compare(x, asked(queries), made)

    return {
        "expected text": expected,
        "photos": parts((known, first)),
        "drawings": parts((learned, second)),
        "both (shipped)": parts((known, first), (learned, second)),
        "both, drawings of the measured classes left out": without(known, drawn, about, asked),
    }


def without(known: Memory, drawn: Drawn, about: dict[str, Any], asked: Callable[[Tensor], Tensor]) -> Score:
    """The same head, made without the drawings whose names mean nearly what is asked for."""

    def score(x: Tensor, queries: Tensor) -> Tensor:
        close = (drawn.keys @ asked(queries).T).amax(1) > 0.5
        print(f"left out: {', '.join(n for n, c in zip(drawn.names, close, strict=True) if c)}")
        learned = drawn.memory(about["shrinkage"], ~close[drawn.labels])
        vocabulary = torch.cat([known.keys, learned.keys])
        pairs = ((known, about["sharpness"]["photos"]), (learned, about["sharpness"]["drawings"]))
        made = [(m, s, directions(m, s, vocabulary)) for m, s in pairs]
        return compare(x, asked(queries), made)

    return score
