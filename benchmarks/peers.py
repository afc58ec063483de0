"""Every feature-space method side by side, each with its one setting for all data (preset "fixed").

    python benchmarks/peers.py real --features DIR      -> results/peers/real.json
    python benchmarks/peers.py world                    -> results/peers/world.json

`real` reads features of photographs, one view per image: DIR holds safetensors files with `images [N,D]`,
`labels [N]`, `prompts [C,K,D]` and one metadata key `json` (dataset, model, logit_scale). `world` encodes the five
sets of the embedded world with `reta-mini`, the views of each method's own recipe. Every method goes through three
random orders of the stream. Time is processor time of one thread per image, after the encoder.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

import reta
import reta.data
from reta import state as states
from reta.bench import build
from reta.bench.metrics import calibration
from reta.data import shapes
from reta.methods import create, dmn, find, names, ops

ORDERS = 3


@dataclasses.dataclass(frozen=True)
class Features:
    """One data set as one model sees it: its task, its labels, and views `[N,V,D]` for each way to make them."""

    dataset: str
    model: str
    task: reta.Task
    labels: Tensor
    views: Callable[[Any], Tensor]


def real(folder: Path) -> Iterator[Features]:
    """The files of a folder; their one plain view stands for every recipe."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise reta.MissingData(f"no .safetensors file in {folder}")
    for path in files:
        with safe_open(str(path), "pt") as file:
            about = json.loads(file.metadata()["json"])
            images, prompts = (file.get_tensor(key).float() for key in ("images", "prompts"))
            labels = file.get_tensor("labels").long()
        task = reta.Task.from_features(prompts, scale=about["logit_scale"])
        views = ops.unit(images)[:, None]
        yield Features(about["dataset"], about["model"], task, labels, lambda method, views=views: views)


def world(images: int, root: Path | None) -> Iterator[Features]:
    """The five sets of the embedded world, encoded once for each recipe."""
    model = reta.load("reta-mini")
    for name in shapes.SETS:
        data = reta.data.open(name, n=images)
        task = reta.Task.build(model, data.names, templates="openai-7", prompts=shapes.descriptions())

        @cache
        def made(recipe: str, views: int, area: float, data: Any = data) -> Tensor:
            more = {} if area == 0 else {"area": (area, 1.0)}
            store = build(data, model, recipe, views, root=root, progress=True, **more)
            return ops.unit(store.read(torch.arange(len(store)), store.n_views).float())

        labels = torch.tensor(data.labels)
        yield Features(name, "reta-mini", task, labels, partial(looked_at, made))


def looked_at(made: Callable[..., Tensor], method: Any) -> Tensor:
    """The views a method asks for."""
    return made(method.recipe, method.views, getattr(method, "crop_area", 0.0))


def contenders() -> list[tuple[str, str, Any]]:
    """Name, preset and method of every row: all that work on features alone."""
    chosen = [name for name in names() if not find(name).needs]
    rows = [(name, "fixed", create(name, "fixed")) for name in chosen]
    return [*rows, ("reta", "paper", create("reta", "paper"))]


def follow(method: Any, data: Features, order: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, float]]:
    """Probabilities in stream order, what the method told, and what it cost."""
    state, probs, info, views = method.init(data.task), [], [], data.views(method)
    began = time.process_time()
    with torch.no_grad(), ops.donated():
        for i in order.tolist():
            output, state = method.step(data.task, state, reta.Sample(views[i, : method.views]))
            probs.append(output.probs)
            info.append({k: v for k, v in output.info.items() if k.startswith("oracle_")})
    spent = (time.process_time() - began) / len(order)
    told = {key: torch.stack([row[key] for row in info]) for key in info[0]}
    return torch.stack(probs), told, {"ms": round(1e3 * spent, 4), "state_bytes": states.nbytes(state)}


def measure(probs: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy and 20-bin calibration error in percent."""
    right = 100 * float((probs.argmax(-1) == labels).double().mean())
    return {"accuracy": round(right, 4), "ece": calibration(probs, labels)["ece"]}


def rows(data: Features, orders: int = ORDERS) -> Iterator[dict[str, Any]]:
    """One result per method and order; the search over DMN's weights is a row of its own, marked oracle."""
    for seed in range(orders):
        order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(seed))
        labels = data.labels[order]
        for name, preset, method in contenders():
            head = {"dataset": data.dataset, "model": data.model, "order": seed, "images": len(labels)}
            head["task"] = data.task.fingerprint
            probs, _, cost = follow(method, data, order)
            yield head | {"method": name, "preset": preset, "oracle": False} | measure(probs, labels) | cost
        _, told, cost = follow(create("dmn", oracle_weight_search=True), data, order)
        best = dmn.oracle(told, labels)
        mark = {"method": "dmn", "preset": "oracle weight", "oracle": True, "weight": best.weight}
        yield head | mark | measure(best.probs, labels) | cost


def write(path: Path, what: str, results: list[dict[str, Any]]) -> None:
    """One JSON file, whole or not at all."""
    machine = {"torch": torch.__version__, "python": platform.python_version(), "threads": 1}
    body = {"what": what, "reta": reta.__version__, **machine, "rows": results}
    with states.atomic(path) as temporary:
        temporary.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("real", "world"))
    parser.add_argument("--features", type=Path, metavar="DIR", help="real: where the feature files are")
    parser.add_argument("--images", type=int, default=400, metavar="N", help="world: images of each set")
    parser.add_argument("--root", type=Path, metavar="DIR", help="world: where to keep encoded views")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.what == "real" and options.features is None:
        parser.error("real needs --features DIR")
    torch.set_num_threads(1)
    source = real(options.features) if options.what == "real" else world(options.images, options.root)
    results = []
    for row in (row for data in source for row in rows(data)):
        results.append(row)
        place = f"{row['dataset']:14} {row['model']:14} {row['order']} {row['method']:13} {row['preset']:13}"
        print(f"{place} {row['accuracy']:6.2f} {row['ece']:6.2f} {row['ms']:7.3f} ms", flush=True)
    write(options.out or Path(f"results/peers/{options.what}.json"), options.what, results)


if __name__ == "__main__":
    main()
