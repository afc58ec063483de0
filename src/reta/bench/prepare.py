"""From a plan to jobs: every cell of the plan gets a job, and every job its identity."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reta import methods as registry
from reta.bench.jobs import Job
from reta.bench.manifest import Cell
from reta.bench.plan import Plan, Row
from reta.bench.stage import Options, Stage, Want, look
from reta.errors import BadInput, BadPlan


@dataclass
class Prepared:
    """The jobs of a plan by cell, the rows left out and why, and what a reader should know."""

    plan: Plan
    stage: Stage
    cells: dict[Cell, Job] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        return self.stage.notes


def prepare(plan: Plan, options: Options) -> Prepared:
    """Open, encode and name everything a plan needs. Rows whose method is not installed are left out."""
    if options.prompts is not None:
        content = hashlib.blake2b(options.prompts.read_bytes(), digest_size=8).hexdigest()
        plan = dataclasses.replace(plan, prompts=f"{options.prompts.name} {content}")
    done = Prepared(plan, Stage(plan, options))
    rows = [row for row in plan.rows if _runs(row, done)]
    made = {(row.label, data): method_of(plan, row, data) for row in rows for data in plan.data}
    for data in plan.data:
        done.stage.data(data)
    for (_, data), (method, _) in made.items():
        done.stage.need(data, method)
    for model in plan.models:
        for row in rows:
            for name, stream in plan.streams.items():
                _cells(done, row, model, name, stream, made)
    return done


def _runs(row: Row, done: Prepared) -> bool:
    """Whether a row can be run; if not, why is noted."""
    cap = done.plan.views
    if ".py:" not in row.method and row.method not in registry.known():
        done.skipped.append(f"{row.label}: no method {row.method!r} is installed")
    elif row.method == "coop" and not (
        done.plan.world or done.stage.options.context or "context" in row.fields
    ):
        done.skipped.append(
            f"{row.label}: give --context FILE, which `reta coop fit` makes on labelled images"
        )
    elif cap is not None and row.x is not None and row.fields.get("views", 0) > cap:
        done.skipped.append(f"{row.label}: more than --views {cap}")
    else:
        return True
    return False


def wants(plan: Plan, options: Options) -> dict[Want, int]:
    """The features of a plan's jobs, and how many views of each."""
    done, found = Prepared(plan, Stage(plan, options)), dict[Want, int]()
    for row in [row for row in plan.rows if _runs(row, done)]:
        for data in plan.data:
            method, _ = method_of(plan, row, data)
            names = {done.stage.model_of(row, model) for model in plan.models}
            names |= {done.stage.model_of(row, "reward")} if "reward" in method.needs else set()
            for model in sorted(names):
                want = Want(data, model, *look(method))
                found[want] = max(found.get(want, 1), getattr(method, "views", 1))
    return found


def jobs_of(plan: Plan) -> tuple[int, list[str]]:
    """How many jobs a plan has, and which rows would be left out, without opening data or models."""
    done = Prepared(plan, Stage(plan, Options()))
    count = 0
    for row in [row for row in plan.rows if _runs(row, done)]:
        for stream in plan.streams.values():
            for data in _parts(plan, stream):
                count += _orders(plan, method_of(plan, row, data[0])[0], stream) * len(plan.models)
    return count, done.skipped


def _parts(plan: Plan, stream: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The data sets of each job: one by one, or all together for a stream through domains."""
    return [plan.data] if stream.get("domains", False) else [(name,) for name in plan.data]


def _orders(plan: Plan, method: Any, stream: Mapping[str, Any]) -> int:
    """How many orders are run: one where the order cannot matter."""
    return 1 if method.episodic and dict(stream) == {"kind": "iid"} else plan.orders


def _cells(
    done: Prepared,
    row: Row,
    model: str,
    name: str,
    stream: Mapping[str, Any],
    made: Mapping[Any, tuple[Any, str]],
) -> None:
    """All jobs of one row, model and stream."""
    plan, fields = done.plan, {k: v for k, v in stream.items() if k != "domains"}
    for data in _parts(plan, stream):
        method, preset = made[(row.label, data[0])]
        shown = "all" if stream.get("domains", False) else data[0]
        for order in range(1, _orders(plan, method, stream) + 1):
            job = done.stage.job(row, model, data, method, preset, fields | {"seed": order})
            done.cells[Cell(row.label, model, shown, name, order)] = job


def method_of(plan: Plan, row: Row, data: str) -> tuple[Any, str]:
    """A row's method on a data set, and the preset it stands for."""
    preset = preset_of(row, data)
    try:
        method = registry.create(row.method, preset, **row.fields)
    except BadInput as error:
        raise BadPlan(f"plan {plan.name}, row {row.label!r}: {error}") from error
    if plan.views is not None and getattr(method, "views", 1) > plan.views:
        method = dataclasses.replace(method, views=plan.views)  # type: ignore[type-var]
    return method, preset or "default"


def preset_of(row: Row, data: str) -> str | None:
    """`released` is the data set's own preset, and `fixed` where it has none; a plug-in has its defaults.

    >>> preset_of(Row(label="", method="tda"), "dtd"), preset_of(Row(label="", method="tda"), "shapes")
    ('released/dtd', 'fixed')
    """
    presets = registry.presets(row.method)
    if not presets or row.preset == "default":
        return None
    if row.preset != "released":
        return row.preset
    base = data.partition("@")[0].partition(":")[0]
    return next((name for name in (f"released/{base}", "fixed") if name in presets), None)
