"""A feature store encoded by a real Ray cluster of two nodes, one of whose workers is killed in mid-run."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

import reta
import reta.data
from reta.bench import build
from reta.bench.encode_ray import parcel
from reta.bench.index import verify
from reta.data.dataset import Dataset
from reta.errors import BadImage
from tests.stores import folder, tree

pytest.importorskip("ray", reason="needs the extra cluster")


def at_work() -> list[int]:
    """Processes of Ray that encode a shard at this moment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            title = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if entry.name.isdigit() and title.startswith(b"ray::Actor.encode"):
            found.append(int(entry.name))
    return found


def broken(photos: Path) -> Dataset:
    """A folder with an empty file, a text, and a file that vanishes after it was listed."""
    data = reta.data.open(photos)
    (photos / data.keys[1]).write_bytes(b"")
    (photos / data.keys[3]).write_bytes(b"no image")
    (photos / data.keys[6]).unlink()
    return data


def test_a_parcel_holds_what_the_folder_says(tmp_path: Path) -> None:
    data = broken(folder(tmp_path, 8))
    sent = pickle.loads(pickle.dumps(parcel(data, range(1, 8), workers=2)))  # noqa: S301
    assert sent.keys == data.keys[1:] and sent.labels == data.labels[1:]
    for i in range(7):
        if i in (0, 2, 5):
            with pytest.raises(BadImage) as here:
                data.fetch(i + 1)
            with pytest.raises(BadImage) as there:
                sent.fetch(i)
            assert (str(here.value), here.value.reason) == (str(there.value), there.value.reason)
        else:
            picture, mark = sent.fetch(i)
            assert (picture.tobytes(), mark) == (data.image(i + 1).tobytes(), data.fetch(i + 1)[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_nodes_and_a_killed_worker_give_the_same_store(tmp_path: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    model, data = reta.load("reta-mini", device="cpu"), reta.data.open("shapes@fog-2", n=300)
    photos = broken(folder(tmp_path / "photos", 8))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = build(data, model, "crops", 8, root=tmp_path / "alone", shard=20, batch=32)
    mended = build(photos, model, "augmix", 3, root=tmp_path / "alone", shard=5)
    torch.set_num_threads(threads)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 120
        while len(killed) < 2 and time.monotonic() < end:
            for pid in at_work()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                time.sleep(1)
            time.sleep(0.02)

    try:
        cluster.wait_for_nodes()
        assassin = threading.Thread(target=kill)
        assassin.start()
        there = {"root": tmp_path / "spread", "ray": cluster.address}
        spread = build(data, model, "crops", 8, shard=20, batch=32, **there)
        assassin.join()
        listed = build(photos, model, "augmix", 3, shard=5, **there)
        nodes = [node for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert len(killed) == 2 and len(nodes) == 2
    assert tree(spread.path) == tree(alone.path) and tree(listed.path) == tree(mended.path)
    assert [bad.reason for bad in listed.bad] == ["empty", "format", "missing"]
    assert verify(spread.path) == [] and not (spread.path / "locks").exists()
