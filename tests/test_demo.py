"""The demo and the code of the documentation, run as they are printed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from reta import cli, coop
from reta.prompts import PromptedText

ROOT = Path(__file__).parents[1]


def test_the_demo_leaves_numbers_a_figure_and_a_page(monkeypatch, tmp_path, capsys):
    out = tmp_path / "demo"
    args = ["demo", "--out", str(out), "--images", "12", "--views", "3", "--methods", "zeroshot,tda,reta"]
    monkeypatch.setattr(sys, "argv", ["reta", *args, "--sets", "shapes,shapes-sketch", "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    numbers = json.loads(capsys.readouterr().out)
    assert numbers == json.loads((out / "numbers.json").read_text())
    assert numbers["accuracy"].keys() == {"zeroshot", "tda", "reta"}
    assert all(
        0 <= row[s] <= 100 for row in numbers["accuracy"].values() for s in ("shapes", "shapes-sketch")
    )
    assert (out / "figure.png").stat().st_size > 10_000
    page = (out / "report.html").read_text()
    assert page.count("<tr>") == 4
    assert page.count("data:image/png;base64,") == 1 + 2 * 12
    assert "http" not in page.replace("http://www.w3.org", "")


def test_the_demo_of_one_method(monkeypatch, tmp_path):
    args = ["demo", "--out", str(tmp_path), "--images", "2", "--views", "1", "--methods", "zeroshot"]
    monkeypatch.setattr(sys, "argv", ["reta", *args, "--sets", "shapes"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code


def test_the_demo_refuses_unknown_sets(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["reta", "demo", "--out", str(tmp_path), "--sets", "shapez"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "did you mean 'shapes'" in capsys.readouterr().err


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorial.md", "docs/world.md"])
def test_python_on_the_page_runs(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(page))
    assert code
    exec(compile(code.replace("n=100", "n=12").replace("views=8", "views=3"), page, "exec"), {})
    if page == "README.md":
        assert len(capsys.readouterr().out.splitlines()) == 5


def test_examples_of_the_method_pages_run_after_the_tutorial(monkeypatch, tmp_path, capsys):
    """They go on from its model, task and features; `rlcf.md` and `difftpt.md` ask for files that are not here."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec("\n".join(blocks("docs/tutorial.md")).replace("n=100", "n=12"), names)
    names["views"] = names["features"]
    model, task = names["model"], names["task"]
    context = PromptedText(model, task.names, "a photo of a").context
    coop.save("context.safetensors", context, task)  # as `reta coop fit` would leave it
    for name in ("boostadapter", "coop", "dmn", "dpe", "reta", "tda", "tps", "tpt", "zero"):
        page = f"docs/methods/{name}.md"
        code = "\n".join(blocks(page))
        assert code, page
        exec(compile(code, page, "exec"), dict(names))


def test_the_method_of_the_how_to_conforms(monkeypatch, tmp_path, capsys):
    code = next(b for b in blocks("docs/howto/new-method.md") if "class Drift" in b)
    (tmp_path / "drift.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reta", "methods", "check", "drift.py:Drift"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    assert re.search(r"(\d+) of \1 checks hold", capsys.readouterr().out)
