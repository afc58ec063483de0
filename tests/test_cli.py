"""The command line as a user meets it: answers, files, errors, exit codes, interruptions."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from reta import cli

CLASSES = "star,key,anchor"


@pytest.fixture
def reta(monkeypatch, capsys):
    """Run the command line in this process: (exit code, standard output, standard error)."""

    def run(*args: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["reta", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def model(tiny_root):
    from tests import tiny

    folder = tiny_root / "cli-vit"
    tiny.write(folder, "vit")
    return folder


def paint(folder, n, start=0):
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(start, start + n):
        rng = np.random.default_rng(i)
        pixels = (rng.integers(0, 256, (1, 1, 3)) * rng.uniform(0.3, 1, (40, 48, 3))).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"p{i:03}.png")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    paint(folder, 5)
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "notes.jpg").write_text("not an image")
    whole = (folder / "p000.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    return folder


def test_help_is_quick_and_needs_no_torch():
    code = (
        "import sys; sys.argv = ['reta', '--help']\n"
        "from reta.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'open_clip', 'PIL', 'numpy', 'rich.progress'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "classify" in done.stdout


def every_command(command=None, path=()):
    import typer

    command = command or typer.main.get_command(cli.app)
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from every_command(child, (*path, name))


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_every_command_explains_itself(reta, path):
    code, out, _ = reta(*path, "--help")
    assert code == 0
    assert "Usage" in out
    assert len(out.split()) > 20


def test_a_folder_with_bad_images(reta, model, photos):
    args = ("classify", photos, "--classes", CLASSES, "--model", model, "--views", 2)
    code, out, err = reta(*args)
    assert code == 1
    assert [line.split()[0].rsplit("/")[-1] for line in out.splitlines()] == [
        f"p{i:03}.png" for i in range(5)
    ]
    assert all(name in err for name in ("empty.jpg", "notes.jpg", "cut.png"))
    assert "3 of 8 images could not be read" in err
    code, again, err = reta(*args, "--skip-bad")
    assert code == 0
    assert again == out


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_results_files(reta, model, photos, tmp_path, suffix):
    file = tmp_path / f"answers.{suffix}"
    common = ("--classes", CLASSES, "--model", model, "--views", 2, "--top", 2)
    code, _, err = reta("classify", photos, *common, "--out", file, "--skip-bad")
    assert code == 0
    assert "8 results" in err
    if suffix == "jsonl":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    elif suffix == "csv":
        rows = [{k: v for k, v in row.items() if v} for row in csv.DictReader(file.read_text().splitlines())]
    else:
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(file).to_pylist()
        rows = [{k: v for k, v in row.items() if v is not None} for row in table]
    assert len(rows) == 8
    bad = {row["path"].rsplit("/")[-1]: row["reason"] for row in rows if "error" in row}
    assert bad.keys() == {"empty.jpg", "notes.jpg", "cut.png"}
    assert bad["empty.jpg"] == "empty"
    good = [row for row in rows if "error" not in row]
    assert all(row["name"] in CLASSES.split(",") and 0 < float(row["prob"]) <= 1 for row in good)
    assert [p.name for p in tmp_path.glob(".*")] == []


def test_lists_globs_and_single_files(reta, model, photos, tmp_path, monkeypatch):
    common = ("--classes", CLASSES, "--model", model, "--views", 1, "--json")
    files = sorted(map(str, photos.glob("p*.png")))
    _, by_list, _ = reta("classify", "-", *common, stdin="\n".join(files) + "\n")
    _, by_glob, _ = reta("classify", photos / "p*.png", *common)
    _, by_name, _ = reta("classify", *files, *common)
    assert by_list == by_glob == by_name
    assert [json.loads(line)["path"] for line in by_list.splitlines()] == files
    monkeypatch.chdir(photos)
    _, relative, _ = reta("classify", "p*.png", *common)
    assert [json.loads(line)["path"] for line in relative.splitlines()] == [f"p{i:03}.png" for i in range(5)]


def test_state_goes_on_and_no_adapt_does_not_move_it(reta, model, photos, tmp_path):
    state = tmp_path / "s.safetensors"
    common = ("--classes", CLASSES, "--model", model, "--views", 2, "--method", "tda", "--skip-bad")
    assert reta("classify", photos, *common, "--state", state)[0] == 0
    assert json.loads(reta("state", "show", state, "--json")[1])["seen"] == 5
    before = state.read_bytes()
    assert reta("classify", photos, *common, "--state", state, "--no-adapt")[0] == 0
    assert state.read_bytes() == before
    assert reta("classify", photos, *common, "--state", state)[0] == 0
    shown = reta("state", "show", state)[1]
    assert "seen     10 images" in shown
    assert "tda" in shown
    code, _, err = reta("classify", photos, *common, "--seed", 1, "--state", state, "--classes", "a,b")
    assert code == 1
    assert "classes differ: 3 in the file, 2 here" in err


MISUSE = [
    (("--method", "ratta"), 2, "did you mean 'reta'"),
    (("--preset", "fixd"), 2, "did you mean 'fixed'"),
    (("--templates", "openai-9"), 2, "unknown template set"),
    (("--out", "answers.xls"), 2, "must end in .jsonl, .csv or .parquet"),
    (("--views", "0"), 2, "views must be"),
    (("--classes", ","), 2, "no class names"),
    (("--classes", "none.txt"), 2, "no such file of class names"),
    (("--classes", "latin.txt"), 2, "latin.txt is not UTF-8"),
    (("--prompts", "none.json"), 2, "no such prompt file"),
    (("--templates", "none.txt"), 2, "no such file of templates"),
    (("--templates", "latin.txt"), 2, "latin.txt is not UTF-8"),
    (("--method", "reta", "--templates", "single"), 2, "prompts"),
    (("--method", "rlcf"), 2, "--reward reta-mini-l"),
    (("--out", "photos.txt/answers.csv"), 1, "photos.txt is no folder; choose another place"),
    (("--out", "answers.csv"), 1, "it is a folder; choose another place"),
    (("--state", "answers.csv", "--no-adapt"), 1, "a folder, not a state file: answers.csv"),
]


@pytest.mark.parametrize(("extra", "code", "message"), MISUSE, ids=lambda x: str(x)[:30])
def test_misuse_is_one_clear_line(reta, model, photos, extra, code, message, tmp_path, monkeypatch):
    base = ["classify", photos, "--classes", CLASSES, "--model", model]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos.txt").touch()
    (tmp_path / "answers.csv").mkdir()
    (tmp_path / "latin.txt").write_bytes(b"a caf\xe9 {}")
    if "--classes" in extra:
        base[2:4] = []
    got, out, err = reta(*base, *extra)
    assert got == code, err
    assert message in err
    assert len([line for line in err.splitlines() if line.strip()]) == 1, err


def test_one_class_is_noted(reta, model, photos):
    code, _, err = reta("classify", photos / "p000.png", "--classes", "nams", "--model", model, "--views", 1)
    assert code == 0
    assert "one class, 'nams'" in err


def test_nothing_to_do_and_nowhere_to_go(reta, model, tmp_path):
    common = ("--classes", CLASSES, "--model", model)
    (tmp_path / "void").mkdir()
    assert "no images found" in reta("classify", tmp_path / "void", *common)[2]
    code, _, err = reta("classify", tmp_path / "none.jpg", *common)
    assert code == 1
    assert "none.jpg" in err
    assert "nothing matches" in reta("classify", tmp_path / "*.jpg", *common)[2]
    paint(tmp_path / "some", 1)
    code, _, err = reta("classify", tmp_path / "some", "--classes", "a,b", "--model", "ViT-B-16/opnai")
    assert code == 2
    assert "openai" in err


def test_any_file_name_is_written_and_a_path_that_comes_twice_is_one_image(reta, model, tmp_path):
    folder, out = tmp_path / "names", tmp_path / "names" / "answers.jsonl"
    paint(folder, 4)
    (folder / "p003.png").rename(folder / "sep\u2028arated.png")
    (folder / "p000.png").rename(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png"))
    (folder / "p001.png").rename(folder / "two\nlines.png")
    (folder / "notes.txt").write_text("no image")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.png").touch()
    args = ("classify", folder, folder, "--classes", CLASSES, "--model", model, "--views", 2, "--out", out)
    for _ in range(2):  # the second run finds the files of the first in the folder
        code, _, err = reta(*args)
        assert code == 0, err
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n")[:-1]]
        names = [row["path"].rsplit("/")[-1] for row in rows]
        assert names == ["caf\\xe9.png", "p002.png", "sep\u2028arated.png", "two\nlines.png"]
        assert "not taken for images" in err
        assert "4 results" in err
    assert "4 rows, 4 images" in reta("state", "show", f"{out}.state")[1]
    assert "'" in reta("classify", folder / "two\nlines.png", *args[3:-2])[1]


def test_a_run_goes_on_only_from_where_it_came(reta, model, photos, tmp_path):
    out, state = tmp_path / "a.csv", tmp_path / "s.safetensors"
    args = ("classify", photos, "--classes", CLASSES, "--model", model, "--method", "tda", "--views", 2)
    with_state = (*args, "--skip-bad", "--state", state)
    assert reta(*with_state, "--out", out)[0] == 0
    assert reta(*with_state, "--out", out)[0] == 0
    assert "other settings" in reta(*with_state, "--out", out, "--no-adapt")[2]
    assert "--seed 0" in reta(*with_state, "--seed", 1)[2]
    assert reta(*with_state, "--out", tmp_path / "b.csv")[0] == 0
    code, _, err = reta(*with_state, "--out", out)
    assert code == 1
    assert "started from another state" in err


def test_an_interrupted_image_is_done_again(reta, model, photos, tmp_path, monkeypatch):
    """Ctrl-C between an answer and its row: neither stays, and the run goes on to the same bytes."""
    from reta.results import Results

    args = ("classify", photos, "--classes", CLASSES, "--model", model, "--method", "tda", "--views", 2)
    assert reta(*args, "--skip-bad", "--out", tmp_path / "whole.jsonl")[0] == 0
    add, out = Results.add, tmp_path / "broken.jsonl"

    def interrupted(self, path, row, stream):
        if "p003" in path:
            raise KeyboardInterrupt
        add(self, path, row, stream)

    monkeypatch.setattr(Results, "add", interrupted)
    code, _, err = reta(*args, "--skip-bad", "--out", out)
    assert code == 130
    assert "the same command goes on" in err
    monkeypatch.setattr(Results, "add", add)
    assert reta(*args, "--skip-bad", "--out", out)[0] == 0
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert (tmp_path / "broken.jsonl.state").read_bytes() == (tmp_path / "whole.jsonl.state").read_bytes()


def test_a_full_disk_is_one_clear_line(reta, model, photos, tmp_path, monkeypatch):
    from reta import state as states

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(states, "save", full)
    args = ("--classes", CLASSES, "--model", model, "--views", 2, "--out", tmp_path / "a.csv")
    code, _, err = reta("classify", photos, *args)
    assert code == 1
    assert err.splitlines()[-1] == "error: No space left on device; make room and run the same command again"
    assert not (tmp_path / "a.csv").exists()


def test_an_existing_file_is_never_overwritten(reta, model, photos, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("precious")
    code, _, err = reta("classify", photos, "--classes", CLASSES, "--model", model, "--out", file)
    assert code == 1
    assert "choose another --out" in err
    assert file.read_text() == "precious"


def test_a_killed_run_resumes_with_the_same_answers(reta, model, tmp_path):
    """SIGKILL in the middle: the resumed file has the bytes of an undisturbed run."""
    folder, out = tmp_path / "many", tmp_path / "killed.jsonl"
    paint(folder, 160)
    args = ["classify", folder, "--classes", CLASSES, "--model", model, "--method", "tda", "--views", 2]
    command = [sys.executable, "-m", "reta", *map(str, args), "--out", str(out)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    journal = tmp_path / "killed.jsonl.journal"
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 70):
        assert process.poll() is None, "it finished before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    with journal.open("a") as file:
        file.write('{"path": "half a li')
    import torch

    torch.set_num_threads(1)
    assert reta(*args, "--out", out)[0] == 0
    assert reta(*args, "--out", tmp_path / "whole.jsonl")[0] == 0
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    paint(folder, 3, start=160)
    assert "163 results" in reta(*args, "--out", out)[2]
    code, _, err = reta(*args, "--seed", 1, "--out", out)
    assert code == 1
    assert "other settings" in err


def test_looking_around(reta):
    code, out, _ = reta("models", "vit-b-16", "--json")
    assert code == 0
    assert {"name": "ViT-B-16", "tag": "openai"} in json.loads(out)
    assert "reta-mini" in reta("models")[1]
    assert reta("models", "no-such-thing")[0] == 2
    assert "zeroshot" in reta("methods", "list")[1]
    listed = json.loads(reta("methods", "list", "--json")[1])
    assert {"reta", "tda", "dpe"} <= {row["method"] for row in listed}
    shown = reta("methods", "show", "tda", "--preset", "released/dtd")[1]
    assert "presets: paper, fixed, released/" in shown
    assert re.search(r"^beta +3\.0 +0\.\. ", shown, re.MULTILINE)
    assert re.search(r"^alpha +2\.0 +any number ", shown, re.MULTILINE)
    shown = reta("methods", "show", "reta")[1]
    assert re.search(r"^gamma +2\.0 +1\.\. +11 ", shown, re.MULTILINE)
    assert re.search(r"^cer +True +True \| False ", shown, re.MULTILINE)
    assert "w = 1 + ln(R S)" in shown and "presets: paper, paper_literal, fixed, released/" in shown
    assert json.loads(reta("methods", "show", "tda", "--json")[1])["method"] == "tda"
    code, out, _ = reta("methods", "check", "ensemble")
    assert code == 0
    assert "checks hold" in out
    code, out, _ = reta("methods", "check", "ensemble", "--preset", "fixed", "--json")
    report = json.loads(out)
    assert code == 0 and report.pop("checks") > 10
    assert report == {"method": "ensemble", "preset": "fixed", "failures": []}


def test_a_broken_method_fails_its_check(reta, tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(
        "from reta.methods.zeroshot import Ensemble\nfrom reta.sample import Output\n\n"
        "class Bad(Ensemble):\n    def step(self, task, state, sample):\n"
        "        output, state = super().step(task, state, sample)\n"
        "        return Output(output.probs * 2, output.info), state\n"
    )
    code, out, _ = reta("methods", "check", f"{file}:Bad")
    assert code == 1
    assert "probs sum to 2.0000, not 1" in out
    code, out, _ = reta("methods", "check", f"{file}:Bad", "--json")
    assert code == 1
    assert "answers are probabilities: probs sum to 2.0000, not 1" in json.loads(out)["failures"]


def test_doctor(reta, monkeypatch):
    code, out, _ = reta("doctor", "--offline")
    assert code == 0
    assert "torchvision" in out
    assert "not tried" in out
    report = json.loads(reta("doctor", "--offline", "--json")[1])
    assert report["ok"] is True
    from reta.commands import doctor

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "H200")
    assert "H200, features in fp16" in reta("doctor", "--offline")[1]
    monkeypatch.setattr(
        doctor, "torch_fits", lambda: (False, "do not fit; type: pip install open-clip-torch")
    )
    code, out, _ = reta("doctor", "--offline")
    assert code == 1
    assert "BAD do not fit" in out.replace("  ", " ")


def test_a_context_is_learned_and_used(reta, model, tmp_path):
    folder, out = tmp_path / "labelled", tmp_path / "context.safetensors"
    for i, name in enumerate(CLASSES.split(",")):
        paint(folder / name, 3, start=10 * i)
    args = ("coop", "fit", folder, "--model", model, "--shots", 2, "--views", 2, "--epochs", 3, "--out", out)
    code, printed, err = reta(*args, "--json")
    assert code == 0, err
    report = json.loads(printed)
    assert (report["images"], report["shots"], report["context"]) == (6, 2, "a photo of a")
    base = ("classify", folder, "--classes", CLASSES, "--model", model, "--json", "--method")
    answers = []
    for words in ((), ("--context", out)):
        code, printed, err = reta(*base, "coop", *words)
        assert code == 0, err
        answers.append([json.loads(row)["prob"] for row in printed.splitlines()])
    assert len(answers[0]) == 9 and answers[0] != answers[1]
    assert reta(*base, "tpt", "--views", 4, "--context", out)[0] == 0
    code, _, err = reta(*base, "coop", "--context", tmp_path / "context.txt")
    assert code == 2 and "a context is kept in a .safetensors file" in err
    code, _, err = reta(*base, "coop", "--context", tmp_path / "none.safetensors")
    assert code == 1 and "none.safetensors" in err
    code, _, err = reta(*base, "reta", "--context", out)
    assert code == 2 and "context" in err
    assert out.is_file()
    code, printed, _ = reta("state", "show", out)
    assert code == 0
    assert "not a state of a stream" in printed
    (tmp_path / "flat").mkdir()
    paint(tmp_path / "flat", 2)
    code, _, err = reta("coop", "fit", tmp_path / "flat", "--model", model, "--out", out)
    assert code != 0
    assert "labels" in err
