"""Encoding before the first job: by several processes, once for all plans."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from reta.bench import ahead
from reta.bench import plan as plans
from reta.bench.prepare import prepare, wants
from reta.bench.stage import Options, Want
from reta.bench.store import stores
from tests.stores import tree
from tests.waiting import wait_for

ALONE = """
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
import torch
torch.set_num_threads(1)
from reta.bench import ahead, plan
from reta.bench.prepare import wants
from reta.bench.stage import Options
ahead.FEW = 0
if __name__ == "__main__":
    options = Options(Path(sys.argv[2]))
    made = plan.chosen(plan.embedded(plan.load("table2")), data=["shapes"], methods=["ReTA"], limit=600)
    print("ready", flush=True)
    ahead.encode([(made, wants(made, options))], options, int(sys.argv[1]))
"""


def small(name: str = "table2", **more: Any) -> plans.Plan:
    return plans.chosen(
        plans.embedded(plans.load(name)), limit=12, methods=["CLIP", "TDA", "DMN-ZS", "ReTA"], **more
    )


def test_a_plan_says_what_it_wants() -> None:
    found = wants(small(data=["shapes"], models=["reta-mini"]), Options())
    assert found == {
        Want("shapes", "reta-mini", "plain", -1.0): 1,
        Want("shapes", "reta-mini", "augmix", -1.0): 64,
        Want("shapes", "reta-mini", "augmix", 0.5): 32,
    }
    reward = wants(plans.embedded(plans.load("reward")), Options())
    assert reward[Want("shapes-a", "reta-mini-l", "augmix", -1.0)] == 64
    assert not any(want.model == "reward" for want in reward)


def test_plans_share_the_store_with_the_most_views(tmp_path: Path) -> None:
    options = Options(tmp_path)
    both = [small(data=["shapes"], models=["reta-mini"], views=n) for n in (2, 3)]
    ahead.encode([(plan, wants(plan, options)) for plan in both], options)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert sum("augmix3" in path.name for path in stores(tmp_path)) == 2
    assert not any("augmix2" in path.name for path in stores(tmp_path))
    prepare(both[0], options)
    assert {path: path.stat().st_mtime_ns for path in made} == made and len(stores(tmp_path)) == 3


@pytest.mark.slow
def test_several_processes_build_the_same_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setattr(ahead, "FEW", 0)
    plan = small(data=["shapes", "shapes-r"], models=["reta-mini"], views=3)
    threads = torch.get_num_threads()
    for name, workers in (("one", 1), ("three", 3)):
        options = Options(tmp_path / name)
        ahead.encode([(plan, wants(plan, options))], options, workers)
    one, three = ([tree(path) for path in stores(tmp_path / name)] for name in ("one", "three"))
    assert len(one) == 6 and one == three
    assert torch.get_num_threads() == threads and not multiprocessing.active_children()


@pytest.mark.slow
def test_no_process_outlives_the_one_that_began_it(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    args = [sys.executable, str(script), "2", str(tmp_path / "features")]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        locks = wait_for(lambda: [p for p in tmp_path.rglob("*.lock") if _other(p, process.pid)])
        process.send_signal(signal.SIGKILL)
    others = {pid for lock in locks if (pid := _other(lock, process.pid))}
    assert others
    assert wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in others))


def _other(lock: Path, parent: int) -> int:
    import json

    try:
        pid = int(json.loads(lock.read_text())["pid"])
    except (OSError, ValueError):
        return 0
    return pid if pid not in (parent, os.getpid()) else 0
