"""Plans: every one that ships is sound, and a wrong one is refused with the next step."""

from __future__ import annotations

import dataclasses

import pytest

from reta import methods
from reta.bench import plan as plans
from reta.bench import published
from reta.bench.prepare import jobs_of, method_of
from reta.bench.stage import look
from reta.data import catalog
from reta.errors import BadInput, BadPlan

PAPER = [
    *("table1", "table2", "table3", "table4", "table5", "table6", "table7", "score", "gamma", "calibration"),
    *("logits", "reward", "eva02", "coca", "figure1", "reliability", "rank", "members", "lambdas"),
    *("cache-size", "views", "eta", "cached-images"),
]
OURS = ["realistic", "hostile", "one-protocol"]


def test_every_item_of_the_paper_has_a_plan_and_a_place() -> None:
    assert plans.names() == PAPER + OURS
    for name in PAPER:
        assert plans.load(name).item, name


@pytest.mark.parametrize("name", PAPER + OURS)
def test_plan_is_sound(name: str) -> None:
    plan = plans.load(name)
    assert set(plan.data) <= set(catalog.names())
    assert all(set(group) <= set(plan.data) for group in plan.groups.values())
    for chosen in (plan, plans.embedded(plan)):
        for row in chosen.rows:
            if row.method in methods.known():
                for data in {chosen.data[0], chosen.data[-1]}:
                    method_of(chosen, row, data)
    small = plans.embedded(plan)
    assert set(small.data) <= set(plans.WORLD) and set(small.models) <= set(plans.MINI)
    assert all(set(group) <= set(small.data) for group in small.groups.values())
    assert jobs_of(small)[0] > 0


def test_released_presets_are_used_where_there_are_any() -> None:
    plan = plans.load("table1")
    row = next(r for r in plan.rows if r.label == "ReTA")
    method, preset = method_of(plan, row, "dtd")
    assert preset == "released/dtd" and method == methods.create("reta", "released/dtd")
    assert method_of(plan, row, "shapes-a")[1] == "fixed"


@pytest.mark.parametrize("name", list(published.tables()))
def test_published_rows_and_columns_are_those_of_the_plan(name: str) -> None:
    plan, table = plans.load(name), published.tables()[name]
    labels = {row.label for row in plan.rows}
    assert set(table["rows"]) <= set(plan.models)
    for rows in table["rows"].values():
        assert set(rows) <= labels, set(rows) - labels
        assert all(len(values) <= len(table["columns"]) for values in rows.values())
    shown = {*plan.data, *plan.groups, "Changed", "Gain"}
    assert set(table["columns"]) <= shown
    for note in table.get("notes", []):
        named = note.get("row", [])
        assert set([named] if isinstance(named, str) else named) <= labels


def test_published_averages_are_the_means_of_their_rows_but_for_the_noted_ones() -> None:
    for name, group in (("table1", 10), ("table2", 5), ("calibration", 10), ("eva02", 10), ("coca", 10)):
        table = published.tables()[name]
        for model, rows in table["rows"].items():
            for label, values in rows.items():
                column = table["columns"][group]
                off = abs(sum(values[:group]) / group - values[group])
                assert off < 0.0101 or "mean" in " ".join(published.notes(name, model, label, column))


def test_overrides() -> None:
    plan = plans.load("table1")
    only = plans.chosen(plan, data=["dtd"], models=["RN50/openai"], methods=["reta", "TDA"], limit=10)
    assert [row.label for row in only.rows] == ["TDA", "ReTA"]
    assert only.groups == {"Average": ("dtd",)} and only.reference == "ReTA" and only.limit == 10
    other = plans.chosen(plan, data=["photos/"], methods=["TDA"])
    assert other.groups == {"Average": ("photos/",)} and other.reference == ""
    more = plans.chosen(plan, extra=["zero"])
    assert [row.label for row in more.rows][-1] == "zero" and more.rows[-1].text == "dpe+cupl"
    added = plans.chosen(plan, methods=["dmn"])
    assert [row.method for row in added.rows] == ["dmn"]
    with pytest.raises(BadInput, match="unknown method 'tdaa': did you mean 'tda'"):
        plans.chosen(plan, methods=["tdaa"])


def test_vary_makes_one_row_for_each_value() -> None:
    rows = plans.load("members").rows
    assert [r.x for r in rows if r.series == "own residuals"] == [1, 2, 3, 4, 5, 6]
    assert rows[0].label == "own residuals, members = 1" and rows[0].fields == {"members": 1}


GOOD = 'title = "t"\ndata = ["shapes"]\n[[rows]]\nlabel = "a"\nmethod = "tda"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "not valid TOML"),
        (GOOD.replace("title", "titel"), "no such key 'titel': did you mean 'title'"),
        (GOOD + "fiels = {}\n", "no such key 'fiels': did you mean 'fields'"),
        (GOOD.replace("data", "layout = 'tabel'\ndata"), "unknown layout 'tabel': did you mean 'table'"),
        (GOOD.replace("data", "metrics = ['acuracy']\ndata"), "did you mean 'accuracy'"),
        (GOOD.replace("data", "reference = 'b'\ndata"), "no row 'b' to test against"),
        (GOOD + GOOD[GOOD.index("[[") :], "two rows are called 'a'"),
        (GOOD.replace('["shapes"]', "[]"), "has no data"),
        (GOOD.replace("data", "orders = 0\ndata"), "orders is at least 1"),
        (GOOD.replace('label = "a"\n', ""), "label"),
        (GOOD + "vary = { alpha = [1.0], beta = [2.0] }\n", "vary takes one field"),
        (GOOD + "vary = { alpha = 1.0 }\n", "vary takes one field and its numbers"),
        (GOOD + 'vary = { score = ["log"] }\n', "vary takes one field and its numbers"),
        (GOOD.replace('["shapes"]', '"shapes"'), "data is a list of texts, not 'shapes'"),
        (GOOD.replace('["shapes"]', '["shapes", "shapes"]'), "data names one of shapes, shapes twice"),
        (GOOD.replace("data", "orders = '3'\ndata"), "orders is a whole number, not '3'"),
        (GOOD.replace("data", "views = 2.5\ndata"), "views is a whole number"),
        (GOOD.replace("data", "world = 'cubes'\ndata"), "unknown world 'cubes'"),
        (GOOD.replace("data", "metrics = ['moved']\ndata"), "'moved' needs a reference row"),
        (GOOD.replace("[[rows]]", "[rows]"), r"rows is tables, each headed \[\[rows\]\]"),
        (GOOD.replace("[[rows]]", "rows = ['a']\n[shapes]"), "rows are tables"),
        (GOOD.replace('"tda"', "3"), "method is text, not 3"),
        (GOOD + 'fields = "x"\n', "fields is a table, not 'x'"),
        (GOOD + '[groups]\nAll = "shapes"\n', "groups is lists of texts"),
        (GOOD + '[groups]\nAll = ["shapes-b"]\n', "unknown data in group 'All': 'shapes-b'"),
        (GOOD + '[streams]\nx = "iid"\n', "streams is tables"),
        (GOOD + "[streams]\nx = {}\n", "stream 'x': no kind"),
        (GOOD + '[streams]\nx = { kind = "idd" }\n', "stream 'x': unknown stream 'idd': did you mean 'iid'"),
        (GOOD + '[streams]\nx = { kind = "iid", unknwn = 1 }\n', "did you mean 'unknown'"),
        (GOOD + '[shapes]\ndta = ["shapes"]\n', "no such key 'dta': did you mean 'data'"),
    ],
)
def test_a_wrong_plan_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadPlan, match=message):
        plans.parse("mine", text)


def test_a_plan_of_your_own(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert plans.load(path).name == "mine" and plans.load(str(path)).rows[0].method == "tda"
    with pytest.raises(BadPlan, match="no such plan file"):
        plans.load(tmp_path / "other.toml")
    with pytest.raises(BadPlan, match="unknown plan 'tabel1': did you mean 'table1'"):
        plans.load("tabel1")
    path.write_bytes(b'title = "\xe9"')
    with pytest.raises(BadPlan, match="not UTF-8"):
        plans.load(path)


def test_a_field_the_method_does_not_have_is_refused() -> None:
    plan = plans.parse("mine", GOOD + "fields = { alhpa = 1.0 }\n")
    with pytest.raises(BadPlan, match="row 'a': tda has no field 'alhpa': did you mean 'alpha'"):
        jobs_of(plan)


def test_rows_without_an_installed_method_are_left_out_with_a_notice() -> None:
    plan = plans.parse("mine", GOOD + '[[rows]]\nlabel = "soon"\nmethod = "not-yet"\n')
    count, skipped = jobs_of(plan)
    assert count == 3 and skipped == ["soon: no method 'not-yet' is installed"]


def test_more_views_than_allowed_are_left_out_not_renamed() -> None:
    plan = plans.chosen(plans.embedded(plans.load("views")), views=16)
    _, skipped = jobs_of(plan)
    assert [s.partition(":")[0] for s in skipped] == ["views = 32", "views = 64", "views = 128"]


def test_views_are_capped_and_recorded() -> None:
    plan = dataclasses.replace(plans.embedded(plans.load("table1")), views=5)
    method, _ = method_of(plan, plan.rows[-1], "shapes")
    assert method.views == 5


def test_the_same_views_are_the_same_store():
    """A method that may cut closer, told not to, shares the views of all others."""
    plan = plans.load("one-protocol")
    made = [method_of(plan, row, "dtd")[0] for row in plan.rows]
    assert {look(m) for m in made} == {("plain", -1.0), ("augmix", -1.0)}
