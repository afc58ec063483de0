"""The model card and the table in the docs, written from the training records and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODELS = ("reta-mini", "reta-mini-l")
ROLE = {
    "reta-mini": "the embedded default model",
    "reta-mini-l": "the larger one, which serves as reward model",
}
HEAD = """# Model card: reta-mini and reta-mini-l

Two small CLIP models in open_clip's own architecture, for pictures of 64 x 64 pixels of the embedded world
`shapes` (40 everyday silhouettes). They exist so that every method of this package can be run, tested and
compared on real distribution shift with nothing to download. They know nothing of photographs, and nothing
of classes, words or pictures outside that world: do not use them for any other purpose.

Every number here is written by `python training/evaluate.py` from `results/training/*.json`.
"""
TRAINING = """## How they were trained

- Pictures: the first {images:,} of the training stream of `shapes` only (seed 0), each seen about {epochs:.0f} times
  by reta-mini. No picture of `shapes-a`, `shapes-v2`, `shapes-r`, `shapes-sketch`, no corruption, and no
  picture of the test set `shapes` was used, for training or for choosing anything in training.
- Augmentation: random zoom, shift, turn of 10 degrees, mirror and brightness. None imitates a shifted set.
- Captions: the class name in OpenAI's 80 and 7 ImageNet templates and a few plain ones; the descriptions of
  the class; sentences with colour, background, texture, size, light and blur as they are in the picture.
- Loss: symmetric cross-entropy between pictures and captions; every caption that is true of a picture counts
  as its own, in equal shares, so that two pictures of a class in one batch do not push each other away.
- Why a ResNet tower and not a ViT: the models were trained on two shared CPU cores, where this tower sees
  three times as many pictures a second as a ViT with 8 x 8 patches of the same size and needs fewer of them.
- The logit scale is fitted on 2,000 held-out pictures of the training stream after training (at most 100).
- Of the token table only the rows that captions touch are shipped; the rest are random, so a prompt made of
  other words means little to these models.
"""


def write_card(root: Path) -> None:
    """Write the card and the docs table for the models that have been evaluated."""
    records = {}
    for name in MODELS:
        path = root / "results" / "training" / f"{name}.json"
        if path.exists() and "evaluation" in (found := json.loads(path.read_text())):
            records[name] = found
    numbers = "\n".join(_section(name, record) for name, record in records.items())
    plan = next(iter(records.values()))["plan"]
    epochs = next(iter(records.values()))["step"] * plan["batch"] / plan["images"]
    training = TRAINING.format(images=plan["images"], epochs=epochs)
    (root / "src/reta/weights/MODEL_CARD.md").write_text(f"{HEAD}\n{numbers}\n{training}")
    (root / "docs/assets").mkdir(parents=True, exist_ok=True)
    page, mark = root / "docs" / "world.md", "<!-- numbers -->"
    if page.exists():
        before, _, after = page.read_text().split(mark)
        page.write_text(f"{before}{mark}\n\n{numbers}\n{mark}{after}")


def _section(name: str, record: dict[str, Any]) -> str:
    """One model: what it is and a row of numbers per set."""
    plan, found = record["plan"], record["evaluation"]
    size = found["parameters"]
    seen = record["step"] * plan["batch"]
    role = ROLE[name][0].upper() + ROLE[name][1:]
    text = (
        f"{role}: image tower {size['image'] / 1e6:.2f} M parameters, text transformer {size['text'] / 1e6:.2f} M, "
        f"{record['tokens']} token rows trained. {record['step']:,} steps of {plan['batch']} pictures "
        f"({seen / 1e6:.2f} M views), {record['seconds'] / 60:.0f} minutes on {record['device']}. Logit scale "
        f"{found['scale']:.1f}. Accuracy in percent on {found['images_per_set']:,} pictures per set; confidence and "
        "expected calibration error (ECE, 15 bins) with the single template.\n"
    )
    head = "| set | `a photo of a {}.` | 80 templates | descriptions | confidence | ECE |"
    lines = [f"## {name}\n", text, head, "|---|---:|---:|---:|---:|---:|"]
    columns = ("single", "openai-80", "descriptions", "confidence", "ece")
    for row, values in found["sets"].items():
        lines.append(f"| {row} | " + " | ".join(f"{values[c]:.1f}" for c in columns) + " |")
    return "\n".join(lines) + "\n"
