"""Views made elsewhere: ready images in a folder per key, or a diffusion model that paints variations."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from reta import images
from reta.errors import BadInput, MissingData, require

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


class Source(Protocol):
    """Anything that has up to `n` further pictures of an image."""

    def pictures(self, image: Image.Image, key: str, n: int) -> list[Image.Image]: ...


class Folder:
    """Ready pictures: those of the image `key` lie in `root/key/`, in the order of their names.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "cat1").mkdir()
    >>> Image.new("RGB", (9, 9)).save(folder / "cat1" / "0.png")
    >>> len(Folder(folder).pictures(Image.new("RGB", (9, 9)), "cat1", 63))
    1
    """

    def __init__(self, root: str | Path):
        self.root = Path(root)
        if not self.root.is_dir():
            raise MissingData(f"no such folder of extra views: {self.root}")

    def pictures(self, image: Image.Image, key: str, n: int) -> list[Image.Image]:
        place = self.root / Path(key).with_suffix("")
        if not place.is_dir():
            place = self.root / key
        if not place.is_dir():
            raise MissingData(f"no extra views of {key!r}: put them into {self.root / key}/ as images")
        found = sorted(p for p in place.iterdir() if p.suffix.lower() in SUFFIXES)
        return [images.decode(p) for p in found[:n]]


class Diffusion:
    """A diffusers pipeline that turns an image into variations of it: image-variation or image-to-image.

    `pipeline` is a name on the model hub, a local folder, or a pipeline object; a text-to-image model serves
    as image-to-image. `options` go to each call (`guidance_scale`, `num_inference_steps`, `strength`,
    `prompt`, ...); a pipeline that wants a prompt and is given none gets an empty one. Seeded by `seed` and
    the image's key.
    """

    def __init__(
        self,
        pipeline: Any,
        *,
        seed: int = 0,
        batch: int = 8,
        device: str | None = None,
        size: int = 224,
        **options: Any,
    ):
        if isinstance(pipeline, str | Path):
            diffusers = require("diffusion", "diffusers")
            for library in ("diffusers", "transformers"):
                require("diffusion", f"{library}.utils.logging").disable_progress_bar()
            try:
                pipeline = diffusers.DiffusionPipeline.from_pretrained(str(pipeline))
            except (OSError, ValueError) as error:
                raise MissingData(
                    f"the diffusion pipeline {str(pipeline)!r} cannot be had ({str(error).splitlines()[0]}); "
                    "give a local folder with its files, or a folder of ready views"
                ) from error
        if batch < 1:
            raise BadInput(f"batch must be at least 1, not {batch}")
        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.pipeline = _of_images(pipeline).to(where)
        self.pipeline.set_progress_bar_config(disable=True)
        if "prompt" in _takes(self.pipeline) and "prompt_embeds" not in options:
            options = {"prompt": "", **options}
        self.seed, self.batch, self.size, self.options = seed, batch, size, options

    def pictures(self, image: Image.Image, key: str, n: int) -> list[Image.Image]:
        source, made = image.resize((self.size, self.size), Image.Resampling.BICUBIC), []
        for start in range(0, n, self.batch):
            count = min(self.batch, n - start)
            dice = [_dice(self.seed, key, i) for i in range(start, start + count)]
            made += self.pipeline(image=[source] * count, generator=dice, **self._words(count)).images
        return [picture.convert("RGB") for picture in made]

    def _words(self, count: int) -> dict[str, Any]:
        if "prompt" not in self.options:
            return self.options
        return self.options | {"prompt": [self.options["prompt"]] * count}


def _takes(pipeline: Any) -> set[str]:
    return set(inspect.signature(pipeline.__call__).parameters)


def _of_images(pipeline: Any) -> Any:
    """The pipeline if it takes an image, otherwise the image-to-image one of the same weights."""
    if "image" in _takes(pipeline):
        return pipeline
    auto = require("diffusion", "diffusers").AutoPipelineForImage2Image
    try:
        return auto.from_pipe(pipeline)
    except (ValueError, AttributeError) as error:
        name = type(pipeline).__name__
        raise BadInput(
            f"{name} takes no image and has no image-to-image form: give another pipeline"
        ) from error


def _dice(seed: int, key: str, index: int) -> torch.Generator:
    digest = blake2b(f"{seed}\x00{key}\x00{index}".encode(), digest_size=7).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest, "big"))


def square(pictures: Sequence[Image.Image], size: int) -> Float[Tensor, "pictures 3 size size"]:
    """Generated pictures as views: resized to the square, no cropping."""
    rows = [np.asarray(p.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)) for p in pictures]
    if not rows:
        return torch.zeros(0, 3, size, size)
    return torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).float() / 255
