"""A copy of an image tower in bf16 or fp16 for a GPU: the same function in fewer passes over the memory.

What is recognised is written otherwise, and nothing else is touched: QuickGELU between two linear layers, a
convolution that cuts a picture into patches, and the last block of a tower that reads one token.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float, UInt8
from open_clip.transformer import QuickGELU, ResidualAttentionBlock, VisionTransformer
from torch import Tensor, nn

from reta.backbone.protocol import Preprocess

QUICK = 1.702  # QuickGELU is x sigmoid(QUICK x)


@torch.no_grad()
def lowered(visual: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy in `dtype`, for inference only. Weights are folded before they are rounded."""
    tower = copy.deepcopy(visual)
    for module in list(tower.modules()):
        if isinstance(module, nn.Sequential):
            _fold(module)
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d) and _cuts_patches(child):
                setattr(module, name, Patches(child))
        if isinstance(module, VisionTransformer) and _reads_one_token(module):
            blocks = module.transformer.resblocks
            blocks[-1] = FirstToken(blocks[-1])
    return tower.to(dtype)


def normalised(
    pixels: Float[Tensor, "images 3 size size"] | UInt8[Tensor, "images 3 size size"],
    preprocess: Preprocess,
    dtype: torch.dtype,
) -> Float[Tensor, "images 3 size size"]:
    """What `OpenClip.prepare` makes, in one pass: computed in fp32, written in `dtype`."""
    colours = (preprocess.mean, preprocess.std)
    mean, std = (torch.tensor(x, device=pixels.device).view(3, 1, 1) for x in colours)
    out = torch.empty(pixels.shape, dtype=dtype, device=pixels.device)
    most = 255 if pixels.dtype == torch.uint8 else 1
    return torch.addcmul(-mean / std, pixels, 1 / (most * std), out=out)


def _fold(block: nn.Sequential) -> None:
    """QuickGELU as silu(1.702 x) / 1.702, the factors in the layers around it: one kernel in place of three."""
    if [type(module) for module in block] != [nn.Linear, QuickGELU, nn.Linear]:
        return
    before, after = block[0], block[2]
    for value in before.parameters():
        value.mul_(QUICK)
    after.get_parameter("weight").div_(QUICK)
    block[1] = nn.SiLU(inplace=True)


def _cuts_patches(layer: nn.Conv2d) -> bool:
    """Whether a convolution reads pixels in squares that neither overlap nor leave gaps."""
    whole = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding in ((0, 0), "valid")
    return whole and layer.in_channels == 3 and layer.kernel_size == layer.stride != (1, 1)


class Patches(nn.Module):
    """Such a convolution as one matrix product."""

    def __init__(self, layer: nn.Conv2d):
        super().__init__()
        self.size = layer.kernel_size
        self.weight, self.bias = nn.Parameter(layer.weight.flatten(1), requires_grad=False), layer.bias

    def forward(self, x: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images dim rows columns"]:
        down, across = self.size
        cut = x.unfold(2, down, down).unfold(3, across, across).permute(0, 2, 3, 1, 4, 5)
        rows = nn.functional.linear(cut.flatten(3), self.weight, self.bias)
        return rows.permute(0, 3, 1, 2)


def _reads_one_token(tower: VisionTransformer) -> bool:
    """Whether only the class token leaves a tower, which comes first."""
    plain = type(tower.transformer.resblocks[-1]) is ResidualAttentionBlock
    return plain and tower.pool_type == "tok" and tower.attn_pool is None and not tower.output_tokens


class FirstToken(nn.Module):
    """A block of which the first token is read: it looks at all of them, and nothing is made of the others."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.block: Any = block

    def forward(
        self, x: Float[Tensor, "images tokens width"], attn_mask: None = None
    ) -> Float[Tensor, "images 1 width"]:
        block = self.block
        x = x[:, :1] + block.ls_1(self._attend(block.attn, block.ln_1(x)))
        return x + block.ls_2(block.mlp(block.ln_2(x)))

    def _attend(self, layer: Any, x: Tensor) -> Tensor:
        width = x.shape[-1]
        weight, bias = layer.in_proj_weight, layer.in_proj_bias
        query = nn.functional.linear(x[:, :1], weight[:width], bias[:width])
        others = nn.functional.linear(x, weight[width:], bias[width:]).chunk(2, dim=-1)
        q, k, v = (part.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2) for part in (query, *others))
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        return layer.out_proj(seen.transpose(1, 2).flatten(2))
