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

The tables are written by `python training/evaluate.py` from `results/training/*.json`.
"""
TRAINING = """## How they were trained

- Pictures: the first {images:,} of the training stream of `shapes` only (seed 0), each seen about {epochs:.0f} times
  by reta-mini. No gradient came from a picture of `shapes-a`, `shapes-v2`, `shapes-r`, `shapes-sketch`, from
  the corruptions of this package, or from the test set `shapes`.
- What the usual style already contains: camera noise, slight blur in a quarter of the pictures, dim and bright
  light, turns of up to 28 degrees, a rim around a quarter of the objects, and one object in ten of glass with a
  rim, which is not far from an outline. The shifted sets are shifts from that, not from clean pictures.
- Augmentation: random zoom, shift, mirror, brightness, and a further turn of up to 10 degrees. With those turns
  the milder poses of `shapes-a` occur in training too.
- Captions: the class name in OpenAI's 80 and 7 ImageNet templates and a few plain ones; the descriptions of
  the class; sentences with colour, background, texture, size, light and blur as they are in the picture.
  Every prompt measured above is thus among the training captions; prompts in other words are not measured.
- Loss: symmetric cross-entropy between pictures and captions; every caption that is true of a picture counts
  as its own, in equal shares, so that two pictures of a class in one batch do not push each other away.
- Weights: the running mean of the trained ones, with batch-norm statistics measured afresh on training pictures.
  The logit scale is fitted on 2,000 held-out pictures of the training stream (at most 100).
- Why a ResNet tower and not a ViT: on the CPU cores used it saw about twice as many pictures a second as a
  small ViT with half its patches dropped. No ViT was trained, so nothing is known of which would be better.
- Of the token table only the rows that captions touch are shipped; the rest are random, so a prompt made of
  other words means little to these models.

## What was chosen after looking at test sets

The accuracies above are not those of a protocol fixed beforehand. The aim was a miniature with 85 to 95 percent
in distribution and 30 to 75 percent under shift, and these were chosen to meet it by looking at the test sets:

- The length of reta-mini. A run of {long_steps:,} steps reached {long_single:.1f} percent on `shapes` and was put aside
  as too good (`results/training/reta-mini-4000-steps.json`); the shipped run leaves it at step 1,363 and cools down to
  step {steps:,}.
- The difficulty of `shapes-a`: an early checkpoint got 9 percent; nine settings were measured on it with 250
  pictures each, and a tenth between two of them was taken.
- The difficulty of `shapes-sketch`: the longer run got {long_sketch:.1f} percent on clean outlines;
  five ways to draw were tried on two checkpoints, with 250 pictures each, and one was taken.
- Measuring the batch-norm statistics afresh, after the averaged weights did badly on 300 pictures each of the
  training stream, `shapes` and `shapes-sketch`.
- `shapes-v2` and `shapes-r` were settled by eye before any model was measured. reta-mini-l was run once to the
  length given; it was as long as the time there was. No method of adaptation played a part in any choice.
- Both runs were started with a longer plan and given their final length on the plateau of the learning rate, and
  the trainer was tidied in between. Training again from step 0 by the command should agree; that was not done.
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
    longer = json.loads((root / "results/training/reta-mini-4000-steps.json").read_text())
    sets = longer["evaluation"]["sets"]
    training = TRAINING.format(
        images=plan["images"],
        epochs=epochs,
        steps=plan["steps"],
        long_steps=longer["step"],
        long_single=sets["shapes"]["single"],
        long_sketch=sets["shapes-sketch"]["single"],
    )
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
