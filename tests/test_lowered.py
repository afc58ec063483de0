"""The image tower as it is written for a GPU, tried on a CPU: the same features, the original untouched."""

from __future__ import annotations

import copy

import pytest
import torch
from open_clip.transformer import QuickGELU, VisionTransformer
from torch import nn

from reta.backbone.lowered import FirstToken, Patches, lowered, normalised
from tests import tiny


@pytest.fixture(scope="module")
def tower():
    """A vision transformer with the activation of OpenAI's, and biases that are not nought."""
    torch.manual_seed(0)
    model = VisionTransformer(32, 16, 64, 3, 2, 4.0, output_dim=24, act_layer=QuickGELU)
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(value)
    return model.eval().requires_grad_(False)


def pictures(size=32, count=5):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def kinds(tower):
    return {type(module) for module in tower.modules()}


@torch.no_grad()
def test_the_same_features_and_the_original_as_it_was(tower):
    before = copy.deepcopy(tower.state_dict())
    wanted = tower(pictures())
    low = lowered(tower, torch.float32)
    assert kinds(low) - kinds(tower) == {Patches, FirstToken, nn.SiLU}
    assert kinds(tower) - kinds(low) == {QuickGELU, nn.Conv2d}
    assert (low(pictures()) - wanted).abs().max() < 1e-5 < wanted.abs().max()
    assert torch.equal(tower(pictures()), wanted)
    assert all(torch.equal(value, before[name]) for name, value in tower.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_costs_no_more_than_before(tower, dtype):
    wanted = tower(pictures(count=64))
    plain = copy.deepcopy(tower).to(dtype)(pictures(count=64).to(dtype)).float()
    low = lowered(tower, dtype)(pictures(count=64).to(dtype)).float()
    assert 0 < (low - wanted).norm() < 1.2 * (plain - wanted).norm()


@torch.no_grad()
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family(tiny_model, family):
    """Without QuickGELU patches and the last block differ, and a residual network not at all."""
    model = tiny_model(family)
    visual, x = model.module.visual, pictures(model.preprocess.size)
    low = lowered(visual, torch.float32)
    others = {"resnet": set(), "eva02": {Patches}, "coca": {Patches}}
    assert kinds(low) - kinds(visual) == others.get(family, {Patches, FirstToken})
    for got, wanted in zip(_parts(low(x)), _parts(visual(x)), strict=True):
        assert torch.equal(got, wanted) if family == "resnet" else torch.allclose(got, wanted, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    ("options", "one"),
    [
        ({}, True),
        ({"ls_init_value": 0.3, "final_ln_after_pool": True, "no_ln_pre": True}, True),
        ({"pool_type": "avg"}, False),
        ({"output_tokens": True}, False),
        ({"attentional_pool": True, "attn_pooler_heads": 2}, False),
        ({"qk_norm": True}, False),
    ],
)
def test_the_last_block_is_shortened_where_one_token_is_read(options, one):
    torch.manual_seed(0)
    visual = VisionTransformer(32, 16, 64, 1, 2, 4.0, output_dim=24, **options).eval()
    low = lowered(visual, torch.float32)
    assert (FirstToken in kinds(low)) == one
    for got, wanted in zip(_parts(low(pictures())), _parts(visual(pictures())), strict=True):
        assert torch.allclose(got, wanted, atol=1e-5)


def _parts(out):
    return out if isinstance(out, tuple) else (out,)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 8, 4, stride=2),
        nn.Conv2d(3, 8, 4, stride=4, padding=1),
        nn.Conv2d(3, 8, 2, stride=2, dilation=2),
        nn.Conv2d(3, 9, 2, stride=2, groups=3),
        nn.Conv2d(3, 8, 1),
        nn.Conv2d(8, 8, 2, stride=2),
    ],
)
def test_other_convolutions_stay(layer):
    assert kinds(lowered(nn.Sequential(layer), torch.float32)) == {nn.Sequential, nn.Conv2d}


@torch.no_grad()
def test_patches_of_any_shape_and_what_is_left_over_at_the_edge():
    net = nn.Sequential(nn.Conv2d(3, 8, (2, 3), stride=(2, 3)))
    x = torch.randn(2, 3, 7, 8)
    low = lowered(net, torch.float32)
    assert kinds(low) == {nn.Sequential, Patches}
    assert low(x).shape == (2, 8, 3, 2) and torch.allclose(low(x), net(x), atol=1e-6)


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Linear(4, 4), QuickGELU()),
        (nn.Linear(4, 4), QuickGELU(), nn.Identity(), nn.Linear(4, 4)),
        (nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)),
    ],
)
def test_other_activations_stay(layers):
    net = nn.Sequential(*layers)
    assert kinds(lowered(net, torch.float32)) == kinds(net)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("whole", [True, False])
def test_pixels_are_normalised_in_one_pass(tiny_model, dtype, whole):
    model = tiny_model("vit")
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    x = (x * 255).to(torch.uint8) if whole else x
    got = normalised(x, model.preprocess, dtype)
    assert got.dtype == dtype
    assert (got.float() - model.prepare(x)).abs().max() <= max(torch.finfo(dtype).eps, 1e-6)
