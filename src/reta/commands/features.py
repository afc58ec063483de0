"""`reta features`: images encoded once, kept, checked, removed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from reta.commands.stopping import stoppable
from reta.errors import BadInput, RetaError, nearest

app = typer.Typer(help="The feature store: images are encoded once.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Store = Annotated[
    Path | None,
    typer.Option(
        "--root", help="The folder of the stores; default: features in reta's cache.", show_default=False
    ),
]
Which = Annotated[
    list[str] | None,
    typer.Argument(help="Stores: a path, or part of a name of `reta features list`.", show_default=False),
]


@app.command()
def build(
    data: Annotated[
        str, typer.Argument(help="Any data: shapes, dtd, photos/, shapes@fog-3, ...", show_default=False)
    ],
    model: Annotated[
        str, typer.Option(help="NAME/TAG of open_clip, reta-mini, reta-photo, a folder.")
    ] = "ViT-B-16/openai",
    weights: Annotated[Path | None, typer.Option(help="A local weights file for the model.")] = None,
    views: Annotated[str, typer.Option(help="How views are made: plain, crops or augmix.")] = "augmix",
    n_views: Annotated[int, typer.Option(min=1, help="Views per image, the plain one included.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the views.")] = 0,
    engine: Annotated[
        str, typer.Option(help="batched (tensors), or pil (the published pipeline).")
    ] = "batched",
    n: Annotated[int | None, typer.Option(min=1, help="Only the first n images.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Class names for a folder or list: a,b,c or a file.")
    ] = None,
    layout: Annotated[str, typer.Option(help="For a folder: auto, classes or flat.")] = "auto",
    data_root: Annotated[
        Path | None, typer.Option(help="The folder of the data sets; default: $RETA_DATA.")
    ] = None,
    root: Store = None,
    precision: Annotated[str, typer.Option(help="How features are kept: fp16 or fp32.")] = "fp16",
    batch: Annotated[int, typer.Option(min=1, help="Views per pass of the encoder.")] = 256,
    shard: Annotated[int | None, typer.Option(min=1, help="Images per file; default: 16384 views.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads that read images ahead.")] = 2,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    ray: Annotated[
        str, typer.Option(help="Encode on a Ray cluster: auto, host:port, local.", show_default=False)
    ] = "",
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Take a set whose count differs.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Exit 0 despite unreadable images.")] = False,
    as_json: Json = False,
) -> None:
    """Encode every image of a data set, or finish what an earlier call began.

    Stop it, kill it, start it on several machines with a shared folder: each shard is there whole or not at
    all, and no image is encoded twice. Images that cannot be read are listed with the reason, and the exit
    code is 1 unless --skip-bad is given; the store is complete all the same.

    With --ray the images are read and the store is written here, and the GPUs of a cluster encode.

    Example: reta features build shapes-sketch --model reta-mini --n-views 16
    """
    import reta
    import reta.data
    from reta.bench import build as make
    from reta.bench.index import describe
    from reta.commands.classify import name_and_tag

    source = reta.data.open(data, data_root, names=classes, layout=layout, n=n, allow_partial=allow_partial)
    backbone = reta.load(*name_and_tag(model), weights=weights, **_where(device, ray))
    start = time.monotonic()
    with stoppable():
        store = make(
            source, backbone, views, n_views, seed, root=root, precision=precision, batch=batch, shard=shard,
            workers=workers, progress=True, ray=ray, engine=engine,
        )  # fmt: skip
    shown = describe(store.path) | {"seconds": round(time.monotonic() - start, 3)}
    bad = [bad.__dict__ for bad in store.bad]
    if as_json:
        print(json.dumps(shown | {"bad": bad, "skipped": list(source.skipped), "notes": list(source.notes)}))
    else:
        _summary(shown, bad, source)
    # Last: the store is finished and usable whatever the exit code says.
    if bad and not skip_bad:
        raise RetaError(f"{len(bad)} of {len(store)} images could not be read; --skip-bad accepts that")


def _where(device: str, ray: str) -> dict[str, str]:
    """The device of the model and its precision: of a cluster, what its machines have."""
    if not ray:
        return {"device": device}
    from reta.bench.encode_ray import precision

    if device != "auto":
        raise BadInput("--device is for this machine; with --ray the cluster's GPUs are used, if it has any")
    return {"device": "cpu", "precision": precision(ray)}


def _summary(shown: dict[str, Any], bad: list[dict[str, Any]], source: Any) -> None:
    from reta.bench.disk import readable

    for note in source.notes:
        print(f"note: {note}", file=sys.stderr)
    for path in source.skipped:
        print(f"note: not taken for an image: {path!r}", file=sys.stderr)
    for row in bad:
        why = row["message"].removeprefix(repr(row["key"])).lstrip(": ")
        print(f"bad: {row['key']!r}: {row['reason']}: {why}", file=sys.stderr)
    partial = ", partial" if shown["partial"] else ""
    print(
        f"{shown['images']} images{partial}, {shown['views']} views, {readable(shown['bytes'])}: {shown['path']}"
    )


@app.command("list")
def list_stores(root: Store = None, as_json: Json = False) -> None:
    """List all stores: what they are made from, how big they are, whether they are finished."""
    from reta.bench.disk import readable
    from reta.bench.index import describe
    from reta.bench.store import stores
    from reta.commands.inspect import table

    rows = [describe(path) for path in stores(root)]
    if as_json:
        print(json.dumps(rows))
    elif not rows:
        print(_none(root), file=sys.stderr)
    else:
        keys = ("id", "data", "model", "recipe", "views", "seed", "images")
        cells = [(*(r[k] for k in keys), readable(r["bytes"]), _state(r)) for r in rows]
        table(cells, (*keys, "size", "state"))


def _none(root: Path | None) -> str:
    from reta.bench.store import features_root

    return f"no stores in {features_root(root)}; `reta features build` makes one"


def _state(row: dict[str, Any]) -> str:
    if row["problem"]:
        return "damaged"
    done = "finished" if row["done"] == 100 else f"{row['done']} %"
    return f"{done}, partial" if row["partial"] else done


def find(which: list[str], root: Path | None) -> list[Path]:
    """Stores by path, id, or part of the folder's name; each must mean exactly one."""
    from reta.bench.store import stores

    known = {path.name: path for path in stores(root)}
    found: list[Path] = []
    for name in which:
        if (Path(name) / "store.json").is_file():
            found.append(Path(name))
            continue
        fits = [path for folder, path in known.items() if name in folder]
        if len(fits) != 1:
            several = f"it fits {', '.join(p.name for p in fits)}"
            hint = several if fits else nearest(name, known) if known else _none(root)
            raise BadInput(f"which store is {name!r}? {hint}")
        found.append(fits[0])
    return found


@app.command()
def verify(
    which: Which = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove what is damaged; build again to make it anew.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="Compare with this data too: which images changed since?")
    ] = None,
    data_root: Annotated[Path | None, typer.Option(help="The folder of the data sets.")] = None,
    root: Store = None,
    as_json: Json = False,
) -> None:
    """Read every byte and compare it with its checksum; without names, of all stores. Exit code 1 if
    anything is wrong.
    """
    from reta.bench.index import verify as problems_of
    from reta.bench.store import stores

    paths = find(which, root) if which else stores(root)
    reports = []
    for path in paths:
        wrong = problems_of(path, repair, progress=True)
        if data is not None and not wrong:
            wrong = _changed(path, data, data_root)
        reports.append({"path": str(path), "problems": wrong})
        if not as_json:
            print(f"{path.name}: {'ok' if not wrong else f'{len(wrong)} problems'}")
            for line in wrong:
                print(f"  {line}")
    if as_json:
        print(json.dumps(reports))
    elif not paths:
        print(_none(root), file=sys.stderr)
    bad = [r for r in reports if r["problems"]]
    if bad:
        step = "build them again" if repair else "--repair removes what is damaged, then build again"
        raise RetaError(f"{len(bad)} of {len(reports)} stores have problems: {step}")


def _changed(path: Path, data: str, data_root: Path | None) -> list[str]:
    import reta.data
    from reta.bench import Store as Features
    from reta.bench.index import changed

    return [f"{key!r} has changed since" for key in changed(Features(path), reta.data.open(data, data_root))]


@app.command("rm")
def remove(
    which: Annotated[
        list[str], typer.Argument(help="Stores: a path, or part of a name.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    root: Store = None,
    as_json: Json = False,
) -> None:
    """Delete stores. Asks first."""
    from reta.bench.disk import readable
    from reta.bench.index import describe
    from reta.bench.index import remove as delete

    paths = find(which, root)
    shown = [describe(path) for path in paths]
    for row in shown if not yes else ():
        typer.confirm(f"delete {row['path']} ({readable(row['bytes'])})?", abort=True, err=True)
    for path in paths:
        delete(path)
    if as_json:
        print(json.dumps([row["path"] for row in shown]))
    else:
        print(f"deleted {len(paths)} stores, {readable(sum(row['bytes'] for row in shown))}")
