"""Shards of a feature store encoded on a Ray cluster, by actors that keep the model; the files are written here."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from reta import images
from reta.bench.claims import Claim
from reta.bench.cluster import RETRIES, connect
from reta.bench.encoding import Encoder, Row
from reta.bench.store import shard_path
from reta.data.dataset import Dataset, Reference, held
from reta.errors import BadImage, RetaError

if TYPE_CHECKING:
    from reta.bench.building import Builder

AHEAD = 2
"""Shards an actor has in hand: one is encoded while the next one travels."""
PULSE = 5.0
"""Seconds after which claims are renewed, whatever happens on the cluster."""


def on_cluster(builder: Builder, address: str, wait: bool) -> Iterator[int]:
    """Build what no other process builds; one item per finished image, whoever made it.

    Nothing but this process touches the images and the store: the bytes of images and the model travel through
    Ray and features come back, so that no disk has to be shared and nothing is downloaded there. There is an
    actor per GPU, or per CPU where there are none. One that dies costs the shards it has in hand, which another
    encodes.
    """
    left = builder.missing()
    crew = Crew(connect(address), builder, len(left))
    try:
        while left:
            busy = crew.work(left)
            now = builder.missing()
            for number in sorted(set(left) - set(now)):
                yield from builder.rows(number)
            left = now
            if left and not busy:
                if not wait:
                    return
                time.sleep(0.5)
    finally:
        crew.dismiss()


class Crew:
    """The actors, and which shards they have in hand."""

    def __init__(self, ray: Any, builder: Builder, shards: int):
        self.ray, self.builder = ray, builder
        gpus, cpus = (int(ray.cluster_resources().get(kind, 0)) for kind in ("GPU", "CPU"))
        self.kind = ray.remote(num_cpus=1, num_gpus=min(gpus, 1))(Actor)
        self.encoder = ray.put(_portable(builder.encoder))
        self.hands: dict[Any, tuple[Any, int | None]] = {}
        self.claims: dict[int, Claim] = {}
        self.free: list[Any] = []
        self.size, self.lost = max(1, min(gpus or cpus, shards)), 0
        for _ in range(self.size):
            self._hire()

    def _hire(self) -> None:
        """Ask for an actor. It gets no shard before it runs: if there is no room for it, nothing waits for it."""
        actor = self.kind.remote(self.encoder)
        self.hands[actor.ready.remote()] = actor, None

    def work(self, left: list[int]) -> bool:
        """Give out what can be given and take what comes back; False if other processes have all that is left."""
        for number in left:
            if self.free and number not in self.claims:
                self._give(number)
        if not self.claims and (self.free or not self.hands):
            return False
        done, _ = self.ray.wait(list(self.hands), num_returns=1, timeout=PULSE)
        for reference in done:
            self._take(reference, *self.hands.pop(reference))
        for claim in self.claims.values():
            claim.alive()
        return True

    def _give(self, number: int) -> None:
        claim = self.builder.claim(f"{number:05}")
        if claim is None:
            return
        if shard_path(self.builder.path, number).is_file():
            claim.release()
            return
        self.claims[number] = claim
        actor = self.free.pop(0)
        sent = parcel(self.builder.data, self.builder.rows(number), self.builder.encoder.workers)
        self.hands[actor.encode.remote(sent)] = actor, number

    def _take(self, reference: Any, actor: Any, number: int | None) -> None:
        try:
            found = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RetaError):
                raise error.cause from error
            raise
        except self.ray.exceptions.RayError as error:
            self._mourn(actor, number, error)
            return
        if number is None:
            self.free += [actor] * AHEAD
            return
        self.free.append(actor)
        self.builder.keep(number, *found)
        self.claims.pop(number).release()
        self.lost = 0

    def _mourn(self, actor: Any, number: int | None, error: Exception) -> None:
        """An actor died: its shards are free again, and another takes its place."""
        if number is not None:
            self.claims.pop(number).release()
        self.free = [a for a in self.free if a != actor]
        # All that an actor has in hand fails, one after the other; the last one brings the replacement.
        if any(a == actor for a, _ in self.hands.values()):
            return
        self.lost += 1
        if self.lost > RETRIES * self.size:
            raise RetaError(
                f"the cluster lost {self.lost} actors in a row ({type(error).__name__}: {str(error)[:300]}); what "
                "is built is kept: run the same command again when it is well"
            )
        self._hire()

    def dismiss(self) -> None:
        """Give claims and machines back."""
        for claim in self.claims.values():
            claim.release()
        for actor in {*self.free, *(actor for actor, _ in self.hands.values())}:
            self.ray.kill(actor)


class Actor:
    """On the cluster: a model that stays loaded, on the GPU that Ray gave it."""

    def __init__(self, encoder: Encoder):
        torch.set_num_threads(1)
        self.encoder = encoder
        if torch.cuda.is_available():
            _place(encoder.model, "cuda")

    def ready(self) -> None:
        """Answers when the model is loaded."""

    def encode(self, data: Dataset) -> tuple[Float[Tensor, "images views dim"], list[Row]]:
        """Features and rows of a shard."""
        parts, rows = zip(*self.encoder.groups(data, range(len(data))), strict=True)
        return torch.cat(parts), [row for part in rows for row in part]


@dataclass(frozen=True)
class Sent:
    """What a reference held on the driver's machine: bytes, a picture, or why there is neither."""

    source: Any

    def load(self) -> Any:
        if isinstance(self.source, Exception):
            raise self.source
        return self.source

    def size(self) -> int | None:
        return None


def parcel(data: Dataset, rows: range, workers: int) -> Dataset:
    """Some images of a data set, read, not decoded: what a machine that does not have them needs.

    >>> from reta.data import open
    >>> clean = open("shapes@fog-3", n=5)
    >>> sent = parcel(clean, range(2, 5), workers=1)
    >>> sent.keys == clean.keys[2:5], sent.fetch(0)[1] == clean.fetch(2)[1]
    (True, True)
    """
    with ThreadPoolExecutor(max(1, workers)) as pool:
        refs = list(pool.map(_sent, [data.refs[i] for i in rows]))
    return replace(data.take(rows), refs=refs, prompts=None, templates={}, notes=(), skipped=(), root=None)


def _sent(ref: Reference) -> Sent:
    try:
        source = held(ref)
        # A path means that there is nothing to read there; why, only this machine can tell.
        return Sent(images.decode(source) if isinstance(source, Path) else source)
    except (OSError, BadImage) as error:
        return Sent(error)


def _portable(encoder: Encoder) -> Encoder:
    """With a model that any machine can unpack: one on the CPU."""
    if encoder.model.device.type == "cpu":
        return encoder
    model = copy.deepcopy(encoder.model)
    _place(model, "cpu")
    return replace(encoder, model=model)


def _place(model: Any, device: str) -> None:
    if hasattr(model, "module"):
        model.module.to(device)
        model.device = torch.device(device)


def precision(address: str) -> str:
    """What a model is loaded with for a cluster: as `reta.load` has it on a GPU, if the cluster has any."""
    return "fp16" if connect(address).cluster_resources().get("GPU") else "fp32"
