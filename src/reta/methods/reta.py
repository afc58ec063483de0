"""ReTA: a cache of images a text committee agrees on, and class Gaussians of text that follow the stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from reta.errors import BadInput
from reta.methods import committee, ops, subspace
from reta.methods.base import State, like
from reta.methods.calibration import Cache, Pull, Seen, entropy_pull, objective
from reta.methods.evolution import Residuals, evolve
from reta.methods.lazy import when
from reta.methods.reta_fields import Fields
from reta.sample import Output, Sample
from reta.task import Task


@dataclass(frozen=True, kw_only=True)
class ReTA(Fields):
    """Reliable test-time adaptation.

    A committee of M adjacent text embeddings per class votes on the image; its disagreement w raises the
    entropy by which the image competes for a place in the cache. An image all agree on moves the members by
    a gradient step; a confident one carries them into the text of the images to come. The answer joins CLIP
    with the cache and the mean of the moved members.

    >>> import torch, reta
    >>> task = reta.Task.from_features(torch.eye(3).repeat_interleave(3, 0).reshape(3, 3, 3), scale=10.0)
    >>> method = ReTA()
    >>> output, state = method.step(task, method.init(task), reta.Sample(torch.eye(3)[:1]))
    >>> int(output.probs.argmax()), output.info["votes"].tolist(), float(output.info["w"])
    (0, [0, 0, 0], 1.0)
    """

    summary: ClassVar[str] = "ReTA: consistency-aware cache and calibrated text distributions"
    equations: ClassVar[str] = (
        "w = 1 + ln(R S), queue by w H; t <- unit(t + r), L = L_ent + lambda_1 L_surr + lambda_2 L_align; "
        "t <- unit((l - 1) t + t*); p = p_cls + eta softmax(s z . mu)"
    )

    def init(self, task: Task) -> State:
        fewest = int(task.mask.sum(1).min())
        if fewest < self.members:
            raise BadInput(
                f"a class has {fewest} prompts, and members={self.members} adjacent embeddings need at least "
                f"as many: give every class {self.members} prompts, or use members={fewest}"
            )
        c, d = len(task), task.dim
        text = committee.members(task.prompts, task.mask, self.members, self.binning, self.bin_edges)
        state = {
            "text": text,
            "count": like(task, dtype=torch.int64),
            "keys": like(task, c, self.slots, d),
            "scores": like(task, c, self.slots, fill=torch.inf),
            "visual": like(task, c, d),
        }
        if self.projection != "none":
            state |= self._axes(self._sourced(text), text.dtype)
        return state | ({"residual": torch.zeros_like(text)} if self.persist_residual else {})

    def step(self, task: Task, state: State, sample: Sample) -> tuple[Output, State]:
        text = self._members(state)
        seen = self.assess(task.scale, state, text, sample.views[: self.views])
        reliable, score = seen.w == 1, seen.w * seen.entropy  # Eq. 14
        keys, scores, cached = ops.insert(state["keys"], state["scores"], seen.label, seen.x, score)
        mean, _ = ops.prototypes(ops.get_row(keys, seen.label), ops.get_row(scores, seen.label))
        visual = ops.put_row(state["visual"], seen.label, ops.unit(mean))
        held = scores[:, 0] != torch.inf
        cache = Cache(visual, held, self.alpha * held, self.beta)
        new = {"keys": keys, "scores": scores, "visual": visual}

        confident = seen.entropy < self._threshold(task)
        pull = self.pull(task, sample)
        moved, residual = self.adapt(task.scale, state, text, seen, cache, reliable, confident, pull)
        logits, p_cls, p_gauss = self.answer(task.scale, moved, seen, cache)
        if self.gate_entropy == "after":
            confident = ops.entropy(logits) < self._threshold(task)
        updated = self._joins(confident, reliable)
        new |= self.remember(state, moved, residual, updated)
        info = {
            "votes": seen.votes,
            "w": seen.w,
            "score": score,
            "entropy": seen.entropy,
            "label": seen.label,
        }
        info |= {"cached": cached, "updated": updated, "reliable": reliable, "confident": confident}
        info |= {"p_cls": p_cls, "p_gauss": p_gauss, "logits": logits}
        return Output(self.fuse(p_cls, p_gauss), info), new

    def assess(self, scale: float, state: State, text: Tensor, views: Tensor) -> Seen:
        """The pseudo-label, its entropy, the committee's votes and their weight (Eq. 5 to 13)."""
        last = text[-1]
        if self.evidence == "topq_mean":
            x, _, _, entropy, label = ops.evidence(views, scale * views @ last.mT, self.share)
        else:
            x, logits = views[0], scale * (last @ views[0])
            entropy, label = ops.entropy(logits), logits.argmax()
        voting = text if self.vote_text == "unit" else state["text"]
        votes = committee.votes(voting, state.get("basis"), x)
        if not self.cer or self.members == 1:
            return Seen(views, x, entropy, label, votes, torch.ones_like(entropy))
        rs = committee.dissent(
            votes, label, len(last), self.gamma, stability=self.stability, consistency=self.consistency
        )
        return Seen(views, x, entropy, label, votes, committee.weight(rs, self.score, self.ratio).to(x.dtype))

    def pull(self, task: Task, sample: Sample) -> Pull:
        """The first loss, as its gradient with respect to the logits of the views it sees (Eq. 19)."""
        return entropy_pull

    def adapt(
        self,
        scale: float,
        state: State,
        text: Tensor,
        seen: Seen,
        cache: Cache,
        reliable: Tensor,
        confident: Tensor,
        pull: Pull,
    ) -> tuple[Tensor, Tensor | None]:
        """The members as this image moves them, and the residuals if they are kept (Eq. 16, 18)."""
        start = state.get("residual")
        if not self.ddc or self.steps == 0:
            return text, start
        residuals = Residuals(
            self.steps, self.lr, self.eps, self.weight_decay, self.residuals == "shared", self.adam_state
        )

        taught = reliable if self.loss_gate == "surr_only" else None

        def move() -> tuple[Tensor, ...]:
            loss = objective(self, scale, text, seen, cache, taught, pull)
            moved, r = residuals.move(state["text"], text, start, loss)
            return (moved,) if r is None else (moved, r)

        gate = {"w1": reliable, "algorithm1": reliable & confident}
        old = (text,) if start is None else (text, start)
        moved = when(gate[self.loss_gate], move, old) if self.loss_gate in gate else move()
        return moved[0], moved[1] if len(moved) > 1 else None

    def answer(self, scale: float, text: Tensor, seen: Seen, cache: Cache) -> tuple[Tensor, Tensor, Tensor]:
        """CLIP + cache logits, p_cls and p_gauss from the moved members (Eq. 4, 22)."""
        views, x = seen.views, seen.views[0]
        if self.evidence == "topq_mean":
            x = views[ops.confident(scale * views @ text[-1].mT, self.share)].mean(0)
        near, cached = scale * (text @ x), cache.logits(x)
        clip, gauss, rows = near[-1], near.mean(0, keepdim=True), x[None]  # z . mu is the mean of z . t_m
        p_cls = (clip + cached).softmax(-1) if self.cache_logits else clip.softmax(-1)
        if self.gauss_views == "topq":
            rows, gauss = views, scale * views @ text.mean(0).mT
        if self.gauss_cache and self.cache_logits:
            gauss = gauss + cache.logits(rows)
        if self.gauss_views == "topq":
            gauss = gauss[ops.confident(gauss, self.share)]
        return clip + cached, p_cls, gauss.softmax(-1).mean(0)

    def fuse(self, p_cls: Tensor, p_gauss: Tensor) -> Tensor:
        """(p_cls + eta p_gauss) / (1 + eta), so that it sums to one (Eq. 23)."""
        if not (self.ddc and self.gauss_logits):
            return p_cls
        return torch.lerp(p_gauss, p_cls, self.cls_weight)

    def remember(self, state: State, moved: Tensor, residual: Tensor | None, updated: Tensor) -> State:
        """The global text after this image, and the axes that go with it (Eq. 17)."""
        count = state["count"] + updated
        past = count.to(moved.dtype) + self.prior - 1
        text = when(updated, lambda: evolve(state["text"], moved, past, self.normalise_global), state["text"])
        new = {"text": text, "count": count}
        if self._follows:
            new["vectors"], new["basis"] = subspace.follow(
                state["vectors"],
                state["basis"],
                lambda: subspace.rows_of(self._sourced(text), self.projection),
                self.rank,
                updated,
            )
        elif "basis" in state:
            new["basis"] = state["basis"]
        if residual is not None:
            new["residual"] = residual
        return {key: ops.assign(state[key], value) for key, value in new.items()}

    def _axes(self, text: Tensor, dtype: torch.dtype) -> State:
        """The axes of the first text; with all eigenvectors if they are to follow it."""
        if not self._follows:
            return {"basis": subspace.basis(text, self.rank, self.projection).to(dtype)}
        rows = subspace.rows_of(text, self.projection)
        values, vectors = torch.linalg.eigh(subspace.gram(rows, torch.float64))
        basis = subspace.leading(values, vectors, rows, self.rank)
        return {"vectors": vectors.to(dtype), "basis": basis.to(dtype)}

    @property
    def _follows(self) -> bool:
        return self.projection != "none" and self.proj_refresh == "on_change"

    def _sourced(self, text: Tensor) -> Tensor:
        """The members whose axes span the text subspace."""
        return ops.unit(text if self.proj_source == "all" else text[-1:])

    def _members(self, state: State) -> Tensor:
        """The members as they stand: stored text, plus residuals that persist, of length one."""
        if self.persist_residual:
            return ops.unit(state["text"] + state["residual"])
        return state["text"] if self.normalise_global else ops.unit(state["text"])

    def _joins(self, confident: Tensor, reliable: Tensor) -> Tensor:
        """Whether this image joins the global text."""
        if not self.ddc or self.steps == 0:
            return torch.zeros_like(confident)
        return confident & reliable if self.global_gate == "entropy_and_w1" else confident

    def _threshold(self, task: Task) -> float | Tensor:
        """The entropy in nats below which an image counts as confident."""
        units = {
            "ln_C": math.log(len(task)),
            "log2_C": math.log2(len(task)),
            "log2_M": math.log2(self.members),
            "none": 1.0,
        }
        return self.cutoff * units[self.normaliser]
