"""Write the tables of docs/photo.md and of the model card, and the page's chart, from results/photo/*.json.

python benchmarks/photo_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import peers_table

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
PAGE, CARD = ROOT / "docs" / "photo.md", ROOT / "src" / "reta" / "weights" / "PHOTO_CARD.md"
CHART = ROOT / "docs" / "assets" / "photo.png"
LINKS = {key: name.replace("](", "](methods/") for key, name in peers_table.NAMES.items()} | {
    "coop": "zero-shot",
    "tpt": "[TPT](methods/tpt.md)",
    "difftpt": "[DiffTPT](methods/difftpt.md)",
    "rlcf": "[RLCF](methods/rlcf.md)",
    "reta-reward": "[ReTA with reward](methods/reta.md)",
}
ORDER = ("photo", "art_painting", "cartoon", "sketch")


def heads(rows: list[dict[str, Any]]) -> list[str]:
    """Accuracy of each form of the head, domain by domain."""
    found = {(row["head"], row["domain"]): row["accuracy"] for row in rows}
    lines = [f"| head | {' | '.join(d.replace('_', ' ') for d in ORDER)} | mean |", "|---|" + "--:|" * 5]
    for head in dict.fromkeys(row["head"] for row in rows):
        values = [found[head, domain] for domain in ORDER]
        lines.append(f"| {head} | {' | '.join(f'{v:.1f}' for v in [*values, mean(values)])} |")
    return lines


def adapted(rows: list[dict[str, Any]]) -> list[str]:
    """Accuracy of every method with half its spread over the orders, calibration error and memory."""
    titles = "photo | art painting | cartoon | sketch | mean | ECE | state"
    lines = [f"| method | {titles} |", "|---|" + "--:|" * 7]
    for key in dict.fromkeys((row["method"], row["preset"]) for row in rows):
        mine = {d: [r for r in rows if (r["method"], r["preset"], r["dataset"]) == (*key, d)] for d in ORDER}
        cells = [peers_table.accuracy(mine[domain]) for domain in ORDER]
        total, ece = (mean(mean(r[f] for r in mine[d]) for d in ORDER) for f in ("accuracy", "ece"))
        size = max(r["state_bytes"] for d in ORDER for r in mine[d])
        rest = [f"{total:.2f}", f"{ece:.1f}", f"{size / 1024:.0f} KB" if size else "none"]
        lines.append(f"| {title(*key)} | " + " | ".join(cells + rest) + " |")
    return lines


def title(method: str, preset: str) -> str:
    """A row's name, linked to the page of its method."""
    link = LINKS.get(method, method)
    if preset == "oracle weight":
        return f"*{LINKS['dmn']}, oracle: weight chosen with the test labels*"
    return link + ("" if preset == "fixed" else f", {preset}")


def row_name(method: str, preset: str) -> str:
    """A row's name in the chart; CoOp with words it has not learned is zero-shot."""
    name = "zeroshot" if method == "coop" else method
    return name if preset == "fixed" else f"{name}, {preset}"


def calibration(rows: list[dict[str, Any]]) -> list[str]:
    """How far confidence is from accuracy, for the model alone with the first prompt."""
    mine = {row["dataset"]: row for row in rows if row["method"] == "zeroshot" and row["order"] == 0}
    parts = [f"{d.replace('_', ' ')} {mine[d]['ece']:.1f}" for d in ORDER]
    return [f"Calibration error of the model alone (20 bins, percentage points): {', '.join(parts)}."]


def chart(rows: list[dict[str, Any]], path: Path) -> None:
    """What each method gains over the pooled prompts alone; one dot for each order."""
    keys = list(dict.fromkeys((r["method"], r["preset"]) for r in rows if r["method"] != "ensemble"))
    figure, axes = plt.subplots(
        1, len(ORDER), figsize=(11, 3.8), sharex=True, sharey=True, layout="constrained"
    )
    for axis, domain in zip(axes, ORDER, strict=True):
        here = [row for row in rows if row["dataset"] == domain]
        base = mean(row["accuracy"] for row in here if row["method"] == "ensemble")
        for place, key in enumerate(keys):
            mine = [row for row in here if (row["method"], row["preset"]) == key]
            gains = [row["accuracy"] - base for row in mine]
            axis.barh(place, mean(gains), color="#00897b" if mean(gains) >= 0 else "#c2185b", alpha=0.75)
            axis.plot(gains, [place] * len(gains), "k.", markersize=4)
        axis.axvline(0, color="#555", linewidth=0.8)
        axis.set_title(f"{domain.replace('_', ' ')}: {base:.1f} % alone", fontsize=10)
        axis.set_xlabel("points gained")
    axes[0].set_yticks(range(len(keys)), [row_name(m, p) for m, p in keys])
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=130, metadata={"Software": ""})


def results() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What was measured of the heads, and of the methods."""
    folder = ROOT / "results" / "photo"
    read = {n: json.loads((folder / f"{n}.json").read_text("utf-8")) for n in ("heads", "pacs")}
    return read["heads"]["measured"], read["pacs"]["rows"]


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the table of all methods, in its order."""
    return [row for part in ("features", "encoders") for row in rows if row["part"] == part]


def filled(path: Path) -> str:
    """The page or the card with the tables as the results have them."""
    measured, rows = results()
    table = compared(rows)
    parts = [row for row in table if row["method"] in ("ensemble", "reta")]
    parts += [row for row in rows if row["part"] == "reta"]
    tables = {"heads": heads(measured), "calibration": calibration(rows)}
    if path == PAGE:
        tables |= {"pacs": adapted(table), "parts": adapted(parts)}
    text = path.read_text("utf-8")
    for name, lines in tables.items():
        text = peers_table.fill(text, name, lines)
    return text


def main() -> None:
    for path in (PAGE, CARD):
        path.write_text(filled(path), "utf-8")
    chart([row for row in compared(results()[1]) if not row["oracle"]], CHART)


if __name__ == "__main__":
    main()
