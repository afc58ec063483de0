"""Every shared piece by itself against a simple literal version: ties, empty, infinite, NaN, one slot."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, vmap

from reta.methods import ops

fast = settings(max_examples=60, deadline=None, derandomize=True)
numbers = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, math.inf, -math.inf, math.nan])
offers = st.lists(st.tuples(st.integers(0, 2), numbers), max_size=25)
seeds = st.integers(0, 10_000)


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def soft(row: list[float]) -> list[float]:
    top = max(row)
    e = [math.exp(x - top) for x in row]
    return [x / sum(e) for x in e]


def plogp(p: list[float]) -> float:
    return -sum(x * math.log(x) for x in p if x > 0)


class ListQueue:
    """A published class cache: a dict of lists, sorted after every insertion; or first in, first out."""

    def __init__(self, slots: int, fifo: bool = False):
        self.slots, self.fifo, self.items = slots, fifo, {}

    def offer(self, label: int, item: int, score: float) -> bool:
        if not math.isfinite(score):
            return False
        queue = self.items.setdefault(label, [])
        if len(queue) < self.slots:
            queue.append((score, item))
        elif self.fifo:
            queue.pop(0)
            queue.append((score, item))
        elif score < queue[-1][0]:
            queue[-1] = (score, item)
        else:
            return False
        if not self.fifo:
            queue.sort(key=lambda pair: pair[0])
        return True


def play(stream, slots: int, fifo: bool, donate: bool = False):
    """The same offers to the tensors and to the lists; the item is its place in the stream, twice."""
    one, two = torch.zeros(3, slots, 1, dtype=torch.float64), torch.zeros(3, slots, 2, 2, dtype=torch.int32)
    scores, lists, took = torch.full((3, slots), torch.inf, dtype=torch.float64), ListQueue(slots, fifo), []
    for i, (label, score) in enumerate(stream, start=1):
        with ops.donated(donate):
            (one, two), scores, taken = ops.offer(
                (one, two),
                scores,
                torch.tensor(label),
                (torch.tensor([float(i)]), torch.full((2, 2), i)),
                torch.tensor(score, dtype=torch.float64),
                fifo,
            )
        took.append((bool(taken), lists.offer(label, i, score)))
    return one, two, scores, lists, took


@fast
@given(offers, st.integers(1, 4), st.booleans(), st.booleans())
def test_offer_is_the_list_cache(stream, slots, fifo, donate):
    one, two, scores, lists, took = play(stream, slots, fifo, donate)
    assert all(a == b for a, b in took)
    for label in range(3):
        want = lists.items.get(label, [])
        held = torch.isfinite(scores[label])
        assert held.tolist() == [True] * len(want) + [False] * (slots - len(want))
        assert scores[label][held].tolist() == [score for score, _ in want]
        assert one[label][held].flatten().tolist() == [item for _, item in want]
        assert two[label][held][:, 1, 1].tolist() == [item for _, item in want]


@fast
@given(offers, st.integers(1, 4))
def test_insert_is_offer_with_one_table(stream, slots):
    keys, scores = torch.zeros(3, slots, 1, dtype=torch.float64), torch.full((3, slots), torch.inf)
    for i, (label, score) in enumerate(stream, start=1):
        keys, scores, _ = ops.insert(
            keys, scores, torch.tensor(label), torch.tensor([float(i)]), torch.tensor(score)
        )
    one, _, other, _, _ = play(stream, slots, fifo=False)
    assert torch.equal(keys, one) and torch.equal(scores.double(), other)


def test_insert_leaves_its_input_alone_unless_it_is_donated():
    keys, scores = torch.zeros(2, 2, 3), torch.full((2, 2), torch.inf)
    label, key, score = torch.tensor(1), torch.ones(3), torch.tensor(0.5)
    new_keys, new_scores, taken = ops.insert(keys, scores, label, key, score)
    assert taken and keys.sum() == 0 and torch.isinf(scores).all() and new_keys.sum() == 3
    with ops.donated():
        same_keys, same_scores, _ = ops.insert(keys, scores, label, key, score)
    assert same_keys.data_ptr() == keys.data_ptr() and same_scores.data_ptr() == scores.data_ptr()
    assert torch.equal(keys, new_keys) and torch.equal(scores, new_scores)


def test_rows_are_read_written_and_assigned():
    table, row, index = torch.arange(6.0).reshape(3, 2), torch.tensor([9.0, 8.0]), torch.tensor(1)
    assert ops.get_row(table, index).tolist() == [2.0, 3.0]
    assert ops.put_row(table, index, row)[1].tolist() == [9.0, 8.0] and table[1].tolist() == [2.0, 3.0]
    assert ops.assign(table, table + 1) is not table
    with ops.donated():
        assert ops.put_row(table, index, row) is table and table[1].tolist() == [9.0, 8.0]
        assert ops.assign(table, table * 0) is table and table.sum() == 0
    with ops.donated(), ops.donated(False):
        assert ops.assign(table, table + 1) is not table


def test_unit_rows_and_zero_rows():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert torch.allclose(ops.unit(x), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@fast
@given(seeds, st.integers(1, 5), st.integers(1, 6), st.sampled_from([1.0, 30.0, 300.0]))
def test_entropies(seed, views, classes, scale):
    logits = scale * rand(views, classes, seed=seed)
    p = [soft(row) for row in logits.tolist()]
    assert ops.entropy(logits).tolist() == pytest.approx([plogp(row) for row in p], abs=1e-9)
    mean = [sum(column) / views for column in zip(*p, strict=True)]
    together = ops.marginal(logits)
    assert together.exp().tolist() == pytest.approx(mean, abs=1e-9)
    assert float(ops.entropy(together)) == pytest.approx(plogp(mean), abs=1e-9)


def test_entropy_of_a_class_that_is_impossible_is_finite():
    logits = torch.tensor([0.0, 0.0, -torch.inf])
    assert float(ops.entropy(logits)) == pytest.approx(math.log(2))
    assert torch.isfinite(ops.entropy(torch.tensor([1e4, -1e4, 0.0])))


@fast
@given(seeds, st.integers(1, 30), st.sampled_from([0.01, 0.1, 0.3, 1.0]))
def test_confident_views(seed, views, share):
    logits = rand(views, 3, seed=seed)
    logits[views // 2] = logits[0]
    scores = ops.entropy(logits).tolist()
    order = sorted(range(views), key=lambda i: scores[i])
    assert ops.confident(logits, share).tolist() == order[: max(1, math.floor(views * share))]


def test_published_counts_of_views():
    assert [ops.kept(*pair) for pair in [(64, 0.1), (64, 0.3), (32, 0.1), (1, 0.1)]] == [6, 19, 3, 1]


@fast
@given(seeds, st.integers(1, 25), st.integers(1, 5))
def test_evidence(seed, views, classes):
    features, logits = rand(views, 4, seed=seed), 10 * rand(views, classes, seed=seed + 1)
    seen = ops.evidence(features, logits, 0.1)
    order = sorted(range(views), key=lambda i: float(ops.entropy(logits[i])))[: max(1, views // 10)]
    p = torch.stack([logits[i].softmax(-1) for i in order]).mean(0)
    assert torch.allclose(seen.feature, torch.stack([features[i] for i in order]).mean(0))
    assert torch.allclose(seen.logits, torch.stack([logits[i] for i in order]).mean(0))
    assert torch.allclose(seen.log_probs.exp(), p) and int(seen.label) == int(seen.logits.argmax())
    assert float(seen.entropy) == pytest.approx(plogp(p.tolist()), abs=1e-9)


@pytest.mark.parametrize(("classes", "base", "want"), [(10, "ln", 1.0), (10, "log2", math.log(2))])
def test_normalised_entropy(classes, base, want):
    assert float(ops.normalised(torch.tensor(math.log(classes)), classes, base)) == pytest.approx(want)
    assert float(ops.normalised(torch.tensor(0.0), 1, base)) == 0


@fast
@given(seeds, st.integers(1, 4), st.integers(1, 3))
def test_prototypes_are_means_of_what_is_held(seed, classes, slots):
    keys, scores = rand(classes, slots, 3, seed=seed), rand(classes, slots, seed=seed + 1)
    scores = torch.where(scores > 0, scores, torch.inf)
    keys = torch.where(torch.isfinite(scores)[..., None], keys, 0.0)  # free slots, as `insert` leaves them
    proto, held = ops.prototypes(keys, scores)
    for c in range(classes):
        items = [keys[c, s] for s in range(slots) if math.isfinite(scores[c, s])]
        want = sum(items) / len(items) if items else torch.zeros(3, dtype=torch.float64)
        assert bool(held[c]) == bool(items) and torch.allclose(proto[c], want)


@fast
@given(seeds, st.floats(0, 10), st.floats(0, 10))
def test_affinity_and_cache_logits(seed, alpha, beta):
    keys, query = ops.unit(rand(4, 2, 3, seed=seed)), ops.unit(rand(3, seed=seed + 1))
    held = rand(4, 2, seed=seed) > 0
    got = ops.cache_logits(query, keys, held, alpha, beta)
    for c in range(4):
        for s in range(2):
            near = sum(a * b for a, b in zip(keys[c, s].tolist(), query.tolist(), strict=True))
            want = alpha * math.exp(-beta * (1 - near)) if held[c, s] else 0.0
            assert float(got[c, s]) == pytest.approx(want, abs=1e-9)


def literal_contrastive(q, k, held, tau):
    """Cross-entropy of every held query over the held keys, averaged, with Python loops."""
    there = [i for i, h in enumerate(held.tolist()) if h]
    losses = [0 * (q.sum() + k.sum())]
    for i in there:
        row = torch.stack([q[i] @ k[j] for j in there]) / tau
        losses.append((row.logsumexp(0) - row[there.index(i)]) / len(there))
    return sum(losses)


@fast
@given(
    seeds,
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.sampled_from([0.01, 0.1, 1.0]),
    st.booleans(),
    st.sampled_from([2**18, 10]),
    st.sampled_from([2**24, 0]),
)
def test_the_gradients_of_the_contrast(seed, mask, tau, symmetric, block, kept):
    """Against autograd through loops, in one block or several, similarities kept or made twice."""
    held = torch.tensor(mask)
    q, k = ops.unit(rand(len(mask), 4, seed=seed)), ops.unit(rand(len(mask), 4, seed=seed + 1))

    def loss(a, b):
        there = literal_contrastive(a, b, held, tau)
        return there + literal_contrastive(b, a, held, tau) if symmetric else there

    want = grad(loss, argnums=(0, 1))(q, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reta.methods.lazy.BLOCK", block)
        patch.setattr("reta.methods.contrast.KEPT", kept)
        contrast = ops.Contrast(q, k, held, tau, symmetric=symmetric)
        got = contrast.query_grad(), contrast.key_grad()
    for a, b in zip(got, want, strict=True):
        assert torch.allclose(a, b, atol=1e-9)


def test_the_contrast_is_one_thing_where_shapes_may_depend_on_data_and_where_not():
    """Eagerly only the classes in use are computed; under `vmap` all are, and masked."""
    held = torch.tensor([[1, 1, 0, 1, 0, 0], [0] * 6, [1] * 6, [0, 0, 0, 0, 1, 0]], dtype=torch.bool)
    q, k = ops.unit(rand(6, 5)), ops.unit(rand(6, 5, seed=1))

    def grads(mask):
        contrast = ops.Contrast(q, k, mask, 0.01, symmetric=True)
        return contrast.query_grad(), contrast.key_grad()

    many = vmap(grads)(held)
    for i, mask in enumerate(held):
        for one, rows in zip(grads(mask), many, strict=True):
            assert torch.allclose(one, rows[i], atol=1e-12)


@fast
@given(seeds, st.integers(1, 4), st.integers(1, 5), st.sampled_from([1.0, 20.0]))
def test_entropy_gradients(seed, views, classes, scale):
    logits = scale * rand(views, classes, seed=seed)
    assert torch.allclose(
        ops.entropy_grad(logits[0]), grad(lambda x: plain_entropy(x.softmax(-1)))(logits[0]), atol=1e-9
    )
    want = grad(lambda x: plain_entropy(x.softmax(-1).mean(0)))(logits)
    assert torch.allclose(ops.marginal_grad(logits), want, atol=1e-9)


def plain_entropy(p: torch.Tensor) -> torch.Tensor:
    return torch.special.entr(p).sum()


def test_gradients_are_finite_where_a_class_has_probability_zero():
    logits = torch.tensor([[800.0, -800.0, 0.0], [0.0, 0.0, -3000.0]])
    assert torch.isfinite(ops.entropy_grad(logits)).all() and torch.isfinite(ops.marginal_grad(logits)).all()


@fast
@given(seeds)
def test_unit_gradient(seed):
    x, g = rand(3, 4, seed=seed), rand(3, 4, seed=seed + 1)
    want = grad(lambda y: (ops.unit(y) * g).sum())(x)
    assert torch.allclose(ops.unit_grad(x, g), want, atol=1e-9)
    assert ops.unit_grad(torch.zeros(1, 4), torch.ones(1, 4)).tolist() == [[0.0] * 4]


@fast
@given(seeds, st.sampled_from([1e-8, 1e-3]), st.sampled_from([0.0, 0.1]))
def test_adam_step_is_the_first_step_of_adamw(seed, eps, decay):
    g = rand(7, seed=seed) * 1e-3
    r = torch.nn.Parameter(torch.zeros(7, dtype=torch.float64))
    optimiser = torch.optim.AdamW([r], lr=5e-3, eps=eps, weight_decay=decay)
    r.grad = g.clone()
    optimiser.step()
    assert torch.allclose(ops.adam_step(torch.zeros_like(g), g, 5e-3, eps), r.detach(), atol=1e-12)


@pytest.mark.parametrize("size", [1e-4, 3e-3, 5e-3, 6e-3, 0.02, 1.0])
def test_fp16_adam_step_is_adamw_with_fp16_state(size):
    g = (size * torch.linspace(-1, 1, 41)).half()
    r = torch.nn.Parameter(torch.zeros(41, dtype=torch.float16))
    optimiser = torch.optim.AdamW([r], lr=1.0, eps=1e-3, weight_decay=0.1, foreach=False)
    r.grad = g.clone()
    optimiser.step()
    got, want = ops.adam_step(torch.zeros(41).double(), g.double(), 1.0, 1e-3, "fp16"), r.detach().double()
    assert torch.allclose(got, want, rtol=0.1, atol=1e-3)
    assert size > 5e-3 or torch.allclose(got, -1000 * g.double())


def test_text_of_a_class():
    from reta.task import Task

    task = Task.from_features([rand(3, 4), rand(1, 4, seed=1)])
    assert torch.equal(ops.class_text(task, "first"), task.prompts[:, 0])
    assert torch.equal(ops.class_text(task, "pooled"), task.text)


def test_a_queue_vectorises_over_everything():
    stream = [(0, 0.5), (0, 0.2), (1, 0.3), (0, 0.2), (0, 0.1), (0, math.nan)]
    keys, scores = torch.zeros(2, 2, 2, 1), torch.full((2, 2, 2), torch.inf)
    for i, (label, score) in enumerate(stream):
        labels, values = torch.tensor([label, 1 - label]), torch.tensor([score, score])
        keys, scores, _ = vmap(ops.insert)(keys, scores, labels, torch.full((2, 1), float(i)), values)
    assert torch.equal(scores[0], scores[1].flip(0)) and torch.equal(keys[0], keys[1].flip(0))
    assert torch.allclose(scores[0, 0], torch.tensor([0.1, 0.2])) and keys[0, 0].flatten().tolist() == [
        4.0,
        1.0,
    ]
