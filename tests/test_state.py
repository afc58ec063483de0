"""State files: whole or refused, never in between."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import zipfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reta import state as states
from reta.errors import BadState, MissingData

HEADER = {"method": "zeroshot", "classes": ["a", "b"]}


def example(seed: int = 0) -> states.State:
    g = torch.Generator().manual_seed(seed)
    scores = torch.full((4, 3), torch.inf)
    scores[0, 0] = 0.5
    return {"keys": torch.randn(4, 3, 8, generator=g), "scores": scores, "count": torch.tensor(3)}


@given(
    st.integers(0, 2**31),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.int64, torch.bool]),
)
def test_what_is_saved_is_loaded(tmp_path_factory, seed, dtype):
    path = tmp_path_factory.mktemp("s") / "s.safetensors"
    tensors = {
        "x": torch.randn(3, 2, generator=torch.Generator().manual_seed(seed)).to(dtype),
        "empty": torch.zeros(0),
    }
    states.save(path, tensors, HEADER)
    loaded, header = states.load(path)
    assert states.equal(loaded, tensors)
    assert header == HEADER


def test_tensors_that_share_memory_are_saved_apart(tmp_path):
    table = torch.arange(12.0).reshape(3, 4)
    tensors = {"table": table, "row": table[1], "again": table, "none": table[:0], "nothing": table[:, :0]}
    states.save(tmp_path / "s", tensors, HEADER)
    assert states.equal(states.load(tmp_path / "s")[0], tensors)


def test_same_input_same_bytes(tmp_path):
    states.save(tmp_path / "a", example(), HEADER)
    states.save(tmp_path / "b", example(), dict(reversed(HEADER.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_equal_sees_every_difference():
    a = example()
    assert states.equal(a, states.clone(a))
    assert not states.equal(a, a | {"count": torch.tensor(4)})
    assert not states.equal(a, a | {"count": torch.tensor(3.0)})
    assert not states.equal(a, {k: v for k, v in a.items() if k != "count"})
    assert not states.equal(a, a | {"keys": a["keys"].reshape(3, 4, 8)})


def test_five_hundred_corruptions(tmp_path):
    """Every truncation or flipped bit is refused, or the file still loads to equal tensors."""
    path, original = tmp_path / "s.safetensors", example()
    states.save(path, original, HEADER)
    good = path.read_bytes()
    rng, refused = random.Random(0), 0
    for _ in range(500):
        data = bytearray(good)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        else:
            for _ in range(rng.choice((1, 1, 4, 64))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(data))
        try:
            loaded, header = states.load(path)
        except BadState:
            refused += 1
        else:
            assert states.equal(loaded, original)
            assert header == HEADER
    assert refused > 450


@pytest.mark.parametrize("kind", ["pickle", "zip", "text", "empty", "foreign"])
def test_foreign_files_are_refused_without_running_anything(tmp_path, kind):
    path, trap = tmp_path / "s.safetensors", tmp_path / "ran"
    if kind == "pickle":
        path.write_bytes(b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.")
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("data.pkl", b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.")
    elif kind == "foreign":
        from safetensors.torch import save_file

        save_file({"x": torch.zeros(2)}, path)
    else:
        path.write_bytes(b"hello" if kind == "text" else b"")
    with pytest.raises(BadState):
        states.load(path)
    assert not trap.exists()


def test_missing_file_and_newer_format(tmp_path, monkeypatch):
    with pytest.raises(MissingData, match="no such state file"):
        states.load(tmp_path / "none")
    monkeypatch.setattr(states, "FORMAT", 2)
    states.save(tmp_path / "new", example(), HEADER)
    monkeypatch.undo()
    with pytest.raises(BadState, match="format 2.*update reta"):
        states.load(tmp_path / "new")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "s.safetensors"
    states.save(path, example(), HEADER)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        states.save(path, example(1), HEADER)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_killed_while_saving_fifty_times(tmp_path):
    """SIGKILL at random moments: the file is one whole version or the other."""
    path, rng = tmp_path / "s.safetensors", random.Random(0)
    expected = [{"x": torch.full((200_000,), float(i))} for i in range(2)]
    states.save(path, expected[0], {"i": 0})
    starter = "import os, sys\n" + FORKS.replace("PATH", json.dumps(str(path)))
    delays = [str(rng.uniform(0.0005, 0.03)) for _ in range(50)]
    process = subprocess.Popen(
        [sys.executable, "-c", starter, *delays], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    seen = set()
    for _ in delays:
        assert process.stdout.readline().strip() == "killed"
        loaded, header = states.load(path)
        assert states.equal(loaded, expected[header["i"]])
        seen.add(header["i"])
        process.stdin.write("next\n")
        process.stdin.flush()
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()
    assert seen == {0, 1}


# One interpreter with torch loaded forks a writer for each round, lets it write, and kills it.
FORKS = """
import signal, time, torch
from reta import state as states
torch.set_num_threads(1)
versions = [{"x": torch.full((200_000,), float(i))} for i in range(2)]
states.save(PATH + ".warm", versions[0], {"i": 0})
for round, delay in enumerate(sys.argv[1:]):
    child = os.fork()
    if child == 0:
        i = round
        while True:
            states.save(PATH, versions[i % 2], {"i": i % 2})
            i += 1
    time.sleep(float(delay))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("killed", flush=True)
    sys.stdin.readline()
"""
