"""Methods through the encoders: against literal transcriptions, order, batching, contexts, rewards, extra views."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

import reta
from reta import coop, methods
from reta import state as states
from reta.sample import Sample
from tests import reference_prompts as reference

NAMES = ["cat", "dog", "red fox", "star", "key"]


@pytest.fixture(scope="module")
def model(tiny_root):
    from tests import tiny

    return tiny.model(tiny_root, "vit", precision="fp64")


@pytest.fixture(scope="module")
def task(model):
    return reta.Task.build(model, NAMES, reward=model)


def views_of(task, n, views, seed=0):
    g = torch.Generator().manual_seed(seed)
    centre = task.text[torch.randint(len(task), (n,), generator=g)]
    scattered = centre[:, None] + 0.3 * torch.randn(n, views, task.dim, generator=g, dtype=torch.float64)
    return scattered / scattered.norm(dim=-1, keepdim=True)


def written_out(name, model, task, views, reward=None):
    context = task.start().context
    args = (model.module, model.tower.tokens, NAMES, context, model.scale, views)
    if name == "rlcf":
        return reference.rlcf(*args, reward, task.reward.prompts[:, 0])
    return getattr(reference, name)(*args)


@pytest.mark.parametrize("name", ["tpt", "difftpt", "rlcf"])
@pytest.mark.parametrize("views", [1, 9, 30])
def test_agrees_with_the_transcription(model, task, name, views):
    for i, rows in enumerate(views_of(task, 2, views)):
        second = views_of(task, 1, views, seed=50 + i)[0]
        expected, keep = written_out(name, model, task, rows, second)
        method = methods.create(name)
        start = task.start()
        chosen = method.select(task.scale * rows @ start.features.mT)
        assert chosen.tolist() == keep
        got = method.step(task, {}, Sample(rows, second))[0]
        assert torch.allclose(got.probs, expected, atol=1e-5)


SAME = {"tpt": (64, 0.1, 5e-3, 0.01), "difftpt": (128, 0.3, 5e-3, 0.01), "rlcf": (64, 0.1, 7e-3, 5e-4)}
SAME |= dict.fromkeys(["rlcf-tune", "rlcf-momentum"], (64, 0.1, 1e-5, 5e-4))
STEPS = {"tpt": (1, 1), "difftpt": (4, 4), "rlcf": (3, 5), "rlcf-tune": (3, 3), "rlcf-momentum": (3, 3)}


@pytest.mark.parametrize("name", SAME)
def test_presets_have_the_published_constants(name):
    """On the ImageNet family crops and flips, on the ten other sets AugMix, and of RLCF's prompt five steps."""
    found = methods.presets(name)
    assert len(found) == 17 and {"paper", "fixed"} <= set(found)
    for preset in found:
        method = methods.create(name, preset)
        assert (method.views, method.share, method.lr, method.weight_decay) == SAME[name]
        family = preset.startswith("released/imagenet")
        assert method.recipe == ("crops" if family else "augmix")
        assert method.steps == STEPS[name][preset.startswith("released/") and not family]


def test_two_steps_of_tpt_agree_too(model, task):
    rows = views_of(task, 1, 20, seed=3)[0]
    expected, _ = reference.tpt(
        model.module, model.tower.tokens, NAMES, task.start().context, model.scale, rows, steps=2, lr=0.02
    )
    got = methods.create("tpt", steps=2, lr=0.02).step(task, {}, Sample(rows))[0]
    assert torch.allclose(got.probs, expected, atol=1e-5)


def test_the_image_tower_is_tuned_as_written_out_and_left_as_it_was(model, task):
    g = torch.Generator().manual_seed(0)
    pixels = torch.rand(20, 3, 32, 32, generator=g, dtype=torch.float64)
    second = views_of(task, 1, 20, seed=9)[0]
    before = model.fingerprint
    method = methods.create("rlcf-tune", lr=1e-3)
    sample = Sample(model.images(pixels), second, pixels)
    got = method.step(task, {}, sample)[0]
    assert model.fingerprint == before
    text, second_text = task.prompts[:, 0], task.reward.prompts[:, 0]
    expected = reference.rlcf_tune(model, text, pixels, model.scale, second, second_text, lr=1e-3)
    assert torch.allclose(got.probs, expected, atol=1e-5)
    untouched = methods.create("rlcf-tune", steps=0).step(task, {}, sample)[0]
    assert not torch.allclose(got.probs, untouched.probs, atol=1e-5)


def test_momentum_starts_from_the_average_when_it_is_due(model, task):
    pixels = torch.rand(4, 3, 32, 32, dtype=torch.float64)
    sample = Sample(model.images(pixels), model.images(pixels), pixels)
    method = methods.create("rlcf-momentum", lr=1e-2, momentum=0.5, every=2)
    first = method.init(task)
    name = next(k for k in first if k.startswith("start.") and k.endswith("proj"))
    once = method.step(task, first, sample)[1]
    assert torch.equal(once[name], first[name])
    twice = method.step(task, once, sample)[1]
    assert not torch.equal(twice[name], first[name])
    assert torch.equal(twice[name], twice[name.replace("start.", "average.")])


def test_momentum_agrees_with_the_transcription(model, task):
    """The views are looked at through the weights an image starts from, as the release does."""
    g = torch.Generator().manual_seed(0)
    images = torch.rand(7, 20, 3, 32, 32, generator=g, dtype=torch.float64)
    seconds = views_of(task, 7, 20, seed=9)
    method = methods.create("rlcf-momentum", lr=1e-2, momentum=0.3, every=2)
    stream = [Sample(model.images(x), r, x) for x, r in zip(images, seconds)]
    got = reta.run(method, task, stream).probs
    args = (model, task.prompts[:, 0], images, model.scale, seconds, task.reward.prompts[:, 0])
    expected = reference.rlcf_momentum(*args, lr=1e-2, momentum=0.3, every=2).float()
    assert torch.allclose(got, expected, atol=1e-5)
    alone = reta.run(methods.create("rlcf-tune", lr=1e-2), task, stream).probs
    assert not torch.allclose(got, alone, atol=1e-3)


def test_tuning_an_image_disturbs_no_other_thread(model, task):
    pixels = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = model.images(pixels)
    sample = Sample(plain, views_of(task, 1, 8)[0], pixels)
    method = methods.create("rlcf-tune", lr=0.1, steps=30)
    with ThreadPoolExecutor(1) as pool:
        tuning = pool.submit(method.step, task, {}, sample)
        while not tuning.done():
            assert torch.equal(model.images(pixels), plain)
        assert tuning.result()[0].probs.isfinite().all()


def test_tuning_keeps_the_models_precision(tiny_root):
    from tests import tiny

    g = torch.Generator().manual_seed(0)
    pixels, second = torch.rand(8, 3, 32, 32, generator=g), torch.randn(8, 24, generator=g)
    answers = {}
    for precision in ("fp32", "bf16", "fp16"):
        model = tiny.model(tiny_root, "vit", precision=precision)
        task = reta.Task.build(model, NAMES, reward=model)
        sample = Sample(model.images(pixels), second, pixels)
        still = methods.create("rlcf-tune", steps=0).step(task, {}, sample)[0].probs
        plain = methods.create("zeroshot").step(task, {}, sample)[0].probs
        assert torch.allclose(still, plain, atol=1e-6)
        answers[precision] = methods.create("rlcf-tune", lr=1e-3).step(task, {}, sample)[0].probs
        assert (answers[precision] - still).abs().max() > 1e-3
    for precision in ("bf16", "fp16"):
        assert torch.allclose(answers[precision], answers["fp32"], atol=0.05)


@pytest.mark.parametrize("name", ["coop", "tpt", "difftpt", "rlcf"])
def test_answers_depend_on_no_other_image(task, name):
    """Any order, one by one or several at once: the same answers."""
    method = methods.create(name, **({} if name == "coop" else {"views": 7}))
    views, second = views_of(task, 11, 7), views_of(task, 11, 7, seed=1)
    together = reta.run(method, task, views, reward=second)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    shuffled = reta.run(method, task, views, reward=second, order=order)
    assert torch.allclose(shuffled.probs, together.probs[order], atol=1e-6)
    for i in range(11):
        single, state = method.step(task, {}, Sample(views[i], second[i]))
        assert state == {}
        assert torch.allclose(single.probs.float(), together.probs[i], atol=1e-6)


def test_a_bad_image_among_several(task):
    views = views_of(task, 9, 5)
    views[4] = float("nan")
    out = reta.run(methods.create("tpt", views=5), task, views)
    assert out.valid.tolist() == [i != 4 for i in range(9)]
    rest = reta.run(methods.create("tpt", views=5), task, torch.cat([views[:4], views[5:]]))
    assert torch.allclose(out.probs[out.valid], rest.probs, atol=1e-6)


def test_coop_learns_saves_and_starts_other_methods(model, task, tmp_path):
    labels = torch.arange(len(NAMES)).repeat(6)
    g = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(
        torch.randn(len(NAMES), model.dim, generator=g, dtype=torch.float64), dim=-1
    )
    noise = 0.05 * torch.randn(len(labels), 3, model.dim, generator=g, dtype=torch.float64)
    views = centres[labels][:, None] + noise
    learned, losses = coop.fit(task, views, labels, epochs=12, lr=0.05)
    assert losses[-1] < losses[0]
    path = tmp_path / "context.safetensors"
    coop.save(path, learned, task, shots=6)
    unit = torch.nn.functional.normalize(views[:, :1], dim=-1)
    before = reta.run(methods.create("coop"), task, unit, labels)
    after = reta.run(methods.create("coop", context=str(path)), task, unit, labels)
    loss = [torch.nn.functional.nll_loss(out.probs.log(), labels) for out in (before, after)]
    assert loss[1] < loss[0]
    still = methods.create("tpt", context=str(path), steps=0).step(task, {}, Sample(unit[0]))[0]
    assert torch.allclose(still.probs.float(), after.probs[0], atol=1e-6)


def test_coop_learns_as_written_out(model, task):
    """The same batches and views by torch's SGD, autograd and whole sequences."""
    labels = torch.arange(len(NAMES)).repeat(3)
    views = views_of(task, len(labels), 4, seed=5)
    settings = {"epochs": 4, "batch": 4, "lr": 0.05, "seed": 3}
    learned, losses = coop.fit(task, views, labels, **settings)
    start = task.start().context
    expected, wanted = reference.coop(
        model.module, model.tower.tokens, NAMES, start, model.scale, views, labels, **settings
    )
    assert (expected - start).abs().max() > 1e-3
    assert torch.allclose(learned, expected, atol=1e-6)
    assert losses == pytest.approx(wanted, abs=1e-6)


def test_a_learned_context_is_a_static_prompt_for_any_method(model, task, tmp_path):
    path = tmp_path / "context.safetensors"
    coop.save(path, task.start().context + 0.2, task)
    words = task.start(str(path)).features
    static = reta.Task.from_features(words[:, None], scale=task.scale, names=task.names)
    views = views_of(task, 6, 1)
    fixed = reta.run(methods.create("coop", context=str(path)), task, views)
    plain = reta.run(methods.create("zeroshot"), static, views)
    assert torch.allclose(plain.probs, fixed.probs, atol=1e-6)
    assert reta.run(methods.create("tda"), static, views).valid.all()


def test_a_context_of_another_model_is_refused(task, tiny_root, tmp_path):
    from tests import tiny

    path = tmp_path / "context.safetensors"
    coop.save(path, task.start().context, task)
    other = reta.Task.build(tiny.model(tiny_root, "eos"), NAMES)
    with pytest.raises(reta.BadState, match="the context was learned with"):
        other.start(str(path))
    states.save(tmp_path / "no.safetensors", {"x": torch.zeros(1)}, {})
    with pytest.raises(reta.BadState, match="holds no learned context"):
        task.start(str(tmp_path / "no.safetensors"))


def test_bad_calls_say_what_to_do(task):
    bare = reta.Task.from_features(torch.randn(3, 2, 8))
    with pytest.raises(reta.BadInput, match="build it with reta.Task.build"):
        methods.create("tpt").step(bare, {}, Sample(torch.randn(4, 8)))
    with pytest.raises(reta.BadInput, match="asks for a second model"):
        methods.create("rlcf").step(task, {}, Sample(views_of(task, 1, 4)[0]))
    with pytest.raises(reta.BadInput, match="samples with pixels"):
        methods.create("rlcf-tune").step(task, {}, Sample(views_of(task, 1, 4)[0]))
    with pytest.raises(reta.BadInput, match="labels in 0..4 are needed"):
        coop.fit(task, views_of(task, 3, 2), torch.tensor([0, 1, 9]))


def test_the_steps_go_where_their_model_is(task):
    """Whatever other device there is: features are moved to the model."""
    views = views_of(task, 2, 4)
    assert reta.run(methods.create("tpt"), task, views, device="auto").valid.all()
    with pytest.raises(reta.BadInput, match=r"which is on cpu: load it with device='meta'"):
        reta.run(methods.create("tpt"), task, views, device="meta")


def test_few_shots_are_balanced_and_seeded():
    labels = torch.tensor([0] * 30 + [1] * 30 + [2] * 3)
    chosen = coop.few_shots(labels, 5)
    assert labels[chosen].bincount().tolist() == [5, 5, 3]
    assert torch.equal(chosen, coop.few_shots(labels, 5))
    assert not torch.equal(chosen, coop.few_shots(labels, 5, seed=1))


@pytest.mark.parametrize("name", ["tpt", "rlcf"])
def test_conformance(model, name):
    """The public suite on a tower of a few thousand weights."""
    from reta.checks import check_method

    def make(classes):
        return reta.Task.build(model, [*NAMES, "a", "b"][:classes], reward=model)

    assert check_method(methods.create(name, views=4), make, quiet=True) == []


def test_extra_views_from_a_folder(model, task, tmp_path):
    from reta.views.extra import Folder

    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8))
    (tmp_path / "cat1").mkdir()
    for i in range(3):
        Image.fromarray(rng.integers(0, 256, (50, 60, 3), dtype=np.uint8)).save(
            tmp_path / "cat1" / f"{i}.png"
        )
    method = methods.create("difftpt", views=8, generated=3)
    stream = reta.Stream(model, task, method, extra=Folder(tmp_path))
    with_extra = stream.sample(picture, key="cat1.jpg")
    plain = reta.Stream(model, task, method).sample(picture, key="cat1.jpg")
    assert with_extra.views.shape == plain.views.shape == (8, model.dim)
    assert torch.allclose(with_extra.views[:5], plain.views[:5])
    assert not torch.allclose(with_extra.views[5:], plain.views[5:])
    assert stream.classify(picture, key="cat1.jpg").probs.shape == (5,)
    with pytest.raises(reta.MissingData, match="no extra views of 'dog'"):
        stream.sample(picture, key="dog")
    with pytest.raises(reta.MissingData, match="no such folder"):
        Folder(tmp_path / "none")


def tiny_pipeline():
    """An image-variation pipeline of the published kind, with a few thousand random weights."""
    import diffusers
    import transformers

    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16, attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        block_out_channels=(16, 16), down_block_types=("DownEncoderBlock2D",) * 2, norm_num_groups=8,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4,
    )  # fmt: skip
    vision = transformers.CLIPVisionConfig(
        hidden_size=16, projection_dim=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8,
        intermediate_size=16,
    )  # fmt: skip
    return diffusers.StableDiffusionImageVariationPipeline(
        vae=vae, image_encoder=transformers.CLIPVisionModelWithProjection(vision).eval(), unet=unet,
        scheduler=diffusers.DDIMScheduler(), safety_checker=None, requires_safety_checker=False,
        feature_extractor=transformers.CLIPImageProcessor(size=16, crop_size=16),
    )  # fmt: skip


def test_extra_views_from_a_real_diffusion_pipeline(tmp_path):
    """Saved to a folder and loaded from it, as a user would."""
    from reta.views.extra import Diffusion, square

    tiny_pipeline().save_pretrained(tmp_path / "pipe")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8))
    options = {"size": 16, "num_inference_steps": 2, "guidance_scale": 3.0, "height": 16, "width": 16}
    made = Diffusion(tmp_path / "pipe", batch=2, **options).pictures(picture, "a.jpg", 3)
    again = Diffusion(tmp_path / "pipe", batch=2, **options).pictures(picture, "a.jpg", 3)
    assert all(np.array_equal(a, b) for a, b in zip(made, again))
    assert not np.array_equal(made[0], made[1])
    assert square(made, 32).shape == (3, 3, 32, 32)
    with pytest.raises(reta.MissingData, match="cannot be had"):
        Diffusion(str(tmp_path / "nowhere"))


def image_to_image(kind="StableDiffusionImg2ImgPipeline"):
    """A text-guided pipeline with a few thousand random weights."""
    import diffusers
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    variation = tiny_pipeline()
    words = {token: i for i, token in enumerate(["<|startoftext|>", "<|endoftext|>", "!", "a</w>", "a"])}
    text = CLIPTextConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=8, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return getattr(diffusers, kind)(
        vae=variation.vae, unet=variation.unet, text_encoder=CLIPTextModel(text).eval(),
        tokenizer=CLIPTokenizer(vocab=words, merges=[], model_max_length=8),
        scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False), safety_checker=None,
        feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["StableDiffusionImg2ImgPipeline", "StableDiffusionPipeline"])
@pytest.mark.parametrize("options", [{}, {"prompt": "a"}])
def test_extra_views_by_image_to_image(model, task, tmp_path, kind, options):
    """With and without a prompt; a text-to-image folder serves too. End to end, through a stream."""
    from reta.views.extra import Diffusion

    image_to_image(kind).save_pretrained(tmp_path / "pipe")
    source = Diffusion(
        tmp_path / "pipe", batch=2, size=16, num_inference_steps=4, strength=0.5, device="cpu", **options
    )
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8))
    made = source.pictures(picture, "a.jpg", 3)
    assert len(made) == 3 and all(p.size == (16, 16) for p in made)
    assert all(np.array_equal(a, b) for a, b in zip(made, source.pictures(picture, "a.jpg", 3)))
    assert not np.array_equal(made[0], made[1])
    method = methods.create("difftpt", views=8, generated=3, similar=1.0, share=1.0)
    with_extra = reta.Stream(model, task, method, extra=source).classify(picture, key="a.jpg")
    plain = reta.Stream(model, task, method).classify(picture, key="a.jpg")
    assert not torch.allclose(with_extra.probs, plain.probs, atol=1e-6)


def test_a_pipeline_without_images_is_refused():
    from reta.views.extra import Diffusion

    class Words:
        def __call__(self, prompt): ...

    with pytest.raises(reta.BadInput, match="Words takes no image"):
        Diffusion(Words())


@pytest.mark.parametrize("name", ["tpt", "rlcf", "difftpt"])
def test_every_view_is_encoded_once(tiny_root, name, monkeypatch):
    """64 encodings per image (128 for DiffTPT), whatever the number of steps."""
    from tests import tiny

    policy, judge = tiny.fresh(tiny_root, "vit"), tiny.fresh(tiny_root, "vit")
    task = reta.Task.build(policy, NAMES, reward=judge)
    counted = {policy: 0, judge: 0}
    for model in counted:

        def images(pixels, batch=64, model=model, encode=model.images):
            counted[model] += len(pixels)
            return encode(pixels, batch)

        monkeypatch.setattr(model, "images", images)
    method = methods.create(name, steps=3)
    stream = reta.Stream(policy, task, method, reward=judge if name == "rlcf" else None)
    stream.adapt(torch.zeros(32, 32, 3, dtype=torch.uint8))
    assert counted == {policy: method.views, judge: 64 if name == "rlcf" else 0}


def test_the_gradient_of_the_reward_is_autograds():
    from reta.methods.reward import feedback_grad, scores

    g = torch.Generator().manual_seed(0)
    text, second_text, views, second = (
        torch.nn.functional.normalize(torch.randn(n, 8, generator=g, dtype=torch.float64), dim=-1)
        for n in (6, 6, 4, 4)
    )
    logits = (20 * views @ text.T).requires_grad_()

    def loss(rows):
        return reference.reward_loss(1.0, rows, torch.eye(6, dtype=torch.float64), second, second_text)

    expected = torch.autograd.grad(loss(logits), logits)[0]
    task = reta.Task.from_features(second_text[:, None])
    assert torch.allclose(feedback_grad(logits.detach(), scores(second, task), 3), expected, atol=1e-12)


def rewarded(classes):
    from dataclasses import replace

    from reta.checks import synthetic

    return replace(synthetic(classes), reward=synthetic(classes))


@pytest.mark.parametrize("preset", ["paper", "fixed"])
def test_reta_with_reward_conforms(preset):
    from reta.checks import check_method

    assert check_method(methods.create("reta-reward", preset), rewarded, quiet=True) == []


def test_reta_with_reward_is_reta_but_for_the_first_loss():
    from reta.checks import views_of as synthetic_views

    task = rewarded(5)
    views = synthetic_views(task, n=30)
    common = {"steps": 3, "loss_gate": "all", "lr": 0.01}
    rewards = reta.run(methods.create("reta-reward", **common), task, views, reward=views)
    entropy = reta.run(methods.create("reta", **common), task, views)
    assert not torch.allclose(rewards.probs, entropy.probs, atol=1e-4)
    common["lambda_ent"] = 0.0
    without = reta.run(methods.create("reta-reward", **common), task, views, reward=views)
    plain = reta.run(methods.create("reta", **common), task, views)
    assert torch.allclose(without.probs, plain.probs, atol=1e-6)
    with pytest.raises(reta.BadInput, match="asks for a second model"):
        reta.run(methods.create("reta-reward"), task, views)
