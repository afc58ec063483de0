"""Streams: seeded, complete, of the shape their name says, with exact shares of what does not belong."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import reta
from reta.bench import streams
from reta.bench.streams import STREAMS, create
from reta.errors import BadInput
from reta.task import Task

LABELS = torch.arange(600) % 6
DOMAINS = torch.arange(600) // 200


def changes(values: torch.Tensor) -> int:
    return int((values.diff() != 0).sum())


@pytest.mark.parametrize("kind", STREAMS)
def test_the_same_seed_is_the_same_stream(kind):
    a, b, c = (create(kind, seed=s).order(LABELS, DOMAINS) for s in (1, 1, 2))
    assert torch.equal(a.index, b.index) and not torch.equal(a.index, c.index)
    assert a.index.dtype == torch.int64 and not (a.unknown | a.duplicate | a.poison).any()


@pytest.mark.parametrize("kind", [k for k in STREAMS if k not in ("label-shift",)])
def test_every_row_comes_once(kind):
    assert sorted(create(kind).order(LABELS, DOMAINS).index.tolist()) == list(range(600))


@pytest.mark.parametrize("kind", STREAMS)
def test_parameters_make_the_stream_again(kind):
    stream = create(kind, seed=4, unknown=0.1, unknown_classes=(5,), length=100)
    saved = json.loads(json.dumps(stream.parameters()))
    assert create(**saved) == stream
    assert torch.equal(create(**saved).order(LABELS, DOMAINS).index, stream.order(LABELS, DOMAINS).index)


def test_sorted_visits_each_class_once():
    order = create("sorted").order(LABELS).index
    assert changes(LABELS[order]) == 5
    first = create("sorted", seed=1).order(LABELS).index
    assert LABELS[order].unique_consecutive().tolist() != LABELS[first].unique_consecutive().tolist()
    assert order[:100].tolist() != sorted(order[:100].tolist())


def test_correlation_falls_with_the_concentration():
    seen = [
        changes(LABELS[create("correlated", concentration=c).order(LABELS).index])
        for c in (0.001, 0.1, 1, 100)
    ]
    assert seen[0] < 300 and seen == sorted(seen) and seen[-1] > 450


def test_abrupt_and_gradual_changes():
    abrupt = DOMAINS[create("abrupt").order(LABELS, DOMAINS).index]
    assert changes(abrupt) == 2
    gradual = DOMAINS[create("gradual", width=0.5).order(LABELS, DOMAINS).index]
    assert changes(gradual) > 20
    assert set(gradual[:140].tolist()) == {0} and set(gradual[460:].tolist()) == {2}
    around = [float((gradual[a : a + 20] == 1).double().mean()) for a in (160, 190, 220)]
    assert around[0] < around[1] < around[2]
    still = DOMAINS[create("gradual", width=0).order(LABELS, DOMAINS).index]
    assert changes(still) == 2


def test_recurring_takes_turns():
    seen = DOMAINS[create("recurring", rounds=4).order(LABELS, DOMAINS).index]
    assert seen.unique_consecutive().tolist() == [0, 1, 2] * 4


def test_mixed_is_balanced_over_domains():
    domains = torch.cat([torch.zeros(400), torch.ones(150), torch.full((50,), 2)]).long()
    order = create("mixed").order(LABELS, domains).index
    assert torch.bincount(domains[order]).tolist() == [50, 50, 50]
    assert changes(domains[order]) > 60


def test_label_shift_is_a_long_tail():
    order = create("label-shift", smallest=0.1).order(LABELS).index
    counts = torch.bincount(LABELS[order]).sort(descending=True).values.tolist()
    assert counts == [100, 63, 40, 25, 16, 10]
    long = create("label-shift", smallest=0.1, length=2000).order(LABELS).index
    shares = torch.bincount(LABELS[long]).sort(descending=True).values / 2000
    assert torch.allclose(shares, torch.tensor(counts) / 254, atol=0.02)


def test_shares_are_exact():
    pool = torch.tensor([3, 9, 27])
    stream = create("iid", length=1000, unknown=0.2, unknown_classes=(1, 4), duplicates=0.1, poison=0.05)
    order = stream.order(LABELS, poison=pool)
    assert len(order.index) == 1000
    assert [int(f.sum()) for f in (order.unknown, order.duplicate, order.poison)] == [200, 100, 50]
    assert set(LABELS[order.index[order.unknown]].tolist()) == {1, 4}
    ordinary = order.index[order.clean()]
    assert not set(ordinary.tolist()) & set(pool.tolist()) and not set(LABELS[ordinary].tolist()) & {1, 4}
    assert set(order.index[order.poison].tolist()) == set(pool.tolist())
    again = order.duplicate.nonzero()[:, 0]
    assert torch.equal(order.index[again], order.index[again - 1])
    assert not (order.duplicate & (order.unknown | order.poison)).any()


def test_strangers_are_spread_and_left_out_when_not_asked_for():
    stream = create("sorted", unknown=0.25, unknown_classes=(0,))
    order = stream.order(LABELS)
    assert int(order.unknown.sum()) == round(500 / 0.75 * 0.25) and int(order.clean().sum()) == 500
    halves = order.unknown.double().chunk(2)
    assert abs(float(halves[0].mean() - halves[1].mean())) < 0.1
    without = create("iid", unknown_classes=(0,)).order(LABELS)
    assert len(without.index) == 500 and 0 not in LABELS[without.index].tolist()


def test_a_long_stream_goes_on_in_the_same_manner():
    order = create("abrupt", length=1500).order(LABELS, DOMAINS)
    assert len(order.index) == 1500
    assert DOMAINS[order.index].unique_consecutive().tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    short = create("abrupt", length=50).order(LABELS, DOMAINS)
    assert torch.equal(short.index, order.index[:50])


def test_a_run_in_a_streams_order():
    views = torch.randn(600, 2, 8, generator=torch.Generator().manual_seed(0))
    task = Task.from_features(torch.randn(6, 1, 8, generator=torch.Generator().manual_seed(1)))
    method = reta.methods.create("zeroshot")
    order = create("correlated", duplicates=0.1).order(LABELS)
    out = reta.run(method, task, views, LABELS, order=order.index)
    plain = reta.run(method, task, views, LABELS)
    assert torch.equal(out.labels, LABELS[order.index]) and torch.equal(out.probs, plain.probs[order.index])


def test_confident_wrong_and_known_labels():
    probs = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.45, 0.55]])
    assert streams.confident_wrong(probs, torch.tensor([1, 0, 0, 0]), 2).tolist() == [0, 2]
    with pytest.raises(BadInput, match="only 3 of 4"):
        streams.confident_wrong(probs, torch.tensor([1, 0, 0, 0]), 4)
    assert streams.known_labels(torch.tensor([0, 1, 2, 3]), [0, 2]).tolist() == [-1, 0, -1, 1]
    assert streams.known_labels(torch.tensor([0, 1]), []).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: create("idd"), "did you mean 'iid'"),
        (lambda: create("iid", sed=1), "did you mean 'seed'"),
        (lambda: create("iid", unknown=1.0), "share from 0 to below 1"),
        (lambda: create("iid", unknown=0.1), "needs unknown_classes"),
        (lambda: create("iid", duplicates=0.6, poison=0.5), "leave no ordinary sample"),
        (lambda: create("iid", length=0), "at least 1"),
        (lambda: create("correlated", concentration=0), "above 0"),
        (lambda: create("gradual", width=2), "from 0 to 1"),
        (lambda: create("recurring", rounds=0), "at least 1"),
        (lambda: create("label-shift", smallest=0), "above 0"),
        (lambda: create("iid").order([]), "not empty"),
        (lambda: create("iid").order(LABELS, DOMAINS[:3]), "one length"),
        (lambda: create("iid", poison=0.1).order(LABELS), "give poison=rows"),
        (lambda: create("iid", unknown=0.1, unknown_classes=(9,)).order(LABELS), "give unknown_classes"),
        (lambda: create("iid", unknown_classes=tuple(range(6))).order(LABELS), "no ordinary rows"),
        (lambda: streams.Stream().order(LABELS), "use one of the streams"),
    ],
)
def test_what_cannot_be_meant_is_refused(act, message):
    with pytest.raises(BadInput, match=message):
        act()


def test_nothing_global_is_drawn_from():
    np.random.seed(1)
    before = np.random.get_state(legacy=True)[1].copy(), torch.random.get_rng_state()
    create("correlated").order(LABELS)
    assert np.array_equal(before[0], np.random.get_state(legacy=True)[1]) and torch.equal(
        before[1], torch.random.get_rng_state()
    )


def test_poison_of_an_unknown_class_comes_as_poison_alone():
    pool = (LABELS == 1).nonzero()[:20, 0]
    stream = create("iid", unknown=0.2, unknown_classes=(1,), poison=0.1)
    order = stream.order(LABELS, poison=pool)
    assert torch.equal(torch.isin(order.index, pool), order.poison)
    assert torch.equal(torch.isin(order.index, (LABELS == 1).nonzero()[20:, 0]), order.unknown)
