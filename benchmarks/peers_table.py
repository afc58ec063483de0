"""Write the tables of docs/methods/index.md from results/peers/*.json.

python benchmarks/peers_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

PAGE = Path("docs/methods/index.md")
RESULTS = Path("results/peers")
NAMES = {
    "zeroshot": "zero-shot, first prompt",
    "ensemble": "zero-shot, prompts pooled",
    "zero": "[Zero](zero.md)",
    "zero-ensemble": "[Zero-Ensemble](zero.md)",
    "tps": "[TPS](tps.md)",
    "tda": "[TDA](tda.md)",
    "dmn": "[DMN](dmn.md)",
    "boostadapter": "[BoostAdapter](boostadapter.md)",
    "dpe": "[DPE](dpe.md)",
    "reta": "[ReTA](reta.md)",
}


def title(method: str, preset: str) -> str:
    """A row's name; the search on test labels says what it is."""
    if preset == "oracle weight":
        return f"*{NAMES['dmn']}, oracle: weight chosen with the test labels*"
    return NAMES.get(method, method) + ("" if preset == "fixed" else f", {preset}")


def columns(rows: list[dict]) -> list[tuple[str, str]]:
    """What tells the data apart, in the order it was run."""
    return list(dict.fromkeys((row["dataset"], row["model"]) for row in rows))


def table(rows: list[dict]) -> list[str]:
    """Accuracy with half its spread over the orders, calibration error, time and memory of every method."""
    data = columns(rows)
    several = len({dataset for dataset, _ in data}) > 1
    heads = [dataset if several else model for dataset, model in data]
    lines = ["| method | " + " | ".join(heads) + " | mean | ECE | ms | state |"]
    lines.append("|---|" + "--:|" * (len(heads) + 4))
    for key in dict.fromkeys((row["method"], row["preset"]) for row in rows):
        mine = [row for row in rows if (row["method"], row["preset"]) == key]
        cells = [accuracy([row for row in mine if (row["dataset"], row["model"]) == place]) for place in data]
        total, ece, ms = (mean(row[field] for row in mine) for field in ("accuracy", "ece", "ms"))
        size = max(row["state_bytes"] for row in mine)
        rest = [f"{total:.2f}", f"{ece:.2f}", f"{ms:.2f}", f"{size / 1024:.0f} KB" if size else "none"]
        lines.append(f"| {title(*key)} | " + " | ".join(cells + rest) + " |")
    return lines


def accuracy(rows: list[dict]) -> str:
    values = [row["accuracy"] for row in rows]
    spread = (max(values) - min(values)) / 2
    return f"{mean(values):.2f}" + (f" ± {spread:.2f}" if spread else "")


def fill(page: str, name: str, lines: list[str]) -> str:
    """Replace what stands between the two marks of a table."""
    begin, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
    if begin not in page or end not in page:
        raise SystemExit(f"{PAGE} has no place for the table {name!r}")
    head, tail = page.split(begin)[0], page.split(end)[1]
    return "\n".join([head + begin, *lines, end]) + tail


def fill_page(path: Path, tables: dict[str, list[str]]) -> None:
    """Replace tables of a page by their names."""
    page = path.read_text(encoding="utf-8")
    for name, lines in tables.items():
        page = fill(page, name, lines)
    path.write_text(page, encoding="utf-8")


def lines_of(path: Path) -> list[str]:
    """The table of a results file, or that there is none."""
    if not path.is_file():
        return ["Not measured yet with the present weights."]
    return table(json.loads(path.read_text(encoding="utf-8"))["rows"])


def main() -> None:
    fill_page(PAGE, {name: lines_of(RESULTS / f"{name}.json") for name in ("real", "world")})


if __name__ == "__main__":
    main()
