"""`reta models`, `reta methods`, `reta state`: look before you run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from reta.errors import BadInput

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]

methods_app = typer.Typer(help="The methods: list them, show one, check one.", no_args_is_help=True)
state_app = typer.Typer(help="State files.", no_args_is_help=True)


def table(rows: Sequence[tuple[Any, ...]], headers: tuple[str, ...]) -> None:
    """A plain table, cut to nothing: it may be piped."""
    cells = [headers, *[tuple(str(c) for c in row) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    for row in cells:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def models(
    pattern: Annotated[str, typer.Argument(help="Part of a name, such as ViT-B-16.")] = "",
    as_json: Json = False,
) -> None:
    """List the models that `--model` takes: the embedded ones, then every open_clip name and tag."""
    import open_clip

    from reta.backbone import EMBEDDED, SPECIAL

    rows: list[tuple[str, str]] = [(name, "embedded") for name in EMBEDDED]
    rows += [(name, "extra photo") for name in SPECIAL]
    rows += sorted((str(pair[0]), str(pair[1])) for pair in open_clip.list_pretrained())
    rows = [row for row in rows if pattern.lower() in "/".join(row).lower()]
    if not rows:
        raise BadInput(f"no model matches {pattern!r}; `reta models` lists all")
    if as_json:
        print(json.dumps([{"name": name, "tag": tag} for name, tag in rows]))
    else:
        table(rows, ("model", "tag"))


@methods_app.command("list")
def methods_list(as_json: Json = False) -> None:
    """List every method, with what it needs and whether it learns from the stream."""
    from reta import methods

    rows = []
    for name, summary in methods.names().items():
        cls = methods.find(name)
        rows.append(
            (name, "episodic" if cls.episodic else "online", ",".join(sorted(cls.needs)) or "-", summary)
        )
    keys = ("method", "kind", "needs", "what it is")
    if as_json:
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
    else:
        table(rows, keys)


@methods_app.command("show")
def methods_show(
    name: Annotated[str, typer.Argument(help="A method, as `reta methods list` names it.")],
    preset: Annotated[str | None, typer.Option(help="Show the values of this preset.")] = None,
    as_json: Json = False,
) -> None:
    """Show a method: its idea, equations, every field with its meaning and range, and its presets."""
    from reta import methods

    cls = methods.find(name)
    method = methods.create(name, preset)
    fields = [_field(f, getattr(method, f.name)) for f in dataclasses.fields(cls)]
    if as_json:
        print(json.dumps({"method": name, "fields": fields, "presets": methods.presets(name)}))
        return
    print(f"{name}: {cls.summary}\n\n{(cls.__doc__ or '').split('>>>')[0].strip()}\n")
    if cls.equations:
        print(f"{cls.equations}\n")
    table(
        [(f["name"], f["value"], f["legal"], f["eq"], f["doc"]) for f in fields],
        ("field", "value", "legal", "eq.", "meaning"),
    )
    print(f"\npresets: {', '.join(methods.presets(name)) or 'none'}")


def _field(field: dataclasses.Field[Any], value: Any) -> dict[str, Any]:
    meta = field.metadata
    return {
        "name": field.name,
        "value": value,
        "legal": _legal(field),
        "eq": meta.get("eq", ""),
        "doc": meta.get("doc", ""),
    }


def _legal(field: dataclasses.Field[Any]) -> str:
    """Choices, or a range with its ends, or the kind of number; nothing where any value will do."""
    low, high = field.metadata.get("low"), field.metadata.get("high")
    choices = field.metadata.get("choices") or ((True, False) if isinstance(field.default, bool) else ())
    if choices:
        return " | ".join(map(str, choices))
    if (low, high) != (None, None):
        return f"{'' if low is None else low}..{'' if high is None else high}"
    return "any number" if isinstance(field.default, int | float) else ""


@methods_app.command("check")
def methods_check(
    name: Annotated[str, typer.Argument(help="A method's name, or path/to/file.py:ClassName.")],
    preset: Annotated[str | None, typer.Option(help="Check this preset.")] = None,
    as_json: Json = False,
) -> None:
    """Run the conformance suite on a method, one of ours or your own; exit 1 if a check fails."""
    from reta import methods
    from reta.checks import CHECKS, check_method

    failures = check_method(methods.create(name, preset), quiet=as_json)
    if as_json:
        report = {"method": name, "preset": preset, "checks": len(CHECKS), "failures": failures}
        print(json.dumps(report))
    if failures:
        raise typer.Exit(1)


@state_app.command("show")
def state_show(path: Annotated[Path, typer.Argument(help="A state file.")], as_json: Json = False) -> None:
    """Show what a state file holds: method, settings, classes, model, tensors. Runs no code from it."""
    from reta import state as states

    body, header = states.load(path)
    tensors = {k: f"{str(v.dtype).removeprefix('torch.')} {list(v.shape)}" for k, v in body.items()}
    if as_json:
        print(json.dumps(header | {"tensors": tensors}))
        return
    if "classes" not in header:
        _other(header)
        table(list(tensors.items()), ("tensor", "type and shape"))
        return
    classes = header["classes"]
    print(
        f"method   {header['method']}\nmodel    {header['model_name'].removesuffix('/None')} ({header['model']})"
    )
    print(f"seen     {header['seen']} images")
    print(f"classes  {len(classes)}: {', '.join(classes[:8])}{', ...' if len(classes) > 8 else ''}")
    print("fields   " + ", ".join(f"{k}={v}" for k, v in header["fields"].items()))
    table(list(tensors.items()), ("tensor", "type and shape"))


def _other(header: dict[str, Any]) -> None:
    """What the other files are that are written in this form."""
    if {"rows", "seen"} <= header.keys():
        print(f"the state behind a results file: {header['rows']} rows, {header['seen']} images")
        return
    print("a file of reta, but not a state of a stream:")
    for key, value in header.items():
        text = str(value)
        print(f"{key:<12}{text if len(text) < 80 else text[:77] + '...'}")
