"""`reta data`, `reta prompts` and `reta features`, as a user types them."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest

from reta import cli
from tests import miniature
from tests.stores import folder


@pytest.fixture
def reta(capsys, monkeypatch):
    """Run the command line here: exit code, standard output, standard error."""

    def run(*args: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["reta", *map(str, args)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setenv("RETA_CATALOG", str(miniature.catalog(tmp_path / "catalog")))
    monkeypatch.setenv("RETA_DATA", str(tmp_path / "root"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_list_and_show(reta, small):
    miniature.build("dtd", small)
    code, out, _ = reta("data", "list", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0 and set(miniature.FIFTEEN) < set(rows) and rows["shapes"]["here"] == "embedded"
    assert rows["dtd"]["here"] == "yes" and rows["pets"]["here"] == "no"
    assert rows["imagenet-a"]["variants"] == ["legacy_6862", "wds"]
    code, out, _ = reta("data", "list")
    assert code == 0 and "Describable Textures" in out
    code, out, _ = reta("data", "show", "cars")
    assert code == 0 and "The official site is gone" in out and "dpe" in out
    assert "known: 221b0349: ReTA" in reta("data", "show", "food101")[1]
    assert json.loads(reta("data", "show", "imagenet-a:legacy_6862", "--json")[1])["exclude"] == "sh"
    assert json.loads(reta("data", "show", "shapes-r", "--json")[1])["images"] == 2000
    code, out, err = reta("data", "list", "--root", small / "nowhere")
    assert code == 1 and out == "" and err.startswith("error: no such folder")
    code, _, err = reta("data", "show", "carz")
    assert code == 2 and "did you mean 'cars'?" in err and "Traceback" not in err


def test_check(reta, small):
    images = miniature.build("dtd", small)
    code, out, _ = reta("data", "check", "dtd")
    assert code == 0 and out.startswith("dtd: ok, 6 images, 3 classes")
    next(images.rglob("*_0002.png")).unlink()
    code, out, err = reta("data", "check", "dtd", "pets")
    assert code == 1 and "missing: 1 of 6 listed images" in out and "split_zhou_OxfordPets.json" in out
    assert "2 of 2 sets are not right: dtd, pets" in err
    code, out, _ = reta("data", "check", "--json")
    status = {r["name"]: r["status"] for r in json.loads(out)}
    assert code == 1 and status["dtd"] == "wrong" and status["pets"] == "absent" and len(status) == 15
    code, out, _ = reta("data", "check", "dtd", "--root", small / "nowhere", "--json")
    assert code == 1 and json.loads(out)[0]["status"] == "absent"
    code, out, err = reta("data", "check", "--root", small / "nowhere")
    assert code == 1 and out == "" and err.startswith("error: no such folder") and len(err.splitlines()) == 1


def test_check_of_a_folder_of_your_own(reta, tmp_path):
    photos = folder(tmp_path / "photos")
    assert reta("data", "check", photos)[0] == 0
    (photos / "cat" / "0.png").write_bytes(b"no")
    (photos / "cat" / "list.txt").write_text("x")
    code, out, _ = reta("data", "check", photos, "--json")
    report = json.loads(out)[0]
    assert code == 1 and [p["kind"] for p in report["problems"]] == ["format"]
    assert "not taken for an image: 'cat/list.txt'" in report["notes"]
    (photos / "cat" / "0.png").rename(photos / "loose.png")
    code, _, err = reta("data", "check", photos)
    assert code == 2 and "--layout flat" in err
    code, out, _ = reta("data", "check", photos, "--layout", "flat", "--classes", "a,b", "--json")
    assert [p["kind"] for p in json.loads(out)[0]["problems"]] == ["format"]
    assert json.loads(out)[0]["classes"] == 2


def test_get_says_what_is_left(reta, small):
    code, _, err = reta("data", "get", "shapes")
    assert code == 2 and "nothing to get" in err
    code, out, err = reta("data", "get", "sun397")
    assert code == 1 and "404" in out and "3 steps are left" in err
    assert "3. Run `reta data check sun397`." in out and "4. " not in out and "    Note: " in out
    miniature.build("sun397", small)
    code, out, _ = reta("data", "get", "sun397", "--json")
    assert code == 0 and json.loads(out)["report"]["status"] == "ok"


def test_prompts_of_a_set(reta, small, tmp_path):
    miniature.build("dtd", small)
    code, out, err = reta("data", "prompts", "dtd")
    assert code == 0 and out.splitlines()[:2] == ["banded (1)", "  banded texture."]
    assert "3 classes, 3 sentences; prompts: none" in err
    cupl = {
        "banded": ["It has bands."],
        "polka-dotted": ["It has dots.", "Dots."],
        "zigzagged": ["It has zigzags."],
    }
    (small / "gpt3_prompts").mkdir()
    (small / "gpt3_prompts" / "CuPL_prompts_dtd.json").write_text(json.dumps(cupl))
    code, out, err = reta(
        "data", "prompts", "dtd", "--prompts", "auto", "--templates", "a {} thing.", "--json"
    )
    found = json.loads(out)
    assert found["classes"][1] == {
        "name": "polka-dotted",
        "sentences": ["a polka-dotted thing.", "It has dots.", "Dots."],
    }
    assert len(found["prompts"]["sha256"]) == 64 and found["prompts"]["known"] == ""
    photos = folder(tmp_path / "photos")
    for family, count in (("coop", 1), ("dpe", 7)):
        found = json.loads(reta("data", "prompts", photos, "--templates", family, "--json")[1])
        assert {len(row["sentences"]) for row in found["classes"]} == {count}
    (tmp_path / "bad.json").write_text(json.dumps({"banded": ["x"]}))
    code, _, err = reta("data", "prompts", "dtd", "--prompts", tmp_path / "bad.json")
    assert code == 2 and "no sentences for ['polka-dotted', 'zigzagged']" in err
    code, _, err = reta("data", "prompts", "dtd", "--prompts", tmp_path / "none.json")
    assert code == 2 and "no such prompt file" in err


@pytest.mark.skipif(find_spec("clip_benchmark") is None, reason="comes with the extra `data`")
def test_prompts_of_imagenet_from_clip_benchmark(reta):
    code, out, _ = reta("data", "prompts", "imagenet-r", "--prompts", "auto", "--json")
    found = json.loads(out)
    assert (
        code == 0
        and len(found["classes"]) == 200
        and {len(c["sentences"]) for c in found["classes"]} == {230}
    )
    assert found["prompts"]["source"] == "clip-benchmark"
    code, out, _ = reta("data", "prompts", "imagenet", "--prompts", "clip-benchmark", "--json")
    classes = json.loads(out)["classes"]
    same = [c["sentences"] for c in classes if c["name"] == "missile"]
    assert len(classes) == 1000 and len(same) == 2 and same[0] == same[1]


def test_suggest(reta, tmp_path):
    out_file = tmp_path / "prompts.json"
    code, _, err = reta(
        "prompts", "suggest", "--classes", "river,annual_crop", "--domain", "satellite", "--out", out_file
    )
    table = json.loads(out_file.read_text())
    assert code == 0 and list(table) == ["river", "annual crop"] and {len(v) for v in table.values()} == {12}
    assert len(set(table["river"])) == 12 and all("river" in s for s in table["river"])
    code, _, err = reta("prompts", "suggest", "--classes", "river", "--out", out_file)
    assert code == 2 and "may hold your edits" in err
    assert (
        "did you mean 'camera-trap'"
        in reta("prompts", "suggest", "--classes", "fox", "--domain", "cameratrap")[2]
    )
    code, out, _ = reta("prompts", "suggest", "--list")
    assert code == 0 and len(out.splitlines()) >= 12
    assert reta("prompts", "suggest")[0] == 2
    for wrong in ("3", "1000"):
        assert reta("prompts", "suggest", "--classes", "fox", "--n", wrong)[0] == 2


def test_features_from_build_to_rm(reta, tmp_path, monkeypatch):
    import reta.backbone as backbones
    from tests.stores import Fake

    monkeypatch.setattr(backbones, "load", lambda *a, **k: Fake())
    monkeypatch.setattr("reta.load", lambda *a, **k: Fake(), raising=False)
    photos = folder(tmp_path / "photos")
    (photos / "cat" / "2.png").write_bytes(b"no image")
    root = ("--root", tmp_path / "features")
    build = ("features", "build", photos, "--model", "fake", "--views", "crops", "--n-views", 3, *root)
    code, out, err = reta(*build)
    assert code == 1 and "bad: 'cat/2.png': format" in err and "6 images, 3 views" in out
    code, out, _ = reta(*build, "--skip-bad", "--json")
    made = json.loads(out)
    assert code == 0 and made["done"] == 100 and [b["key"] for b in made["bad"]] == ["cat/2.png"]
    code, out, _ = reta("features", "list", "--json", *root)
    assert code == 0 and [row["path"] for row in json.loads(out)] == [made["path"]]
    assert "finished" in reta("features", "list", *root)[1]
    assert reta("features", "verify", *root)[0] == 0
    code, out, _ = reta("features", "verify", "photos", "--data", photos, "--json", *root)
    assert code == 0 and json.loads(out)[0]["problems"] == []
    next((tmp_path / "features").rglob("00000.safetensors")).unlink()
    code, out, err = reta("features", "verify", *root)
    assert code == 1 and "00000.safetensors is missing" in out and "--repair" in err
    code, _, err = reta("features", "rm", "photo-z", "--yes", *root)
    assert code == 2 and "which store is 'photo-z'?" in err
    code, out, _ = reta("features", "rm", "photos", "--yes", *root)
    assert code == 0 and "deleted 1 stores" in out
    code, out, err = reta("features", "list", *root)
    assert code == 0 and "no stores in" in err


def test_features_of_a_model_in_a_folder(reta, tmp_path, tiny_root):
    from tests import tiny

    tiny.write(tiny_root / "features-vit", "vit")
    store = ("--root", tmp_path / "features")
    for command in ("verify", "list"):
        code, _, err = reta("features", command, *store)
        assert code == 0 and err.startswith("no stores in")
    code, _, err = reta("features", "rm", "photos", *store)
    assert code == 2 and "no stores in" in err
    build = ("features", "build", "shapes", "--n", 2, "--model", tiny_root / "features-vit", *store)
    code, out, err = reta(*build, "--views", "plain")
    assert code == 0 and "2 images, partial, 1 views" in out, err
    for wrong in ("--n-views", "--batch", "--shard", "--workers", "--n"):
        assert reta(*build, wrong, 0)[0] == 2


def test_an_interrupted_build_says_what_is_kept_and_goes_on(reta, tmp_path, tiny_root, monkeypatch):
    from reta.bench.encoding import Encoder
    from tests import tiny

    model = tiny.shared(tiny_root, "vit")
    build = ("features", "build", "shapes", "--n", 5, "--shard", 2, "--model", model, "--views", "plain")
    build = (*build, "--n-views", 1, "--root", tmp_path / "features")
    groups = Encoder.groups

    def interrupted(self, data, rows):
        if 2 in rows:
            raise KeyboardInterrupt
        return groups(self, data, rows)

    monkeypatch.setattr(Encoder, "groups", interrupted)
    code, _, err = reta(*build)
    assert code == 130
    assert "stopped; 2 of 5 images are encoded and kept (shards of 2 are written whole)" in err
    assert "the same command goes on there" in err
    began = []
    monkeypatch.setattr(
        Encoder, "groups", lambda self, data, rows: began.append(rows[0]) or groups(self, data, rows)
    )
    assert reta(*build)[0] == 0 and began == [2, 4]


@pytest.mark.parametrize(
    "words",
    [("data",), ("data", "check"), ("data", "prompts"), ("prompts", "suggest"), ("features", "build")],
)
def test_help_is_there(reta, words):
    code, out, _ = reta(*words, "--help")
    assert "Usage" in out


def test_data_that_is_not_there(reta, tmp_path):
    code, _, err = reta("features", "build", tmp_path / "none", "--model", "reta-mini")
    assert code == 1 and err.startswith("error: no such path") and len(err.splitlines()) == 1
