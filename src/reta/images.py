"""Safe decoding: any picture a person may hand over becomes an upright RGB image, or a typed error.

What is done to odd pictures: EXIF orientation is applied; of an animation the first frame is taken; transparent
parts are laid on white; CMYK, palette, grey and 1-bit become RGB; of 16 bits the upper eight are kept.
Pixels as floats have no defined white and are refused.
"""

from __future__ import annotations

import io
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from reta.errors import BadImage, BadInput

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"P5", b"P6")
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Limits:
    """The largest file and the largest picture that are decoded; both are checked before any decoding.

    >>> Limits(pixels=10_000_000).bytes
    67108864
    """

    bytes: int = 64 * 2**20
    pixels: int = 64_000_000


DEFAULT = Limits()


def decode(source: Any, limits: Limits = DEFAULT) -> Image.Image:
    """An upright RGB image from a path, bytes, a PIL image, or uint8 pixels (HWC, CHW or HW).

    Raises `BadImage` whose `reason` is one of missing, empty, bytes, pixels, format, truncated, unreadable;
    `BadInput` for a source of another kind. Arrays of three axes are read as HWC and tensors as CHW where
    the shape allows both.

    >>> decode(np.zeros((4, 6, 3), np.uint8)).size
    (6, 4)
    """
    if isinstance(source, (np.ndarray, Tensor)):
        return _from_pixels(source, limits)
    if isinstance(source, Image.Image):
        with _typed("this PIL image"):
            return _upright(source, limits, "this PIL image")
    name = _name(source)
    data = _read(source, limits, name) if isinstance(source, (str, os.PathLike)) else bytes(source)
    _check_bytes(len(data), limits, name)
    _check_webp(data, limits, name)
    with _typed(name, data), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        return _upright(image, limits, name)


def pixels(source: Any, limits: Limits = DEFAULT) -> UInt8[Tensor, "3 height width"]:
    """The same as a uint8 tensor. A uint8 tensor [3, H, W] is passed through, on its device.

    >>> pixels(Image.new("L", (6, 4))).shape
    torch.Size([3, 4, 6])
    """
    if isinstance(source, Tensor) and source.dtype == torch.uint8 and source.ndim == 3 and len(source) == 3:
        _check_pixels(source.shape[2], source.shape[1], limits, "this tensor")
        return source
    return torch.from_numpy(np.array(decode(source, limits))).permute(2, 0, 1)


def _name(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return repr(os.fspath(source))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return f"these {len(source)} bytes"
    raise BadInput(
        f"an image is a path, bytes, a PIL image or uint8 pixels, not {type(source).__name__}: "
        "read it first, or pass its path"
    )


def _read(source: str | os.PathLike[str], limits: Limits, name: str) -> bytes:
    path = Path(source)
    try:
        if not path.exists():
            raise BadImage(
                f"{name}: there is no such file; check the path (nothing is downloaded)", "missing"
            )
        if not path.is_file():
            raise BadImage(f"{name} is not a regular file; name the images inside it", "unreadable")
        _check_bytes(path.stat().st_size, limits, name)
        with path.open("rb") as file:
            return file.read(limits.bytes + 1)
    except (OSError, ValueError) as error:
        raise BadImage(
            f"{name} cannot be read ({error}); check its name and permissions", "unreadable"
        ) from error


def _check_bytes(count: int, limits: Limits, name: str) -> None:
    if count == 0:
        raise BadImage(f"{name}: the file is empty; fetch it again", "empty")
    if count > limits.bytes:
        raise BadImage(
            f"{name}: {count:,} bytes is over the limit of {limits.bytes:,}; "
            "shrink it, or raise Limits(bytes=...) if you trust it",
            "bytes",
        )


def _check_pixels(width: int, height: int, limits: Limits, name: str) -> None:
    if width * height == 0:
        raise BadImage(f"{name}: {width} x {height} has no pixels; leave it out", "empty")
    if width * height > limits.pixels:
        raise BadImage(
            f"{name}: {width} x {height} pixels is over the limit of {limits.pixels:,}; "
            "shrink it, or raise Limits(pixels=...) if you trust it",
            "pixels",
        )


def _check_webp(data: bytes, limits: Limits, name: str) -> None:
    """WebP canvases are allocated when the file is opened, so their size is read here, before that."""
    if data[8:16] == b"WEBPVP8X" and len(data) >= 30:
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        _check_pixels(width, height, limits, name)
    if data[8:16] == b"WEBPVP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        _check_pixels((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, limits, name)


@contextmanager
def _typed(name: str, data: bytes = b"") -> Iterator[None]:
    """Whatever the decoder raises on a damaged file becomes a `BadImage`; its warnings are not shown."""
    try:
        with _QUIET:
            yield
    except (BadImage, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        size = str(error).partition(", could be")[0].lower()
        raise BadImage(f"{name}: {size}; shrink it first", "pixels") from error
    except UnidentifiedImageError as error:
        if data.startswith(_MAGIC):
            message = f"{name} begins like an image but its header is damaged; fetch it again"
            raise BadImage(message, "unreadable") from error
        allowed = ", ".join(FORMATS)
        raise BadImage(
            f"{name} is not an image of a known format ({allowed}); convert it first", "format"
        ) from error
    except Exception as error:
        cut = isinstance(error, EOFError) or "truncated" in str(error).lower()
        reason = "truncated" if cut else "unreadable"
        raise BadImage(f"{name} cannot be decoded ({error}); fetch or export it again", reason) from error


def _upright(image: Image.Image, limits: Limits, name: str) -> Image.Image:
    _check_pixels(*image.size, limits, name)
    image.load()
    turn = _TURNS.get(_orientation(image))
    return _rgb(image if turn is None else image.transpose(turn), name)


def _orientation(image: Image.Image) -> int:
    try:
        return image.getexif().get(0x0112, 1)
    except Exception:  # a damaged EXIF block says nothing about the pixels
        return 1


def _rgb(image: Image.Image, name: str) -> Image.Image:
    if image.mode == "F":
        raise BadImage(
            f"{name} holds floats, which have no defined white; save it with 8 or 16 bits", "format"
        )
    if image.mode.startswith("I"):
        wide = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        return Image.fromarray((wide >> 8).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _from_pixels(source: np.ndarray | Tensor, limits: Limits) -> Image.Image:
    shape = f"{type(source).__name__} of {source.dtype} {tuple(source.shape)}"
    if str(source.dtype).removeprefix("torch.") != "uint8":
        raise BadInput(
            f"{shape}: pixels are uint8 in 0..255; for values in [0, 1] pass (x * 255).round() as uint8"
        )
    array = source.detach().cpu().numpy() if isinstance(source, Tensor) else source
    if array.ndim == 3 and _channels_first(array, prefer=isinstance(source, Tensor)):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise BadInput(
            f"{shape}: one image is HW, HWC or CHW with 1, 3 or 4 channels; pass images one by one"
        )
    _check_pixels(array.shape[1], array.shape[0], limits, "this array")
    return _rgb(Image.fromarray(np.ascontiguousarray(array)), "this array")


def _channels_first(array: np.ndarray, prefer: bool) -> bool:
    first, last = array.shape[0] in (1, 3, 4), array.shape[2] in (1, 3, 4)
    return first and (prefer or not last)


class _Quiet:
    """No warnings from Pillow while any thread decodes: filters are process-wide, so enter and leave once."""

    def __init__(self) -> None:
        self.lock, self.depth = threading.Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            if self.depth == 0:
                self.saved = warnings.catch_warnings()
                self.saved.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self.depth += 1

    def __exit__(self, *raised: object) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                self.saved.__exit__(None, None, None)


_QUIET = _Quiet()
