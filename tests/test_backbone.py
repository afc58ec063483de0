"""Backbones: every family through `reta.load`, what is read from the model, fingerprints, files, errors."""

from __future__ import annotations

import json
import logging
import pickle
import time
from types import SimpleNamespace

import open_clip
import pytest
import torch
from safetensors.torch import load_file, save_file

import reta
from reta.backbone import SPECIAL, Backbone, OpenClip, Preprocess, hub
from reta.backbone.compact import compact, expand
from reta.errors import BadInput, MissingData, RetaError
from tests import tiny
from tests.tiny import FAMILIES

TEXTS = ["a photo of a cat.", "the big red fox and the star, a drawing.", "dog", "a photo of a cat.", "a"]


def pixels(model, count=5, seed=0):
    size = model.preprocess.size
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


# every family


@pytest.mark.parametrize("family", FAMILIES)
def test_features_are_those_of_open_clip(tiny_model, family):
    model = tiny_model(family)
    x = pixels(model)
    mean, std = (torch.tensor(tiny.COLOURS[k]).view(1, 3, 1, 1) for k in ("mean", "std"))
    tokens = model.tower.tokenizer(TEXTS)
    with torch.no_grad():
        images = unit(model.module.encode_image((x - mean) / std))
        texts = unit(model.module.encode_text(tokens))
    for got, wanted in ((model.images(x), images), (model.texts(TEXTS), texts)):
        assert got.dtype == torch.float32 and got.shape == (5, tiny.CONFIGS[family]["embed_dim"])
        assert (got - wanted).abs().max() < 1e-6
        assert (got.norm(dim=-1) - 1).abs().max() < 1e-6
    assert (images[0] - images[1]).abs().max() > 1e-5 and (texts[0] - texts[1]).abs().max() > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_change_nothing(tiny_model, family):
    model = tiny_model(family)
    x = pixels(model)
    for batch in (1, 2, 100):
        assert (model.images(x, batch=batch) - model.images(x)).abs().max() < 1e-5
        assert (model.texts(TEXTS, batch=batch) - model.texts(TEXTS)).abs().max() < 1e-5
    single = torch.cat([model.texts([text]) for text in TEXTS])
    assert (single - model.texts(TEXTS)).abs().max() < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_is_read_from_the_model(tiny_model, family):
    model = tiny_model(family)
    config = tiny.CONFIGS[family]
    colours = {k: tuple(v) if isinstance(v, list) else v for k, v in tiny.COLOURS.items()}
    assert model.preprocess == Preprocess(size=config["vision_cfg"]["image_size"], **colours)
    assert model.scale == pytest.approx(float(model.module.logit_scale.exp()))
    assert (model.dim, model.device.type, model.precision) == (config["embed_dim"], "cpu", "fp32")
    assert isinstance(model, Backbone)
    assert not model.module.training and not any(p.requires_grad for p in model.module.parameters())


def test_bytes_are_pixels(tiny_model):
    model = tiny_model("vit")
    x = (pixels(model) * 255).to(torch.uint8)
    assert (model.images(x) - model.images(x / 255)).abs().max() < 1e-6


def test_equal_prompts_are_encoded_once_and_short_ones_on_short_rows(tiny_model, monkeypatch):
    model = tiny_model("vit")
    rows, seen = model.tower.rows, []
    monkeypatch.setattr(model.tower, "rows", lambda tokens: seen.append(tuple(tokens.shape)) or rows(tokens))
    model.texts(["dog", "cat"] * 10)
    assert seen == [(2, 3)]


@pytest.mark.parametrize(("family", "size"), [("vit", 77), ("siglip", 24)])
def test_prompts_that_do_not_fit_are_told(tiny_model, caplog, family, size):
    words = size - 2 if family == "vit" else size - 1
    tiny_model(family).texts(["cat", "a " * words])
    assert not caplog.records
    tiny_model(family).texts(["cat", "a " * words, "a " * words + "dog", "dog " * 100])
    assert caplog.messages == [f"2 of 4 prompts are cut to {size} tokens: {('a ' * words + 'dog')!r:.60}..."]


def test_nothing_in_nothing_out(tiny_model):
    model = tiny_model("vit")
    assert model.images(torch.empty(0, 3, 32, 32)).shape == model.texts([]).shape == (0, 24)


def test_scale_of_a_checkpoint(tiny_root, tmp_path):
    folder = tiny.write(tmp_path / "scaled", "vit")
    path = folder / "open_clip_model.safetensors"
    save_file(load_file(path) | {"logit_scale": torch.tensor(3.0)}, path)
    assert reta.load(str(folder), device="cpu").scale == pytest.approx(20.0855369)


# precision


@pytest.mark.parametrize("family", FAMILIES)
def test_precision_can_be_chosen(tiny_model, family):
    exact = tiny_model(family, precision="fp64")
    x = pixels(exact)
    assert exact.images(x).dtype == torch.float64
    for precision, error in (("fp32", 1e-5), ("bf16", 0.1), ("fp16", 0.02)):
        model = tiny_model(family, precision=precision)
        for got, wanted in ((model.images(x), exact.images(x)), (model.texts(TEXTS), exact.texts(TEXTS))):
            assert got.dtype == torch.float32
            difference = (got - wanted).abs().max()
            assert (0 if precision == "fp32" else 1e-6) < difference < error
        assert model.fingerprint == exact.fingerprint


def test_precision_goes_with_the_device():
    from reta.backbone.loading import _precision

    assert _precision("auto", torch.device("cpu")) == "fp32"
    assert _precision("auto", torch.device("cuda")) == "fp16"
    assert _precision("bf16", torch.device("cuda")) == "bf16"


# fingerprints


@torch.no_grad()
def test_the_fingerprint_changes_with_any_weight(tiny_root):
    model = tiny.fresh(tiny_root, "siglip")
    assert model._digest is None
    mark, seen = model.fingerprint, set()
    for value in model.module.state_dict().values():
        first = value.view(-1)[0].clone()
        value.view(-1)[0] += 1e-3
        seen.add(model.fingerprint)
        value.view(-1)[0] = first
    assert len(seen) == len(model.module.state_dict()) and mark not in seen
    assert model.fingerprint == mark == tiny.fresh(tiny_root, "siglip").fingerprint


def test_the_fingerprint_knows_activation_and_preprocessing(tmp_path):
    folder = tiny.write(tmp_path / "a", "vit")
    plain = reta.load(str(folder), device="cpu")
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text())
    marks = {plain.fingerprint}
    for change in ({"model_cfg": config["model_cfg"] | {"quick_gelu": True}}, {"preprocess_cfg": {}}):
        path.write_text(json.dumps(config | change))
        marks.add(reta.load(str(folder), device="cpu").fingerprint)
    assert len(marks) == 3


# where weights come from


def test_files_of_every_kind_hold_the_same_model(tmp_path):
    folder = tiny.write(tmp_path / "model", "vit")
    config = folder / "mine.json"
    config.write_text(json.dumps(tiny.CONFIGS["vit"]))
    weights = load_file(folder / "open_clip_model.safetensors")
    torch.save(weights, tmp_path / "plain.pt")
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in weights.items()}}, tmp_path / "run.bin"
    )
    files = [folder / "open_clip_model.safetensors", tmp_path / "plain.pt", tmp_path / "run.bin"]
    models = [reta.load(str(config), weights=file, device="cpu") for file in files]
    assert len({model.fingerprint for model in models}) == 1
    assert models[0].name == "mine" and models[0].preprocess.mean == open_clip.OPENAI_DATASET_MEAN
    by_folder = [reta.load(name, device="cpu") for name in (folder, f"local-dir:{folder}")]
    assert torch.equal(by_folder[0].texts(TEXTS), models[0].texts(TEXTS))
    assert by_folder[0].fingerprint == by_folder[1].fingerprint != models[0].fingerprint
    named = reta.load("my model", weights=folder, device="cpu")
    assert (named.name, named.fingerprint) == ("my model", by_folder[0].fingerprint)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A name and tag as in open_clip's table, its weights in the hub's cache on this disk."""
    folder = tiny.write(tmp_path / "tiny-clip", "vit")
    (folder / "tiny-clip.json").write_text(json.dumps(tiny.CONFIGS["vit"]))
    open_clip.add_model_config(folder / "tiny-clip.json")
    entry = {"hf_hub": "someone/tiny/", "mean": (0.5, 0.5, 0.5), "resize_mode": "squash", "quick_gelu": True}
    other = entry | {"hf_hub": "someone/else/", "mean": (0.1, 0.1, 0.1)}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny-clip", {"mine": entry, "other": other})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    place = tmp_path / "hub" / "models--someone--tiny"
    for part in ("refs", "snapshots/abc"):
        (place / part).mkdir(parents=True)
    (place / "refs" / "main").write_text("abc")
    (folder / "open_clip_model.safetensors").rename(place / "snapshots/abc/open_clip_model.safetensors")
    yield place / "snapshots/abc/open_clip_model.safetensors"
    del open_clip.factory._MODEL_CONFIGS["tiny-clip"]


def test_name_and_tag(published):
    model = reta.load("tiny-clip", "mine", device="cpu")
    assert (model.name, model.tag) == ("tiny-clip", "mine")
    assert model.preprocess.mean == (0.5, 0.5, 0.5) and model.preprocess.resize_mode == "squash"
    copy = reta.load("tiny-clip", "mine", weights=published, device="cpu")
    assert copy.fingerprint == model.fingerprint


def test_a_repository_of_the_hub(published):
    with pytest.raises(MissingData, match="someone/tiny/resolve/main/open_clip_config.json"):
        reta.load("hf-hub:someone/tiny")
    config = {"model_cfg": tiny.CONFIGS["vit"], "preprocess_cfg": tiny.COLOURS}
    published.with_name("open_clip_config.json").write_text(json.dumps(config))
    model = reta.load("hf-hub:someone/tiny", device="cpu")
    assert model.name == "hf-hub:someone/tiny" and model.preprocess.mean == (0.1, 0.2, 0.3)


def test_a_tag_brings_its_activation(published, tmp_path):
    """Tags trained with QuickGELU get it although the model's own configuration does not say so."""
    model = reta.load("tiny-clip", "mine", device="cpu")
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps(tiny.CONFIGS["vit"]))
    quick = tmp_path / "quick.json"
    quick.write_text(json.dumps(tiny.CONFIGS["vit"] | {"quick_gelu": True}))
    by_file = {path: reta.load(str(path), weights=published, device="cpu") for path in (plain, quick)}
    assert torch.equal(model.texts(TEXTS), by_file[quick].texts(TEXTS))
    assert (model.texts(TEXTS) - by_file[plain].texts(TEXTS)).abs().max() > 1e-4
    assert open_clip.get_pretrained_cfg("ViT-B-16", "openai")["quick_gelu"]


def test_loading_leaves_no_trace(tmp_path, capfd, caplog):
    folder = tiny.write(tmp_path / "quiet", "vit")
    capfd.readouterr()
    handlers, filters = list(logging.getLogger().handlers), list(logging.getLogger().filters)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    with caplog.at_level(logging.WARNING):
        reta.load(str(folder), device="cpu")
    assert torch.equal(torch.rand(3), wanted)
    assert capfd.readouterr() == ("", "") and not caplog.records
    assert (logging.getLogger().handlers, logging.getLogger().filters) == (handlers, filters)


def test_inside_inference_mode(tmp_path):
    folder = tiny.write(tmp_path / "model", "vit")
    with torch.inference_mode():
        model = reta.load(str(folder), device="cpu")
        assert model.fingerprint and model.texts(TEXTS).shape == (5, 24)
    assert model.texts(TEXTS).shape == (5, 24)


# the embedded models and their compact form


@pytest.mark.parametrize("name", ["reta-mini", "reta-mini-l"])
def test_embedded_models(name):
    model = reta.load(name, device="cpu")
    assert isinstance(model, OpenClip) and (model.name, model.tag, model.preprocess.size) == (name, None, 64)
    assert model.images(pixels(model)).shape == model.texts(TEXTS).shape == (5, model.dim)
    assert model.unknown_tokens("a photo of a key.") == 0
    assert model.unknown_tokens("a photo of a zygomorphic key.") >= 1


def test_compact_weights_and_back():
    weights = {"token_embedding.weight": torch.randn(50, 8), "bn": torch.tensor(7), "w": torch.randn(3, 3)}
    small = compact(weights, [9, 4, 4, 30])
    assert small["token_embedding.ids"].tolist() == [4, 9, 30] and small["w"].dtype == torch.float16
    back, ids = expand(small, 50)
    assert back["bn"] == 7 and ids.tolist() == [4, 9, 30]
    assert torch.equal(back["w"], weights["w"].half().float())
    table = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)) * 0.02
    table[ids] = weights["token_embedding.weight"][ids].half().float()
    assert torch.equal(back["token_embedding.weight"], table)
    for ids in ([], [50], [-1]):
        with pytest.raises(BadInput, match="token ids must lie between 0 and 49"):
            compact(weights, ids)
    with pytest.raises(BadInput, match="do not belong together, or not to 20 tokens"):
        expand(small, 20)


def test_a_compact_file_is_a_weights_file(tmp_path):
    folder = tiny.write(tmp_path / "model", "vit")
    full = reta.load(str(folder), device="cpu")
    ids = full.tower.tokens(TEXTS).unique().tolist()
    small = compact(full.module.state_dict(), ids)
    save_file(small, tmp_path / "small.safetensors")
    (tmp_path / "small.json").write_text(json.dumps(tiny.CONFIGS["vit"]))
    model = reta.load(str(tmp_path / "small.json"), weights=tmp_path / "small.safetensors", device="cpu")
    assert (tmp_path / "small.safetensors").stat().st_size < 0.1 * (
        folder / "open_clip_model.safetensors"
    ).stat().st_size
    assert (model.texts(TEXTS) - full.texts(TEXTS)).abs().max() < 1e-2
    assert [model.unknown_tokens(text) for text in (*TEXTS, "a photo of a zebra.", "")] == [0] * 5 + [1, 0]
    assert full.unknown_tokens("zebra") == 0
    mark = model.fingerprint
    with torch.no_grad():
        model.module.token_embedding.weight[40000] += 1  # filler, not a weight
        assert model.fingerprint == mark
        model.module.token_embedding.weight[ids[1]] += 1
        assert model.fingerprint != mark


# models from elsewhere


class Elsewhere:
    """A model that open_clip knows nothing of."""

    name, tag, dim, scale, fingerprint = "mine", None, 4, 10.0, "f00d"
    device, preprocess = torch.device("cpu"), Preprocess(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))

    def images(self, pixels, batch=64):
        return unit(pixels.float().mean((2, 3)) @ torch.eye(3, 4) + 1)

    def texts(self, texts, batch=256):
        return unit(torch.tensor([[float(len(t)), 1.0, 2.0, 3.0] for t in texts]).view(-1, 4))


def test_a_model_from_elsewhere(monkeypatch):
    monkeypatch.setitem(SPECIAL, "mine", lambda device, precision: Elsewhere())
    model = reta.load("mine", device="cpu")
    assert isinstance(model, Backbone) and not isinstance(object(), Backbone)
    task = reta.Task.build(model, ["cat", "horse"])
    assert task.text.shape == (2, 4) and task.scale == 10.0
    with pytest.raises(BadInput, match="mine takes no tag and no weights"):
        reta.load("mine", "openai")


# errors


def test_weights_that_cannot_be_had():
    began = time.monotonic()
    with pytest.raises(MissingData) as caught:
        reta.load("ViT-B-16", "openai")
    assert time.monotonic() - began < 5
    for part in (
        "the weights of ViT-B-16 (openai) are not on this machine",
        "HF_HUB_OFFLINE is set",
        "https://huggingface.co/timm/vit_base_patch16_clip_224.openai/resolve/main/open_clip_model.safetensors",
        "weights='FILE'",
        "--weights FILE",
        "Without downloads: reta-mini",
        "pip install 'reta[photo]'",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_download_shows_its_progress_to_a_person(monkeypatch, terminal):
    from huggingface_hub.utils import are_progress_bars_disabled

    monkeypatch.setattr(hub.sys, "stderr", SimpleNamespace(isatty=lambda: terminal))
    with hub._silent():
        assert are_progress_bars_disabled() is not terminal
    assert not are_progress_bars_disabled()


def test_no_network(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("urllib.request.getproxies", dict)

    def refuse(address, timeout):
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr("socket.create_connection", refuse)
    with pytest.raises(MissingData, match=r"huggingface\.co cannot be reached: Name or service not known"):
        reta.load("RN50", "openai")
    with pytest.raises(MissingData, match=r"openaipublic\.azureedge\.net cannot be reached"):
        hub.weights_of("x", {"url": "https://openaipublic.azureedge.net/clip/none.pt"})


def test_a_failed_download_names_its_reason(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(hub, "unreachable", lambda url: None)

    def refuse(repository, name):
        raise ConnectionResetError("cut off")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    with pytest.raises(MissingData, match=r"cannot be downloaded \(ConnectionResetError: cut off\)"):
        reta.load("RN50", "openai")


def test_a_tokenizer_that_cannot_be_had(tmp_path):
    folder = tiny.write(tmp_path / "model", "siglip")
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = "someone/words"
    (tmp_path / "away.json").write_text(json.dumps(config))
    with pytest.raises(
        MissingData, match=r"the tokenizer of away \(someone/words on huggingface.co\) cannot be had"
    ):
        reta.load(str(tmp_path / "away.json"), weights=folder / "open_clip_model.safetensors")


NAMES = {
    ("ViT-B-17",): "unknown model 'ViT-B-17': did you mean 'ViT-B-1",
    ("reta-min",): "unknown model 'reta-min': did you mean 'reta-mini'",
    ("ViT-B-16", "opnai"): "ViT-B-16 has no weights tagged 'opnai': did you mean 'openai'",
    ("ViT-B-16",): r"ViT-B-16 needs a tag \(openai, .*\) or weights='FILE'",
    ("ViT-M-16",): "ViT-M-16 needs weights='FILE'",
    ("reta-mini", "openai"): "reta-mini is embedded: it takes no tag and no weights",
}


@pytest.mark.parametrize("arguments", NAMES)
def test_unknown_names(arguments):
    with pytest.raises(BadInput, match=NAMES[arguments]):
        reta.load(*arguments)


def test_a_file_alone_does_not_say_how_it_was_trained(tmp_path, published):
    for name in ("ViT-B-32", "tiny-clip"):
        with pytest.raises(
            BadInput, match=f"weights of {name} differ in preprocessing or activation .* tag="
        ):
            reta.load(name, weights=published)


def test_files_that_are_no_weights(tmp_path):
    folder = tiny.write(tmp_path / "model", "vit")
    other = tiny.write(tmp_path / "other", "coca")
    config = str(folder / "open_clip_config.json")
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "code.pt").write_bytes(pickle.dumps({"state_dict": print}))
    torch.save({"w": torch.nn.Linear(2, 2)}, tmp_path / "module.pt")
    cases = {
        tmp_path / "none.pt": "no such weights file for the configuration",
        tmp_path
        / "model"
        / "open_clip_config.json": r"is no weights file: \.safetensors, \.pt, \.pth, \.bin",
        tmp_path / "text.safetensors": "weights of open_clip_config: it is cut short or no checkpoint",
        tmp_path / "empty.pt": "empty.pt cannot be read as weights of open_clip_config",
        tmp_path / "code.pt": "holds program code, not only weights, and is not loaded",
        tmp_path / "module.pt": "holds program code, not only weights, and is not loaded",
        other / "open_clip_model.safetensors": "holds the weights of another model than open_clip_config",
    }
    for path, message in cases.items():
        with pytest.raises(RetaError, match=message):
            reta.load(config, weights=path, device="cpu")
    with pytest.raises(BadInput, match="needs weights='FILE'"):
        reta.load(config)


def test_bad_configurations(tmp_path):
    folder = tiny.write(tmp_path / "model", "vit")
    weights = folder / "open_clip_model.safetensors"
    for content, message in {
        "{": "is not a model configuration",
        "[]": "is not a model configuration",
        '{"embed_dim": 3}': "embed_dim, vision_cfg, text_cfg needed",
        json.dumps(tiny.CONFIGS["vit"] | {"colour": 1}): "open_clip cannot build this configuration",
    }.items():
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(BadInput, match=message):
            reta.load(str(tmp_path / "bad.json"), weights=weights)
    with pytest.raises(MissingData, match="no such model configuration"):
        reta.load("local-dir:/no/such/folder")
    save_file({"w": torch.zeros(1)}, folder / "second.safetensors")
    weights.rename(folder / "first.safetensors")
    with pytest.raises(
        MissingData, match=r"must hold one weights file \(open_clip_model.safetensors\); it has 2"
    ):
        reta.load(str(folder))


def test_bad_arguments(tiny_model, tiny_root):
    folder = str(tiny.shared(tiny_root, "vit"))
    model = tiny_model("vit")
    x = pixels(model)
    cases = {
        r"takes pixels \[B,3,32,32\], not \[5, 3, 16, 16\]: make them with reta.views.make": lambda: (
            model.images(x[..., :16, :16])
        ),
        r"not \[3, 32, 32\]": lambda: model.images(x[0]),
        r"must lie in \[0,1\] and not be normalised; these go from -": lambda: model.images(x - 1),
        "these go from nan to nan": lambda: model.images(x * float("nan")),
        "must be uint8 or floating point, not torch.int64": lambda: model.images(x.long()),
        "batch must be at least 1, not 0": lambda: model.images(x, batch=0),
        "texts must be a list of strings": lambda: model.texts("cat"),
        "texts must be a list of str": lambda: model.texts([1]),
        "unknown precision 'int8': auto, fp32, bf16, fp16, fp64": lambda: reta.load(folder, precision="int8"),
        "device 'cuda:99' cannot be used": lambda: reta.load(folder, device="cuda:99"),
        "device 'gpu' cannot be used": lambda: reta.load(folder, device="gpu"),
    }
    for message, call in cases.items():
        with pytest.raises(BadInput, match=message):
            call()


@torch.no_grad()
def test_features_are_never_silently_broken(tiny_root):
    model = tiny.fresh(tiny_root, "vit")
    model.module.ln_final.weight[0] = float("inf")
    with pytest.raises(
        RetaError, match="gave non-finite features for texts in fp32: are its weights damaged"
    ):
        model.texts(TEXTS)
    model = tiny.fresh(tiny_root, "vit", precision="fp16")
    model.module.visual.proj *= 1e9
    with pytest.raises(
        RetaError, match="non-finite features for images in fp16: try precision='fp32' or 'bf16'"
    ):
        model.images(pixels(model))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the lowered image tower is for a GPU")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_lowered_tower_sees_what_the_whole_one_sees(tmp_path, family, precision):
    """On a GPU, and again after a weight changed."""
    folder = str(tiny.shared(tmp_path, family))
    whole, low = (reta.load(folder, device="cuda", precision=p) for p in ("fp32", precision))
    x = torch.rand(3, 3, whole.preprocess.size, whole.preprocess.size)
    for _ in range(2):
        assert (whole.images(x) * low.images(x)).sum(-1).min() > 0.999
        for model in (whole, low):
            next(p for p in model.module.visual.parameters() if p.ndim > 1).mul_(-1)
