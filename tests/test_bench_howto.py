"""The commands of the how-to, run as they are printed."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from reta import cli
from reta.bench import plan as plans
from reta.data import shapes

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "bench.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def commands() -> list[list[str]]:
    return [shlex.split(line) for block in blocks("bash") for line in block.splitlines() if line]


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("python", "toml"):
        for block in blocks(kind):
            (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    for i in range(20):
        image, label = shapes.open("shapes", n=20)[i]
        folder = tmp_path / "photos" / shapes.classes()[label].replace(" ", "_")
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{i}.png")
    assert len(commands()) > 12
    for command in commands():
        assert command[0] == "reta"
        if "table1" in command or "one-protocol" in command:
            command = [*command, "--orders", "1"]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code, (command, capsys.readouterr().err)
    assert "Mine" in (tmp_path / "mine-report" / "report.md").read_text()
    assert "photos" in (tmp_path / "photos-report" / "report.md").read_text()
    assert (tmp_path / "slots-report" / "figures" / "slots.svg").is_file()


def test_the_page_names_only_commands_that_exist() -> None:
    for block in blocks("text"):
        for line in filter(None, block.splitlines()):
            words = shlex.split(line)
            assert words[0] == "reta" and words[1] in ("bench", "data", "coop")


@pytest.mark.parametrize("command", ["list", "show", "run", "report", "query"])
def test_help_says_enough(command: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["reta", "bench", command, "--help"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    text = capsys.readouterr().out
    assert not stop.value.code and len(text) > 300


def test_all_stands_for_every_plan(monkeypatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(
        "reta.bench.run.run_all", lambda plans, *_, **__: ran.extend(p.name for p in plans) or []
    )
    monkeypatch.setattr(sys, "argv", ["reta", "bench", "run", "all", "--world", "shapes"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code and ran == plans.names()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["bench", "show", "tabel1"], 2, "did you mean 'table1'"),
        (["bench", "run", "table1", "--world", "cubes"], 2, "unknown world 'cubes'"),
        (["bench", "run", "table1", "--world", "shapes", "--methods", "tdaa"], 2, "did you mean 'tda'"),
        (["bench", "report", "nowhere"], 1, "no results in nowhere"),
        (["bench", "query", "select 1", "nowhere"], 1, "no results in nowhere"),
        (["sweep", "tda", "--grid", "slots"], 2, "FIELD=V1,V2"),
        (["sweep", "tda", "--grid", "slot=1"], 2, "did you mean 'slots'"),
        (["sweep", "tda", "--grid", "slots=many"], 2, "values of type int"),
        (["sweep", "tda", "--grid", "alpha=1,nan"], 2, "alpha must be a finite number, not 'nan'"),
        (["sweep", "tda", "--grid", "share=nan"], 2, "a finite number, at least 0 and at most 1, not 'nan'"),
        (["sweep", "tda", "--grid", "slots=1,0"], 2, "TDA.slots must be at least 1, not 0"),
        (["sweep", "tpt", "--grid", "lr=0.1"], 2, "works through the encoders"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], code: int, message: str, monkeypatch, capsys, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reta", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    error = capsys.readouterr().err
    assert stop.value.code == code and message in error and "Traceback" not in error


def test_a_sweep_tells_what_its_numbers_leave_out(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(6):
        image, label = shapes.open("shapes", n=6)[i]
        folder = tmp_path / "photos" / shapes.classes()[label].replace(" ", "_")
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{i}.png")
    (folder / "bad.png").write_bytes(b"no image")
    words = [
        "reta",
        "sweep",
        "tda",
        "--grid",
        "slots=1,2",
        "--data",
        "photos",
        "--views",
        "1",
        "--features",
        "f",
    ]
    for more in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", [*words, *more])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        assert not stop.value.code
        assert "1 images could not be read and count as wrong" in (printed.out if more else printed.err)
        assert "no sentences per class" in (printed.out if more else printed.err)
