"""Measure embedded models on every set of the world of shapes, and write the model card from the numbers.

    python training/evaluate.py reta-mini reta-mini-l

Adds "evaluation" to results/training/NAME.json, then writes src/reta/weights/MODEL_CARD.md and
docs/assets/world-numbers.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from card import write_card
from jaxtyping import Float
from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD, OPENAI_IMAGENET_TEMPLATES, get_tokenizer
from open_clip.model import CLIP
from torch import Tensor
from weights import read

from reta.data import shapes

ROOT = Path(__file__).parents[1]
HELD_OUT = 10_000_000


@torch.inference_mode()
def image_features(model: CLIP, images: Sequence[np.ndarray]) -> Float[Tensor, "n dim"]:
    """Unit features of 64 x 64 RGB arrays."""
    mean, std = (torch.tensor(v)[:, None, None] for v in (OPENAI_DATASET_MEAN, OPENAI_DATASET_STD))
    found = []
    for start in range(0, len(images), 250):
        x = torch.from_numpy(np.stack(images[start : start + 250])).permute(0, 3, 1, 2).float() / 255
        found.append(model.encode_image((x - mean) / std, normalize=True))
    return torch.cat(found)


@torch.inference_mode()
def class_features(model: CLIP, sentences: Sequence[Sequence[str]]) -> Float[Tensor, "classes dim"]:
    """The unit mean of each class's unit sentence features."""
    tokenizer, found = get_tokenizer("ViT-B-32"), []
    for of_class in sentences:
        mean = model.encode_text(tokenizer(list(of_class)), normalize=True).mean(0)
        found.append(mean / mean.norm())
    return torch.stack(found)


def prompts() -> dict[str, list[list[str]]]:
    """The three ways to name the classes: one template, the 80, the descriptions."""
    names, described = shapes.classes(), shapes.descriptions()
    return {
        "single": [[f"a photo of a {n}."] for n in names],
        "openai-80": [[t(n) for t in OPENAI_IMAGENET_TEMPLATES] for n in names],
        "descriptions": [described[n] for n in names],
    }


def pictures(name: str, count: int, first: int = 0) -> tuple[list[np.ndarray], Tensor]:
    """Images of a set and their labels."""
    span = range(first, first + count)
    return [np.asarray(shapes.draw(name, i)) for i in span], torch.tensor(
        [shapes.label(name, i) for i in span]
    )


def calibration_error(probs: Float[Tensor, "n classes"], labels: Tensor, bins: int = 15) -> float:
    """Expected calibration error: the gap between confidence and accuracy in equal bins of confidence."""
    sure, guess = probs.max(1)
    right, error = (guess == labels).float(), 0.0
    place = (sure * bins).long().clamp(max=bins - 1)
    for b in range(bins):
        inside = place == b
        if inside.any():
            error += float((right[inside].mean() - sure[inside].mean()).abs() * inside.float().mean())
    return error


def fitted_scale(model: CLIP, count: int = 2000) -> float:
    """The logit scale with the best likelihood on held-out images of the training stream, at most 100."""
    images, labels = pictures("train", count, HELD_OUT)
    cosines = image_features(model, images) @ class_features(model, prompts()["single"]).T
    scales = torch.logspace(0, 2, 201)
    losses = [float(torch.nn.functional.cross_entropy(s * cosines, labels)) for s in scales]
    return float(scales[int(np.argmin(losses))])


def measure(model: CLIP, count: int) -> dict[str, dict[str, float]]:
    """Accuracy by kind of prompt, confidence, calibration error and cosines on every set."""
    texts = {kind: class_features(model, s) for kind, s in prompts().items()}
    scale, found = float(model.logit_scale.detach().exp()), {}
    for name in shapes.SETS:
        images, labels = pictures(name, count)
        features = image_features(model, images)
        row = {
            k: round(100 * float(((features @ t.T).argmax(1) == labels).float().mean()), 2)
            for k, t in texts.items()
        }
        cosines = features @ texts["single"].T
        probs = (scale * cosines).softmax(1)
        own = cosines.gather(1, labels[:, None]).mean()
        row |= {"confidence": round(100 * float(probs.max(1).values.mean()), 2),
                "ece": round(100 * calibration_error(probs, labels), 2), "cosine_own_class": round(float(own), 3),
                "cosine_all_classes": round(float(cosines.mean()), 3)}  # fmt: skip
        found[name] = row
    return found


def _right(logits: Float[Tensor, "n classes"], labels: Tensor) -> float:
    return round(100 * float((logits.argmax(1) == labels).float().mean()), 2)


def evaluate(name: str, count: int) -> None:
    """Measure one model and put the numbers into its record."""
    model = read(name)
    sizes = {
        "image": _size(model.visual),
        "text": _size(model.transformer),
        "tokens": model.token_embedding.weight.numel(),
    }
    path = ROOT / "results" / "training" / f"{name}.json"
    record = json.loads(path.read_text())
    record["evaluation"] = {"images_per_set": count, "scale": round(float(model.logit_scale.detach().exp()), 3),
                            "parameters": sizes, "sets": measure(model, count)}  # fmt: skip
    path.write_text(json.dumps(record, indent=1) + "\n")
    for row, values in record["evaluation"]["sets"].items():
        print(name, row, values, flush=True)


def _size(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+")
    parser.add_argument("--count", type=int, default=2000, help="images per set")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.names:
        evaluate(name, options.count)
    write_card(ROOT)


if __name__ == "__main__":
    main()
