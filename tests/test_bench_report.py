"""Reports: the numbers are those of the jobs, every link leads somewhere, the same results give the same bytes."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from reta.bench import jobs, manifest, metrics, published
from reta.bench import plan as plans
from reta.bench.collect import collect
from reta.bench.query import query
from reta.bench.report import report
from reta.bench.sheet import Entry, sheets
from reta.errors import BadInput, MissingData

N = 400


def record(id: str, right: list[bool], method: str = "reta", **more) -> dict:
    """A result as `measure` writes it, made up."""
    import torch

    share = 100 * sum(right) / len(right)
    flags = torch.tensor(right)
    return {
        "format": 1,
        "id": id,
        "job": {
            "method": {"name": method, "preset": "released/dtd", "code": "c1"},
            "text": {"model": {"name": "m", "fingerprint": "f1"}},
            "data": [],
        },
        "metrics": {"accuracy": share, "ece": 100 - share, "cache_accuracy": share / 2},
        "samples": {"all": len(right), "known": len(right), "unusable": 0},
        "reliability": [[len(right) // 20, (b + 0.5) / 20, share / 100] for b in range(20)],
        "curves": {"accuracy": [share] * 60, "cache": [share / 2] * 60},
        "answers": {"predictions": metrics.pack(flags.long()), "right": metrics.pack(flags)},
        "time": {"decode": 1.0, "views": 5.0, "encode": 10.0, "adapt": 4.0},
        "memory": {"peak": 2**28, "state": 2**20},
        "environment": {"reta": "0", "torch": "2", "python": "3", "device": "cpu"},
    } | more


def write(out: Path, plan: plans.Plan, made: dict[tuple[str, str, str, int], list[bool]], **more) -> None:
    """Results of a plan: (row, model, data, order) -> right or wrong for each image."""
    cells = {}
    for k, ((row, model, data, order), right) in enumerate(made.items()):
        id = f"{plan.name.replace('-', '')[:8]:0<8}{k:08x}"
        jobs.write_files(out, id, jobs.text(record(id, right, **more)).encode(), jobs.parquet({"row": [0]}))
        cells[manifest.Cell(row, model, data, "iid", order)] = id
    manifest.add(out, manifest.of(plan, cells, ["TPT: no method 'tpt' is installed"], []))


VIT = "ViT-B-16/openai"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table 1 on two sets with three orders, an ablation, a curve, a stream, bars and times."""
    out = tmp_path_factory.mktemp("made-up")
    plan = plans.chosen(plans.load("table1"), data=["dtd", "ucf101"], models=[VIT], methods=["DPE", "ReTA"])
    made = {
        (row, VIT, data, order): [i % 10 < good + order % 2 for i in range(N)]
        for row, good in (("DPE", 4), ("ReTA", 6))
        for data in ("dtd", "ucf101")
        for order in (1, 2, 3)
    }
    write(out, plan, made)
    for name, data in (("members", ["dtd"]), ("figure1", ["imagenet-r"]), ("reliability", ["dtd"])):
        plan = plans.chosen(plans.load(name), data=data)
        write(out, plan, {(r.label, VIT, data[0], 1): [i % 7 < 4 for i in range(N)] for r in plan.rows})
    plan = plans.chosen(plans.load("table7"), data=["imagenet-a"], methods=["CLIP", "TDA"])
    write(
        out,
        plan,
        {("CLIP", VIT, "imagenet-a", 1): [True, False] * 50, ("TDA", VIT, "imagenet-a", 1): [True] * 100},
    )
    plan = plans.chosen(plans.load("logits"), data=["dtd"])
    parts = [[True] * N, [i > 20 for i in range(N)], [i > 100 for i in range(N)]]
    write(out, plan, {(r.label, VIT, "dtd", 1): p for r, p in zip(plan.rows, parts, strict=True)})
    plan = plans.chosen(plans.load("calibration"), data=["dtd"], methods=["ReTA"])
    write(out, plan, {("ReTA", VIT, "dtd", 1): [i % 4 > 0 for i in range(N)]})
    return out


def entry(folder: Path, plan: str, row: str, column: str) -> Entry:
    [results] = [r for r in collect([folder]) if r.manifest.name == plan]
    [sheet] = sheets(results)
    return dict(zip((c.title for c in sheet.columns), sheet.entries[row], strict=True))[column]


def test_means_spreads_and_differences(folder: Path) -> None:
    found = entry(folder, "table1", "ReTA", "dtd")
    assert found.value == pytest.approx(fmean([70, 60, 70])) and found.spread == pytest.approx(
        pstdev([70, 60, 70])
    )
    assert found.printed == 57.39 and found.difference == pytest.approx(66.67 - 57.39) and len(found.ids) == 3
    assert found.best and not entry(folder, "table1", "DPE", "dtd").best
    mean = entry(folder, "table1", "ReTA", "Average")
    assert mean.value == pytest.approx(200 / 3) and len(mean.ids) == 6 and mean.printed == 71.37


def test_paired_tests_are_against_the_reference_row(folder: Path) -> None:
    worse = entry(folder, "table1", "DPE", "Average").against
    assert worse is not None and worse.significant and worse.difference == pytest.approx(-20)
    assert worse.low < -15 < worse.high + 5 and worse.images == 2 * N
    assert entry(folder, "table1", "ReTA", "Average").against is None


def test_moved_counts_predictions_that_differ_from_the_reference(folder: Path) -> None:
    found = entry(
        folder,
        "logits",
        "without Gaussian logits",
        "Average, moved",
    )
    assert found.value == pytest.approx(100 * 101 / N) and found.printed == 6.18
    assert entry(folder, "logits", "ReTA", "Average").value == 100


def test_an_unfinished_cell_is_empty_and_the_table_says_so(folder: Path, tmp_path: Path) -> None:
    plan = plans.chosen(plans.load("table5"), data=["dtd"])
    write(tmp_path, plan, {(r.label, VIT, "dtd", o): [True] * 10 for r in plan.rows for o in (1, 2)})
    next(iter((tmp_path / "jobs").glob("*.json"))).unlink()
    [results] = collect([tmp_path])
    [sheet] = sheets(results)
    assert sum(e[0].value is None for e in sheet.entries.values()) == 1
    assert "Unfinished: 1 of 6 jobs have no result yet." in sheet.notes


def test_columns_follow_the_plan_and_have_something_to_say(tmp_path: Path) -> None:
    plan = plans.chosen(plans.embedded(plans.load("hostile")), data=["shapes-a"], methods=["Ensemble", "TDA"])
    cells = {}
    for k, (row, stream) in enumerate((row.label, stream) for row in plan.rows for stream in plan.streams):
        id, made = f"h{k:015x}", record(f"h{k:015x}", [True, False])
        made["metrics"] |= {"auroc": 50.0} if stream == "unknown" else {}
        jobs.write_files(tmp_path, id, jobs.text(made).encode(), jobs.parquet({"row": [0]}))
        cells[manifest.Cell(row, "reta-mini", "shapes-a", stream, 1)] = id
    manifest.add(tmp_path, manifest.of(plan, cells, [], []))
    [sheet] = sheets(collect([tmp_path])[0])
    titles = ["shuffled", "sorted", "one class", "unknown", "unknown, AUROC", "poison"]
    assert [column.title for column in sheet.columns] == titles
    assert not any(entry.best for entries in sheet.entries.values() for entry in entries)


def test_two_averages_over_the_same_sets_are_one(tmp_path: Path) -> None:
    plan = plans.chosen(plans.embedded(plans.load("table5")), data=["shapes-a"])
    assert list(plan.groups) == ["Average", "Shifted"]
    write(tmp_path, plan, {(r.label, "reta-mini", "shapes-a", 1): [True] * 10 for r in plan.rows})
    [sheet] = sheets(collect([tmp_path])[0])
    assert [column.title for column in sheet.columns] == ["Average"]
    assert sheet.entries["uniform"][0].printed == 69.41 and sheet.title.endswith("on the embedded world")


class Links(HTMLParser):
    """Every href and the text of every cell."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.links += [value for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    report([folder], out)
    return out


def test_the_page_is_well_formed_and_needs_nothing_else(written: Path) -> None:
    text = (written / "report.html").read_text()
    page = Links()
    page.feed(text)
    assert not page.open
    targets = [link for link in page.links if not link.startswith("#")]
    assert targets and all((written / link).resolve().is_file() for link in targets)
    assert all(f'id="{link[1:]}"' in text for link in page.links if link.startswith("#"))
    assert not re.search(r'(src|href)="(https?:)?//', text) and text.count("data:image/svg+xml") == 4
    jobs_linked = {Path(link).stem for link in targets if link.endswith(".json")}
    assert len(jobs_linked) > 20


def test_an_average_leads_to_all_its_jobs(written: Path) -> None:
    text = (written / "report.html").read_text()
    assert text.count("<summary>6 jobs</summary>") == 2 and text.count("#6</a>") == 2


def test_markdown_links_numbers_to_their_jobs(written: Path) -> None:
    text = (written / "report.md").read_text()
    targets = re.findall(r"\]\(([^)]+\.json)\)", text)
    assert targets and all(json.loads((written / t).read_text())["metrics"] for t in targets)
    assert "**[66.67]" in text and "(57.39, +9.28)" in text and "- Left out: TPT: no method 'tpt'" in text
    assert "CuPL file of 5050 sentences" in text and "what the paper printed (Table 1)" in text
    assert "\n\n1. " in text, "Markdown takes a list for one only after an empty line"


def test_latex_and_csv(written: Path) -> None:
    tex = (written / "tables" / "table1.tex").read_text()
    assert r"\textbf{66.67}" in tex and r"$^\dagger$" in tex and tex.count(r"\begin{tabular}") == 1
    assert tex.count("{") == tex.count("}") and "TPT: no method" in tex
    with (written / "tables" / "table1.csv").open() as file:
        rows = list(csv.DictReader(file))
    [mine] = [r for r in rows if r["row"] == "DPE" and r["column"] == "dtd"]
    assert float(mine["value"]) == pytest.approx(46.6667) and mine["significant"] == "true"
    assert len(mine["jobs"].split()) == 3 and float(mine["minus_reference"]) == pytest.approx(-20)


def test_times(written: Path) -> None:
    with (written / "tables" / "table7.csv").open() as file:
        rows = {(r["row"], r["column"]): r for r in csv.DictReader(file)}
    assert float(rows["TDA", "imagenet-a"]["value"]) == pytest.approx(20 * 100 / 60_000, abs=1e-4)
    assert float(rows["TDA", "imagenet-a"]["printed"]) == 10 and float(rows["TDA", "Gain"]["value"]) == 50
    assert float(rows["CLIP", "images/s"]["value"]) == 50 and float(rows["CLIP", "state"]["value"]) == 1


def test_figures_are_there(written: Path) -> None:
    names = {p.name for p in (written / "figures").iterdir()}
    assert names == {
        f"{stem}.{kind}"
        for stem in ("members", "figure1", "reliability", "calibration-reliability")
        for kind in ("png", "svg")
    }
    assert all((written / "figures" / n).stat().st_size > 5000 for n in names)


def test_the_same_results_give_the_same_bytes(folder: Path, written: Path, tmp_path_factory) -> None:
    again = tmp_path_factory.mktemp("again")
    report([folder], again)
    files = sorted(p.relative_to(again) for p in again.rglob("*") if p.is_file())
    assert len(files) > 20
    assert all((again / path).read_bytes() == (written / path).read_bytes() for path in files)


def test_one_plan_of_several(folder: Path, tmp_path: Path) -> None:
    files = report([folder], tmp_path, plans=["table7"], title="Times", intro="Here.")
    assert {f.name for f in files} == {"table7.csv", "table7.tex", "report.md", "report.html"}
    assert (tmp_path / "report.md").read_text().startswith("# Times\n\nHere.\n")
    report([folder], tmp_path, plans=["table7"], links="none")
    assert "](" not in (tmp_path / "report.md").read_text()


def test_questions_in_sql(folder: Path) -> None:
    names, rows = query(
        "select row, round(avg(accuracy), 2) as accuracy from results where plan = 'table1' group by row order by row",
        [folder],
    )
    assert names == ["row", "accuracy"] and rows == [("DPE", 46.67), ("ReTA", 66.67)]
    assert query("select count(distinct job) from samples", [folder])[1][0][0] > 20
    with pytest.raises(BadInput, match="cannot be answered"):
        query("select nothing from nowhere", [folder])
    with pytest.raises(MissingData, match="no results in"):
        query("select 1", [folder / "none"])


def test_notes_of_the_published_numbers() -> None:
    assert "0.18" in " ".join(published.notes("gamma", VIT, "gamma = 1", "Average"))
    assert published.value("table7", VIT, "TPT", "imagenet") == 600
    assert published.value("table1", VIT, "Nobody", "dtd") is None
