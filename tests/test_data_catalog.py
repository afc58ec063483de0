"""The fifteen sets on miniature copies: right, broken in five ways each, and the traps of each set."""

from __future__ import annotations

import json
import shutil

import pytest

import reta.data
from reta.data import catalog
from reta.data.catalog.reading import open_entry
from reta.data.check import check
from reta.data.names import imagenet_names, wnids
from reta.errors import BadInput, MissingData
from tests import miniature


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A root for miniatures, with the catalog's counts scaled to them."""
    monkeypatch.setenv("RETA_CATALOG", str(miniature.catalog(tmp_path / "catalog")))
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.mark.parametrize("name", miniature.FIFTEEN)
def test_a_whole_copy_is_right(name, small):
    miniature.build(name, small)
    report = check(catalog.entry(name), small)
    assert report.status == "ok", report.problems
    data = reta.data.open(name, small)
    assert (len(data), len(data.names), sorted(set(data.labels))) == (6, 3, [0, 1, 2])
    assert data.image(0).size == (8, 8) and not data.partial
    assert data.version.startswith(f"{name}/1")
    assert set(data.templates) == {"coop", "tpt", "zero-ensemble", "tda", "dpe", "dmn"}


def _absent(name, images, root):
    shutil.rmtree(root)
    root.mkdir()


def _image_gone(name, images, root):
    next(p for p in sorted(images.rglob("*.*g"), reverse=True)).unlink()


def _image_empty(name, images, root):
    next(p for p in sorted(images.rglob("*.*g"), reverse=True)).write_bytes(b"")


def _list_gone(name, images, root):
    if name in miniature.WNID_SETS:
        shutil.rmtree(sorted(p for p in images.iterdir())[-1])
    else:
        next(p for p in root.rglob("*") if p.name in catalog.entry(name).split).unlink()


def _names_wrong(name, images, root):
    if name in miniature.WNID_SETS:
        miniature.put(images / "n99999999" / "1.png", 5)
    elif name == "aircraft":
        (images.parent / "variants.txt").write_text("707-320\nA330-200\n")
    else:
        path = next(p for p in root.rglob("*.json"))
        split = json.loads(path.read_text())
        swap = {1: 2, 2: 1}
        named = catalog.entry(name).named_by
        titles = {label: title for _, label, title in split["test"]}
        for row in split["test"]:
            row[2] = titles[swap.get(row[1], row[1])] if named else row[2]
        if not named:
            split["test"][0][2] = "something else"
        split["train"] = []
        path.write_text(json.dumps(split))


BREAKS = {
    "absent": (_absent, {"folder"}),
    "an image is gone": (_image_gone, {"missing", "count"}),
    "an image is empty": (_image_empty, {"empty"}),
    "the list or a class folder is gone": (_list_gone, {"split", "count", "names"}),
    "names are wrong": (_names_wrong, {"names", "read"}),
}


@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("name", miniature.FIFTEEN)
def test_a_broken_copy_is_told_with_the_recipe(name, how, small):
    images = miniature.build(name, small)
    entry = catalog.entry(name)
    act, kinds = BREAKS[how]
    act(name, images, small)
    report = check(entry, small)
    found = {problem.kind for problem in report.problems}
    assert found and found <= kinds, report.problems
    assert report.status == ("absent" if how == "absent" else "wrong")
    assert report.recipe[: len(entry.steps)] == list(entry.steps)
    if how not in ("an image is empty", "names are wrong"):
        with pytest.raises(MissingData, match="reta data check"):
            open_entry(entry, small)


def test_partial_sets_are_refused_unless_allowed_and_then_marked(small):
    _image_gone("dtd", miniature.build("dtd", small), small)
    with pytest.raises(MissingData, match="1 of 6 listed images are not there.*--allow-partial"):
        reta.data.open("dtd", small)
    data = reta.data.open("dtd", small, allow_partial=True)
    assert data.partial and len(data) == 5 and "partial: 1 of 6" in data.notes[-1]
    assert all(data.image(i) for i in range(5))


def test_v2_reads_the_number_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RETA_CATALOG", str(miniature.catalog(tmp_path / "catalog", test=24, classes=12)))
    images = tmp_path / "imagenetv2" / "imagenetv2-matched-frequency-format-val"
    for label in range(12):
        for i in range(2):
            miniature.put(images / str(label) / f"{i}.png", label)
    data = reta.data.open("imagenet-v2", tmp_path)
    assert [k.split("/")[0] for k in data.keys] == [str(i) for i in range(12) for _ in range(2)]
    assert list(data.labels) == [i for i in range(12) for _ in range(2)]
    assert list(data.names) == imagenet_names()[:12]


def test_v2_named_by_wordnet_id_is_the_same_set(small):
    images = miniature.build("imagenet-v2", small)
    before = reta.data.open("imagenet-v2", small)
    for i, wnid in enumerate(wnids()[: miniature.CLASSES]):
        (images / str(i)).rename(images / wnid)
    after = reta.data.open("imagenet-v2", small)
    assert after.labels == before.labels and after.names == before.names


def test_a_and_r_have_their_own_200_classes(small):
    assert wnids("imagenet_a") != wnids("imagenet_r") != wnids()[:200]
    for name, subset in (("imagenet-a", "imagenet_a"), ("imagenet-r", "imagenet_r")):
        miniature.build(name, small)
        data = reta.data.open(name, small)
        assert list(data.names) == imagenet_names(subset)[:3]
        assert [k.split("/")[0] for k in data.keys[::2]] == wnids(subset)[:3]
        assert (
            catalog.read(catalog.Path(str(catalog.files("reta.data.catalog"))) / f"{name}.toml").classes
            == 200
        )


def test_legacy_imagenet_a_leaves_out_names_with_sh(small):
    miniature.build("imagenet-a", small)
    data = reta.data.open("imagenet-a:legacy_6862", small)
    assert len(data) == 5 and not any("sh" in key.split("/")[1] for key in data.keys)
    assert data.version != reta.data.open("imagenet-a", small).version
    assert data.name == "imagenet-a:legacy_6862"


def test_food_names_come_from_the_split(small):
    miniature.build("food101", small)
    data = reta.data.open("food101", small)
    assert data.names == ("carrot cake", "cheese plate", "cheesecake")
    for key, label in zip(data.keys, data.labels):
        assert data.names[label] == key.split("/")[0].replace("_", " ")


def test_the_split_file_is_part_of_the_version(small):
    images = miniature.build("dtd", small)
    before = reta.data.open("dtd", small)
    split = images.parent / "split_zhou_DescribableTextures.json"
    split.write_text(split.read_text() + "\n")
    assert reta.data.open("dtd", small).version != before.version


def test_a_known_split_hash_is_compared(small, tmp_path):
    miniature.build("dtd", small)
    path = tmp_path / "catalog" / "dtd.toml"
    right = check(catalog.entry("dtd"), small).split_hash
    text = path.read_text()
    path.write_text(text + f'\n[known]\n"{"0" * 12}" = "CoOp"\n')
    assert [p.kind for p in check(catalog.read(path), small).problems] == ["hash"]
    path.write_text(text + f'\n[known]\n"{right}" = "CoOp"\n')
    assert check(catalog.read(path), small).status == "ok"


def test_numbers_are_no_class_folders_of_a(small):
    for label in range(3):
        miniature.put(small / "imagenet-a" / str(label) / "1.png", label)
    with pytest.raises(BadInput, match="must be WordNet ids"):
        reta.data.open("imagenet-a", small)


def test_classnames_txt_must_agree(small):
    images = miniature.build("imagenet", small)
    rows = [f"{w} {n}" for w, n in zip(wnids(), imagenet_names())]
    (images.parent.parent / "classnames.txt").write_text("\n".join(rows))
    assert check(catalog.entry("imagenet"), small).status == "ok"
    (images.parent.parent / "classnames.txt").write_text("\n".join(["n01440764 trout", *rows[1:]]))
    assert "n01440764" in check(catalog.entry("imagenet"), small).problems[0].text


def test_the_published_counts():
    """As the papers report them; the miniatures use copies."""
    counts = {name: (catalog.entry(name).test, catalog.entry(name).classes) for name in miniature.FIFTEEN}
    assert counts == {
        "caltech101": (2465, 100), "dtd": (1692, 47), "eurosat": (8100, 10), "aircraft": (3333, 100),
        "flowers102": (2463, 102), "food101": (30300, 101), "pets": (3669, 37), "cars": (8041, 196),
        "sun397": (19850, 397), "ucf101": (3783, 101), "imagenet": (50000, 1000), "imagenet-a": (7500, 200),
        "imagenet-v2": (10000, 1000), "imagenet-r": (30000, 200), "imagenet-sketch": (50889, 1000),
    }  # fmt: skip


def test_templates_of_the_families():
    texts = {name: catalog.entry(name).family("dpe") for name in miniature.FIFTEEN}
    assert {n for n, t in texts.items() if len(t) == 80} == {"imagenet-r", "imagenet-sketch"}
    assert {n for n, t in texts.items() if len(t) == 7} == {
        "imagenet",
        "imagenet-a",
        "imagenet-v2",
        "caltech101",
        "sun397",
    }
    assert len(texts["cars"]) == 2 and texts["eurosat"] == ["a centered satellite photo of {}."]
    assert all(
        "{}" in t
        for e in miniature.FIFTEEN
        for f in catalog.entry(e).templates
        for t in catalog.entry(e).family(f)
    )
    with pytest.raises(BadInput, match="did you mean 'tda'"):
        catalog.entry("dtd").family("tdaa")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 3 3", "not valid TOML"),
        ("titel = 'x'", "did you mean 'title'"),
        ("title = 'x'", "lacks version"),
    ],
)
def test_a_catalog_file_with_mistakes(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        catalog.read(path)


def test_a_set_of_your_own_is_one_toml_file(tmp_path):
    for c, name in enumerate(("Red_Fox", "Badger")):
        for i in range(2):
            miniature.put(tmp_path / "traps" / name / f"{i}.png", 10 * c + i)
    (tmp_path / "traps.toml").write_text(
        'title = "Camera traps"\nversion = "3"\nlicence = "mine"\nsource = "cellar"\nreader = "folder"\n'
        'test = 4\nclasses = 2\nfolders = ["traps"]\nrule = "lower"\n[templates]\nown = ["a trap photo of a {}."]\n'
    )
    data = reta.data.open(tmp_path / "traps.toml")
    assert data.names == ("badger", "red fox") and data.version == "traps/3" and len(data) == 4
    assert data.templates == {"own": ("a trap photo of a {}.",)}


def test_unknown_names_say_what_is_near():
    with pytest.raises(BadInput, match="did you mean 'imagenet-sketch'"):
        catalog.entry("imagenet-sketc")
    with pytest.raises(BadInput, match="did you mean 'legacy_6862'"):
        catalog.entry("imagenet-a", "legacy_686")
    with pytest.raises(BadInput, match="it has none"):
        catalog.entry("ucf101", "x")
