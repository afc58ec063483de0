"""`reta classify`: a folder, a glob or a list of images in, one line per image out, as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from reta.errors import BadImage, BadInput, MissingData, RetaError

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
SAVE_EVERY = 50


class Out(StrEnum):
    """How a results file is written."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


def find_images(paths: list[str]) -> Iterator[str]:
    """Files as given, every image below a folder (sorted), what a glob matches, and `-` for a list on stdin."""
    for path in paths:
        if path == "-":
            yield from (line.rstrip("\n") for line in sys.stdin if line.strip())
        elif Path(path).is_dir():
            found = sorted(p for p in Path(path).rglob("*") if p.is_file() and not p.name.startswith("."))
            yield from map(str, found)
        elif Path(path).exists() or not any(c in path for c in "*?["):
            yield path
        else:
            matched = (
                sorted(str(p) for p in Path().glob(path)) if not Path(path).is_absolute() else _absolute(path)
            )
            if not matched:
                raise BadInput(f"nothing matches {path}")
            yield from matched


def _absolute(pattern: str) -> list[str]:
    root = Path(pattern).anchor
    return sorted(str(p) for p in Path(root).glob(str(Path(pattern).relative_to(root))))


def classify(
    paths: Annotated[
        list[str], typer.Argument(help="Images, folders, globs; - reads a list from standard input.")
    ],
    classes: Annotated[str, typer.Option(help="Class names: a,b,c or a text file with one name a line.")],
    templates: Annotated[
        str, typer.Option(help="single, openai-7, openai-80, none, or a text file of templates with {}.")
    ] = "openai-7",
    prompts: Annotated[
        Path | None, typer.Option(help="JSON: class name -> sentences, added to the templates.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="An open_clip NAME/TAG, reta-mini or reta-photo.")
    ] = "ViT-B-16/openai",
    weights: Annotated[Path | None, typer.Option(help="A local weights file for the model.")] = None,
    method: Annotated[str, typer.Option(help="See `reta methods list`.")] = "reta",
    preset: Annotated[str | None, typer.Option(help="See `reta methods show NAME`.")] = None,
    views: Annotated[
        int | None, typer.Option(help="Views per image; fewer is faster, 1 is the plain view.")
    ] = None,
    adapt: Annotated[
        bool, typer.Option(help="Learn from image to image, or answer each from the same state.")
    ] = True,
    state: Annotated[
        Path | None, typer.Option(help="Go on from this state if it is there, and save to it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A .jsonl, .csv or .parquet file; resumes.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to report per image.")] = 1,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Exit 0 despite unreadable images.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the views.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines to standard output.")] = False,
) -> None:
    """Classify images with your own class names.

    Every image gives one line, printed as it comes. A bad image never stops the run: it is reported with its
    reason, and the exit code is 1 at the end unless --skip-bad is given. With --out a run that was
    interrupted goes on where it stopped, with the same answers as if it had never stopped.

    Example: reta classify photos/ --classes cat,dog --out answers.csv
    """
    import reta
    from reta.results import Results

    if out is not None and out.suffix.lstrip(".") not in set(Out):
        raise BadInput(f"--out must end in .jsonl, .csv or .parquet, not {out.name!r}")
    backbone = reta.load(*name_and_tag(model), weights=weights, device=device)
    task = reta.Task.build(backbone, classes, _templates(templates), prompts)
    _note_unknown(task, backbone)
    chosen = _method(method, preset, views)
    stream = _stream(state, backbone, task, chosen, seed)
    results = None if out is None else Results.open(out, stream)
    done = results.done if results else set()
    bad = 0
    try:
        for path, row in _rows(stream, find_images(paths), done, adapt, top):
            bad += "error" in row
            if results:
                results.add(path, row)
            if not results or as_json or "error" in row:
                _show({"path": path} | row, as_json)
            if results and len(results.rows) % SAVE_EVERY == 0:
                results.checkpoint(stream)
    finally:
        if results:
            results.close(stream)
        if state is not None and adapt:
            stream.save(state)
    if results:
        bad = results.bad
        print(f"{len(results.done)} results in {out}{f', {bad} bad' if bad else ''}", file=sys.stderr)
    if bad and not skip_bad:
        raise RetaError(f"{bad} of the images could not be read (see above); --skip-bad accepts that")


def name_and_tag(model: str) -> tuple[str, str | None]:
    """What `--model` says: NAME, NAME/TAG, a folder, a JSON file, or a hub repository.

    >>> name_and_tag("ViT-B-16/openai")
    ('ViT-B-16', 'openai')
    """
    if ":" in model or Path(model).exists():
        return model, None
    name, _, tag = model.partition("/")
    return name, tag or None


def _templates(templates: str) -> str | list[str]:
    path = Path(templates)
    if path.suffix != ".txt":
        return [templates] if "{}" in templates else templates
    if not path.is_file():
        raise MissingData(f"no such file of templates: {path}")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _note_unknown(task: Any, model: Any) -> None:
    """An embedded model knows few words; its answers for others mean little."""
    foreign = [name for name, unknown in zip(task.names, task.unknown_tokens(), strict=True) if unknown]
    if foreign:
        shown = ", ".join(foreign[:5]) + (", ..." if len(foreign) > 5 else "")
        note = (
            f"note: {model.name} has never seen some words of the prompts of {len(foreign)} classes ({shown})"
        )
        print(note, file=sys.stderr)


def _method(name: str, preset: str | None, views: int | None) -> Any:
    from reta import methods

    if preset is None and "fixed" in methods.presets(name):
        preset = "fixed"
    return methods.create(name, preset, **({} if views is None else {"views": views}))


def _stream(state: Path | None, model: Any, task: Any, method: Any, seed: int) -> Any:
    import reta

    if state is not None and state.exists():
        return reta.Stream.load(state, model=model, method=method, task=task)
    return reta.Stream(model, task, method, seed=seed)


def _rows(
    stream: Any, paths: Iterator[str], done: set[str], adapt: bool, top: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    from reta.progress import bar

    waiting = [p for p in paths if p not in done]
    if not waiting and not done:
        raise MissingData("no images found: give files, folders, a glob, or - and a list on standard input")
    for path in bar(waiting, total=len(waiting), what="classifying"):
        try:
            answer = stream.adapt(path) if adapt else stream.classify(path)
        except BadImage as error:
            yield path, {"error": str(error), "reason": error.reason}
            continue
        row: dict[str, Any] = {"name": answer.name, "prob": round(answer.prob, 6)}
        if top > 1:
            row["top"] = [[name, round(p, 6)] for name, p in answer.top(top)]
        if "entropy" in answer.info:
            row["entropy"] = round(float(answer.info["entropy"]), 6)
        yield path, row


def _show(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(row, ensure_ascii=False), flush=True)
    elif "error" in row:
        print(f"{row['path']!r}: {row['error']}", file=sys.stderr, flush=True)
    else:
        ranked = row.get("top") or [[row["name"], row["prob"]]]
        print(f"{row['path']}  " + "  ".join(f"{name} {p:.3f}" for name, p in ranked), flush=True)
