"""The prompt-tuning methods written out: whole token sequences, autograd, torch's AdamW, one image at a time."""

from __future__ import annotations

import math

import torch


def text_features(module, tokenizer, names, context, words="a photo of a"):
    """Class features of open_clip's CLIP with the embeddings after the begin token replaced by `context`."""
    rows = []
    for name in names:
        tokens = tokenizer([f"{words} {name}."])
        x = module.token_embedding(tokens)[0]
        x = torch.cat([x[:1], context, x[1 + len(context) :]])
        x = x + module.positional_embedding
        x = module.transformer(x[None], attn_mask=module.attn_mask)[0]
        x = module.ln_final(x)
        x = x[int(tokens[0].argmax())] @ module.text_projection
        rows.append(x / x.norm())
    return torch.stack(rows)


def entropy(p):
    return -sum(float(q) * math.log(float(q)) for q in p if float(q) > 0)


def ranked(scale, views, text, places):
    """Places from the most to the least confident view."""
    keyed = [(entropy(torch.softmax(scale * views[i] @ text.T, 0)), n, i) for n, i in enumerate(places)]
    return [i for _, _, i in sorted(keyed)]


def marginal_loss(scale, views, text):
    p = torch.stack([torch.softmax(scale * v @ text.T, 0) for v in views]).mean(0)
    return -(p * p.log()).sum()


def reward_loss(scale, views, text, reward_views, reward_text):
    total, count = 0.0, 0
    for view, second in zip(views, reward_views):
        logp = torch.log_softmax(scale * view @ text.T, 0)
        top = sorted(range(len(text)), key=lambda c: -float(logp.detach()[c]))[:3]
        scores = [2.5 * max(float(second.detach() @ reward_text[c]), 0.0) for c in top]
        mean = sum(scores) / len(scores)
        for c, score in zip(top, scores):
            total, count = total - (score - mean) * logp[c], count + 1
    return total / count


def tune(features, context, loss, steps, lr, weight_decay):
    context = context.clone().requires_grad_()
    adam = torch.optim.AdamW([context], lr=lr, weight_decay=weight_decay, eps=1e-8)
    for _ in range(steps):
        adam.zero_grad()
        loss(features(context)).backward()
        adam.step()
    return context.detach()


def coop(module, tokenizer, names, context, scale, views, labels, epochs, batch, lr, seed):
    """Cross-entropy on the class features, by torch's SGD; the context and the mean loss of every epoch."""
    dice = torch.Generator().manual_seed(seed)
    context = torch.nn.Parameter(context.clone())
    sgd = torch.optim.SGD([context], lr=lr, momentum=0.9, weight_decay=5e-4)
    losses = []
    for epoch in range(epochs):
        for group in sgd.param_groups:
            group["lr"] = 1e-5 if epoch == 0 else 0.5 * lr * (1 + math.cos(math.pi * epoch / epochs))
        order = torch.randperm(len(views), generator=dice).tolist()
        drawn = torch.randint(len(views[0]), (len(views),), generator=dice).tolist()
        total = 0.0
        for first in range(0, len(order), batch):
            rows = order[first : first + batch]
            pictures = torch.stack([views[i][drawn[i]] / views[i][drawn[i]].norm() for i in rows])
            logits = scale * pictures @ text_features(module, tokenizer, names, context).T
            loss = torch.nn.functional.cross_entropy(logits, labels[rows])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            total += float(loss.detach()) * len(rows)
        losses.append(total / len(order))
    return context.detach(), losses


def tpt(module, tokenizer, names, context, scale, views, lr=5e-3, steps=1):
    def features(x):
        return text_features(module, tokenizer, names, x)

    start = features(context).detach()
    keep = ranked(scale, views, start, range(len(views)))[: max(1, int(len(views) * 0.1))]
    tuned = tune(features, context, lambda t: marginal_loss(scale, views[keep], t), steps, lr, 0.01)
    return torch.softmax(scale * views[0] @ features(tuned).detach().T, 0), keep


def difftpt(module, tokenizer, names, context, scale, views):
    def features(x):
        return text_features(module, tokenizer, names, x)

    start = features(context).detach()
    logits = [scale * v @ start.T for v in views]
    cosine = [float(logits[0] @ row / (logits[0].norm() * row.norm())) for row in logits]
    others = sorted(range(1, len(views)), key=lambda i: (-cosine[i], i))[: int(0.8 * (len(views) - 1))]
    pool = [0, *others]
    keep = ranked(scale, views, start, pool)[: max(1, int(0.3 * len(pool)))]
    tuned = tune(features, context, lambda t: marginal_loss(scale, views[keep], t), 4, 5e-3, 0.01)
    return torch.softmax(scale * views[0] @ features(tuned).detach().T, 0), keep


def rlcf(module, tokenizer, names, context, scale, views, second, second_text, steps=3):
    def features(x):
        return text_features(module, tokenizer, names, x)

    start = features(context).detach()
    keep = ranked(scale, views, start, range(len(views)))[: max(1, int(len(views) * 0.1))]
    tuned = tune(
        features,
        context,
        lambda t: reward_loss(scale, views[keep], t, second[keep], second_text),
        steps,
        7e-3,
        5e-4,
    )
    return torch.softmax(scale * views[0] @ features(tuned).detach().T, 0), keep


def rlcf_tune(model, text, pixels, scale, second, second_text, lr, steps=3, start=None):
    """The image tower itself is tuned and put back afterwards, as the release does it; with `start`, weights
    to begin with, the tuned ones are returned too."""
    visual = model.module.visual
    kept_weights = {k: v.clone() for k, v in visual.state_dict().items()}
    visual.load_state_dict(start or kept_weights)

    def features(x):
        z = model.module.encode_image(model.prepare(x))
        return z / z.norm(dim=-1, keepdim=True)

    with torch.no_grad():
        views = features(pixels)
    keep = ranked(scale, views, text, range(len(pixels)))[: max(1, int(len(pixels) * 0.1))]
    visual.requires_grad_(True)
    adam = torch.optim.AdamW(visual.parameters(), lr=lr, weight_decay=5e-4, eps=1e-8)
    for _ in range(steps):
        adam.zero_grad()
        reward_loss(scale, features(pixels[keep]), text, second[keep], second_text).backward()
        adam.step()
    with torch.no_grad():
        answer = torch.softmax(scale * features(pixels[:1])[0] @ text.T, 0)
    visual.requires_grad_(False)
    tuned = {k: v.clone() for k, v in visual.state_dict().items()}
    visual.load_state_dict(kept_weights)
    return answer if start is None else (answer, tuned)


def rlcf_momentum(model, text, images, scale, seconds, second_text, lr, momentum, every):
    """The answers of a stream: an average of the tuned weights becomes the start after `every` images."""
    start = {k: v.clone() for k, v in model.module.visual.state_dict().items()}
    average = {k: v.clone() for k, v in start.items()}
    answers, waiting = [], 0
    for pixels, second in zip(images, seconds):
        answer, tuned = rlcf_tune(model, text, pixels, scale, second, second_text, lr, start=start)
        answers.append(answer)
        for k in average:
            average[k] = momentum * average[k] + (1 - momentum) * tuned[k]
        waiting += 1
        if waiting == every:
            start, waiting = {k: v.clone() for k, v in average.items()}, 0
    return torch.stack(answers)
