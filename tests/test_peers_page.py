"""The side-by-side benchmark on a small stream, and the page that shows its results."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import reta
from reta.methods import ops

ROOT = Path(__file__).parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows():
    peers = script("peers")
    g = torch.Generator().manual_seed(0)
    task = reta.Task.from_features(torch.randn(5, 6, 16, generator=g), scale=20.0)
    labels = torch.randint(5, (30,), generator=g)
    views = ops.unit(task.text[labels] + 0.3 * torch.randn(30, 16, generator=g))[:, None]
    data = peers.Features("noise", "random", task, labels, lambda method: views)
    return list(peers.rows(data, orders=2))


def test_every_method_is_measured_in_every_order(rows):
    keys = {(r["method"], r["preset"]) for r in rows}
    assert {"zeroshot", "zero-ensemble", "tps", "tda", "dmn", "boostadapter", "dpe"} <= {m for m, _ in keys}
    assert len(rows) == 2 * len(keys)
    assert all(0 <= r["accuracy"] <= 100 and 0 <= r["ece"] <= 100 and r["ms"] > 0 for r in rows)
    assert max(r["accuracy"] for r in rows) > 50
    still = [r["accuracy"] for r in rows if r["method"] == "ensemble"]
    assert still[0] == still[1]


def test_only_the_search_on_labels_is_called_an_oracle(rows):
    for row in rows:
        assert row["oracle"] == (row["preset"] == "oracle weight") == ("weight" in row)
    best, fixed = (
        [r["accuracy"] for r in rows if r["method"] == "dmn" and r["oracle"] is marked]
        for marked in (True, False)
    )
    assert all(a >= b for a, b in zip(best, fixed, strict=True))


def test_the_table_says_which_row_is_an_oracle(rows):
    lines = script("peers_table").table(rows)
    assert lines[0].startswith("| method | random |") and len(lines) == 2 + len(rows) // 2
    assert [line for line in lines if "oracle" in line and "test labels" in line] == lines[-1:]


@pytest.mark.parametrize("name", ["real", "world"])
@pytest.mark.parametrize(
    ("page", "results", "maker"), [("index", "peers", "peers_table"), ("reta", "reta", "reta_results")]
)
def test_the_pages_show_the_committed_results(page, results, maker, name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    text = (ROOT / f"docs/methods/{page}.md").read_text(encoding="utf-8")
    lines = script(maker).lines_of(ROOT / f"results/{results}/{name}.json")
    assert script("peers_table").fill(text, name, lines) == text, (
        f"run benchmarks/{maker}.py: the results changed"
    )


def test_the_page_of_photographs_and_its_card_show_the_committed_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    made = script("photo_page")
    for path in (made.PAGE, made.CARD):
        assert made.filled(path) == path.read_text(encoding="utf-8"), "run benchmarks/photo_page.py"


@pytest.mark.parametrize("name", ["real", "world"])
def test_rows_of_reta_say_what_was_run(name, monkeypatch):
    """A row's label is for the page; method, preset and fields make it again."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    made = script("reta_results")
    rows = json.loads((ROOT / f"results/reta/{name}.json").read_text(encoding="utf-8"))["rows"]
    assert {row["label"] for row in rows} == set(made.ROWS)
    for row in rows:
        method, preset, changes = made.ROWS[row["label"]]
        views = made.SAME_VIEWS if method == "reta" else {}
        assert (row["method"], row["preset"], row["fields"]) == (method, preset, changes | views)
