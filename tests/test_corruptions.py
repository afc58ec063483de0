"""The fifteen corruptions, each against its definition."""

import io
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reta.data import corruptions
from reta.data.corruptions import (
    NAMES,
    blur,
    corrupt,
    corrupt_picture,
    digital,
    fields,
    noise,
    parse,
    weather,
)
from reta.data.corruptions.chance import Chance
from reta.errors import BadInput

FIXED = ("brightness", "contrast", "defocus_blur", "pixelate", "jpeg_compression", "zoom_blur")


def scene(height: int = 64, width: int = 64, seed: int = 0) -> torch.Tensor:
    """Waves, a few hard edges and fine grain, uint8 [3, H, W]."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / 9
    pixels = 128 + 70 * np.stack([np.sin(a * x + b * y + c) for a, b, c in rng.uniform(0, 2, (3, 3))])
    pixels[:, height // 3 : height // 2, width // 4 : width // 2] = rng.uniform(0, 255, (3, 1, 1))
    return torch.from_numpy((pixels + rng.normal(0, 5, pixels.shape)).clip(0, 255).astype(np.uint8))


def one(name: str, severity: int, image: torch.Tensor, key: str = "k", seed: int = 0) -> torch.Tensor:
    return corrupt(image[None], name, severity, [key], seed)[0]


def unit(image: torch.Tensor) -> np.ndarray:
    return image.double().numpy() / 255


def to_levels(values: np.ndarray) -> np.ndarray:
    return np.rint(values.clip(0, 1) * 255)


# --- what holds for all


@pytest.mark.parametrize("name", NAMES)
def test_keeps_shape_and_kind_and_depends_on_the_key_alone(name: str) -> None:
    images = torch.stack([scene(seed=i) for i in range(3)])
    keys = ["a", "b", "ü/c\n.jpg"]
    before = images.clone()
    together = corrupt(images, name, 3, keys)
    assert together.dtype == torch.uint8 and together.shape == images.shape
    assert torch.equal(images, before), "the input is left alone"
    for image, key, made in zip(images, keys, together, strict=True):
        assert torch.equal(one(name, 3, image, key), made)
    turned = corrupt(images.flip(0), name, 3, keys[::-1]).flip(0)
    assert torch.equal(turned, together)
    same_key, same_seed = one(name, 3, images[0], "b"), one(name, 3, images[0], "a", seed=1)
    assert torch.equal(same_key, together[0]) == torch.equal(same_seed, together[0]) == (name in FIXED)


def distance(made: torch.Tensor, clean: torch.Tensor) -> float:
    return (made.float() - clean.float()).pow(2).mean().sqrt().item()


def unexplained(made: torch.Tensor, clean: torch.Tensor) -> float:
    """The share of the variance that is not the picture's: darkening alone does not count."""
    return (
        1 - torch.corrcoef(torch.stack([made.float().flatten(), clean.float().flatten()]))[0, 1].item() ** 2
    )


def blockiness(made: torch.Tensor, clean: torch.Tensor) -> float:
    """The share of pixels equal to their neighbour: where blocks begin does not count."""
    return (made[..., 1:] == made[..., :-1]).float().mean().item()


MEASURE = {"frost": unexplained, "pixelate": blockiness}
# The published elastic transform is strongest at 1 and 2 (its affine map) and starts anew at 3; of the published
# glass 1 has twice the passes of 2.
RISING = {"elastic_transform": [(1, 2), (3, 4, 5)], "glass_blur": [(1, 3, 4, 5), (2, 3, 4, 5)]}


@pytest.mark.parametrize("side", [64, 224])
@pytest.mark.parametrize("name", NAMES)
def test_each_severity_harms_more(name: str, side: int) -> None:
    images = torch.stack([scene(side, side, seed) for seed in range(3)])
    made = {severity: corrupt(images, name, severity, ["a", "b", "c"]) for severity in range(1, 6)}
    harm = {severity: MEASURE.get(name, distance)(picture, images) for severity, picture in made.items()}
    for run in RISING.get(name, [(1, 2, 3, 4, 5)]):
        assert all(harm[low] < harm[high] for low, high in pairwise(run)), harm
    assert all(distance(picture, images) > 1.5 for picture in made.values())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 5), st.integers(1, 40), st.integers(1, 90))
def test_any_size_and_severity(name: str, severity: int, height: int, width: int) -> None:
    image = scene(max(height, 6), max(width, 6))[:, :height, :width]
    made = one(name, severity, image)
    assert made.shape == image.shape and made.dtype == torch.uint8


@pytest.mark.parametrize("name", NAMES)
def test_strips_cost_no_more_than_pictures(name: str) -> None:
    assert one(name, 5, scene(3, 2000)).shape == (3, 3, 2000)


@pytest.mark.parametrize(
    "name", ["gaussian_noise", "defocus_blur", "snow", "frost", "fog", "jpeg_compression"]
)
def test_a_picture_is_harmed_alike_at_any_size(name: str) -> None:
    """Corrupt, then look at it in 32 pixels: the harm done at 64 and at 224 is of one magnitude."""
    large = scene(224, 224)
    small = fields.resized(large[None].float(), 64, 64)[0].round().to(torch.uint8)

    def harm(image: torch.Tensor) -> float:
        pair = torch.stack([one(name, 4, image, key).float() for key in "abcd"]), image[None].float()
        made, clean = (fields.resized(p, 32, 32) for p in pair)
        return (made - clean).pow(2).mean().sqrt().item()

    assert 0.4 < harm(small) / harm(large) < 2.5


# --- each against its definition


def test_gaussian_noise_has_the_deviation_asked_for() -> None:
    grey = torch.full((1, 3, 224, 224), 128, dtype=torch.uint8)
    for severity, sigma in enumerate((0.08, 0.12, 0.18), 1):
        made = unit(corrupt(grey, "gaussian_noise", severity, ["k"])) - 128 / 255
        assert abs(made.std() / sigma - 1) < 0.02 and abs(made.mean()) < 0.002
    small = unit(corrupt(grey[..., :64, :64], "gaussian_noise", 3, ["k"])).std()
    assert abs(small / (0.18 * math.sqrt(64 / 224)) - 1) < 0.03


def test_shot_noise_is_poisson() -> None:
    grey = torch.full((1, 3, 224, 224), 64, dtype=torch.uint8)
    counts = unit(corrupt(grey, "shot_noise", 2, ["k"])) * 25
    assert np.abs(counts - np.rint(counts)).max() < 0.06, "whole photons, up to the rounding of levels"
    mean = 64 / 255 * 25
    assert abs(counts.mean() / mean - 1) < 0.01 and abs(counts.var() / mean - 1) < 0.03
    assert not corrupt(grey * 0, "shot_noise", 5, ["k"]).any(), "no light, no photons"


def test_impulse_noise_replaces_a_share_by_black_and_white() -> None:
    grey = torch.full((1, 3, 224, 224), 100, dtype=torch.uint8)
    for severity, share in enumerate(noise.IMPULSE, 1):
        made = corrupt(grey, "impulse_noise", severity, ["k"])
        assert set(made.unique().tolist()) == {0, 100, 255}
        for value in (0, 255):
            assert abs((made == value).float().mean().item() - share / 2) < 0.004


def test_defocus_is_a_convolution_with_a_smoothed_disk() -> None:
    point = torch.zeros(3, 224, 224, dtype=torch.uint8)
    point[:, 112, 112] = 255
    made = fields.convolve(unit_tensor(point), blur.disk(6, 0.5))[0, 0]
    y, x = np.mgrid[-112:112, -112:112]
    away = np.hypot(x, y)
    assert made[away > 8.5].abs().max() == 0 and abs(made.sum().item() - 1) < 1e-5
    inside = made.numpy()[away < 4]
    np.testing.assert_allclose(inside, 1 / (math.pi * 36), rtol=0.02)
    for radius in (0.2, 0.86, 3, 10):
        kernel = blur.disk(radius, 0.5, wide=radius > 8)
        assert (
            math.isclose(kernel.sum(), 1)
            and np.allclose(kernel, kernel.T)
            and np.allclose(kernel, kernel[::-1])
        )
    moment = blur.disk(10, 1e-9, wide=True)
    reach = np.arange(len(moment)) - len(moment) // 2
    assert abs((moment.sum(0) * reach**2).sum() - 25) < 0.3, "a disk of radius r has variance r^2 / 4"


def unit_tensor(image: torch.Tensor) -> torch.Tensor:
    return image[None].float() / 255


def test_gaussian_blur_is_the_literal_sum() -> None:
    rng = np.random.default_rng(0)
    image, sigma = rng.random((11, 14)), 1.3
    reach = int(4 * sigma + 0.5)
    weight = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    weight /= weight.sum()
    for border, mode in (("edge", "edge"), ("reflect", "symmetric"), ("mirror", "reflect")):
        wide = np.pad(image, reach, mode=mode)
        want = sum(
            weight[i] * weight[j] * wide[i : i + 11, j : j + 14]
            for i in range(2 * reach + 1)
            for j in range(2 * reach + 1)
        )
        made = fields.gaussian(torch.from_numpy(image).float()[None, None], sigma, border)
        np.testing.assert_allclose(made[0, 0].numpy(), want, atol=1e-6)


def test_glass_blur_swaps_near_neighbours() -> None:
    for reach, passes in ((1, 0.16), (1, 2.0), (3, 2.0), (4, 1.0)):
        order = blur._swapped(np.random.default_rng(0), 40, 50, reach, passes).numpy()
        assert np.array_equal(np.sort(order), np.arange(2000)), "a permutation"
        y, x = np.divmod(order, 50)
        home_y, home_x = np.divmod(np.arange(2000), 50)
        moved = np.hypot(y - home_y, x - home_x)
        assert 0.05 * passes < (moved > 0).mean() and np.median(moved) <= 3 * reach
    still = blur._swapped(np.random.default_rng(0), 40, 50, 3, 0.0).numpy()
    assert np.array_equal(still, np.arange(2000))


def test_motion_blur_smears_along_one_direction_without_loss() -> None:
    point = torch.zeros(2, 1, 61, 61)
    point[:, :, 30, 30] = 1
    made = fields.motion(point, 10, 3, torch.tensor([0.0, 90.0]))
    weights = np.exp(-0.5 * (np.arange(13) / 3) ** 2)
    np.testing.assert_allclose(made[0, 0, 30, 18:31].flip(0).numpy(), weights / weights.sum(), atol=1e-5)
    np.testing.assert_allclose(made[1, 0, 18:31, 30].flip(0).numpy(), weights / weights.sum(), atol=1e-5)
    np.testing.assert_allclose(made.sum((1, 2, 3)).numpy(), 1, rtol=1e-5)


def test_zoom_blur_is_the_mean_of_enlargements() -> None:
    """A linear ramp enlarged by z about the middle is a ramp of slope 1 / z."""
    ramp = (0.5 + 0.004 * (torch.arange(101) - 50.0)).expand(1, 3, 101, 101)
    for level, (end, step) in enumerate(blur.ZOOM):
        factors = np.arange(1, end, step)
        slope = (1 + sum(1 / factors)) / (len(factors) + 1)
        made = blur.zoom_blur(ramp, level, Chance(0, "", ["k"]), 1.0)[0, 0, 50]
        np.testing.assert_allclose(made.numpy(), 0.5 + 0.004 * slope * (np.arange(101) - 50), atol=1e-5)
    assert [len(np.arange(1, *z)) for z in blur.ZOOM] == [12, 16, 11, 13, 11]


def test_snow_whitens_and_adds_flakes() -> None:
    black = one("snow", 3, torch.zeros(3, 224, 224, dtype=torch.uint8))
    floor = round(255 * (1 - 0.7) * 0.5)
    assert abs(int(black.min()) - floor) <= 1 and int(black.max()) > floor + 60
    assert (black[0] == black[1]).all() and (black[0] == black[2]).all(), "flakes are white"
    assert (one("snow", 3, torch.full((3, 64, 64), 255, dtype=torch.uint8)) == 255).all()


def test_frost_adds_a_bluish_layer_to_a_darkened_picture() -> None:
    for severity, (share, cover) in enumerate(weather.FROST, 1):
        grey = torch.full((3, 224, 224), 120, dtype=torch.uint8)
        layer = weather.ice(Chance(0, "frost", ["k"]), 224, 224)[0].double().numpy()
        assert (
            np.abs(one("frost", severity, grey).numpy() - to_levels(share * 120 / 255 + cover * layer)).max()
            <= 1
        )
    assert (
        layer.min() >= 0
        and layer.max() <= 1
        and (layer[2] >= layer[1]).all()
        and (layer[1] >= layer[0]).all()
    )
    assert 0.2 < layer.mean() < 0.6 and layer.std() > 0.1


def test_plasma_is_a_torus_of_clouds_with_decaying_octaves() -> None:
    smooth, rough = (fields.plasma(Chance(0, "fog", ["a", "b"]), 128, decay) for decay in (2.0, 1.2))
    for cloud in (smooth, rough):
        assert cloud.shape == (2, 128, 128) and not torch.equal(cloud[0], cloud[1])
        assert (cloud.amin((1, 2)) == 0).all() and (cloud.amax((1, 2)) == 1).all()

    def roughness(cloud: torch.Tensor) -> float:
        return (cloud - cloud.roll(1, -1)).abs().mean().item()

    assert roughness(smooth) < 0.5 * roughness(rough)
    seam = (smooth[..., 0] - smooth[..., -1]).abs().mean()
    assert seam < 3 * roughness(smooth), "left and right edges meet"


def test_fog_adds_clouds_and_keeps_the_brightest_value() -> None:
    image = unit_tensor(scene(64, 64))
    for level, (thickness, decay) in enumerate(weather.FOG):
        cloud = fields.plasma(Chance(0, "fog", ["k"]), 256, decay)[:, None, :224, :224]
        layer = fields.resized(cloud, 64, 64).double().numpy()[0]
        top = image.max().item()
        want = (image[0].double().numpy() + thickness * layer) * top / (top + thickness)
        made = one("fog", level + 1, scene(64, 64))
        assert np.abs(made.numpy() - to_levels(want)).max() <= 1


def test_brightness_raises_the_value_and_keeps_hue_and_saturation() -> None:
    import colorsys

    colours = torch.randint(
        0, 256, (3, 10, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    colours[:, 0, 0] = 0
    for severity, amount in enumerate(weather.BRIGHTNESS, 1):
        made = one("brightness", severity, colours).numpy()
        for y in range(10):
            for x in range(10):
                h, s, v = colorsys.rgb_to_hsv(*unit(colours)[:, y, x])
                want = np.array(colorsys.hsv_to_rgb(h, s, min(v + amount, 1.0))) * 255
                assert np.abs(made[:, y, x] - want).max() <= 0.51


def test_contrast_is_exact() -> None:
    image = scene(40, 50)
    mean = unit(image).mean((1, 2), keepdims=True)
    for severity, factor in enumerate((0.4, 0.3, 0.2, 0.1, 0.05), 1):
        want = (unit(image) - mean) * factor + mean
        assert np.abs(one("contrast", severity, image).numpy() - want.clip(0, 1) * 255).max() <= 0.51


def test_elastic_transform_is_an_affine_map_and_a_smooth_shift() -> None:
    ramps = torch.stack(torch.meshgrid(torch.arange(96.0), torch.arange(96.0), indexing="ij"))
    places = torch.cat([ramps, ramps[:1]])[None] / 100
    moved = digital._affine(places, 5.0, Chance(0, "elastic_transform", ["k"]))[0, :2, 20:76, 20:76] * 100
    second = moved.diff(n=2, dim=-1).abs().max(), moved.diff(n=2, dim=-2).abs().max()
    assert max(second) < 1e-3, "straight lines stay straight"
    assert 0.2 < (moved - ramps[:, 20:76, 20:76]).abs().mean() < 8
    assert torch.allclose(digital._affine(places, 0.0, Chance(0, "", ["k"])), places, atol=1e-5)
    for level, (strength, smoothness, _) in enumerate(digital.ELASTIC[2:], 2):
        made = digital.elastic_transform(places, level, Chance(0, "", ["k"]), 1.0)
        shift = (made[0, :2, 30:66, 30:66] * 100 - ramps[:, 30:66, 30:66]).diff(dim=-1).std()
        # A uniform in -1..1 smoothed over sigma has deviation 1 / (sqrt(3) * 2 * sqrt(pi) * sigma).
        spread = 244 * strength / (math.sqrt(3) * 2 * math.sqrt(math.pi) * 244 * smoothness)
        assert 0.15 < shift / spread < 1.2


def test_pixelate_repeats_box_means() -> None:
    image = scene(64, 64)
    for severity, factor in enumerate((0.6, 0.5, 0.4, 0.3, 0.25), 1):
        scaled = 1 / (1 + (1 / factor - 1) * 64 / 224)
        small = int(64 * scaled)
        rgb = Image.fromarray(image.permute(1, 2, 0).numpy())
        want = rgb.resize((small, small), Image.Resampling.BOX).resize((64, 64), Image.Resampling.BOX)
        assert np.array_equal(one("pixelate", severity, image).permute(1, 2, 0).numpy(), np.asarray(want))
    half = one("pixelate", 2, scene(224, 224)).float()
    blocks = half.unfold(1, 2, 2).unfold(2, 2, 2)
    assert (blocks == blocks[..., :1, :1]).all(), "at 224 and severity 2, blocks of two by two"
    means = scene(224, 224).float().unfold(1, 2, 2).unfold(2, 2, 2).mean((-1, -2))
    assert (blocks[..., 0, 0] - means).abs().max() <= 1


def test_jpeg_is_what_pil_writes() -> None:
    image = scene(224, 224)
    for severity, quality in enumerate((25, 18, 15, 10, 7), 1):
        buffer = io.BytesIO()
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=quality)
        want = np.asarray(Image.open(buffer))
        assert np.array_equal(one("jpeg_compression", severity, image).permute(1, 2, 0).numpy(), want)
    assert [digital.jpeg_quality(q, 64 / 224) for q in digital.JPEG] == [71, 60, 52, 35, 24]
    assert digital.jpeg_quality(7, 100) == 1 and digital.jpeg_quality(90, 0.01) == 100


# --- names and misuse


def test_names_of_corrupted_sets() -> None:
    assert parse("shapes@fog-3") == ("shapes", "fog", 3)
    assert parse("shapes-a") == ("shapes-a", None, 0)
    assert parse("photos/@home@jpeg_compression-5") == ("photos/@home", "jpeg_compression", 5)
    assert len(NAMES) == 15 and all(
        parse(f"x@{name}-{s}") == ("x", name, s) for name in NAMES for s in range(1, 6)
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shapes@fogg-3", "did you mean 'fog'"),
        ("shapes@fog-6", "severities 1 to 5"),
        ("shapes@fog-0", "severities 1 to 5"),
        ("shapes@fog", "shapes@fog-3"),
        ("shapes@", "shapes@fog-3"),
        ("@fog-3", "shapes@fog-3"),
        ("shapes@fog-3x", "shapes@fog-3"),
    ],
)
def test_wrong_names_say_what_is_right(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse(name)


def test_misuse_of_corrupt() -> None:
    image = scene()[None]
    for wrong in (image.float(), image[0], image[:, :2], image[..., :0]):
        with pytest.raises(BadInput, match="uint8"):
            corrupt(wrong, "fog", 1, ["k"])
    with pytest.raises(BadInput, match="one key for each"):
        corrupt(image, "fog", 1, ["a", "b"])
    with pytest.raises(BadInput, match="unknown corruption"):
        corrupt(image, "rain", 1, ["a"])


def test_one_picture_is_corrupted_like_a_batch_of_one() -> None:
    image = scene(30, 40)
    made = corrupt_picture(Image.fromarray(image.permute(1, 2, 0).numpy()), "snow", 2, "k", seed=4)
    assert np.array_equal(np.asarray(made), one("snow", 2, image, "k", 4).permute(1, 2, 0).numpy())
    assert corruptions.scale_of(224, 9000) == 9000 / 16 / 224
