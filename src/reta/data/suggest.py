"""Sentences to start from, out of a small grammar per domain."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from reta.errors import BadInput, nearest

FEWEST = 4


@cache
def grammar() -> dict[str, dict[str, Any]]:
    """The domains `suggest` knows: shots, links and ends that are combined into sentences."""
    return tomllib.loads(files("reta.data").joinpath("grammar.toml").read_text(encoding="utf-8"))


def suggest(names: Sequence[str], domain: str = "photo", n: int = 12) -> dict[str, list[str]]:
    """Sentences to start from, for people who have no CuPL file: `n` per class (at least 4) from the grammar
    of a domain. Edit them: what tells your classes apart is worth more than any frame around the name.

    >>> table = suggest(["river", "annual crop"], "satellite", n=4)
    >>> table["river"][0], len(table["annual crop"])
    ('a satellite photo of river.', 4)
    """
    if n < FEWEST:
        raise BadInput(
            f"n must be at least {FEWEST}: the methods split a class's sentences into three groups"
        )
    if domain not in grammar():
        raise BadInput(f"unknown domain {domain!r}: {nearest(domain, grammar())}")
    frames = _frames(domain)
    if n > len(frames):
        raise BadInput(f"the grammar of {domain!r} makes {len(frames)} sentences; ask for no more")
    clean = list(dict.fromkeys(name.strip().replace("_", " ") for name in names))
    if not clean or not all(clean):
        raise BadInput("no class names: give at least one, and none that is empty")
    return {name: [_fill(frame, name) for frame in frames[:n]] for name in clean}


def _frames(domain: str) -> list[str]:
    """All combinations, in an order that changes every part early."""
    parts = grammar()[domain]
    table = [list(parts["shots"]), list(parts["links"]), list(parts["ends"])]
    combined = list(itertools.product(*(range(len(t)) for t in table)))
    # Diagonal order: the first few sentences already differ in every part.
    combined.sort(key=lambda c: ((c[1] - c[0]) % len(table[1]) + (c[2] - c[0]) % len(table[2]), c))
    return [f"{table[0][a]} {table[1][b]}{table[2][c]}." for a, b, c in combined]


def _fill(frame: str, name: str) -> str:
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return frame.replace("{a}", f"{article} {name}").replace("{}", name)
