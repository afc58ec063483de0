"""`reta sweep`: many settings of a method in one pass over the same features."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from reta.errors import BadInput


def sweep(
    method: Annotated[str, typer.Argument(help="A method of `reta methods list`, or file.py:Class.")],
    grid: Annotated[
        list[str], typer.Option("--grid", help="FIELD=V1,V2,...; several make all combinations.")
    ],
    data: Annotated[
        str, typer.Option(help="A data set with labels: shapes-sketch, dtd, a folder.")
    ] = "shapes-sketch",
    model: Annotated[str, typer.Option(help="NAME/TAG, reta-mini, a path.")] = "reta-mini",
    preset: Annotated[str, typer.Option(help="Where the other fields come from.")] = "fixed",
    text: Annotated[str, typer.Option(help="Prompts: templates, or templates+cupl.")] = "openai-7+cupl",
    prompts: Annotated[
        Path | None, typer.Option(help="JSON: class name -> sentences, for +cupl.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Images: a fixed random subset.", show_default=False)
    ] = None,
    views: Annotated[
        int | None, typer.Option(help="At most so many views per image.", show_default=False)
    ] = None,
    orders: Annotated[int, typer.Option(min=1, help="Stream orders.")] = 3,
    lanes: Annotated[int, typer.Option(min=1, help="Streams side by side.")] = 32,
    root: Annotated[
        Path | None, typer.Option(help="The folder of the data sets.", show_default=False)
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="The folder of the feature stores.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")] = False,
) -> None:
    """Score every combination of some fields, on several stream orders at once, best first.

    The best row was chosen with the labels: it shows what a field does, not what the method would reach.

    Example: reta sweep reta --grid gamma=1,2,3 --grid eta=0.2,0.4 --limit 300 --views 8
    """
    import torch

    import reta
    from reta.bench import scene, streams
    from reta.bench.plan import Plan, Row
    from reta.bench.prepare import method_of
    from reta.bench.sheet import readable
    from reta.bench.stage import Options, Stage
    from reta.commands.inspect import table

    row = Row(label=method, method=method, preset=preset, text=text)
    plan = Plan(name="sweep", title="", rows=(row,), data=(data,), models=(model,), limit=limit, views=views)
    stage = Stage(
        plan, Options(features=features, root=root, prompts=prompts, device=device, progress=not as_json)
    )
    chosen, _ = method_of(plan, row, data)
    if chosen.needs:
        raise BadInput(f"{method} works through the encoders; a sweep is for methods on features alone")
    values = axes(grid, chosen)
    widest = max([chosen.views, *values.get("views", [])])
    stage.need(data, dataclasses.replace(chosen, views=widest))  # type: ignore[type-var]
    path, _ = stage.scene((data,), model, text, "")
    task, labels, _ = scene.load(path)
    recipe = stage.store(data, model, *_look(chosen))
    order = torch.stack([streams.create("iid", seed=s).order(labels).index for s in range(1, orders + 1)])
    found = reta.sweep(
        chosen,
        task,
        recipe,
        labels,
        grid=values,
        orders=order,
        lanes=lanes,
        device=device,
        progress=not as_json,
    )
    rows, notes = found.rows(), stage.notes
    if as_json:
        about = {"data": data, "model": model, "images": len(labels), "orders": orders}
        print(json.dumps(about | {"rows": rows, "notes": notes}))
        return
    table([tuple(r.values()) for r in rows], tuple(rows[0]))
    for note in notes:
        print(f"note: {readable(note)}", file=sys.stderr)
    print(f"{len(labels)} images of {data}, {orders} orders; chosen with labels", file=sys.stderr)


def _look(method: Any) -> tuple[str, float]:
    from reta.bench.stage import look

    return look(method)


def axes(grid: list[str], method: Any) -> dict[str, list[Any]]:
    """`["gamma=1,2", "binning=uniform"]` as values of the fields' own types.

    >>> from reta.methods import create
    >>> axes(["slots=1,3", "alpha=2"], create("tda"))
    {'slots': [1, 3], 'alpha': [2.0]}
    """
    from reta.errors import nearest
    from reta.methods.base import Base, check

    owner, fields = type(method).__name__, {f.name: f for f in dataclasses.fields(method)}
    table: dict[str, list[Any]] = {}
    for part in grid:
        name, sign, values = part.partition("=")
        if not sign or not values:
            raise BadInput(f"--grid takes FIELD=V1,V2,..., not {part!r}")
        if name not in fields:
            raise BadInput(f"{owner} has no field {name!r}: {nearest(name, fields)}")
        table[name] = [_value(fields[name], value.strip()) for value in values.split(",")]
        for value in table[name] if isinstance(method, Base) else ():
            check(owner, fields[name], value)
    return table


def _value(field: dataclasses.Field[Any], text: str) -> Any:
    kind: Any = type(field.default)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise BadInput(f"{field.name} is true or false, not {text!r}")
        return text.lower() == "true"
    try:
        value = kind(text)
    except ValueError as error:
        raise BadInput(f"{field.name} takes values of type {kind.__name__}, not {text!r}") from error
    if kind is float and not math.isfinite(value):
        raise BadInput(f"{field.name} must be a finite number{_range(field)}, not {text!r}")
    return value


def _range(field: dataclasses.Field[Any]) -> str:
    low, high = field.metadata.get("low"), field.metadata.get("high")
    parts = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    return ", " * bool(parts) + " and ".join(parts)
