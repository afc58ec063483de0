"""A sheet as Markdown, LaTeX and CSV. The same sheet gives the same text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from reta.bench import published
from reta.bench.plan import METRICS
from reta.bench.sheet import SHORT, Entry, Sheet
from reta.bench.times import UNITS

Link = Callable[[str], str]
FIELDS = (
    *("plan", "model", "row", "column", "metric", "value", "spread", "orders", "printed", "difference"),
    *("minus_reference", "low", "high", "p", "significant", "jobs"),
)


def number(value: float | None, sign: bool = False) -> str:
    """Two digits, and a real minus.

    >>> number(71.374), number(-0.5, sign=True), number(None)
    ('71.37', '−0.50', '–')
    """
    if value is None:
        return "–"
    return f"{value:+.2f}".replace("-", "−") if sign else f"{value:.2f}".replace("-", "−")


def caption(sheet: Sheet) -> str:
    """What the numbers are, in one line."""
    names = METRICS | UNITS
    metrics = list(dict.fromkeys(column.metric for column in sheet.columns))
    kinds = [
        f"{SHORT.get(m, m)}: {names[m]}"
        if m in METRICS and m != "accuracy" and len(metrics) > 1
        else names[m]
        for m in metrics
    ]
    marks = f" † differs from {sheet.reference} (McNemar and bootstrap, 5 %)." if _marked(sheet) else ""
    printed = any(e.printed is not None for row in sheet.entries.values() for e in row)
    source = published.source(sheet.name)
    paper = f" In brackets what the paper printed ({source})" if printed else ""
    foreign = any(e.foreign and e.printed is not None for row in sheet.entries.values() for e in row)
    paper += (
        " for other data and another model."
        if printed and foreign
        else " and our difference."
        if printed
        else ""
    )
    spread = " ± is the deviation over stream orders." if _spread(sheet) else ""
    return f"{sheet.model}: {'; '.join(kinds)}.{spread}{marks}{paper}"


def _marked(sheet: Sheet) -> bool:
    return any(e.against and e.against.significant for row in sheet.entries.values() for e in row)


def _spread(sheet: Sheet) -> bool:
    return any(e.spread is not None for row in sheet.entries.values() for e in row)


def markdown(sheet: Sheet, link: Link | None = None) -> str:
    """A table in Markdown; with `link`, every number leads to its job's file."""
    head = ["", *(column.title for column in sheet.columns)]
    lines = [_row(head), "|:--|" + "--:|" * len(sheet.columns)]
    for label, entries in sheet.entries.items():
        lines.append(_row([label, *(_markdown(entry, link) for entry in entries)]))
    lines += ["", caption(sheet)]
    lines += ["", *(f"{i}. {text}" for i, text in enumerate(sheet.footnotes, 1))] if sheet.footnotes else []
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _markdown(entry: Entry, link: Link | None) -> str:
    text = number(entry.value)
    if link is not None and entry.ids and entry.value is not None:
        text = f"[{text}]({link(entry.ids[0])})"
    text = f"**{text}**" if entry.best else text
    text += "†" if entry.against and entry.against.significant else ""
    text += f" ± {entry.spread:.2f}" if entry.spread is not None and entry.value is not None else ""
    return f"{text} {beside(entry)}".strip()


def beside(entry: Entry) -> str:
    """The printed value, our difference, and the numbers of its notes."""
    if entry.printed is None:
        return ""
    inside = number(entry.printed)
    inside += f", {number(entry.difference, sign=True)}" if entry.difference is not None else ""
    marks = ",".join(map(str, entry.notes))
    return f"({inside})" + (f" <sup>{marks}</sup>" if marks else "")


def latex(sheet: Sheet) -> str:
    """A table for the packages booktabs and graphicx, never wider than a line; what it is made of stands below."""
    head = " & ".join(["Method", *(_tex(column.title) for column in sheet.columns)])
    lines = [
        r"\begin{table}\centering",
        rf"\caption{{{_tex(sheet.title)}. {_tex(caption(sheet))}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{l{'c' * len(sheet.columns)}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
    ]
    for label, entries in sheet.entries.items():
        lines.append(" & ".join([_tex(label), *map(_latex, entries)]) + r" \\")
    notes = [rf"\par\footnotesize {i}. {_tex(text)}" for i, text in enumerate(sheet.footnotes, 1)]
    notes += [rf"\par\footnotesize {_tex(text)}" for text in sheet.notes]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", *notes, r"\end{table}"]) + "\n"


def _latex(entry: Entry) -> str:
    text = number(entry.value).replace("−", "$-$").replace("–", "--")
    text = rf"\textbf{{{text}}}" if entry.best else text
    text += r"$^\dagger$" if entry.against and entry.against.significant else ""
    text += rf"\,{{\scriptsize$\pm${entry.spread:.2f}}}" if entry.spread is not None else ""
    if entry.printed is None:
        return text
    inside = number(entry.printed)
    inside += f", {number(entry.difference, sign=True)}" if entry.difference is not None else ""
    marks = rf"$^{{{','.join(map(str, entry.notes))}}}$" if entry.notes else ""
    return rf"{text} {{\scriptsize({inside.replace('−', '$-$')})}}{marks}"


def _tex(text: str) -> str:
    table = {c: "\\" + c for c in "&%#_{}$"} | {
        "−": "$-$",
        "±": "$\\pm$",
        "†": "$\\dagger$",
        "λ": "$\\lambda$",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
    }
    table |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(table.get(c, c) for c in text)


def table_csv(sheets: Sequence[Sheet]) -> str:
    """One line for each cell, with the paired test and the jobs behind it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for sheet in sheets:
        for label, entries in sheet.entries.items():
            for column, entry in zip(sheet.columns, entries, strict=True):
                writer.writerow(
                    [sheet.name, sheet.model, label, column.title, column.metric, *_values(entry)]
                )
    return out.getvalue()


def _values(entry: Entry) -> list[str]:
    def short(value: float | None) -> str:
        return "" if value is None else f"{value:.4f}"

    test = entry.against
    against = (
        [f"{test.difference:.4f}", f"{test.low:.4f}", f"{test.high:.4f}", f"{test.p:.4g}"]
        if test
        else [""] * 4
    )
    return [
        short(entry.value),
        short(entry.spread),
        str(len(entry.ids)),
        short(entry.printed),
        short(entry.difference),
        *against,
        str(test.significant).lower() if test else "",
        " ".join(entry.ids),
    ]
