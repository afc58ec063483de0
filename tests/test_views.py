"""Views: seeding, the facts of AugMix, the two engines against each other and against published code."""

import hashlib
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.transform import image_transform
from PIL import Image, ImageOps
from scipy import stats
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms.functional import resized_crop

from reta import views
from reta.errors import BadInput
from reta.views import Views, mix, params, pil, resample, tone, warp
from reta.views.fit import fit
from reta.views.params import OPS, Draws, draw


def scene(width: int = 90, height: int = 70, seed: int = 0) -> Image.Image:
    """Smooth light, hard edges and a little noise, like a photograph to a resampler."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / 30
    waves = [np.sin(a * x + b * y + c) for a, b, c in rng.uniform(0, 3, (3, 3))]
    pixels = 128 + 80 * np.stack(waves, -1) + rng.normal(0, 6, (height, width, 3))
    pixels[height // 3 : height // 2, width // 4 : width // 2] = rng.uniform(0, 255, 3)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def as_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def digest(tensor: torch.Tensor) -> str:
    return hashlib.blake2b(tensor.numpy().tobytes()).hexdigest()


# --- seeding


def test_draws_never_change() -> None:
    raw = params.uniforms(0, "a.jpg", 4)
    assert hashlib.blake2b(raw.tobytes(), digest_size=8).hexdigest() == "40e7bdc7f9f5de99"
    drawn = draw(7, "photos/ä.jpg", 3, 640, 480, 224)
    assert drawn.box.tolist() == [[55, 185, 402, 377], [98, 177, 309, 318]]
    assert drawn.op.tolist() == [
        [[8, -1, -1], [8, 1, 4], [1, 4, -1]],
        [[1, 0, -1], [6, 1, -1], [6, -1, -1]],
    ]


@settings(max_examples=50, deadline=None)
@given(st.integers(-(2**70), 2**70), st.text(), st.integers(1, 30), st.integers(1, 30))
def test_the_first_views_of_more_views_are_the_same(seed: int, key: str, few: int, many: int) -> None:
    few, many = sorted((few, many))
    some, all_ = (draw(seed, key, n, 64, 48, 32) for n in (few, many))
    for one, other in zip(some, all_, strict=True):
        assert np.array_equal(one, other[: few - 1])


def test_seed_key_and_view_each_matter() -> None:
    rows = [params.uniforms(seed, key, 3) for seed in (0, 1) for key in ("a", "b")]
    assert len(np.unique(np.concatenate(rows))) == 4 * 3 * params.WIDTH
    assert np.array_equal(params.uniforms(1, "a", 3), rows[2])
    assert not np.array_equal(params.uniforms(1, "0a", 1), params.uniforms(10, "a", 1))


@pytest.mark.parametrize("engine", views.ENGINES)
@pytest.mark.parametrize("recipe", views.RECIPES)
def test_batch_order_count_and_repeat_change_nothing(engine: str, recipe: str) -> None:
    maker = Views(recipe, n=7, size=24, seed=3, engine=engine)
    pictures = {f"{i}.jpg": scene(60 + 9 * i, 50, i) for i in range(5)}
    alone = {key: maker.make(image, key) for key, image in pictures.items()}
    keys = ["3.jpg", "0.jpg", "4.jpg", "1.jpg", "2.jpg", "0.jpg"]
    for key, made in zip(keys, maker.make_batch([pictures[k] for k in keys], keys), strict=True):
        assert torch.equal(made, alone[key])
    fewer = Views(recipe, n=3, size=24, seed=3, engine=engine).make(pictures["0.jpg"], "0.jpg")
    assert torch.equal(fewer, alone["0.jpg"][: len(fewer)])


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, keys = [scene(seed=i) for i in range(3)], ["a", "b", "c"]
    whole = views.make_batch(pictures, keys, n=9, size=28)
    for size in (1, 2**14, 2**15):
        monkeypatch.setitem(views.batched.CHUNK, "cpu", size)
        assert torch.equal(views.make_batch(pictures, keys, n=9, size=28), whole)


def test_any_number_of_workers_makes_the_same_views() -> None:
    makers = [Views(n=5, size=20, seed=1, engine=engine) for engine in views.ENGINES]
    jobs = [
        (maker, as_tensor(scene(seed=number)).numpy(), str(number)) for maker in makers for number in range(4)
    ]
    alone = [maker.make(image, key) for maker, image, key in jobs]
    assert len({digest(made) for made in alone}) == len(jobs)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["reta.views"])
    for workers in (1, 4):
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            assert all(map(torch.equal, pool.map(Views.make, *zip(*jobs, strict=True)), alone))


# --- the plain view


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
@pytest.mark.parametrize("size", [(90, 70), (61, 100), (33, 33), (20, 15), (31, 400)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_the_plain_view_is_what_open_clip_does(mode: str, size: tuple[int, int], interpolation: str) -> None:
    image = scene(*size)
    reference = image_transform(
        32, False, (0, 0, 0), (1, 1, 1), resize_mode=mode, interpolation=interpolation, fill_color=77
    )(image)
    exact, near = (
        views.make(image, "plain", size=32, engine=e, interpolation=interpolation, resize_mode=mode, fill=77)
        for e in ("pil", "batched")
    )
    assert exact.shape == (1, 3, 32, 32)
    assert torch.equal(exact[0], reference)
    assert (near - exact).abs().max() <= 1.01 / 255


@pytest.mark.parametrize("size", [(3, 5000), (5000, 3)])
@pytest.mark.parametrize("engine", views.ENGINES)
def test_a_strip_does_not_blow_up(size: tuple[int, int], engine: str) -> None:
    strip = Image.new("RGB", size, (9, 200, 30))
    made = views.make(strip, n=4, size=224, engine=engine)
    assert torch.equal(made[0], as_tensor(Image.new("RGB", (224, 224), (9, 200, 30))) / 255)
    assert fit(*resample.window(3, 5000, "shortest")[2:], 224).width == 224 * 16


# --- crops


def test_crop_boxes_follow_torchvision() -> None:
    many = np.concatenate([draw(0, str(k), 65, 160, 100, 32).box for k in range(150)])
    torch.manual_seed(0)
    image = torch.empty(3, 100, 160)
    theirs = np.array([RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(9000)])
    for measure in (
        lambda b: b[:, 2] * b[:, 3] / 16000,
        lambda b: b[:, 3] / b[:, 2],
        lambda b: b[:, 0],
        lambda b: b[:, 1],
        lambda b: (b[:, 0] + b[:, 2] == 100).astype(float),
    ):
        assert stats.ks_2samp(measure(many), measure(theirs)).pvalue > 1e-3
    half = np.concatenate([draw(0, str(k), 65, 160, 100, 32, (0.5, 1.0)).box for k in range(50)])
    assert 0.49 < (half[:, 2] * half[:, 3] / 16000).min() < 0.51


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 99))
def test_boxes_lie_inside_any_picture(width: int, height: int, low: float, high: float, seed: int) -> None:
    low, high = sorted((low, high))
    top, left, tall, wide = draw(seed, "", 40, width, height, 32, (low, high)).box.T
    assert min(top.min(), left.min()) >= 0 and min(tall.min(), wide.min()) >= 1
    assert (top + tall).max() <= height and (left + wide).max() <= width


def test_a_picture_too_long_for_any_try_is_cropped_in_the_middle() -> None:
    boxes = draw(0, "", 20, 1000, 10, 32).box
    assert (boxes == [0, 493, 10, 13]).all()
    assert (draw(0, "", 20, 10, 1000, 32).box == [493, 0, 13, 10]).all()


def test_crops_are_torchvisions_and_both_tensor_paths_agree_to_one_level() -> None:
    image, drawn = scene(200, 150), draw(0, "x", 33, 200, 150, 48)
    exact = torch.stack([as_tensor(pil.crop(image, drawn, view, 48)) for view in range(32)])
    for view in (0, 5, 9):
        theirs = resized_crop(image, *drawn.box[view].tolist(), [48, 48], InterpolationMode.BILINEAR)
        theirs = ImageOps.mirror(theirs) if drawn.flip[view] else theirs
        assert torch.equal(exact[view], as_tensor(theirs))
    for path in (resample.crops, resample.crops_by_products):
        difference = (path(as_tensor(image), drawn.box, drawn.flip, 48).int() - exact.int()).abs()
        assert difference.max() <= 1 and difference.float().mean() < 0.05


def test_products_resize_like_pil_also_in_small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    image, drawn = scene(61, 83), draw(0, "x", 9, 61, 83, 32)
    whole = resample.crops_by_products(as_tensor(image), drawn.box, drawn.flip, 32)
    monkeypatch.setattr(resample, "BUDGET", 1)
    assert (
        resample.crops_by_products(as_tensor(image), drawn.box, drawn.flip, 32).int() - whole.int()
    ).abs().max() <= 1
    for kind, taps in pil.FILTERS.items():
        for width, height in ((20, 30), (150, 140)):
            exact = as_tensor(image.resize((width, height), taps)).int()
            assert (
                resample.resize_by_products(as_tensor(image), height, width, kind).int() - exact
            ).abs().max() <= 1


# --- the facts of AugMix at severity 1


@pytest.fixture(scope="module")
def many() -> Draws:
    return params.joined([draw(5, str(key), 101, 300, 200, 224) for key in range(100)])


def test_operations_depths_and_weights_have_the_published_distributions(many: Draws) -> None:
    assert OPS == (
        "autocontrast",
        "equalize",
        "posterize",
        "rotate",
        "solarize",
        "shear_x",
        "shear_y",
        "translate_x",
        "translate_y",
    )
    depth = (many.op >= 0).sum(-1)
    assert stats.chisquare(np.bincount(depth.ravel(), minlength=4)[1:]).pvalue > 1e-3
    assert (np.diff((many.op >= 0).astype(int), axis=-1) <= 0).all(), "a chain ends once"
    for step in range(3):
        used = many.op[:, :, step][many.op[:, :, step] >= 0]
        assert stats.chisquare(np.bincount(used, minlength=9)).pvalue > 1e-3
    assert stats.kstest(many.keep, "uniform").pvalue > 1e-3
    np.testing.assert_allclose(many.weight.sum(1), 1, rtol=1e-6)
    for chain in range(3):
        assert stats.kstest(many.weight[:, chain], stats.beta(1, 2).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(many.weight[:, 0], many.weight[:, 1])[0, 1] + 0.5) < 0.03
    assert abs(many.flip.mean() - 0.5) < 0.02


def test_strengths_are_those_of_severity_one(many: Draws) -> None:
    def seen(name: str) -> np.ndarray:
        return many.amount[many.op == OPS.index(name)]

    assert set(seen("posterize")) == {4}
    assert set(seen("rotate")) == {-2, -1, 0, 1, 2}
    assert set(seen("solarize")) == set(range(231, 255))
    assert set(seen("translate_x")) == set(seen("translate_y")) == set(range(-7, 8))
    for name in ("shear_x", "shear_y"):
        assert stats.kstest(np.abs(seen(name)), stats.uniform(0.003, 0.027).cdf).pvalue > 1e-3
        assert abs((seen(name) > 0).mean() - 0.5) < 0.04
    assert set(draw(0, "", 500, 9, 9, 64).amount[draw(0, "", 500, 9, 9, 64).op == 7]) == {-2, -1, 0, 1, 2}


def published(base: Image.Image, drawn: Draws, view: int) -> np.ndarray:
    """The published recipe word by word, in double precision, with normalisation before mixing."""
    mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    size = base.size
    bilinear = Image.Resampling.BILINEAR

    def shifted(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
        return image.transform(size, Image.Transform.AFFINE, matrix, resample=bilinear)

    apply = {
        0: lambda i, a: ImageOps.autocontrast(i),
        1: lambda i, a: ImageOps.equalize(i),
        2: lambda i, a: ImageOps.posterize(i, int(a)),
        3: lambda i, a: i.rotate(a, resample=bilinear),
        4: lambda i, a: ImageOps.solarize(i, int(a)),
        5: lambda i, a: shifted(i, (1, a, 0, 0, 1, 0)),
        6: lambda i, a: shifted(i, (1, 0, 0, a, 1, 0)),
        7: lambda i, a: shifted(i, (1, 0, a, 0, 1, 0)),
        8: lambda i, a: shifted(i, (1, 0, 0, 0, 1, a)),
    }

    def normal(image: Image.Image) -> np.ndarray:
        return (np.asarray(image) / 255 - mean) / std

    mixed = np.zeros((*size, 3))
    for chain in range(3):
        image = base.copy()
        for step in range(3):
            if drawn.op[view, chain, step] >= 0:
                image = apply[int(drawn.op[view, chain, step])](image, float(drawn.amount[view, chain, step]))
        mixed += float(drawn.weight[view, chain]) * normal(image)
    keep = float(drawn.keep[view])
    return (keep * normal(base) + (1 - keep) * mixed) * std + mean


def test_the_pil_engine_is_the_published_recipe() -> None:
    image, size = scene(130, 100), 56
    made = views.make(image, n=25, size=size, seed=2, key="k", engine="pil")
    drawn = draw(2, "k", 25, 130, 100, size)
    for view in range(24):
        want = published(pil.crop(image, drawn, view, size), drawn, view)
        np.testing.assert_allclose(made[view + 1].permute(1, 2, 0).numpy(), want, atol=2e-6)


# --- the batched engine against PIL, operation by operation


def planes(image: Image.Image) -> torch.Tensor:
    return as_tensor(image).reshape(3, -1).long()


PICTURES = {
    "scene": scene(64, 64),
    "dark": scene(64, 64).point(lambda v: 20 + v // 5),
    "flat": Image.new("RGB", (64, 64), (0, 130, 255)),
    "two values": scene(64, 64).point(lambda v: 100 + 3 * (v > 128)),
    "noise": Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)),
    "few pixels": scene(9, 9),
}


@pytest.mark.parametrize("name", PICTURES)
def test_tone_operations_equal_pil(name: str) -> None:
    image = PICTURES[name]
    index = planes(image)
    counts = tone.histogram(index)
    assert counts.flatten().tolist() == image.histogram()
    tables = {"autocontrast": (tone.autocontrast(counts), 0), "equalize": (tone.equalize(counts), 0)}
    tables |= {f"posterize-{b}": (tone.posterize(torch.full((3,), float(b))), b) for b in range(1, 9)}
    tables |= {f"solarize-{t}": (tone.solarize(torch.full((3,), float(t))), t) for t in (0, 3, 231, 254, 256)}
    for operation, (table, amount) in tables.items():
        exact = planes(pil.operate(image, operation.split("-")[0], amount))
        assert torch.equal(tone.look_up(table, index), exact), operation
        assert torch.equal(tone.through(table, counts), tone.histogram(exact)), operation


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 255), st.integers(0, 255), st.integers(1, 3000), st.integers(0, 2**31))
def test_tables_equal_pil_for_any_histogram(low: int, high: int, pixels: int, seed: int) -> None:
    low, high = sorted((low, high))
    plane = np.random.default_rng(seed).integers(low, high + 1, (1, pixels), np.uint8)
    counts = tone.histogram(torch.from_numpy(plane).long())
    for ours, theirs in ((tone.autocontrast, ImageOps.autocontrast), (tone.equalize, ImageOps.equalize)):
        exact = np.asarray(theirs(Image.fromarray(plane)))[0]
        assert np.array_equal(ours(counts)[0].numpy()[plane[0]], exact)


@pytest.mark.parametrize("size", [64, 61, 224])
@pytest.mark.parametrize("op", warp.WARPS)
def test_warps_equal_pil_but_for_rounding(op: str, size: int) -> None:
    image = scene(size, size)
    amounts = {
        "rotate": [-2, -1, 1, 2, 30],
        "shear_x": [-0.03, -0.0111, 0.003, 0.0299],
        "shear_y": [-0.03, -0.0111, 0.003, 0.0299],
        "translate_x": [-7, -1, 0, 1, 7, 70],
        "translate_y": [-7, -1, 0, 1, 7, 70],
    }[op]
    for amount in amounts:
        exact = as_tensor(pil.operate(image, op, amount)).int()
        stack = as_tensor(image).repeat(2, 1, 1, 1)
        axis = -1 if op.endswith("x") else -2
        if op == "rotate":
            ours = warp.rotate(stack, amount)
        elif op.startswith("shear"):
            ours = warp.shear(stack, np.array([amount, -amount]), axis)
        else:
            ours = warp.translate(stack, amount, axis)
        difference = (ours[0].int() - exact).abs()
        share = (difference > 0).float().mean()
        assert difference.max() <= 1 and share < (0.02 if op == "rotate" else 1e-3), (amount, share)
        assert op.startswith("translate") is False or share == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=4))
def test_both_ways_to_slide_rows_agree(size: int, slopes: list[float]) -> None:
    images = torch.randint(0, 256, (len(slopes), 3, size, size), dtype=torch.uint8)
    whole = np.floor(np.array(slopes)[:, None] * (np.arange(size) + 0.5)).astype(np.int64)
    reach = int(np.abs(slopes).max() * size) + 2
    assert torch.equal(warp.slid_by_bands(images, whole, reach), warp.slid_by_gather(images, whole, reach))


def test_warps_keep_flat_areas_flat_and_leave_black_outside() -> None:
    flat = torch.full((1, 3, 64, 64), 201, dtype=torch.uint8)
    for out in (warp.rotate(flat, 2), warp.shear(flat, np.array([0.03]), -1), warp.translate(flat, -5, -2)):
        assert set(out.unique().tolist()) == {0, 201}


@pytest.mark.parametrize("size", [64, 61])
def test_the_engines_agree_on_whole_views(size: int) -> None:
    image = scene(150, 120)
    exact, near = (views.make(image, n=64, size=size, seed=4, key="k", engine=e) for e in ("pil", "batched"))
    difference = (exact - near).abs() * 255
    assert difference[0].max() <= 1.01
    assert difference.mean() < 0.05
    assert (difference > 1.5).float().mean() < 2e-3, "a level more or less near a threshold"


def test_every_chain_alone_agrees_with_pil_from_the_same_base() -> None:
    """With equal bases only warps round differently, so chains of tone operations agree exactly."""
    base = scene(48, 48)
    drawn = params.joined([draw(s, "", 41, 48, 48, 48) for s in range(3)])
    drawn = drawn._replace(keep=np.zeros_like(drawn.keep))
    out = torch.empty(len(drawn.keep), 3, 48, 48)
    mix.augmix(as_tensor(base).repeat(len(out), 1, 1, 1), drawn, out)
    warps = [OPS.index(name) for name in warp.WARPS]
    exact_views = 0
    for view, made in enumerate(out):
        difference = (made - pil.augmix(base, drawn, view)).abs()
        assert difference.mean() < 5e-4
        if not np.isin(drawn.op[view], warps).any():
            exact_views += 1
            assert difference.max() < 1e-6
    assert exact_views >= 1


def test_pixel_statistics_of_the_engines_agree_over_different_seeds() -> None:
    image = scene(160, 120)
    measures = {
        "mean": lambda v: v.mean((1, 2, 3)),
        "contrast": lambda v: v.flatten(1).std(1),
        "black": lambda v: (v < 0.02).float().mean((1, 2, 3)),
        "edges": lambda v: v.diff(dim=-1).abs().mean((1, 2, 3)),
    }
    sets = [
        torch.cat([views.make(image, n=101, size=48, seed=s, key=e, engine=e)[1:] for s in range(3)])
        for e in views.ENGINES
    ]
    for name, measure in measures.items():
        assert stats.ks_2samp(*(measure(s).numpy() for s in sets)).pvalue > 1e-3, name
    plain_crops = views.make(image, "crops", n=301, size=48, key="c")[1:]
    edges = measures["edges"]
    assert stats.ks_2samp(edges(sets[0]).numpy(), edges(plain_crops).numpy()).pvalue < 1e-3, (
        "the test can fail"
    )


# --- the front door


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.integers(1, 40),
    st.integers(1, 6),
    st.sampled_from(views.RECIPES),
)
def test_any_picture_gives_views_in_range(width: int, height: int, size: int, n: int, recipe: str) -> None:
    image = Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8))
    made = views.make(image, recipe, n, size, key="x")
    assert made.shape == (1 if recipe == "plain" else n, 3, size, size) and made.dtype == torch.float32
    assert made.isfinite().all() and made.min() >= 0 and made.max() <= 1


@pytest.mark.parametrize("engine", views.ENGINES)
def test_a_white_picture_stays_in_range(engine: str) -> None:
    """AugMix weights sum to one only up to rounding, and a model refuses pixels above one."""
    white = np.full((70, 70, 3), 255, np.uint8)
    assert views.make(white, "augmix", n=64, size=32, key="w", engine=engine).max() == 1


def test_crops_are_the_bases_of_augmix_and_recipes_share_row_zero() -> None:
    image = scene()
    made = {recipe: views.make(image, recipe, 6, 40, key="k") for recipe in views.RECIPES}
    assert torch.equal(made["plain"][0], made["augmix"][0])
    assert torch.allclose(made["crops"][0], made["augmix"][0], atol=1e-7)
    crop = draw(0, "k", 6, *image.size, 40)
    exact = pil.tensor(pil.crop(image, crop, 2, 40))
    assert (made["crops"][3] - exact).abs().max() < 1.01 / 255


def test_any_source_and_device_argument() -> None:
    image = scene()
    want = views.make(image, n=3, size=16, key="k")
    for source in (np.asarray(image), as_tensor(image)):
        assert torch.equal(views.make(source, n=3, size=16, key="k"), want)
    for engine in views.ENGINES:
        made = views.make_batch([image], ["k"], n=3, size=16, device="cpu", engine=engine)
        assert made.device.type == "cpu" and math.isclose(made.sum(), want.sum(), rel_tol=1e-3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"recipe": "augmax"}, "did you mean 'augmix'"),
        ({"engine": "cv2"}, "unknown engine"),
        ({"interpolation": "lanczos"}, "unknown interpolation"),
        ({"resize_mode": "shortets"}, "did you mean 'shortest'"),
        ({"n": 0}, "at least 1"),
        ({"size": 0}, "at least 1"),
        ({"area": (0.5, 0.2)}, "low <= high"),
        ({"area": (0.0, 1.0)}, "low <= high"),
    ],
)
def test_misuse_names_the_next_step(wrong: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Views(**wrong)
    with pytest.raises(BadInput, match="one key for each"):
        Views(n=2, size=8).make_batch([scene()], ["a", "b"])
    with pytest.raises(BadInput, match="one key for each"):
        Views(n=2, size=8).make_batch([], [])
