"""ReTA against its literal transcription: every switch, many shapes, the same decisions and the same numbers."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reta
from reta import methods
from reta.methods import ops
from tests.reference_reta import PAPER, RELEASED, Reference, Rewarded

NAMES = {
    "M": "members", "n": "rank", "size": "slots", "q": "share", "wd": "weight_decay", "edges": "bin_edges",
    "source": "proj_source", "refresh": "proj_refresh", "persist": "persist_residual", "l_ent": "lambda_ent",
    "l_surr": "lambda_surr", "l_align": "lambda_align", "center": "surr_center", "divisor": "cov_divisor",
    "symmetric": "align_symmetric", "tau": "align_tau", "normalise": "normalise_global",
}  # fmt: skip
# alpha, beta, share of p_cls (lam), ratio, learning rate, lambda_align and lambda_surr of every released set.
CONSTANTS = {
    "imagenet": (6, 5, 0.5, 1, 6e-4, 0.5, 0.05),
    "imagenet-a": (6, 5, 0.8, 1, 1.5e-4, 1.0, 0.02),
    "imagenet-v2": (3, 8, 0.3, 1, 5e-4, 0.5, 0.02),
    "imagenet-r": (0.5, 8, 0.2, 1, 6e-4, 0.0, 0.02),
    "imagenet-sketch": (5, 7.45, 0.2, 1, 8e-4, 0.2, 0.02),
    "caltech101": (15, 5, 0.3, 1, 3e-4, 0.3, 0.01),
    "dtd": (8.6, 3, 0.25, 2, 4e-4, 0.2, 0.02),
    "cars": (4, 7, 0.5, 1, 1.5e-4, 1.5, 0.02),
    "eurosat": (3, 8, 0.99, 0.1, 2.5e-5, 0.1, 0.03),
    "aircraft": (7, 2, 0.5, 1, 3e-4, 0.6, 0.04),
    "flowers102": (8, 5, 0.7, 1.5, 2e-4, 0.3, 0.06),
    "pets": (4, 7, 0.99, 0.5, 6e-4, 0.3, 0.02),
    "ucf101": (9, 8, 0.22, 0.1, 4e-4, 0.3, 0.02),
    "food101": (3, 1, 0.5, 1, 6e-4, 0.4, 0.02),
    "sun397": (6, 3, 0.5, 1, 1.5e-4, 0.5, 0.03),
}


def fields(options):
    """The transcription's options by the names of the library's fields."""
    return {NAMES.get(key, key): value for key, value in options.items()}


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
    method = methods.create("reta", **fields(options))
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
@pytest.mark.parametrize("views", [1, 12, 40])
def test_reward_agrees_with_the_transcription(version, views):
    """Three steps, a second model of another width, the loss by autograd."""
    options = version | {"lr": 2e-2, "steps": 3}
    text, rows = world(7, 12, 6, views, 16)
    other, seconds = world(7, 9, 1, views, 16, seed=1)
    words = torch.cat(other)
    reference = Rewarded(text, 12.0, options, words)
    task = reta.Task.from_features(text, scale=12.0, reward=reta.Task.from_features(words[:, None]))
    method = methods.create("reta-reward", **{NAMES.get(k, k): v for k, v in options.items()})
    state, moved = method.init(task), 0
    for row, second in zip(rows, seconds, strict=True):
        reference.second = second
        expected = reference(row)
        with torch.no_grad():
            got, state = method.step(task, state, reta.Sample(row, second))
        assert torch.allclose(got.probs, expected["probs"], atol=1e-5)
        moved += expected["updated"]
    assert moved and torch.allclose(state["text"], reference.G, atol=1e-5)


def test_the_presets_of_reward_are_those_of_reta():
    for preset in ("paper", "fixed"):
        plain = dataclasses.asdict(methods.create("reta", preset))
        reward = dataclasses.asdict(methods.create("reta-reward", preset))
        assert {k for k in plain if plain[k] != reward[k]} == {"steps"}


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
    "gauss_views": ["topq", "single"], "adam_state": ["fp16"],
    "n": [3], "refresh": ["on_change", "initial"], "alpha": [0.0], "q": [0.4],
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
    st.integers(1, 12),
    st.integers(4, 20),
    st.integers(1, 12),
    st.integers(1, 5),
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
    options = data.draw(st.sampled_from([PAPER, RELEASED])) | {"lr": 1e-2} | chosen
    if options["projection"] == "lda":
        options["refresh"] = "initial"
    compare(options, n=8, seed=data.draw(st.integers(0, 1000)))


def test_paper_and_fixed_are_the_transcription_s_versions_by_data_alone():
    seen = {"views": 64, "recipe": "augmix"}
    literal = {"loss_gate": "algorithm1", "persist": True, "tau": 1.0, "align_classes": "all"}
    fixed = {"normaliser": "ln_C", "lr": 2e-4, "l_surr": 0.02, "l_align": 0.3, "eta": 1.0}
    for preset, options in (
        (None, PAPER),
        ("paper", PAPER),
        ("paper_literal", PAPER | literal),
        ("fixed", RELEASED | fixed),
    ):
        assert dataclasses.asdict(methods.create("reta", preset)) == fields(options) | seen, preset


@pytest.mark.parametrize("name", CONSTANTS)
def test_released_presets_are_the_released_forms_with_the_published_constants(name):
    alpha, beta, share, ratio, lr, align, surr = CONSTANTS[name]
    method = methods.create("reta", f"released/{name}")
    assert method.cls_weight == pytest.approx(share, abs=1e-12)
    own = {"alpha": alpha, "beta": beta, "ratio": ratio, "lr": lr, "l_align": align, "l_surr": surr}
    own |= {"eta": method.eta, "align_text": "last" if ratio >= 0.5 else "mean"}
    if name == "imagenet-a":
        own |= {"evidence": "topq_mean", "gauss_views": "single"}
    seen = {"views": 64, "recipe": "crops" if name.startswith("imagenet") else "augmix"}
    assert dataclasses.asdict(method) == fields(RELEASED | own) | seen


def test_there_is_a_preset_for_every_set_and_no_other():
    assert set(methods.presets("reta")) == {
        "paper",
        "paper_literal",
        "fixed",
        *(f"released/{s}" for s in CONSTANTS),
    }


def test_too_few_prompts_are_refused():
    task = reta.Task.from_features(torch.randn(4, 2, 8))
    with pytest.raises(reta.BadInput, match="a class has 2 prompts, and members=3"):
        methods.create("reta").init(task)
    assert methods.create("reta", members=2).init(task)["text"].shape == (2, 4, 8)


FIELDS = {f.name: f for f in dataclasses.fields(methods.find("reta"))}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_says_what_it_means_and_refuses_what_is_not_legal(name):
    field = FIELDS[name]
    low, high, choices = (field.metadata[k] for k in ("low", "high", "choices"))
    assert field.metadata["doc"]
    assert isinstance(field.default, bool) or choices or low is not None
    wrong = ["no such choice", None]
    wrong += [] if low is None else [low - 1, float("nan"), float("inf")]
    wrong += [] if high is None else [high + 0.5]
    for value in wrong:
        with pytest.raises(reta.BadInput, match=f"ReTA.{name} must be"):
            methods.create("reta", **{name: value})


@pytest.mark.parametrize("preset", ["paper", "fixed"])
@pytest.mark.parametrize("name", [n for n, f in FIELDS.items() if f.metadata["low"] is not None])
def test_the_ends_of_every_range_are_answered(name, preset):
    text, views = world(4, 8, 6, 9, 6)
    task = reta.Task.from_features([t.float() for t in text], scale=12.0)
    for value in (FIELDS[name].metadata["low"], FIELDS[name].metadata["high"]):
        if value is not None:
            out = reta.run(methods.create("reta", preset, **{name: value}), task, views.float())
            assert torch.allclose(out.probs.sum(-1), torch.ones(6), atol=1e-5), value
            assert all(t.isfinite().all() for k, t in out.state.items() if k != "scores"), value


def test_members_no_loss_pulls_on_stay_where_they_are():
    """Their gradient is exactly zero, and zero over zero is no number: epsilon may be small, not zero."""
    text, views = world(4, 8, 6, 9, 6)
    task = reta.Task.from_features([t.float() for t in text], scale=12.0)
    method = methods.create("reta", lambda_surr=0.0, eps=FIELDS["eps"].metadata["low"])
    out = reta.run(method, task, views.float())
    assert out.info["updated"].any() and out.probs.isfinite().all()
    assert torch.allclose(out.state["text"][:-1], method.init(task)["text"][:-1], atol=1e-6)


@pytest.mark.parametrize("preset", ["paper", "paper_literal", "fixed", "released/imagenet-a"])
def test_a_sweep_over_numbers_equals_single_runs(preset):
    text, views = world(6, 12, 6, 9, 25)
    task = reta.Task.from_features([t.float() for t in text], scale=12.0)
    labels = torch.zeros(25, dtype=torch.long)
    grid = {"gamma": [1.0, 3.0], "eta": [0.2, 1.0], "lr": [1e-3, 2e-2]}
    base = methods.create("reta", preset, views=9)
    swept = reta.sweep(base, task, views.float(), labels, grid=grid, orders=2)
    orders = reta.grid.stream_orders(2, 25)
    for s, setting in enumerate(swept.settings):
        for o, order in enumerate(orders):
            alone = dataclasses.replace(base, **setting)
            single = reta.run(alone, task, views.float(), order=order)
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


def test_every_field_names_its_equation_in_the_paper():
    for field in dataclasses.fields(methods.find("reta")):
        assert field.metadata["doc"] and 1 <= int(field.metadata["eq"]) <= 23, field.name
