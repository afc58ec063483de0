"""Differentiable prompts: class features as a function of the embeddings of a few context tokens."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from reta import state
from reta.backbone import Backbone, OpenClip
from reta.backbone.layout import ROW, Block, blocks, place
from reta.errors import BadInput, BadState


class PromptedText:
    """The class features of a text tower for the prompts "[context] name suffix", as a function of [context].

    `context` is the initial context, `[tokens, width]`: the embeddings of the words given, or of as many
    placeholders as a number asks for. `features` is differentiable, `vjp` is its vector-Jacobian product
    without a graph over all classes, `pullback` both at one point with the forward pass shared. All take one
    context or a batch of them.

    One forward hook on the token embedding puts the context in place; no tower is copied. In causal towers
    the begin token and the context are computed once for all classes of a row, which then hold only the rest
    of each prompt (`packed`); others see whole prompts, `cut` as short as is exact.

    `memory` bounds, in GiB, the activations alive at one time, those a `pullback` keeps included: 2 if it is
    not given, on a GPU half of what is free.

    >>> import reta
    >>> prompts = PromptedText(reta.load("reta-mini"), ["key", "star"], context="a photo of a")
    >>> prompts.context.shape[0], prompts.features(prompts.context).shape[0]
    (4, 2)
    >>> prompts.vjp(prompts.context, torch.ones(2, prompts.dim)).shape == prompts.context.shape
    True
    """

    def __init__(
        self,
        model: Backbone,
        names: Sequence[str],
        context: str | int = "a photo of a",
        suffix: str = ".",
        *,
        memory: float | None = None,
        layout: str = "auto",
    ):
        if not isinstance(model, OpenClip):
            raise BadInput(f"{model.name} cannot learn a prompt: that needs an open_clip text tower")
        if not names or isinstance(names, str) or not all(isinstance(n, str) and n.strip() for n in names):
            raise BadInput("names must be a list of class names, none of them empty")
        memory = _room(model.device) if memory is None else memory
        if not memory > 0:
            raise BadInput(f"memory must be a positive number of GiB, not {memory}")
        self.model, self.tower, self.dim = model, model.tower, model.dim
        if isinstance(context, int) and context < 1:
            raise BadInput(f"a context has at least one token, not {context}")
        words = " ".join(["x"] * context) if isinstance(context, int) else context.strip()
        prompts = [f"{words} {name.strip()}{suffix}" for name in names]
        probes, tokens = self.tower.tokens([words, "", "x", *prompts]).tensor_split([3])
        self.start, self.length = place(probes, tokens, words, names)
        rows = self.tower.embedding(tokens[0, self.start : self.start + self.length])
        self.context: Float[Tensor, "tokens width"] = rows.detach().clone()
        self.names = tuple(names)
        self.limit = max(1, int(memory * 2**30 / self.tower.bytes_per_token))
        self.blocks = blocks(self.tower, tokens, layout, self.start + self.length, self.limit)
        self._order = torch.cat([block.classes for block in self.blocks]).argsort()
        self._largest = max(block.tokens.numel() for block in self.blocks)
        self._kept = 0

    def features(self, context: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch classes dim"]:
        """Unit class features, differentiable in `context`.

        With a gradient to come, classes are run again during the backward pass when they do not fit in
        `memory` at once.
        """
        contexts = self._contexts(context)
        spare = torch.is_grad_enabled() and contexts.requires_grad and not self._fits(contexts)
        groups = []
        for _, group in self._placed(contexts):
            run = [self._run(block, group, spare) for block in self.blocks]
            groups.append(torch.cat(run, dim=1)[:, self._order])
        return torch.cat(groups).reshape(*context.shape[:-2], len(self.names), self.dim)

    def vjp(
        self, context: Float[Tensor, "*batch tokens width"], cotangent: Float[Tensor, "*batch classes dim"]
    ) -> Float[Tensor, "*batch tokens width"]:
        """The gradient of `(features(context) * cotangent).sum()`, with one block's graph alive at a time."""
        contexts = self._contexts(context.detach())
        wanted, size = self._cotangent(context, cotangent)
        grads = []
        with torch.inference_mode(False), torch.enable_grad():
            for place, group in self._placed(contexts):
                leaf = group.clone().requires_grad_()
                total = torch.zeros_like(leaf)
                for block in self.blocks:
                    out = self._encode(block, leaf)
                    total += torch.autograd.grad(out, leaf, wanted[place][:, block.classes])[0]
                grads.append(total)
        return (torch.cat(grads) * size).reshape(context.shape).to(context.dtype)

    def pullback(
        self, context: Float[Tensor, "*batch tokens width"]
    ) -> tuple[Float[Tensor, "*batch classes dim"], Callable[[Tensor], Tensor]]:
        """The features at `context` and a function from cotangents to gradients there.

        The forward pass is done once and kept, so that many samples starting from one context pay for a
        backward pass only; when `memory` has no room for it beside a block of other work, the function is
        `vjp`.
        """
        contexts = self._contexts(context.detach())
        if not self._fits(contexts, beside=self._largest):
            with torch.no_grad():
                return self.features(context), lambda cotangent: self.vjp(context, cotangent)
        with torch.inference_mode(False), torch.enable_grad():
            leaf = contexts.clone().requires_grad_()
            rows = [
                torch.cat([self._encode(block, group) for block in self.blocks], dim=1)
                for _, group in self._placed(leaf)
            ]
            out = torch.cat(rows)[:, self._order]

        def pull(cotangent: Tensor) -> Tensor:
            wanted, size = self._cotangent(context, cotangent)
            grad = torch.autograd.grad(out, leaf, wanted, retain_graph=True)[0]
            return (grad * size).reshape(context.shape).to(context.dtype)

        self._keep(pull, len(contexts) * self._tokens())
        return out.detach().reshape(*context.shape[:-2], len(self.names), self.dim), pull

    def _run(self, block: Block, contexts: Tensor, spare: bool) -> Tensor:
        if not spare:
            return self._encode(block, contexts)
        return checkpoint(self._encode, block, contexts, use_reentrant=False, preserve_rng_state=False)

    def _encode(self, block: Block, contexts: Tensor) -> Float[Tensor, "batch classes dim"]:
        rows, batch = len(block.tokens), len(contexts)
        tokens = block.tokens.repeat(batch, 1)
        each = contexts if rows == 1 else contexts.repeat_interleave(rows, 0)
        with self.model.autocast():
            if block.positions is None or block.seen is None:
                out = self.tower.rows(tokens, each, self.start).view(batch, rows, -1)
            else:
                out = self.tower.packed(tokens, block.positions, block.seen, each, self.start)[:, block.ends]
        return torch.nn.functional.normalize(out.to(self.model.wide), dim=-1)

    def _tokens(self) -> int:
        return sum(block.tokens.numel() for block in self.blocks)

    def _keep(self, pull: Callable[[Tensor], Tensor], tokens: int) -> None:
        """Count the tokens of a forward pass for as long as `pull` lives."""

        def forget() -> None:
            self._kept -= tokens

        self._kept += tokens
        weakref.finalize(pull, forget).atexit = False

    def _fits(self, contexts: Tensor, beside: int = 0) -> bool:
        return len(contexts) * self._tokens() + beside <= self.limit - self._kept

    def _placed(self, contexts: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """As many contexts at once as one block leaves room for; on a CPU, as stay in its caches."""
        room = self.limit - self._kept
        room = min(room, ROW) if contexts.device.type == "cpu" else room
        size = max(1, room // self._largest)
        for first in range(0, len(contexts), size):
            yield slice(first, first + size), contexts[first : first + size]

    def _contexts(self, context: Tensor) -> Tensor:
        if context.ndim < 2 or context.shape[-2:] != self.context.shape or 0 in context.shape:
            wanted = ", ".join(map(str, self.context.shape))
            raise BadInput(f"a context must be [..., {wanted}], not {list(context.shape)}")
        return context.reshape(-1, *self.context.shape).to(self.context)

    def _cotangent(self, context: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Cotangents and what to multiply the gradients by: fp16 would lose small ones."""
        shape = (*context.shape[:-2], len(self.names), self.dim)
        if cotangent.shape != shape:
            raise BadInput(f"a cotangent must be shaped like the features, {shape}, not {cotangent.shape}")
        rows = cotangent.detach().reshape(-1, len(self.names), self.dim).to(self.context)
        size = rows.abs().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
        size = size if self.model.precision == "fp16" else torch.ones_like(size)
        return rows / size, size


def _room(device: torch.device) -> float:
    """GiB for activations: 2, on a GPU half of what nobody uses."""
    if device.type != "cuda":
        return 2.0
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return (torch.cuda.mem_get_info(device)[0] + idle) / 2 / 2**30


class Start(NamedTuple):
    """Where every image begins: prompts, the initial context, its class features and their pullback."""

    prompts: PromptedText
    context: Float[Tensor, "tokens width"]
    features: Float[Tensor, "classes dim"]
    pull: Callable[[Float[Tensor, "classes dim"]], Float[Tensor, "tokens width"]]


def begin(model: Backbone, names: Sequence[str], context: str) -> Start:
    """Class names behind a context given in words, or by a file of a learned one."""
    if not context.endswith(".safetensors"):
        prompts = PromptedText(model, names, context)
        return Start(prompts, prompts.context, *prompts.pullback(prompts.context))
    learned, _ = load_context(context, model)
    prompts = PromptedText(model, names, len(learned))
    learned = learned.to(prompts.context)
    return Start(prompts, learned, *prompts.pullback(learned))


def save_context(path: str | Path, context: Tensor, model: Backbone, about: Mapping[str, Any]) -> None:
    """Write a learned context, with the model it belongs to and how it was learned."""
    state.save(path, {"context": context}, {"model": model.fingerprint, "model_name": model.name, **about})


def load_context(path: str | Path, model: Backbone) -> tuple[Float[Tensor, "tokens width"], dict[str, Any]]:
    """Read a learned context; one of another model is refused."""
    body, header = state.load(path)
    if "context" not in body:
        raise BadState(f"{path} holds no learned context; make one with `reta coop fit`")
    if header["model"] != model.fingerprint:
        raise BadState(
            f"{path}: the context was learned with {header['model_name']} ({header['model']}), "
            f"this is {model.name} ({model.fingerprint})"
        )
    return body["context"], header
