"""One progress bar for everything long: count, rate, time left; silent when standard error is no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def bar(
    items: Iterable[T], total: int | None = None, what: str = "working", unit: str = "images"
) -> Iterator[T]:
    """Pass `items` through, showing how far it is."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as display:
        job = display.add_task(what, total=total, rate="")
        for item in items:
            yield item
            display.advance(job)
            speed = display.tasks[0].finished_speed or display.tasks[0].speed
            display.update(job, rate=rate(speed, unit) if speed else "")


def rate(speed: float, unit: str) -> str:
    """How many in a second; of what takes longer than one, in a minute.

    >>> rate(1234.5, "images"), rate(0.05, "jobs")
    ('1,234 images/s', '3.0 jobs/min')
    """
    return f"{speed:,.0f} {unit}/s" if speed >= 1 else f"{60 * speed:.1f} {unit}/min"
