"""Reports: folders of results in; Markdown, LaTeX, CSV, figures and one HTML page out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from reta import state as states
from reta.bench import times
from reta.bench.collect import Results, collect
from reta.bench.figures import figures
from reta.bench.jobs import path_of
from reta.bench.page import Section, page
from reta.bench.render import latex, markdown, table_csv
from reta.bench.sheet import remarks, sheets
from reta.errors import BadInput

TITLE = "Results"
LINKS = ("all", "page", "none")


def report(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    plans: Sequence[str] = (),
    title: str = TITLE,
    intro: str = "",
    links: str = "all",
) -> list[Path]:
    """Write the report of some folders of results into `out`; the same results give the same bytes.

    `plans` limits it to some plans. Numbers lead to the files of their jobs in `all` pages, in the HTML `page`
    only, or in `none`.
    """
    if links not in LINKS:
        raise BadInput(f"links is one of {', '.join(LINKS)}, not {links!r}")
    found = [r for r in collect([Path(f) for f in folders]) if not plans or r.manifest.name in plans]
    out = Path(out)
    sections, written = [], []
    for anchor, results in zip(anchors(found), found, strict=True):
        section = _section(anchor, results)
        sections.append(section)
        written += _write(out, section)
    places = {id: results.places[id] for results in found for id in results.records}

    def link(id: str) -> str:
        return Path(os.path.relpath(path_of(places[id], id), out)).as_posix()

    in_text, in_page = (link if links == "all" else None), (link if links != "none" else None)
    text = f"# {title}\n\n" + (f"{intro}\n\n" if intro else "")
    text += "\n".join(_markdown(section, in_text) for section in sections)
    written.append(_put(out / "report.md", text))
    written.append(_put(out / "report.html", page(title, intro, sections, in_page)))
    return written


def anchors(found: Sequence[Results]) -> list[str]:
    """A name for each plan's section and files: the plan's, with the world or a number where it is not alone."""
    taken: list[str] = []
    for results in found:
        name = results.manifest.name
        if sum(r.manifest.name == name for r in found) > 1 and results.manifest.settings["world"]:
            name += f"-{results.manifest.settings['world']}"
        stem, k = name, 2
        while name in taken:
            name, k = f"{stem}-{k}", k + 1
        taken.append(name)
    return taken


def _section(anchor: str, results: Results) -> Section:
    man = results.manifest
    layout = man.settings["layout"]
    tables = times.sheets(results) if layout == "time" else sheets(results)
    notes = [man.shown["note"]] if man.shown["note"] else []
    section = Section(anchor, man.shown["item"], results.title, tables, notes + remarks(results))
    for name, files in figures(results).items():
        section.figures[name.replace(man.name, anchor, 1)] = files
    return section


def _write(out: Path, section: Section) -> list[Path]:
    """The files of one section: tables in LaTeX and CSV, figures."""
    written = [_put(out / "tables" / f"{section.anchor}.csv", table_csv(section.sheets))]
    written.append(_put(out / "tables" / f"{section.anchor}.tex", "\n".join(map(latex, section.sheets))))
    for name, files in section.figures.items():
        for kind, data in files.items():
            written.append(_put(out / "figures" / f"{name}.{kind}", data))
    return written


def _markdown(section: Section, link: object) -> str:
    item = f" ({section.item})" if section.item else ""
    parts = [f"## {section.title}{item} {{#{section.anchor}}}\n"]
    parts += [f"![{section.title}](figures/{name}.png)\n" for name in section.figures]
    parts += [markdown(sheet, link) for sheet in section.sheets]  # type: ignore[arg-type]
    parts += ["\n".join(f"- {note}" for note in section.notes) + "\n"] if section.notes else []
    return "\n".join(parts)


def _put(path: Path, content: str | bytes) -> Path:
    with states.atomic(path) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path
