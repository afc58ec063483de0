"""Tests run offline, keep nothing in the user's caches, and share tiny models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# a loaded machine is no failure, and a test that passes once must pass again
settings.register_profile("reta", deadline=None, derandomize=True)
settings.load_profile("reta")

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETA_CACHE", str(tmp_path_factory.getbasetemp() / "reta-cache"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Bit-equal sums, whichever process makes them."""
    from reta.bench import processes

    with processes.one_thread():
        yield


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the tiny models' files, one folder per family."""
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="session")
def tiny_model(tiny_root: Path) -> Callable:
    """`tiny_model(family)` for each of `tiny.FAMILIES`, options as `load`'s; shared, so not to be changed."""
    from tests import tiny

    return lambda family="vit", **options: tiny.model(tiny_root, family, **options)
