"""The cache of text features: hits, damage, concurrent writers, places that cannot be written."""

from __future__ import annotations

import logging
import multiprocessing
import random
import sys

import pytest
import torch

from reta.textcache import cache_dir, cached_texts

WORDS = [f"a photo of thing {i}." for i in range(100)]


class Model:
    """Counts what it is asked for."""

    name, dim, fingerprint, precision, device = "counter", 6, "abcd", "fp32", torch.device("cpu")

    def __init__(self):
        self.asked = []

    def texts(self, texts):
        self.asked.append(list(texts))
        rows = [torch.randn(6, generator=torch.Generator().manual_seed(sum(map(ord, t)))) for t in texts]
        return torch.stack(rows) if rows else torch.empty(0, 6)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RETA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "texts" / "abcd-fp32"


def test_a_prompt_is_encoded_once(folder):
    model = Model()
    first = cached_texts(model, [*WORDS[:50], *WORDS[:50]])
    assert torch.equal(first, torch.cat([Model().texts(WORDS[:50])] * 2))
    assert model.asked == [WORDS[:50]]
    assert torch.equal(cached_texts(model, WORDS[40:60])[:10], first[40:50])
    assert model.asked[1:] == [WORDS[50:60]]
    again = Model()
    assert torch.equal(cached_texts(again, WORDS[:60][::-1]), Model().texts(WORDS[:60][::-1]))
    assert again.asked == [] and len(list(folder.iterdir())) <= 16
    assert cached_texts(Model(), []).shape == (0, 6)


def test_other_weights_or_precision_share_nothing(folder):
    cached_texts(Model(), WORDS)
    for key, value in (("fingerprint", "ef01"), ("precision", "bf16")):
        model = Model()
        setattr(model, key, value)
        cached_texts(model, WORDS)
        assert model.asked == [WORDS]


def test_a_real_model(folder, tiny_model):
    model = tiny_model("vit")
    for _ in range(2):
        assert (cached_texts(model, WORDS[:3]) - model.texts(WORDS[:3])).abs().max() < 1e-6


def test_damage_is_told_and_repaired(folder, caplog):
    wanted = Model().texts(WORDS)
    cached_texts(Model(), WORDS)
    chance = random.Random(0)
    for _ in range(25):
        path = chance.choice(sorted(folder.glob("*.safetensors")))
        body = bytearray(path.read_bytes())
        where = chance.randrange(len(body))
        body[where] ^= 1 << chance.randrange(8)
        path.write_bytes(body if chance.random() < 0.8 else body[:where])
        caplog.clear()
        assert torch.equal(cached_texts(Model(), WORDS), wanted)
        assert [record.message.count("\n") for record in caplog.records] == [0]
        assert f"{path} is damaged and its prompts are encoded again" in caplog.text
        caplog.clear()
        repaired = Model()
        assert torch.equal(cached_texts(repaired, WORDS), wanted)
        assert repaired.asked == [] and not caplog.records


def test_a_place_that_cannot_be_written(folder, caplog, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        assert torch.equal(cached_texts(Model(), WORDS), Model().texts(WORDS))
    assert len(caplog.records) == 1 and "prompts are encoded each time" in caplog.text


def test_non_finite_features_are_not_kept(folder):
    class Broken(Model):
        def texts(self, texts):
            return super().texts(texts) * float("nan")

    assert cached_texts(Broken(), WORDS[:2]).isnan().all()
    assert torch.equal(cached_texts(Model(), WORDS[:2]), Model().texts(WORDS[:2]))


def write(shift):
    for start in range(shift, 100, 7):
        chosen = (WORDS[start:] + WORDS[:start])[:20]
        assert torch.equal(cached_texts(Model(), chosen), Model().texts(chosen))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_many_writers_at_once(folder, caplog):
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write, args=(shift,)) for shift in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    last = Model()
    assert torch.equal(cached_texts(last, WORDS), Model().texts(WORDS))
    assert not caplog.records and not list(folder.glob(".*"))
    assert sum(map(len, last.asked)) < len(WORDS)


def test_where_the_cache_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("RETA_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("RETA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for platform, place in (
        ("linux", tmp_path / "xdg" / "reta"),
        ("win32", tmp_path / "local" / "reta"),
        ("darwin", tmp_path / "home" / "Library" / "Caches" / "reta"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_dir() == place
