"""The trainer: a few steps on tiny settings, killed in the middle and taken up again to the same weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

TRAINING = Path(__file__).parents[1] / "training"
WEIGHTS = Path(__file__).parents[1] / "src" / "reta" / "weights"
COMMAND = [sys.executable, str(TRAINING / "train.py"), "--steps", "20", "--images", "500", "--batch", "16",
           "--held-out", "40", "--threads", "1", "--checkpoint", "0",
           "--read", "4", "--settle", "10"]  # fmt: skip


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of `training/` importable for one test."""
    monkeypatch.syspath_prepend(str(TRAINING))


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*COMMAND, "--folder", whole, "--out", whole], check=True, env=environment, capture_output=True
    )
    process = subprocess.Popen([*COMMAND, "--folder", broken, "--out", broken], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    deadline = time.monotonic() + 120
    while not (broken / "reta-mini.ckpt").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (broken / "reta-mini.ckpt").exists()
    assert not (broken / "src/reta/weights/reta-mini.safetensors").exists()
    subprocess.run(
        [*COMMAND, "--folder", broken, "--out", broken], check=True, env=environment, capture_output=True
    )
    first, second = (load_file(f / "src/reta/weights/reta-mini.safetensors") for f in (whole, broken))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[k], second[k]) for k in first)
    record = json.loads((broken / "results/training/reta-mini.json").read_text())
    assert record["step"] == 20 and record["log"][-1]["step"] == 20 and record["plan"]["images"] == 500


def test_captions_are_true_of_their_pictures(training: None) -> None:
    from captions import Writer, facts, truth

    from reta.data import shapes

    batch = [facts(vars(shapes.scene("train", i)[1])) for i in range(60)]
    captions = Writer().write(np.random.default_rng(0), batch, 30)
    true = truth(batch, captions)
    assert true[:, -30:].any(0).all(), "a claim made about a picture is true of at least that picture"
    for j, caption in enumerate(captions):
        for i in np.flatnonzero(true[:, j]):
            assert caption.name == batch[i]["name"]
            assert all(batch[i][k] == v for k, v in caption.claims.items())
            assert all(v in caption.text for v in caption.claims.values())
        false = [b for i, b in enumerate(batch) if not true[i, j] and b["name"] == caption.name]
        assert all(any(b[k] != v for k, v in caption.claims.items()) for b in false)


def test_every_caption_has_a_trained_token_row(training: None) -> None:
    from captions import Writer, every, facts
    from weights import Words

    from reta.data import shapes

    words, writer = Words(every()), Writer()
    batch = [facts(vars(shapes.scene("train", i)[1])) for i in range(40)]
    for seed in range(10):
        rows, ends = words.rows([c.text for c in writer.write(np.random.default_rng(seed), batch, 60)])
        assert int(rows.max()) < len(words.ids) and int(ends.max()) < rows.shape[1]


def test_short_text_path_agrees_with_open_clip(training: None, tmp_path: Path) -> None:
    """Cut sentences and the short token table give what open_clip gives from the compact file."""
    from open_clip import get_tokenizer
    from weights import Trainee, Words, read, write

    sentences = ["a photo of a key.", "a star", "the mushroom is red and stands on a dark striped ground."]
    config = json.loads((WEIGHTS / "reta-mini.json").read_text())
    trainee = Trainee(config, Words(sentences), seed=1).eval()
    with torch.no_grad():
        for p in trainee.parameters():
            p.copy_(p.half().float())
        write(trainee, tmp_path / "reta-mini.safetensors", {"name": "reta-mini"})
        model = read("reta-mini", tmp_path)
        expected = model.encode_text(get_tokenizer("ViT-B-32")(sentences), normalize=True)
        assert torch.allclose(trainee.texts(*trainee.words.rows(sentences)), expected, atol=1e-5)


def test_loss_is_zero_when_every_truth_is_certain(training: None) -> None:
    from objective import contrast

    images, texts = torch.eye(4)[[0, 0, 1, 2]], torch.eye(4)[[0, 1, 2, 2]]
    true = images @ texts.T > 0.5
    certain = contrast(images, texts, true, torch.tensor(200.0))
    assert float(certain) == pytest.approx(0.0, abs=1e-5)
    assert float(contrast(images, texts.flip(0), true, torch.tensor(200.0))) > 10
