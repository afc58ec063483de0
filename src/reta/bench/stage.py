"""What the jobs of a plan share: open data and models, prompts and images encoded once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reta.bench import metrics, scene, timing, version
from reta.bench.contexts import learned, named
from reta.bench.identity import digest
from reta.bench.jobs import Job
from reta.bench.plan import Plan, Row
from reta.bench.reuse import features, ready
from reta.bench.store import Store, features_root
from reta.errors import BadPlan
from reta.task import Task
from reta.textcache import cached_texts
from reta.views import AREA


@dataclass(frozen=True)
class Options:
    """Where things are and how they are computed. `prompts` is a file of sentences per class, `context` one of
    `reta coop fit`; what they hold, not where they lie, is part of a job's identity."""

    features: Path | None = None
    root: Path | None = None
    prompts: Path | None = None
    context: Path | None = None
    allow_partial: bool = False
    device: str = "auto"
    precision: str = "auto"
    progress: bool = False


class Want(NamedTuple):
    """Features some job wants: of a data set, by a model, of views of a recipe, the smallest crop `area`
    where it is not the usual one."""

    data: str
    model: str
    recipe: str
    area: float

    @property
    def more(self) -> dict[str, Any]:
        """The further fields of the views.

        >>> Want("dtd", "reta-mini", "augmix", 0.5).more, Want("dtd", "reta-mini", "plain", -1.0).more
        ({'area': (0.5, 1.0)}, {})
        """
        return {} if self.area < 0 else {"area": (self.area, 1.0)}


class Stage:
    """The data, models, prompts and features of one plan, each made when it is first asked for."""

    def __init__(self, plan: Plan, options: Options):
        self.plan, self.options = plan, options
        self.remarks: dict[str, list[str]] = {}
        self.wanted: dict[tuple[str, str, float], int] = {}
        self.data = lru_cache(maxsize=None)(self._data)
        self.text = lru_cache(maxsize=None)(self._text)
        self.store = lru_cache(maxsize=None)(self._store)
        self.scene = lru_cache(maxsize=None)(self._scene)

    @cached_property
    def root(self) -> Path:
        return features_root(self.options.features)

    def note(self, data: str, text: str) -> None:
        """Remember something a reader of the report must know about a data set."""
        places = self.remarks.setdefault(text, [])
        if data not in places:
            places.append(data)

    @property
    def notes(self) -> list[str]:
        return [f"{', '.join(places)}: {text}." for text, places in self.remarks.items()]

    def model(self, name: str) -> Any:
        return open_model(name, self.options.device, self.options.precision)

    def _data(self, name: str) -> Any:
        """A data set, or the part of it that `limit` leaves: the same part every time."""
        from reta import data as sources
        from reta.data import shapes

        limit = self.plan.limit
        drawn = name.partition("@")[0] in shapes.SETS
        found = sources.open(
            name, self.options.root, n=limit if drawn else None, allow_partial=self.options.allow_partial
        )
        if found.labels is None:
            raise BadPlan(
                f"{name} has no labels, and a benchmark needs them: give class sub-folders, or a list with labels"
            )
        if not drawn and limit is not None and limit < len(found):
            picked = torch.randperm(len(found), generator=torch.Generator().manual_seed(0))[:limit]
            return found.take(sorted(picked.tolist()))
        if found.partial and not drawn:
            self.note(name, "partial: not a complete copy")
        return found

    def need(self, data: str, method: Any) -> None:
        """Remember how many views of a recipe are wanted, so that they are encoded once."""
        key = (data, *look(method))
        self.wanted[key] = max(self.wanted.get(key, 1), getattr(method, "views", 1))

    def _text(self, data: str, spec: str) -> scene.Text:
        found = scene.text_of(self.data(data), spec, self.options.prompts)
        for note in found.source.get("notes", ()):
            self.note(data, note)
        return found

    def _store(self, data: str, model: str, recipe: str, area: float) -> Store:
        """The features of a data set; a store of the same kind with more views does as well."""
        more = Want(data, model, recipe, area).more
        backbone, images = self.model(model), self.data(data)
        views = self.wanted[(data, recipe, area)]
        store = ready(images, backbone, recipe, views, self.plan.seed, self.root, self.options.progress, more)
        timing.ensure(store, images, backbone, recipe, **more)
        if store.bad:
            first = store.bad[0]
            what = f"{len(store.bad)} images could not be read and count as wrong"
            self.note(data, f"{what} (first: {first.key}, {first.reason})")
        return store

    def _scene(
        self, data: tuple[str, ...], model: str, spec: str, reward: str
    ) -> tuple[Path, dict[str, Any]]:
        """The file with the task and labels of some data sets, and what identifies it."""
        first = self.data(data[0])
        labels = torch.cat([torch.tensor(self.data(name).labels) for name in data])
        text, backbone = self.text(data[0], spec), self.model(model)
        second = self.model(reward) if reward else None
        about = {
            "sentences": text.digest,
            "templates": text.templates,
            "prompts": dict(text.source),
            "model": _model(backbone),
            "reward": None if second is None else _model(second),
            "labels": hashlib.blake2b(labels.numpy().tobytes(), digest_size=8).hexdigest(),
            "names": hashlib.blake2b("\x00".join(first.names).encode(), digest_size=8).hexdigest(),
        }
        path = self.root / "scenes" / f"{digest(about)}.safetensors"
        if not path.is_file():
            task = task_of(backbone, first.names, text)
            if second is not None:
                task = dataclasses.replace(task, reward=task_of(second, first.names, text))
            scene.save(path, task, labels, about)
        return path, about

    def job(
        self, row: Row, model: str, data: tuple[str, ...], method: Any, preset: str, stream: Mapping[str, Any]
    ) -> Job:
        """One job, its identity complete."""
        name = self.model_of(row, model)
        reward = self.model_of(row, "reward") if "reward" in method.needs else ""
        path, about = self.scene(data, name, row.text, reward)
        tables = [self.store(d, name, *look(method)) for d in data]
        second = [self.store(d, reward, *look(method)) for d in data] if reward else []
        method = learned(method, self.model(name), self.root, self.options.context)
        fields = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
        used = min(getattr(method, "views", 1), tables[0].n_views)
        identity = {
            "data": [
                {"name": d, "images": len(t), "features": features(t), "source": _source(t)}
                for d, t in zip(data, tables, strict=True)
            ],
            "reward": [features(t) for t in second],
            "text": about,
            "views": {"recipe": look(method)[0], "used": used},
            "method": {
                "name": row.method,
                "preset": preset,
                "fields": named(fields),
                "code": version.version(type(method)),
            },
            "stream": dict(stream),
            "measure": metrics.VERSION,
        } | ({"alone": True} if self.plan.layout == "time" else {})
        return Job(
            label=f"{row.label}, {'+'.join(data)}, {name}, order {stream['seed']}",
            method=row.method,
            fields=fields,
            identity=json.loads(json.dumps(identity)),
            scene=path,
            store=tuple(t.path for t in tables),
            reward=tuple(t.path for t in second),
            stream=dict(stream),
            models=(name, reward) if reward else (name,),
            pictures=tuple(self.data(d) for d in data) if "pixels" in method.needs else (),
            device=self.options.device,
            precision=self.options.precision,
        )

    def model_of(self, row: Row, model: str) -> str:
        """The model of a row: the plan's, its own, or the reward model."""
        name = "reward" if model == "reward" else row.model or model
        if name == "reward" and not self.plan.reward:
            raise BadPlan(
                f"plan {self.plan.name}, row {row.label!r} wants a reward model, and the plan has none"
            )
        return self.plan.reward if name == "reward" else name


def look(method: Any) -> tuple[str, float]:
    """How a method's views are made: the recipe, and the smallest crop where it is not the usual one.

    >>> from reta.methods import create
    >>> look(create("dmn")), look(create("zeroshot"))
    (('augmix', 0.5), ('plain', -1.0))
    """
    recipe, area = getattr(method, "recipe", "augmix"), getattr(method, "crop_area", AREA[0])
    return recipe, -1.0 if recipe == "plain" or area == AREA[0] else area


@lru_cache(maxsize=4)
def open_model(name: str, device: str = "auto", precision: str = "auto") -> Any:
    """A model by NAME/TAG, by an embedded name, or by a path."""
    from reta.backbone import load

    if Path(name).exists():
        return load(name, device=device, precision=precision)
    short, _, tag = name.partition("/")
    return load(short, tag or None, device=device, precision=precision)


def task_of(model: Any, names: tuple[str, ...], text: scene.Text) -> Task:
    """Encode the sentences of every class."""
    rows = cached_texts(model, [s for group in text.sentences for s in group]).float().cpu()
    groups: list[Tensor] = list(rows.split([len(group) for group in text.sentences]))
    task = Task.from_features(groups, scale=model.scale, names=names)
    return dataclasses.replace(task, sentences=text.sentences)


def _source(store: Store) -> str:
    """Which images these are, whatever is made of them."""
    return digest({key: store.identity["data"][key] for key in ("version", "fingerprint")})


def _model(model: Any) -> dict[str, Any]:
    keys = ("name", "tag", "fingerprint")
    return {k: getattr(model, k) for k in keys} | {"precision": getattr(model, "precision", "fp32")}
