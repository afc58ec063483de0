"""What to recognise: class names and the text features of every prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reta.errors import BadInput

if TYPE_CHECKING:
    from reta.backbone import Backbone
    from reta.prompts import Start


@dataclass(frozen=True, eq=False)
class Task:
    """Class names and unit text features `[C,K,D]`, one row per prompt; `mask` marks the real ones.

    `scale` is the model's logit scale s, so that s * z @ task.text.T are its logits. The model itself is
    there when the task was built from one: methods that learn a prompt need it. `reward` is the same task
    seen by a second model.

    >>> import torch
    >>> task = Task.from_features([torch.eye(4)[:2], torch.eye(4)[2:3]], names=["cat", "dog"])
    >>> task.prompts.shape, task.mask.tolist()
    (torch.Size([2, 2, 4]), [[True, True], [True, False]])
    """

    names: tuple[str, ...]
    prompts: Float[Tensor, "classes prompts dim"]
    mask: Bool[Tensor, "classes prompts"]
    scale: float = 100.0
    sentences: tuple[tuple[str, ...], ...] = ()
    model: Any = field(default=None, repr=False)
    reward: Task | None = field(default=None, repr=False)

    @classmethod
    def build(
        cls,
        model: Backbone,
        classes: Sequence[str] | str | Path,
        templates: str | Sequence[str] = "single",
        prompts: Mapping[str, Sequence[str]] | str | Path | None = None,
        reward: Backbone | None = None,
    ) -> Task:
        """Encode every prompt of every class: templates first, then the class's own sentences.

        `templates` is the name of a set (`single`, `openai-7`, `openai-80`, `none`) or a list with `{}` for
        the name; `prompts` maps class names to sentences (a dict, or a JSON file of that form).
        """
        from reta.templates import class_list, sentences_per_class
        from reta.textcache import cached_texts

        names = class_list(classes)
        sentences = sentences_per_class(names, templates, prompts)
        features = cached_texts(model, [s for group in sentences for s in group])
        groups = list(features.split([len(group) for group in sentences]))
        task = cls.from_features(groups, scale=model.scale, names=names)
        second = None if reward is None else cls.build(reward, names, templates, prompts)
        return replace(task, sentences=tuple(map(tuple, sentences)), model=model, reward=second)

    @classmethod
    def from_features(
        cls,
        prompts: Float[Tensor, "classes prompts dim"] | Sequence[Float[Tensor, "prompts dim"]],
        scale: float = 100.0,
        names: Sequence[str] | None = None,
        reward: Task | None = None,
    ) -> Task:
        """From ready text features: a tensor `[C,K,D]`, or a list of C tensors `[K_c,D]`."""
        rows = [torch.as_tensor(row).detach() for row in prompts]
        if not rows or any(r.ndim != 2 or 0 in r.shape or r.shape[-1] != rows[0].shape[-1] for r in rows):
            raise BadInput("prompts must be [C,K,D], or a list of C tensors [K_c,D] with one D and K_c >= 1")
        names = tuple(names) if names is not None else tuple(f"class {i}" for i in range(len(rows)))
        if len(names) != len(rows):
            raise BadInput(f"{len(names)} class names for {len(rows)} classes of prompts")
        if not (scale > 0 and scale < float("inf")):
            raise BadInput(f"the logit scale must be a positive number, not {scale}")
        longest = max(len(r) for r in rows)
        wide = torch.float64 if rows[0].dtype == torch.float64 else torch.float32
        table = torch.zeros(len(rows), longest, rows[0].shape[-1], dtype=wide, device=rows[0].device)
        mask = torch.zeros(len(rows), longest, dtype=torch.bool, device=table.device)
        for c, row in enumerate(rows):
            norms = row.to(wide).norm(dim=-1, keepdim=True)
            if not bool((torch.isfinite(norms) & (norms > 0)).all()):
                raise BadInput(f"a prompt of class {names[c]!r} has a zero or non-finite feature")
            table[c, : len(row)] = row.to(wide) / norms
            mask[c, : len(row)] = True
        return cls(names, table, mask, float(scale), reward=reward)

    @cached_property
    def text(self) -> Float[Tensor, "classes dim"]:
        """The pooled prototypes: unit mean of each class's unit prompts."""
        mean = (self.prompts * self.mask[..., None]).sum(1) / self.mask.sum(1, keepdim=True)
        return mean / mean.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(mean.dtype).tiny)

    @cached_property
    def _contexts(self) -> dict[str, Start]:
        return {}

    def start(self, context: str = "a photo of a") -> Start:
        """The class names behind a learnable context: some words, or a file that `reta coop fit` wrote.

        Made once per task, the first forward pass through the text tower included.
        """
        if self.model is None:
            raise BadInput(
                "this method learns a prompt, so its task needs the model: build it with reta.Task.build(model, ...)"
            )
        if context not in self._contexts:
            from reta.prompts import begin

            self._contexts[context] = begin(self.model, self.names, context)
        return self._contexts[context]

    def unknown_tokens(self) -> list[int]:
        """How many tokens of each class's sentences the model has never seen; 0 for models with a whole vocabulary."""
        count = getattr(self.model, "unknown_tokens", lambda text: 0)
        return [sum(count(text) for text in texts) for texts in self.sentences]

    @property
    def dim(self) -> int:
        return self.prompts.shape[-1]

    def __len__(self) -> int:
        return len(self.names)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Task:
        """The same task elsewhere, or in another precision."""
        reward = None if self.reward is None else self.reward.to(device, dtype)
        prompts = self.prompts.to(device=device, dtype=dtype)
        return replace(self, prompts=prompts, mask=self.mask.to(device=device), reward=reward)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any class name, prompt feature or the logit scale."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update("\x00".join(self.names).encode())
        digest.update(f"\x00{self.scale!r}".encode())
        digest.update(self.prompts.detach().cpu().to(torch.float32).contiguous().numpy().tobytes())
        digest.update(self.mask.cpu().numpy().tobytes())
        return digest.hexdigest()
