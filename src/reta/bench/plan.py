"""A plan: which methods meet which data and models, in how many orders, and what is shown of it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from reta import methods as registry
from reta.errors import BadPlan, nearest

LAYOUTS = ("table", "time", "curve", "stream", "bars", "pictures")
COLUMNS = ("data", "groups", "streams")
METRICS = {
    "accuracy": "top-1 accuracy, %",
    "ece": "expected calibration error, % (20 bins)",
    "nll": "negative log-likelihood, nats",
    "cache_accuracy": "accuracy of the cached images, %",
    "changed": "predictions that differ from the frozen model's, %",
    "better": "share of the changed predictions that became right, %",
    "moved": "predictions that differ from the reference row's, %",
    "auroc": "unknown images told by their confidence, area under ROC, %",
}
WORLD = ("shapes", "shapes-a", "shapes-v2", "shapes-r", "shapes-sketch")
MINI = ("reta-mini", "reta-mini-l")
ORDER = [
    "table1",
    "table2",
    "table3",
    "table4",
    "table5",
    "table6",
    "table7",
    "score",
    "gamma",
    "calibration",
    "logits",
    "reward",
    "eva02",
    "coca",
    "figure1",
    "reliability",
    "rank",
    "members",
    "lambdas",
    "cache-size",
    "views",
    "eta",
    "cached-images",
    "realistic",
    "hostile",
    "one-protocol",
]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table, or one point of a curve: a method with its preset, its fields and its prompts.

    `preset = "released"` means the one of the data set, `fixed` where there is none. `text` names templates,
    by set or by the family of the catalog (coop, tpt, tda, dpe, ...), and `+cupl` adds the sentences of each
    class. `model` replaces the plan's model in this row ("reward": the reward model).
    """

    label: str
    method: str
    preset: str = "released"
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str = "dpe+cupl"
    model: str = ""
    x: float | None = None
    series: str = ""
    panel: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A table or a figure. `groups` are averages over data sets, `reference` the row others are tested against.

    >>> plan = load("table6")
    >>> [row.label for row in plan.rows], plan.reference
    (['SVD', 'PCA', 'LDA'], 'SVD')
    >>> embedded(plan).data
    ('shapes', 'shapes-a', 'shapes-v2', 'shapes-r', 'shapes-sketch')
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    item: str = ""
    layout: str = "table"
    data: tuple[str, ...] = ()
    models: tuple[str, ...] = ("ViT-B-16/openai",)
    reward: str = ""
    orders: int = 3
    streams: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"iid": {"kind": "iid"}})
    metrics: tuple[str, ...] = ("accuracy",)
    columns: str = "data"
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reference: str = ""
    note: str = ""
    world: str = ""
    limit: int | None = None
    views: int | None = None
    seed: int = 0
    prompts: str = ""
    shapes: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _one_of(self.name, "layout", self.layout, LAYOUTS)
        _one_of(self.name, "columns", self.columns, COLUMNS)
        for metric in self.metrics:
            _one_of(self.name, "metric", metric, METRICS)
        labels = [row.label for row in self.rows]
        if len(set(labels)) != len(labels):
            double = next(label for label in labels if labels.count(label) > 1)
            raise BadPlan(f"plan {self.name}: two rows are called {double!r}; give each its own label")
        if self.reference and self.reference not in labels:
            raise BadPlan(
                f"plan {self.name}: no row {self.reference!r} to test against: {nearest(self.reference, labels)}"
            )
        for key in ("data", "models", "rows", "streams"):
            if not getattr(self, key):
                raise BadPlan(f"plan {self.name} has no {key}")
        for key, low in (("orders", 1), ("limit", 1), ("views", 1)):
            value = getattr(self, key)
            if value is not None and value < low:
                raise BadPlan(f"plan {self.name}: {key} is at least {low}, not {value}")


def names() -> list[str]:
    """Every plan that comes with the package, the paper's items first."""
    found = {p.name.removesuffix(".toml") for p in files("reta.bench").joinpath("plans").iterdir()}
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def load(name: str | Path) -> Plan:
    """A plan by its name, or from a TOML file of your own."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise BadPlan(f"no such plan file: {path}; `reta bench list` names the plans that come with reta")
        return parse(path.stem, path.read_text(encoding="utf-8"))
    if str(name) not in names():
        raise BadPlan(f"unknown plan {str(name)!r}: {nearest(str(name), names())}")
    text = files("reta.bench").joinpath(f"plans/{name}.toml").read_text(encoding="utf-8")
    return parse(str(name), text)


def parse(name: str, text: str) -> Plan:
    """A plan from TOML: the fields of `Plan`, and `[[rows]]` with those of `Row`.

    `vary = {rank = [8, 16]}` in a row makes one row for each value.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadPlan(f"plan {name} is not valid TOML: {error}") from error
    rows = [made for row in table.pop("rows", []) for made in _rows(name, row)]
    groups = {key: tuple(value) for key, value in table.pop("groups", {}).items()}
    return _make(Plan, name, _tuples(table) | {"name": name, "rows": tuple(rows), "groups": groups})


def embedded(plan: Plan) -> Plan:
    """The same plan on the embedded world: its five sets, `reta-mini` and `reta-mini-l`, `fixed` presets.

    What the plan's own `[shapes]` table says goes before that.
    """
    own = _tuples(plan.shapes)
    data = own.pop("data", WORLD)
    shifted = tuple(name for name in data if name != "shapes")
    groups = {"Average": data} | ({"Shifted": shifted} if 0 < len(shifted) < len(data) else {})
    groups = {k: tuple(v) for k, v in own.pop("groups", groups).items()}
    changes = {"data": data, "models": MINI[: len(plan.models)], "groups": groups, "world": "shapes"}
    return replace(plan, **changes | {"reward": MINI[1] if plan.reward else ""} | own)


def chosen(
    plan: Plan,
    *,
    data: Sequence[str] = (),
    models: Sequence[str] = (),
    methods: Sequence[str] = (),
    extra: Sequence[str] = (),
    **settings: Any,
) -> Plan:
    """The plan with other data, models, methods, or settings (`limit`, `views`, `orders`, `seed`).

    `methods` keeps the rows of that label or method, and adds a row for a method the plan does not have: a
    registered name, or `file.py:Class`. `extra` only adds.
    """
    rows = [*_kept(plan, methods), *(_added(plan, name) for name in extra)]
    groups = plan.groups
    if data:
        known = {name for group in groups.values() for name in group}
        groups = {k: tuple(d for d in v if d in data) for k, v in groups.items()}
        groups = {k: v for k, v in groups.items() if v} if set(data) <= known else {"Average": tuple(data)}
    reference = plan.reference if plan.reference in [row.label for row in rows] else ""
    changes = {k: v for k, v in settings.items() if v is not None}
    changes |= {"data": tuple(data) or plan.data, "models": tuple(models) or plan.models}
    return replace(plan, rows=tuple(rows), groups=groups, reference=reference, **changes)


def _kept(plan: Plan, methods: Sequence[str]) -> list[Row]:
    if not methods:
        return list(plan.rows)
    kept: list[Row] = []
    for name in methods:
        found = [row for row in plan.rows if name.lower() in (row.label.lower(), row.method.lower())]
        kept += found or [_added(plan, name)]
    return [row for row in plan.rows if row in kept] + [row for row in kept if row not in plan.rows]


def _added(plan: Plan, name: str) -> Row:
    """A row for a method the plan does not know, with the prompts of its reference row."""
    registry.find(name)
    label = name.rpartition(":")[2] if ".py:" in name else name
    text = next((row.text for row in plan.rows if row.label == plan.reference), Row.text)
    return Row(label=label, method=name, text=text)


def _rows(plan: str, table: dict[str, Any]) -> list[Row]:
    vary = table.pop("vary", None)
    if vary is None:
        return [_make(Row, plan, table)]
    if len(vary) != 1:
        raise BadPlan(f"plan {plan}: vary takes one field, such as vary = {{rank = [8, 16]}}")
    (key, values), series, fields = *vary.items(), table.pop("label", ""), table.pop("fields", {})
    return [
        _make(
            Row,
            plan,
            table
            | {"label": f"{series + ', ' if series else ''}{key} = {value}"}
            | {"fields": fields | {key: value}, "x": float(value), "series": series},
        )
        for value in values
    ]


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}


def _make(kind: type[T], plan: str, values: Mapping[str, Any]) -> T:
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise BadPlan(f"plan {plan}: no such key {key!r}: {nearest(key, known)}")
    try:
        return kind(**values)
    except TypeError as error:
        raise BadPlan(f"plan {plan}: {error}") from error


def _one_of(plan: str, what: str, value: str, known: Sequence[str] | Mapping[str, str]) -> None:
    if value not in known:
        raise BadPlan(f"plan {plan}: unknown {what} {value!r}: {nearest(value, known)}")
