"""The same plan on a real Ray cluster of two nodes, one of which loses its workers in mid-run."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from reta.bench import plan as plans
from reta.bench.report import report
from reta.bench.run import run
from reta.bench.stage import Options
from tests.test_bench_run import PLAN

pytest.importorskip("ray")


def workers() -> list[int]:
    """Processes of Ray that are at work on one of our tasks."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if entry.name.isdigit() and title.startswith("ray::remote"):
            found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_nodes_and_a_killed_worker_give_the_same_table(tmp_path: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    plan = plans.parse("small", PLAN.replace("limit = 30", "limit = 400").replace("orders = 2", "orders = 6"))
    calm, features = tmp_path / "calm", Options(tmp_path / "features")
    run(plan, calm, features)
    report([calm], tmp_path / "calm-report", links="none")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 120
        while not killed and time.monotonic() < end:
            for pid in workers():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                break
            time.sleep(0.02)

    try:
        cluster.wait_for_nodes()
        assassin = threading.Thread(target=kill)
        assassin.start()
        summary = run(plan, tmp_path / "out", features, ray=cluster.address)
        assassin.join()
        nodes = [node for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert killed and len(nodes) == 2
    assert summary.done == summary.jobs == 14 and not summary.failed
    for path in (calm / "jobs").glob("*.json"):
        a, b = (json.loads(p.read_text()) for p in (path, tmp_path / "out" / "jobs" / path.name))
        assert all(a[k] == b[k] for k in a if k not in ("time", "memory"))
    report([tmp_path / "out"], tmp_path / "report", links="none")
    for name in ("report.md", "tables/small.csv"):
        assert (tmp_path / "report" / name).read_bytes() == (tmp_path / "calm-report" / name).read_bytes()
