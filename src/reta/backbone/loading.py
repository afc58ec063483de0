"""`reta.load`: a model by name and tag, by file, or one of those that come with the package."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import open_clip
import torch

from reta.backbone import hub
from reta.backbone.compact import expand, is_compact
from reta.backbone.openclip import DTYPES, OpenClip
from reta.backbone.protocol import Backbone, Preprocess
from reta.backbone.source import Source, find
from reta.device import pick
from reta.errors import BadInput, MissingData, MissingExtra, RetaError


def _photo(**options: Any) -> Backbone:
    """The model for photographs, from packages of the extra `photo`."""
    return importlib.import_module("reta.photo").load(**options)


# models that are not open_clip's: name -> loader(device=..., precision=...)
SPECIAL: dict[str, Callable[..., Backbone]] = {"reta-photo": _photo}


def load(
    name: str | Path,
    tag: str | None = None,
    *,
    weights: str | Path | None = None,
    device: str | torch.device = "auto",
    precision: str = "auto",
) -> Backbone:
    """A frozen vision-language model, ready to encode.

    `name` and `tag` are open_clip's (`reta models` lists them), or `name` is an embedded model
    (`reta-mini`, `reta-mini-l`), a `hf-hub:` repository, a folder, or a JSON configuration. `weights` is a
    local file used instead of a download. `precision` is `fp32`, `bf16`, `fp16` or `fp64`; `auto` means fp32
    on a CPU and fp16 on a GPU.

    >>> import reta
    >>> reta.load("reta-mini").name
    'reta-mini'
    """
    name, where = str(name), pick(device)
    precision = _precision(precision, where)
    if name in SPECIAL:
        if tag is not None or weights is not None:
            raise BadInput(f"{name} takes no tag and no weights")
        return SPECIAL[name](device=where, precision=precision)
    source = find(name, tag, weights)
    with _quiet(), torch.inference_mode(False):
        config, tokenizer, module, known = _build(source)
    settings = module.visual.preprocess_cfg
    return OpenClip(
        module,
        tokenizer,
        name=source.name,
        tag=source.tag,
        dim=config["embed_dim"],
        preprocess=Preprocess(
            size=_square(settings["size"], source.name),
            mean=tuple(settings["mean"]),
            std=tuple(settings["std"]),
            interpolation=settings["interpolation"],
            resize_mode=settings["resize_mode"],
        ),
        config=_portable(config),
        device=where,
        precision=precision,
        known=known,
    )


def _precision(precision: str, device: torch.device) -> str:
    if precision == "auto":
        return "fp16" if device.type == "cuda" else "fp32"
    if precision not in DTYPES:
        raise BadInput(f"unknown precision {precision!r}: auto, {', '.join(DTYPES)}")
    return precision


def _square(size: Any, name: str) -> int:
    height, width = (size, size) if isinstance(size, int) else size
    if height != width:
        raise BadInput(f"{name} takes pictures of {height} x {width}; only square ones are supported")
    return int(height)


def _portable(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without what differs from machine to machine: names and places of downloads."""
    text = {k: v for k, v in config["text_cfg"].items() if k not in ("hf_tokenizer_name", "hf_model_name")}
    return config | {"text_cfg": text}


def _build(source: Source) -> tuple[dict[str, Any], Any, Any, torch.Tensor | None]:
    config = dict(open_clip.get_model_config(source.architecture) or {})
    if source.quick_gelu:
        config["quick_gelu"] = True
    tokenizer = _tokenizer(source, config["text_cfg"])
    try:
        module: Any = open_clip.create_model(
            source.architecture,
            force_quick_gelu=source.quick_gelu,
            force_preprocess_cfg=source.preprocess,
            pretrained_text=False,
        )
    except OSError as error:
        raise MissingData(
            f"{source.name}: the configuration of its text tower ({config['text_cfg'].get('hf_model_name')}) "
            f"is not on this machine: put that model in a folder and name the folder as hf_model_name"
        ) from error
    except Exception as error:
        raise BadInput(f"{source.name}: open_clip cannot build this configuration: {error}") from error
    return config, tokenizer, module, _fill(module, source)


def _fill(module: Any, source: Source) -> torch.Tensor | None:
    """Put the weights in; for compact files, the ids of the tokens they know."""
    try:
        if is_compact(source.weights):
            weights, known = expand(_tensors(source.weights), module.vocab_size)
            module.load_state_dict(weights)
            return known
        open_clip.load_checkpoint(module, str(source.weights), weights_only=True)
        return None
    except RetaError:
        raise
    except Exception as error:
        raise BadInput(_reason(source, str(error).strip())) from error


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def _reason(source: Source, problem: str) -> str:
    lines = problem.splitlines() or ["unreadable"]
    if "state_dict for" in problem or "size of tensor" in problem:
        detail = " ".join(line.strip() for line in lines[1:3]) or lines[0]
        return f"{source.weights} holds the weights of another model than {source.name}: {detail[:200]}"
    if "weights_only" in problem or "TorchScript" in problem or "Weights only" in problem:
        return (
            f"{source.weights} holds program code, not only weights, and is not loaded: "
            f"get the .safetensors file of {source.name} instead, or save its state_dict as one"
        )
    return (
        f"{source.weights} cannot be read as weights of {source.name}: it is cut short or no checkpoint "
        f"({lines[0][:200]}); fetch it again"
    )


def _tokenizer(source: Source, text: dict[str, Any]) -> Any:
    wanted = text.get("hf_tokenizer_name") or ""
    if not wanted:
        return open_clip.get_tokenizer(source.architecture)
    reason = None if Path(wanted).is_dir() else hub.unreachable("https://huggingface.co")
    try:
        extra: dict[str, Any] = {"local_files_only": True} if reason else {}
        return open_clip.get_tokenizer(source.architecture, **extra)
    except ImportError as error:
        raise MissingExtra(f"the tokenizer of {source.name} needs: pip install transformers") from error
    except Exception as error:
        raise MissingData(
            f"the tokenizer of {source.name} ({wanted} on huggingface.co) cannot be had"
            f"{f' ({reason})' if reason else ''}: put open_clip_config.json, the weights and the tokenizer "
            f"files of that repository in a folder and pass it, reta.load('FOLDER') or --model FOLDER. "
            f"Without downloads: reta-mini, or reta-photo for photographs"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Building a model leaves no trace: no log lines, no logging configured, no random numbers drawn.

    open_clip reports to the root logger, and Python configures that logger at the first message.
    """
    root, null = logging.getLogger(), logging.NullHandler()

    def foreign(record: logging.LogRecord) -> bool:
        return "open_clip" not in record.pathname

    root.addHandler(null)
    root.addFilter(foreign)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        root.removeFilter(foreign)
        root.removeHandler(null)
