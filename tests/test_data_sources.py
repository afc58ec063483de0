"""Every kind of source a person may point at, right and wrong."""

from __future__ import annotations

import csv
import io
import json
import os
import tarfile
from pathlib import Path
from typing import ClassVar

import pytest
from PIL import Image

import reta.data
from reta.data import catalog
from reta.data.dataset import Dataset, Made, content
from reta.data.get import get, recipe
from reta.data.hub import Rows
from reta.data.sources import split_corruption
from reta.errors import BadImage, BadInput, MissingData, RetaError
from tests import miniature
from tests.miniature import picture, put


@pytest.fixture
def photos(tmp_path) -> Path:
    for i, name in enumerate(("hot_dog/a.png", "hot_dog/deep/b.PNG", "tea/c.png", "tea/d.png")):
        put(tmp_path / "photos" / name, i)
    return tmp_path / "photos"


def test_class_folders(photos):
    data = reta.data.open(photos)
    assert data.keys == ("hot_dog/a.png", "hot_dog/deep/b.PNG", "tea/c.png", "tea/d.png")
    assert data.names == ("hot dog", "tea") and data.labels == (0, 0, 1, 1) and data.name == "photos"
    assert data.counts() == {"hot dog": 2, "tea": 2}
    assert [label for _, label in data] == [0, 0, 1, 1] and data[-1][0].size == (8, 8)


def test_flat_folders_have_no_labels(photos):
    flat = reta.data.open(photos / "tea", names=["tea", "coffee"])
    assert flat.labels is None and flat.names == ("tea", "coffee") and flat[0][1] is None
    everything = reta.data.open(photos, layout="flat")
    assert len(everything) == 4 and everything.labels is None


def test_images_beside_folders_must_be_explained(photos):
    put(photos / "loose.png", 1)
    with pytest.raises(BadInput, match="layout='classes'.*layout='flat'"):
        reta.data.open(photos)
    assert len(reta.data.open(photos, layout="classes")) == 4
    assert len(reta.data.open(photos, layout="flat")) == 5


def test_class_lists_for_folders(photos, tmp_path):
    assert reta.data.open(photos, names=["tea", "soup", "hot dog"]).labels == (2, 2, 0, 0)
    (tmp_path / "names.txt").write_text("tea\nhot_dog\n")
    assert reta.data.open(photos, names=tmp_path / "names.txt").labels == (1, 1, 0, 0)
    mapped = reta.data.open(photos, names={"tea": "a cup of tea", "hot_dog": "sausage"})
    assert mapped.names == ("a cup of tea", "sausage") and mapped.labels == (1, 1, 0, 0)
    with pytest.raises(BadInput, match="1 names, there are 2 class folders.*'hot_dog'"):
        reta.data.open(photos, names=["tea"])
    with pytest.raises(BadInput, match="first: 'hot_dog'"):
        reta.data.open(photos, names=["tea", "frankfurter"])


def test_what_is_no_image_is_listed(photos):
    (photos / "tea" / "notes.txt").write_text("x")
    (photos / "tea" / ".DS_Store").write_text("x")
    (photos / "empty").mkdir()
    data = reta.data.open(photos)
    assert data.skipped == ("tea/notes.txt",) and "1 class folders hold no image: empty" in data.notes[0]
    assert len(data.names) == 3


def test_links_are_followed_and_loops_are_not(photos, tmp_path):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "tea").symlink_to(photos / "tea")
    (photos / "tea" / "again").symlink_to(photos / "tea")
    assert reta.data.open(tmp_path / "links").keys == ("tea/c.png", "tea/d.png")


def test_folders_that_cannot_be_read(photos, tmp_path, monkeypatch):
    with pytest.raises(MissingData, match="no such path, and no data set of this name: 'photo'.*"):
        reta.data.open("photo")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(MissingData, match="no images in"):
        reta.data.open(tmp_path / "nothing")
    real = os.scandir

    def refuse(path):
        if Path(path).name == "tea":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(
        MissingData, match="cannot read the folder .*tea: Permission denied; check its rights"
    ):
        reta.data.open(photos)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="another user is played by a process of its own")
@pytest.mark.parametrize("rights", [0o000, 0o444])
def test_a_folder_without_rights_is_told(photos, rights):
    above = [folder for folder in (photos, *photos.parents) if "pytest" in str(folder)]
    before = [(folder, folder.stat().st_mode & 0o777) for folder in above]
    for folder, mode in before:
        folder.chmod(mode | 0o055)
    assert reta.data.open(photos / "tea").labels is None  # and everything is imported while it may be read
    (photos / "tea").chmod(rights)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            reta.data.open(photos / "tea")
        except MissingData as error:
            code = 0 if "cannot read" in str(error) and "check its rights" in str(error) else 2
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    (photos / "tea").chmod(0o755)
    for folder, mode in before:
        folder.chmod(mode)
    assert status == 0


def test_an_image_that_cannot_be_read_has_a_reason(photos):
    data = reta.data.open(photos)
    (photos / "tea" / "c.png").unlink()
    (photos / "tea" / "d.png").write_bytes(b"")
    for index, reason in ((2, "missing"), (3, "empty")):
        with pytest.raises(BadImage) as caught:
            data.image(index)
        assert caught.value.reason == reason


def test_the_fingerprint_follows_the_content(photos):
    first = reta.data.open(photos).fingerprint
    assert reta.data.open(photos).fingerprint == first
    put(photos / "tea" / "c.png", 200)
    second = reta.data.open(photos).fingerprint
    (photos / "tea" / "d.png").rename(photos / "tea" / "e.png")
    assert len({first, second, reta.data.open(photos).fingerprint}) == 3
    assert content(Made(lambda: Image.new("RGB", (2, 2)))) != content(
        Made(lambda: Image.new("RGB", (2, 2), "red"))
    )


def write_csv(path: Path, rows: list[dict]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


ROWS = [{"path": "tea/c.png", "label": "tea"}, {"path": "hot_dog/a.png", "label": "hot_dog"}]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_lists(photos, kind):
    path = photos / f"list.{kind}"
    if kind == "csv":
        write_csv(path, ROWS)
    elif kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), path)
    data = reta.data.open(path)
    assert data.labels == (1, 0) and data.names == ("hot dog", "tea") and data.image(1).size == (8, 8)
    assert reta.data.open(path, names=["tea", "hot dog", "soup"]).labels == (0, 1)
    with pytest.raises(BadInput, match="classes that are not in the class list"):
        reta.data.open(path, names=["tea"])


def test_lists_with_numbers_a_root_and_no_labels(photos, tmp_path):
    path = write_csv(tmp_path / "list.csv", [{"File": "c.png", "Label": 1}, {"File": "d.png", "Label": 0}])
    data = reta.data.open(path, root=photos / "tea", names=["a", "b"])
    assert data.labels == (1, 0) and data.image(0).size == (8, 8) and data.names == ("a", "b")
    with pytest.raises(BadInput, match="'c.png' has label 1, but there are 1 class names"):
        reta.data.open(path, root=photos / "tea", names=["a"])
    bare = write_csv(tmp_path / "bare.csv", [{"image": "c.png"}])
    assert reta.data.open(bare, root=photos / "tea").labels is None


def test_lists_with_odd_names_and_whole_paths(tmp_path):
    names = [
        "a b.png",
        " before.png",
        "after .png",
        'quo"te.png',
        "new\nline.png",
        "com,ma.png",
        "u\u2028p.png",
        "b\\s.png",
    ]
    for i, name in enumerate(names):
        (tmp_path / name).write_bytes(picture(i))
    rows = [{"path": name, "label": "x"} for name in names]
    (tmp_path / "list.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    for path in (write_csv(tmp_path / "list.csv", rows), tmp_path / "list.jsonl"):
        data = reta.data.open(path)
        assert [data.image(i).getpixel((0, 0)) for i in range(8)] == [(i, 0, 90) for i in range(8)]
    whole = write_csv(tmp_path / "WHOLE.CSV", [{"path": tmp_path / name} for name in names[:2]])
    assert reta.data.open(whole).keys == ("a b.png", " before.png")
    typed = write_csv(tmp_path / "typed.csv", [{"path": " sub\\a.png "}])
    assert reta.data.open(typed).keys == ("sub/a.png",)
    with pytest.raises(BadInput, match="which is not below .*: give the folder of the images as root"):
        reta.data.open(whole, root=tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("path,label\na.png,-1\n", "csv", "row 1 has label -1; numbers count the classes from 0"),
        ("path,label\na.png,0\nb.png,9999999999\n", "csv", "row 2 has label 9999999999"),
        ("path\na\0.png\n", "csv", "not a path below"),
        (f"path\n{'a' * 200_000}\n", "csv", "not a valid csv"),
        ("place,label\na.png,x\n", "csv", "no column of paths"),
        ("path,label\n", "csv", "lists no images"),
        ("path,label\n../a.png,x\n", "csv", "not a path below"),
        ("path,label\na.png,x\nb.png,\n", "csv", "row 2 has no label"),
        ("path,label\na.png,x\na.png,x\n", "csv", "occurs more than once"),
        ("[1]\n", "jsonl", "JSON object"),
        ("{oops\n", "jsonl", "not a valid jsonl"),
        ("PAR1", "parquet", "not a valid parquet"),
    ],
)
def test_lists_with_mistakes(tmp_path, text, kind, message):
    path = tmp_path / f"list.{kind}"
    path.write_text(text)
    with pytest.raises(RetaError, match=message):
        reta.data.open(path)


SPLIT = {
    "train": [["tea/d.png", 1, "tea"]],
    "test": [["tea/c.png", 1, "tea"], ["hot_dog/a.png", 0, "hot_dog"]],
}


def test_split_files(photos):
    path = photos / "split.json"
    path.write_text(json.dumps(SPLIT))
    data = reta.data.open(path)
    assert data.labels == (1, 0) and data.names == ("hot dog", "tea") and data.image(0).size == (8, 8)
    assert reta.data.open(path, split="train").keys == ("tea/d.png",)
    with pytest.raises(BadInput, match="no split 'val'"):
        reta.data.open(path, split="val")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{", "cannot be read as JSON"),
        ([], "not a split file"),
        ({"test": [["a.png", 0]]}, "not \\[path, label, class name\\]"),
        ({"test": [["a.png", "0", "x"]]}, "not \\[path, label, class name\\]"),
        ({"test": [["a.png", 0, "x"], ["b.png", 0, "y"]]}, "label 0 is named 'x' and 'y'"),
        ({"test": [["a.png", 0, "x"], ["b.png", 2, "y"]]}, "no class has label 1"),
        ({"test": [["../a.png", 0, "x"]]}, "not a path below"),
        ({"test": []}, "no images"),
    ],
)
def test_split_files_with_mistakes(tmp_path, table, message):
    path = tmp_path / "split.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    with pytest.raises(RetaError, match=message):
        reta.data.open(path)


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def shards(tmp_path) -> Path:
    for s in range(2):
        rows = {}
        for i in range(3):
            rows |= {f"s{i}.png": picture(10 * s + i), f"s{i}.cls": str((s + i) % 2).encode()}
        write_tar(tmp_path / "wds" / "test" / f"{s}.tar", rows)
    (tmp_path / "wds" / "test" / "nshards.txt").write_text("2")
    (tmp_path / "wds" / "classnames.txt").write_text("hot dog\ntea\n")
    return tmp_path / "wds"


def test_tar_shards(shards):
    data = reta.data.open(shards)
    assert data.keys == ("0/s0", "0/s1", "0/s2", "1/s0", "1/s1", "1/s2") and data.names == ("hot dog", "tea")
    assert data.labels == (0, 1, 0, 1, 0, 1)
    assert [data.image(i).getpixel((0, 0)) for i in range(6)] == [(c, 0, 90) for c in (0, 1, 2, 10, 11, 12)]
    alone = reta.data.open(shards / "test" / "1.tar")
    assert len(alone) == 3 and alone.names == ("hot dog", "tea")
    (shards / "classnames.txt").unlink()
    assert reta.data.open(shards / "test" / "1.tar").names == ("0", "1")


def test_a_shard_that_did_not_arrive_is_missed(shards):
    (shards / "test" / "1.tar").unlink()
    with pytest.raises(MissingData, match="1 shards, nshards.txt says 2"):
        reta.data.open(shards)


def test_shards_with_mistakes(shards):
    os.truncate(shards / "test" / "1.tar", 700)
    with pytest.raises(MissingData, match="not a whole, uncompressed tar"):
        reta.data.open(shards)
    write_tar(shards / "test" / "1.tar", {"a.png": picture(1)})
    with pytest.raises(BadInput, match="1 of 4 images have no .cls"):
        reta.data.open(shards)
    write_tar(shards / "test" / "1.tar", {"a.png": picture(1), "a.cls": b"tea"})
    with pytest.raises(BadInput, match="is no label"):
        reta.data.open(shards)
    write_tar(shards / "test" / "1.tar", {"a.png": picture(1), "a.cls": b"0", "a.jpg": picture(2)})
    with pytest.raises(BadInput, match="two images named 'a'"):
        reta.data.open(shards)


def test_a_shard_cut_between_two_members_is_no_whole_shard(shards):
    """Python's tarfile takes it for the end."""
    with tarfile.open(shards / "test" / "1.tar") as archive:
        third = archive.getmembers()[4].offset
    os.truncate(shards / "test" / "1.tar", third)
    with pytest.raises(MissingData, match="not a whole, uncompressed tar"):
        reta.data.open(shards)


def test_shards_with_json_labels(tmp_path):
    path = write_tar(tmp_path / "x.tar", {"a.png": picture(1), "a.json": b'{"label": 1}'})
    assert reta.data.open(path, names=["n", "y"]).labels == (1,)


@pytest.mark.parametrize("streaming", [False, True])
def test_hugging_face_data(tmp_path, streaming, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    labels = datasets.ClassLabel(names=["hot_dog", "tea"])
    features = datasets.Features({"image": datasets.Image(), "label": labels})
    rows = {"image": [{"bytes": picture(i), "path": None} for i in range(5)], "label": [0, 1, 1, 0, 1]}
    (tmp_path / "pics").mkdir()
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "pics" / "test-0.parquet")
    data = reta.data.open(f"hf:{tmp_path / 'pics'}", streaming=streaming)
    assert data.labels == (0, 1, 1, 0, 1) and data.names == ("hot dog", "tea") and data.name == "pics"
    assert [data.image(i).getpixel((0, 0))[0] for i in (0, 1, 2, 4, 3, 1)] == [0, 1, 2, 4, 3, 1]
    with pytest.raises(MissingData, match="cannot open"):
        reta.data.open(f"hf:{tmp_path / 'nothing'}", streaming=streaming)


@pytest.mark.parametrize("form", ["saved", "saved dict", "parquet file", "parquet folder"])
def test_hugging_face_data_on_this_disk(form, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    hub = pytest.importorskip("datasets")
    kinds = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=["hot_dog", "tea"])})
    rows = [{"image": {"bytes": picture(i), "path": None}, "label": i % 2} for i in range(3)]
    made, place = hub.Dataset.from_list(rows, features=kinds), tmp_path / "mine"
    if form == "saved":
        made.save_to_disk(str(place))
    elif form == "saved dict":
        hub.DatasetDict({"train": made.select([0]), "test": made}).save_to_disk(str(place))
    else:
        (place / "data").mkdir(parents=True)
        made.to_parquet(str(place / "data" / "test-00000-of-00001.parquet"))
    data = reta.data.open(next(place.glob("*/*.parquet")) if form == "parquet file" else place)
    assert data.labels == (0, 1, 0) and data.names == ("hot dog", "tea")
    assert data.image(2).getpixel((0, 0)) == (2, 0, 90) and str(tmp_path) not in data.version


def test_an_image_behind_a_path_counts_by_its_content(tmp_path):
    (tmp_path / "a.png").write_bytes(picture(1))
    first = content(Made(lambda: tmp_path / "a.png"))
    (tmp_path / "a.png").write_bytes(picture(2))
    assert content(Made(lambda: tmp_path / "a.png")) != first


def test_a_stream_is_read_once_by_several_readers():
    passes = []

    class Source:
        def __iter__(self):
            passes.append(1)
            return iter([{"image": i} for i in range(20)])

    rows = Rows(Source(), "image")
    assert [rows.image(i) for i in (1, 0, 3, 2, 19, 10)] == [1, 0, 3, 2, 19, 10] and len(passes) == 1
    with pytest.raises(MissingData, match="ended before image 20"):
        rows.image(20)


def test_torchvision_classes(tmp_path):
    for c, name in enumerate(("AnnualCrop", "River")):
        for i in range(2):
            put(tmp_path / "eurosat" / "2750" / name / f"{name}_{i}.png", 10 * c + i)
    data = reta.data.open("torchvision:EuroSAT", tmp_path)
    assert (
        data.labels == (0, 0, 1, 1) and data.names == ("AnnualCrop", "River") and data.image(3).size == (8, 8)
    )
    with pytest.raises(BadInput, match="did you mean 'EuroSAT'"):
        reta.data.open("torchvision:EuroSATT", tmp_path)
    with pytest.raises(MissingData, match="torchvision finds no DTD"):
        reta.data.open("torchvision:DTD", tmp_path)


def test_torchvision_variants_of_the_catalog(tmp_path, monkeypatch):
    folder = miniature.catalog(tmp_path / "catalog")
    path = folder / "caltech101.toml"
    path.write_text(path.read_text().replace("test = 8242\nclasses = 100", "test = 4\nclasses = 2"))
    monkeypatch.setenv("RETA_CATALOG", str(folder))
    for c, name in enumerate(("BACKGROUND_Google", "Faces", "Faces_easy", "ant")):
        for i in range(2):
            put(tmp_path / "caltech101" / "101_ObjectCategories" / name / f"image_{i + 1:04}.jpg", 10 * c + i)
        (tmp_path / "caltech101" / "Annotations").mkdir(parents=True, exist_ok=True)
    data = reta.data.open("caltech101:torchvision", tmp_path)
    assert data.names == ("face", "ant") and data.labels == (0, 0, 1, 1)
    assert data.version == "caltech101:torchvision/1" and "the papers do not apply" in data.notes[0]
    assert [data.image(i).getpixel((0, 0))[0] for i in range(4)] == [10, 11, 30, 31]


def test_get_fetches_an_archive_and_checks_it(tmp_path, monkeypatch):
    source = tmp_path / "source"
    miniature.build("imagenet-r", source)
    with tarfile.open(tmp_path / "imagenet-r.tar", "w") as archive:
        archive.add(source / "imagenet-rendition" / "imagenet-r", "imagenet-r")
    folder = miniature.catalog(tmp_path / "catalog")
    path = folder / "imagenet-r.toml"
    url = (tmp_path / "imagenet-r.tar").as_uri()
    path.write_text(
        path.read_text().replace("https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar", url)
    )
    monkeypatch.setenv("RETA_CATALOG", str(folder))
    whole = (tmp_path / "imagenet-r.tar").read_bytes()
    (tmp_path / "imagenet-r.tar").write_bytes(whole[:5000])
    with pytest.raises(MissingData, match="damaged"):
        get(catalog.entry("imagenet-r"), tmp_path / "root")
    assert not [p for p in (tmp_path / "root").rglob("*") if p.is_file()]
    (tmp_path / "imagenet-r.tar").write_bytes(whole)
    got = get(catalog.entry("imagenet-r"), tmp_path / "root")
    assert got.fetched == [url] and got.report.status == "ok" and got.steps == []
    assert get(catalog.entry("imagenet-r"), tmp_path / "root").fetched == []
    assert not list((tmp_path / "root").rglob("*.part"))


def test_get_refuses_an_archive_that_leaves_its_folder(tmp_path, monkeypatch):
    write_tar(tmp_path / "evil.tar", {"../outside.txt": b"x"})
    folder = miniature.catalog(tmp_path / "catalog")
    path = folder / "imagenet-r.toml"
    old = "https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar"
    path.write_text(path.read_text().replace(old, (tmp_path / "evil.tar").as_uri()))
    monkeypatch.setenv("RETA_CATALOG", str(folder))
    with pytest.raises(MissingData, match="not a tar archive, or it is damaged"):
        get(catalog.entry("imagenet-r"), tmp_path / "root")
    assert not list(tmp_path.rglob("outside.txt")) and not list(tmp_path.rglob("*.part"))
    path.write_text(path.read_text().replace("file://", "ftp://"))
    with pytest.raises(MissingData, match="not an https address"):
        get(catalog.entry("imagenet-r"), tmp_path / "root")


def test_get_notices_a_connection_that_was_cut(tmp_path, monkeypatch):
    class Answer(io.BytesIO):
        headers: ClassVar = {"Content-Length": "20000"}

    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: Answer(bytes(10240)))
    with pytest.raises(MissingData, match="cut off after 10,240 of 20,000 bytes"):
        get(catalog.entry("imagenet-r"), tmp_path)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_get_from_hugging_face(tmp_path, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot(repo, repo_type, local_dir, allow_patterns):
        asked.append(repo)
        write_tar(local_dir / "test" / "0.tar", {f"s{i}.png": picture(i) for i in range(6)} | _labels(6))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    folder = miniature.catalog(tmp_path / "catalog")
    path = folder / "cars.toml"
    path.write_text(path.read_text().replace("test = 8041\nclasses = 196", "test = 6\nclasses = 3"))
    monkeypatch.setenv("RETA_CATALOG", str(folder))
    got = get(catalog.entry("cars", "wds"), tmp_path / "root")
    assert asked == ["clip-benchmark/wds_cars"] and got.report.status == "ok", got.report.problems
    assert reta.data.open("cars:wds", tmp_path / "root").labels == (0, 1, 2, 0, 1, 2)


def _labels(n: int) -> dict[str, bytes]:
    return {f"s{i}.cls": str(i % 3).encode() for i in range(n)}


def test_get_without_a_network_prints_the_recipe(tmp_path):
    with pytest.raises(MissingData, match="(?s)does not deliver.*1. Run `reta data get`"):
        get(catalog.entry("cars", "wds"), tmp_path)
    got = get(catalog.entry("sun397"), tmp_path)
    assert got.fetched == [] and any("404" in step for step in got.steps)
    assert "Princeton" in recipe(catalog.entry("sun397")) and got.report.status == "absent"


def test_embedded_sets():
    data = reta.data.open("shapes-sketch", n=6)
    assert len(data) == 6 and len(data.names) == 40 and set(data.prompts) == set(data.names)
    assert data.version == reta.data.open("shapes-sketch", n=3).version and data.partial
    assert len(reta.data.open("shapes")) == 2000 and not reta.data.open("shapes").partial
    assert data.version != reta.data.open("shapes-sketch", n=6, seed=1).version
    assert data.image(2).tobytes() == reta.data.open("shapes-sketch", n=6).image(2).tobytes()


def test_the_first_n_of_any_set(photos):
    data = reta.data.open(photos, n=2)
    assert data.keys == ("hot_dog/a.png", "hot_dog/deep/b.PNG") and data.partial
    with pytest.raises(BadInput, match="at least 1"):
        reta.data.open(photos, n=0)


def test_corruption_syntax(tmp_path):
    assert split_corruption("imagenet-a:legacy_6862@jpeg_compression-5") == (
        "imagenet-a:legacy_6862",
        ("jpeg_compression", 5),
    )
    odd = tmp_path / "me@home-3"
    put(odd / "x.png", 1)
    assert split_corruption(str(odd)) == (str(odd), None) and len(reta.data.open(odd)) == 1
    for wrong, message in (
        ("shapes@fog", "written name@"),
        ("shapes@fogg-3", "'fog'"),
        ("shapes@fog-6", "1 to 5"),
    ):
        with pytest.raises(BadInput, match=message):
            reta.data.open(wrong)


def test_corrupted_sets_of_every_kind(photos):
    clean, foggy = reta.data.open(photos), reta.data.open(f"{photos}@contrast-5")
    assert foggy.keys == clean.keys and foggy.labels == clean.labels and foggy.name == "photos@contrast-5"
    assert foggy.version == "folder contrast-5 seed 0" and foggy.fingerprint != clean.fingerprint
    assert foggy.image(2).tobytes() == reta.data.open(f"{photos}@contrast-5").image(2).tobytes()
    noisy = [reta.data.open(f"{photos}@gaussian_noise-5", seed=s).image(0).tobytes() for s in (0, 0, 1)]
    assert noisy[0] == noisy[1] != noisy[2]
    world = reta.data.open("shapes@jpeg_compression-5", n=2)
    assert world.image(0).tobytes() != reta.data.open("shapes", n=2).image(0).tobytes() and world.fixed


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ((0, 2), ("a", "b"), "label 2, but there are 2"),
        ((0,), ("a",), "1 labels for 2"),
        ((-1, 0), ("a",), "label -1"),
    ],
)
def test_labels_out_of_range(labels, names, message):
    with pytest.raises(BadInput, match=message):
        Dataset("x", ("k", "l"), [Made(lambda: Image.new("RGB", (2, 2)))] * 2, labels, names)
