"""The stores of the five embedded sets, checked and used: each alone, and joined in streams that change domain.

    python benchmarks/features.py          -> results/bench/features.json

Stores that are there already are opened, the others are built (16 AugMix views by reta-mini).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import reta
import reta.data
from reta.bench import Joined, Store, build
from reta.bench.index import describe, verify
from reta.bench.streams import STREAMS, create
from reta.data import shapes
from reta.state import atomic

VIEWS = 16


def one(store: Store, task: reta.Task) -> dict[str, Any]:
    """What a store holds, whether every byte is right, and plain zero-shot accuracy from it."""
    shown = describe(store.path)
    start = time.perf_counter()
    problems = verify(store.path)
    spent = time.perf_counter() - start
    out = reta.run(reta.methods.create("ensemble"), task, store, store.labels, device="cpu")
    kept = {key: shown[key] for key in ("data", "version", "images", "views", "bytes")}
    found = {"bad": len(store.bad), "problems": problems, "verify_seconds": round(spent, 2)}
    return kept | found | {"ensemble": round(out.accuracy, 2)}


def streams(table: Joined, task: reta.Task) -> list[dict[str, Any]]:
    """One online method over all sets, in every kind of stream."""
    rows = []
    for kind in STREAMS:
        stream = create(kind, seed=1)
        order = stream.order(table.labels, table.domains).index
        method = reta.methods.create("tda", preset="fixed", views=VIEWS)
        out = reta.run(method, task, table, table.labels, order=order, device="cpu")
        rows.append(stream.parameters() | {"samples": len(order), "accuracy": round(out.accuracy, 2)})
        print(rows[-1])
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/bench/features.json"))
    options = parser.parse_args()
    model = reta.load("reta-mini", device="cpu")
    stores = [build(reta.data.open(s), model, "augmix", VIEWS, progress=True) for s in shapes.SETS]
    task = reta.Task.build(model, shapes.classes(), "single", shapes.descriptions())
    found = {
        "model": {"name": model.name, "fingerprint": model.fingerprint},
        "views": {"recipe": "augmix", "n": VIEWS, "seed": 0},
        "sets": [one(store, task) for store in stores],
        "streams": {"method": "tda", "preset": "fixed", "runs": streams(Joined(stores), task)},
        "torch": torch.__version__,
    }
    with atomic(options.out) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n")
