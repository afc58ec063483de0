"""The head of `reta-photo`: what joins the image tower's features and the sentence encoder's.

    pip install -e '.[photo]' resvg-py
    python training/photo_head.py                        -> src/reta/weights/reta-photo.safetensors
    python training/photo_head.py --measure DIR          -> the same, and results/photo/heads.json

Two memories of named things, both in closed form. `photos` holds the 1000 ImageNet names with the classifier's
own rows. `drawings` holds the names of some 1500 drawings (see drawings.py) with linear discriminants of their
features. No photograph is used. The numbers to choose (how sharply a sentence asks, how much the scatter of
drawings is trusted) are chosen on names held out of the memories; `--measure` only looks: it takes a folder
domain/class/image and tells what each part of the head is worth there.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import drawings
import numpy as np
import torch
from jaxtyping import Float, Int
from open_clip import IMAGENET_CLASSNAMES
from torch import Tensor
from torch.nn.functional import normalize

import reta
from reta import state as states
from reta.photo import files, image, text
from reta.templates import template_set

ROOT = Path(__file__).parents[1]
SHARPNESS = (3.3, 5.0, 6.7, 10.0, 14.0, 20.0)
SHRINK = (0.1, 0.3, 1.0, 3.0)
WAYS, FOLDS, TRIALS = 10, 4, 400
PART = 384


class Memory(NamedTuple):
    """Names' meanings and directions, and where the features it is asked about are centred."""

    keys: Float[Tensor, "things width"]
    values: Float[Tensor, "things wide"]
    centre: Float[Tensor, " wide"]

    def read(self, queries: Float[Tensor, "texts width"], sharpness: float) -> Float[Tensor, "texts wide"]:
        return normalize((sharpness * queries @ self.keys.T).softmax(-1) @ self.values, dim=-1)


class Towers:
    """Both towers without a head."""

    def __init__(self) -> None:
        self.hashes = {
            f[1]: files.sha256(files.place(f))
            for f in (files.NETWORK, files.SENTENCES, files.WORDS, files.SHAPE)
        }
        net, self.preprocess = image.network(files.place(files.NETWORK))
        self.visual = image.ImageHalf(net, []).eval()
        bert = text.transformer(files.place(files.SHAPE), files.place(files.SENTENCES))
        self.text = text.TextHalf(bert, torch.zeros(384), []).eval()
        self.tokens = text.Tokenizer(files.place(files.WORDS))
        classifier = self.visual.network.classifier
        self.rows, self.bias = classifier.weight.detach(), classifier.bias.detach()

    @torch.no_grad()
    def sentences(self, sentences: list[str]) -> Float[Tensor, "texts width"]:
        tokens = self.tokens(sentences)
        lengths = (tokens != 0).sum(1)
        out = torch.empty(len(tokens), 384)
        for index in lengths.argsort().split(256):
            out[index] = self.text.pooled(tokens[index, : int(lengths[index].max())])
        return out

    def names(self, names: list[str]) -> Float[Tensor, "names width"]:
        """Mean over templates, not centred yet."""
        templates = ["{}", *template_set("single"), *template_set("openai-7")]
        return torch.stack([self.sentences([t.format(n) for n in names]) for t in templates]).mean(0)

    @torch.no_grad()
    def features(self, pixels: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch wide"]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.visual.pooled(self.preprocess.normalise(pixels)).float()


def photos(towers: Towers, centre: Tensor, meanings: Tensor) -> Memory:
    rows = towers.rows - towers.rows.mean(0)
    return Memory(normalize(meanings - centre, dim=-1), rows, torch.zeros(rows.shape[1]))


class Drawn(NamedTuple):
    """Features of drawings, the name of each, and the names' meanings."""

    features: Float[Tensor, "drawings wide"]
    labels: Int[Tensor, " drawings"]
    keys: Float[Tensor, "names width"]
    names: list[str]

    def memory(self, shrink: float, use: Tensor | None = None) -> Memory:
        """Linear discriminants of the names: their means, each direction divided by its scatter within names."""
        use = torch.ones(len(self.labels), dtype=torch.bool) if use is None else use
        x, kept, labels = self.features[use], *self.labels[use].unique(return_inverse=True)
        count = torch.bincount(labels).unsqueeze(1)
        means = torch.zeros(len(kept), x.shape[1]).index_add_(0, labels, x) / count
        inside = x - means[labels]
        scatter = inside.T @ inside / len(x)
        scatter += shrink * scatter.diagonal().mean() * torch.eye(x.shape[1])
        centre = x.mean(0)
        return Memory(self.keys[kept], torch.linalg.solve(scatter, (means - centre).T).T, centre)


def encode_drawings(towers: Towers, folder: Path) -> tuple[Tensor, list[str]]:
    """Every drawing through the image tower once; the result is kept in `folder`."""
    kept = folder / "features.safetensors"
    if not kept.is_file():
        drawings.fetch(folder)
        rows, names, batch = [], [], []
        for drawing in drawings.draw(folder):
            names.append(drawing.name)
            batch.append(torch.from_numpy(np.array(drawing.picture)).permute(2, 0, 1) / 255)
            if len(batch) == 32:
                rows.append(towers.features(torch.stack(batch)))
                batch = []
        rows.append(towers.features(torch.stack(batch)))
        states.save(kept, {"features": torch.cat(rows)}, {"names": names})
    body, about = states.load(kept)
    return body["features"], about["names"]


def ten_way(scores: Tensor, right: Tensor, generator: torch.Generator) -> float:
    """How often the right name beats nine others, in percent."""
    others = torch.stack([torch.randperm(scores.shape[1], generator=generator)[: WAYS - 1] for _ in right])
    best = scores.gather(1, others).masked_fill(others == right[:, None], -math.inf).amax(1)
    return 100 * float((scores.gather(1, right[:, None])[:, 0] > best).double().mean())


def held_out_names(memory: Memory, sharpness: float) -> float:
    """Each ImageNet name answered from the 999 others, against the classifier's own row for it."""
    asked = (sharpness * memory.keys @ memory.keys.T).fill_diagonal_(-math.inf).softmax(-1) @ memory.values
    scores = normalize(memory.values, dim=-1) @ normalize(asked, dim=-1).T
    generator = torch.Generator().manual_seed(0)
    return ten_way(scores, torch.arange(len(scores)), generator)


def held_out_drawings(drawn: Drawn, shrink: float) -> dict[float, float]:
    """For each sharpness: drawings of names that the memory does not hold, told from nine such names."""
    fold = torch.randint(FOLDS, (len(drawn.names),), generator=torch.Generator().manual_seed(0))
    total = dict.fromkeys(SHARPNESS, 0.0)
    for f in range(FOLDS):
        out = fold[drawn.labels] == f
        memory = drawn.memory(shrink, ~out)
        names, right = drawn.labels[out].unique(return_inverse=True)
        seen = normalize(drawn.features[out] - memory.centre, dim=-1)
        for sharpness in SHARPNESS:
            scores = seen @ memory.read(drawn.keys[names], sharpness).T
            generator = torch.Generator().manual_seed(f)
            total[sharpness] += ten_way(scores, right, generator) / FOLDS
    return total


def directions(memory: Memory, sharpness: float, vocabulary: Tensor) -> Float[Tensor, "wide part"]:
    """The directions that keep most of what a wide vocabulary reads from a memory."""
    read = memory.read(vocabulary, sharpness)
    return torch.linalg.svd(read, full_matrices=False).Vh[:PART].T.contiguous()


def compare(
    features: Tensor, queries: Tensor, parts: list[tuple[Memory, float, Tensor]]
) -> Float[Tensor, "images texts"]:
    """Cosines of images and texts, the memories' parts side by side."""
    total = torch.zeros(len(features), len(queries))
    for memory, sharpness, matrix in parts:
        seen = normalize((features - memory.centre) @ matrix, dim=-1)
        total += seen @ normalize(memory.read(queries, sharpness) @ matrix, dim=-1).T / len(parts)
    return total


def scale_like_classifier(towers: Towers, features: Tensor, cosines: Tensor) -> float:
    """The logit scale at which the model agrees best with the classifier about ImageNet's names.

    No label is used: on the same pictures the cross-entropy between both answers is least.
    """
    own = (features @ towers.rows.T + towers.bias).softmax(-1)
    grid = torch.arange(5.0, 100.5, 0.5)
    losses = torch.stack([-(own * (s * cosines).log_softmax(-1)).sum(-1).mean() for s in grid])
    return float(grid[losses.argmin()])


def choose(name: str, table: dict[str, float]) -> str:
    best = max(table, key=lambda key: table[key])
    print(f"{name}: {best} of {', '.join(f'{k} {v:.1f}' for k, v in table.items())}")
    return best


def build(towers: Towers, centre: Tensor, known: Memory, drawn: Drawn, out: Path) -> dict[str, Any]:
    """Choose, fit, calibrate and write the head; what was chosen among what."""
    sharp = {str(s): held_out_names(known, s) for s in SHARPNESS}
    pairs = {f"{k} {s}": v for k in SHRINK for s, v in held_out_drawings(drawn, k).items()}
    first = float(choose("sharpness of photos", sharp))
    shrink, second = map(float, choose("shrinkage and sharpness of drawings", pairs).split())
    learned = drawn.memory(shrink)
    vocabulary = torch.cat([known.keys, learned.keys])
    parts = [(m, s, directions(m, s, vocabulary)) for m, s in ((known, first), (learned, second))]
    some = drawn.features[::10]
    scale = scale_like_classifier(towers, some, compare(some, known.keys, parts))
    tensors = {"text.centre": centre}
    for name, (memory, _, matrix) in zip(("photos", "drawings"), parts, strict=True):
        tensors |= {f"{name}.centre": memory.centre, f"{name}.matrix": matrix, f"{name}.keys": memory.keys}
        values = memory.values @ matrix
        tensors[f"{name}.values"] = values / values.norm(dim=-1).mean()
    about = {
        "files": towers.hashes,
        "sharpness": {"photos": first, "drawings": second},
        "shrinkage": shrink,
        "scale": scale,
        "names": {"photos": len(known.keys), "drawings": len(learned.keys)},
        "drawings": {"count": len(drawn.labels), "sets": {k: "@".join(v) for k, v in drawings.SETS.items()}},
        "reta": reta.__version__,
    }
    states.save(out, {key: value.half() for key, value in tensors.items()}, about)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB, scale {scale}")
    return {"head": about, "sharpness of photos": sharp, "shrinkage and sharpness of drawings": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cache", type=Path, default=ROOT / "training" / "runs" / "drawings")
    parser.add_argument("--measure", type=Path, help="a folder domain/class/image")
    parser.add_argument("--out", type=Path, default=files.HEAD)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    towers = Towers()
    meanings = towers.names(list(IMAGENET_CLASSNAMES))
    centre = meanings.mean(0)
    known = photos(towers, centre, meanings)
    features, named = encode_drawings(towers, arguments.cache)
    names = sorted(set(named))
    keys = normalize(towers.names(names) - centre, dim=-1)
    place = {name: i for i, name in enumerate(names)}
    drawn = Drawn(features, torch.tensor([place[n] for n in named]), keys, names)
    report = build(towers, centre, known, drawn, arguments.out)
    if arguments.measure:
        from photo_measure import measure, variants

        heads = variants(towers, centre, meanings, known, drawn, report["head"])
        report["measured"] = measure(arguments.measure, towers, heads)
        path = ROOT / "results" / "photo" / "heads.json"
        with states.atomic(path) as temporary:
            temporary.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
