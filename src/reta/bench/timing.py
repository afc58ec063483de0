"""What an image costs before a method sees it: decoding, views, encoding, in milliseconds.

On a CPU this is processor time, which other programs on the machine do not change; on a GPU it is the clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from reta import state as states
from reta.bench.identity import make_views
from reta.bench.processes import one_thread
from reta.bench.store import Store
from reta.errors import BadImage

LONGEST, IMAGES = 3.0, 16


def path_of(store: Path) -> Path:
    """Where the times of a store are kept."""
    return store.parent / "timing" / f"{store.name}.json"


def ensure(store: Store, data: Any, model: Any, recipe: str, **more: Any) -> Path:
    """Time a few images the way the store was built, unless that has been done."""
    path = path_of(store.path)
    if not path.is_file():
        spent = clock(data, model, recipe, store.n_views, **more) | {"n": store.n_views}
        with states.atomic(path) as temporary:
            temporary.write_text(json.dumps(spent, sort_keys=True) + "\n", encoding="utf-8")
    return path


def clock(data: Any, model: Any, recipe: str, n_views: int, **more: Any) -> dict[str, float]:
    """Milliseconds per image over up to 16 images or 3 seconds, after one to warm up; in one thread."""
    with one_thread():
        return _clock(data, model, recipe, n_views, **more)


def _clock(data: Any, model: Any, recipe: str, n_views: int, **more: Any) -> dict[str, float]:
    now = watch(model.device)
    views = make_views(model, recipe, n_views, 0, **more)
    total, count, begun = {"decode": 0.0, "views": 0.0, "encode": 0.0}, -1, now()
    for i in range(min(len(data), IMAGES + 1)):
        spent = _one(data, model, views, i, now)
        if spent is not None:
            count += 1
            total = {k: total[k] + spent[k] for k in total} if count > 0 else total
        if now() - begun > LONGEST and count > 0:
            break
    return {k: round(1e3 * v / max(1, count), 4) for k, v in total.items()}


def watch(device: Any) -> Callable[[], float]:
    """The clock for a device, in seconds: processor time of all threads on a CPU, else the time of day."""
    return time.process_time if torch.device(device).type == "cpu" else time.perf_counter


def _one(data: Any, model: Any, views: Any, index: int, now: Callable[[], float]) -> dict[str, float] | None:
    start = now()
    try:
        image = data.image(index)
    except BadImage:
        return None
    decoded = now()
    pixels = views.make_batch([image], [data.keys[index]], model.device)
    _settle(model)
    made = now()
    model.images(pixels[0])
    _settle(model)
    return {"decode": decoded - start, "views": made - decoded, "encode": now() - made}


def _settle(model: Any) -> None:
    if torch.device(model.device).type == "cuda":
        torch.cuda.synchronize()
