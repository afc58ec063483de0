"""`reta classify`: a folder, a glob or a list of images in, one line per image out, as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from reta.commands.paths import check_writable, find_images, printable
from reta.errors import BadImage, BadInput, MissingData, RetaError

SAVE_EVERY = 50


class Out(StrEnum):
    """How a results file is written."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


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
    reward: Annotated[
        str | None, typer.Option(help="A second model, for methods that need one: reta-mini-l, NAME/TAG.")
    ] = None,
    context: Annotated[
        Path | None,
        typer.Option(
            help="A context of `reta coop fit`: coop's prompt, and where tpt, difftpt and rlcf start."
        ),
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
    seed: Annotated[
        int | None, typer.Option(help="Seed of the views: 0, or the one of --state.", show_default=False)
    ] = None,
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
    from reta.templates import class_list, sentences_per_class

    if out is not None and out.suffix.lstrip(".") not in set(Out):
        raise BadInput(f"--out must end in .jsonl, .csv or .parquet, not {out.name!r}")
    for file in (out, state if adapt else None):
        if file is not None:
            check_writable(file)
    images, total = _images(paths)
    names, words = class_list(classes), _templates(templates)
    sentences_per_class(names, words, prompts)  # what is wrong with them is said before a model is loaded
    chosen = _method(method, preset, views, context)
    second = _second(method, chosen, reward, device)
    backbone = reta.load(*name_and_tag(model), weights=weights, device=device)
    learned = () if context is None else (_learned(context, backbone),)
    task = reta.Task.build(backbone, names, words, prompts, reward=second)
    _note_alone(task)
    _note_unknown(task, backbone)
    stream = _stream(state, backbone, task, chosen, seed, second)
    results = None if out is None else Results.open(out, stream, (adapt, top, *learned))
    rows = _rows(stream, images, total, results.done if results else set(), adapt, top)
    count, bad = _answer(rows, stream, results, state if adapt else None, as_json)
    if bad and not skip_bad:
        raise RetaError(f"{bad} of {count} images could not be read (see above); --skip-bad accepts that")


def _images(paths: list[str]) -> tuple[Iterable[str], int | None]:
    """The images and how many there are; a list on standard input is read as it comes."""
    if "-" not in paths:
        found = list(dict.fromkeys(find_images(paths)))
        if found:
            return found, len(found)
    else:
        lines = find_images(paths)
        for first in lines:
            return chain([first], lines), None
    raise MissingData("no images found: give files, folders, a glob, or - and a list on standard input")


def _answer(
    rows: Iterator[tuple[str, dict[str, Any]]], stream: Any, results: Any, state: Path | None, as_json: bool
) -> tuple[int, int]:
    """Print the answers and write them, whatever happens: how many images there were, how many bad ones."""
    count = bad = 0
    try:
        for path, row in rows:
            count += 1
            bad += "error" in row
            if results:
                results.add(path, row, stream)
                if len(results.rows) % SAVE_EVERY == 0:
                    results.checkpoint()
            if not results or as_json or "error" in row:
                _show({"path": path} | row, as_json)
    except KeyboardInterrupt:
        if results:
            print(f"stopped; the same command goes on where {results.path} ends", file=sys.stderr)
        raise
    finally:
        if results:
            results.close(stream)
        if state is not None:
            stream.save(state)
    if results:
        count, bad = len(results.rows), results.bad
        print(f"{count} results in {results.path}{f', {bad} bad' if bad else ''}", file=sys.stderr)
    return count, bad


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
    from reta.templates import template_file

    if templates.endswith(".txt"):
        return template_file(templates)
    return [templates] if "{}" in templates else templates


def _note_alone(task: Any) -> None:
    """A mistyped file of names is taken for a name."""
    if len(task) == 1:
        text = (
            f"note: there is one class, {task.names[0]!r}, so every image gets it; names are a,b,c or a file"
        )
        print(text, file=sys.stderr)


def _note_unknown(task: Any, model: Any) -> None:
    """An embedded model knows few words; its answers for others mean little."""
    foreign = [name for name, unknown in zip(task.names, task.unknown_tokens(), strict=True) if unknown]
    if foreign:
        shown = ", ".join(foreign[:5]) + (", ..." if len(foreign) > 5 else "")
        print(
            f"note: {model.name} has never seen some words of the prompts of {len(foreign)} of {len(task)} "
            f"classes ({shown}); its answers for them mean little",
            file=sys.stderr,
        )


def _method(name: str, preset: str | None, views: int | None, context: Path | None) -> Any:
    from reta import coop, methods

    if preset is None and "fixed" in methods.presets(name):
        preset = "fixed"
    if context is not None:
        coop.writable(context)
    given = {"views": views, "context": None if context is None else str(context)}
    return methods.create(name, preset, **{k: v for k, v in given.items() if v is not None})


def _learned(context: Path, model: Any) -> str:
    """What a context holds; one of another model is refused before the first image."""
    from reta import state as states
    from reta.prompts import load_context

    return states.digest({"context": load_context(context, model)[0]})


def _second(name: str, method: Any, reward: str | None, device: str) -> Any:
    import reta

    if reward is not None:
        return reta.load(*name_and_tag(reward), device=device)
    if "reward" in method.needs:
        raise BadInput(f"{name} needs a second model: --reward reta-mini-l, or an open_clip NAME/TAG")
    return None


def _stream(state: Path | None, model: Any, task: Any, method: Any, seed: int | None, reward: Any) -> Any:
    import reta

    if state is None or not state.exists():
        return reta.Stream(model, task, method, seed=seed or 0, reward=reward)
    stream = reta.Stream.load(state, model=model, method=method, task=task, reward=reward)
    if seed not in (None, stream.seed):
        raise BadInput(f"{state} was made with --seed {stream.seed}: use that one, or another --state")
    return stream


def _rows(
    stream: Any, images: Iterable[str], total: int | None, done: set[str], adapt: bool, top: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """An answer per image not done yet; a path that comes twice is one image."""
    from reta.progress import bar

    seen = set(done)
    for path in bar(images, total=total, what="classifying"):
        name = printable(path)
        if name in seen:
            continue
        seen.add(name)
        try:
            answer = stream.adapt(path) if adapt else stream.classify(path)
        except BadImage as error:
            yield name, {"error": str(error), "reason": error.reason}
            continue
        row: dict[str, Any] = {"name": answer.name, "prob": round(answer.prob, 6)}
        if top > 1:
            row["top"] = [[label, round(p, 6)] for label, p in answer.top(top)]
        if "entropy" in answer.info:
            row["entropy"] = round(float(answer.info["entropy"]), 6)
        yield name, row


def _show(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(row, ensure_ascii=False), flush=True)
    elif "error" in row:
        said = "" if row["path"] in row["error"] else f"{row['path']!r}: "
        print(f"{said}{row['error']}", file=sys.stderr, flush=True)
    else:
        ranked = row.get("top") or [[row["name"], row["prob"]]]
        path = row["path"] if row["path"].isprintable() else repr(row["path"])
        print(f"{path}  " + "  ".join(f"{name} {p:.3f}" for name, p in ranked), flush=True)
