"""Images in, predictions out: a model, a task, a method, and the state that moves."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from PIL.Image import Image
from torch import Tensor

from reta import guard, images, methods, views
from reta import state as states
from reta.engine import prepare
from reta.errors import BadInput, BadState, nearest
from reta.methods.base import Method
from reta.sample import Output, Sample
from reta.task import Task

if TYPE_CHECKING:
    from reta.backbone import Preprocess

HEADER = {"method", "fields", "classes", "sentences", "scale", "seed", "seen", "model", "model_name", "task"}


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The answer for one image.

    >>> p = Prediction(("cat", "dog"), torch.tensor([0.2, 0.8]), {})
    >>> p.name, round(p.prob, 2), [name for name, _ in p.top(2)]
    ('dog', 0.8, ['dog', 'cat'])
    """

    names: tuple[str, ...]
    probs: Float[Tensor, " classes"]
    info: dict[str, Tensor] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def label(self) -> int:
        return int(self.probs.argmax())

    @property
    def name(self) -> str:
        return self.names[self.label]

    @property
    def prob(self) -> float:
        return float(self.probs[self.label])

    def top(self, k: int = 5) -> list[tuple[str, float]]:
        """The k most probable classes, best first."""
        best = self.probs.topk(min(k, len(self.names)))
        return [(self.names[i], p) for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)]


class Stream:
    """Adapts to a stream of images, one after another.

    `adapt` answers and moves the state, `classify` gives the same answer and leaves the state alone. Views
    are drawn from `seed` and the image's key (by default a hash of its pixels), so the same image always
    gets the same views. `reward` is a second model for methods that ask for one: it sees the same views, at
    the size it was trained on. `extra` is a source of generated views for methods that have room for them
    (`reta.views.extra`).

    >>> import reta
    >>> model = reta.load("reta-mini")
    >>> task = reta.Task.build(model, ["star", "key"])
    >>> stream = reta.Stream(model, task, reta.methods.create("zeroshot"))
    >>> stream.adapt(torch.zeros(64, 64, 3, dtype=torch.uint8)).name in task.names
    True
    """

    def __init__(
        self,
        model: Any,
        task: Task,
        method: Method,
        *,
        seed: int = 0,
        reward: Any = None,
        extra: views.extra.Source | None = None,
    ):
        if "reward" in method.needs and (reward is None or task.reward is None):
            raise BadInput(
                f"{type(method).__name__} asks for a second model: Stream(..., reward=model2), with the task "
                "built by Task.build(..., reward=model2)"
            )
        _belongs(task, model)
        self.model, self.method, self.seed, self.reward, self.extra = model, method, seed, reward, extra
        self.task = task.to(model.device)
        self.seen = 0
        self.state = method.init(self.task)

    def sample(self, image: Any, key: str | None = None) -> Sample:
        """Decode, make views, encode: what the method will be given. Touches no state."""
        picture = images.decode(image)
        key = hashlib.blake2b(picture.tobytes(), digest_size=12).hexdigest() if key is None else key
        room = 0 if self.extra is None else getattr(self.method, "generated", 0)
        made = self.extra.pictures(picture, key, room) if self.extra is not None and room else []
        mine, theirs = self.model.preprocess, getattr(self.reward, "preprocess", None)
        pixels, second = self._pixels(picture, key, mine, made, room), None
        with torch.no_grad():
            if theirs is not None and "reward" in self.method.needs:
                alike = _geometry(theirs) == _geometry(mine)
                seen = pixels if alike else self._pixels(picture, key, theirs, made, room)
                second = self.reward.images(seen)
            features = self.model.images(pixels)
        return Sample(features, second, pixels if "pixels" in self.method.needs else None, key)

    def _pixels(
        self, picture: Image, key: str, pre: Preprocess, made: list[Image], room: int
    ) -> Float[Tensor, "views 3 size size"]:
        """The views of a picture for one model; another model gets the same ones at its own size."""
        size, interpolation, resize_mode = _geometry(pre)
        pixels = views.make(
            picture,
            recipe=getattr(self.method, "recipe", "plain"),
            n=self.method.views,
            size=size,
            seed=self.seed,
            key=key,
            interpolation=interpolation,
            resize_mode=resize_mode,
            area=(getattr(self.method, "crop_area", views.AREA[0]), views.AREA[1]),
        )
        return torch.cat([pixels[: self.method.views - room], views.extra.square(made, size)])

    def adapt(self, image: Any, key: str | None = None) -> Prediction:
        """Answer for one image and learn from it."""
        prediction, state = self._step(image, key)
        if state is not self.state and guard.sane(state):
            self.state = state
        self.seen += 1
        return prediction

    def classify(self, image: Any, key: str | None = None) -> Prediction:
        """The answer `adapt` would give now; the state does not move."""
        return self._step(image, key)[0]

    def _step(self, image: Any, key: str | None) -> tuple[Prediction, states.State]:
        sample = image if isinstance(image, Sample) else self.sample(image, key)
        ready = prepare(self.method, self.task, sample)
        if ready is None:
            even = torch.full((len(self.task),), 1 / len(self.task))
            return Prediction(self.task.names, even, {"valid": torch.tensor(False)}), self.state
        with torch.no_grad():
            output, state = self.method.step(self.task, self.state, ready)
        return self._prediction(output), state

    def _prediction(self, output: Output) -> Prediction:
        info = {k: v.cpu() for k, v in output.info.items()} | {"valid": torch.tensor(True)}
        return Prediction(self.task.names, output.probs.float().cpu(), info)

    def reset(self) -> None:
        """Forget everything: the same as a new stream."""
        self.state, self.seen = self.method.init(self.task), 0

    def save(self, path: str | Path) -> None:
        """Write the state, and all it belongs to, to one safetensors file; the old file stays until it is done."""
        header = {
            "method": methods.name_of(self.method),
            "fields": settings(self.method),
            "classes": list(self.task.names),
            "sentences": [list(s) for s in self.task.sentences],
            "scale": self.task.scale,
            "seed": self.seed,
            "seen": self.seen,
            "model": self.model.fingerprint,
            "model_name": f"{self.model.name}/{self.model.tag}",
            "task": self.task.fingerprint,
            "reward": None if self.reward is None else self.reward.fingerprint,
        }
        body = {f"state.{k}": v for k, v in self.state.items()}
        states.save(path, body | {"task.prompts": self.task.prompts, "task.mask": self.task.mask}, header)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        model: Any,
        method: Method | None = None,
        task: Task | None = None,
        reward: Any = None,
        extra: views.extra.Source | None = None,
    ) -> Stream:
        """Go on from a file. What does not fit (model, method, settings, classes) is refused by name.

        Give `method` for one that is not registered by name; give `task` to insist on it. `reward` and
        `extra` are those the stream was made with.
        """
        body, header = states.load(path)
        if lacking := HEADER - header.keys():
            raise BadState(f"{path} is a file of reta, but not a saved stream: it has no {min(lacking)!r}")
        if header["model"] != model.fingerprint:
            raise BadState(
                f"{path}: model differs: it was made with {header['model_name']} "
                f"({header['model']}), this is {model.name}/{model.tag} ({model.fingerprint})"
            )
        if reward is not None and header.get("reward") not in (None, reward.fingerprint):
            raise BadState(
                f"{path}: reward model differs: it was made with {header['reward']}, this is "
                f"{reward.name}/{reward.tag} ({reward.fingerprint})"
            )
        method = _method(path, header, method)
        task = _task(path, header, body, task, model)
        if reward is not None and task.reward is None:
            task = dataclasses.replace(task, reward=_encode(task, reward))
        stream = cls(model, task, method, seed=header["seed"], reward=reward, extra=extra)
        stream.state = _fitting(path, stream.state, body)
        stream.seen = header["seen"]
        return stream


def _geometry(pre: Preprocess) -> tuple[int, str, str]:
    return pre.size, pre.interpolation, pre.resize_mode


def _belongs(task: Task, model: Any) -> None:
    """Text and image features must come from one model; from two of one width the answers would be noise."""
    if task.dim != model.dim:
        raise BadInput(
            f"the task has text features of {task.dim} dimensions, {model.name} makes {model.dim}: "
            "build the task with the same model"
        )
    if task.model is not None and task.model is not model and task.model.fingerprint != model.fingerprint:
        raise BadInput(f"the task was built with {task.model.name}, not with {model.name}: build it again")


def settings(method: Method) -> dict[str, Any]:
    """What a method is set to, as it looks in a file: the fields of a dataclass, the attributes of others."""
    plain = not dataclasses.is_dataclass(method)
    found = vars(method) if plain else {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
    return json.loads(json.dumps({k: v for k, v in found.items() if k[0] != "_"}, default=repr))


def _method(path: str | Path, header: dict[str, Any], given: Method | None) -> Method:
    name, fields = header["method"], header["fields"]
    if given is None:
        if name not in methods.known():
            hint = nearest(name, methods.known())
            raise BadState(f"{path}: method {name!r} is not registered ({hint}); pass method=... to load it")
        try:
            return methods.create(name, **fields)
        except BadInput as error:
            raise BadState(
                f"{path}: its settings are not those of {name} in this version: {error}"
            ) from error
    mine = {"method": methods.name_of(given)} | settings(given)
    theirs = {"method": name} | fields
    for key in sorted(mine.keys() | theirs.keys(), key=lambda k: (k != "method", k)):
        if mine.get(key) != theirs.get(key):
            raise BadState(
                f"{path}: {key} differs: the file has {theirs.get(key)!r}, this is {mine.get(key)!r}"
            )
    return given


def _task(
    path: str | Path, header: dict[str, Any], body: states.State, given: Task | None, model: Any
) -> Task:
    if given is not None:
        if list(given.names) != header["classes"]:
            a, b = len(given), len(header["classes"])
            what = f"{b} in the file, {a} here" if a != b else "same number, other names or order"
            raise BadState(f"{path}: classes differ: {what}")
        if given.fingerprint != header["task"]:
            raise BadState(
                f"{path}: prompts differ: the same classes, but other sentences, features or scale"
            )
        return given
    sentences = tuple(tuple(s) for s in header["sentences"])
    names, scale = tuple(header["classes"]), header["scale"]
    return Task(names, body["task.prompts"], body["task.mask"], scale, sentences, model=model)


def _encode(task: Task, reward: Any) -> Task:
    from reta.textcache import cached_texts

    features = cached_texts(reward, [s for group in task.sentences for s in group])
    groups = list(features.split([len(group) for group in task.sentences]))
    return Task.from_features(groups, scale=reward.scale, names=task.names)


def _fitting(path: str | Path, fresh: states.State, body: states.State) -> states.State:
    found = {k.removeprefix("state."): v for k, v in body.items() if k.startswith("state.")}
    if found.keys() != fresh.keys():
        raise BadState(f"{path}: state keys differ: {sorted(found)} in the file, {sorted(fresh)} expected")
    for key, value in fresh.items():
        if value.shape != found[key].shape or value.dtype != found[key].dtype:
            raise BadState(
                f"{path}: {key} differs: {tuple(found[key].shape)} {found[key].dtype} in the file, "
                f"{tuple(value.shape)} {value.dtype} expected"
            )
    if not guard.sane(found):
        raise BadState(f"{path}: the state contains NaN; use an older copy")
    return {k: v.to(fresh[k].device) for k, v in found.items()}
