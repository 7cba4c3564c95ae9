"""Write what a run found: Markdown, HTML, figures, the single runs, and one page for all."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from partwise._versions import versions
from partwise.io.files import write_whole
from partwise.papers.cells import Selection, cells_of
from partwise.papers.document import Grid, Picture, Section, Text, to_html, to_markdown
from partwise.papers.machine import machine
from partwise.papers.operations import count, printed_count
from partwise.papers.protocol import Protocol, load_protocol, names, read_rows, read_settings
from partwise.papers.readings import Reading
from partwise.papers.runner import plan
from partwise.papers.store import Store
from partwise.papers.summary import Summary, pick, summarise
from partwise.papers.tables import Context, build, overview

RUN_COLUMNS = ("table", "data", "k", "run", "variant", "budget_name", "seed", "params")
SCORES = ("ac", "nmi", "ari", "purity")


def stored(protocol: Protocol, store: Store, reading: Reading | None = None) -> Summary:
    """All results of a protocol that a folder holds, whatever command made them, in one reading."""
    runs = max(store.stored_runs(protocol.root), 1)
    read = protocol.read(reading)
    return summarise(read, store.results(cells_of(read, Selection(runs=runs))))


def write_one(
    name: str, store: Store, *, data_home: str | None = None, failed: dict[str, str] | None = None
) -> Section:
    """Write a table's or figure's files into the result folder.

    Parameters
    ----------
    name : str
        The table or figure.
    store : Store
        Where its results are; the files go to ``<folder>/<name>/``.
    data_home : str, optional
        Folder that data was looked for in.
    failed : dict, optional
        Cells that failed in this run, with the reason.

    Returns
    -------
    Section
        What was written, for the page of all.
    """
    protocol = load_protocol(name)
    folder = store.folder / protocol.name
    folder.mkdir(parents=True, exist_ok=True)
    if protocol.kind == "operations":
        section = _operations(protocol, name)
    else:
        summary = stored(protocol, store)
        whole, skipped = plan(protocol, Selection(), data_home)
        missing = len(store.missing(whole))
        part = 1.0 - missing / len(whole) if whole else 1.0
        section = build(summary, Context(skipped, failed or {}, part))
        write_whole(folder / "results.csv", _runs_csv(summary), force=True)
        _add_pictures(section, summary, folder)
    write_whole(folder / "table.md", to_markdown(section), force=True)
    page = to_html([section], f"partwise reproduce {name}", heads=_made_with())
    write_whole(folder / "table.html", page, force=True)
    return section


def write_index(store: Store, written: dict[str, Section], *, data_home: str | None = None) -> Path:
    """Write one self-contained page of everything that the folder holds.

    Tables without results are on it too, with their printed numbers and slips.

    Parameters
    ----------
    store : Store
        The result folder.
    written : dict of str to Section
        What `write_one` has just returned, by name; the others are written anew. May hold
        protocols of the user's own.
    data_home : str, optional
        Folder that data was looked for in.

    Returns
    -------
    Path
    """
    sections = [
        written[name] if name in written else write_one(name, store, data_home=data_home)
        for name in dict.fromkeys((*names(), *written))
    ]
    if any(section.averages for section in sections):
        sections.insert(0, overview(sections))
    page = to_html(sections, "partwise: the papers' tables and figures", heads=_made_with())
    return write_whole(store.folder / "index.html", page, force=True)


def _made_with() -> list[str]:
    return [
        "Machine: " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".",
        "Versions: " + ", ".join(f"{key} {value}" for key, value in versions().items()) + ".",
        "Each result file also holds the versions that it was made with.",
    ]


def _runs_csv(summary: Summary) -> str:
    """Every single run, one line each."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    hidden = [f"unlabelled_{s}" for s in SCORES]
    tail = ["objective", "n_iter", "seconds", "chosen", "versions"]
    writer.writerow([*RUN_COLUMNS, *SCORES, *hidden, *tail])
    for result in summary.results:
        cell = result["cell"]
        scored = pick(result, summary.protocol.method(cell["method"]))
        own = scored["unlabelled"].get(cell["budget_name"], {})
        writer.writerow(
            [cell[c] for c in RUN_COLUMNS]
            + [_short(scored["all"].get(s)) for s in SCORES]
            + [_short(own.get(s)) for s in SCORES]
            + [_short(result[t]) for t in ("objective", "n_iter", "seconds", "chosen")]
            + [" ".join(f"{k}={v}" for k, v in result.get("versions", {}).items())]
        )
    return buffer.getvalue()


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else ("" if value is None else value)


def _add_pictures(section: Section, summary: Summary, folder: Path) -> None:
    from partwise.papers.figures import draw_figures, svg

    if not summary.results or not summary.protocol.view:
        return
    for stem, figure in draw_figures(summary).items():
        text = svg(figure)
        write_whole(folder / f"{stem}.svg", text, force=True)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130)
        write_whole(folder / f"{stem}.png", buffer.getvalue(), force=True)
        section.blocks.insert(2, Picture(f"{stem}.svg", text, summary.protocol.title))


def _operations(protocol: Protocol, name: str) -> Section:
    """Printed formulas at given sizes beside the operations counted."""
    section = Section(f"{protocol.name}: {protocol.title}", protocol.name)
    section.blocks.append(f"{protocol.paper}.")
    rows = read_rows(name)
    for sizes in read_settings(name)["sizes"]:
        section.blocks.append("## " + ", ".join(f"{key} = {value}" for key, value in sizes.items()))
        lines = []
        for row in rows:
            printed = printed_count(row["formula"], sizes)
            line = [row["formulation"], row["method"], row["operation"], row["formula"]]
            if printed is None:
                counts = ["", "", ""]
            else:
                counted = count(row["formulation"], row["method"], sizes)[row["operation"]]
                gap = (counted - printed) / printed
                counts = [f"{printed:,}", f"{counted:,}", f"{gap:+.2%}" if gap else "equal"]
            lines.append([Text.of(text) for text in line + counts])
        header = ["formulation", "method", "operation", "printed formula"]
        section.blocks.append(Grid([*header, "printed", "counted", "difference"], lines))
    section.blocks.append("## Notes")
    section.blocks.append(list(protocol.notes))
    if protocol.slips:
        section.blocks += ["## Slips in print", [slip["text"] for slip in protocol.slips]]
    return section
