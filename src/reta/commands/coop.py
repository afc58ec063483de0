"""`reta coop`: learn a context from a few labelled images per class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="CoOp: learn a prompt's context from a few labelled images.", no_args_is_help=True)


@app.callback()
def about() -> None:
    """Learn a prompt's context from a few labelled images per class, for the methods coop, tpt and rlcf."""


@app.command()
def fit(
    data: Annotated[
        str,
        typer.Argument(
            help="Labelled data: a folder with a sub-folder per class; of shapes, dtd, ... the training images."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where the context goes, a .safetensors file.")],
    model: Annotated[str, typer.Option(help="An open_clip NAME/TAG, or reta-mini.")] = "ViT-B-16/openai",
    weights: Annotated[Path | None, typer.Option(help="A local weights file for the model.")] = None,
    shots: Annotated[int, typer.Option(min=1, help="Images per class.")] = 16,
    views: Annotated[
        int, typer.Option(min=1, help="Views per image: the plain one, then crops and flips.")
    ] = 8,
    context: Annotated[
        str, typer.Option(help="Words to start from, or a number of random tokens.")
    ] = "a photo of a",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the images.")] = 50,
    batch: Annotated[int, typer.Option(min=1, help="Images per step.")] = 32,
    lr: Annotated[float, typer.Option(min=0, help="Learning rate of SGD.")] = 2e-3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw, the views and the order.")] = 0,
    data_root: Annotated[Path | None, typer.Option(help="The folder of the data sets.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")] = False,
) -> None:
    """Learn a context and write it to a file.

    Use it wherever a method takes a `context`: coop is the fixed prompt, tpt and rlcf start from it. Images
    that a data set is tested on are never learned from.

    Example: reta coop fit photos/ --out context.safetensors --shots 16
    """
    import torch

    import reta
    from reta import coop
    from reta.commands.classify import name_and_tag
    from reta.data import training
    from reta.errors import BadInput
    from reta.progress import bar
    from reta.views import Views

    coop.writable(out)
    source = training.open(data, data_root, seed)
    if source.labels is None:
        raise BadInput(f"{data} has no labels: CoOp learns from a folder with a sub-folder per class")
    backbone = reta.load(*name_and_tag(model), weights=weights, device=device)
    task = reta.Task.build(backbone, list(source.names))
    labels = torch.tensor(source.labels)
    chosen = coop.few_shots(labels, shots, seed)
    pre = backbone.preprocess
    maker = Views(
        "crops", views, pre.size, seed, interpolation=pre.interpolation, resize_mode=pre.resize_mode
    )
    rows = [
        backbone.images(maker.make(source.image(i), source.keys[i])).cpu()
        for i in bar(chosen.tolist(), len(chosen), "encoding")
    ]
    start = int(context) if context.isdigit() else context
    learned, losses = coop.fit(
        task, torch.stack(rows), labels[chosen], context=start, epochs=epochs, batch=batch, lr=lr, seed=seed,
        progress=True,
    )  # fmt: skip
    about = {"data": data, "shots": shots, "epochs": epochs, "context": context, "seed": seed, "lr": lr}
    coop.save(out, learned, task, **about)
    report = about | {
        "images": len(chosen),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "file": str(out),
    }
    if as_json:
        print(json.dumps(report))
    else:
        print(f"{len(chosen)} images, loss {losses[0]:.3f} -> {losses[-1]:.3f}: {out}")
