"""Prompts before the encoder: class lists, named template sets, and sentences per class (CuPL form)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from reta.errors import BadInput, nearest

SETS = ("single", "openai-7", "openai-80", "none")


def template_set(templates: str | Sequence[str]) -> list[str]:
    """A named set, or a list of your own with `{}` where the name goes.

    >>> template_set("single")
    ['a photo of a {}.']
    """
    if not isinstance(templates, str):
        for template in templates:
            if not isinstance(template, str) or "{}" not in template:
                raise BadInput(f"template {template!r} has no {{}} for the class name")
        return list(templates)
    if templates not in SETS:
        hint = "a list of templates needs {} in each" if "{}" in templates else nearest(templates, SETS)
        raise BadInput(f"unknown template set {templates!r}: {hint}")
    if templates == "single":
        return ["a photo of a {}."]
    if templates == "none":
        return []
    from open_clip.zero_shot_metadata import OPENAI_IMAGENET_TEMPLATES, SIMPLE_IMAGENET_TEMPLATES

    chosen = SIMPLE_IMAGENET_TEMPLATES if templates == "openai-7" else OPENAI_IMAGENET_TEMPLATES
    return [template("{}") for template in chosen]


def template_file(path: str | Path) -> list[str]:
    """Templates of your own from a text file, one a line."""
    lines = _text(Path(path), "file of templates").splitlines()
    return template_set([line.strip() for line in lines if line.strip()])


def class_list(classes: Sequence[str] | str | Path) -> list[str]:
    """Class names from a list, "a,b,c", or a text file with one name a line.

    >>> class_list("cat, hot dog")
    ['cat', 'hot dog']
    """
    if not isinstance(classes, str | Path):
        names = list(classes)
        for place, name in enumerate(names):
            if not isinstance(name, str) or not name.strip():
                raise BadInput(f"class {place} has no name: it is {name!r}")
    elif os.path.isfile(classes) or isinstance(classes, Path) or classes.endswith(".txt"):
        names = _text(Path(classes), "file of class names").splitlines()
    else:
        names = classes.split(",")
    names = [_name(name) for name in names if name.strip()]
    if not names:
        raise BadInput("no class names: give a list, a,b,c or a text file with one name a line")
    return names


def _name(text: str) -> str:
    return text.strip().replace("_", " ")


def _text(path: Path, what: str) -> str:
    """The content of a file a person wrote, with or without a byte order mark."""
    if not path.is_file():
        raise BadInput(f"no such {what}: {path}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not UTF-8 text ({error.reason}, byte {error.start}): save it as UTF-8"
        ) from error


def read_prompts(prompts: Mapping[str, Sequence[str]] | str | Path) -> dict[str, list[str]]:
    """Class name -> sentences, from a dict or a JSON file of that form."""
    if isinstance(prompts, str | Path):
        path = Path(prompts)
        text = _text(path, "prompt file (JSON of the form {class name: [sentences]})")
        try:
            prompts = json.loads(text)
        except ValueError as error:
            raise BadInput(f"{path} is not valid JSON ({error})") from error
    if not isinstance(prompts, Mapping):
        raise BadInput("prompts must be of the form {class name: [sentences]}")
    table: dict[str, list[str]] = {}
    for name, sentences in prompts.items():
        if not isinstance(name, str) or isinstance(sentences, str) or not isinstance(sentences, Iterable):
            raise BadInput(f"the prompts of {name!r} must be a class name and a list of sentences")
        if not all(isinstance(s, str) and s.strip() for s in sentences):
            raise BadInput(f"the prompts of {name!r} must be a list of sentences, none of them empty")
        if _name(name) in table:
            raise BadInput(f"the prompts of {_name(name)!r} are given twice, once as {name!r}: join them")
        table[_name(name)] = list(sentences)
    return table


def sentences_per_class(
    names: Sequence[str],
    templates: str | Sequence[str] = "single",
    prompts: Mapping[str, Sequence[str]] | str | Path | None = None,
) -> list[list[str]]:
    """Every sentence that will be encoded, per class: the templates filled in, then the class's own.

    >>> sentences_per_class(["cat"], ["a {}."], {"cat": ["It has whiskers."]})
    [['a cat.', 'It has whiskers.']]
    """
    shared = template_set(templates)
    own = {} if prompts is None else read_prompts(prompts)
    if prompts is not None:
        missing = [name for name in names if not own.get(name)]
        foreign = [name for name in own if name not in names]
        if missing or foreign:
            wrong = [f"no prompts for {missing[:5]}"] * bool(missing) + [
                f"no class for {foreign[:5]}"
            ] * bool(foreign)
            raise BadInput(f"the prompts do not fit the classes: {'; '.join(wrong)}")
    if not shared and not own:
        raise BadInput("no templates and no prompts: a class needs at least one sentence")
    return [[t.replace("{}", name) for t in shared] + own.get(name, []) for name in names]
