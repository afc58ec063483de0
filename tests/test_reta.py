"""ReTA against its literal transcription: every switch, many shapes, the same decisions and the same numbers."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reta
from reta import methods
from reta.methods import ops
from tests.reference_reta import PAPER, RELEASED, Reference

NAMES = {
    "M": "members", "n": "rank", "size": "slots", "q": "share", "wd": "weight_decay", "edges": "bin_edges",
    "source": "proj_source", "refresh": "proj_refresh", "persist": "persist_residual", "l_ent": "lambda_ent",
    "l_surr": "lambda_surr", "l_align": "lambda_align", "center": "surr_center", "divisor": "cov_divisor",
    "symmetric": "align_symmetric", "tau": "align_tau", "normalise": "normalise_global",
}  # fmt: skip
SETS = (
    *(
        "caltech101",
        "dtd",
        "cars",
        "eurosat",
        "aircraft",
        "flowers102",
        "pets",
        "ucf101",
        "food101",
        "sun397",
    ),
    *("imagenet", "imagenet-a", "imagenet-v2", "imagenet-r", "imagenet-sketch"),
)


def world(classes, dim, prompts, views, n, seed=0, noise=1.2):
    """Ragged prompts around class directions, and noisy views of noisy images of them."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, dim, generator=g, dtype=torch.float64)

    centres = draw(classes)
    ragged = [prompts + (c % 4 if prompts > 1 else 0) for c in range(classes)]
    text = [ops.unit(centres[c] + 0.6 * draw(k)) for c, k in enumerate(ragged)]
    image = centres[torch.randint(classes, (n,), generator=g)] + noise * draw(n)
    return text, ops.unit(image[:, None] + 0.3 * draw(n, views))


def compare(options, classes=7, dim=12, prompts=6, views=12, n=16, seed=0, scale=12.0, noise=1.2, rows=None):
    """Step both side by side; returns how often each decision was taken."""
    text, drawn = world(classes, dim, prompts, views, n, seed, noise)
    rows = drawn if rows is None else rows(text, drawn)
    reference = Reference(text, scale, options)
    task = reta.Task.from_features(text, scale=scale)
    method = methods.create("reta", **{NAMES.get(k, k): v for k, v in options.items()})
    state, taken = method.init(task), Counter()
    assert torch.allclose(state["text"], reference.G, atol=1e-9)
    for i, row in enumerate(rows):
        expected = reference(row)
        with torch.no_grad():
            got, state = method.step(task, state, reta.Sample(row))
        for key in ("votes", "label", "cached", "updated", "reliable", "confident"):
            assert got.info[key].tolist() == expected[key], (i, key)
            taken[key] += bool(expected[key]) if key not in ("votes", "label") else 0
        for key in ("p_cls", "p_gauss", "logits", "w", "score", "entropy"):
            wanted = torch.as_tensor(expected[key], dtype=torch.float64)
            assert torch.allclose(got.info[key].double(), wanted, atol=1e-5), (i, key)
        assert torch.allclose(got.probs, expected["probs"], atol=1e-5), i
        assert abs(float(got.probs.sum()) - 1) < 1e-9
    assert torch.allclose(state["text"], reference.G, atol=1e-5)
    assert int(state["count"]) == reference.n
    for c in range(classes):
        items = reference.cache.get(c, [])
        held = torch.isfinite(state["scores"][c])
        assert int(held.sum()) == len(items)
        for slot, (feature, score) in enumerate(items):
            assert torch.allclose(state["keys"][c, slot], feature, atol=1e-9)
            assert float(state["scores"][c, slot]) == pytest.approx(score, abs=1e-6)
    return taken


SHAPES = [
    {"classes": 7, "dim": 12, "views": 12},
    {"classes": 70, "dim": 96, "views": 9, "n": 6},
    {"classes": 2, "dim": 6, "views": 1},
    {"classes": 1, "dim": 6, "views": 9, "n": 6},
    {"classes": 12, "dim": 32, "views": 64, "n": 6},
]


@pytest.mark.parametrize("version", [PAPER, RELEASED], ids=["paper", "released"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s.values())))
def test_agrees_with_the_transcription(version, shape):
    compare(version | {"lr": 2e-2}, **shape)


@pytest.mark.parametrize("version", [PAPER, RELEASED], ids=["paper", "released"])
@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_agrees_for_any_number_of_members(version, members):
    options = version | {"M": members, "lr": 2e-2}
    compare(options | ({"normaliser": "ln_C"} if members == 1 else {}), prompts=members + 1)


def test_the_streams_of_these_tests_take_every_decision_both_ways():
    for version in (PAPER, RELEASED | {"normaliser": "ln_C"}):
        taken = compare(version | {"lr": 2e-2}, n=60, noise=0.8)
        assert all(0 < taken[key] < 60 for key in ("cached", "updated", "reliable", "confident")), taken


SWITCHES = {
    "binning": ["descending", "uniform"], "edges": ["m_floor", "floor_mk"], "projection": ["pca", "lda", "none"],
    "source": ["last", "all"], "vote_text": ["running", "unit"], "evidence": ["topq_mean"], "cer": [False],
    "score": ["product", "exp", "sqrt"], "ratio": [0.3, 2.0], "gamma": [1.0, 4.0], "stability": [False],
    "consistency": [False], "size": [1, 5], "ddc": [False], "loss_gate": ["w1", "all", "surr_only", "algorithm1"],
    "steps": [0, 2, 3], "residuals": ["shared"], "persist": [True], "l_ent": [0.0], "l_surr": [0.0, 2.0],
    "l_align": [0.0, 1.0], "ent_views": ["topq", "view0"], "surr_views": ["confident", "refined"], "surr_q": [0.5],
    "center": ["last", "mean"], "cov": ["full", "diag"], "divisor": ["M", "M+1", "M-1"],
    "align_text": ["last", "mean"], "symmetric": [True, False], "align_classes": ["cached", "all"], "tau": [1.0],
    "global_gate": ["entropy", "entropy_and_w1"], "gate_entropy": ["before", "after"], "cutoff": [0.3],
    "normaliser": ["ln_C", "log2_C", "log2_M", "none"], "prior": [0.0, 1.0, 5.0], "normalise": [True, False],
    "cache_logits": [False], "gauss_logits": [False], "eta": [0.0, 3.0], "gauss_cache": [True, False],
    "gauss_views": ["topq", "single"], "n": [3], "refresh": ["on_change", "initial"], "alpha": [0.0], "q": [0.4],
}  # fmt: skip
CASES = [(k, v) for k, values in SWITCHES.items() for v in values]


@pytest.mark.parametrize("version", [PAPER, RELEASED], ids=["paper", "released"])
@pytest.mark.parametrize(("switch", "value"), CASES, ids=lambda x: str(x))
def test_every_switch_agrees(version, switch, value):
    options = version | {"lr": 2e-2, switch: value}
    if value == "lda":
        options["refresh"] = "initial"
        with pytest.raises(reta.BadInput, match="initial text only"):
            methods.create("reta", projection="lda", proj_refresh="on_change")
    compare(options, n=12)


@pytest.mark.parametrize("surr", ["confident", "refined"])
@pytest.mark.parametrize("ent", ["topq", "view0"])
def test_losses_that_see_different_views_agree(ent, surr):
    """The mean of the views is no view: what is known of the first one is not known of it."""
    compare(
        PAPER | {"evidence": "topq_mean", "ent_views": ent, "surr_views": surr, "surr_q": 0.3, "lr": 2e-2}
    )


@pytest.mark.parametrize("version", [PAPER, RELEASED], ids=["paper", "released"])
def test_ties_are_broken_alike(version):
    """Images repeated exactly, so that scores are equal, and images that are a class text."""

    def rows(text, drawn):
        exact = torch.stack([ops.unit(t.mean(0)).expand(drawn.shape[1], -1) for t in text])
        return torch.cat([drawn[:4], drawn[:4], exact, drawn[:4], exact])

    compare(version | {"lr": 2e-2, "size": 2}, rows=rows)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([PAPER, RELEASED]),
    st.integers(2, 12),
    st.integers(4, 20),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 10_000),
)
def test_agrees_on_random_tasks(version, classes, dim, views, members, seed):
    options = version | {"M": members, "lr": 1e-2, "normaliser": "ln_C"}
    compare(options, classes, dim, members + 1, views, n=6, seed=seed)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_agrees_under_random_switches(data):
    chosen = {k: data.draw(st.sampled_from(v)) for k, v in SWITCHES.items() if data.draw(st.booleans())}
    version = data.draw(st.sampled_from([PAPER, RELEASED]))
    compare(version | {"lr": 1e-2} | chosen, n=8, seed=data.draw(st.integers(0, 1000)))


@pytest.mark.parametrize("name", SETS)
def test_released_presets_hold_the_published_constants(name):
    method = methods.create("reta", f"released/{name}")
    assert method.members == 3
    assert method.slots == 3
    assert method.rank == 64
    assert method.steps == 1
    assert (method.evidence == "topq_mean") == (name == "imagenet-a")
    assert method.recipe == ("crops" if name.startswith("imagenet") else "augmix")


def test_some_published_constants_by_hand():
    dtd = methods.create("reta", "released/dtd")
    assert (dtd.alpha, dtd.beta, dtd.ratio, dtd.lr) == (8.6, 3, 2, 4e-4)
    assert (dtd.lambda_align, dtd.lambda_surr) == (0.2, 0.02)
    assert dtd.cls_weight == pytest.approx(0.25)
    aircraft = methods.create("reta", "released/aircraft")
    assert (aircraft.alpha, aircraft.beta, aircraft.lambda_align, aircraft.lambda_surr) == (7, 2, 0.6, 0.04)


def test_too_few_prompts_are_refused():
    task = reta.Task.from_features(torch.randn(4, 2, 8))
    with pytest.raises(reta.BadInput, match="a class has 2 prompts, and members=3"):
        methods.create("reta").init(task)
    assert methods.create("reta", members=2).init(task)["text"].shape == (2, 4, 8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("members", 0),
        ("gamma", 0.5),
        ("slots", 0),
        ("lr", -1.0),
        ("binning", "sorted"),
        ("eta", -0.1),
        ("share", 1.5),
    ],
)
def test_values_out_of_range_are_refused(field, value):
    with pytest.raises(reta.BadInput, match=field):
        methods.create("reta", **{field: value})


def test_a_sweep_over_numbers_equals_single_runs():
    text, views = world(6, 12, 6, 9, 25)
    task = reta.Task.from_features([t.float() for t in text], scale=12.0)
    labels = torch.zeros(25, dtype=torch.long)
    grid = {"gamma": [1.0, 3.0], "eta": [0.2, 1.0], "lr": [1e-3, 2e-2]}
    base = methods.create("reta", views=9)
    swept = reta.sweep(base, task, views.float(), labels, grid=grid, orders=2)
    orders = reta.grid.stream_orders(2, 25)
    for s, setting in enumerate(swept.settings):
        for o, order in enumerate(orders):
            single = reta.run(methods.create("reta", views=9, **setting), task, views.float(), order=order)
            assert torch.equal(swept.predictions[s, o], single.predictions), setting


def test_the_last_member_is_the_ensemble():
    text, _ = world(5, 10, 6, 1, 1)
    task = reta.Task.from_features(text)
    assert torch.allclose(methods.create("reta").init(task)["text"][-1], task.text, atol=1e-9)


def test_memory_grows_with_classes_only_linearly():
    small = methods.create("reta").init(reta.Task.from_features(torch.randn(10, 4, 32)))
    large = methods.create("reta").init(reta.Task.from_features(torch.randn(100, 4, 32)))
    tables = [k for k in small if k != "basis"]
    ratio = sum(large[k].numel() for k in tables) / sum(small[k].numel() for k in tables)
    assert ratio < 10.1
