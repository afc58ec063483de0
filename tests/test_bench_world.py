"""Every plan, offline, on the embedded world, at a size that takes seconds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from reta import methods
from reta.bench import contexts
from reta.bench import plan as plans
from reta.bench.collect import collect
from reta.bench.report import report
from reta.bench.run import run
from reta.bench.stage import Options

TINY = {"limit": 40, "views": 2, "orders": 1}
ROWS = 2


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features and results shared by all plans here: what one plan ran, another finds."""
    return tmp_path_factory.mktemp("world")


def tiny(name: str, rows: int | None) -> plans.Plan:
    """A plan on one or two sets of the world, with `reta-mini` as the reward model too; `rows` keeps the last
    ones that work on features alone.
    """
    plan = plans.embedded(plans.load(name))
    data = [d for d in ("shapes-r", "shapes-a") if d in plan.data][: 2 if name == "realistic" else 1]
    plan = plans.chosen(plan, data=data, models=["reta-mini"], **TINY)
    plan = dataclasses.replace(plan, reward="reta-mini" if plan.reward else "")
    if rows is None:
        return plan
    known = methods.known()
    light = [r for r in plan.rows if r.method in known and not methods.find(r.method).needs]
    few = (
        light[:rows] if name == "views" else light[-rows:]
    )  # its last rows want more views than there are here
    return dataclasses.replace(plan, rows=tuple(few), reference="")


@pytest.mark.parametrize("name", plans.names())
def test_plan_runs_on_the_embedded_world(name: str, place: Path) -> None:
    summary = run(tiny(name, ROWS), place / "results", Options(place / "features"))
    assert not summary.failed and summary.done + summary.found == summary.jobs > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", plans.names())
def test_every_row_runs_on_the_embedded_world(name: str, place: Path, monkeypatch) -> None:
    monkeypatch.setattr(contexts, "SHOTS", 1)
    monkeypatch.setattr(contexts, "VIEWS", 1)
    monkeypatch.setattr(contexts, "EPOCHS", 1)
    plan = tiny(name, None)
    summary = run(plan, place / "all", Options(place / "features"))
    assert not summary.failed and summary.done + summary.found == summary.jobs > 0
    missing = {row.label for row in plan.rows if row.method not in methods.known()}
    assert {s.partition(":")[0] for s in summary.skipped if "no method" in s} == missing


def test_the_report_of_all_plans(place: Path) -> None:
    names = [name for name in plans.names() if (place / "results" / "plans" / f"{name}.json").is_file()]
    if len(names) < len(plans.names()):
        pytest.skip("needs the runs above: run the whole file")
    report([place / "results"], place / "report")
    assert not any(results.missing for results in collect([place / "results"]))
    figures = {path.stem for path in (place / "report" / "figures").iterdir()}
    assert figures >= {"figure1", "reliability", "rank", "members", "lambdas", "cache-size", "eta"}
    assert {"calibration-reliability", "cached-images-shapes-a"} <= figures
    assert {path.stem for path in (place / "report" / "tables").iterdir()} == set(names)
