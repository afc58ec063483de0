"""Differentiable prompts: against open_clip's own towers, finite differences and plain autograd."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from reta.backbone.layout import place
from reta.errors import BadInput
from reta.prompts import PromptedText
from tests.tiny import FAMILIES

NAMES = ["cat", "big red fox", "dog", "key", "the star and the drawing"]
LAYOUTS = [
    (family, layout)
    for family in FAMILIES
    for layout in {"coca": ("cut", "full"), "siglip": ("full",), "roberta": ("full",)}.get(
        family, ("packed", "cut", "full")
    )
]


def reference(model, prompts, context):
    """Plain open_clip at full length: the context becomes the embeddings of token ids no prompt uses."""
    module = copy.deepcopy(model.module)
    tokens = model.tower.tokens([f"a photo of a {name}." for name in NAMES])
    ids = torch.arange(30, 30 + len(context))
    assert not torch.isin(tokens, ids).any()
    text = module.text if hasattr(module, "text") else module
    table = (
        text.token_embedding
        if hasattr(text, "token_embedding")
        else text.transformer.embeddings.word_embeddings
    )
    table.weight[ids] = context.to(table.weight)
    tokens[:, prompts.start : prompts.start + len(context)] = ids
    return torch.nn.functional.normalize(module.encode_text(tokens), dim=-1)


def elsewhere(prompts, seed=0, *batch):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(*batch, *prompts.context.shape, generator=generator, dtype=prompts.context.dtype)
    return prompts.context + 0.3 * noise


def cotangents(prompts, seed=1, *batch):
    generator = torch.Generator().manual_seed(seed)
    shape = (*batch, len(prompts.names), prompts.dim)
    return torch.randn(shape, generator=generator, dtype=prompts.context.dtype)


def gradient(prompts, context, cotangent):
    leaf = context.clone().requires_grad_()
    return torch.autograd.grad((prompts.features(leaf) * cotangent).sum(), leaf)[0]


@pytest.mark.parametrize(("family", "layout"), LAYOUTS)
def test_the_original_words_give_the_original_features(tiny_model, family, layout):
    model = tiny_model(family)
    prompts = PromptedText(model, NAMES, layout=layout)
    plain = model.module.encode_text(model.tower.tokens([f"a photo of a {name}." for name in NAMES]))
    plain = torch.nn.functional.normalize(plain, dim=-1)
    assert prompts.context.shape == (4, 32)
    assert prompts.start == (0 if family in ("siglip", "roberta") else 1)
    assert (prompts.features(prompts.context) - plain).abs().max() < 1e-6
    assert (plain[0] - plain[1]).abs().max() > 1e-2


@pytest.mark.parametrize(("family", "layout"), LAYOUTS)
def test_another_context_gives_what_open_clip_gives(tiny_model, family, layout):
    model = tiny_model(family, precision="fp64")
    prompts = PromptedText(model, NAMES, layout=layout)
    context = elsewhere(prompts)
    features = prompts.features(context)
    assert features.dtype == torch.float64
    assert (features - reference(model, prompts, context)).abs().max() < 1e-12
    assert (features - prompts.features(prompts.context)).abs().max() > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_is_the_finite_difference(tiny_model, family):
    model = tiny_model(family, precision="fp64")
    prompts = PromptedText(model, NAMES)
    context, cotangent = elsewhere(prompts), cotangents(prompts)
    grad = prompts.vjp(context, cotangent)
    for seed in range(4):
        along = torch.randn(context.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        up = (reference(model, prompts, context + 1e-5 * along) * cotangent).sum()
        down = (reference(model, prompts, context - 1e-5 * along) * cotangent).sum()
        slope = (up - down) / 2e-5
        assert slope.abs() > 1e-3
        assert torch.isclose((grad * along).sum(), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("family", "layout"), LAYOUTS)
def test_vjp_and_pullback_are_autograd(tiny_model, family, layout):
    prompts = PromptedText(tiny_model(family, precision="fp64"), NAMES, layout=layout)
    context = elsewhere(prompts)
    features, pull = prompts.pullback(context)
    assert (features - prompts.features(context)).abs().max() < 1e-12
    for seed in (1, 2):
        cotangent = cotangents(prompts, seed)
        wanted = gradient(prompts, context, cotangent)
        assert (prompts.vjp(context, cotangent) - wanted).abs().max() < 1e-12
        assert (pull(cotangent) - wanted).abs().max() < 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_short_rows_are_exact(tiny_model, family):
    """In fp32, as used: every shorter layout against whole prompts."""
    model = tiny_model(family)
    whole = PromptedText(model, NAMES, layout="full")
    short = PromptedText(model, NAMES)
    context, cotangent = elsewhere(whole), cotangents(whole)
    assert (short.features(context) - whole.features(context)).abs().max() < 1e-6
    wanted = whole.vjp(context, cotangent)
    assert (short.vjp(context, cotangent) - wanted).abs().max() < 1e-5 * wanted.abs().max()
    tokens = [sum(block.tokens.numel() for block in p.blocks) for p in (short, whole)]
    assert tokens[0] < tokens[1] or family in ("siglip", "roberta")


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_change_nothing(tiny_model, family):
    model = tiny_model(family, precision="fp64")
    names = NAMES * 3
    whole = PromptedText(model, names, memory=1.0)
    # room for some classes of one context, never for a batch of contexts
    room = 40 if model.tower.exact == "packed" else 150
    chunked = PromptedText(model, names, memory=room * model.tower.bytes_per_token / 2**30)
    assert len(whole.blocks) == 1 and len(chunked.blocks) > 1
    for batch in ((), (3,)):
        context, cotangent = elsewhere(whole, 0, *batch), cotangents(whole, 1, *batch)
        assert (chunked.features(context) - whole.features(context)).abs().max() < 1e-12
        wanted = whole.vjp(context, cotangent)
        assert (gradient(chunked, context, cotangent) - wanted).abs().max() < 1e-12
        assert (chunked.vjp(context, cotangent) - wanted).abs().max() < 1e-12
        assert (chunked.pullback(context)[1](cotangent) - wanted).abs().max() < 1e-12


def test_memory_is_bounded(tiny_model):
    """What autograd keeps for the backward pass, counted."""

    def kept(prompts):
        leaf, total = prompts.context.clone().requires_grad_(), 0

        def pack(x):
            nonlocal total
            total += x.numel() * x.element_size()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            prompts.features(leaf)
        return total

    model = tiny_model("vit")
    whole = PromptedText(model, NAMES * 20, layout="full")
    bounded = PromptedText(model, NAMES * 20, layout="full", memory=whole._tokens() / 50 / 2**30)
    assert kept(bounded) < 0.1 * kept(whole)


def test_a_kept_forward_pass_takes_its_part_of_the_memory(tiny_model, monkeypatch):
    model, names = tiny_model("vit"), NAMES * 40
    whole = PromptedText(model, names)
    tokens, row = whole._tokens(), whole._largest
    prompts = PromptedText(model, names, memory=(tokens + 2 * row) * model.tower.bytes_per_token / 2**30)
    pull = prompts.pullback(prompts.context)[1]
    sizes, encode = [], prompts._encode

    def counted(block, contexts):
        sizes.append(len(contexts) * block.tokens.numel())
        return encode(block, contexts)

    monkeypatch.setattr(prompts, "_encode", counted)
    monkeypatch.setattr("reta.prompts.ROW", prompts.limit)
    contexts, wanted = elsewhere(prompts, 0, 6), cotangents(prompts, 1, 6)
    grads = prompts.vjp(contexts, wanted)
    assert tokens + max(sizes) <= prompts.limit
    del pull
    sizes.clear()
    assert torch.allclose(prompts.vjp(contexts, wanted), grads, atol=1e-5 * float(grads.abs().max()))
    assert prompts.limit - tokens < max(sizes) <= prompts.limit


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_contexts_is_one_by_one(tiny_model, family):
    prompts = PromptedText(tiny_model(family, precision="fp64"), NAMES)
    contexts, wanted = elsewhere(prompts, 0, 2, 3), cotangents(prompts, 1, 2, 3)
    features, grads = prompts.features(contexts), prompts.vjp(contexts, wanted)
    assert features.shape == (2, 3, len(NAMES), prompts.dim) and grads.shape == contexts.shape
    for i in range(2):
        for j in range(3):
            assert (features[i, j] - prompts.features(contexts[i, j])).abs().max() < 1e-12
            assert (grads[i, j] - prompts.vjp(contexts[i, j], wanted[i, j])).abs().max() < 1e-12


def test_gradients_under_no_grad_and_inference_mode(tiny_model):
    prompts = PromptedText(tiny_model("vit"), NAMES)
    wanted = prompts.vjp(prompts.context, cotangents(prompts))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            context, cotangent = prompts.context.clone(), cotangents(prompts).clone()
            assert not prompts.features(context).requires_grad
            assert (prompts.vjp(context, cotangent) - wanted).abs().max() < 1e-6 * wanted.abs().max()
            assert (prompts.pullback(context)[1](cotangent) - wanted).abs().max() < 1e-6 * wanted.abs().max()


def test_the_model_is_never_touched(tiny_model):
    model = tiny_model("vit")
    sentences = [f"a photo of a {name}." for name in NAMES] * 10
    plain, mark = model.texts(sentences), model.fingerprint
    prompts = PromptedText(model, NAMES)
    context = elsewhere(prompts)
    wanted = prompts.vjp(context, cotangents(prompts))
    with ThreadPoolExecutor(4) as pool:
        grads = [pool.submit(prompts.vjp, context, cotangents(prompts)) for _ in range(20)]
        texts = [pool.submit(model.texts, sentences) for _ in range(20)]
    assert all((future.result() - wanted).abs().max() < 1e-4 * wanted.abs().max() for future in grads)
    assert all((future.result() - plain).abs().max() < 1e-5 for future in texts)
    assert not model.tower.embedding._forward_hooks and model.fingerprint == mark


def test_low_precision(tiny_model):
    exact = PromptedText(tiny_model("vit"), NAMES)
    context, cotangent = elsewhere(exact), cotangents(exact)
    wanted = exact.vjp(context, cotangent)
    for precision, error in (("bf16", 0.1), ("fp16", 0.01)):
        prompts = PromptedText(tiny_model("vit", precision=precision), NAMES)
        features = prompts.features(context)
        assert features.dtype == torch.float32
        assert (features - exact.features(context)).abs().max() < error
        for size in (1.0, 1e-8):
            grad = prompts.vjp(context, cotangent * size)
            assert (grad / size - wanted).norm() < error * wanted.norm()


def test_a_number_of_context_tokens(tiny_model):
    prompts = PromptedText(tiny_model("vit"), NAMES, context=16, suffix="")
    assert prompts.context.shape == (16, 32)
    assert (prompts.context == prompts.context[0]).all()
    assert prompts.features(prompts.context).shape == (len(NAMES), prompts.dim)


def test_duplicate_names_and_one_class(tiny_model):
    prompts = PromptedText(tiny_model("vit"), ["cat", "dog", "cat"])
    features = prompts.features(prompts.context)
    assert torch.allclose(features[0], features[2], atol=1e-6)
    one = PromptedText(tiny_model("vit"), ["cat"])
    assert torch.allclose(one.features(one.context)[0], features[0], atol=1e-6)


def test_a_context_that_runs_into_a_name():
    """A tokenizer may join the end of a context with a name; then there are no rows to replace."""
    rows = torch.tensor([[9, 1, 2, 8, 0], [9, 8, 0, 0, 0], [9, 5, 8, 0, 0], [9, 1, 2, 4, 8], [9, 1, 7, 8, 0]])
    assert place(rows[:3], rows[3:4], "on a", ["cat"]) == (1, 2)
    with pytest.raises(BadInput, match="reads the context 'on a' differently before 'nt': end it in a word"):
        place(rows[:3], rows[3:], "on a", ["cat", "nt"])


class Foreign:
    name = "mine"


def test_bad_input_says_what_to_do(tiny_model):
    model = tiny_model("vit")
    prompts = PromptedText(model, NAMES)
    cases = {
        "mine cannot learn a prompt: that needs an open_clip text tower": lambda: PromptedText(
            Foreign(), NAMES
        ),
        "names must be a list of class names": lambda: PromptedText(model, []),
        "none of them empty": lambda: PromptedText(model, ["cat", " "]),
        "names must be a list of": lambda: PromptedText(model, "cat"),
        "a context needs at least one word, not ''": lambda: PromptedText(model, NAMES, context=""),
        "leave no room for a name in 77 positions": lambda: PromptedText(model, NAMES, context=90),
        "a context has at least one token, not 0": lambda: PromptedText(model, NAMES, context=0),
        "memory must be a positive number of GiB, not 0": lambda: PromptedText(model, NAMES, memory=0),
        "layout 'packed' is not exact": lambda: PromptedText(tiny_model("siglip"), NAMES, layout="packed"),
        "layout 'short' is not exact": lambda: PromptedText(model, NAMES, layout="short"),
        r"a context must be \[..., 4, 32\], not \[3, 32\]": lambda: prompts.features(torch.zeros(3, 32)),
        r"a cotangent must be shaped like the features, \(5, 24\)": lambda: prompts.vjp(
            prompts.context, torch.zeros(2, 24)
        ),
    }
    for message, call in cases.items():
        with pytest.raises(BadInput, match=message):
            call()
