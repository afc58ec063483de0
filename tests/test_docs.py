"""What the pages name exists: tests behind promises, pages in the navigation, local links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_every_promise_names_tests_that_exist() -> None:
    lines = (ROOT / "docs/promises.md").read_text(encoding="utf-8").splitlines()
    for line in (line for line in lines if re.match(r"\| \d", line)):
        files = [ROOT / "tests" / f for f in re.findall(r"`(test_\w+\.py)`", line)]
        assert files or "`check_method`" in line, line
        code = "".join(f.read_text(encoding="utf-8") for f in files)
        for name in re.findall(r"`(test_\w+)`", line):
            assert f"def {name}(" in code, name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_local_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT / "docs")) in nav, page
