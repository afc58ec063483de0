"""Tasks: class names, templates, prompts, ready features."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reta
from reta import templates
from reta.task import Task


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 10_000))
def test_the_prototype_is_the_unit_mean_of_unit_prompts(sizes, seed):
    g = torch.Generator().manual_seed(seed)
    groups = [torch.randn(k, 7, generator=g, dtype=torch.float64) * 3 for k in sizes]
    task = Task.from_features(groups)
    for c, group in enumerate(groups):
        mean = torch.stack([row / row.norm() for row in group]).mean(0)
        assert torch.allclose(task.text[c], mean / mean.norm(), atol=1e-12)
        assert task.mask[c].sum() == len(group)
        assert not task.prompts[c, len(group) :].any()


def test_named_template_sets():
    assert templates.template_set("single") == ["a photo of a {}."]
    seven = templates.template_set("openai-7")
    assert len(seven) == 7
    assert "itap of a {}." in seven
    eighty = templates.template_set("openai-80")
    assert len(eighty) == 80
    assert set(seven) <= set(eighty)
    assert all("{}" in t for t in eighty)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("openai-8", "did you mean 'openai-80'|'openai-7'"),
        (["a cat"], "has no {}"),
        ([5], "has no {}"),
        ("a {}", "a list of templates"),
    ],
)
def test_bad_templates_are_named(bad, message):
    with pytest.raises(reta.BadInput, match=message):
        templates.template_set(bad)


def test_prompts_must_fit_the_classes(tmp_path):
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"cat": ["It purrs."], "wolf": ["It howls."]}))
    with pytest.raises(reta.BadInput, match=r"no prompts for \['dog'\]; no class for \['wolf'\]"):
        templates.sentences_per_class(["cat", "dog"], "single", file)
    file.write_text("{")
    with pytest.raises(reta.BadInput, match="not valid JSON"):
        templates.read_prompts(file)
    with pytest.raises(reta.BadInput, match="no such prompt file"):
        templates.read_prompts(tmp_path / "none.json")
    file.write_bytes(b"\xff\xfe{")
    with pytest.raises(reta.BadInput, match="not UTF-8 text"):
        templates.read_prompts(file)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"cat": "It purrs."}, "prompts of 'cat' must be a class name and a list of sentences"),
        ({"cat": None}, "prompts of 'cat' must be"),
        ({3: ["It purrs."]}, "prompts of 3 must be"),
        ({"cat": ["It purrs.", " "]}, "none of them empty"),
        ({"hot dog": ["A bun."], "hot_dog": ["A sausage."]}, "'hot dog' are given twice, once as 'hot_dog'"),
    ],
)
def test_bad_prompts_are_named(bad, message):
    with pytest.raises(reta.BadInput, match=message):
        templates.read_prompts(bad)


def test_class_lists(tmp_path):
    file = tmp_path / "classes.txt"
    file.write_text("cat\n\nhot_dog\n", encoding="utf-8")
    assert templates.class_list(file) == templates.class_list(str(file)) == ["cat", "hot dog"]
    assert templates.class_list("cat, hot_dog") == ["cat", "hot dog"]
    with pytest.raises(reta.BadInput, match="no class names"):
        templates.class_list(" , ")
    with pytest.raises(reta.BadInput, match="no such file of class names"):
        templates.class_list("none.txt")
    many = [f"class number {i}" for i in range(1000)]
    assert templates.class_list(",".join(many)) == templates.class_list(many) == many
    file.write_text("\ufeffcat\r\ndog\r\n", encoding="utf-8")
    assert templates.class_list(file) == ["cat", "dog"]
    file.write_bytes("caf\xe9\n".encode("latin-1"))
    with pytest.raises(reta.BadInput, match="not UTF-8 text.*save it as UTF-8"):
        templates.class_list(file)


@pytest.mark.parametrize("bad", [["cat", " ", "dog"], ["cat", 3], ["cat", None]])
def test_a_class_without_a_name_is_never_dropped(bad):
    """Dropping it would shift the labels of all classes after it."""
    with pytest.raises(reta.BadInput, match="class 1 has no name"):
        templates.class_list(bad)


def test_duplicate_names_are_legal_and_keep_their_sentences():
    rows = templates.sentences_per_class(["missile", "missile"], "single", {"missile": ["It flies."]})
    assert rows[0] == rows[1] == ["a photo of a missile.", "It flies."]


@pytest.mark.parametrize(
    "bad", [torch.zeros(2, 1, 4), torch.full((2, 1, 4), float("nan")), torch.randn(2, 4)]
)
def test_bad_features_are_refused(bad):
    with pytest.raises(reta.BadInput):
        Task.from_features(bad)


def test_features_come_as_they_are_and_carry_no_gradient():
    features = torch.randn(2, 3, 4)
    base = Task.from_features(features)
    assert Task.from_features(features.numpy()).fingerprint == base.fingerprint
    grad = Task.from_features(features.clone().requires_grad_())
    assert grad.fingerprint == base.fingerprint and not grad.text.requires_grad


def test_wrong_number_of_names_and_bad_scale():
    with pytest.raises(reta.BadInput, match="1 class names for 2 classes"):
        Task.from_features(torch.randn(2, 3, 4), names=["a"])
    with pytest.raises(reta.BadInput, match="logit scale"):
        Task.from_features(torch.randn(2, 3, 4), scale=float("inf"))


def test_the_fingerprint_sees_every_change():
    features = torch.randn(2, 3, 4)
    base = Task.from_features(features, names=["a", "b"])
    assert base.fingerprint == Task.from_features(2 * features.clone(), names=["a", "b"]).fingerprint
    others = [
        Task.from_features(features, names=["a", "c"]),
        Task.from_features(features, names=["a", "b"], scale=50),
        Task.from_features(features[:, :2], names=["a", "b"]),
        Task.from_features(features.flip(1), names=["a", "b"]),
    ]
    assert len({t.fingerprint for t in [base, *others]}) == 5


def test_create_methods_by_name_preset_and_override():
    assert reta.methods.create("ensemble").views == 1
    with pytest.raises(reta.BadInput, match="did you mean 'ensemble'"):
        reta.methods.create("ensembel")
    with pytest.raises(reta.BadInput, match="has no preset"):
        reta.methods.create("ensemble", preset="tuned")
    with pytest.raises(reta.BadInput, match="did you mean 'views'"):
        reta.methods.create("ensemble", view=3)
    with pytest.raises(reta.BadInput, match="views must be one of 1"):
        reta.methods.create("ensemble", views=2)


def test_a_method_of_ones_own_by_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from reta.methods.zeroshot import Ensemble\n\nclass Mine(Ensemble):\n    summary = 'mine'\n"
    )
    assert reta.methods.create(f"{file}:Mine").summary == "mine"
    with pytest.raises(reta.BadInput, match="has no class"):
        reta.methods.create(f"{file}:Other")
    with pytest.raises(reta.BadInput, match="no such file"):
        reta.methods.create(f"{tmp_path}/none.py:Mine")
