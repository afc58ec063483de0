"""Streams: pure classify, exact save and load, refusal of what does not fit."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import reta
import reta.views
from reta import methods
from reta import state as states

FEATURE_METHODS = [name for name in methods.names() if not methods.find(name).needs]
CLASSES = ["star", "key", "anchor", "umbrella"]


def pictures(n: int = 10, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    colours = rng.integers(0, 256, (n, 1, 1, 3))
    return list((colours * rng.uniform(0.3, 1, (n, 40, 48, 3))).astype(np.uint8))


def few(name: str, **fields) -> reta.methods.Method:
    """A method with views cut to four, so that tests are quick."""
    views = {} if methods.create(name).views == 1 else {"views": 4}
    return methods.create(name, **(views | fields))


@pytest.fixture(scope="module")
def model(tiny_root):
    from tests import tiny

    return tiny.model(tiny_root, "vit")


@pytest.fixture
def task(model):
    return reta.Task.build(model, CLASSES, templates="openai-7")


@pytest.mark.parametrize("name", FEATURE_METHODS)
def test_classify_is_pure_and_agrees_with_adapt(model, task, name):
    stream = reta.Stream(model, task, few(name))
    for picture in pictures():
        before = states.digest(stream.state)
        looked = stream.classify(picture)
        assert states.digest(stream.state) == before
        assert torch.equal(looked.probs, stream.classify(picture).probs)
        adapted = stream.adapt(picture)
        assert torch.equal(looked.probs, adapted.probs)
    assert stream.seen == 10


@pytest.mark.parametrize("name", FEATURE_METHODS)
def test_reset_equals_a_fresh_stream(model, task, name):
    stream = reta.Stream(model, task, few(name))
    for picture in pictures(6):
        stream.adapt(picture)
    stream.reset()
    assert states.equal(stream.state, stream.method.init(stream.task))
    assert stream.seen == 0


GO_ON = """
import sys, torch
torch.set_num_threads(1)
import reta
from tests import tiny
from tests.test_stream import pictures
from pathlib import Path
model = tiny.model(Path(sys.argv[1]), "vit")
for path in sys.argv[2:]:
    stream = reta.Stream.load(path, model=model)
    probs = torch.stack([stream.adapt(p).probs for p in pictures(20)[10:]])
    from safetensors.torch import save_file
    save_file({"probs": probs} | {"state." + k: v for k, v in stream.state.items()}, path + ".out")
"""


def test_saved_and_resumed_in_a_new_process_is_bit_equal(model, task, tiny_root, tmp_path):
    """All methods at once, since a process with torch takes seconds to start."""
    from safetensors.torch import load_file

    torch.set_num_threads(1)
    whole = {}
    for name in FEATURE_METHODS:
        stream = reta.Stream(model, task, few(name))
        for picture in pictures(20)[:10]:
            stream.adapt(picture)
        stream.save(tmp_path / name)
        probs = torch.stack([stream.adapt(p).probs for p in pictures(20)[10:]])
        whole[name] = {"probs": probs} | {"state." + k: v for k, v in stream.state.items()}
    paths = [str(tmp_path / name) for name in FEATURE_METHODS]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", GO_ON, str(tiny_root), *paths], check=True, env=env)
    for name, expected in whole.items():
        assert states.equal(load_file(tmp_path / f"{name}.out"), expected), name


def test_a_foreign_state_is_refused_by_name(model, task, tiny_root, tmp_path):
    from tests import tiny

    path = tmp_path / "s.safetensors"
    reta.Stream(model, task, few("ensemble")).save(path)
    other = tiny.model(tiny_root, "resnet")
    with pytest.raises(reta.BadState, match="model differs"):
        reta.Stream.load(path, model=other)
    with pytest.raises(reta.BadState, match="method differs: the file has 'ensemble', this is 'zeroshot'"):
        reta.Stream.load(path, model=model, method=few("zeroshot"))
    fewer = reta.Task.build(model, CLASSES[:3], templates="openai-7")
    with pytest.raises(reta.BadState, match="classes differ: 4 in the file, 3 here"):
        reta.Stream.load(path, model=model, task=fewer)
    turned = reta.Task.build(model, CLASSES[::-1], templates="openai-7")
    with pytest.raises(reta.BadState, match="other names or order"):
        reta.Stream.load(path, model=model, task=turned)
    reworded = reta.Task.build(model, CLASSES, templates="single")
    with pytest.raises(reta.BadState, match="prompts differ"):
        reta.Stream.load(path, model=model, task=reworded)


def another(field: dataclasses.Field, value):
    """A legal value of a field that is not the one it has, if there is one near."""
    low, high = field.metadata["low"], field.metadata["high"]
    if isinstance(value, bool):
        return not value
    if field.metadata["choices"]:
        return next((c for c in field.metadata["choices"] if c != value), value)
    if not isinstance(value, int | float):
        return value
    legal = [v for v in (value + 1, value / 2) if (high is None or v <= high) and (low is None or v >= low)]
    return type(value)(legal[0]) if legal else value


@pytest.mark.parametrize("name", FEATURE_METHODS)
def test_every_setting_is_compared(model, task, name, tmp_path):
    """Change one field at a time: each is refused, and named."""
    method = few(name)
    path = tmp_path / "s.safetensors"
    reta.Stream(model, task, method).save(path)
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if (other := another(field, value)) == value:
            continue
        try:
            changed = dataclasses.replace(method, **{field.name: other})
        except reta.BadInput:  # two fields may exclude each other
            continue
        with pytest.raises(reta.BadState, match=f"{field.name} differs"):
            reta.Stream.load(path, model=model, method=changed)


def test_an_unregistered_method_is_never_imported_from_a_file(model, task, tmp_path):
    from tests.test_checks import Memory

    path = tmp_path / "s.safetensors"
    stream = reta.Stream(model, task, Memory())
    stream.adapt(pictures(1)[0])
    stream.save(path)
    with pytest.raises(reta.BadState, match="'Memory' is not registered.*pass method="):
        reta.Stream.load(path, model=model)
    again = reta.Stream.load(path, model=model, method=Memory())
    assert states.equal(again.state, stream.state)


def test_a_class_that_only_follows_the_protocol_is_saved_too(model, task, tmp_path):
    from tests.test_engine import Loose

    path, stream = tmp_path / "s.safetensors", reta.Stream(model, task, Loose())
    stream.adapt(pictures(1)[0])
    stream.save(path)
    again = reta.Stream.load(path, model=model, method=Loose())
    assert states.equal(again.state, stream.state)
    with pytest.raises(reta.BadState, match="pull differs: the file has 0.1, this is 0.2"):
        reta.Stream.load(path, model=model, method=Loose(0.2))


def test_fields_that_json_has_no_form_for_are_compared_as_they_were_written(model, task, tmp_path):
    from tests.test_checks import Memory

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Odd(Memory):
        area: tuple[float, float] = (0.5, 1.0)
        kind: type = torch.Tensor

    path = tmp_path / "s.safetensors"
    reta.Stream(model, task, Odd()).save(path)
    reta.Stream.load(path, model=model, method=Odd())
    with pytest.raises(reta.BadState, match="area differs"):
        reta.Stream.load(path, model=model, method=Odd(area=(0.5, 0.9)))


def test_state_of_another_shape_is_refused_by_name(model, task, tmp_path):
    path = tmp_path / "s.safetensors"
    reta.Stream(model, task, few("tda")).save(path)
    body, header = states.load(path)
    for changed in (torch.zeros(2, 3), body["state.scores"].double() if "state.scores" in body else None):
        if changed is None:
            continue
        key = next(k for k in body if k.startswith("state."))
        states.save(path, body | {key: changed}, header)
        with pytest.raises(reta.BadState, match=rf"{key[6:]} differs: \(.* in the file, \(.* expected"):
            reta.Stream.load(path, model=model)
    states.save(path, {k: v for k, v in body.items() if "state." not in k}, header)
    with pytest.raises(reta.BadState, match="state keys differ"):
        reta.Stream.load(path, model=model)
    states.save(path, {k: v * float("nan") if v.is_floating_point() else v for k, v in body.items()}, header)
    with pytest.raises(reta.BadState, match="contains NaN"):
        reta.Stream.load(path, model=model)


def test_settings_this_version_does_not_know_are_refused(model, task, tmp_path):
    path = tmp_path / "s.safetensors"
    reta.Stream(model, task, few("tda")).save(path)
    body, header = states.load(path)
    for fields in ({"novelty": 1}, {"views": -1}):
        states.save(path, body, header | {"fields": header["fields"] | fields})
        with pytest.raises(reta.BadState, match=f"s.safetensors: its settings .* of tda .*{min(fields)}"):
            reta.Stream.load(path, model=model)


def test_other_files_of_reta_are_no_streams(model, tmp_path):
    states.save(tmp_path / "rows", {"keys": torch.zeros(2)}, {"model": model.name})
    with pytest.raises(reta.BadState, match="not a saved stream: it has no 'classes'"):
        reta.Stream.load(tmp_path / "rows", model=model)


def test_a_task_of_another_model_is_refused(model, task, tiny_root):
    from tests import tiny

    other = tiny.load(str(tiny.write(tiny_root / "vit-2", "vit", seed=2)), device="cpu")
    assert other.dim == model.dim
    with pytest.raises(reta.BadInput, match="the task was built with .*vit, not with .*vit-2"):
        reta.Stream(other, task, few("ensemble"))
    narrow = reta.Task.from_features(torch.randn(3, 2, model.dim + 1))
    with pytest.raises(reta.BadInput, match=f"{model.dim + 1} dimensions, .*vit makes {model.dim}"):
        reta.Stream(model, narrow, few("ensemble"))


def test_another_reward_model_is_refused(model, task, tiny_root, tmp_path):
    from tests import tiny

    path, other = tmp_path / "s.safetensors", tiny.model(tiny_root, "resnet")
    both = reta.Task.build(model, CLASSES, "openai-7", reward=other)
    stream = reta.Stream(model, both, few("reta-reward"), reward=other)
    assert other.preprocess.size != model.preprocess.size
    seen = stream.sample(pictures(1)[0], key="a").reward
    pre = other.preprocess
    how = {"size": pre.size, "interpolation": pre.interpolation, "resize_mode": pre.resize_mode}
    views = reta.views.make(pictures(1)[0], "augmix", n=4, key="a", **how)
    assert torch.allclose(seen, other.images(views), atol=1e-5)
    stream.adapt(pictures(1)[0])
    stream.save(path)
    again = reta.Stream.load(path, model=model, reward=other)
    assert torch.equal(again.classify(pictures(2)[1]).probs, stream.classify(pictures(2)[1]).probs)
    with pytest.raises(reta.BadState, match="reward model differs"):
        reta.Stream.load(path, model=model, reward=model)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 0.0])
def test_a_bad_feature_never_enters(model, task, poison):
    """Neither of the model's own features nor of the second one's, if the method looks at it."""
    good = torch.randn(4, model.dim, generator=torch.Generator().manual_seed(0))
    bad = good.clone()
    bad[2] = poison
    both = dataclasses.replace(task, reward=task)
    stream = reta.Stream(model, both, few("reta-reward"), reward=model)
    stream.adapt(reta.Sample(good, good))
    before = states.digest(stream.state)
    for sample in (reta.Sample(bad, good), reta.Sample(good, bad)):
        answer = stream.adapt(sample)
        assert not answer.info["valid"] and torch.allclose(answer.probs, torch.full((4,), 0.25))
        assert states.digest(stream.state) == before


def test_a_bad_image_leaves_the_state_alone(model, task, tmp_path):
    stream = reta.Stream(model, task, few("ensemble"))
    (tmp_path / "empty.jpg").write_bytes(b"")
    with pytest.raises(reta.BadImage):
        stream.adapt(tmp_path / "empty.jpg")
    assert stream.seen == 0


def test_same_image_same_views_whatever_came_before(model, task):
    name = next((n for n in FEATURE_METHODS if methods.create(n).views > 1), "ensemble")
    a, b = reta.Stream(model, task, few(name)), reta.Stream(model, task, few(name))
    b.sample(pictures(2)[0])
    picture = pictures(2)[1]
    assert torch.equal(a.sample(picture).views, b.sample(picture).views)
    other = reta.Stream(model, task, few(name), seed=1)
    if a.method.views > 1:
        assert not torch.equal(a.sample(picture).views, other.sample(picture).views)


def test_views_are_those_the_method_asks_for(model, task):
    """DMN's crops keep half of the picture, as in its paper; the others use the usual range."""
    pre, picture = model.preprocess, pictures(1)[0]
    how = {"size": pre.size, "interpolation": pre.interpolation, "resize_mode": pre.resize_mode}
    for method, area in ((few("dmn"), 0.5), (few("dmn", crop_area=0.3), 0.3), (few("reta"), 0.08)):
        views = reta.views.make(picture, method.recipe, n=4, key="a", area=(area, 1.0), **how)
        given = reta.Stream(model, task, method).sample(picture, key="a").views
        assert torch.equal(given, model.images(views))


def test_every_kind_of_source_is_the_same_image(model, task, tmp_path):
    from PIL import Image

    picture = pictures(1)[0]
    path = tmp_path / "p.png"
    Image.fromarray(picture).save(path)
    stream = reta.Stream(model, task, few("ensemble"))
    answers = [
        stream.classify(source).probs
        for source in (
            path,
            str(path),
            path.read_bytes(),
            Image.open(path),
            picture,
            torch.from_numpy(picture),
        )
    ]
    assert all(torch.equal(answers[0], other) for other in answers)


def test_a_reward_method_says_what_it_lacks(model, task):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Wants(type(few("ensemble"))):
        needs = frozenset({"reward"})

    with pytest.raises(reta.BadInput, match="asks for a second model"):
        reta.Stream(model, task, Wants())
