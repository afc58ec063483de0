"""Running streams: tensors, iterables and orders agree; bad samples are flagged; sweeps equal single runs."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import reta
from reta.checks import synthetic, views_of
from reta.grid import stream_orders
from reta.sample import Sample
from tests.test_checks import Memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pulled(Memory):
    """Memory with a real number to sweep over."""

    pull: float = reta.methods.base.param(0.1, "weight of the memory", low=0.0)

    def step(self, task, state, sample):
        count = state["count"] + 1
        mean = state["mean"] + (sample.views[0] - state["mean"]) / count
        logits = task.scale * (sample.views[0] - self.pull * mean) @ task.text.mT
        return reta.Output(logits.softmax(-1), {"logits": logits}), {"mean": mean, "count": count}


@pytest.fixture
def world():
    task = synthetic(6)
    return task, views_of(task, n=80), torch.arange(80) % 6


def test_tensor_and_iterable_agree(world):
    task, views, _ = world
    a = reta.run(Memory(), task, views)
    b = reta.run(Memory(), task, (Sample(row) for row in views))
    assert torch.equal(a.probs, b.probs)
    assert reta.engine.states.equal(a.state, b.state)


def test_rows_are_probabilities_and_half_precision_is_taken(world):
    task, views, labels = world
    out = reta.run(Memory(), task, views.half(), labels)
    assert out.probs.dtype == torch.float32
    assert torch.allclose(out.probs.sum(-1), torch.ones(80), atol=1e-5)
    assert out.accuracy == pytest.approx(100 * (out.probs.argmax(-1) == labels).float().mean().item())


def test_order_reorders_labels_too(world):
    task, views, labels = world
    order = torch.randperm(80, generator=torch.Generator().manual_seed(3))
    a = reta.run(Memory(), task, views, labels, order=order)
    b = reta.run(Memory(), task, views[order], labels[order])
    assert torch.equal(a.probs, b.probs)
    assert torch.equal(a.labels, b.labels)


def test_a_run_can_go_on(world):
    task, views, _ = world
    whole = reta.run(Memory(), task, views)
    first = reta.run(Memory(), task, views[:33])
    kept = reta.engine.states.clone(first.state)
    second = reta.run(Memory(), task, views[33:], state=first.state)
    assert torch.equal(torch.cat([first.probs, second.probs]), whole.probs)
    assert reta.engine.states.equal(first.state, kept)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 0.0])
def test_a_bad_feature_never_enters(world, poison):
    task, views, _ = world
    views = views.clone()
    views[7, 0] = poison
    out = reta.run(Memory(), task, views)
    clean = reta.run(Memory(), task, torch.cat([views[:7], views[8:]]))
    assert out.valid.tolist() == [i != 7 for i in range(80)]
    assert torch.allclose(out.probs[7], torch.full((6,), 1 / 6))
    assert out.info["logits"][7].isnan().all()
    assert reta.engine.states.equal(out.state, clean.state)


def test_wrong_shapes_are_named(world):
    task, views, labels = world
    with pytest.raises(reta.BadInput, match=r"must be \[N,V,D\]"):
        reta.run(Memory(), task, views[:, 0])
    with pytest.raises(reta.BadInput, match="16.*same model"):
        reta.run(Memory(), task, torch.randn(4, 2, 8))
    with pytest.raises(reta.BadInput, match="79 labels for 80 samples"):
        reta.run(Memory(), task, views, labels[:79])
    with pytest.raises(reta.BadInput, match="unknown engine"):
        reta.run(Memory(), task, views, engine="magic")
    with pytest.raises(reta.BadInput, match="needs labels"):
        _ = reta.run(Memory(), task, views).accuracy


def test_empty_stream(world):
    task, views, _ = world
    out = reta.run(Memory(), task, views[:0])
    assert out.probs.shape == (0, 6)


def test_sweep_equals_single_runs(world):
    task, views, labels = world
    grid = {"pull": [0.0, 0.3, 0.9], "views": [1]}
    swept = reta.sweep(Pulled(), task, views, labels, grid=grid, orders=3, lanes=4)
    orders = stream_orders(3, 80)
    assert len(swept.settings) == 3
    for s, setting in enumerate(swept.settings):
        for o, order in enumerate(orders):
            single = reta.run(Pulled(**setting), task, views, labels, order=order)
            assert torch.equal(swept.predictions[s, o], single.predictions)
            assert float(swept.accuracy[s, o]) == pytest.approx(single.accuracy, abs=1e-3)
    assert swept.rows()[0]["accuracy"] >= swept.rows()[-1]["accuracy"]


def test_sweep_refuses_unknown_fields(world):
    task, views, labels = world
    with pytest.raises(reta.BadInput, match="did you mean 'pull'"):
        reta.sweep(Pulled(), task, views, labels, grid={"pul": [1.0]})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")
@pytest.mark.parametrize("name", [n for n in reta.methods.names() if not reta.methods.find(n).needs])
def test_graph_and_eager_agree(world, name):
    task, views, labels = world
    eager = reta.run(reta.methods.create(name), task, views, labels, engine="eager")
    graph = reta.run(reta.methods.create(name), task, views, labels, engine="graph")
    assert torch.allclose(eager.probs, graph.probs, atol=1e-4)


def test_a_graph_without_a_gpu_is_refused(world):
    task, views, _ = world
    with pytest.raises(reta.BadInput, match="a graph needs a GPU"):
        reta.run(Memory(), task, views, engine="graph", device="cpu")
