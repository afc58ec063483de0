"""About how long each plan takes on the paper's own data with one GPU: an estimate, from counts and stated rates.

    python benchmarks/expected.py        -> results/bench/expected.json, the table of docs/results/index.md

Counted: images, views, jobs, and the floating-point operations of every model. Measured elsewhere: the time of
a view on one processor core (results/views/speed.json) and of a ReTA step on two (results/bench/step.json), which
stands for every method on features: ReTA's is the longest of them. Assumed: the rate of the GPU and the number of
cores that make views, below. Every image is made into views and encoded once for each model and kind of views;
then every job goes through the stored features, one after the other.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import open_clip
import peers_table
import torch
from torch.utils.flop_counter import FlopCounterMode

from reta import state as states
from reta.bench import plan as plans
from reta.bench.prepare import jobs_of, method_of
from reta.bench.stage import look
from reta.data import catalog

ROOT = Path(__file__).parents[1]
PAGE, OUT = ROOT / "docs" / "results" / "index.md", ROOT / "results" / "bench" / "expected.json"
FLOPS = 100e12
"""Operations per second that a large GPU sustains on these towers in half precision: a quarter of what
matrix products alone reach on an H200."""
CORES = 16
TOKENS = 16 / 77
"""Prompts are cut to the longest: about 16 of 77 tokens."""
PASSES = {"tpt": 4, "difftpt": 13, "rlcf": 10, "reta-reward": 0}
"""Forward passes through the text tower for one image: a step is one, its gradient two, then the new features."""
TUNED = 64 + 3 * 18 + 1
"""Forward passes through the image tower where it is tuned: the views, 3 steps on 6 of them, the answer."""


@cache
def operations(name: str) -> tuple[float, float]:
    """Floating-point operations of one image and of one text of full length."""
    model = open_clip.create_model(name).eval()
    size = model.visual.image_size
    size = size if isinstance(size, int) else size[0]
    length = (open_clip.get_model_config(name) or {})["text_cfg"].get("context_length", 77)
    counts = []
    for call, seen in (
        (model.encode_image, torch.zeros(1, 3, size, size)),
        (model.encode_text, torch.zeros(1, length, dtype=torch.long)),
    ):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            call(seen)
        counts.append(float(counter.get_total_flops()))
    return counts[0], counts[1]


class Rates:
    """Seconds of one view and of one step."""

    def __init__(self) -> None:
        made = json.loads((ROOT / "results" / "views" / "speed.json").read_text("utf-8"))["rows"]
        self.made = {r["recipe"]: r["batched_cpu_ms"] / r["views"] / 1e3 for r in made if r["size"] == 224}
        rows = json.loads((ROOT / "results" / "bench" / "step.json").read_text("utf-8"))["rows"]
        self.steps = sorted((r["classes"], r["released/imagenet"]["ms"] / 1e3) for r in rows)

    def view(self, model: str, recipe: str) -> float:
        """Made on all cores while the GPU encodes: the slower of the two."""
        made = 0.0 if recipe == "plain" else self.made[recipe] / CORES
        return max(made, operations(model.partition("/")[0])[0] / FLOPS)

    def step(self, method: str, model: str, classes: int) -> float:
        image, text = operations(model.partition("/")[0])
        if method == "rlcf-tune":
            return TUNED * image / FLOPS
        tuned = PASSES.get(method, 0) * classes * text * TOKENS / FLOPS
        return tuned + next((s for c, s in self.steps if c >= classes), self.steps[-1][1])


def expected(name: str, rates: Rates) -> dict[str, Any]:
    """Images, views, jobs, hours to encode and hours to adapt, of one plan."""
    plan = plans.load(name)
    sets = {data: catalog.entry(data) for data in plan.data}
    wanted: dict[tuple[str, str, str, float], int] = {}
    adapting = 0.0
    for row in plan.rows:
        for data, entry in sets.items():
            method, _ = method_of(plan, row, data)
            once = method.episodic and list(plan.streams.values()) == [{"kind": "iid"}]
            jobs = (1 if once else plan.orders) * len(plan.streams)
            for model in [plan.reward] if row.model == "reward" else plan.models:
                for tower in {model} | ({plan.reward} if "reward" in method.needs else set()):
                    key = (data, tower, *look(method))
                    wanted[key] = max(wanted.get(key, 1), getattr(method, "views", 1))
                adapting += jobs * entry.test * rates.step(row.method, model, entry.classes)
    encoding = sum(sets[data].test * v * rates.view(m, recipe) for (data, m, recipe, _), v in wanted.items())
    return {
        "plan": name,
        "item": plan.item or "ours",
        "sets": len(plan.data),
        "models": list(plan.models) + ([plan.reward] if plan.reward else []),
        "images": sum(entry.test for entry in sets.values()),
        "views": sum(sets[data].test * views for (data, *_), views in wanted.items()),
        "jobs": jobs_of(plan)[0],
        "encoding_hours": round(encoding / 3600, 2),
        "adapting_hours": round(adapting / 3600, 2),
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    head = (
        "| plan | what it is | sets | models | images | views to encode | jobs | encoding, h | adapting, h |"
    )
    lines = [head, "|---|---|--:|---|" + "--:|" * 5]
    for row in rows:
        models = ", ".join(model.partition("/")[0] for model in row["models"])
        counts = f"{row['images']:,} | {row['views'] / 1e6:.1f} M | {row['jobs']:,}"
        hours = f"{row['encoding_hours']:.1f} | {row['adapting_hours']:.1f}"
        lines.append(f"| `{row['plan']}` | {row['item']} | {row['sets']} | {models} | {counts} | {hours} |")
    return lines


def main() -> None:
    torch.set_num_threads(1)
    rates = Rates()
    rows = [expected(name, rates) for name in plans.names()]
    assumed = {"operations_per_second": FLOPS, "cores": CORES, "tokens": TOKENS}
    counted = {m: operations(m) for m in ("RN50", "ViT-B-16", "ViT-L-14", "EVA02-B-16", "coca_ViT-B-32")}
    with states.atomic(OUT) as path:
        body = {"assumed": assumed, "operations_image_text": counted, "plans": rows}
        path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    if PAGE.is_file():
        peers_table.fill_page(PAGE, {"expected": table(rows)})
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
