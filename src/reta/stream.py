"""Images in, predictions out: a model, a task, a method, and the state that moves."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from reta import guard, images, methods, views
from reta import state as states
from reta.engine import prepare
from reta.errors import BadInput, BadState, nearest
from reta.methods.base import Method
from reta.sample import Output, Sample
from reta.task import Task


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
    gets the same views. `reward` is a second model for methods that ask for one, `extra` a source of generated
    views for those that have room for them (`reta.views.extra`).

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
        self.model, self.method, self.seed, self.reward, self.extra = model, method, seed, reward, extra
        self.task = task.to(model.device)
        self.seen = 0
        self.state = method.init(self.task)

    def sample(self, image: Any, key: str | None = None) -> Sample:
        """Decode, make views, encode: what the method will be given. Touches no state."""
        picture = images.decode(image)
        key = hashlib.blake2b(picture.tobytes(), digest_size=12).hexdigest() if key is None else key
        pre = self.model.preprocess
        pixels = views.make(
            picture,
            recipe=getattr(self.method, "recipe", "plain"),
            n=self.method.views,
            size=pre.size,
            seed=self.seed,
            key=key,
            interpolation=pre.interpolation,
            resize_mode=pre.resize_mode,
        )
        room = getattr(self.method, "generated", 0)
        if self.extra is not None and room:
            made = views.extra.square(self.extra.pictures(picture, key, room), pre.size)
            pixels = torch.cat([pixels[: self.method.views - room], made])
        with torch.no_grad():
            second = None if self.reward is None else self.reward.images(pixels)
            return Sample(
                self.model.images(pixels), second, pixels if "pixels" in self.method.needs else None, key
            )

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
            "fields": {f.name: getattr(self.method, f.name) for f in dataclasses.fields(self.method)},  # type: ignore[arg-type]
            "classes": list(self.task.names),
            "sentences": [list(s) for s in self.task.sentences],
            "scale": self.task.scale,
            "seed": self.seed,
            "seen": self.seen,
            "model": self.model.fingerprint,
            "model_name": f"{self.model.name}/{self.model.tag}",
            "task": self.task.fingerprint,
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
    ) -> Stream:
        """Go on from a file. What does not fit (model, method, settings, classes) is refused by name.

        Give `method` for one that is not registered by name; give `task` to insist on it.
        """
        body, header = states.load(path)
        if header["model"] != model.fingerprint:
            raise BadState(
                f"{path}: model differs: it was made with {header['model_name']} "
                f"({header['model']}), this is {model.name}/{model.tag} ({model.fingerprint})"
            )
        method = _method(path, header, method)
        task = _task(path, header, body, task, model)
        if reward is not None and task.reward is None:
            task = dataclasses.replace(task, reward=_encode(task, reward))
        stream = cls(model, task, method, seed=header["seed"], reward=reward)
        stream.state = _fitting(path, stream.state, body)
        stream.seen = header["seen"]
        return stream


def _method(path: str | Path, header: dict[str, Any], given: Method | None) -> Method:
    name, fields = header["method"], header["fields"]
    if given is None:
        if name not in methods.known():
            hint = nearest(name, methods.known())
            raise BadState(f"{path}: method {name!r} is not registered ({hint}); pass method=... to load it")
        return methods.create(name, **fields)
    mine = {"method": methods.name_of(given)}
    mine |= {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}  # type: ignore[arg-type]
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
            )
    if not guard.sane(found):
        raise BadState(f"{path}: the state contains NaN; use an older copy")
    return {k: v.to(fresh[k].device) for k, v in found.items()}
