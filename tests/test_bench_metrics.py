"""Metrics against slow definitions, paired tests against other implementations, caches against the real ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reta import engine, methods
from reta.bench import metrics
from reta.bench.compare import DRAWS, compare, interval, mcnemar
from reta.bench.replay import replay, slots_of
from reta.checks import synthetic, views_of
from reta.errors import BadInput


def slow_ece(probs: list[list[float]], labels: list[int], bins: int = 20) -> float:
    total = 0.0
    for b in range(bins):
        inside = [i for i, p in enumerate(probs) if b / bins < max(p) <= (b + 1) / bins]
        if inside:
            right = sum(probs[i].index(max(probs[i])) == labels[i] for i in inside) / len(inside)
            sure = sum(max(probs[i]) for i in inside) / len(inside)
            total += len(inside) / len(probs) * abs(right - sure)
    return 100 * total


@pytest.mark.parametrize("seed", range(3))
def test_calibration_agrees_with_its_definition(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    probs = (3 * torch.randn(200, 7, generator=g)).softmax(-1)
    labels = torch.randint(7, (200,), generator=g)
    found = metrics.calibration(probs, labels)
    assert found["ece"] == pytest.approx(slow_ece(probs.tolist(), labels.tolist()), abs=1e-3)
    assert found["nll"] == pytest.approx(
        -sum(math.log(p[y]) for p, y in zip(probs.tolist(), labels.tolist(), strict=True)) / 200, abs=1e-5
    )


@pytest.mark.parametrize("wrong", [torch.randn(4, 3), torch.full((4, 3), 0.5), torch.full((4, 3), 2.0)])
def test_what_is_not_a_probability_is_refused(wrong: torch.Tensor) -> None:
    with pytest.raises(BadInput, match="probabilities must"):
        metrics.calibration(wrong, torch.zeros(4, dtype=torch.long))


def test_reliability_counts_every_answer_once() -> None:
    confidence = torch.tensor([0.05, 0.051, 0.99, 1.0, 0.5])
    rows = metrics.reliability(confidence, torch.tensor([True, False, True, False, True]))
    assert sum(row[0] for row in rows) == 5 and rows[0][0] == 1 and rows[1][0] == 1
    assert rows[19] == [2, pytest.approx(0.995), 0.5]


def test_per_class_leaves_absent_classes_out() -> None:
    assert metrics.per_class(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 3) == [100.0, 50.0, None]


def test_unknown_images_are_told_by_confidence() -> None:
    confidence, known = torch.tensor([0.9, 0.8, 0.3, 0.2]), torch.tensor([True, True, False, False])
    assert metrics.unknown(confidence, known) == 100.0
    assert metrics.unknown(confidence, ~known) == 0.0
    assert metrics.unknown(confidence, torch.ones(4).bool()) is None


def test_changes() -> None:
    before, now, labels = torch.tensor([0, 0, 1, 2]), torch.tensor([1, 0, 0, 0]), torch.tensor([1, 0, 1, 1])
    found = metrics.changes(now, before, labels)
    assert found == {"changed": 75.0, "better": pytest.approx(100 / 3), "worse": pytest.approx(100 / 3)}


def test_running_is_the_share_so_far() -> None:
    hits = torch.tensor([1.0, 0.0, 1.0, 0.0])
    assert metrics.running(hits, torch.ones(4)) == [100.0, 50.0, 66.667, 50.0]
    assert metrics.running(hits, torch.tensor([0.0, 1, 1, 1]))[0] == 0


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40), st.lists(st.booleans(), max_size=40))
def test_packing_loses_nothing(values: list[int], flags: list[bool]) -> None:
    assert metrics.unpack(metrics.pack(torch.tensor(values, dtype=torch.long))).tolist() == values
    assert metrics.unpack(metrics.pack(torch.tensor(flags, dtype=torch.bool))).tolist() == flags


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test(won: int, lost: int) -> None:
    n, k = won + lost, min(won, lost)
    exact = min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0
    assert mcnemar(won, lost) == pytest.approx(1.0 if won == lost else exact, rel=1e-9)


def test_the_interval_is_that_of_a_bootstrap() -> None:
    rng = np.random.default_rng(0)
    gaps = [rng.choice([-1.0, 0.0, 1.0], 300, p=[0.1, 0.7, 0.2]), rng.choice([-1 / 3, 0.0, 2 / 3], 100)]
    low, high = interval(gaps, seed=0)
    slow = [
        100 * np.mean([gap[rng.integers(0, len(gap), len(gap))].mean() for gap in gaps]) for _ in range(DRAWS)
    ]
    assert (low, high) == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])), abs=0.5)


def test_noise_is_rarely_called_significant() -> None:
    rng = np.random.default_rng(1)
    found = [
        compare([rng.integers(0, 2, 200).astype(float)], [rng.integers(0, 2, 200).astype(float)]).significant
        for _ in range(100)
    ]
    assert sum(found) <= 8


def test_a_real_difference_is_found_and_has_its_sign() -> None:
    worse, better = np.r_[np.zeros(60), np.ones(140)], np.r_[np.zeros(30), np.ones(170)]
    found = compare([worse], [better])
    assert found.significant and found.difference == pytest.approx(-15) and found.high < 0


@pytest.mark.parametrize(
    ("name", "fields"), [("tda", {}), ("boostadapter", {}), ("dpe", {}), ("reta", {}), ("dmn", {"memory": 2})]
)
def test_the_replayed_cache_is_the_method_s_own(name: str, fields: dict) -> None:
    task = synthetic(5)
    views = views_of(task, n=120)
    method = methods.create(name, **fields)
    out = engine.run(method, task, views, device="cpu")
    score = out.info.get("score", out.info["entropy"])
    labels = torch.randint(5, (120,), generator=torch.Generator().manual_seed(0))
    slots = slots_of(method)
    assert slots is not None
    found = replay(out.info["label"], score, out.info["cached"], labels, slots)
    held = torch.isfinite(out.state["entropies" if name == "dmn" else "scores"])
    assert [len(found.queues.get(c, [])) for c in range(5)] == held.sum(-1).tolist()
    keys = out.state["features" if name == "dmn" else "keys"]
    for c, items in found.queues.items():
        kept = {tuple(row) for row in (keys[c][held[c]] * 1e4).round().long().tolist()}
        for item in items:
            if name in ("dmn", "reta"):
                plain = torch.nn.functional.normalize(views[item.place][0], dim=0)
                assert tuple((plain * 1e4).round().long().tolist()) in kept
    right = sum(int(labels[i.place]) == c for c, items in found.queues.items() for i in items)
    assert float(found.accuracy[-1]) == pytest.approx(100 * right / int(held.sum()))


def test_methods_without_a_cache_have_none() -> None:
    assert slots_of(methods.create("zeroshot")) is None
