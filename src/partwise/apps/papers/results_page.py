"""Output of results: Markdown, HTML, figures and single runs."""

from __future__ import annotations

import io
import json
import os
import platform
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from partwise.apps.papers.averages import NEAR, Comparison
from partwise.apps.papers.claims import FAILS, HOLDS, NOT_RUN
from partwise.apps.papers.document import Block, Fold, Picture, table, to_html, to_markdown
from partwise.apps.papers.protocol import Protocol, Variant, load_protocol, titles
from partwise.apps.papers.runner import plan, versions
from partwise.apps.papers.sentences import STATES, Sentence, sentences
from partwise.apps.papers.static_tables import PLAIN
from partwise.apps.papers.store import Store, write_whole
from partwise.apps.papers.summary import Summary, pick, summarise
from partwise.apps.papers.table_page import IN_PRINT, Report, build, misses_grid
from partwise.apps.papers.trials import Selection, cells_of

WORDS = {HOLDS: "hold", FAILS: "fail", NOT_RUN: "were not run"}
RUN_COLUMNS = ("table", "data", "k", "run", "column", "budget_name", "seed", "params")


def stored(protocol: Protocol, store: Store, variant: Variant | None = None) -> Summary:
    """Return all stored results of a table, for one variant of its settings."""
    runs = max(store.stored_runs(protocol.root), 1)
    chosen = protocol.under(variant)
    return summarise(chosen, store.results(cells_of(chosen, Selection(runs=runs))))


def write_one(
    name: str, store: Store, *, data_home: str | None = None, failed: dict[str, str] | None = None
) -> Report:
    """Write the files of a table into ``<folder>/<name>/``, and return its report.

    ``failed`` maps each cell (one run of one method) that failed to the reason.
    """
    protocol = load_protocol(name)
    folder = store.folder / protocol.name
    if protocol.kind in PLAIN:
        section = PLAIN[protocol.kind](protocol, name, data_home)
        report = Report(section, protocol)
    else:
        whole, skipped = plan(protocol, Selection(variant="main"), data_home)
        part = 1.0 - len(store.missing(whole)) / len(whole) if whole else 1.0
        ordered = sorted(protocol.variants, key=lambda v: v != protocol.main)
        summaries = {v.name: stored(protocol, store, v) for v in ordered}
        main = summaries[protocol.main.name]
        report = build(summaries, skipped, failed or {}, part)
        write_whole(folder / "results.csv", _runs_csv(main))
        report.pictures = _pictures(main, folder)
        if protocol.runs_of and protocol.kind == "figure" and protocol.printed and report.pictures:
            words = f"{report.section.blocks[0]} The numbers are those of {protocol.runs_of}."
            report.section.blocks = [words, *report.pictures]
        else:
            report.section.blocks[1:1] = report.pictures
    write_whole(folder / "table.md", to_markdown(report.section))
    title, about = f"partwise reproduce {name}", banner([report])
    page = to_html([("", [report.section])], title, banner=about, foot=_made_with())
    write_whole(folder / "table.html", page)
    return report


def first_screen(reports: list[Report]) -> list[Block]:
    """Return the summary at the top of a page about several tables."""
    return [*claims_blocks(reports), *averages_blocks(reports)]


def write_index(store: Store, reports: list[Report]) -> Path:
    """Write one self-contained page of all reports."""
    groups = [
        (titles()["papers"].get(paper, paper), [one.section for one in group])
        for paper, group in by_paper(reports).items()
    ]
    title = "Reproduction of the papers' tables and figures"
    page = to_html(
        groups, title, first=first_screen(reports), banner=banner(reports), foot=_made_with()
    )
    return write_whole(store.folder / "index.html", page)


def plain(report: Report) -> dict[str, Any]:
    """Return a table's averages and claims as values for JSON; NaN becomes null."""
    why = {miss.comparison: (miss.whose, miss.text) for miss in report.missed}
    rows, main = list[dict[str, Any]](), len(report.compared)
    for c in sorted(report.every, key=lambda c: c not in report.compared):
        cause, shown_by = why.get(c, (None, None))
        rows.append(
            {"variant": c.variant, "metric": c.metric, "method": c.method, "labels": c.budget}
            | {"printed": c.printed, "measured": c.stat.mean, "standard_error": c.stat.se}
            | {"runs": c.stat.n, "settings": c.settings, "contradicts": c.contradicts}
            | {"reproduced": c.near, "cause": cause, "shown_by": shown_by}
        )
    averages = json.loads(pd.DataFrame(rows).round(4).to_json(orient="records"))
    return {
        "table": report.section.anchor,
        "variant": report.protocol.variant.name,
        "examined_before": report.protocol.audited,
        "share_of_declared_runs": round(report.part, 4),
        "averages_without_runs": report.not_run,
        "averages": averages[:main],
        "claims": [
            {"text": v.text, "labels": v.budget, "in_print": v.printed, "measured": v.measured}
            | {"how": v.detail}
            for v in report.verdicts
            if v.counted
        ],
        "other_averages": averages[main:],
    }


def banner(reports: list[Report]) -> str:
    """Return a warning for the page if some of the declared runs are missing."""
    ran = [r for r in reports if r.verdicts or r.compared]
    part = [r.section.anchor for r in ran if r.part < 1.0]
    quick = [r.section.anchor for r in ran if r.quick]
    if 2 * len(quick) > len(ran):
        return f"Quick: {', '.join(quick)}. {titles()['sentences']['quick']}"
    return f"Fewer runs than declared: {', '.join(part)}." if part else ""


def _made_with() -> list[str]:
    """Return sentences about the machine and the library versions of the results."""
    return [
        f"Machine: {platform.platform()}, {platform.machine()}, {os.cpu_count()} cores.",
        "Versions: " + ", ".join(f"{key} {value}" for key, value in versions().items()) + ".",
        "Each result file also holds the versions that it was made with.",
    ]


def _runs_csv(summary: Summary) -> str:
    """Return the results of all single runs as CSV, one line per run."""
    rows = []
    for result in summary.results:
        cell = result["cell"]
        scored = pick(result, summary.protocol.method(cell["method"]))
        hidden = scored["unlabelled"].get(cell["budget_name"], {})
        rows.append(
            {column: cell[column] for column in RUN_COLUMNS}
            | scored["all"]
            | {f"unlabelled_{name}": value for name, value in hidden.items()}
            | {name: result[name] for name in ("objective", "n_iter", "seconds")}
        )
    frame = pd.DataFrame(rows)
    return str(frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def _pictures(summary: Summary, folder: Path) -> list[Picture]:
    """Write the figures of a table as SVG and PNG, and return them."""
    from PIL import Image

    from partwise.apps.papers.figures import draw_figures, svg

    pictures = []
    for stem, figure in draw_figures(summary).items():
        text = svg(figure)
        write_whole(folder / f"{stem}.svg", text)
        buffer, small = io.BytesIO(), io.BytesIO()
        figure.savefig(buffer, format="png", dpi=90)
        # With fewer colours, the PNG file has a third of the size.
        Image.open(buffer).convert("RGB").quantize(64).save(small, format="png", optimize=True)
        write_whole(folder / f"{stem}.png", small.getvalue())
        pictures.append(Picture(f"{stem}.svg", text, summary.protocol.title))
    return pictures


def by_paper(reports: list[Report]) -> dict[str, list[Report]]:
    """Group the reports of tables and figures by paper."""
    found = defaultdict(list)
    for report in reports:
        found[report.protocol.name.split("/")[0]].append(report)
    return found


def asked(reports: list[Report]) -> list[Sentence]:
    """Return the papers' sentences with verdicts that follow from the claims."""
    return sentences([(r.section.anchor, v) for r in reports for v in r.verdicts])


def claims_blocks(reports: list[Report]) -> list[Block]:
    """Return blocks that list the papers' sentences with their verdicts."""
    found = asked(reports)
    if not found:
        return []
    counts = Counter(s.state for s in found)
    words = ", ".join(f"{counts[s]} {WORDS.get(s, s)}" for s in STATES if counts[s])
    averages = [c for r in reports for c in r.compared]
    near, not_run = sum(c.near for c in averages), sum(r.not_run for r in reports)
    names = {paper: title.split(" (")[0] for paper, title in titles()["papers"].items()}
    rows = [
        [f"{names[s.paper]}, {s.where}", f"“{s.text}”", IN_PRINT[s.printed]]
        + [s.state, s.number, "\n".join(s.tables)]
        for s in found
    ]
    header = ["paper", "sentence", "in print", "measured", "the number that decides", "where"]
    return [
        f"Of {len(found)} printed sentences: {words}. Of {len(averages) + not_run} printed "
        f"averages, {near} are within {NEAR:g} points, {len(averages) - near} are not, and "
        f"{not_run} have 0 runs.",
        table(rows, header),
        titles()["sentences"]["rule"],
    ]


def averages_table(reports: list[Report]) -> pd.DataFrame:
    """Return the numbers of reproduced averages, by table and source of settings."""
    records = [
        {
            "table": report.section.anchor,
            "group": "examined before" if report.protocol.audited else "not examined before",
            "settings": c.settings if c else "",
            "near": c is not None and c.near,
            "only": c is not None and not c.near and _reproduced_against_print(c, report.every),
        }
        for report in reports
        for c in [*report.compared, *[None] * report.not_run]
    ]
    frame = pd.DataFrame(records)
    if frame.empty:
        return frame
    parts = [*frame.groupby("table", sort=False), *frame.groupby("group"), ("all", frame)]
    rows = [[name, *_shares(part)] for name, part in parts]
    header = ["table", f"averages within {NEAR:g} points", "0 runs", "settings of the paper"]
    header += ["the program's", "our choice", "only with settings that contradict the paper"]
    return table(rows, header)


def _shares(part: pd.DataFrame) -> list[Any]:
    """Return a table row with the numbers of reproduced averages."""

    def share(frame: pd.DataFrame) -> str:
        return f"{frame['near'].sum()} of {len(frame)}" if len(frame) else "–"

    by_settings = (share(part[part["settings"] == s]) for s in ("print", "program", "choice"))
    ran = part[part["settings"] != ""]
    return [share(ran), len(part) - len(ran), *by_settings, part["only"].sum()]


def _reproduced_against_print(missed: Comparison, every: list[Comparison]) -> bool:
    """Return whether settings that contradict the paper reproduce an average."""
    same = (c for c in every if (c.metric, c.method) == (missed.metric, missed.method))
    return any(c.near and c.contradicts for c in same)


def averages_blocks(reports: list[Report]) -> list[Block]:
    """Return blocks that count reproduced averages and list causes of differences."""
    counted = averages_table(reports)
    if counted.empty:
        return []
    missed = [m for r in reports for m in r.missed]
    if not missed:
        return [counted]
    causes = Counter(m.whose for m in missed)
    words = ", ".join(f"{n} {whose}" for whose, n in causes.most_common())
    title = f"The {len(missed)} averages beyond {NEAR:g} points, by cause: {words}"
    return [counted, Fold(title, [misses_grid(missed, tables=True)])]
