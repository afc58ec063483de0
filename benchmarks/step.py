"""Time and memory of one ReTA step against the literal form of the released code, in the same run.

    python benchmarks/step.py --out results/bench/step.json
    python benchmarks/step.py --memory 21000 --preset fixed
    python benchmarks/step.py --profile 100 --threads 1 --out results/bench/profile.json

The literal form is `tests/reference_reta.py`: a covariance tensor [D,C,C], a full SVD per image, autograd and
torch.optim.AdamW, the cache as Python lists. Both see the same made-up features (fp32, 64 views, 512 dimensions),
one image after the other in turn, after the library has seen three images per class so that the caches are filled
(30 images in all at 10,000 classes, where the literal form does not fit in memory).
Ratios are by the clock, and in brackets by processor time, which other work on the machine disturbs less. The floor
of a step is what as many operations of torch as it dispatches cost on a single number, its products at the rate of a
large one, and the eigenvectors where the axes follow the text.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import reta
from reta import state as states
from reta.engine import quiet
from reta.methods import create
from reta.methods.ops import donated, unit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference_reta import RELEASED, Reference

DIM, VIEWS, PROMPTS = 512, 64, 9
CONSTANTS = {"alpha": 6.0, "beta": 5.0, "eta": 1.0, "lr": 6e-4, "l_align": 0.5, "l_surr": 0.05}
BLOCK = 10
PRESETS = ("paper", "released/imagenet")


def features(classes: int, count: int, seed: int = 0) -> tuple[reta.Task, Tensor]:
    """A task and views whose cosines look like CLIP's: a falling spectrum, text and images apart."""
    g = torch.Generator().manual_seed(0)
    spectrum = torch.arange(1, DIM + 1).rsqrt()
    spectrum /= spectrum.norm()

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, DIM, generator=g) * spectrum

    centres, common, gap = noise(classes), noise(1), noise(1)
    text = 1.5 * common + centres[:, None] + 0.5 * noise(classes, PROMPTS)
    g.manual_seed(seed + 1)
    signal = 0.28 * math.sqrt(math.log(classes))
    images = 2 * gap + 0.3 * common + noise(count)
    images = images + signal * centres[torch.randint(classes, (count,), generator=g)]
    views = unit(images[:, None] + 0.3 * noise(count, VIEWS))
    views[:, 0] = unit(images)
    return reta.Task.from_features(text, scale=100.0), views


def literal_bytes(classes: int) -> int:
    """What the literal form needs at its worst moment: covariances and their gradient, refined logits twice."""
    return 4 * (2 * DIM * classes**2 + 3 * VIEWS * classes**2)


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def filled(method: Any, task: reta.Task, classes: int) -> states.State:
    """A state after some images of every class; one view each is enough to fill the caches."""
    count = 3 * classes if classes <= 1000 else 30
    return reta.run(method, task, features(classes, count, seed=1)[1][:, :1], device="cpu").state


def literal(task: reta.Task, state: states.State) -> Reference:
    """The literal form, going on from the library's state."""
    reference = Reference(list(task.prompts), task.scale, RELEASED | CONSTANTS)
    reference.G, reference.n = state["text"].clone(), int(state["count"])
    for c, (keys, scores) in enumerate(zip(state["keys"], state["scores"], strict=True)):
        items = [(k.clone(), float(s)) for k, s in zip(keys, scores, strict=True) if math.isfinite(s)]
        if items:
            reference.cache[c] = items
    return reference


def timed(call: Any, into: list[tuple[float, float]]) -> Any:
    """Call and note the milliseconds on the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    value = call()
    into.append((1e3 * (time.perf_counter() - clock), 1e3 * (time.process_time() - processor)))
    return value


class Counter(TorchDispatchMode):
    """Counts the operations that are dispatched while it is on."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def counted(method: Any, task: reta.Task, state: states.State, views: Tensor) -> dict[str, float]:
    """Operations of a step and the floating-point ones of its products, the mean over some images."""
    with donated(), FlopCounterMode(display=False) as flops, Counter() as counter:
        for row in views:
            _, state = method.step(task, state, reta.Sample(row))
    return {"operations": counter.count / len(views), "flops": flops.get_total_flops() / len(views)}


def best(call: Callable[[], Any], rounds: int = 5) -> float:
    """Milliseconds of the fastest of some calls."""
    fastest = math.inf
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - start)
    return 1e3 * fastest


def operation(times: int = 20000) -> float:
    """Milliseconds of one operation on one number."""
    x = torch.ones(1)

    def many() -> None:
        for _ in range(times):
            x + x

    return best(many) / times


def rate(size: int = 1024) -> float:
    """Floating-point operations in a millisecond, of a large product."""
    x = torch.randn(size, size)
    return 2 * size**3 / best(lambda: x @ x, 8)


def axes(classes: int) -> float:
    """Milliseconds for the eigenvectors of a Gram matrix of so many texts."""
    x = torch.randn(DIM, classes)
    matrix = x.mT @ x if classes < DIM else x @ x.mT
    return best(lambda: torch.linalg.eigh(matrix))


def race(classes: int, samples: int, with_literal: bool) -> dict[str, Any]:
    """Milliseconds per image of each form on the same images, and how far their answers are apart."""
    task, views = features(classes, samples)
    methods = {name: create("reta", preset=name) for name in PRESETS}
    state = {name: filled(m, task, classes) for name, m in methods.items()}
    reference = literal(task, state[PRESETS[1]]) if with_literal else None
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in (*PRESETS, "literal")}
    gap, reliable = 0.0, 0
    with torch.no_grad():
        for block in views.split(BLOCK):
            for name, method in methods.items():
                outputs = []
                for row in block:
                    sample, before = reta.Sample(row), state[name]
                    with donated(), quiet(method, row.device)():  # as reta.run does
                        output, state[name] = timed(
                            lambda m=method, s=sample, b=before: m.step(task, b, s), times[name]
                        )
                    outputs.append(output)
            reliable += sum(int(o.info["reliable"]) for o in outputs)
            for row, output in zip(block, outputs if reference is not None else (), strict=False):
                answer = timed(lambda r=row: reference(r), times["literal"])
                gap = max(gap, float((answer["probs"] - output.probs).abs().max()))
    row = summary(classes, times, reliable / samples) | ({"largest_gap": gap} if with_literal else {})
    with torch.no_grad():
        for name, method in methods.items():
            row[name] |= counted(method, task, state[name], views[:BLOCK])
            floor = row[name]["operations"] * operation() + row[name]["flops"] / rate()
            row[name]["floor_ms"] = floor + (axes(classes) if method.proj_refresh == "on_change" else 0)
    return row


def summary(classes: int, times: dict[str, list[tuple[float, float]]], reliable: float) -> dict[str, Any]:
    """Means over the images, and how many times faster the library is, by the clock and by processor time."""
    row: dict[str, Any] = {"classes": classes, "samples": len(times[PRESETS[0]]), "reliable": reliable}
    for name, values in times.items():
        if values:
            clock, processor = zip(*(values[1:] or values), strict=True)
            row[name] = {
                "ms": statistics.fmean(clock),
                "median_ms": statistics.median(clock),
                "processor_ms": statistics.fmean(processor),
            }
    if "literal" in row:
        for kind, key in (("faster", "ms"), ("faster_processor", "processor_ms")):
            row[kind] = {n: row["literal"][key] / row[n][key] for n in PRESETS}
    return row


def resident(kind: str = "VmHWM") -> int:
    """Bytes of memory of this process at its peak; `ru_maxrss` would begin with the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) * 1024
    return 0


def peak(classes: int, preset: str) -> dict[str, Any]:
    """Peak resident memory of init and a step that moves the text, with a full cache, in a process of its own.

    `baseline_bytes` of it are Python and torch before the task is made.
    """
    baseline = resident()
    g = torch.Generator().manual_seed(0)
    task = reta.Task.from_features(torch.randn(classes, 3, DIM, generator=g))
    views = unit(task.text[:1, None] + 0.02 * torch.randn(1, VIEWS, DIM, generator=g))
    method = create("reta", preset=preset)
    state = method.init(task)
    state["keys"].copy_(task.text[:, None].expand_as(state["keys"]))
    state["visual"].copy_(task.text)
    state["scores"].fill_(0.5)
    start = time.perf_counter()
    with torch.no_grad(), donated():
        output, state = method.step(task, state, reta.Sample(views[0]))
    return {
        "classes": classes,
        "preset": preset,
        "peak_bytes": resident(),
        "baseline_bytes": baseline,
        "state_bytes": states.nbytes(state),
        "updated": bool(output.info["updated"]),
        "seconds": time.perf_counter() - start,
    }


def profiled(classes: int, preset: str, samples: int) -> dict[str, Any]:
    """Where the time of a step goes: calls and microseconds of every operation."""
    task, views = features(classes, samples)
    method = create("reta", preset=preset)
    state = filled(method, task, classes)
    with torch.no_grad(), donated(), profile(activities=[ProfilerActivity.CPU]) as found:
        for row in views:
            _, state = method.step(task, state, reta.Sample(row))
    rows = sorted(found.key_averages(), key=lambda event: -event.self_cpu_time_total)
    spent = {e.key: [e.count / samples, round(e.self_cpu_time_total / samples, 2)] for e in rows}
    total = sum(us for _, us in spent.values())
    return {"classes": classes, "preset": preset, "samples": samples, "us": total, "calls_us": spent}


def show(row: dict[str, Any]) -> None:
    cells = [f"C = {row['classes']:>6}"]
    cells += [f"{n} {row[n]['ms']:9.2f} ms (floor {row[n]['floor_ms']:.2f})" for n in PRESETS]
    if "literal" in row:
        cells += [f"literal {row['literal']['ms']:9.1f} ms"]
        cells += [f"{n} {row['faster'][n]:5.0f}x ({row['faster_processor'][n]:.0f}x)" for n in PRESETS]
    else:
        cells += [f"literal: would need {row['literal_bytes'] / 2**30:.0f} GiB"]
    print(" | ".join(cells), flush=True)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for classes in args.classes:
        need = literal_bytes(classes)
        fits = need < 0.7 * available_bytes()
        samples = args.samples if classes <= 200 else max(4, args.samples // (10 if fits else 5))
        row = race(classes, samples, fits) | {"literal_bytes": need}
        show(row)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000, 10000])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", type=int, help="only the peak memory at so many classes")
    parser.add_argument("--profile", type=int, help="only where the time goes at so many classes")
    parser.add_argument("--preset", default="paper", help="the preset whose memory or profile is taken")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory:
        print(json.dumps(peak(args.memory, args.preset)))
        return
    about = {"torch": torch.__version__, "threads": args.threads, "machine": platform.machine()}
    if args.profile:
        write(args.out, {"about": about} | profiled(args.profile, args.preset, args.samples))
        return
    rows = measure(args)
    memory = []
    for preset in PRESETS:
        command = [sys.executable, __file__, "--memory", "21000", "--preset", preset]
        command += ["--threads", str(args.threads)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        memory.append(json.loads(out))
        size = [memory[-1][k] / 2**30 for k in ("peak_bytes", "baseline_bytes")]
        print(f"C = 21000: {preset} peaks at {size[0]:.2f} GiB with a full cache, {size[1]:.2f} of it torch")
    write(args.out, {"dim": DIM, "views": VIEWS, "about": about, "rows": rows, "memory": memory})


def write(out: Path | None, body: dict[str, Any]) -> None:
    """Leave the numbers in a file, if one is named."""
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with states.atomic(out) as path:
        path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
