"""Decoding: every good picture upright, every bad one refused with its reason, bombs without memory."""

import io
import os
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin

from reta import images
from reta.errors import BadImage, BadInput
from reta.images import Limits, decode

WIDTH, HEIGHT = 40, 24
CORNERS = {
    "top left": (220, 30, 30),
    "top right": (30, 200, 40),
    "bottom left": (40, 40, 210),
    "bottom right": (240,) * 3,
}


def scene(mode: str = "RGB") -> Image.Image:
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    halves = (
        (slice(None, HEIGHT // 2), slice(HEIGHT // 2, None)),
        (slice(None, WIDTH // 2), slice(WIDTH // 2, None)),
    )
    for index, colour in enumerate(CORNERS.values()):
        pixels[halves[0][index // 2], halves[1][index % 2]] = colour
    return Image.fromarray(pixels).convert(mode)


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def turned(orientation: int) -> Image.Image:
    """The scene as a camera held that way stores it: the inverse of what the viewer has to do."""
    inverse = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}
    return scene().transpose(Image.Transpose(inverse[orientation]))


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def png16() -> bytes:
    wide = np.asarray(scene()).astype(">u2") * 257
    return png(WIDTH, HEIGHT, 16, 2, b"".join(b"\0" + row.tobytes() for row in wide))


def transparent(mode: str) -> Image.Image:
    """The white corner is black but fully transparent."""
    image = scene("RGBA")
    hole = Image.new("RGBA", (WIDTH // 2, HEIGHT // 2), (0, 0, 0, 0))
    image.paste(hole, (WIDTH // 2, HEIGHT // 2))
    return image.quantize(16) if mode == "P" else image


def good_colour() -> dict[str, bytes]:
    two = [scene().rotate(180), scene("L").convert("RGB")]
    tiff = TiffImagePlugin.ImageFileDirectory_v2()
    tiff[0x0112] = 6
    made = {
        f"plain.{kind}": encoded(scene(), kind)
        for kind in ("jpeg", "png", "webp", "bmp", "gif", "tiff", "ppm")
    }
    made |= {f"turned-{n}.jpg": encoded(turned(n), "jpeg", exif=exif(n), quality=95) for n in range(2, 9)}
    made |= {f"turned.{k}": encoded(turned(6), k, exif=exif(6)) for k in ("png", "webp")}
    return made | {
        "turned.tiff": encoded(turned(6), "tiff", tiffinfo=tiff),
        "progressive.jpg": encoded(scene(), "jpeg", progressive=True, quality=95),
        "cmyk.jpg": encoded(scene("CMYK"), "jpeg", quality=95),
        "cmyk.tiff": encoded(scene("CMYK"), "tiff"),
        "ycbcr.tiff": encoded(scene("YCbCr"), "tiff"),
        "lossless.webp": encoded(scene(), "webp", lossless=True),
        "packed.tiff": encoded(scene(), "tiff", compression="tiff_lzw"),
        "palette.png": encoded(scene().quantize(8), "png"),
        "alpha.png": encoded(transparent("RGBA"), "png"),
        "alpha.webp": encoded(transparent("RGBA"), "webp", lossless=True),
        "alpha-palette.png": encoded(transparent("P"), "png"),
        "key-colour.png": encoded(scene(), "png", transparency=CORNERS["bottom right"]),
        "sixteen.png": png16(),
        "animated.gif": encoded(scene(), "gif", save_all=True, append_images=two),
        "animated.webp": encoded(scene(), "webp", save_all=True, append_images=two, quality=95),
        "animated.png": encoded(scene(), "png", save_all=True, append_images=two),
        "two-pictures.mpo": encoded(scene(), "mpo", save_all=True, append_images=two),
        "damaged-exif.jpg": encoded(scene(), "jpeg", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f", quality=95),
        "no suffix, a space\nand a newline": encoded(scene(), "png"),
        "really-a-png.jpg": encoded(scene(), "png"),
    }


def good_grey() -> dict[str, bytes]:
    wide = np.asarray(scene("L")).astype(np.uint16) * 257
    return {
        "grey.jpg": encoded(scene("L"), "jpeg", quality=95),
        "grey.ppm": encoded(scene("L"), "ppm"),
        "grey-alpha.png": encoded(scene("LA"), "png"),
        "grey-16.png": encoded(Image.fromarray(wide), "png"),
        "grey-16.tiff": encoded(Image.fromarray(wide), "tiff"),
        "grey-32.tiff": encoded(Image.fromarray(wide.astype(np.int32)), "tiff"),
        "grey-16.ppm": encoded(Image.fromarray(wide), "ppm"),
    }


def damaged() -> dict[str, tuple[bytes, str]]:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    whole = {kind: encoded(noise, kind) for kind in ("jpeg", "png", "gif", "bmp", "ppm", "tiff", "webp")}
    cut = {f"cut.{kind}": (data[: len(data) * 2 // 3], "truncated") for kind, data in whole.items()}
    cut["cut.webp"] = (
        cut["cut.webp"][0],
        "unreadable",
    )  # libwebp says no more than "could not create decoder"
    return cut | {
        "empty.jpg": (b"", "empty"),
        "text.jpg": (b"this is a shopping list, not a picture\n" * 9, "format"),
        "page.png": (b"<!doctype html><html>404 not found</html>", "format"),
        "drawing.svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "format"),
        "archive.jpg": (b"PK\x03\x04" + bytes(60), "format"),
        "document.pdf": (b"%PDF-1.7\n" + bytes(60), "format"),
        "postscript.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "format"),
        "random.png": (np.random.default_rng(1).bytes(500), "format"),
        "head-only.jpg": (whole["jpeg"][:30], "truncated"),
        "head-only.png": (whole["png"][:20], "truncated"),
        "damaged-head.png": (whole["png"][:8] + b"\xff" * 60, "unreadable"),
        "bad-stream.png": (png(8, 8, 8, 2, b"")[:41] + b"\xff" * 30, "unreadable"),
        "no-pixels.png": (png(0, 8, 8, 2, b"\0"), "unreadable"),
        "floats.tiff": (encoded(Image.fromarray(np.zeros((8, 8), np.float32)), "tiff"), "format"),
        "big-file.png": (encoded(noise, "png") + bytes(300_000), "bytes"),
        "wide.png": (encoded(Image.new("1", (2000, 1001)), "png"), "pixels"),
    }


GOOD, GREY, BAD = good_colour(), good_grey(), damaged()
SMALL = Limits(bytes=300_000, pixels=2_000_000)


def check_upright(image: Image.Image, grey: bool = False) -> None:
    assert type(image) is Image.Image and image.mode == "RGB" and image.size == (WIDTH, HEIGHT)
    got = np.asarray(image).astype(int)
    want = np.asarray(scene("L" if grey else "RGB").convert("RGB")).astype(int)
    for y, x in ((5, 9), (5, 30), (18, 9), (18, 30)):
        assert np.abs(got[y, x] - want[y, x]).max() <= 30, (y, x, got[y, x], want[y, x])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for name, data in [*GOOD.items(), *GREY.items(), *((name, data) for name, (data, _) in BAD.items())]:
        (folder / name).write_bytes(data)
    (folder / "folder.jpg").mkdir()
    os.mkfifo(folder / "pipe.jpg")
    (folder / "dangling.jpg").symlink_to(folder / "nowhere.jpg")
    return folder


def test_a_mixed_folder_is_sorted_into_good_and_bad(folder: Path) -> None:
    reasons = {}
    for path in sorted(folder.iterdir()):
        try:
            check_upright(decode(path, SMALL), grey=path.name in GREY)
        except BadImage as error:
            reasons[path.name] = error.reason if repr(str(path)) in str(error) else "does not name the file"
    want = {name: reason for name, (_, reason) in BAD.items()}
    assert reasons == want | {"folder.jpg": "unreadable", "pipe.jpg": "unreadable", "dangling.jpg": "missing"}


@pytest.mark.parametrize("name", sorted(GOOD))
def test_bytes_and_pil_images_decode_like_their_file(name: str) -> None:
    check_upright(decode(GOOD[name]))
    check_upright(decode(bytearray(GOOD[name])))
    if name != "damaged-exif.jpg":
        check_upright(decode(Image.open(io.BytesIO(GOOD[name]))))


@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name, (_, reason) in BAD.items()])
def test_bad_bytes_have_the_same_reason_and_a_next_step(name: str, reason: str) -> None:
    with pytest.raises(BadImage, match=r"fetch|convert|shrink|save|leave") as raised:
        decode(BAD[name][0], SMALL)
    assert raised.value.reason == reason


def test_transparent_pixels_are_white_and_half_transparent_ones_between() -> None:
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (0, 0, 0, 128))
    assert np.asarray(decode(image)).tolist() == [[[255] * 3, [127] * 3]]


def test_sixteen_bits_keep_the_upper_eight() -> None:
    wide = np.array([[0, 255, 256, 513, 65535]], np.uint16)
    assert np.asarray(decode(Image.fromarray(wide)))[0, :, 0].tolist() == [0, 0, 1, 2, 255]


def test_decoding_does_not_touch_a_given_image() -> None:
    source = Image.open(io.BytesIO(GOOD["turned-6.jpg"]))
    first = np.asarray(decode(source))
    assert source.size == (HEIGHT, WIDTH)
    rgb = scene()
    decode(rgb).putpixel((0, 0), (0, 0, 0))
    assert rgb.getpixel((0, 0)) == CORNERS["top left"]
    assert np.array_equal(first, np.asarray(decode(source)))


@pytest.mark.parametrize(
    "make", [np.asarray, lambda a: torch.from_numpy(np.array(a))], ids=["array", "tensor"]
)
@pytest.mark.parametrize("order", ["HWC", "CHW", "HW", "HWC1", "CHW1", "RGBA"])
def test_uint8_pixels_in_any_layout(make, order: str) -> None:
    colour, grey = np.asarray(scene()), np.asarray(scene("L"))
    layouts = {
        "HWC": colour,
        "CHW": colour.transpose(2, 0, 1),
        "HW": grey,
        "HWC1": grey[..., None],
        "CHW1": grey[None],
        "RGBA": np.asarray(transparent("RGBA")),
    }
    check_upright(decode(make(layouts[order])), grey=order in ("HW", "HWC1", "CHW1"))


def test_shapes_that_fit_both_layouts_are_read_by_kind() -> None:
    pixels = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    assert np.array_equal(np.asarray(decode(pixels)), pixels)
    assert np.array_equal(np.asarray(decode(torch.from_numpy(pixels))), pixels.transpose(1, 2, 0))


def test_pixels_gives_the_same_as_decode_and_passes_tensors_through() -> None:
    tensor = images.pixels(GOOD["plain.png"])
    assert tensor.dtype == torch.uint8
    assert np.array_equal(tensor.permute(1, 2, 0).numpy(), np.asarray(scene()))
    assert images.pixels(tensor) is tensor
    with pytest.raises(BadImage, match="limit"):
        images.pixels(tensor, Limits(pixels=100))


@pytest.mark.parametrize(
    "source",
    [
        None,
        7,
        ["a.jpg"],
        torch.rand(3, 8, 8),
        np.zeros((8, 8, 3)),
        np.zeros((2, 3, 8, 8), np.uint8),
        np.zeros((8, 8, 5), np.uint8),
    ],
    ids=["none", "number", "list", "float tensor", "float array", "batch", "five channels"],
)
def test_misuse_is_bad_input(source) -> None:
    with pytest.raises(BadInput, match=r"path|uint8|one by one"):
        decode(source)


def test_missing_file_and_odd_names() -> None:
    for name in ("no/such/file.jpg", "https://example.org/cat.jpg"):
        with pytest.raises(BadImage, match="no such file") as raised:
            decode(name)
        assert raised.value.reason == "missing"
    for name in ("a\0b.jpg", "x" * 5000):
        with pytest.raises(BadImage) as raised:
            decode(name)
        assert raised.value.reason in ("unreadable", "missing")
    with pytest.raises(BadImage, match="no pixels"):
        decode(np.zeros((0, 5, 3), np.uint8))


BOMBS = """
import io, struct, sys, zlib
from PIL import Image
from reta.errors import BadImage
from reta.images import decode

def small(kind, **options):
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, kind, **options)
    return bytearray(buffer.getvalue())

def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

def patched(data, at, fmt, *values):
    data = bytearray(data)
    struct.pack_into(fmt, data, at, *values)
    return bytes(data)

packer = zlib.compressobj(9)
rows = b"".join(packer.compress(bytes(2501)) for _ in range(12000)) + packer.flush()
head = struct.pack(">IIBBBBB", 20000, 12000, 1, 0, 0, 0, 0)
jpeg = small("jpeg")
tiff = small("tiff", compression="raw")
entry = struct.unpack_from("<I", tiff, 4)[0] + 2
bombs = {
    "png": b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""),
    "jpeg": patched(jpeg, jpeg.index(b"\\xff\\xc0") + 5, ">HH", 9000, 9000),
    "gif": patched(small("gif"), 6, "<HH", 60000, 60000),
    "bmp": patched(small("bmp"), 18, "<ii", 30000, 30000),
    "ppm": b"P6\\n30000 30000\\n255\\n" + bytes(99),
    "tiff": patched(patched(tiff, entry, "<HHII", 256, 4, 1, 30000), entry + 12, "<HHII", 257, 4, 1, 30000),
    "webp": patched(small("webp", lossless=True), 21, "<I", 16382 | 16382 << 14),
    "webp-canvas": b"RIFF" + struct.pack("<I", 4 + 18) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4)
    + (9000).to_bytes(3, "little") * 2,
}

def peak():  # of this process alone: ru_maxrss begins with the parent's
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) // 1024

decode(bytes(small("png")))
before = peak()
for name, data in bombs.items():
    try:
        decode(data)
    except BadImage as error:
        print(name, error.reason)
print("growth", peak() - before)
decode(Image.new("RGB", (6000, 6000)))
print("control", peak() - before)
"""


def test_bombs_are_refused_without_memory() -> None:
    done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, check=True)
    lines = dict(line.split() for line in done.stdout.splitlines())
    growth, control = int(lines.pop("growth")), int(lines.pop("control"))
    assert lines == dict.fromkeys(
        ("png", "jpeg", "gif", "bmp", "ppm", "tiff", "webp", "webp-canvas"), "pixels"
    )
    assert growth < 16 < 90 < control, "megabytes; the control shows that the measure sees an allocation"


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(GOOD)), st.data())
def test_any_damage_gives_an_image_or_a_typed_error(name: str, data) -> None:
    damaged = bytearray(GOOD[name])
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        outcome = decode(bytes(damaged), SMALL).mode
    except BadImage as error:
        outcome = error.reason
    assert outcome in ("RGB", "empty", "bytes", "pixels", "format", "truncated", "unreadable")


def test_many_threads_decode_without_warnings_or_leftover_filters() -> None:
    import warnings

    filters, results = list(warnings.filters), []

    def work() -> None:
        for name in ("damaged-exif.jpg", "alpha-palette.png", "animated.png") * 5:
            results.append(decode(GOOD[name]).size)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(WIDTH, HEIGHT)] * 60
    assert warnings.filters == filters
