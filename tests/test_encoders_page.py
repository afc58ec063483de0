"""The pages about methods through the encoders show the committed results, and these what is promised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reta import methods
from tests.test_peers_page import script

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _beside_the_benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def shows(page, name, lines):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert script("peers_table").fill(text, name, lines) == text, f"{page}: {name} shows other results"


def test_the_page_shows_the_committed_accuracies():
    lines = script("encoders").table(ROOT / "results/encoders/world.json")
    shows("docs/methods/encoders.md", "world", lines)


def test_the_pages_show_the_committed_times():
    for (page, name), lines in script("prompts").tables(ROOT / "results/speed/prompts.json").items():
        shows(page, name, lines)


def test_the_page_about_gpus_shows_the_committed_times():
    for name, lines in script("gpu").tables(ROOT / "results/gpu/speed.json").items():
        shows("docs/gpu.md", name, lines)


def test_every_method_that_asks_for_more_than_features_was_run():
    rows = json.loads((ROOT / "results/encoders/world.json").read_text(encoding="utf-8"))["rows"]
    asking = {name for name in methods.names() if methods.find(name).needs}
    assert asking | {"zeroshot", "ensemble", "tda", "dpe", "reta"} <= {row["method"] for row in rows}


def test_tpt_is_five_times_faster_and_a_thousand_classes_fit_in_four_gibibytes():
    rows = json.loads((ROOT / "results/speed/prompts.json").read_text(encoding="utf-8"))["rows"]
    times = {r["classes"]: r["ratio"] for r in rows if (r["what"], r["how"]) == ("TPT, an image", "reta.run")}
    assert set(times) == {40, 1000} and min(times.values()) >= 5
    assert [r["GiB"] < 4 for r in rows if r["what"] == "process, peak" and r["classes"] == 1000] == [True]
