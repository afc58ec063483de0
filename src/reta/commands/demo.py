"""`reta demo`: the embedded model under shift, CLIP against the methods, a live table, a figure, a report."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

METHODS = "zeroshot,ensemble,zero,tps,tda,boostadapter,dmn,dpe,reta"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report, the figure and the numbers.")] = Path(
        "reta-demo"
    ),
    images: Annotated[int, typer.Option(min=1, max=2000, help="Images per set.")] = 200,
    views: Annotated[int, typer.Option(min=1, help="Views per image.")] = 32,
    methods: Annotated[str, typer.Option(help="Which methods, a,b,c.")] = METHODS,
    sets: Annotated[str, typer.Option(help="Which sets of the embedded world, a,b,c; all if empty.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the views and of the stream's order.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON, no table.")] = False,
) -> None:
    """See adaptation at work in a minute or two, with nothing to download.

    A small CLIP that comes with the package classifies drawn pictures in five styles; every method sees the
    same images, the same views and the same prompts. Writes a report to look at and prints where it is.
    """
    import torch
    from rich.console import Console
    from rich.live import Live

    from reta import methods as registry
    from reta.commands.demo_page import figure, page
    from reta.commands.paths import check_writable
    from reta.data import shapes
    from reta.errors import BadInput, nearest, require

    require("bench", "matplotlib")
    check_writable(out / "report.html")
    torch.set_num_threads(1)  # the model is so small that threads wait for each other
    chosen = [m for m in methods.split(",") if m]
    names = [s for s in sets.split(",") if s] or list(shapes.SETS)
    for name in names:
        if name not in shapes.SETS:
            raise BadInput(f"unknown set {name!r}: {nearest(name, shapes.SETS)}")
    made = {m: registry.create(m, "fixed" if "fixed" in registry.presets(m) else None) for m in chosen}
    if not made:
        raise BadInput(f"no methods: give some of {METHODS}")
    for m, method in made.items():
        if method.needs:
            raise BadInput(
                f"{m} works through the encoders and takes minutes: the demo is for methods on features"
            )
    console = Console(stderr=as_json)
    start, table = time.perf_counter(), {m: dict[str, float]() for m in chosen}
    curves: dict[str, Any] = {}
    moving = console.is_terminal
    with Live(_table(table, names, "encoding"), console=console, auto_refresh=moving) as live:

        def note(what: str) -> None:
            live.update(_table(table, names, what))

        for name in names:
            for method, accuracy, curve in _set(name, made, images, views, seed, note):
                table[method][name] = accuracy
                curves[f"{name}/{method}"] = curve
                live.update(_table(table, names, f"{name}: {method}"))
        live.update(_table(table, names, ""))
    if not moving:
        console.print()  # where there is no screen to draw on, the table ends without a line break
    seconds = round(time.perf_counter() - start, 1)
    settings = {"images": images, "views": views, "seed": seed, "seconds": seconds}
    out.mkdir(parents=True, exist_ok=True)
    numbers = {"settings": settings, "accuracy": table}
    (out / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    figure(out, table, names, curves)
    page(out, table, names, settings, {m: registry.find(m).summary for m in made})
    if as_json:
        print(json.dumps(numbers))
    console.print(f"{seconds:.0f} s for {len(names) * images} images x {views} views x {len(chosen)} methods")
    console.print(f"report: {(out / 'report.html').resolve()}", soft_wrap=True)


def _set(name: str, made: dict[str, Any], images: int, views: int, seed: int, note: Any) -> Any:
    """Encode one set, then stream it through every method: (method, accuracy, running accuracy) as they come."""
    import torch

    import reta

    model = reta.load("reta-mini")
    task, bank, labels = _encode(model, name, {m.recipe for m in made.values()}, images, views, seed, note)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    for key, method in made.items():
        out = reta.run(method, task, bank[method.recipe], labels, order=order, device="cpu")
        right = (out.predictions == out.labels).double()
        yield key, round(out.accuracy, 2), 100 * right.cumsum(0) / torch.arange(1, len(right) + 1)


def _encode(model: Any, name: str, recipes: set[str], images: int, views: int, seed: int, note: Any) -> Any:
    """Features of a set per recipe; the plain view is shared by all of them."""
    import torch

    import reta
    from reta.data import shapes
    from reta.views import Views

    task = reta.Task.build(model, shapes.classes(), templates="openai-7", prompts=shapes.descriptions())
    world = shapes.open(name, n=images)
    labels = torch.tensor([world[i][1] for i in range(images)])
    size, bank = model.preprocess.size, {}
    for recipe in sorted(recipes):
        maker = Views(recipe, n=views, size=size, seed=seed, interpolation=model.preprocess.interpolation)
        blocks = []
        for start in range(0, images, 25):
            note(f"{name}: encoding {recipe} views, {start} of {images}")
            index = range(start, min(start + 25, images))
            pixels = maker.make_batch([world[i][0] for i in index], [world.keys[i] for i in index])
            blocks.append(model.images(pixels.flatten(0, 1), batch=256).unflatten(0, (len(index), -1)))
        bank[recipe] = torch.cat(blocks)
    return task, bank, labels


def _table(table: dict[str, dict[str, float]], names: list[str], doing: str) -> Any:
    """Accuracy in percent, the best of a column in bold."""
    from rich.table import Table

    view = Table(title="reta-mini on shapes and its four shifts: top-1 accuracy, %", caption=doing or None)
    view.add_column("method")
    for name in [*names, "average"]:
        view.add_column(name.removeprefix("shapes") or name, justify="right")
    best = {n: max((row.get(n, -1.0) for row in table.values()), default=-1.0) for n in names}
    for method, row in table.items():
        cells = [_cell(row.get(n), best[n]) for n in names]
        whole = [row[n] for n in names if n in row]
        cells.append(f"{sum(whole) / len(whole):.1f}" if len(whole) == len(names) else "")
        view.add_row(method, *cells)
    return view


def _cell(value: float | None, best: float) -> str:
    if value is None:
        return ""
    return f"[bold]{value:.1f}[/bold]" if value == best else f"{value:.1f}"
