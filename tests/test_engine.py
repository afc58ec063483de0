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


def test_lists_of_samples_and_arrays_are_taken(world):
    task, views, labels = world
    whole = reta.run(Memory(), task, views, labels)
    order = list(reversed(range(80)))
    for other in (
        reta.run(Memory(), task, [Sample(row) for row in views], labels.tolist()),
        reta.run(Memory(), task, views.numpy(), labels.numpy()),
    ):
        assert torch.equal(other.probs, whole.probs) and torch.equal(other.labels, labels)
    turned = reta.run(Memory(), task, views.numpy(), labels, order=order)
    assert torch.equal(turned.probs, reta.run(Memory(), task, views.flip(0)).probs)
    assert torch.equal(turned.labels, labels.flip(0))


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
    assert out.predictions[7] == -1 and (out.predictions[out.valid] >= 0).all()
    right = torch.where(out.valid, out.predictions, 0)  # a label of -1 marks what belongs to no class
    assert reta.run(Memory(), task, views, torch.where(out.valid, right, -1)).accuracy == 100 * 79 / 80
    assert out.info["logits"][7].isnan().all()
    assert reta.engine.states.equal(out.state, clean.state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged(Memory):
    """Memory of what the second model sees."""

    needs = frozenset({"reward"})

    def step(self, task, state, sample):
        return super().step(task, state, Sample(sample.reward))


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 0.0])
def test_a_bad_feature_of_the_second_model_never_enters(world, poison):
    task, views, _ = world
    task = dataclasses.replace(task, reward=task)
    reward = views.clone()
    reward[7, 0] = poison
    clean = reta.run(Judged(), task, [Sample(row, row) for row in torch.cat([views[:7], views[8:]])])
    for out in (
        reta.run(Judged(), task, views, reward=reward),
        reta.run(Judged(), task, [Sample(*rows) for rows in zip(views, reward, strict=True)]),
    ):
        assert out.valid.tolist() == [i != 7 for i in range(80)]
        assert reta.engine.states.equal(out.state, clean.state)
    # a method that does not look at it is not disturbed
    assert reta.run(Memory(), task, views, reward=reward).valid.all()


def test_wrong_shapes_are_named(world):
    task, views, labels = world
    with pytest.raises(reta.BadInput, match=r"must be \[N,V,D\]"):
        reta.run(Memory(), task, views[:, 0])
    for empty in (views[:, :0], [Sample(views[0, :0])]):
        with pytest.raises(reta.BadInput, match="with a view or more"):
            reta.run(Memory(), task, empty)
    with pytest.raises(reta.BadInput, match="16.*same model"):
        reta.run(Memory(), task, torch.randn(4, 2, 8))
    with pytest.raises(reta.BadInput, match="79 labels for 80 samples"):
        reta.run(Memory(), task, views, labels[:79])
    with pytest.raises(reta.BadInput, match="80 labels for 80 samples: give one number"):
        reta.run(Memory(), task, views, labels[:, None])
    with pytest.raises(reta.BadInput, match=r"must give reta.Sample, not Tensor.*stack them"):
        reta.run(Memory(), task, list(views))
    with pytest.raises(reta.BadInput, match="order and reward need a tensor"):
        reta.run(Memory(), task, [Sample(row) for row in views], order=[1, 0])
    with pytest.raises(reta.BadInput, match="features have 79 rows, the views 80"):
        reta.run(Memory(), task, views, reward=views[:79])
    with pytest.raises(reta.BadInput, match="device 'abacus' cannot be used"):
        reta.run(Memory(), task, views, device="abacus")
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


@pytest.mark.parametrize("name", ["tda", "dpe", "reta"])
def test_sweep_passes_over_bad_samples_as_a_run_does(world, name):
    task, views, labels = world
    views = views.clone()
    views[3], views[40, 1], views[60] = float("nan"), float("inf"), 0
    method = reta.methods.create(name)
    swept = reta.sweep(method, task, views, labels, grid={"views": [2]}, orders=2)
    for order, row in zip(stream_orders(2, 80), swept.predictions[0], strict=True):
        single = reta.run(dataclasses.replace(method, views=2), task, views, order=order)
        assert int(single.valid.sum()) == 77
        assert torch.equal(row, single.predictions)
        assert (row == -1).sum() == 3
    first = reta.run(dataclasses.replace(method, views=2), task, views, labels)
    assert float(swept.accuracy[0, 0]) == pytest.approx(first.accuracy)


class Loose:
    """A method that is no dataclass and knows nothing of Base."""

    views, needs, episodic = 1, frozenset(), False

    def __init__(self, pull: float = 0.1):
        self.pull = pull

    def init(self, task):
        return {"mean": torch.zeros(task.dim, dtype=task.prompts.dtype, device=task.prompts.device)}

    def step(self, task, state, sample):
        mean = 0.9 * state["mean"] + 0.1 * sample.views[0]
        logits = task.scale * (sample.views[0] + self.pull * mean) @ task.text.mT
        return reta.Output(logits.softmax(-1), {}), {"mean": mean}


def test_a_class_that_only_follows_the_protocol_runs(world):
    task, views, labels = world
    assert reta.check_method(Loose(), quiet=True) == []
    assert reta.run(Loose(), task, views, labels).info == {}
    with pytest.raises(reta.BadInput, match="Loose is no dataclass"):
        reta.sweep(Loose(), task, views, labels, grid={"pull": [0.1]})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Differentiating(Memory):
    """A plug-in that takes a gradient inside its step."""

    def step(self, task, state, sample):
        with torch.enable_grad():
            shift = torch.zeros_like(task.text).requires_grad_()
            p = (task.scale * sample.views @ (task.text + shift).mT).softmax(-1).mean(0)
            (g,) = torch.autograd.grad(-(p * p.log()).sum(), shift)
        logits = task.scale * (task.text - 0.01 * g.sign()) @ sample.views[0]
        return reta.Output(logits.softmax(-1), {}), state


def test_a_plug_in_may_differentiate_inside_its_step(world):
    task, views, _ = world
    assert bool(reta.run(Differentiating(), task, views, device="cpu").probs.isfinite().all())


@pytest.mark.parametrize("name", [n for n in reta.methods.names() if not reta.methods.find(n).needs])
def test_what_a_run_gives_back_can_be_used_with_gradients(world, name, monkeypatch):
    task, views, _ = world
    method = reta.methods.create(name)
    out = reta.run(method, task, views, device="cpu")
    given = [out.probs, *out.info.values(), *out.state.values()]
    assert not any(tensor.is_inference() for tensor in given)
    monkeypatch.setattr(reta.engine, "quiet", lambda method, where: torch.no_grad)
    plain = reta.run(method, task, views, device="cpu")
    assert torch.equal(plain.probs, out.probs) and reta.engine.states.equal(plain.state, out.state)


def test_sweep_refuses_unknown_fields(world):
    task, views, labels = world
    with pytest.raises(reta.BadInput, match="79 labels for 80 samples"):
        reta.sweep(Pulled(), task, views, labels[:79], grid={"pull": [1.0]})
    with pytest.raises(reta.BadInput, match="no values for 'pull'"):
        reta.sweep(Pulled(), task, views, labels, grid={"pull": []})
    with pytest.raises(reta.BadInput, match="lanes=0 and orders=1 must be at least 1"):
        reta.sweep(Pulled(), task, views, labels, grid={"pull": [1.0]}, lanes=0)
    with pytest.raises(reta.BadInput, match="TPT asks for prompt; a sweep is for methods on features"):
        reta.sweep(reta.methods.create("tpt"), task, views, labels, grid={"views": [1]})
    with pytest.raises(reta.BadInput, match="did you mean 'pull'"):
        reta.sweep(Pulled(), task, views, labels, grid={"pul": [1.0]})


CAPTURED = [
    (name, preset)
    for name in reta.methods.names()
    if not reta.methods.find(name).needs
    for preset in reta.methods.presets(name)
]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")
@pytest.mark.parametrize(("name", "preset"), CAPTURED)
def test_graph_and_eager_agree(world, name, preset):
    task, views, labels = world
    method = reta.methods.create(name, preset)
    eager = reta.run(method, task, views, labels, engine="eager")
    graph = reta.run(method, task, views, labels, engine="graph")
    assert torch.allclose(eager.probs, graph.probs, atol=1e-4)


def test_a_graph_without_a_gpu_is_refused(world):
    task, views, _ = world
    with pytest.raises(reta.BadInput, match="a graph needs a GPU"):
        reta.run(Memory(), task, views, engine="graph", device="cpu")
