"""The same network in fewer passes over its feature maps: on a CPU these passes are most of the time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import nn
from torch.nn.functional import pad
from torch.nn.utils.fusion import fuse_conv_bn_eval


def folded(network: Any) -> Any:
    """Every normalisation taken into the convolution before it, every one-sided padding into its kernel.

    Only for a network at rest: the statistics become part of the weights.
    """
    for block in list(network.modules()):
        for (name, layer), (after, norm) in list(pairwise(block.named_children())):
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                whole = fuse_conv_bn_eval(layer.eval(), norm.eval())
                setattr(block, name, evenly(whole) if layer.stride == (2, 2) else whole)
                setattr(block, after, getattr(norm, "act", nn.Identity()))
    return network


def evenly(layer: Any) -> nn.Conv2d:
    """A convolution of stride 2 that pads one more on the right than on the left, padding both sides alike.

    TensorFlow pads so, torch can do it only on a copy. A zero column on the left of the kernel and a zero row
    on its top, and the two sides are equal. Holds for maps of even size: all there are at 224 pixels.
    """
    size, kernel = layer.kernel_size[0], layer.weight.detach()
    even = nn.Conv2d(
        layer.in_channels, layer.out_channels, size + 1, 2, (size - 1) // 2, groups=layer.groups
    ).to(kernel)
    even.load_state_dict({"weight": pad(kernel, (1, 0, 1, 0)), "bias": layer.bias.detach()})
    return even
