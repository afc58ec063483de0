"""Every method by name. A new one is a file here and a line in `METHODS`, or a plug-in anywhere:
an entry point of the group `reta.methods`, or `path/to/file.py:ClassName`.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
import tomllib
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from reta.errors import BadInput, nearest
from reta.methods.base import Method

METHODS = {
    "zeroshot": "reta.methods.zeroshot:ZeroShot",
    "ensemble": "reta.methods.zeroshot:Ensemble",
    "zero": "reta.methods.zero:Zero",
    "zero-ensemble": "reta.methods.zero:ZeroEnsemble",
    "tps": "reta.methods.tps:TPS",
    "tda": "reta.methods.tda:TDA",
    "dmn": "reta.methods.dmn:DMN",
    "boostadapter": "reta.methods.boostadapter:BoostAdapter",
    "dpe": "reta.methods.dpe:DPE",
    "reta": "reta.methods.reta:ReTA",
    "reta-reward": "reta.methods.reta_reward:ReTAReward",
    "coop": "reta.methods.coop:CoOp",
    "tpt": "reta.methods.tpt:TPT",
    "difftpt": "reta.methods.difftpt:DiffTPT",
    "rlcf": "reta.methods.rlcf:RLCF",
    "rlcf-tune": "reta.methods.rlcf_tune:RLCFTune",
    "rlcf-momentum": "reta.methods.rlcf_tune:RLCFMomentum",
}


def known() -> dict[str, str]:
    """Name -> "module:Class" of every method, plug-ins included; plug-ins never hide a built-in name."""
    return _plugins() | METHODS


@cache
def _plugins() -> dict[str, str]:
    return {e.name: e.value for e in entry_points(group="reta.methods")}


def names() -> dict[str, str]:
    """Every method, one line each.

    >>> names()["zeroshot"]
    'the frozen model with the first prompt of each class'
    """
    return {name: getattr(find(name), "summary", "") for name in known()}


def find(name: str) -> type[Any]:
    """The class behind a method's name, an entry point, or `file.py:ClassName`."""
    table = known()
    if name not in table and ".py:" not in name:
        raise BadInput(f"unknown method {name!r}: {nearest(name, table)}")
    module, _, cls = table.get(name, name).rpartition(":")
    try:
        return getattr(_module(module), cls)
    except AttributeError as error:
        raise BadInput(f"{module} has no class {cls!r}") from error


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise BadInput(f"no such file: {place}; a method of your own is given as path/to/file.py:ClassName")
    spec = importlib.util.spec_from_file_location(f"reta_plugin_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def presets(name: str) -> dict[str, dict[str, Any]]:
    """The presets of a method: "paper", "fixed", "released/<set>" -> the fields they change.

    >>> presets("zeroshot")
    {'paper': {}, 'fixed': {}}
    """
    if name not in METHODS:
        return {}
    text = files("reta.methods").joinpath(f"presets/{name}.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    released = table.pop("released", {})
    common = {k: v for k, v in released.items() if not isinstance(v, dict)}
    sets = {k: v for k, v in released.items() if isinstance(v, dict)}
    return table | {f"released/{k}": common | v for k, v in sets.items()}


def create(name: str, preset: str | None = None, **overrides: Any) -> Method:
    """A method by name: its defaults, or a preset, then your overrides.

    >>> create("zeroshot")
    ZeroShot(views=1, recipe='plain')
    """
    cls = find(name)
    chosen: dict[str, Any] = {}
    if preset is not None:
        table = presets(name)
        if preset not in table:
            raise BadInput(f"{name} has no preset {preset!r}: {nearest(preset, table)}")
        chosen = table[preset]
    fields = {f.name for f in dataclasses.fields(cls)}
    for key in overrides:
        if key not in fields:
            raise BadInput(f"{name} has no field {key!r}: {nearest(key, fields)}")
    return cls(**(chosen | overrides))


def name_of(method: Method) -> str:
    """The registered name of a method, or its class name when it is not registered."""
    cls = type(method)
    place = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, where in known().items() if where == place), cls.__qualname__)
