"""The feature store: nothing lost, nothing doubled, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

import reta
import reta.data
from reta import state as states
from reta.bench import Joined, Store, build
from reta.bench import disk as disks
from reta.bench.claims import STALE, Claim
from reta.bench.identity import identify, make_views, place
from reta.bench.index import changed, describe, remove, verify
from reta.bench.store import stores
from reta.data.dataset import Dataset, File, Made
from reta.errors import BadInput, BadState, Limit, MissingData
from reta.task import Task
from reta.views import make
from tests.stores import Fake, Noise, build_apart, folder, noise, tree


def test_it_holds_what_the_model_says(tmp_path):
    data, model = noise(10), Fake()
    store = build(data, model, "crops", 4, seed=3, root=tmp_path, shard=4)
    for i in (0, 3, 4, 9):
        pixels = make(data.image(i), "crops", n=4, size=8, seed=3, key=data.keys[i], interpolation="bilinear")
        assert torch.allclose(store.read([i])[0].float(), model.images(pixels), atol=1e-3)
    assert (
        store.keys == data.keys and store.labels.tolist() == list(data.labels) and store.names == data.names
    )
    assert (len(store), store.n_views, store.dim, store.shards, store.bad) == (10, 4, 16, 3, ())


def test_reading_any_rows_any_views(tmp_path):
    store = build(noise(11), Fake(), "crops", 5, root=tmp_path, shard=4)
    everything = store.read(range(11))
    order = torch.tensor([10, 0, 0, 7, 3, 4, 10])
    assert torch.equal(store.read(order), everything[order])
    assert torch.equal(store.read(order, 2), everything[order, :2])
    assert torch.equal(store.read(order, 64), everything[order])
    assert store.read([]).shape == (0, 5, 16)
    assert torch.equal(store[-1].views, everything[10].float()) and store[-1].key == "noise/10"
    assert torch.equal(torch.stack([sample.views for sample in store]), everything.float())
    for wrong in ([11], [-1]):
        with pytest.raises(BadInput, match="rows run from 0 to 10"):
            store.read(wrong)
    with pytest.raises(BadInput, match="at least 1"):
        store.read([0], 0)


def test_fewer_views_are_the_first_of_more(tmp_path):
    many = build(noise(5), Fake(), "augmix", 6, root=tmp_path)
    few = build(noise(5), Fake(), "augmix", 3, root=tmp_path)
    assert torch.allclose(many.read(range(5), 3).float(), few.read(range(5)).float(), atol=1e-3)


def test_run_reads_a_store_in_any_order(tmp_path):
    data, model = noise(20), Fake()
    store = build(data, model, "crops", 3, root=tmp_path, shard=7)
    task = Task.from_features(torch.randn(4, 2, 16, generator=torch.Generator().manual_seed(1)), scale=10.0)
    method = reta.methods.create("zeroshot")
    order = torch.randperm(20, generator=torch.Generator().manual_seed(2))
    direct = reta.run(method, task, store.read(range(20)).float(), store.labels, order=order)
    stored = reta.run(method, task, store, store.labels, order=order)
    assert torch.allclose(direct.probs, stored.probs, atol=1e-6) and direct.accuracy == stored.accuracy
    assert torch.equal(stored.labels, store.labels[order])


def test_opening_again_encodes_nothing(tmp_path):
    build(noise(), Fake(), "crops", 2, root=tmp_path)
    model = Fake()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*")}
    build(noise(), model, "crops", 2, root=tmp_path)
    assert model.calls == 0 and before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*")}


CHANGES = {
    "model": lambda d, o: (d, Fake(fingerprint="other"), o),
    "recipe": lambda d, o: (d, Fake(), o | {"recipe": "augmix"}),
    "views": lambda d, o: (d, Fake(), o | {"n_views": 3}),
    "seed": lambda d, o: (d, Fake(), o | {"seed": 1}),
    "precision": lambda d, o: (d, Fake(), o | {"precision": "fp32"}),
    "engine": lambda d, o: (d, Fake(), o | {"engine": "pil"}),
    "area": lambda d, o: (d, Fake(), o | {"area": (0.5, 1.0)}),
    "an image": lambda d, o: (replace(d, refs=[Made(Noise(99)), *d.refs[1:]]), Fake(), o),
    "a label": lambda d, o: (replace(d, labels=(1, *d.labels[1:])), Fake(), o),
    "a name": lambda d, o: (replace(d, names=tuple("abce")), Fake(), o),
    "the version": lambda d, o: (replace(d, version="2"), Fake(), o),
    "fewer images": lambda d, o: (d.take(range(5)), Fake(), o),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_matters_makes_another_store(what, tmp_path):
    options = {"recipe": "crops", "n_views": 2}
    first = build(noise(6), Fake(), **options, root=tmp_path)
    data, model, changed_options = CHANGES[what](noise(6), options)
    second = build(data, model, **changed_options, root=tmp_path)
    assert first.path != second.path and first.id != second.id and len(stores(tmp_path)) == 2


def test_reading_ahead_and_progress_change_nothing(tmp_path):
    a = build(noise(), Fake(), "crops", 3, root=tmp_path / "a", workers=1, shard=6)
    b = build(noise(), Fake(), "crops", 3, root=tmp_path / "b", workers=6, shard=6, progress=True)
    assert tree(a.path) == tree(b.path)


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_moment_it_resumes_to_the_same_bytes(tmp_path, one_thread, seed):
    whole = build(noise(40), Fake(), "crops", 4, root=tmp_path / "whole", shard=6, batch=8)
    chance, kills = random.Random(seed), 0
    for _ in range(4):
        pid = build_apart(tmp_path / "killed", 0.02)
        time.sleep(chance.uniform(0.0, 0.3))
        os.kill(pid, signal.SIGKILL)
        kills += os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert kills >= 1
    resumed = build(noise(40), Fake(), "crops", 4, root=tmp_path / "killed", shard=6, batch=8)
    assert tree(resumed.path) == tree(whole.path)
    assert not (resumed.path / "locks").exists() and verify(resumed.path) == []


def test_claims_left_behind_a_finished_store_are_cleared(tmp_path):
    """As by a process that was killed between its last two deeds."""
    store = build(noise(6), Fake(), "crops", 4, root=tmp_path, shard=6, batch=8)
    (store.path / "locks").mkdir()
    (store.path / "locks" / "index.lock").write_text("{}")
    again = build(noise(6), Fake(), "crops", 4, root=tmp_path, shard=6, batch=8)
    assert not (again.path / "locks").exists()


def test_several_processes_build_one_store(tmp_path, one_thread):
    children = [build_apart(tmp_path / "many", 0.02) for _ in range(3)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    alone = build(noise(40), Fake(), "crops", 4, root=tmp_path / "alone", shard=6, batch=8)
    assert tree(place(alone.identity, tmp_path / "many")) == tree(alone.path)


def test_threads_share_the_shards(tmp_path):
    models = [Fake(delay=0.005) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda m: build(noise(40), m, "crops", 4, root=tmp_path, shard=4, batch=16), models))
    assert sum(m.calls for m in models) <= 13 and sum(m.calls > 0 for m in models) >= 2


def test_claims(tmp_path):
    first, second = Claim(tmp_path / "1.lock"), Claim(tmp_path / "1.lock")
    assert first.take() and not second.take()
    second.release()
    assert not second.take()
    held = json.loads((tmp_path / "1.lock").read_text())
    (tmp_path / "1.lock").write_text(json.dumps(held | {"pid": 2**22 + 1}))
    assert second.take() and not first.take()
    (tmp_path / "1.lock").write_text(json.dumps(held | {"started": "1"}))
    assert first.take()
    (tmp_path / "1.lock").write_text(json.dumps(held | {"host": "elsewhere"}))
    assert not second.take()
    os.utime(tmp_path / "1.lock", (time.time() - STALE - 5,) * 2)
    assert second.take()
    (tmp_path / "1.lock").write_text("")
    os.utime(tmp_path / "1.lock", (time.time() - STALE - 5,) * 2)
    assert first.take()


def test_a_folder_with_bad_images(tmp_path):
    photos = folder(tmp_path / "photos")
    (photos / "cat" / "0.png").write_bytes(b"")
    (photos / "cat" / "2.png").write_bytes((photos / "cat" / "2.png").read_bytes()[:60])
    (photos / "dog" / "1.png").write_text("this is text")
    (photos / "dog" / "notes.txt").write_text("not an image by its name")
    data = reta.data.open(photos)
    store = build(data, Fake(), "crops", 2, root=tmp_path / "features", shard=4)
    assert {(b.key, b.reason) for b in store.bad} == {
        ("cat/0.png", "empty"),
        ("cat/2.png", "truncated"),
        ("dog/1.png", "format"),
    }
    assert any("'cat/2.png' cannot be decoded" in b.message for b in store.bad)
    assert len(store) == 6 and int(store.ok.sum()) == 3 and data.skipped == ("dog/notes.txt",)
    assert not store.read([b.row for b in store.bad]).any()
    task = Task.build(Fake(), ["cat", "dog"], templates="single")
    out = reta.run(reta.methods.create("zeroshot"), task, store, store.labels)
    assert torch.equal(out.valid, store.ok) and bool(out.probs.sum(1).sub(1).abs().lt(1e-5).all())
    assert verify(store.path) == []


def test_images_that_changed_later_are_found(tmp_path):
    data = reta.data.open(folder(tmp_path / "photos"))
    store = build(data, Fake(), "crops", 2, root=tmp_path / "features")
    assert changed(store, data) == []
    Noise(77)().save(tmp_path / "photos" / "dog" / "3.png")
    assert changed(store, reta.data.open(tmp_path / "photos")) == ["dog/3.png"]
    with pytest.raises(BadInput, match="other images"):
        changed(store, noise())


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


DAMAGE = {
    "a bit of a feature": (lambda s: _flip(s / "shards" / "00001.safetensors", -7), "checksum"),
    "a bit of a header": (lambda s: _flip(s / "shards" / "00001.safetensors", 200), "00001"),
    "a cut shard": (lambda s: os.truncate(s / "shards" / "00001.safetensors", 900), "00001"),
    "a lost shard": (lambda s: (s / "shards" / "00001.safetensors").unlink(), "00001.safetensors is missing"),
    "a doubled shard": (
        lambda s: (s / "shards" / "00001.safetensors").write_bytes(
            (s / "shards" / "00000.safetensors").read_bytes()
        ),
        "another place",
    ),
    "a cut index": (lambda s: os.truncate(s / "index.parquet", 100), "index.parquet is damaged"),
    "a lost index": (lambda s: (s / "index.parquet").unlink(), "no index"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_and_mended(what, tmp_path):
    store = build(noise(), Fake(), "crops", 3, root=tmp_path, shard=6)
    before = tree(store.path)
    act, words = DAMAGE[what]
    act(store.path)
    assert words in " ".join(verify(store.path))
    assert verify(store.path, repair=True)
    mended = build(noise(), Fake(), "crops", 3, root=tmp_path, shard=6)
    assert tree(mended.path) == before and verify(mended.path) == []


def test_an_index_of_other_images_is_found(tmp_path):
    a = build(noise(6), Fake(), "crops", 2, root=tmp_path)
    b = build(noise(6, "other"), Fake(), "crops", 2, root=tmp_path)
    (a.path / "index.parquet").write_bytes((b.path / "index.parquet").read_bytes())
    assert verify(a.path) == ["index.parquet does not fit the shards"]


def test_a_cut_shard_is_not_read(tmp_path):
    store = build(noise(), Fake(), "crops", 3, root=tmp_path, shard=6)
    os.truncate(store.path / "shards" / "00002.safetensors", 2000)
    with pytest.raises(BadState, match="reta features verify"):
        Store(store.path).read([13])


def test_an_unfinished_store_says_so(tmp_path):
    store = build(noise(), Fake(), "crops", 3, root=tmp_path, shard=6)
    (store.path / "shards" / "00002.safetensors").unlink()
    with pytest.raises(MissingData, match="1 of 4 shards are missing.*goes on where it stopped"):
        Store(store.path)
    assert describe(store.path)["done"] == 75.0
    (store.path / "index.parquet").unlink()
    assert verify(store.path) == ["not finished: 1 of 4 shards are missing; run the same build again"]
    with pytest.raises(MissingData, match="not a feature store"):
        Store(tmp_path)
    (store.path / "store.json").write_text("{}")
    with pytest.raises(BadState, match="damaged"):
        Store(store.path)


def test_removing(tmp_path):
    store = build(noise(4), Fake(), "crops", 2, root=tmp_path)
    with pytest.raises(MissingData):
        remove(tmp_path)
    remove(store.path)
    assert stores(tmp_path) == [] and not store.path.exists()


@pytest.mark.parametrize("how", ["a flipped bit", "cut short", "another format"])
def test_a_store_without_its_header_is_told_and_removed(how, tmp_path):
    store, sound = (build(noise(4), Fake(), "crops", n, root=tmp_path) for n in (2, 3))
    before, place = tree(store.path), store.path / "store.json"
    text = place.read_text()
    changed_text = {
        "a flipped bit": text.replace('"d"', '"e"'),
        "cut short": text[:100],
        "another format": text.replace('"format": 1', '"format": 99'),
    }[how]
    assert changed_text != text
    place.write_text(changed_text)
    with pytest.raises(BadState):
        Store(store.path)
    assert describe(store.path)["problem"] and not describe(sound.path)["problem"]
    assert len(verify(store.path)) == 1 and store.path.exists()
    assert len(verify(store.path, repair=True)) == 1 and stores(tmp_path) == [sound.path]
    assert tree(build(noise(4), Fake(), "crops", 2, root=tmp_path).path) == before


def test_a_header_of_before_has_no_checksum(tmp_path):
    store = build(noise(4), Fake(), "crops", 2, root=tmp_path)
    header = json.loads((store.path / "store.json").read_text())
    del header["check"]
    (store.path / "store.json").write_text(json.dumps(header))
    assert verify(store.path) == [] and Store(store.path).names == store.names


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: No space (os error 28)")],
    ids=["python", "safetensors"],
)
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, error):
    real, calls = states.atomic, []

    @contextmanager
    def full(path):
        with real(path) as temporary:
            yield temporary
            calls.append(path)
            if len(calls) == 3:
                os.truncate(temporary, 10)
                raise error

    monkeypatch.setattr(states, "atomic", full)
    with pytest.raises(Limit, match="is full: free some space and run the same command again"):
        build(noise(), Fake(), "crops", 3, root=tmp_path, shard=6)
    path = stores(tmp_path)[0]
    assert sorted(p.name for p in (path / "shards").iterdir()) == ["00000.safetensors", "00001.safetensors"]
    assert not list((path / "locks").iterdir()) and not (path / "index.parquet").exists()
    monkeypatch.setattr(states, "atomic", real)
    whole = build(noise(), Fake(), "crops", 3, root=tmp_path / "whole", shard=6)
    assert tree(build(noise(), Fake(), "crops", 3, root=tmp_path, shard=6).path) == tree(whole.path)


def test_a_full_disk_at_the_first_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disks.os, "fsync", full)
    with pytest.raises(Limit, match="is full"):
        build(noise(), Fake(), "crops", 3, root=tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_too_little_space_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("reta.bench.building.free_space", lambda path: 100)
    model = Fake()
    with pytest.raises(Limit, match="needs 1.9 KiB, .* has 100 B free"):
        build(noise(), model, "crops", 3, root=tmp_path)
    assert model.calls == 0 and list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(reta.RetaError, match="cannot write to"):
        build(noise(4), Fake(), "crops", 2, root=tmp_path / "file" / "below")


def test_a_disk_that_goes_away_is_no_set_of_bad_images(tmp_path):
    data = reta.data.open(folder(tmp_path / "photos"))
    for path in (tmp_path / "photos").rglob("*.png"):
        path.unlink()
    with pytest.raises(MissingData, match="is the disk still there"):
        build(data, Fake(), "crops", 2, root=tmp_path / "features")
    assert not list((tmp_path / "features").rglob("*.safetensors"))


def test_features_that_are_not_finite_are_bad(tmp_path):
    class Broken(Fake):
        def images(self, pixels, batch=64):
            features = super().images(pixels)
            features[2:4] = float("nan")
            return features

    store = build(noise(4), Broken(), "crops", 2, root=tmp_path)
    assert [(b.row, b.reason) for b in store.bad] == [(1, "features")] and verify(store.path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp8"}, "fp16 or fp32"),
        ({"recipe": "cropz"}, "did you mean 'crops'"),
        ({"n_views": 0}, "at least 1"),
        ({"batch": 0}, "at least 1"),
        ({"areas": 1}, "did you mean 'area'"),
    ],
)
def test_bad_options(tmp_path, options, message):
    with pytest.raises(BadInput, match=message):
        build(noise(4), Fake(), **({"recipe": "crops", "n_views": 2} | options), root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_odd_names_of_data_and_keys(tmp_path):
    picture = Noise(1)()
    photos = tmp_path / "my photos, 2026/summer"
    photos.mkdir(parents=True)
    for name in (b"new\nline.png", b"\xff\xfe.png", "日本.png".encode()):
        picture.save(os.fsdecode(os.fsencode(photos) + b"/" + name), "PNG")
    data = reta.data.open(photos)
    store = build(data, Fake(), "crops", 2, root=tmp_path / "features")
    assert store.labels is None and len(store.keys) == 3 and store.bad == ()
    assert Store(store.path).keys == data.keys and "new\nline.png" in data.keys


def test_fp32_stores_keep_every_bit(tmp_path):
    store = build(noise(4), Fake(), "crops", 2, root=tmp_path, precision="fp32")
    assert store.read([0]).dtype == torch.float32 and verify(store.path) == []


def test_joined_stores_are_one_table(tmp_path):
    a = build(noise(5, "a"), Fake(), "crops", 3, root=tmp_path)
    b = build(noise(4, "b"), Fake(), "crops", 2, root=tmp_path)
    both = Joined([a, b])
    assert len(both) == 9 and both.domains.tolist() == [0] * 5 + [1] * 4 and both.names == tuple("abcd")
    assert both.labels.tolist() == a.labels.tolist() + b.labels.tolist() and both.keys == a.keys + b.keys
    order = torch.tensor([8, 0, 5, 4])
    rows = both.read(order, 64)
    assert (
        rows.shape == (4, 2, 16)
        and torch.equal(rows[1], a.read([0], 2)[0])
        and torch.equal(rows[0], b.read([3])[0])
    )
    assert both[6].key == "b/1"
    other = Dataset("x", ("k",), [Made(Noise(1))], (0,), ("z",))
    with pytest.raises(BadInput, match="different class names"):
        Joined([a, build(other, Fake(), "crops", 2, root=tmp_path)])


def test_views_are_what_they_were():
    """The features of a store outlive the code. If views change on purpose, raise `VIEWS_VERSION` in
    reta/bench/identity.py and put the new numbers here."""
    picture = np.random.default_rng(3).integers(0, 256, (40, 50, 3), np.uint8)
    found = {r: make(picture, r, n=4, size=16, seed=5, key="k") for r in ("plain", "crops", "augmix")}
    expected = {"plain": PLAIN, "crops": CROPS, "augmix": AUGMIX}
    for recipe, numbers in expected.items():
        rows = found[recipe]
        shown = torch.stack([rows.mean((1, 2, 3)), rows[:, 1, 3, 5], rows[:, 2, 12, 9]], 1)
        assert torch.allclose(shown, torch.tensor(numbers), atol=2e-3), shown


PLAIN = [[0.4978, 0.6588, 0.5608]]
CROPS = [*PLAIN, [0.4961, 0.5333, 0.4824], [0.4909, 0.6392, 0.4353], [0.4854, 0.3059, 0.5882]]
AUGMIX = [*PLAIN, [0.4899, 0.5182, 0.484], [0.4908, 0.6364, 0.4414], [0.4786, 0.3021, 0.5848]]


def test_the_identity_is_plain_and_complete():
    data, model = noise(4), Fake()
    identity = identify(data, model, make_views(model, "crops", 2), "fp16")
    assert json.loads(json.dumps(identity)) == identity
    assert set(identity) == {"format", "data", "model", "views", "stored"}
    assert identity["model"]["fingerprint"] == "abc" and identity["data"]["fingerprint"] == data.fingerprint
    assert File(Path("x")).size() == -1


def test_a_disk_that_goes_away_in_the_middle_of_a_shard(tmp_path):
    """Half of a shard was read before; the other half is not a set of bad images."""
    data = reta.data.open(folder(tmp_path / "photos", 12))

    class Pulled(Fake):
        def images(self, pixels, batch=64):
            for path in (tmp_path / "photos").rglob("*.png"):
                path.unlink()
            for emptied in (tmp_path / "photos").iterdir():
                emptied.rmdir()
            return super().images(pixels)

    options = {"recipe": "crops", "n_views": 2, "batch": 4, "workers": 1, "root": tmp_path / "features"}
    with pytest.raises(MissingData, match="is the disk still there"):
        build(data, Pulled(), **options)
    assert not list((tmp_path / "features").rglob("*.safetensors"))
    again = reta.data.open(folder(tmp_path / "photos", 12))
    assert build(again, Fake(), **options).bad == ()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_reading_takes_no_memory_of_its_own(tmp_path):
    class Wide(Fake):
        dim = 4096

        def images(self, pixels, batch=64):
            return torch.ones(len(pixels), 4096) / 64

    store = build(noise(400), Wide(), "crops", 8, root=tmp_path, shard=50)

    def own() -> int:
        line = next(row for row in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in row)
        return int(line.split()[1]) * 1024

    store.read(range(0, 400, 50))
    before = own()
    for start in range(0, 400, 16):
        store.read(range(start, min(start + 16, 400)))
    assert own() - before < 400 * 8 * 4096 * 2 / 3
