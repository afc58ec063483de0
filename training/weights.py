"""The trained model as open_clip builds it, with only the token rows that captions touch; reading and writing it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from jaxtyping import Float, Int
from open_clip import SimpleTokenizer
from open_clip.model import CLIP
from safetensors.torch import save_file
from torch import Tensor, nn

VOCABULARY = 49408
WEIGHTS = Path(__file__).parents[1] / "src" / "reta" / "weights"


def table(width: int) -> Float[Tensor, "vocabulary width"]:
    """The token table before training: also what fills the rows that are not shipped."""
    return torch.randn(VOCABULARY, width, generator=torch.Generator().manual_seed(0)) * 0.02


def build(config: dict[str, dict[str, object]], seed: int) -> CLIP:
    """A fresh open_clip model; its token table is `table`, and its residual branches start open."""
    torch.manual_seed(seed)
    model = CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"])  # type: ignore[arg-type]
    for name, scale in model.visual.named_parameters():
        if name.endswith("bn3.weight"):
            nn.init.ones_(scale)
    with torch.no_grad():
        model.token_embedding.weight.copy_(table(model.token_embedding.embedding_dim))
    return model


class Words:
    """The tokens that captions use: ids in the full vocabulary, and sentences as short rows of positions."""

    def __init__(self, sentences: Iterable[str], context: int = 77):
        self.tokenizer, self.context = SimpleTokenizer(), context
        used = {t for s in set(sentences) for t in self._encode(s)}
        self.ids = torch.tensor(sorted(used), dtype=torch.int32)
        self.place = {int(t): i for i, t in enumerate(self.ids)}
        self.seen: dict[str, list[int]] = {}

    def _encode(self, sentence: str) -> list[int]:
        t = self.tokenizer
        return [t.sot_token_id, *t.encode(sentence)[: self.context - 2], t.eot_token_id]

    def rows(self, sentences: list[str]) -> tuple[Int[Tensor, "n length"], Int[Tensor, "n"]]:
        """Positions in `ids`, padded with zeros to the longest, and where each sentence ends."""
        for s in sentences:
            if s not in self.seen:
                self.seen[s] = [self.place[t] for t in self._encode(s)]
        found = [self.seen[s] for s in sentences]
        longest = max(map(len, found))
        padded = torch.tensor([f + [0] * (longest - len(f)) for f in found])
        return padded, torch.tensor([len(f) - 1 for f in found])


class Trainee(nn.Module):
    """An open_clip model while it learns: the same towers, a short token table, sentences cut to the longest."""

    def __init__(self, config: dict[str, dict[str, object]], words: Words, seed: int):
        super().__init__()
        self.model, self.words = build(config, seed), words
        short = self.model.token_embedding.weight[words.ids.long()].detach().clone()
        self.model.token_embedding = nn.Embedding.from_pretrained(short, freeze=False)

    def texts(self, rows: Int[Tensor, "n length"], ends: Int[Tensor, "n"]) -> Float[Tensor, "n dim"]:
        """Unit features of sentences."""
        m, length = self.model, rows.shape[1]
        x = m.token_embedding(rows) + m.positional_embedding[:length]
        x = m.ln_final(m.transformer(x, attn_mask=m.attn_mask[:length, :length]))
        x = x[torch.arange(len(x), device=x.device), ends] @ m.text_projection
        return nn.functional.normalize(x.float(), dim=-1)

    def images(self, pixels: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n dim"]:
        """Unit features of normalised pictures."""
        return nn.functional.normalize(self.model.visual(pixels).float(), dim=-1)


def write(trainee: Trainee, path: Path, about: dict[str, object]) -> None:
    """Write the compact file: fp16, token rows and their ids, one metadata key."""
    state = {k: v.detach().cpu() for k, v in trainee.model.state_dict().items()}
    rows = state.pop("token_embedding.weight")
    out = {k: v.half().contiguous() if v.is_floating_point() else v for k, v in state.items()}
    out |= {"token_embedding.rows": rows.half(), "token_embedding.ids": trainee.words.ids}
    if not all(torch.isfinite(v).all() for v in out.values()):
        raise ValueError("a weight does not fit in fp16")
    partial = path.with_suffix(".part")
    save_file(out, partial, metadata={"json": json.dumps(about, sort_keys=True)})
    partial.chmod(0o644)
    partial.replace(path)


def read(name: str, folder: Path = WEIGHTS) -> CLIP:
    """A model from its config and compact file, through open_clip alone."""
    from safetensors.torch import load_file

    config = json.loads((WEIGHTS / f"{name}.json").read_text())
    state = load_file(folder / f"{name}.safetensors")
    full = table(config["text_cfg"]["width"])
    full[state.pop("token_embedding.ids").long()] = state.pop("token_embedding.rows").float()
    model = CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"])
    model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in state.items()}
                          | {"token_embedding.weight": full})  # fmt: skip
    return model.eval()
