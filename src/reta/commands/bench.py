"""`reta bench`: the paper's tables and figures, on your models, your data, with your methods."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from reta.commands.stopping import stoppable
from reta.errors import BadInput, RetaError

app = typer.Typer(
    help="Benchmarks: every table and figure of the paper, one command each.", no_args_is_help=True
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Data = Annotated[
    str,
    typer.Option(
        help="Other data, a,b,c: catalog names, folders, shapes@fog-3; default: the plan's.",
        show_default=False,
    ),
]
Models = Annotated[
    str, typer.Option("--model", help="Other models, a,b: NAME/TAG, reta-mini, a path.", show_default=False)
]
Methods = Annotated[
    str,
    typer.Option(
        help="Only these rows or methods, a,b; one the plan lacks (or file.py:Class) is added.",
        show_default=False,
    ),
]
Extra = Annotated[
    str, typer.Option("--with", help="Methods to add to the plan's rows, a,b.", show_default=False)
]
Reward = Annotated[str, typer.Option(help="Another reward model.", show_default=False)]
World = Annotated[str, typer.Option(help="shapes: run on the embedded world, with nothing to download.")]
Limit = Annotated[int | None, typer.Option(help="Images per set: a fixed random subset.", show_default=False)]
Views = Annotated[int | None, typer.Option(help="At most so many views per image.", show_default=False)]
Orders = Annotated[
    int | None, typer.Option(help="Stream orders per online method; default: the plan's, usually 3.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the views.", show_default=False)]
Prompts = Annotated[
    Path | None, typer.Option(help="JSON: class name -> sentences, for +cupl.", show_default=False)
]
Context = Annotated[
    Path | None, typer.Option(help="A context of `reta coop fit`, for CoOp.", show_default=False)
]
Root = Annotated[
    Path | None,
    typer.Option(help="The folder of the data sets; default: $RETA_DATA.", show_default=False),
]
Features = Annotated[Path | None, typer.Option(help="The folder of the feature stores.", show_default=False)]
Jobs = Annotated[int, typer.Option(min=1, help="Processes on this machine; each takes one of its GPUs.")]
Ray = Annotated[str, typer.Option(help="A Ray cluster: auto, host:port, local.", show_default=False)]
Partial = Annotated[bool, typer.Option("--allow-partial", help="Take a set whose count differs.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Forget which cells an earlier run with other settings had.")
]
Plans = Annotated[
    list[str],
    typer.Argument(
        help="Plans of `reta bench list`, or TOML files of your own; all: every plan of the list."
    ),
]
Folders = Annotated[list[Path], typer.Argument(help="Folders that `reta bench run --out` wrote.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the plans: which table or figure each is, and what it needs."""
    from reta.bench import plan as plans
    from reta.commands.inspect import table

    rows = [_line(plans.load(name)) for name in plans.names()]
    if as_json:
        print(json.dumps(rows))
        return
    columns = ("plan", "item", "title", "sets", "models", "rows")
    table([tuple(row[c] for c in columns) for row in rows], columns)


def _line(plan: Any) -> dict[str, Any]:
    sizes = {"sets": len(plan.data), "models": len(plan.models), "rows": len(plan.rows)}
    return {"plan": plan.name, "item": plan.item or "ours", "title": plan.title} | sizes


@app.command()
def show(
    plan: Annotated[str, typer.Argument(help="A plan of `reta bench list`, or a TOML file.")],
    data: Data = "",
    models: Models = "",
    methods: Methods = "",
    extra: Extra = "",
    reward: Reward = "",
    world: World = "",
    limit: Limit = None,
    views: Views = None,
    orders: Orders = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Show a plan as it would run: its rows with methods, presets and prompts, its data, models and jobs."""
    from reta.bench.prepare import jobs_of
    from reta.commands.inspect import table

    chosen = _chosen(plan, data, models, methods, extra, reward, world, limit, views, orders, seed)
    count, skipped = jobs_of(chosen)
    if as_json:
        body = dataclasses.asdict(chosen) | {"jobs": count, "skipped": skipped}
        print(json.dumps(body))
        return
    print(f"{chosen.name}: {chosen.title}{f' ({chosen.item})' if chosen.item else ''}")
    for name, value in (("data", chosen.data), ("models", chosen.models), ("streams", chosen.streams)):
        print(f"{name:8}{', '.join(value)}")
    print(
        f"jobs    {count}, at most {chosen.orders} orders each; limit {chosen.limit}, views {chosen.views}\n"
    )
    rows = [
        (r.label, r.method, r.preset, r.text, " ".join(f"{k}={v}" for k, v in r.fields.items()))
        for r in chosen.rows
    ]
    table(rows, ("row", "method", "preset", "prompts", "fields"))
    for text in skipped:
        print(f"left out: {text}")


@app.command()
def run(
    plans: Plans,
    out: Annotated[Path, typer.Option(help="Folder of results; finished jobs in it are kept.")] = Path(
        "results"
    ),
    data: Data = "",
    models: Models = "",
    methods: Methods = "",
    extra: Extra = "",
    reward: Reward = "",
    world: World = "",
    limit: Limit = None,
    views: Views = None,
    orders: Orders = None,
    seed: Seed = None,
    prompts: Prompts = None,
    context: Context = None,
    root: Root = None,
    features: Features = None,
    jobs: Jobs = 1,
    ray: Ray = "",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    allow_partial: Partial = False,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run plans. Every job leaves one file; finished ones never run again, so run the same command after a kill.

    Images are encoded once per model and kind of views, into the feature store. Then:
    `reta bench report results --out report`.

    Example: reta bench run table3 --world shapes --limit 200 --views 8
    """
    from reta.bench import plan as known
    from reta.bench.run import run_all
    from reta.bench.sheet import readable
    from reta.bench.stage import Options

    if prompts is not None and not prompts.is_file():
        raise BadInput(f"no such file of sentences: {prompts}")
    options = Options(features, root, prompts, context, allow_partial, device, progress=not as_json)
    failed: dict[str, str] = {}
    chosen = [
        _chosen(name, data, models, methods, extra, reward, world, limit, views, orders, seed)
        for name in (known.names() if plans == ["all"] else plans)
    ]
    with stoppable():
        summaries = run_all(chosen, out, options, workers=jobs, ray=ray, fresh=fresh)
    for summary in summaries:
        failed |= summary.failed
        if as_json:
            print(json.dumps(dataclasses.asdict(summary)))
            continue
        print(
            f"{summary.plan}: {summary.done} jobs done, {summary.found} of {summary.jobs} found finished, in {out}"
        )
        for text in (*(f"left out: {s}" for s in summary.skipped), *map(readable, summary.notes)):
            print(f"  {text}")
    for label, error in failed.items():
        print(f"failed: {label}: {error}", file=sys.stderr)
    if failed:
        raise RetaError(
            f"{len(failed)} jobs failed (see above); run the same command again, finished jobs are kept"
        )


@app.command()
def report(
    results: Folders,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    plan: Annotated[str, typer.Option(help="Only these plans, a,b.", show_default=False)] = "",
    title: Annotated[str, typer.Option(help="Its title.")] = "Results",
    intro: Annotated[str, typer.Option(help="A sentence below the title.", show_default=False)] = "",
    links: Annotated[
        str, typer.Option(help="Where numbers lead to the files of their jobs: all, page (HTML only), none.")
    ] = "all",
) -> None:
    """Write a report: report.html (sortable tables, figures inside), report.md, tables/*.tex and *.csv, and
    figures/*.png and *.svg. The same results give the same bytes.

    Example: reta bench report results --out report
    """
    from reta.bench.collect import stale
    from reta.bench.report import report as write

    files = write(results, out, plans=_split(plan), title=title, intro=intro, links=links)
    for text in stale(results):
        print(f"note: {text}", file=sys.stderr)
    print(f"{len(files)} files; open {(out / 'report.html').resolve()}")


@app.command()
def query(
    sql: Annotated[
        str, typer.Argument(help='Such as "select row, avg(accuracy) from results group by row".')
    ],
    results: Annotated[
        list[Path] | None, typer.Argument(help="Folders of results.", show_default="results")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask all results a question in SQL: the table `results` has one row per cell, `samples` one per answer.

    Example: reta bench query "select row, round(avg(accuracy), 2) from results group by row order by 2"
    """
    from reta.bench.query import query as ask
    from reta.commands.inspect import table

    names, rows = ask(sql, results or [Path("results")])
    if as_json:
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], default=str))
    else:
        table(rows, tuple(names))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _chosen(
    name: str,
    data: str,
    models: str,
    methods: str,
    extra: str,
    reward: str,
    world: str,
    limit: int | None,
    views: int | None,
    orders: int | None,
    seed: int | None,
) -> Any:
    """The plan with everything the command line says about it."""
    from reta.bench import plan as plans

    if world not in ("", "shapes"):
        raise BadInput(f"unknown world {world!r}: there is one, shapes")
    found = plans.load(name)
    found = plans.embedded(found) if world else found
    lists = {"data": data, "models": models, "methods": methods, "extra": extra}
    settings = {"limit": limit, "views": views, "orders": orders, "seed": seed, "reward": reward or None}
    return plans.chosen(found, **{k: _split(v) for k, v in lists.items()}, **settings)
