"""What ReTA's members learn from one image: the gradient of L = L_ent + lambda_1 L_surr + lambda_2 L_align (Eq. 18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from reta.methods import ops
from reta.methods.gaussian import Part, Surrogate, divisor
from reta.methods.lazy import known
from reta.methods.reta_fields import Fields

Pull = Callable[[Tensor, Tensor], Tensor]


class Cache(NamedTuple):
    """One unit prototype per class, the mean of its cached images, and which classes have one."""

    visual: Float[Tensor, "classes dim"]
    held: Bool[Tensor, " classes"]
    strength: Float[Tensor, " classes"]
    beta: float | Tensor

    def logits(self, x: Float[Tensor, "*views dim"]) -> Float[Tensor, "*views classes"]:
        """A(x; F), of strength alpha for the classes that hold something and 0 for the others (Eq. 4)."""
        return ops.affinity(x @ self.visual.mT, self.strength, self.beta)


class Seen(NamedTuple):
    """What is known of an image before anything moves."""

    views: Float[Tensor, "views dim"]
    x: Float[Tensor, " dim"]
    entropy: Float[Tensor, ""]
    label: Int[Tensor, ""]
    votes: Int[Tensor, " members"]
    w: Float[Tensor, ""]


class Picked(NamedTuple):
    """Which views count: the numbers of those L_ent sees, their features and cache logits, the features
    L_surr sees, and their refined logits if these chose them.
    """

    chosen: Int[Tensor, " sure"]
    sure: Float[Tensor, "sure dim"]
    cached: Float[Tensor, "sure classes"]
    kept: Float[Tensor, "kept dim"]
    refined: Float[Tensor, "kept classes"] | None


def entropy_pull(chosen: Int[Tensor, " kept"], logits: Float[Tensor, "kept classes"]) -> Tensor:
    """d L_ent / d logits of the chosen views: the entropy of their mean probability (Eq. 19)."""
    return ops.marginal_grad(logits)


def objective(
    fields: Fields,
    scale: float,
    text: Float[Tensor, "members classes dim"],
    seen: Seen,
    cache: Cache,
    taught: Bool[Tensor, ""] | None,
    pull: Pull = entropy_pull,
) -> Callable[[Float[Tensor, "members classes dim"]], Part]:
    """The gradient of the loss at unit members, as a function of them and then of a slice of the classes.

    Which views count is decided once, at `text`. Where `taught` is False, L_surr is left out. `pull` gives
    the gradient of the first loss with respect to the logits of the views it sees, whose numbers it gets.
    """
    center = surrogate(fields, scale, taught)
    chosen, sure, cached, kept, refined = pick(fields, scale, text, seen, cache, center)
    held = cache.held if fields.align_classes == "cached" else torch.ones_like(cache.held)

    def gradient(t: Tensor) -> Part:
        logits = scale * (sure @ t[-1].mT) + cached
        towards = fields.lambda_ent * scale * pull(chosen, logits)
        every = center and center.grad(t, kept, seen.label, refined if t is text else None)
        align = aligned(fields, t, cache, held)

        def part(here: slice) -> Tensor:
            some = torch.zeros_like(t[:, here]) if every is None else every(here)
            some[-1].add_(towards[:, here].mT @ sure)
            if align is not None and fields.align_text == "mean":
                some.add_(align[here] / fields.members)
            elif align is not None:
                some[-1].add_(align[here])
            return some

        return part

    return gradient


def surrogate(fields: Fields, scale: float, taught: Tensor | None) -> Surrogate | None:
    """L_surr, or None where it does not count."""
    if not counts(fields.lambda_surr) or (taught is not None and known(taught) is False):
        return None
    weight = fields.lambda_surr if taught is None else fields.lambda_surr * taught
    return Surrogate(
        scale, fields.surr_center, fields.cov, divisor(fields.members, fields.cov_divisor), weight
    )


def aligned(fields: Fields, text: Tensor, cache: Cache, held: Tensor) -> Tensor | None:
    """The weighted gradient of L_align with respect to the text in it, or None where it does not count."""
    if not counts(fields.lambda_align):
        return None
    words = text[-1] if fields.align_text == "last" else text.mean(0)
    weight, both = fields.lambda_align, fields.align_symmetric
    return ops.Contrast(cache.visual, words, held, fields.align_tau, weight, both).key_grad()


def counts(weight: float | Tensor) -> bool:
    """Whether a loss of this weight takes part; a weight that is swept does."""
    return isinstance(weight, Tensor) or weight > 0


def pick(
    fields: Fields, scale: float, text: Tensor, seen: Seen, cache: Cache, center: Surrogate | None
) -> Picked:
    """The views that count, by their logits at `text`."""
    views, topq = seen.views, fields.ent_views == "topq"
    confident = center is not None and fields.surr_views == "confident"
    chosen, sure, logits = torch.zeros_like(seen.label).reshape(1), seen.x[None], None
    if topq or confident:
        near = cache.logits(views)
        logits = scale * (views @ text[-1].mT) + near
    if topq and logits is not None:
        chosen = ops.confident(logits, fields.share)
        sure, cached = views[chosen], near[chosen]
    else:
        cached = cache.logits(sure)
    if center is not None and fields.surr_views == "refined":
        refined = center.logits(text, views, seen.label)
        top = ops.confident(refined, fields.surr_q)
        return Picked(chosen, sure, cached, views[top], refined[top])
    if not confident or logits is None or (topq and fields.surr_q == fields.share):
        return Picked(chosen, sure, cached, sure, None)
    return Picked(chosen, sure, cached, views[ops.confident(logits, fields.surr_q)], None)
