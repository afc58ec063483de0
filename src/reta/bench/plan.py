"""A plan: which methods meet which data and models, in how many orders, and what is shown of it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from reta import methods as registry
from reta.bench import streams
from reta.errors import BadInput, BadPlan, nearest

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
KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", lambda v: isinstance(v, str)),
    "int": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "int | None": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "float | None": ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool)),
    "tuple[str, ...]": ("a list of texts", lambda v: _texts(v)),
    "Mapping[str, Any]": ("a table", lambda v: isinstance(v, dict)),
    "Mapping[str, Mapping[str, Any]]": ("tables", lambda v: _all(v, lambda one: isinstance(one, dict))),
    "Mapping[str, tuple[str, ...]]": ("lists of texts", lambda v: _all(v, _texts)),
    "tuple[Row, ...]": ("tables, each headed [[rows]]", lambda v: isinstance(v, list | tuple)),
}
"""What a plan file may say for a field of each type, in words and as a check."""


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
        _one_of(self.name, "world", self.world, ("", "shapes"))
        for key in ("data", "models", "rows", "streams"):
            if not getattr(self, key):
                raise BadPlan(f"plan {self.name} has no {key}")
        for key in ("data", "models", "metrics"):
            names = getattr(self, key)
            if len(set(names)) < len(names):
                raise BadPlan(f"plan {self.name}: {key} names one of {', '.join(names)} twice")
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
        try:
            return parse(path.stem, path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise BadPlan(f"plan file {path} is not UTF-8 text ({error}); save it as UTF-8") from error
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
    _typed(Plan, name, table)
    rows = [made for row in table.pop("rows", []) for made in _rows(name, row)]
    groups = {key: tuple(value) for key, value in table.pop("groups", {}).items()}
    plan = _make(Plan, name, _tuples(table) | {"name": name, "rows": tuple(rows), "groups": groups})
    _sound(plan)
    return plan


def _sound(plan: Plan) -> None:
    """What a file gets wrong that no override could: averages over other data, streams that do not exist."""
    for title, members in plan.groups.items():
        for member in members:
            _one_of(plan.name, f"data in group {title!r}:", member, plan.data)
    _typed(Plan, plan.name, plan.shapes)
    for title, fields in plan.streams.items():
        if "kind" not in fields:
            raise BadPlan(f'plan {plan.name}, stream {title!r}: no kind, such as kind = "iid"')
        more = {k: v for k, v in fields.items() if k not in ("kind", "domains", "leave_out", "only")}
        try:
            # which classes are unknown is only known with the data
            streams.create(
                fields["kind"], **more | ({"unknown_classes": (0,)} if more.get("unknown") else {})
            )
        except BadInput as error:
            raise BadPlan(f"plan {plan.name}, stream {title!r}: {error}") from error
    if "moved" in plan.metrics and not plan.reference:
        raise BadPlan(f"plan {plan.name}: the metric 'moved' needs a reference row to compare with")


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


def _rows(plan: str, table: Any) -> list[Row]:
    if not isinstance(table, dict):
        raise BadPlan(f"plan {plan}: rows are tables, each headed [[rows]], not {table!r}")
    vary = table.pop("vary", None)
    _typed(Row, plan, table)
    if vary is None:
        return [_make(Row, plan, table)]
    if not isinstance(vary, dict) or len(vary) != 1 or not _all(vary, _numbers):
        raise BadPlan(f"plan {plan}: vary takes one field and its numbers, such as vary = {{rank = [8, 16]}}")
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


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, int | float) for one in value)


def _all(value: Any, right: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(right(one) for one in value.values())


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}


def _typed(kind: type, plan: str, values: Mapping[str, Any]) -> None:
    """Refuse keys that do not exist and values of another type."""
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key, value in values.items():
        if key not in fields:
            raise BadPlan(f"plan {plan}: no such key {key!r}: {nearest(key, fields)}")
        words, right = KINDS[str(fields[key].type)]
        if not right(value):
            raise BadPlan(f"plan {plan}: {key} is {words}, not {value!r}")


def _make(kind: type[T], plan: str, values: Mapping[str, Any]) -> T:
    try:
        return kind(**values)
    except TypeError as error:
        what = "" if kind is Plan else f", row {values.get('label', '')!r}"
        missing = str(error).rpartition(": ")[2]
        raise BadPlan(f"plan {plan}{what}: give it {missing}") from error


def _one_of(plan: str, what: str, value: str, known: Sequence[str] | Mapping[str, str]) -> None:
    if value not in known:
        raise BadPlan(f"plan {plan}: unknown {what} {value!r}: {nearest(value, known)}")
