"""Where CoOp's labelled images come from: never from the pictures a set is tested on."""

from __future__ import annotations

import pytest

import reta.data
from reta.data import training
from tests import miniature


@pytest.fixture
def root(tmp_path, monkeypatch):
    counts = miniature.catalog(tmp_path / "catalog")
    monkeypatch.setenv("RETA_CATALOG", str(counts))
    return tmp_path / "data"


def test_a_split_file_gives_its_training_images(root):
    miniature.build("dtd", root)
    learn, tested = training.open("dtd", root), reta.data.open("dtd", root)
    assert len(learn) == miniature.CLASSES * miniature.TRAIN and not set(learn.keys) & set(tested.keys)
    assert learn.names == tested.names and learn.labels == (0, 1, 2)


def test_aircraft_has_a_list_of_training_images(root):
    images = miniature.build("aircraft", root)
    with pytest.raises(reta.MissingData, match=r"images_variant_train.txt is missing"):
        training.open("aircraft", root)
    listed = images.parent / "images_variant_test.txt"
    first, *rest = listed.read_text().splitlines()
    listed.with_name("images_variant_train.txt").write_text(first + "\n")
    listed.write_text("\n".join(rest) + "\n")
    learn = training.open("aircraft", root)
    assert learn.keys == (f"{first.split()[0]}.jpg",)


def test_imagenet_keeps_them_beside_the_tested_ones(root):
    images = miniature.build("imagenet", root)
    with pytest.raises(reta.MissingData, match="no training images of ImageNet"):
        training.open("imagenet", root)
    tested = reta.data.open("imagenet", root)
    for folder in sorted(images.iterdir()):
        miniature.put(images.parent / "train" / folder.name / "other.png", 200)
    learn = training.open("imagenet", root)
    assert (len(learn), learn.names) == (miniature.CLASSES, tested.names)
    assert all(key.endswith("other.png") for key in learn.keys)


def test_sets_without_training_images_say_so(root):
    miniature.build("imagenet-a", root)
    with pytest.raises(reta.MissingData, match="imagenet-a has test images only: give training images"):
        training.open("imagenet-a", root)
    with pytest.raises(reta.BadInput, match="learn from the clean images, 'shapes'"):
        training.open("shapes@fog-3")


def test_the_embedded_world_is_drawn_anew():
    learn, tested = training.open("shapes"), reta.data.open("shapes")
    assert learn.names == tested.names
    pictures = {tested.image(i).tobytes() for i in range(0, len(tested), 40)}
    assert not any(learn.image(i).tobytes() in pictures for i in range(0, len(tested), 40))


def test_a_folder_is_what_it_is(tmp_path):
    for name in ("cat", "dog"):
        miniature.put(tmp_path / name / "0.png", 3)
    assert training.open(str(tmp_path)).names == ("cat", "dog")


def test_a_wrong_file_is_refused_before_the_work(tmp_path):
    from typer.testing import CliRunner

    from reta.commands.coop import app

    result = CliRunner().invoke(app, ["fit", "nowhere", "--out", str(tmp_path / "context.txt")])
    assert isinstance(result.exception, reta.BadInput)
    assert "a context is kept in a .safetensors file" in str(result.exception)
