"""Running plans: results that resume, that never mix, and that a kill cannot spoil."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from reta.bench import jobs, manifest
from reta.bench import plan as plans
from reta.bench import run as run_module
from reta.bench.collect import collect, stale
from reta.bench.prepare import prepare
from reta.bench.report import report
from reta.bench.run import cost, run, run_all
from reta.bench.stage import Options
from reta.commands.stopping import stoppable
from reta.data import shapes
from reta.errors import BadPlan, MissingData, RetaError
from tests.waiting import gone, wait_for

PLAN = """
title = "Small"
data = ["shapes", "shapes-r"]
models = ["reta-mini"]
orders = 2
views = 3
limit = 30
world = "shapes"
reference = "TDA"

[[rows]]
label = "CLIP"
method = "zeroshot"
text = "single"

[[rows]]
label = "TDA"
method = "tda"
text = "single"
fields = { views = 3, recipe = "crops" }
"""
PLUGIN = '''
from dataclasses import dataclass
from reta.methods.zeroshot import ZeroShot

@dataclass(frozen=True, kw_only=True)
class Mine(ZeroShot):
    """Zero-shot at half the scale."""
    factor = 0.5

    def step(self, task, state, sample):
        logits = self.factor * task.scale * sample.views[0] @ self.text(task).mT
        from reta.sample import Output
        return Output(logits.softmax(-1), {"logits": logits}), state
'''


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One feature store for all tests here."""
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def finished(features: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the small plan; copy it before changing it."""
    out = tmp_path_factory.mktemp("finished") / "results"
    summary = run(small(), out, Options(features))
    assert (summary.jobs, summary.done, summary.found, summary.failed) == (6, 6, 0, {})
    return out


def small(text: str = PLAN) -> plans.Plan:
    return plans.parse("small", text)


def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def stamps(out: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in (out / "jobs").glob("*.json")}


def test_a_result_holds_what_was_measured(finished: Path) -> None:
    [results] = collect([finished])
    record = results.records[results.ids("TDA", "reta-mini", "shapes-r", "iid")[0]]
    assert record["curves"]["accuracy"][-1] == pytest.approx(record["metrics"]["accuracy"], abs=1e-3)
    assert 0 <= record["metrics"]["ece"] <= 100 and record["metrics"]["cache_accuracy"] >= 0
    assert record["samples"] == {"all": 30, "known": 30, "unusable": 0}
    assert set(record["time"]) == {"decode", "views", "encode", "adapt"} and record["time"]["adapt"] > 0
    assert record["memory"]["state"] > 0 and record["memory"]["peak"] > 2**20
    assert record["job"]["method"]["name"] == "tda" and record["job"]["views"] == {
        "recipe": "crops",
        "used": 3,
    }
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(jobs.samples_of(finished, record["id"])).to_pydict()
    assert sorted(table["row"]) == list(range(30)) and set(table) >= {
        "label",
        "confidence",
        "entropy",
        "cached",
    }
    hits = sum(a == b for a, b in zip(table["label"], table["prediction"], strict=True))
    assert record["metrics"]["accuracy"] == pytest.approx(100 * hits / 30, abs=1e-4)


def test_orders_differ_and_episodic_methods_have_one(finished: Path) -> None:
    [results] = collect([finished])
    one, two = results.ids("TDA", "reta-mini", "shapes", "iid")
    assert results.records[one]["job"]["stream"]["seed"] == 1 and one != two
    assert len(results.ids("CLIP", "reta-mini", "shapes", "iid")) == 1


def test_finished_jobs_never_run_again(finished: Path, features: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path)
    before = stamps(out)
    summary = run(small(), out, Options(features))
    assert (summary.done, summary.found) == (0, 6) and stamps(out) == before
    victim = sorted((out / "jobs").glob("*.json"))[0]
    victim.unlink()
    assert run(small(), out, Options(features)).done == 1
    assert {k: v for k, v in stamps(out).items() if k != victim.name} == {
        k: v for k, v in before.items() if k != victim.name
    }


@pytest.mark.slow
def test_several_processes_write_the_same_results(finished: Path, features: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert run(small(), out, Options(features), workers=2).done == 6
    for path in (finished / "jobs").glob("*.json"):
        a, b = (json.loads(p.read_text()) for p in (path, out / "jobs" / path.name))
        assert all(a[k] == b[k] for k in a if k not in ("time", "memory"))


def test_what_determines_a_result_changes_its_id(features: Path) -> None:
    def ids(text: str) -> set[str]:
        return {job.id for job in prepare(small(text), Options(features)).cells.values()}

    base = ids(PLAN)
    changes = [
        ("views = 3\n", "views = 2\n"),
        ('text = "single"\nfields', 'text = "openai-7"\nfields'),
        ('recipe = "crops"', 'recipe = "crops", alpha = 3.0'),
        ("limit = 30", "limit = 29"),
        ("limit = 30", "limit = 30\nseed = 1"),
    ]
    for old, new in changes:
        assert ids(PLAN.replace(old, new)) != base, new
    assert ids(PLAN.replace('"Small"', '"Other title"').replace("orders = 2", "orders = 1")) < base


def test_where_a_learned_context_lies_does_not_change_a_result(tmp_path: Path, monkeypatch) -> None:
    def learned(method, model, root, given):
        path = root / "context.safetensors"
        path.write_bytes(b"learned")
        return dataclasses.replace(method, context=str(path))

    monkeypatch.setattr("reta.bench.stage.learned", learned)
    plan = plans.chosen(plans.embedded(plans.load("table1")), methods=["CoOp"], data=["shapes"], limit=4)
    plan = plans.chosen(plan, models=["reta-mini"])
    one, two = (
        {job.id: job for job in prepare(plan, Options(tmp_path / name)).cells.values()} for name in "ab"
    )
    assert one.keys() == two.keys() and str(tmp_path) not in str([job.identity for job in two.values()])


def test_the_longest_jobs_come_first(features: Path) -> None:
    plan = plans.chosen(plans.embedded(plans.load("reward")), data=["shapes-a"], limit=4, views=2)
    jobs_ = {cell.row: job for cell, job in prepare(plan, Options(features)).cells.items()}
    order = sorted(jobs_, key=lambda row: cost(jobs_[row]), reverse=True)
    assert order[:2] == ["RLCF, image tower", "RLCF"]


def test_a_plan_about_time_has_jobs_of_its_own_done_one_by_one(
    finished: Path, features: Path, tmp_path: Path, monkeypatch
) -> None:
    out, seen = copied(finished, tmp_path), list[tuple[int, int]]()
    timed = small(PLAN.replace("orders = 2", 'orders = 1\nlayout = "time"'))
    timed = dataclasses.replace(timed, name="timed")
    more = plans.chosen(small(), data=["shapes-v2"])
    real = run_module._execute

    def spied(todo, out, workers, ray):
        seen.append((len(todo), workers))
        return real(todo, out, 1, ray)

    monkeypatch.setattr(run_module, "_execute", spied)
    assert [one.done for one in run_all([timed, more], out, Options(features), workers=3)] == [4, 3]
    assert seen == [(3, 3), (4, 1)]


def test_an_edit_of_a_method_makes_new_results_and_never_mixes(
    finished: Path, features: Path, tmp_path: Path, monkeypatch
) -> None:
    out, plugin = copied(finished, tmp_path), tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    plan = plans.chosen(small(), extra=[f"{plugin}:Mine"])
    assert run(plan, out, Options(features)).done == 2
    ids = collect([out])[0].ids("Mine", "reta-mini", "shapes", "iid")
    plugin.write_text(PLUGIN.replace("half the scale", "a part of the scale") + "\n# only words\n")
    assert run(plan, out, Options(features)).done == 0
    plugin.write_text(PLUGIN.replace("factor = 0.5", "factor = 0.25"))
    assert run(plan, out, Options(features)).done == 2
    [results] = collect([out])
    new = results.ids("Mine", "reta-mini", "shapes", "iid")
    assert new != ids and jobs.read(out, ids[0]) is not None
    plugin.write_text(PLUGIN.replace("factor = 0.5", "factor = 0.125"))
    run(plans.chosen(plan, data=["shapes"]), out, Options(features))
    [results] = collect([out])
    assert list(results.versions()) == ["Mine"]
    report([out], tmp_path / "report")
    assert "Mine: made with 2 versions" in (tmp_path / "report" / "report.md").read_text()
    assert not stale([finished])
    monkeypatch.setattr("reta.bench.version.version", lambda cls: "other")
    assert any("tda were made with another version" in text for text in stale([finished]))


def test_other_images_or_weights_under_one_name_are_said(finished: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path)
    assert not collect([out])[0].mixed()
    path = min((out / "jobs").glob("*.json"))
    record = json.loads(path.read_text())
    record["job"]["data"][0]["source"] = record["job"]["text"]["model"]["fingerprint"] = "other"
    path.write_text(json.dumps(record))
    assert set(collect([out])[0].mixed()) == {record["job"]["data"][0]["name"], "reta-mini"}
    report([out], tmp_path / "report")
    assert "reta-mini: results with more than one version" in (tmp_path / "report" / "report.md").read_text()


def test_other_settings_do_not_mix(finished: Path, features: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path)
    other = small(PLAN.replace("limit = 30", "limit = 20"))
    with pytest.raises(BadPlan, match="limit 30 there, 20 here.*--fresh"):
        run(other, out, Options(features))
    assert run(other, out, Options(features), fresh=True).done == 6
    assert collect([out])[0].manifest.settings["limit"] == 20
    both = collect([out, finished])
    assert [r.manifest.settings["limit"] for r in both] == [20, 30]


def test_a_plan_can_be_run_in_parts(finished: Path, features: Path, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    run(plans.chosen(small(), data=["shapes-r"]), out, Options(features))
    run(plans.chosen(small(), data=["shapes"], methods=["CLIP"]), out, Options(features))
    run(plans.chosen(small(), data=["shapes"], methods=["TDA"]), out, Options(features))
    [parts], [whole] = collect([out]), collect([finished])
    assert set(parts.records) == set(whole.records) and not parts.missing


def test_a_damaged_result_is_refused(finished: Path, features: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path)
    path = sorted((out / "jobs").glob("*.json"))[0]
    path.write_text(path.read_text()[:50])
    for broken in (lambda: run(small(), out, Options(features)), lambda: collect([out])):
        with pytest.raises(RetaError, match=r"cannot be read.*remove it and run the plan again"):
            broken()
    path.write_text(sorted((out / "jobs").glob("*.json"))[1].read_text())
    with pytest.raises(RetaError, match="is not the result its name says"):
        collect([out])


def test_a_job_that_fails_does_not_stop_the_others(features: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "logits.py"
    plugin.write_text(PLUGIN.replace("logits.softmax(-1)", "logits"))
    plan = plans.chosen(small(), extra=[f"{plugin}:Mine"])
    summary = run(plan, tmp_path / "out", Options(features))
    assert summary.done == 6 and len(summary.failed) == 2
    assert all("did the method answer with logits?" in error for error in summary.failed.values())
    assert collect([tmp_path / "out"])[0].missing == 2


def test_stopped_by_hand_it_says_what_is_kept(features: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    real, begun = run_module._guarded, []

    def stopped(job: run_module.Job, out: Path) -> str:
        begun.append(job)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return real(job, out)

    monkeypatch.setattr(run_module, "_guarded", stopped)
    with pytest.raises(KeyboardInterrupt), stoppable():
        run(small(), tmp_path / "out", Options(features))
    assert (
        "stopped; 2 of 6 jobs are done and kept; the same command does the others" in capsys.readouterr().err
    )
    monkeypatch.undo()
    assert run(small(), tmp_path / "out", Options(features)).done == 4


def test_a_folder_of_your_own_appears_in_any_plan(features: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for i in range(12):
        image, label = shapes.open("shapes", n=12)[i]
        folder = photos / shapes.classes()[label].replace(" ", "_")
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{i}.png")
    (photos / "key").mkdir(exist_ok=True)
    (photos / "key" / "broken.png").write_bytes(b"not a picture")
    plan = plans.chosen(
        plans.embedded(plans.load("table1")), data=[str(photos)], methods=["TDA", "DPE"], views=3
    )
    summary = run(plan, tmp_path / "out", Options(features))
    assert summary.done > 0 and not summary.failed
    assert any("could not be read and count as wrong" in note for note in summary.notes)
    [results] = collect([tmp_path / "out"])
    record = next(iter(results.records.values()))
    assert record["samples"]["unusable"] == 1 and record["samples"]["all"] == 13
    flat = tmp_path / "flat"
    flat.mkdir()
    Image.new("RGB", (9, 9)).save(flat / "a.png")
    with pytest.raises(BadPlan, match="has no labels"):
        run(plans.chosen(plan, data=[str(flat)]), tmp_path / "out2", Options(features))


def test_missing_data_is_said_before_anything_runs(features: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"pets|oxford"):
        run(plans.chosen(small(), data=["pets"]), tmp_path / "out", Options(features, tmp_path))
    assert not (tmp_path / "out" / "jobs").exists()


def test_left_overs_of_a_kill_are_swept_up(finished: Path, features: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path)
    left = out / "jobs" / ".abc.json.xyz.tmp"
    left.write_text("{")
    run(small(), out, Options(features))
    assert not left.exists()


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
from pathlib import Path
from reta.bench import plan as plans
from reta.bench.run import cost, run, run_all
from reta.bench.stage import Options
print("ready", flush=True)
run(plans.load(Path(sys.argv[1])), sys.argv[2], Options(Path(sys.argv[3])))
print("done", flush=True)
"""


@pytest.mark.slow
def test_twenty_kills_leave_the_same_table(tmp_path: Path) -> None:
    """SIGKILL at random moments, while encoding and while running; what was finished stays untouched."""
    text = re.sub(r"limit = 30", "limit = 200", PLAN).replace("orders = 2", "orders = 8")
    path = tmp_path / "small.toml"
    path.write_text(text)
    run(plans.load(path), tmp_path / "calm", Options(tmp_path / "calm-features"))
    report([tmp_path / "calm"], tmp_path / "calm-report", links="none")
    args = [sys.executable, "-c", SCRIPT, str(path), str(tmp_path / "out"), str(tmp_path / "features")]
    rng, kills, seen = random.Random(0), 0, dict[str, int]()
    longest = 1.0
    while True:
        process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        begun = time.monotonic()
        while kills < 20 and process.poll() is None and time.monotonic() - begun < rng.uniform(0, longest):
            time.sleep(0.005)
        if kills < 20 and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        process.stdout.close()
        now = stamps(tmp_path / "out")
        assert all(now.get(name) == stamp for name, stamp in seen.items())
        seen = now
        if process.returncode == 0 and kills >= 20:
            break
        if process.returncode == 0:
            for victim in rng.sample(sorted((tmp_path / "out" / "jobs").glob("*.json")), 4):
                victim.unlink()
                seen.pop(victim.name)
        longest = min(longest * 1.25, 20.0)
    report([tmp_path / "out"], tmp_path / "report", links="none")
    for name in ("report.md", "report.html", "tables/small.csv", "tables/small.tex"):
        assert (tmp_path / "report" / name).read_bytes() == (tmp_path / "calm-report" / name).read_bytes()


@pytest.mark.slow
def test_several_processes_stop_at_once_by_hand(tmp_path: Path) -> None:
    """Ctrl-C, which a terminal tells the workers too: jobs are kept, nobody stays, nobody complains."""
    words = "bench run table3 --world shapes --limit 100 --views 8 --jobs 2 --out out --features features"
    args = [sys.executable, "-m", "reta", *words.split()]
    for sign, least in (("features/**/*.lock", 1), ("out/jobs/*.json", 3)):
        with subprocess.Popen(
            args,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        ) as process:
            wait_for(lambda: process.poll() is not None or len(list(tmp_path.glob(sign))) >= least)
            os.killpg(process.pid, signal.SIGINT)
            told = process.communicate(timeout=60)[1]
        assert process.returncode and "the same command" in told and "Traceback" not in told
        assert wait_for(lambda: gone(process.pid), longest=20)


def test_the_table_of_contents_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "plans" / "small.json"
    path.parent.mkdir()
    path.write_text("{}")
    with pytest.raises(RetaError, match="is not a plan's table of contents"):
        manifest.read(path)
    with pytest.raises(MissingData, match="no results in"):
        collect([tmp_path / "nothing"])
