"""The parts of ReTA on their own: closed-form gradients, the branch-free path, the axes that follow the text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import reta
from reta import methods
from reta import state as states
from reta.methods import committee, lazy, ops, subspace
from reta.methods.gaussian import Surrogate
from reta.sample import Sample
from tests.test_reta import world

PRESETS = ("paper", "paper_literal", "fixed", "released/ucf101", "released/imagenet-a")


def random_text(members=3, classes=7, dim=10, seed=0):
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dim, generator=g, dtype=torch.float64)
    return ops.unit(centres + 0.5 * torch.randn(members, classes, dim, generator=g, dtype=torch.float64))


def slices(classes, size=3):
    return [slice(i, min(i + size, classes)) for i in range(0, classes, size)]


def loss_of(form, text, views, label):
    """The surrogate loss with dense covariances, for autograd."""
    d = text - text.mean(0)
    apart = d - d[:, label : label + 1]
    w = torch.einsum("mcd,mce->cde", apart, apart) / form.divisor
    if form.cov == "diag":
        w = w * torch.eye(text.shape[-1], dtype=w.dtype)
    centre = text[-1] if form.center == "last" else text.mean(0)
    bent = torch.einsum("bd,cde,be->bc", views, w, views)
    logits = form.scale * views @ centre.mT + form.scale**2 / 2 * bent
    return torch.nn.functional.cross_entropy(logits, torch.full((len(views),), label)), logits


@pytest.mark.parametrize("cov", ["full", "diag"])
@pytest.mark.parametrize("center", ["last", "mean"])
@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_surrogate_agrees_with_autograd_slice_by_slice(cov, center, members):
    text = random_text(members).requires_grad_()
    views = random_text(1, 5, seed=1)[0]
    form = Surrogate(9.0, center, cov, divisor=4.0, weight=0.3)
    loss, logits = loss_of(form, text, views, 2)
    wanted = 0.3 * torch.autograd.grad(loss, text)[0]
    label = torch.tensor(2)
    with torch.no_grad():
        assert torch.allclose(form.logits(text, views, label), logits, atol=1e-10)
        part = form.grad(text, views, label)
        assert torch.allclose(torch.cat([part(s) for s in slices(7)], 1), wanted, atol=1e-10)


def follow(preset, n=14, **changes):
    """Answers and last state of a short stream."""
    text, views = world(7, 12, 6, 12, n, seed=3)
    task = reta.Task.from_features(text, scale=12.0)
    method = methods.create("reta", preset, **({"lr": 2e-2} | changes))
    state, probs = method.init(task), []
    with torch.no_grad():
        for row in views:
            output, state = method.step(task, state, Sample(row))
            probs.append(output.probs)
    return torch.stack(probs), state


@pytest.mark.parametrize("preset", PRESETS)
def test_skipping_and_slicing_change_no_number(preset, monkeypatch):
    """What an eager CPU run leaves out is what the masks would have thrown away."""
    probs, state = follow(preset)
    monkeypatch.setattr("reta.methods.lazy.BLOCK", 40)
    sliced, _ = follow(preset)
    assert torch.allclose(probs, sliced, atol=1e-10)
    monkeypatch.setattr("reta.methods.lazy.BLOCK", lazy.BLOCK)
    monkeypatch.setattr("reta.methods.lazy.known", lambda flag: None)
    monkeypatch.setattr("reta.methods.calibration.known", lambda flag: None)
    every = lambda mask: (torch.arange(len(mask)), mask)  # noqa: E731
    monkeypatch.setattr("reta.methods.contrast.some", every)
    masked, end = follow(preset)
    assert torch.allclose(probs, masked, atol=1e-9)
    assert all(torch.allclose(state[k], end[k], atol=1e-9) for k in ("text", "scores", "visual"))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_step_traces_without_asking_for_a_value(preset):
    """Tracing fails where Python would have to know a number: a step has no such place."""
    text, views = world(7, 12, 6, 12, 8, seed=3)
    task = reta.Task.from_features(text, scale=12.0)
    method = methods.create("reta", preset)
    state = method.init(task)

    def step(state, row):
        output, new = method.step(task, state, Sample(row))
        return output.probs, new

    with torch.no_grad():
        traced = make_fx(step)(state, views[0])
        for row in views:
            probs, new = step(state, row)
            again, _ = traced(state, row)
            assert torch.allclose(probs, again, atol=1e-9)
            state = new


def test_lists_of_steps_leave_their_input_alone():
    text, views = world(7, 12, 6, 12, 3)
    task = reta.Task.from_features(text, scale=12.0)
    for preset in PRESETS:
        method = methods.create("reta", preset)
        state = method.init(task)
        for row in views:
            before = states.digest(state)
            with torch.no_grad():
                _, new = method.step(task, state, Sample(row))
            assert states.digest(state) == before
            state = new


def spectra(kind, classes, g):
    """Texts whose eigenvalues fall off, crowd together far below the first, or are mostly none."""
    noise = torch.randn(classes, 48, generator=g, dtype=torch.float64)
    if kind == "falling":
        return noise * torch.arange(1, 49).double().rsqrt()
    if kind == "cone":
        return 6 * torch.randn(48, generator=g, dtype=torch.float64) + noise
    if kind == "steep":
        return noise * torch.logspace(0, -5, 48, dtype=torch.float64)
    return noise[: -(-classes // 5)].repeat_interleave(5, 0)[:classes] + 1e-4 * noise


def projector(axes):
    return axes.double().mT @ axes.double()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["falling", "cone", "steep", "copies"])
@pytest.mark.parametrize("classes", [40, 190])
def test_eigenvectors_turned_in_products_stay_the_exact_ones(classes, kind, dtype):
    """What a CUDA graph does in place of a decomposition, over a stream of ever smaller changes; in fp32 they are
    no worse than what a decomposition in fp32 gives, or nearly. Some texts hardly reach beyond the leading axes:
    there the first changes are large, and the axes are found after some images.
    """
    g = torch.Generator().manual_seed(0)
    text = ops.unit(spectra(kind, classes, g))[None]
    images = ops.unit(text[0] + 0.1 * torch.randn(classes, 48, generator=g, dtype=torch.float64))
    vectors = torch.linalg.eigh(subspace.gram(text[0]))[1].to(dtype)
    rank = 7 if kind == "copies" else 16
    for accepted in range(1, 40):
        change = 5e-4 * torch.randn(text.shape, generator=g, dtype=torch.float64).sign()
        text = ops.unit(text + change / (accepted + 1))
        rows = text[0].to(dtype)
        exact = torch.linalg.svd(rows.double(), full_matrices=False)[2][:rank]
        values, vectors = subspace.turn(vectors, rows, rank)
        turned = subspace.leading(values, vectors, rows, rank)
        plain = subspace.leading(*torch.linalg.eigh(subspace.gram(rows)), rows, rank)
        error, usual = ((projector(axes) - projector(exact)).abs().max() for axes in (turned, plain))
        if kind in ("steep", "copies"):
            assert error < (5e-3 if accepted < 8 else 5e-5), (accepted, error)
            continue
        assert error < max(1e-10 if dtype == torch.float64 else 5e-6, usual), (accepted, error, usual)
        for x in images[::7] if dtype == torch.float64 else ():
            assert torch.equal(committee.votes(text, turned, x), committee.votes(text, exact, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_turning_takes_equal_eigenvalues_and_none(dtype):
    """Where directions are worth the same any will do, also from far off; they become orthonormal and right."""
    eye = torch.eye(6, dtype=dtype)
    start = torch.linalg.qr(torch.randn(6, 6, dtype=dtype, generator=torch.Generator().manual_seed(1)))[0]
    for rows in (eye, torch.cat([eye, eye[:3]]), 0 * eye):
        turned = start
        for _ in range(40):
            values, turned = subspace.turn(turned, rows, 2)
            assert torch.allclose(turned.mT @ turned, eye, atol=0.05)
        assert torch.allclose(turned.mT @ turned, eye, atol=1e-5)
        assert torch.allclose(turned * values @ turned.mT, rows.mT @ rows, atol=1e-5)


def test_a_stream_with_turned_axes_has_the_votes_of_one_with_decomposed_ones(monkeypatch):
    """In fp32, as a CUDA graph runs it, with many classes in a narrow cone as CLIP's texts are."""
    g = torch.Generator().manual_seed(0)
    text = ops.unit(4 * torch.randn(256, generator=g) + torch.randn(300, 256, generator=g))
    views = ops.unit(
        text[torch.randint(300, (40,), generator=g), None] + 0.1 * torch.randn(40, 4, 256, generator=g)
    )
    task = reta.Task.from_features(text[:, None].expand(-1, 3, -1), scale=100.0)
    method = methods.create("reta", "fixed", normaliser="none", cutoff=9.0)
    decomposed = reta.run(method, task, views, device="cpu")

    def turned(vectors, old, rows, rank, changed):
        values, axes = subspace.turn(vectors, rows(), rank)
        return axes, subspace.leading(values, axes, rows(), rank)

    monkeypatch.setattr(subspace, "follow", turned)
    products = reta.run(method, task, views, device="cpu")
    assert int(decomposed.state["count"]) > 30
    assert torch.equal(products.info["votes"], decomposed.info["votes"])
    assert torch.allclose(products.probs, decomposed.probs, atol=1e-5)


def test_without_committee_and_calibration_it_is_a_prototype_cache():
    """Entropy-ordered queues, one unit prototype per class, CLIP and cache logits: nothing else is left."""
    text, views = world(5, 12, 6, 1, 30)
    task = reta.Task.from_features(text, scale=12.0)
    probs, state = reta.run(methods.create("reta", cer=False, ddc=False, views=1), task, views).probs, None
    method, queues = methods.create("reta"), {}
    for i, x in enumerate(views[:, 0]):
        logits = 12.0 * task.text @ x
        h, y = float(torch.special.entr(logits.softmax(-1)).sum()), int(logits.argmax())
        queues[y] = sorted([*queues.get(y, []), (h, i, x)], key=lambda item: item[:2])[: method.slots]
        for c, items in queues.items():
            key = ops.unit(torch.stack([item[2] for item in items]).mean(0))
            logits[c] += method.alpha * torch.exp(-method.beta * (1 - key @ x))
        assert torch.allclose(probs[i].double(), logits.softmax(-1), atol=1e-5), (i, state)


@pytest.mark.parametrize("source", ["all", "last"])
@pytest.mark.parametrize("projection", ["svd", "pca", "lda", "none"])
@pytest.mark.parametrize(("classes", "members"), [(1, 1), (1, 3), (2, 1), (3, 2)])
def test_texts_that_span_next_to_nothing_are_answered(classes, members, projection, source):
    """One class, one member, and classes of one text: there may be no axis to project to."""
    g = torch.Generator().manual_seed(0)
    views = torch.randn(4, 3, 8, generator=g)
    method = methods.create("reta", members=members, projection=projection, proj_source=source)
    for prompts in (torch.randn(classes, 3, 8, generator=g), torch.ones(classes, 3, 8)):
        probs = reta.run(method, reta.Task.from_features(prompts, scale=20.0), views).probs
        assert torch.allclose(probs.sum(-1), torch.ones(4), atol=1e-5)


def test_one_member_is_no_committee():
    probs, state = follow("paper", members=1)
    alone, end = follow("paper", members=1, cer=False)
    assert torch.equal(probs, alone)
    assert torch.equal(state["text"], end["text"])


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "fixed", "released/imagenet"])
def test_memory_of_a_step_with_21000_classes_stays_under_2_gigabytes(preset):
    script = Path(__file__).parents[1] / "benchmarks/step.py"
    done = subprocess.run(
        [sys.executable, str(script), "--memory", "21000", "--preset", preset],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["updated"]
    assert found["peak_bytes"] < 2e9
