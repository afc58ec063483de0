"""Speed of the two view engines against each other, in one run: 64 views of one photograph-sized picture.

    python benchmarks/views.py [--threads 1] [--rounds 5] [--out results/views/speed.json]

Wall-clock and processor time are the best of the rounds; the engines take turns, so that both see the same
machine. The ratio is what counts: seconds differ between machines. Also how far apart the results are, in levels of
255: the mean, and the share of values more than one level apart.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from reta.views import ENGINES, Views

CASES = [(recipe, size) for size in (224, 64) for recipe in ("augmix", "crops")]


def picture(width: int = 500, height: int = 375) -> Image.Image:
    """Waves, edges and noise: no operation gets an easy day."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width] / 40
    waves = np.stack([np.sin(a * x + b * y) for a, b in rng.uniform(0, 3, (3, 2))], -1)
    waves[height // 3 : height // 2, width // 3 :] *= -1
    return Image.fromarray((128 + 90 * waves + rng.normal(0, 9, waves.shape)).clip(0, 255).astype(np.uint8))


def seconds(maker: Views, image: Image.Image) -> tuple[float, float]:
    """Wall-clock and processor seconds of one call."""
    wall, busy = time.perf_counter(), time.process_time()
    maker.make(image, key="picture.jpg")
    return time.perf_counter() - wall, time.process_time() - busy


def measure(recipe: str, size: int, views: int, rounds: int) -> dict:
    """The best of some rounds for each engine, and how many times faster the tensors are."""
    image, times = picture(), {engine: [] for engine in ENGINES}
    for _ in range(rounds + 1):
        for engine in ENGINES:
            times[engine].append(seconds(Views(recipe, views, size, engine=engine), image))
    best = {engine: [1e3 * min(t[i] for t in runs[1:]) for i in (0, 1)] for engine, runs in times.items()}
    row = {
        f"{engine}_{kind}_ms": best[engine][i] for engine in ENGINES for i, kind in enumerate(("wall", "cpu"))
    }
    ratios = {f"{kind}_ratio": best["pil"][i] / best["batched"][i] for i, kind in enumerate(("wall", "cpu"))}
    made = [Views(recipe, views, size, engine=engine).make(image, key="picture.jpg") for engine in ENGINES]
    apart = (made[0] - made[1]).abs() * 255
    agreement = {
        "levels_apart": apart.mean().item(),
        "beyond_one_level": (apart > 1.01).float().mean().item(),
    }
    return {"recipe": recipe, "size": size, "views": views} | row | ratios | agreement


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(
        f"{'recipe':8} {'size':>4} {'pil ms':>9} {'batched ms':>11} {'ratio':>6} {'ratio (cpu time)':>17} "
        f"{'levels apart':>13}"
    )
    rows = []
    for recipe, size in CASES:
        row = measure(recipe, size, args.views, args.rounds)
        rows.append(
            {key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}
        )
        print(
            f"{recipe:8} {size:4} {row['pil_wall_ms']:9.1f} {row['batched_wall_ms']:11.1f} "
            f"{row['wall_ratio']:6.2f} {row['cpu_ratio']:17.2f} {row['levels_apart']:13.4f}"
        )
    if args.out:
        about = {"threads": args.threads, "machine": platform.machine(), "torch": torch.__version__}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
