"""The peers as their authors wrote them: lists, dicts, loops and a real optimiser, in double precision.

Slow on purpose, and nothing here comes from the package: probabilities, entropies and caches are spelled out
again. Each class is fed one image at a time, `see(views)`, and answers with a dict.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor


def unit(v: Tensor) -> Tensor:
    return v / math.sqrt(float(v @ v)) if float(v @ v) > 0 else v


def softmax(logits: list[float]) -> list[float]:
    e = [math.exp(x - max(logits)) for x in logits]
    return [x / sum(e) for x in e]


def entropy(p: list[float]) -> float:
    return -sum(x * math.log(x) for x in p if x > 0)


def argmax(row: list[float]) -> int:
    return row.index(max(row))


def mean(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def how_many(views: int, share: float) -> int:
    return max(1, math.floor(views * share))


def text_of(prompts: list[Tensor], choice: str, templates: int = 80) -> list[Tensor]:
    """One prototype per class from its list of unit prompts."""
    out = []
    for rows in prompts:
        if choice == "first":
            out.append(rows[0])
        elif choice == "pooled":
            out.append(unit(sum(rows) / len(rows)))
        else:
            parts = [part for part in (rows[:templates], rows[templates:]) if len(part)]
            out.append(unit(sum(sum(part) / len(part) for part in parts) / len(parts)))
    return out


class Look:
    """The views of one image against the text: what single views say, and the confident ones together."""

    def __init__(self, views: Tensor, text: list[Tensor], scale: float, share: float):
        self.logits = [[scale * float(v @ t) for t in text] for v in views]
        self.probs = [softmax(row) for row in self.logits]
        self.entropies = [entropy(p) for p in self.probs]
        self.order = sorted(range(len(views)), key=lambda i: self.entropies[i])
        self.top = self.order[: how_many(len(views), share)]
        self.x = sum(views[i] for i in self.top) / len(self.top)
        self.mean_logits = mean([self.logits[i] for i in self.top])
        self.p = mean([self.probs[i] for i in self.top])
        self.h = entropy(self.p)
        self.label = argmax(self.mean_logits)


def normalise(h: float, classes: int, base: str) -> float:
    return h if classes == 1 else h / (math.log(classes) if base == "ln" else math.log(classes, 2))


def admit(cache: dict[int, list], label: int, item: tuple, slots: int, fifo: bool = False) -> bool:
    """Append while there is room; then replace the worst if strictly better, or drop the oldest; keep sorted."""
    queue = cache.setdefault(label, [])
    if len(queue) < slots:
        queue.append(item)
    elif fifo:
        del queue[0]
        queue.append(item)
    elif item[1] < queue[-1][1]:
        queue[-1] = item
    else:
        return False
    if not fifo:
        queue.sort(key=lambda it: it[1])
    return True


class Zero:
    def __init__(self, prompts, scale, *, text, share, vote_temperature, half_logits, tie_mask, **_):
        self.text, self.scale, self.share = text_of(prompts, text), scale, share
        self.temperature, self.half, self.mask = vote_temperature, half_logits, tie_mask

    def see(self, views: Tensor) -> dict:
        rows = [[float(v @ t) for t in self.text] for v in views]
        if self.half:
            rows = [[float(torch.tensor(x, dtype=torch.float64).half()) for x in row] for row in rows]
        heights = [entropy(softmax([self.scale * x for x in row])) for row in rows]
        order = sorted(range(len(rows)), key=lambda i: heights[i])
        count = how_many(len(rows), self.share)
        votes = [0.0] * len(self.text)
        for i in order[:count]:
            if self.temperature == 0:
                votes[argmax(rows[i])] += 1
            else:
                for c, p in enumerate(softmax([x / self.temperature for x in rows[i]])):
                    votes[c] += p
        ties = [c for c, n in enumerate(votes) if n == max(votes)]
        winner = ties[0]
        if len(ties) > 1:
            winner = self.break_tie([rows[i] for i in order[count:]], rows[order[0]], ties)
            votes[winner] = max(votes) + 1
        return {"probs": [n / sum(votes) for n in votes], "winner": winner, "tied": len(ties) > 1}

    def break_tie(self, rest: list[list[float]], most_confident: list[float], ties: list[int]) -> int:
        for row in rest:
            if argmax(row) in ties:
                return argmax(row)
        row = list(rest[0] if rest else most_confident)
        if self.mask == "published":
            for c in ties:
                row[~c] = -math.inf
        else:
            row = [x if c in ties else -math.inf for c, x in enumerate(row)]
        return argmax(row)


class TPS:
    def __init__(self, prompts, scale, *, text, templates, share, lr, eps, **_):
        self.text = torch.stack([unit(t) for t in text_of(prompts, text, templates)])
        self.scale = scale
        self.share, self.lr, self.eps = share, lr, eps

    def see(self, views: Tensor) -> dict:
        top = Look(views, list(self.text), self.scale, self.share).top
        shift = torch.nn.Parameter(torch.zeros_like(self.text))
        optimiser = torch.optim.AdamW([shift], lr=self.lr, eps=self.eps, weight_decay=0.01)
        p = (self.scale * views[top] @ self.moved(shift).T).softmax(-1).mean(0)
        loss = torch.special.entr(p).sum()
        loss.backward()
        optimiser.step()
        logits = self.scale * self.moved(shift.detach()) @ views[0]
        return {"probs": logits.softmax(-1).tolist(), "entropy": loss.item()}

    def moved(self, shift: Tensor) -> Tensor:
        raw = self.text + shift
        return raw / raw.norm(dim=-1, keepdim=True)


class TDA:
    def __init__(self, prompts, scale, **o):
        self.text, self.scale, self.o = text_of(prompts, o["text"]), scale, o
        self.positive: dict[int, list] = {}
        self.negative: dict[int, list] = {}

    def look(self, views: Tensor) -> Look:
        return Look(views, self.text, self.scale, self.o["share"])

    def see(self, views: Tensor) -> dict:
        o, look = self.o, self.look(views)
        cached = admit(self.positive, look.label, (look.x, look.h), o["slots"])
        refused = False
        if o["low"] < normalise(look.h, len(self.text), o["entropy_base"]) < o["high"]:
            item = (look.x, look.h, look.p)
            fifo = o["negative_queue"] == "fifo"
            refused = admit(self.negative, look.label, item, o["negative_slots"], fifo)
        logits = list(look.mean_logits)
        for c, queue in self.positive_for(look, views).items():
            for key, *_ in queue:
                logits[c] += o["alpha"] * math.exp(-o["beta"] * (1 - float(key @ look.x)))
        for queue in self.negative.values():
            for key, _, p in queue:
                weight = o["negative_alpha"] * math.exp(-o["negative_beta"] * (1 - float(key @ look.x)))
                for c in range(len(logits)):
                    if o["mask_low"] < p[c] < o["mask_high"]:
                        logits[c] -= weight
        return {
            "probs": softmax(logits),
            "entropy": look.h,
            "label": look.label,
            "cached": cached,
            "cached_negative": refused,
        }

    def positive_for(self, look: Look, views: Tensor) -> dict[int, list]:
        return self.positive


class BoostAdapter(TDA):
    def look(self, views: Tensor) -> Look:
        return super().look(views[:1] if self.o["query"] == "plain" else views)

    def positive_for(self, look: Look, views: Tensor) -> dict[int, list]:
        temporary = copy.deepcopy(self.positive)
        if len(views) > 1:
            every = Look(views, self.text, self.scale, self.o["share"])
            for i in every.top:
                item = (views[i], every.entropies[i])
                admit(temporary, argmax(every.logits[i]), item, self.o["slots"] + self.o["extra"])
        return temporary


class DMN:
    WEIGHTS = [1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1e0, 3e0, 1e1, 3e1, 1e2, 3e2, 1e3]

    def __init__(self, prompts, scale, *, text, share, memory, beta, fusion, **_):
        self.text, self.scale, self.share = text_of(prompts, text), scale, share
        self.size, self.beta, self.fusion = memory, beta, fusion
        self.memory: dict[int, list] = {c: [] for c in range(len(prompts))}

    def see(self, views: Tensor) -> dict:
        look, v = Look(views, self.text, self.scale, self.share), views[0]
        label, queue = argmax(look.p), self.memory[argmax(look.p)]
        cached = len(queue) < self.size or max(h for _, h in queue) > look.h
        if len(queue) < self.size:
            queue.append((v, look.h))
        elif cached:
            queue[argmax([h for _, h in queue])] = (v, look.h)
        cosines = []
        for c, t in enumerate(self.text):
            items = [f for f, _ in self.memory[c]] + [t]
            total = sum(math.exp(-self.beta * (1 - float(v @ f))) * f for f in items)
            cosines.append(float(v @ unit(total)))
        p0, dynamic = look.probs[0], softmax([self.scale * x for x in cosines])
        every = [[(a + b * d) / (1 + b) for a, d in zip(p0, dynamic, strict=True)] for b in self.WEIGHTS]
        return {
            "probs": [(a + self.fusion * d) / (1 + self.fusion) for a, d in zip(p0, dynamic, strict=True)],
            "entropy": look.h,
            "label": label,
            "cached": cached,
            "every_weight": every,
        }


class DPE:
    def __init__(self, prompts, scale, **o):
        self.text, self.scale, self.o = torch.stack(text_of(prompts, o["text"])), scale, o
        self.count, self.cache = 0, {}

    def see(self, views: Tensor) -> dict:
        o, classes = self.o, len(self.text)
        look = Look(views, [unit(t) for t in self.text], self.scale, o["share"])
        h = normalise(look.h, classes, o["entropy_base"])
        cached = admit(self.cache, look.label, (look.x, h), o["slots"])
        there = sorted(self.cache)
        means = torch.stack([sum(key for key, _ in self.cache[c]) / len(self.cache[c]) for c in there])
        text_shift = torch.nn.Parameter(torch.zeros_like(self.text))
        image_shift = torch.nn.Parameter(torch.zeros_like(means))
        optimiser = torch.optim.AdamW([text_shift, image_shift], lr=o["lr"], eps=o["eps"], weight_decay=0.1)

        def moved() -> tuple[Tensor, Tensor]:
            raw, keys = self.text + text_shift, means + image_shift
            return raw / raw.norm(dim=-1, keepdim=True), keys / keys.norm(dim=-1, keepdim=True)

        def logits(z: Tensor, text: Tensor, keys: Tensor) -> Tensor:
            extra = o["alpha"] * torch.exp(-o["beta"] * (1 - keys @ z))
            place = torch.zeros(classes, len(there), dtype=torch.float64)
            for j, c in enumerate(there):
                place[c, j] = 1
            return self.scale * text @ z + place @ extra

        text, keys = moved()
        loss = torch.special.entr(logits(look.x, text, keys).softmax(-1)).sum()
        pairs = keys @ text[there].T / o["tau"]
        loss = loss + o["align"] * torch.nn.functional.cross_entropy(pairs, torch.arange(len(there)))
        loss.backward()
        if o["adam_state"] == "exact":
            optimiser.step()
        else:
            self.step_fp16([text_shift, image_shift])
        with torch.no_grad():
            text, keys = moved()
            answer = logits(views[0] if o["answer"] == "plain" else look.x, text, keys).tolist()
            p = softmax(answer)
            sure = normalise(entropy(p), classes, o["entropy_base"]) < o["cutoff"]
            if sure:
                n = self.count = self.count + 1
                self.text = self.text * n / (n + 1) + text / (n + 1)
        return {"probs": p, "entropy": look.h, "label": look.label, "cached": cached, "updated": sure}

    @torch.no_grad()
    def step_fp16(self, shifts: list[torch.nn.Parameter]) -> None:
        """AdamW's first step where the second moment is stored in fp16, number by number."""
        for shift in shifts:
            for place, g in zip(shift.view(-1).split(1), shift.grad.flatten().tolist(), strict=True):
                second = float(torch.tensor(0.001 * g * g, dtype=torch.float64).half())
                place -= self.o["lr"] * g / (math.sqrt(second / 0.001) + self.o["eps"])
