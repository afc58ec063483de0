"""Tiny random models of every open_clip family, made offline and loaded the way users load theirs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import open_clip
import timm
import torch
from safetensors.torch import save_file
from timm.models.eva import Eva

from reta.backbone import OpenClip, load

TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
VIT = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16}
COLOURS = {
    "mean": [0.1, 0.2, 0.3],
    "std": [0.4, 0.5, 0.6],
    "interpolation": "bilinear",
    "resize_mode": "squash",
}
WORDS = [
    "a",
    "photo",
    "of",
    "the",
    "drawing",
    "cat",
    "dog",
    "red",
    "fox",
    "big",
    "star",
    "key",
    "and",
    ".",
    ",",
    "x",
]

CONFIGS: dict[str, dict] = {
    "vit": {"embed_dim": 24, "vision_cfg": VIT, "text_cfg": TEXT},
    "resnet": {
        "embed_dim": 24,
        "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None},
        "text_cfg": TEXT,
        "quick_gelu": True,
    },
    "eva02": {
        "embed_dim": 24,
        "vision_cfg": {
            "image_size": 28,
            "timm_model_name": "eva02_test_patch14_28",
            "timm_pool": "token",
            "timm_proj": None,
        },
        "text_cfg": TEXT,
        "custom_text": True,
    },
    "coca": {
        "embed_dim": 32,
        "vision_cfg": VIT
        | {"attentional_pool": True, "attn_pooler_heads": 2, "attn_pooler_queries": 4, "output_tokens": True},
        "text_cfg": TEXT | {"context_length": 76, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {
            "context_length": 76,
            "vocab_size": 49408,
            "width": 32,
            "heads": 2,
            "layers": 1,
            "attn_pooler_heads": 2,
        },
        "custom_text": True,
    },
    "siglip": {
        "embed_dim": 32,
        "init_logit_bias": -10,
        "custom_text": True,
        "vision_cfg": VIT,
        "text_cfg": {
            "context_length": 24,
            "vocab_size": 40,
            "width": 32,
            "heads": 2,
            "layers": 2,
            "no_causal_mask": True,
            "proj_bias": True,
            "pool_type": "last",
            "norm_kwargs": {"eps": 1e-6},
            "tokenizer_kwargs": {"clean": "lower"},
        },
    },
    "roberta": {
        "embed_dim": 24,
        "custom_text": True,
        "vision_cfg": VIT,
        "text_cfg": {
            "context_length": 24,
            "hf_model_name": "",
            "hf_model_pretrained": False,
            "hf_proj_type": "mlp",
            "hf_pooler_type": "mean_pooler",
        },
    },
    "eos": {
        "embed_dim": 24,
        "vision_cfg": VIT,
        "text_cfg": TEXT | {"pool_type": "eos", "eos_id": 49407, "context_length": 40},
    },
}
FAMILIES = tuple(CONFIGS)


@timm.models.register_model
def eva02_test_patch14_28(num_classes: int, global_pool: str, **_) -> Eva:
    """timm's EVA02, smaller than any it lists."""
    return Eva(
        img_size=28,
        patch_size=14,
        embed_dim=32,
        depth=2,
        num_heads=2,
        mlp_ratio=8 / 3,
        swiglu_mlp=True,
        use_rot_pos_emb=True,
        ref_feat_shape=(2, 2),
        num_classes=num_classes,
        global_pool=global_pool,
    )


def tokenizer(folder: Path) -> None:
    """A word tokenizer as SigLIP's: no begin token, an end token, padding behind it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def roberta(folder: Path) -> None:
    """The configuration of a text encoder from the transformers package."""
    from transformers import RobertaConfig

    RobertaConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
        pad_token_id=0,
        eos_token_id=1,
    ).save_pretrained(folder)


@torch.no_grad()
def write(folder: Path, family: str, seed: int = 0) -> Path:
    """A model folder as open_clip's: configuration, random weights, tokenizer where it has its own."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(CONFIGS[family]))
    if family in ("siglip", "roberta"):
        tokenizer(folder)
        config["text_cfg"]["hf_tokenizer_name"] = str(folder)
    if family == "roberta":
        roberta(folder)
        config["text_cfg"]["hf_model_name"] = str(folder)
    about = {"model_cfg": config, "preprocess_cfg": COLOURS}
    (folder / "open_clip_config.json").write_text(json.dumps(about))
    module = open_clip.CoCa if family == "coca" else open_clip.CustomTextCLIP
    module = module if config.pop("custom_text", False) else open_clip.CLIP
    torch.manual_seed(seed)
    model = module(**config).eval()
    for name, value in model.named_parameters():
        if value.ndim > 1:
            value.copy_(torch.randn_like(value) * (0.5 if "embedding" in name else value[0].numel() ** -0.5))
    weights = {k: v.contiguous().clone() for k, v in model.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")
    return folder


@cache
def shared(root: Path, family: str) -> Path:
    return write(root / family, family)


def fresh(root: Path, family: str, **options) -> OpenClip:
    """The family's model through `reta.load`; its files are written once per test run."""
    found = load(str(shared(root, family)), device="cpu", **options)
    assert isinstance(found, OpenClip)
    return found


model = cache(fresh)
