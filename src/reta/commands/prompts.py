"""`reta data prompts` and `reta prompts suggest`: what will be encoded, and where to start without CuPL."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from reta.errors import BadInput

app = typer.Typer(help="Sentences for classes that have none.", no_args_is_help=True)


@app.callback()
def prompts() -> None:
    """Sentences for classes that have none."""


def prompts_of(
    name: Annotated[str, typer.Argument(help="A set, an embedded set, or your folder.", show_default=False)],
    templates: Annotated[
        str,
        typer.Option(
            help="A family (coop, tpt, zero-ensemble, tda, dpe, dmn), a template set, or one with {}."
        ),
    ] = "dpe",
    sentences: Annotated[
        str | None,
        typer.Option(
            "--prompts", help="CuPL-form JSON; clip-benchmark: ImageNet's; auto: found below the root."
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Class names (a,b,c or a file) instead of the data's.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Sentences shown per class; 0: all.")] = 3,
    root: Annotated[
        Path | None, typer.Option(help="The folder of the data sets; default: $RETA_DATA.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")] = False,
) -> None:
    """Show, per class, every sentence that will be encoded.

    Example: reta data prompts dtd --prompts gpt3_prompts/CuPL_prompts_dtd.json
    """
    from reta.data.prompts import table

    found = table(name, templates, sentences, classes, root)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    for row in found["classes"]:
        print(f"{row['name']} ({len(row['sentences'])})")
        for sentence in row["sentences"][: limit or None]:
            print(f"  {sentence}")
    total = sum(len(row["sentences"]) for row in found["classes"])
    print(
        f"{len(found['classes'])} classes, {total} sentences; prompts: {_source(found['prompts'])}",
        file=sys.stderr,
    )


def _source(record: dict[str, Any]) -> str:
    if not record:
        return "none, templates only"
    known = f", as used by {record['known']}" if record.get("known") else ""
    return (
        f"{record['source']} sha256 {record['sha256'][:12]}{known}"
        if "sha256" in record
        else record["source"]
    )


@app.command()
def suggest(
    classes: Annotated[
        str, typer.Option(help="Class names: a,b,c or a text file with one name a line.", show_default=False)
    ] = "",
    domain: Annotated[str, typer.Option(help="What the images are; see --list.")] = "photo",
    n: Annotated[int, typer.Option(help="Sentences per class, at least 4.")] = 12,
    out: Annotated[Path | None, typer.Option(help="Write to this file; it must not exist.")] = None,
    show_domains: Annotated[bool, typer.Option("--list", help="List the domains and stop.")] = False,
) -> None:
    """Write sentences to start from, as JSON of the form {class: [sentences]} that `--prompts` takes.

    They come from a small grammar for the domain and say nothing about what your classes look like: edit
    them. Two or three sentences about form and color help more than all frames.

    Example: reta prompts suggest --classes classes.txt --domain satellite --out prompts.json
    """
    from reta import state
    from reta.data.suggest import grammar
    from reta.data.suggest import suggest as make
    from reta.templates import class_list

    if show_domains:
        for name, parts in grammar().items():
            print(f"{name:<14}{parts['about']}")
        return
    text = json.dumps(make(class_list(classes), domain, n), indent=1, ensure_ascii=False) + "\n"
    if out is None:
        print(text, end="")
        return
    if out.exists():
        raise BadInput(f"{out} exists, and may hold your edits: choose another --out, or remove it")
    with state.atomic(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"wrote {out}; edit it, then pass --prompts {out}", file=sys.stderr)
