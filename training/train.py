"""Train an embedded model on the training stream of the world of shapes.

    python training/train.py --config reta-mini --steps 4000

Writes src/reta/weights/NAME.safetensors and results/training/NAME.json. A run that is killed goes on where
its last checkpoint was when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import time
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from captions import Caption, Writer, every, facts, truth
from evaluate import fitted_scale
from objective import Plan, contrast, prepare, schedule
from render import render
from torch import Tensor
from weights import WEIGHTS, Trainee, Words, read, write

ROOT = Path(__file__).parents[1]


class Run:
    """A training run that can be saved and taken up again; step `i` depends on the plan and `i` alone."""

    def __init__(self, plan: Plan, folder: Path, device: torch.device, held_out: int = 2000):
        self.plan, self.device, self.step, self.seconds = plan, device, 0, 0.0
        self.held_out = held_out
        self.log: list[dict[str, float]] = []
        self.file = folder / f"{plan.config}.ckpt"
        self.pixels, scenes = render(folder, plan.images)
        self.facts = [facts(s) for s in scenes]
        config = json.loads((WEIGHTS / f"{plan.config}.json").read_text())
        self.trainee = Trainee(config, Words(every()), plan.seed).to(device)
        self.trainee.model.visual.to(memory_format=torch.channels_last)
        self.mean = deepcopy(self.trainee)
        self.writer = Writer()
        self.adam = torch.optim.AdamW(self._groups(), lr=plan.rate, betas=(0.9, 0.98))

    def _groups(self) -> list[dict[str, object]]:
        """Parameters by tower, which learn at different rates, and by kind: only matrices decay."""
        groups = []
        for images, rate in ((True, self.plan.rate), (False, self.plan.text_rate)):
            of_tower = [
                p for n, p in self.trainee.named_parameters() if n.startswith("model.visual.") == images
            ]
            for matrices, decay in ((True, self.plan.decay), (False, 0.0)):
                chosen = [p for p in of_tower if (p.ndim > 1) == matrices]
                groups.append({"params": chosen, "rate": rate, "text": not images, "weight_decay": decay})
        return groups

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one of the same plan."""
        if not self.file.exists():
            return
        saved = torch.load(self.file, weights_only=True, map_location=self.device)
        if not self._may_follow(saved["plan"], saved["step"]):
            raise SystemExit(
                f"{self.file} is of another plan: {saved['plan']}; remove it or repeat that plan"
            )
        self.trainee.load_state_dict(saved["model"])
        self.mean.load_state_dict(saved["mean"])
        self.adam.load_state_dict(saved["adam"])
        self.step, self.log, self.seconds = saved["step"], saved["log"], saved["seconds"]

    def _may_follow(self, before: dict[str, object], step: int) -> bool:
        """The same plan, or one that differs in its length only and has not begun to cool down in either."""
        plan = asdict(self.plan)
        same = {**before, "steps": 0} == {**plan, "steps": 0}
        shortest = min(self.plan.steps, int(str(before["steps"])))
        return same and (before["steps"] == plan["steps"] or step <= (1 - self.plan.cooldown) * shortest)

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        partial = self.file.with_suffix(".part")
        torch.save({"plan": asdict(self.plan), "model": self.trainee.state_dict(),
                    "mean": self.mean.state_dict(), "adam": self.adam.state_dict(),
                    "step": self.step, "log": self.log, "seconds": self.seconds}, partial)  # fmt: skip
        partial.replace(self.file)

    def _picked(self, step: int) -> np.ndarray:
        """The indices of a step: every image once an epoch, in a new order each time."""
        size, total = self.plan.batch, len(self.pixels)
        per_epoch = max(total // size, 1)
        order = np.random.default_rng([self.plan.seed, step // per_epoch]).permutation(total)
        return np.sort(order[step % per_epoch * size :][:size])

    def advance(self) -> tuple[float, float]:
        """One step: its loss, and the share of pictures (or sentences) whose best match is true."""
        rng = np.random.default_rng([self.plan.seed, 1, self.step])
        left, right, true = self._read(rng) if self.step < self.plan.read else self._see(rng)
        if self.plan.read <= self.step < self.plan.settle:
            right = right.detach()
        loss = contrast(left, right, true, self.trainee.model.logit_scale.exp())
        for group in self.adam.param_groups:
            waits = group["text"] and self.plan.read <= self.step < self.plan.settle
            start = 0 if group["text"] else self.plan.read
            group["lr"] = 0.0 if waits else group["rate"] * schedule(self.step, start, self.plan)
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trainee.parameters(), 1.0)
        self.adam.step()
        with torch.no_grad():
            self.trainee.model.logit_scale.clamp_(0, np.log(100))
            self._average()
            best = (left @ right.T).argmax(1)
        self.step += 1
        return float(loss.detach()), float(true[torch.arange(len(best)), best].float().mean())

    def _texts(self, captions: list[Caption]) -> Tensor:
        rows, ends = (t.to(self.device) for t in self.trainee.words.rows([c.text for c in captions]))
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.trainee.texts(rows, ends)

    def _read(self, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Sentences with sentences on the same class: keeps the text tower from collapsing at the start."""
        first, second = self.writer.write(rng, [], 0), self.writer.write(rng, [], 0)
        true = torch.tensor([[a.name == b.name for b in second] for a in first], device=self.device)
        return self._texts(first), self._texts(second), true

    def _see(self, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Pictures with captions."""
        picked = self._picked(self.step)
        batch = [self.facts[i] for i in picked]
        captions = self.writer.write(rng, batch, self.plan.claims if self.step >= self.plan.settle else 0)
        true = torch.from_numpy(truth(batch, captions)).to(self.device)
        pixels = prepare(self.pixels[picked], int(rng.integers(2**31)), self.device)
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.trainee.images(pixels), self._texts(captions), true

    @torch.no_grad()
    def settle_statistics(self, batches: int = 40) -> None:
        """Measure the batch-norm statistics of the delivered weights afresh: means of old ones do not fit them."""
        norms = [m for m in self.mean.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        self.mean.train()
        for i in range(batches):
            self.mean.images(prepare(self.pixels[self._picked(i)], i, self.device))
        self.mean.eval()

    def _average(self) -> None:
        """Move the delivered weights toward the trained ones; at first quickly."""
        share = max(1 - self.plan.average, 1 / (self.step + 1))
        for kept, new in zip(
            self.mean.state_dict().values(), self.trainee.state_dict().values(), strict=True
        ):
            if kept.is_floating_point():
                kept.lerp_(new, share)
            else:
                kept.copy_(new)

    def train(self, every_seconds: float = 60.0) -> None:
        """All remaining steps, with a line of progress and a checkpoint now and then."""
        self.trainee.train()
        began, saved, losses = time.monotonic() - self.seconds, time.monotonic(), []
        while self.step < self.plan.steps:
            losses.append(self.advance())
            self.seconds = time.monotonic() - began
            if self.step % 50 == 0 or self.step == self.plan.steps:
                scale = float(self.trainee.model.logit_scale.detach().exp())
                self.log.append({"step": self.step, "loss": round(float(np.mean([x for x, _ in losses])), 4),
                                 "right": round(float(np.mean([x for _, x in losses])), 4),
                                 "scale": round(scale, 2), "seconds": round(self.seconds, 1)})  # fmt: skip
                print(self.log[-1], flush=True)
                losses = []
            if time.monotonic() - saved > every_seconds:
                self.save()
                saved = time.monotonic()
        self.save()


def deliver(run: Run, out: Path) -> None:
    """Fit the logit scale on held-out pictures, write the weights and the record of the run."""
    for place in ("src/reta/weights", "results/training"):
        (out / place).mkdir(parents=True, exist_ok=True)
    plan, file = run.plan, out / "src/reta/weights" / f"{run.plan.config}.safetensors"
    run.settle_statistics()
    learned = float(run.mean.model.logit_scale.detach().exp())
    about = {"name": plan.config, "plan": asdict(plan), "step": run.step, "torch": torch.__version__}
    write(run.mean, file, about)
    fitted = fitted_scale(read(plan.config, file.parent), run.held_out)
    with torch.no_grad():
        run.mean.model.logit_scale.fill_(np.log(fitted))
    write(run.mean, file, about | {"learned_scale": round(learned, 3)})
    record = about | {"learned_scale": round(learned, 3), "fitted_scale": round(fitted, 3), "device": str(run.device),
                      "seconds": round(run.seconds), "log": run.log, "tokens": len(run.mean.words.ids)}  # fmt: skip
    (out / "results/training" / f"{plan.config}.json").write_text(json.dumps(record, indent=1) + "\n")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="reta-mini", help="a model config in src/reta/weights")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--images", type=int, default=100_000, help="size of the training set, drawn once")
    parser.add_argument("--held-out", type=int, default=2000, help="pictures on which the scale is fitted")
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--read", type=int, default=120, help="steps on text alone")
    parser.add_argument("--settle", type=int, default=600, help="step until which the text tower then rests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=float, default=60.0, help="seconds between checkpoints")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--export", action="store_true", help="write the weights of the last checkpoint and stop"
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "training" / "runs", help="drawn images, checkpoints"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT, help="where src/reta/weights and results/training are"
    )
    return parser.parse_args()


def main() -> None:
    o = options()
    torch.set_num_threads(o.threads)
    plan = Plan(o.config, o.steps, o.images, o.batch, rate=o.rate, read=o.read, settle=o.settle, seed=o.seed)
    run = Run(plan, o.folder, torch.device("cuda" if torch.cuda.is_available() else "cpu"), o.held_out)
    run.resume()
    if not o.export:
        run.train(o.checkpoint)
    deliver(run, o.out)


if __name__ == "__main__":
    main()
