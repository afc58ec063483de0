"""Methods through the encoders on a GPU: the same answers as on a CPU. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch

import reta
from reta import coop, methods
from reta.sample import Sample

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

NAMES = ["star", "key", "umbrella", "anchor", "mushroom"]
FIELDS = {
    "coop": {},
    "tpt": {"views": 16},
    "difftpt": {"views": 16},
    "rlcf": {"views": 16},
    "rlcf-tune": {"views": 16},
    "rlcf-momentum": {"views": 16, "every": 2},
    "reta-reward": {"views": 16},
}


def world(device, precision="fp32"):
    model = reta.load("reta-mini", device=device, precision=precision)
    judge = reta.load("reta-mini-l", device=device, precision=precision)
    return model, judge, reta.Task.build(model, NAMES, templates="openai-7", reward=judge)


def answers(name, device, precision="fp32", where=None):
    """Probabilities for three images, views drawn as noise around pictures."""
    model, judge, task = world(device, precision)
    g = torch.Generator().manual_seed(0)
    pixels = torch.rand(3, 16, 3, 64, 64, generator=g)
    stream = [Sample(model.images(x), judge.images(x), x) for x in pixels]
    return reta.run(methods.create(name, **FIELDS[name]), task, stream, device=where or device).probs


@pytest.fixture(autouse=True)
def exact_convolutions():
    """AdamW's first step is a step by sign: TF32 turns some, and the tuned tower shows it."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.mark.parametrize("name", FIELDS)
def test_a_gpu_answers_as_a_cpu(name):
    assert torch.allclose(answers(name, "cuda"), answers(name, "cpu"), atol=2e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", FIELDS)
def test_low_precision_runs_and_is_near(name, precision):
    assert torch.allclose(answers(name, "cuda", precision), answers(name, "cpu"), atol=0.15)


@pytest.mark.parametrize("name", FIELDS)
def test_a_model_on_the_cpu_beside_a_gpu(name):
    """`reta.run` picks the GPU by itself; the model may have been loaded elsewhere."""
    assert torch.allclose(answers(name, "cpu", where="auto"), answers(name, "cpu"), atol=2e-3)


def test_a_context_is_learned_on_a_gpu():
    learned = {}
    for device in ("cpu", "cuda"):
        model, _, task = world(device)
        g = torch.Generator().manual_seed(0)
        labels = torch.arange(5).repeat(4)
        views = task.text.cpu()[labels][:, None] + 0.1 * torch.randn(20, 3, model.dim, generator=g)
        learned[device], losses = coop.fit(task, views, labels, epochs=5)
        assert losses[-1] < losses[0]
    assert torch.allclose(learned["cuda"].cpu(), learned["cpu"], atol=1e-3)


@pytest.mark.parametrize("name", ["tpt", "rlcf", "rlcf-tune"])
def test_a_stream_on_a_gpu(name):
    model, judge, task = world("cuda")
    stream = reta.Stream(model, task, methods.create(name, **FIELDS[name]), reward=judge)
    assert stream.adapt(torch.zeros(64, 64, 3, dtype=torch.uint8)).probs.isfinite().all()
