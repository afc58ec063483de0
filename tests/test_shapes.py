"""The embedded world: the same pictures everywhere and always, balanced, and all classes apart."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from reta.data import shapes
from reta.errors import BadInput

GOLDEN = json.loads((Path(__file__).parent / "golden" / "shapes.json").read_text())


def digest(name: str, indices: range, seed: int = 0) -> str:
    """One hash over the pictures and labels of some indices."""
    h = hashlib.blake2b(digest_size=16)
    for i in indices:
        h.update(np.asarray(shapes.draw(name, i, seed)).tobytes() + bytes([shapes.label(name, i)]))
    return h.hexdigest()


@pytest.mark.parametrize("name", [*shapes.SETS, "train"])
def test_pictures_are_the_published_ones(name: str) -> None:
    assert digest(name, range(100)) == GOLDEN[name]


def test_a_picture_depends_on_set_index_and_seed_alone() -> None:
    first = np.asarray(shapes.draw("shapes-a", 5))
    shapes.draw("shapes-a", 6)
    assert np.array_equal(first, np.asarray(shapes.draw("shapes-a", 5)))
    others = [shapes.draw("shapes-a", 6), shapes.draw("shapes-a", 5, seed=1), shapes.draw("shapes-v2", 5)]
    assert all(not np.array_equal(first, np.asarray(o)) for o in others)


@pytest.mark.parametrize("name", shapes.SETS)
def test_every_class_fifty_times_and_shuffled(name: str) -> None:
    labels = np.array(shapes.open(name).labels)
    assert np.bincount(labels).tolist() == [50] * 40
    assert len(set(labels[:40].tolist())) < 40
    assert not np.array_equal(labels[:40], labels[40:80])


def test_test_sets_and_training_stream_share_no_picture() -> None:
    seen: dict[bytes, str] = {}
    for name in [*shapes.SETS, "train"]:
        for i in range(60):
            key = np.asarray(shapes.draw(name, i)).tobytes()
            assert key not in seen, (name, i, seen[key])
            seen[key] = f"{name}/{i}"


@pytest.mark.parametrize("name", shapes.SETS)
def test_every_class_is_drawn_and_differs_from_all_others(name: str) -> None:
    """Mean silhouettes of the classes: each is well away from every other, in any set."""
    found: dict[int, np.ndarray] = {}
    for i in range(400):
        image = np.asarray(shapes.draw(name, i)).astype(np.float32)
        assert image.shape == (64, 64, 3) and image.std() > 3
        found.setdefault(shapes.label(name, i), image)
    assert len(found) == 40
    stack = np.stack(list(found.values())).reshape(40, -1)
    gaps = np.abs(stack[:, None, ::7] - stack[None, :, ::7]).mean(2) + 1e9 * np.eye(40)
    assert gaps.min() > 1.0


def test_outlines_are_pairwise_different_forms() -> None:
    """Drawn with the same pose and mid knobs, no two classes cover nearly the same pixels."""
    from reta.data.shapes.outlines import parts
    from reta.data.shapes.trace import Pose, fill

    pose = Pose(0.9, 0.9 * np.eye(2), np.zeros(2))
    masks = [fill(parts(n, lambda a, b: (a + b) / 2), pose) > 0 for n in shapes.classes()]
    for i, first in enumerate(masks):
        assert 0.02 < first.mean() < 0.75, shapes.classes()[i]
        for j, second in enumerate(masks[:i]):
            overlap = (first & second).sum() / (first | second).sum()
            assert overlap < 0.8, (shapes.classes()[i], shapes.classes()[j])


def test_knobs_change_every_outline() -> None:
    from reta.data.shapes.outlines import parts

    for name in shapes.classes():
        low, high = parts(name, lambda a, _: a), parts(name, lambda _, b: b)
        same = len(low) == len(high) and all(
            np.array_equal(p.points, q.points) for p, q in zip(low, high, strict=True)
        )
        assert not same, name


def test_descriptions_cover_the_classes() -> None:
    found = shapes.descriptions()
    assert list(found) == shapes.classes()
    for name, sentences in found.items():
        assert 8 <= len(sentences) <= 12 and len(set(sentences)) == len(sentences), name
        assert all(s[0].isupper() and s.endswith(".") and 4 <= len(s.split()) <= 30 for s in sentences), name


def test_sets_look_as_they_say() -> None:
    """Sketches are grey on white; renditions and photographs are coloured."""
    sketch = np.asarray(shapes.draw("shapes-sketch", 0)).astype(int)
    assert np.median(sketch) > 225 and np.ptp(sketch, axis=2).mean() < 12
    photos = [np.ptp(np.asarray(shapes.draw("shapes", i)).astype(int), axis=2).mean() for i in range(20)]
    assert np.mean(photos) > 30


def test_scene_says_what_the_picture_shows() -> None:
    image, scene = shapes.scene("train", 3)
    assert np.array_equal(np.asarray(image), np.asarray(shapes.draw("train", 3)))
    assert scene.name == shapes.classes()[shapes.label("train", 3)]


def test_world_is_a_sequence() -> None:
    world = shapes.open("shapes-r", n=3, seed=2)
    assert len(world) == 3 and len(list(world)) == 3 and len(set(world.keys)) == 3
    image, label = world[-1]
    assert label == world.labels[2] and np.array_equal(
        np.asarray(image), np.asarray(shapes.draw("shapes-r", 2, 2))
    )
    with pytest.raises(IndexError):
        world[3]


def test_misuse_is_named() -> None:
    with pytest.raises(BadInput, match="shapes-sketch"):
        shapes.draw("shapes-x", 0)
    with pytest.raises(BadInput, match="zero or more"):
        shapes.label("shapes", -1)
    with pytest.raises(BadInput, match="at least 1"):
        shapes.open("shapes", n=0)
    with pytest.raises(BadInput, match="photographic"):
        shapes.scene("shapes-sketch", 0)
