"""`reta data`: what sets there are, what a copy lacks, how to get it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from reta.commands.prompts import app as prompts_app
from reta.commands.prompts import prompts_of
from reta.errors import BadImage, BadInput, MissingData, RetaError

app = typer.Typer(help="Data sets: list, show, check, get them; see their prompts.", no_args_is_help=True)

__all__ = ["app", "prompts_app"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Root = Annotated[
    Path | None,
    typer.Option(help="The folder of the data sets; default: $RETA_DATA, or ./data.", show_default=False),
]
Name = Annotated[
    str, typer.Argument(help="A set, such as dtd or imagenet-a:legacy_6862.", show_default=False)
]
Partial = Annotated[
    bool, typer.Option("--allow-partial", help="Take a set whose count differs; it is marked.")
]


@app.command("list")
def list_sets(root: Root = None, as_json: Json = False) -> None:
    """List the sets of the catalog and the embedded ones, and whether a copy is here.

    Here means that the folder is found; `reta data check` says whether it is whole.
    """
    from reta.commands.inspect import table
    from reta.data import catalog, shapes
    from reta.data.catalog.locate import absent

    if root is not None and not root.is_dir():
        raise absent(root)
    rows: list[dict[str, Any]] = [_embedded(name) | {"variants": []} for name in shapes.SETS]
    for name in catalog.names():
        entry = catalog.entry(name)
        shown = {"name": name, "images": entry.test, "classes": entry.classes, "here": _here(entry, root)}
        rows.append(shown | {"title": entry.title, "variants": list(entry.variants)})
    if as_json:
        print(json.dumps(rows))
    else:
        keys = ("name", "images", "classes", "here", "title")
        table([(*(row[k] for k in keys), ", ".join(row["variants"])) for row in rows], (*keys, "variants"))


def _embedded(name: str) -> dict[str, Any]:
    from reta.data import shapes

    world = shapes.open(name)
    counts = {"images": len(world), "classes": len(world.names)}
    return {"name": name, **counts, "here": "embedded", "title": "the embedded world"}


def _here(entry: Any, root: Path | None) -> str:
    from reta.data.catalog.locate import default_root, locate

    base = root or default_root()
    return "yes" if base.is_dir() and locate(entry, base) is not None else "no"


@app.command()
def show(name: Name, as_json: Json = False) -> None:
    """Show what the catalog knows of a set: counts, layout, names, templates, licence, how to get it."""
    import dataclasses

    from reta.data import shapes

    if name in shapes.SETS:
        known = _embedded(name) | {"get": "nothing to do: it comes with the package and is drawn on demand"}
        print(json.dumps(known) if as_json else "\n".join(f"{k:<12}{v}" for k, v in known.items()))
        return
    entry = _entry(name)
    shown = {k: v for k, v in dataclasses.asdict(entry).items() if v not in ("", (), {})}
    if as_json:
        print(json.dumps(shown))
        return
    steps, dead, templates = shown.pop("steps", ()), shown.pop("dead", ()), shown.pop("templates", {})
    for key, value in shown.items():
        print(f"{key:<12}{_plain(value)}")
    print("templates")
    for family, value in templates.items():
        print(f"  {family:<14}{value if isinstance(value, str) else ' | '.join(value)}")
    print("how to get it")
    for i, step in enumerate(steps, 1):
        print(f"  {i}. {step}")
    for line in dead:
        print(f"  Note: {line}")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        parts = ((k, v.get("test", _plain(v)) if isinstance(v, dict) else v) for k, v in value.items())
        return "; ".join(f"{k}: {v}" for k, v in parts)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _entry(name: str) -> Any:
    from reta.data import catalog, shapes

    if name in shapes.SETS:
        raise BadInput(f"{name} comes with the package and is drawn on demand: there is nothing to get")
    if name.endswith(".toml"):
        return catalog.read(Path(name))
    set_name, _, variant = name.partition(":")
    return catalog.entry(set_name, variant)


@app.command()
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Sets or your own folders and lists; none: all.", show_default=False),
    ] = None,
    root: Root = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Class names for your own data: a,b,c or a file.", show_default=False),
    ] = None,
    layout: Annotated[str, typer.Option(help="For your own folder: auto, classes or flat.")] = "auto",
    as_json: Json = False,
) -> None:
    """Compare copies with the catalog: counts, split files, class names, empty files. Prints what is missing
    and how to get it.

    A folder or list of your own is checked by decoding every image. Exit code 1 if something named is not
    right; without names, sets that are absent do not count.

    Example: reta data check dtd food101 --root /data
    """
    from reta.data import catalog
    from reta.data.catalog.locate import absent, default_root
    from reta.data.check import check as check_entry

    base = root or default_root()
    known = catalog.names()
    reports: list[dict[str, Any]] = []
    if not names and not base.is_dir():
        raise absent(base)
    for name in names or known:
        if name.partition(":")[0] in known or name.endswith(".toml"):
            report = check_entry(_entry(name), base).as_dict()
        else:
            report = _check_own(name, root, classes, layout)
        reports.append(report)
        if not as_json:
            _show_report(report, brief=not names)
    if as_json:
        print(json.dumps(reports))
    # Asked for all, people want to know what is broken, not that they do not have SUN397.
    wrong = [r["name"] for r in reports if r["status"] == "wrong" or (names and r["status"] != "ok")]
    if wrong:
        raise RetaError(f"{len(wrong)} of {len(reports)} sets are not right: {', '.join(wrong)}")


def _check_own(name: str, root: Path | None, classes: str | None, layout: str) -> dict[str, Any]:
    """Decode every image of a source that is in no catalog."""
    import reta.data
    from reta.progress import bar

    data = reta.data.open(name, root, names=classes, layout=layout)
    problems = []
    for i in bar(range(len(data)), total=len(data), what=f"checking {data.name}"):
        try:
            data.image(i)
        except BadImage as error:
            named = repr(data.keys[i])
            text = f"{named}: {str(error).removeprefix(named).lstrip(': ')}"
            problems.append({"kind": error.reason, "text": text})
    notes = [*data.notes, *(f"not taken for an image: {path!r}" for path in data.skipped)]
    counts = {"test": len(data), "classes": len(data.names), "version": data.version}
    status = "wrong" if problems else "ok"
    return {"status": status, "name": name, **counts, "problems": problems, "notes": notes, "recipe": []}


def _show_report(report: dict[str, Any], brief: bool) -> None:
    from reta.data.check import NOTE

    found = f"{report['test']} images, {report['classes']} classes"
    if report["status"] == "ok":
        print(f"{report['name']}: ok, {found}")
    else:
        print(f"{report['name']}: {report['status']}")
        for problem in report["problems"]:
            print(f"  {problem['kind']}: {problem['text']}")
    if brief:
        return
    for note in report["notes"]:
        print(f"  note: {note}")
    if report["recipe"]:
        print("  to get it:")
        for i, step in enumerate(report["recipe"], 1):
            print(f"    {step}" if step.startswith(NOTE) else f"    {i}. {step}")


@app.command()
def get(name: Name, root: Root = None, as_json: Json = False) -> None:
    """Download what torchvision, Hugging Face or an archive still delivers, and print the steps for the rest.

    Split files and some images lie behind links that only a person can follow; the steps say which links are
    dead. Exit code 1 while the set is not whole.
    """
    import dataclasses

    from reta.data.catalog.locate import default_root
    from reta.data.check import NOTE
    from reta.data.get import get as fetch

    got = fetch(_entry(name), root or default_root())
    report = got.report.as_dict() if got.report else {}
    if as_json:
        print(json.dumps(dataclasses.asdict(got) | {"report": report}))
    else:
        for source in got.fetched:
            print(f"fetched {source}")
        _show_report(report, brief=False)
    if report.get("status") != "ok":
        left = sum(not step.startswith(NOTE) for step in got.steps)
        raise MissingData(f"{name} is not whole yet: {left} steps are left (see above)")


app.command("prompts")(prompts_of)
