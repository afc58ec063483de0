"""What each exact shortcut of differentiable prompts saves, against the plain published procedure.

    python benchmarks/prompts.py [--full] [--out results/speed/prompts.json]
    python benchmarks/prompts.py --page            -> the tables of docs/backbones.md and docs/methods/encoders.md

Plain: every class as a row of 77 tokens and one autograd graph over all of them; an image of TPT is then one gradient
and the features at the tuned context. Ours is `reta.run` itself. Image features are given to both. Text tower of the
size of ViT-B/16's (12 layers of width 512), random weights, fp32, one thread, processor time. `--full` adds 1000
classes; there the plain graph does not fit in memory, so it is made and used 50 classes at a time, without
recomputation, and a process of its own (`--peak`) says how much memory eight images of RLCF take in all.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import open_clip
import peers_table
import torch
from safetensors.torch import save_file
from step import resident
from torch import Tensor
from torch.nn.functional import normalize

import reta
from reta import state as states
from reta.backbone import OpenClip
from reta.prompts import PromptedText

CONFIG = {
    "embed_dim": 512,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12},
    "quick_gelu": True,
}


def tower() -> OpenClip:
    """A model with the text tower of CLIP ViT-B/16, random weights and hardly any image tower."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        config, weights = Path(folder) / "tower.json", Path(folder) / "tower.safetensors"
        config.write_text(json.dumps(CONFIG))
        module = open_clip.CLIP(**CONFIG)
        save_file({k: v.contiguous() for k, v in module.state_dict().items()}, weights)
        model = reta.load(str(config), weights=weights, device="cpu")
    assert isinstance(model, OpenClip)
    return model


def plain(module: Any, tokens: Tensor, context: Tensor) -> Tensor:
    """Prompt features as the published code computes them."""
    x = module.token_embedding(tokens)
    x = torch.cat([x[:, :1], context.expand(len(tokens), -1, -1), x[:, 1 + len(context) :]], dim=1)
    x = module.transformer(x + module.positional_embedding, attn_mask=module.attn_mask)
    x = module.ln_final(x)[torch.arange(len(tokens)), tokens.argmax(-1)]
    return normalize(x @ module.text_projection, dim=-1)


NOTHING = 0.005
"""GiB that a graph has at least; less is what is left where every chunk runs again in the backward pass."""


class Plain:
    """The published procedure: features, and gradients through one graph (or through `chunk` classes a time)."""

    def __init__(self, model: OpenClip, names: list[str], chunk: int):
        self.module = model.module
        self.tokens = model.tower.tokens([f"a photo of a {name}." for name in names]).split(chunk)

    def features(self, context: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([plain(self.module, tokens, context) for tokens in self.tokens])

    def gradient(self, context: Tensor, cotangent: Tensor) -> Tensor:
        grad = torch.zeros_like(context)
        for tokens, wanted in zip(self.tokens, cotangent.split(len(self.tokens[0])), strict=True):
            leaf = context.clone().requires_grad_()
            grad += torch.autograd.grad(plain(self.module, tokens, leaf), leaf, wanted)[0]
        return grad


def timed(call: Callable[[], Tensor], repeats: int) -> tuple[float, Tensor]:
    """The best processor time of a few calls, and the result."""
    spent, result = [], torch.empty(0)
    for _ in range(repeats):
        began = time.process_time()
        result = call()
        spent.append(time.process_time() - began)
    return min(spent), result


class Ours:
    """The same with one of the shortcuts."""

    def __init__(self, model: OpenClip, names: list[str], layout: str):
        self.prompts = PromptedText(model, names, layout=layout)
        self.gradient = self.prompts.vjp

    def features(self, context: Tensor) -> Tensor:
        with torch.no_grad():
            return self.prompts.features(context)


def compare(model: OpenClip, classes: int, repeats: int) -> list[dict[str, Any]]:
    """One row per thing done and way to do it; every way must give what the plain one gives."""
    names = open_clip.IMAGENET_CLASSNAMES[:classes]
    old, cut, packed = Plain(model, names, 50), Ours(model, names, "cut"), Ours(model, names, "packed")
    x, cotangent = packed.prompts.context, torch.randn(classes, model.dim)
    pull = packed.prompts.pullback(x)[1]
    chunked = PromptedText(model, names, memory=0.02)
    ways: dict[str, dict[str, Callable[[], Tensor]]] = {
        "features": {
            "plain, 77 tokens": lambda: old.features(x),
            "cut to the longest prompt": lambda: cut.features(x),
            "packed: shared prefix": lambda: packed.features(x),
        },
        "gradient": {
            "plain, 77 tokens, one graph": lambda: old.gradient(x, cotangent),
            "cut, vjp": lambda: cut.gradient(x, cotangent),
            "packed, vjp": lambda: packed.gradient(x, cotangent),
            "packed, pullback: first forward shared": lambda: pull(cotangent),
            "packed, autograd, chunks run again": lambda: by_autograd(chunked, x, cotangent),
        },
    }
    rows = [row for what, calls in ways.items() for row in race(classes, what, calls, repeats)]
    eight = x + 0.01 * torch.randn(8, *x.shape)
    wanted = cotangent.expand(8, -1, -1)
    if classes <= 100:
        together = {
            "one by one": lambda: torch.stack([packed.gradient(c, cotangent) for c in eight]),
            "side by side": lambda: packed.gradient(eight, wanted),
        }
        rows += race(classes, "gradient, 8 images", together, repeats)
    start = x.clone().requires_grad_()
    whole = kept(model, lambda: plain(old.module, old.tokens[0], start)) * len(old.tokens)
    shared = kept(model, lambda: packed.prompts.features(start))
    published = sum(row["seconds"] for row in rows if row["how"].startswith("plain"))
    return [
        *rows,
        line(classes, "TPT, an image", "plain: gradient, features", published, published),
        line(classes, "TPT, an image", "reta.run", tpt(model, names, cut, max(2, 320 // classes)), published),
        line(classes, "one graph", "plain, 77 tokens", whole, whole, "GiB"),
        line(classes, "one graph", "packed", shared, whole, "GiB"),
    ]


def scene(model: OpenClip, names: list[str], images: int) -> tuple[reta.Task, Tensor]:
    """A task of the model with random texts, seen by itself as a second model, and random views."""
    random = torch.Generator().manual_seed(0)
    text = torch.randn(len(names), 1, model.dim, generator=random)
    task = reta.Task.from_features(text, scale=model.scale, names=names)
    views = normalize(torch.randn(images, 64, model.dim, generator=random), dim=-1)
    return dataclasses.replace(task, model=model, reward=task), views


def tpt(model: OpenClip, names: list[str], other: Ours, images: int) -> float:
    """Seconds an image of TPT takes; the first forward pass, one for all images, was made before.

    The first answer must be that of the loss by autograd and torch's AdamW, through `other` features.
    """
    task, views = scene(model, names, images)
    start = task.start()
    began = time.process_time()
    out = reta.run(reta.methods.create("tpt"), task, views, device="cpu")
    spent = time.process_time() - began
    words = torch.nn.Parameter(start.context.clone())
    words.grad = other.gradient(start.context, downhill(task.scale, views[0], start.features))
    torch.optim.AdamW([words], lr=5e-3).step()
    same("TPT", out.info["logits"][0], task.scale * other.features(words.detach()) @ views[0, 0])
    return spent / images


def downhill(scale: float, views: Tensor, text: Tensor) -> Tensor:
    """d loss / d class features of TPT's loss, by autograd."""
    leaf = text.clone().requires_grad_()
    logp = (scale * views @ leaf.mT).log_softmax(-1)
    keep = (-(logp.exp() * logp).sum(-1)).argsort()[: len(views) // 10]
    mean = logp[keep].exp().mean(0)
    return torch.autograd.grad(-(mean * mean.log()).sum(), leaf)[0]


def peak(classes: int = 1000, images: int = 8) -> float:
    """GiB this process has taken at most after two steps of RLCF for several images at once."""
    task, views = scene(tower(), open_clip.IMAGENET_CLASSNAMES[:classes], images)
    reta.run(reta.methods.create("rlcf", steps=2), task, views, reward=views, device="cpu")
    return resident() / 2**30


def by_autograd(prompts: PromptedText, context: Tensor, cotangent: Tensor) -> Tensor:
    """The gradient as anyone's own loss would have it."""
    leaf = context.clone().requires_grad_()
    return torch.autograd.grad((prompts.features(leaf) * cotangent).sum(), leaf)[0]


def race(
    classes: int, what: str, calls: dict[str, Callable[[], Tensor]], repeats: int
) -> Iterator[dict[str, Any]]:
    """Time each way; the first is the reference for results and ratios."""
    base, wanted = 0.0, torch.empty(0)
    for how, call in calls.items():
        spent, result = timed(call, repeats if base else 1)
        base, wanted = (base, wanted) if base else (spent, result)
        same(how, result, wanted)
        yield line(classes, what, how, spent, base)


def same(how: str, result: Tensor, wanted: Tensor) -> None:
    """Stop where two ways to do one thing disagree."""
    if (result - wanted).abs().max() > 1e-3 * wanted.abs().max():
        raise SystemExit(f"{how}: another result than the plain way: no comparison")


def kept(model: OpenClip, call: Callable[[], Tensor]) -> float:
    """GiB that autograd keeps for the backward pass of what `call` computes."""
    weights = {p.untyped_storage().data_ptr() for p in model.module.parameters()}
    sizes: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = call()
    assert result.requires_grad
    return sum(sizes.values()) / 2**30


def line(
    classes: int, what: str, how: str, cost: float, base: float, unit: str = "seconds"
) -> dict[str, Any]:
    print(f"{classes:5} classes  {what:12} {how:40} {cost:8.3f} {unit:7}  {base / cost:6.1f} x", flush=True)
    row = {"classes": classes, "what": what, "how": how, unit: round(cost, 4)}
    return row | {"ratio": round(base / cost, 2)}


def tables(results: Path) -> dict[tuple[str, str], list[str]]:
    """Page and name -> table: all rows, and an image of TPT in short."""
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"]
    every = ["| classes | what | how | cost | times less |", "|--:|---|---|--:|--:|"]
    every += [f"| {r['classes']} | {r['what']} | {r['how']} | {cost(r)} | {times(r)} |" for r in rows]
    cells = {(row["classes"], row["what"], row["how"]): row for row in rows}
    short = ["| classes | plain: 77 tokens, one graph | here | times faster | graph, plain | graph, here |"]
    short.append("|" + "--:|" * 6)
    for classes in dict.fromkeys(row["classes"] for row in rows):
        pairs = [("TPT, an image", "plain: gradient, features"), ("TPT, an image", "reta.run")]
        pairs += [("one graph", "plain, 77 tokens"), ("one graph", "packed")]
        old, new, *graphs = (cells[classes, what, how] for what, how in pairs)
        costs = [cost(old), cost(new), f"{new['ratio']:.0f}", *map(cost, graphs)]
        short.append(f"| {classes} | " + " | ".join(costs) + " |")
    return {("docs/backbones.md", "prompts"): every, ("docs/methods/encoders.md", "steps"): short}


def cost(row: dict[str, Any]) -> str:
    if "seconds" in row:
        return f"{row['seconds']:.2f} s"
    return f"{row['GiB']:.2f} GiB" if row["GiB"] >= NOTHING else "none, chunks run again"


def times(row: dict[str, Any]) -> str:
    return f"{row['ratio']:.1f}" if row.get("GiB", 1) >= NOTHING else "-"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="also 1000 classes (some fifteen minutes)")
    parser.add_argument("--out", type=Path, help="write the rows there as JSON")
    parser.add_argument("--peak", action="store_true", help="only the memory of a process, 1000 classes")
    parser.add_argument("--page", action="store_true", help="fill the docs pages from the committed results")
    options = parser.parse_args()
    if options.page:
        for (page, name), lines in tables(Path("results/speed/prompts.json")).items():
            peers_table.fill_page(Path(page), {name: lines})
        return
    torch.set_num_threads(1)
    if options.peak:
        print(peak())
        return
    model = tower()
    rows = compare(model, 40, 3)
    if options.full:
        rows += compare(model, 1000, 1)
        plain_graph = next(r["GiB"] for r in reversed(rows) if r["how"] == "plain, 77 tokens" and "GiB" in r)
        own = subprocess.run([sys.executable, __file__, "--peak"], capture_output=True, text=True, check=True)
        rows.append(line(1000, "process, peak", "rlcf, 8 images", float(own.stdout), plain_graph, "GiB"))
    if options.out:
        machine = {"torch": torch.__version__, "python": platform.python_version(), "threads": 1}
        body = {"what": "differentiable prompts", "reta": reta.__version__, **machine, "rows": rows}
        with states.atomic(options.out) as temporary:
            temporary.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
