"""Any open_clip model behind the `Backbone` interface."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from reta.backbone.lowered import lowered, normalised
from reta.backbone.protocol import Preprocess
from reta.backbone.tower import TextTower
from reta.errors import BadInput, RetaError

log = logging.getLogger("reta")

BATCH = {"cpu": 64, "cuda": 512}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


class OpenClip:
    """A frozen open_clip model. `module` is the model itself, `tower` its text tower.

    Weights stay in fp32 whatever the precision; bf16 and fp16 are autocast around the towers, which is what
    the published methods do and what keeps the fingerprint the same on every machine. On a GPU, `images` goes
    through a copy of the image tower that is in that precision throughout, as OpenAI's own loader has it: half
    again as fast as autocast, whose sums and norms are in fp32. `lowered` says how else the copy differs.

    >>> import reta
    >>> model = reta.load("reta-mini")
    >>> model.texts(["a photo of a key.", "a photo of a star."]).shape == (2, model.dim)
    True
    >>> model.preprocess.size, model.precision
    (64, 'fp32')
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Callable[[list[str]], Tensor],
        *,
        name: str,
        tag: str | None,
        dim: int,
        preprocess: Preprocess,
        config: Mapping[str, Any],
        device: torch.device,
        precision: str,
        known: Int[Tensor, " tokens"] | None = None,
    ):
        wide = torch.float64 if precision == "fp64" else torch.float32
        self.module: Any = module.eval().requires_grad_(False).to(device=device, dtype=wide)
        self.tower = TextTower(module, tokenizer)
        self.name, self.tag, self.dim = name, tag, dim
        self.preprocess, self.config = preprocess, config
        self.device, self.precision, self.wide = device, precision, wide
        self.known = known
        self.scale = float(self.module.logit_scale.detach().exp())
        self._digest: tuple[int, str] | None = None
        self._low: tuple[int, Any] | None = None

    def __repr__(self) -> str:
        return f"OpenClip({self.name!r}, {self.tag!r}, {self.device}, {self.precision})"

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """The precision asked for, around anything run through the towers."""
        low = self.precision in ("bf16", "fp16")
        with torch.autocast(self.device.type, dtype=DTYPES[self.precision] if low else None, enabled=low):
            yield

    def prepare(
        self, pixels: Float[Tensor, "images 3 size size"] | UInt8[Tensor, "images 3 size size"]
    ) -> Float[Tensor, "images 3 size size"]:
        """Normalised pixels on the model's device: what the image tower takes."""
        pixels = pixels.to(self.device, non_blocking=True)
        whole = pixels.dtype == torch.uint8
        pixels = pixels.to(self.wide)
        return self.preprocess.normalise(pixels / 255 if whole else pixels)

    @torch.no_grad()
    def images(
        self,
        pixels: Float[Tensor, "images 3 size size"] | UInt8[Tensor, "images 3 size size"],
        batch: int | None = None,
    ) -> Float[Tensor, "images dim"]:
        """Unit features of pictures already at the model's size, uint8 or in [0,1], not normalised.

        `batch` is how many go through the tower together: 64 on a CPU and 512 on a GPU unless said otherwise.
        """
        self._check(pixels)
        batch = _positive(BATCH.get(self.device.type, 64) if batch is None else batch)
        out = torch.empty(len(pixels), self.dim, dtype=self.wide, device=self.device)
        low = self._lowered()
        for start in range(0, len(pixels), batch):
            block = pixels[start : start + batch].to(self.device, non_blocking=True)
            if low is not None:
                features = low.encode_image(normalised(block, self.preprocess, DTYPES[self.precision]))
            else:
                with self.autocast():
                    features = self.module.encode_image(self.prepare(block))
            out[start : start + batch] = self._unit(features)
        return self._finite(out, "images")

    def _lowered(self) -> Any:
        """The model with its image tower in bf16 or fp16, on a GPU; made again when a weight changed."""
        ours = type(self.module).__module__.startswith("open_clip.")
        if self.device.type != "cuda" or self.precision not in ("bf16", "fp16") or not ours:
            return None
        version = self._version()
        if self._low is None or self._low[0] != version:
            low = copy.copy(self.module)
            low._modules = dict(self.module._modules)
            low.visual = lowered(self.module.visual, DTYPES[self.precision])
            self._low = version, low
        return self._low[1]

    def _check(self, pixels: Tensor) -> None:
        size = self.preprocess.size
        if pixels.ndim != 4 or tuple(pixels.shape[1:]) != (3, size, size):
            raise BadInput(
                f"{self.name} takes pixels [B,3,{size},{size}], not {list(pixels.shape)}: "
                f"make them with reta.views.make(image, size={size})"
            )
        if pixels.dtype == torch.uint8 or not len(pixels):
            return
        if not pixels.is_floating_point():
            raise BadInput(f"pixels must be uint8 or floating point, not {pixels.dtype}")
        low, high = (float(x) for x in torch.aminmax(pixels))
        if not (low >= 0 and high <= 1):
            raise BadInput(
                f"floating-point pixels must lie in [0,1] and not be normalised; these go from {low} to {high}"
            )

    @torch.no_grad()
    def texts(self, texts: Sequence[str], batch: int = 256) -> Float[Tensor, "texts dim"]:
        """Unit features of prompts. Equal prompts are encoded once; short ones cost less than long ones.

        Prompts longer than the tower's row are cut by the tokenizer, as open_clip does, with a notice.
        """
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise BadInput("texts must be a list of strings")
        places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        out = torch.empty(len(places), self.dim, dtype=self.wide, device=self.device)
        if not places:
            return out
        tokens = self.tower.tokens(list(places))
        long = self.tower.overlong(list(places), tokens)
        if long:
            size = tokens.shape[1]
            log.warning(
                "%d of %d prompts are cut to %d tokens: %.60r...", len(long), len(places), size, long[0]
            )
        lengths = self.tower.lengths(tokens)
        for index in lengths.argsort(stable=True).split(_positive(batch)):
            with self.autocast():
                features = self.tower.rows(tokens[index, : int(lengths[index].max())])
            out[index] = self._unit(features)
        return self._finite(out, "texts")[[places[text] for text in texts]]

    def unknown_tokens(self, text: str) -> int:
        """How many tokens of a prompt the model has never seen; 0 for models that ship a whole token table."""
        if self.known is None:
            return 0
        tokens = self.tower.tokens([text])
        seen = torch.isin(tokens[0, : int(self.tower.ends(tokens))], self.known.to(tokens.device))
        return int((~seen).sum())

    def _unit(self, features: Tensor) -> Tensor:
        return nn.functional.normalize(features.to(self.wide), dim=-1)

    def _finite(self, features: Tensor, what: str) -> Tensor:
        if bool(torch.isfinite(features).all()):
            return features
        hint = "try precision='fp32' or 'bf16'" if self.precision == "fp16" else "are its weights damaged?"
        raise RetaError(f"{self.name} gave non-finite features for {what} in {self.precision}: {hint}")

    @property
    def fingerprint(self) -> str:
        """A hash of every weight, the architecture and the preprocessing; made again when a weight changed."""
        version = self._version()
        if self._digest is None or self._digest[0] != version:
            self._digest = version, self._hash(self.module.state_dict())
        return self._digest[1]

    def _version(self) -> int:
        """Grows whenever a weight is changed in place."""
        return sum(tensor._version for tensor in self.module.state_dict().values())

    def _hash(self, weights: Mapping[str, Tensor]) -> str:
        settings = {"model": dict(self.config), "preprocess": vars(self.preprocess)}
        total = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
        table = self.tower.embedding.weight

        def one(name: str) -> bytes:
            value = weights[name]
            if self.known is not None and value.data_ptr() == table.data_ptr():
                value = value[self.known.to(value.device)]  # the other rows are filler, not weights
            value = value.float() if value.is_floating_point() else value
            part = hashlib.blake2b(f"{name} {tuple(value.shape)} ".encode(), digest_size=16)
            part.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            return part.digest()

        with ThreadPoolExecutor() as pool:
            for part in pool.map(one, sorted(weights)):
                total.update(part)
        return total.hexdigest()


def _positive(batch: int) -> int:
    if batch < 1:
        raise BadInput(f"batch must be at least 1, not {batch}")
    return batch
