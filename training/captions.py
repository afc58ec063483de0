"""Captions: what may truly be said of a training picture, in many wordings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from open_clip import OPENAI_IMAGENET_TEMPLATES, SIMPLE_IMAGENET_TEMPLATES

from reta.data import shapes

Facts = dict[str, str]
PLAIN = ["{}", "a {}", "a {}.", "the {}.", "this is a {}.", "a photo of a {}.", "an image of a {}.",
         "a picture of a {}.", "a photo of the {}.", "there is a {} here.", "we can see a {}."]  # fmt: skip
ABOUT = {
    ("colour",): ["a {colour} {name}.", "a photo of a {colour} {name}.", "the {name} is {colour}."],
    ("ground_colour",): ["a {name} on a {ground_colour} background.", "a photo of a {name} before {ground_colour}."],
    ("colour", "ground_colour"): ["a {colour} {name} on a {ground_colour} background.",
                                  "a photo of a {colour} {name} on {ground_colour}."],
    ("texture",): ["a {texture} {name}.", "a photo of a {texture} {name}."],
    ("colour", "texture"): ["a {texture} {colour} {name}.", "a photo of a {colour} {texture} {name}."],
    ("ground",): ["a {name} on a {ground} background.", "a photo of a {name} before a {ground} ground."],
    ("size",): ["a {size} {name}.", "a photo of a {size} {name}.", "the {name} looks {size}."],
    ("light",): ["a {light} photo of a {name}.", "a {light} photo of the {name}."],
    ("blur",): ["a {blur} photo of a {name}.", "a {blur} photo of the {name}."],
}  # fmt: skip


@dataclass(frozen=True)
class Caption:
    """A sentence, the class it names and what else it claims."""

    text: str
    name: str
    claims: Facts = field(default_factory=dict)


def facts(scene: dict[str, object]) -> Facts:
    """The attributes of a scene as words; an attribute in the middle of its range has no word."""
    size, light = float(str(scene["size"])), float(str(scene["light"]))
    found = {k: str(scene[k]) for k in ("name", "colour", "ground_colour", "texture", "ground")}
    found["size"] = "small" if size < 0.6 else "large" if size > 0.8 else ""
    found["light"] = "dark" if light < 0.78 else "bright" if light > 1.02 else ""
    found["blur"] = "blurry" if scene["blurred"] else ""
    return found


def templates() -> list[str]:
    """Every class template: the 80 and the 7 of OpenAI's notebooks, and a few plain ones."""
    return list(
        dict.fromkeys([*PLAIN, *(t("{}") for t in (*SIMPLE_IMAGENET_TEMPLATES, *OPENAI_IMAGENET_TEMPLATES))])
    )


def every() -> Iterable[str]:
    """A set of sentences that holds every word any caption can use."""
    for name, sentences in shapes.descriptions().items():
        yield from (t.replace("{}", name) for t in templates())
        yield from sentences
    words: dict[str, Sequence[str]] = {
        "colour": list(_colours()), "ground_colour": list(_colours()), "texture": list(_textures()),
        "ground": list(_grounds()), "size": ["small", "large"], "light": ["dark", "bright"], "blur": ["blurry"],
    }  # fmt: skip
    for wordings in ABOUT.values():
        for wording in wordings:
            for key, values in words.items():
                for value in values:
                    blank = dict.fromkeys(words, "plain") | {key: value}
                    yield wording.format(name="key", **blank)


def _colours() -> Iterable[str]:
    from reta.data.shapes.paint import COLOURS

    return COLOURS


def _textures() -> Iterable[str]:
    from reta.data.shapes.paint import TEXTURES

    return TEXTURES


def _grounds() -> Iterable[str]:
    from reta.data.shapes.paint import GROUNDS

    return GROUNDS


class Writer:
    """Writes the captions of one batch: a template for each class, descriptions for a fifth, claims."""

    def __init__(self) -> None:
        self.names, self.sentences = shapes.classes(), shapes.descriptions()
        self.templates = templates()

    def write(self, rng: np.random.Generator, batch: Sequence[Facts], claims: int) -> list[Caption]:
        """Captions for a batch of pictures, `claims` of them about attributes."""
        found = []
        for name in self.names:
            pool = PLAIN if rng.random() < 0.3 else self.templates
            found.append(Caption(_one(rng, pool).replace("{}", name), name))
            if rng.random() < 0.2:
                found.append(Caption(_one(rng, self.sentences[name]), name))
        return found + [
            self._claim(rng, batch[int(i)]) for i in (rng.integers(0, len(batch), claims) if claims else [])
        ]

    def _claim(self, rng: np.random.Generator, seen: Facts) -> Caption:
        options = [keys for keys in ABOUT if all(seen[k] for k in keys)]
        keys = options[int(rng.integers(len(options)))]
        text = _one(rng, ABOUT[keys]).format(**seen)
        return Caption(text, seen["name"], {k: seen[k] for k in keys})


def truth(batch: Sequence[Facts], captions: Sequence[Caption]) -> np.ndarray:
    """Which caption is true of which picture, `[pictures, captions]`."""
    names = np.array([b["name"] for b in batch])[:, None]
    true = names == np.array([c.name for c in captions])[None]
    for key in ("colour", "ground_colour", "texture", "ground", "size", "light", "blur"):
        claimed = np.array([c.claims.get(key, "") for c in captions])[None]
        true &= (claimed == "") | (claimed == np.array([b[key] for b in batch])[:, None])
    return true


def _one(rng: np.random.Generator, pool: Sequence[str]) -> str:
    return pool[int(rng.integers(len(pool)))]
