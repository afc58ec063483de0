"""The committed report of the embedded world is what its committed results say."""

from __future__ import annotations

import csv
from pathlib import Path

from reta.bench import plan as plans
from reta.bench import report as reports
from reta.bench.report import report

ROOT = Path(__file__).parents[1]
RESULTS, PAGES = ROOT / "results" / "world", ROOT / "docs" / "results" / "world"


def test_the_report_of_the_world_shows_the_committed_results(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(reports, "figures", lambda results: {})  # they take long, and hold no other numbers
    report([RESULTS], tmp_path, links="none")
    made = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    kept = {path.name: path.read_bytes() for path in (PAGES / "tables").iterdir()}
    assert made == kept, "run: reta bench report results/world --out docs/results/world"


def test_every_plan_is_there_and_every_number_has_its_jobs() -> None:
    assert {path.stem for path in (RESULTS / "plans").iterdir()} == set(plans.names())
    for name in plans.names():
        rows = list(csv.DictReader((PAGES / "tables" / f"{name}.csv").read_text("utf-8").splitlines()))
        numbers = [row for row in rows if row["value"]]
        assert numbers
        for row in numbers:
            assert row["jobs"]
            assert all((RESULTS / "jobs" / f"{id}.json").is_file() for id in row["jobs"].split())
