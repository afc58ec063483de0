"""From what a user types to a model configuration and a weights file, or a clear error."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import open_clip

from reta.backbone import hub
from reta.errors import BadInput, MissingData, nearest

EMBEDDED = ("reta-mini", "reta-mini-l")
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
PREPROCESS = ("mean", "std", "interpolation", "resize_mode", "size")


@dataclass(frozen=True)
class Source:
    """Where one model comes from: the name open_clip knows its architecture by, and its weights file."""

    name: str
    tag: str | None
    architecture: str
    weights: Path
    preprocess: dict[str, Any] = field(default_factory=dict)
    quick_gelu: bool = False


def find(name: str, tag: str | None, weights: str | Path | None) -> Source:
    """Resolve a model name, a `hf-hub:` repository, a folder, a JSON configuration or an embedded model."""
    if name in EMBEDDED:
        return _embedded(name, tag, weights)
    if name.startswith("hf-hub:"):
        return _repository(name, name.removeprefix("hf-hub:"), weights)
    place = Path(name.removeprefix("local-dir:"))
    if place.is_dir() or name.startswith("local-dir:"):
        return _folder(name, place, weights)
    if name.endswith(".json"):
        return _json(place.stem, _read(place), _file(weights, f"the configuration {name}"))
    if weights is not None and Path(weights).is_dir():
        return replace(_folder(str(weights), Path(weights), None), name=name)
    return _listed(name.replace("/", "-"), tag, weights)


def _embedded(name: str, tag: str | None, weights: str | Path | None) -> Source:
    if tag is not None or weights is not None:
        raise BadInput(f"{name} is embedded: it takes no tag and no weights")
    stem = Path(__file__).parents[1] / "weights" / name
    path = stem.with_name(f"{name}.safetensors")
    if not path.is_file():
        raise MissingData(f"{path} is missing: this installation of reta is incomplete, install it again")
    return _json(name, _read(stem.with_name(f"{name}.json")), path)


def _listed(name: str, tag: str | None, weights: str | Path | None) -> Source:
    """A name and a tag from open_clip's table."""
    known = open_clip.list_models()
    if name not in known:
        raise BadInput(f"unknown model {name!r}: {nearest(name, [*known, *EMBEDDED, 'reta-photo'])}")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if weights is None and tag is None:
        choice = f"a tag ({', '.join(tags)}) or weights='FILE'" if tags else "weights='FILE'"
        raise BadInput(f"{name} needs {choice}")
    if tag is None:
        cfg = _common(name, tags)
    else:
        cfg = open_clip.get_pretrained_cfg(name, tag)
        if not cfg:
            raise BadInput(f"{name} has no weights tagged {tag!r}: {nearest(tag, tags)}")
    label = f"{name} ({tag})" if tag else name
    path = hub.weights_of(label, cfg) if weights is None else _file(weights, label)
    settings = {key: cfg[key] for key in PREPROCESS if cfg.get(key) is not None}
    return Source(name, tag, name, path, settings, bool(cfg.get("quick_gelu")))


def _common(name: str, tags: list[str]) -> Mapping[str, Any]:
    """What all tags of a model agree on; a file alone does not say how its model was trained."""
    keys = (*PREPROCESS[:4], "quick_gelu")
    forms = {tag: tuple(open_clip.get_pretrained_cfg(name, tag).get(key) for key in keys) for tag in tags}
    if len(set(forms.values())) > 1:
        raise BadInput(
            f"weights of {name} differ in preprocessing or activation from tag to tag: "
            f"say which the file is like, tag=... or --model {name}/TAG ({', '.join(tags)})"
        )
    return open_clip.get_pretrained_cfg(name, tags[0]) if tags else {}


def _repository(name: str, repository: str, weights: str | Path | None) -> Source:
    config = json.loads(hub.file_of(name, repository, ["open_clip_config.json"]).read_text("utf-8"))
    path = hub.file_of(name, repository, hub.WEIGHTS) if weights is None else _file(weights, name)
    return replace(_json(repository.rpartition("/")[2], config, path), name=name)


def _folder(name: str, folder: Path, weights: str | Path | None) -> Source:
    """A folder as open_clip's `local-dir:` wants it: `open_clip_config.json`, a checkpoint, a tokenizer."""
    config = _read(folder / "open_clip_config.json")
    text = config.get("model_cfg", config).get("text_cfg", {})
    if text.get("hf_tokenizer_name") and any(folder.glob("*token*")):
        text["hf_tokenizer_name"] = str(folder.resolve())
    if weights is None:
        files = sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and p.stem != "training_args")
        usual = [p for p in files if p.name in hub.WEIGHTS]
        if not usual and len(files) != 1:
            raise MissingData(f"{folder} must hold one weights file ({hub.WEIGHTS[0]}); it has {len(files)}")
        weights = (sorted(usual, key=lambda p: hub.WEIGHTS.index(p.name)) or files)[0]
    return replace(_json(folder.name or "model", config, _file(weights, name)), name=name)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise MissingData(f"no such model configuration: {path}")
    try:
        config = json.loads(path.read_text("utf-8"))
        inner = config.get("model_cfg", config)
        if all(key in inner for key in ("embed_dim", "vision_cfg", "text_cfg")):
            return config
    except (ValueError, AttributeError, TypeError) as error:
        raise BadInput(f"{path} is not a model configuration: {error}") from error
    raise BadInput(f"{path} is not an open_clip model configuration: embed_dim, vision_cfg, text_cfg needed")


def _json(stem: str, config: Mapping[str, Any], weights: Path) -> Source:
    """Register a configuration with open_clip, under a name that no other configuration can have."""
    model = {k: v for k, v in config.get("model_cfg", config).items() if k != "preprocess_cfg"}
    content = json.dumps(model, sort_keys=True)
    architecture = f"{stem}@{hashlib.blake2b(content.encode(), digest_size=4).hexdigest()}"
    if architecture not in open_clip.list_models():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{architecture}.json"
            path.write_text(content, "utf-8")
            open_clip.add_model_config(path)
    settings = {k: v for k, v in (config.get("preprocess_cfg") or {}).items() if k in PREPROCESS}
    return Source(stem, None, architecture, weights, settings)


def _file(weights: str | Path | None, label: str) -> Path:
    if weights is None:
        raise BadInput(f"{label} needs weights='FILE'")
    path = Path(weights).expanduser()
    if not path.is_file():
        raise MissingData(f"no such weights file for {label}: {path}")
    if path.suffix not in SUFFIXES:
        raise BadInput(f"{path} is no weights file: {', '.join(SUFFIXES)} can be read")
    return path
