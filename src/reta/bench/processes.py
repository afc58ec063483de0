"""Processes that share this machine: one thread or GPU each, and none that outlives the one that began it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any

import torch

from reta import engine

CONTEXT = multiprocessing.get_context("spawn")


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for what is inside: its processor time is then the time it takes, since no thread waits for
    another, and its last digits do not depend on how many processes share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def unheard() -> Iterator[None]:
    """Processes that begin in here do not hear Ctrl-C, which a terminal tells all of them: this one answers it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def counter() -> Any:
    """Numbers the processes of a pool."""
    return CONTEXT.Value("i", 0)


def begin(device: str, numbers: Any) -> str:
    """Called first in a process: the device it works on."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()
    with numbers.get_lock():
        number, numbers.value = numbers.value, numbers.value + 1
    return gpu(number) if engine.pick(device).type == "cuda" and device in ("auto", "cuda") else device


def gpu(number: int) -> str:
    """The GPU of a process, in turns."""
    return f"cuda:{number % torch.cuda.device_count()}"


def _follow(sentinel: int) -> None:
    """End with the parent, however it ended: a pool whose parent was killed would wait for work for ever."""
    connection.wait([sentinel])
    os._exit(1)
