"""The report as one HTML page that needs nothing else: tables to sort, figures inside, links to the jobs."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from html import escape
from importlib import resources

from reta.bench.render import beside, caption, number
from reta.bench.sheet import Entry, Sheet

FEW = 5


class Section:
    """One plan in the report: its heading, tables, figures (name -> SVG), and what is to be said below."""

    def __init__(self, anchor: str, item: str, title: str, sheets: Sequence[Sheet], notes: Sequence[str]):
        self.anchor, self.item, self.title = anchor, item, title
        self.sheets, self.notes = list(sheets), list(notes)
        self.figures: dict[str, dict[str, bytes]] = {}


def page(title: str, intro: str, sections: Sequence[Section], link: Callable[[str], str] | None) -> str:
    """The whole page."""
    contents = "".join(
        f'<a href="#{s.anchor}">{escape(f"{s.item}: " if s.item else "")}{escape(s.title)}</a>'
        for s in sections
    )
    body = "".join(_section(section, link) for section in sections)
    style, script = (
        resources.files("reta.bench").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js")
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>\n{style}</style></head><body>\n'
        f"<h1>{escape(title)}</h1>\n<p>{escape(intro)}</p>\n<nav>{contents}</nav>\n{body}"
        f"<script>\n{script}</script></body></html>\n"
    )


def _section(section: Section, link: Callable[[str], str] | None) -> str:
    item = f' <span class="item">{escape(section.item)}</span>' if section.item else ""
    parts = [f'<h2 id="{section.anchor}">{escape(section.title)}{item}</h2>\n']
    for name, files in section.figures.items():
        data = base64.b64encode(files["svg"]).decode()
        parts.append(
            f'<p><img class="figure" alt="{escape(section.title)}" src="data:image/svg+xml;base64,{data}"></p>\n'
            f'<p><a href="figures/{name}.png">PNG</a> <a href="figures/{name}.svg">SVG</a></p>\n'
        )
    parts += [_table(sheet, link) for sheet in section.sheets]
    if section.notes:
        parts.append(
            '<ul class="notes">' + "".join(f"<li>{escape(n)}</li>" for n in section.notes) + "</ul>\n"
        )
    return "".join(parts)


def _table(sheet: Sheet, link: Callable[[str], str] | None) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in ["Method", *(c.title for c in sheet.columns)])
    rows = "".join(
        f"<tr><td>{escape(label)}</td>{''.join(_cell(entry, sheet.reference, link) for entry in entries)}</tr>\n"
        for label, entries in sheet.entries.items()
    )
    notes = "".join(f"<li>{escape(text)}</li>" for text in sheet.footnotes)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n'
        f"<p>{escape(caption(sheet))}</p>\n" + (f'<ol class="notes">{notes}</ol>\n' if notes else "")
    )


def _jobs(entry: Entry, link: Callable[[str], str]) -> str:
    """Links to all jobs behind a number, folded up where they are many."""
    if len(entry.ids) < 2:
        return ""
    links = "".join(f' <a href="{escape(link(id))}">#{k}</a>' for k, id in enumerate(entry.ids, 1))
    if len(entry.ids) <= FEW:
        return links
    return f" <details><summary>{len(entry.ids)} jobs</summary>{links}</details>"


def _cell(entry: Entry, reference: str, link: Callable[[str], str] | None) -> str:
    if entry.value is None:
        more = escape(beside(entry).replace("<sup>", "").replace("</sup>", ""))
        return f'<td>– <span class="more">{more}</span></td>'
    text = escape(number(entry.value))
    if link is not None and entry.ids:
        text = f'<a href="{escape(link(entry.ids[0]))}">{text}</a>'
    title = ""
    if entry.against is not None:
        t = entry.against
        title = f"{t.difference:+.2f} against {reference}, 95 % interval {t.low:+.2f} to {t.high:+.2f}, p = {t.p:.3g}"
    more = "†" if entry.against and entry.against.significant else ""
    more += f" ± {entry.spread:.2f}" if entry.spread is not None else ""
    more += _jobs(entry, link) if link is not None else ""
    mark = ' class="best"' if entry.best else ""
    return (
        f'<td{mark} data-v="{entry.value:.6f}"{f" title={chr(34)}{escape(title)}{chr(34)}" if title else ""}>{text}'
        f'<span class="more">{more} {beside(entry)}</span></td>'
    )
