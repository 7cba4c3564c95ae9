"""Write what a run found: Markdown, HTML, figures, the single runs, and one page for all."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from partwise._versions import versions
from partwise.apps.papers.document import Block, Fold, Grid, Picture, Section, to_html, to_markdown
from partwise.apps.papers.estimate import machine
from partwise.apps.papers.printed import Comparison
from partwise.apps.papers.printed_tables import (
    MISSED,
    TITLES,
    Context,
    Told,
    build,
    by_paper,
    first_screen,
    scatter_picture,
)
from partwise.apps.papers.protocol import Protocol, Reading, load_protocol
from partwise.apps.papers.runner import plan
from partwise.apps.papers.sentences import sentences
from partwise.apps.papers.static_tables import PLAIN
from partwise.apps.papers.store import Store
from partwise.apps.papers.summary import Summary, pick, summarise
from partwise.apps.papers.trials import PartOfProtocol, cells_of
from partwise.persistence.atomic import write_whole

RUN_COLUMNS = ("table", "data", "k", "run", "variant", "budget_name", "seed", "params")
SCORES = ("ac", "nmi", "ari", "purity")
LEFT_OUT = (
    "Left out are the readings beside the main one, most numbers of clusters and nearly all draws: "
    "differences are mostly noise, no cause is given, and what is undecided may be so for that."
)


def stored(protocol: Protocol, store: Store, reading: Reading | None = None) -> Summary:
    """All results of a protocol that a folder holds, whatever command made them, in one reading."""
    runs = max(store.stored_runs(protocol.root), 1)
    read = protocol.read(reading)
    return summarise(read, store.results(cells_of(read, PartOfProtocol(runs=runs))))


def write_one(
    name: str, store: Store, *, data_home: str | None = None, failed: dict[str, str] | None = None
) -> Told:
    """Write a table's or figure's files into ``<folder>/<name>/``; what was written, for the page.

    ``failed`` are the cells that failed in this run, with the reason.
    """
    protocol = load_protocol(name)
    folder = store.folder / protocol.name
    folder.mkdir(parents=True, exist_ok=True)
    if protocol.kind in PLAIN:
        told = Told(PLAIN[protocol.kind](protocol, name, data_home), protocol.name.split("/")[0])
    else:
        whole, skipped = plan(protocol, PartOfProtocol(readings=(protocol.main.name,)), data_home)
        missing = len(store.missing(whole))
        part = 1.0 - missing / len(whole) if whole else 1.0
        ordered = sorted(protocol.readings, key=lambda r: r != protocol.main)
        summaries = {r.name: stored(protocol, store, r) for r in ordered}
        main = summaries[protocol.main.name]
        told = build(summaries, Context(skipped, failed or {}, part))
        write_whole(folder / "results.csv", _runs_csv(main), force=True)
        pictures = _pictures(main, folder)
        told.pictures = pictures
        if protocol.runs_of and protocol.kind == "figure" and protocol.printed and pictures:
            # The numbers stand under the table whose columns the figure draws.
            words = f"{told.section.blocks[0]} The numbers are those of {protocol.runs_of}."
            told.section.blocks = [words, *pictures]
        else:
            told.section.blocks[1:1] = pictures
    write_whole(folder / "table.md", to_markdown(told.section), force=True)
    page = to_html(
        [("", [told.section])],
        f"partwise reproduce {name}",
        banner=banner([told]),
        foot=_made_with(),
    )
    write_whole(folder / "table.html", page, force=True)
    return told


def write_index(store: Store, told: list[Told]) -> Path:
    """Write one self-contained page of what `write_one` has returned."""
    groups = [
        (TITLES.get(paper, paper), [one.section for one in group])
        for paper, group in by_paper(told).items()
    ]
    page = to_html(
        groups,
        "The papers' tables and figures, measured again",
        first=first_screen(told),
        banner=banner(told),
        foot=_made_with(),
    )
    (store.folder / "numbers").mkdir(exist_ok=True)
    for name, text in numbers_markdown(told).items():
        write_whole(store.folder / "numbers" / f"{name}.md", text, force=True)
    asked = sentences([(t.section.anchor, v) for t in told for v in t.verdicts])
    values = {"sentences": [asdict(s) for s in asked], "tables": [plain(t) for t in told]}
    text = json.dumps(values, indent=1, ensure_ascii=False)
    write_whole(store.folder / "numbers" / "numbers.json", text + "\n", force=True)
    averages = scatter_picture(told)
    if averages is not None:
        write_whole(store.folder / "numbers" / averages.file, averages.svg, force=True)
    for one in told:
        for picture in one.drawn():
            file = store.folder / one.section.anchor / f"{picture.stem}.png"
            copy = store.folder / "numbers" / f"{_stem(one)}-{picture.stem}.png"
            write_whole(copy, file.read_bytes(), force=True)
    return write_whole(store.folder / "index.html", page, force=True)


def plain(one: Told) -> dict[str, Any]:
    """A table's averages and claims as plain values; a number that is not one is null."""

    def finite(value: float) -> float | None:
        return round(value, 4) if math.isfinite(value) else None

    def measured(c: Comparison) -> dict[str, Any]:
        about = {"metric": c.metric, "method": c.method, "labels": c.budget}
        found = {"measured": finite(c.stat.mean), "standard_error": finite(c.stat.se)}
        return about | {"printed": finite(c.printed)} | found | {"runs": c.stat.n}

    why = {miss.comparison: (miss.whose, miss.text) for miss in one.missed}
    averages = []
    for c in one.compared.get(one.main, []):
        cause, shown_by = why.get(c, (None, None))
        averages.append(measured(c) | {"came_back": c.near, "cause": cause, "shown_by": shown_by})
    others = {name: found for name, found in one.compared.items() if name != one.main and found}
    claims = [
        {
            "text": v.text,
            "labels": v.budget,
            "measured": v.measured,
            "how": v.detail,
            "runs_to_decide": finite(v.outlook.runs) if v.outlook else None,
        }
        for v in one.verdicts
        if v.counted
    ]
    return {
        "table": one.section.anchor,
        "reading": one.main,
        "share_of_declared_runs": round(one.part, 4),
        "averages": averages,
        "claims": claims,
        "other_readings": {name: [measured(c) for c in found] for name, found in others.items()},
    }


def numbers_markdown(told: list[Told]) -> dict[str, str]:
    """The first screen, the misses with their causes, and each paper's averages, as Markdown.

    For keeping beside the code, with the pictures of figures as files of their own.
    """
    blocks = [b for b in first_screen(told) if not isinstance(b, Picture)]
    folds = [b for b in blocks if isinstance(b, Fold)]
    plain: list[Block] = [b for b in blocks if not isinstance(b, Fold)]
    pages = {"overview": _without_title(Section("", "", plain)) + "\n"}
    for fold in folds:
        pages["misses"] = to_markdown(Section(fold.title, "", fold.blocks))
    for paper, group in by_paper(told).items():
        parts = [f"# {TITLES.get(paper, paper)}"]
        for one in group:
            shown = [replace(p, file=f"{_stem(one)}-{p.stem}.png") for p in one.drawn()]
            grids = _average_grids(one.section)
            if grids or shown:
                parts.append(f"## {one.section.title}")
                about = one.section.blocks[0]  # who printed it, and how many runs there are
                parts.append(_without_title(Section("", "", [about, *shown, *grids]), "###"))
        pages[paper] = "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"
    return pages


def _stem(one: Told) -> str:
    return one.section.anchor.replace("/", "-")


def _without_title(section: Section, level: str = "####") -> str:
    text = to_markdown(section).removeprefix("# ").strip()
    return re.sub("^## ", f"{level} ", text, flags=re.MULTILINE)


def _average_grids(section: Section) -> list[Block]:
    """A section's own tables with their headings, without what is folded and the misses."""
    kept: list[Block] = []
    for heading, block in pairwise(section.blocks):
        if isinstance(block, Grid) and isinstance(heading, str) and heading != MISSED:
            kept += [heading, block] if heading.startswith("## ") else [block]
    return kept


def banner(told: list[Told]) -> str:
    """A warning where only a part of the declared runs is there."""
    parts = {t.section.anchor: t.part for t in told if t.verdicts or t.compared}
    few = [name for name, part in parts.items() if part < 0.5]
    if not parts or min(parts.values()) >= 1.0:
        return ""
    if len(parts) == 1:
        share = min(parts.values())
        return f"Quick: {share:.0%} of this table's declared runs. {LEFT_OUT}"
    if 2 * len(few) > len(parts):
        return (
            f"Quick: of {len(few)} of {len(parts)} tables and figures less than half of the "
            f"declared runs is there. {LEFT_OUT}"
        )
    part = [name for name, part in parts.items() if part < 1.0]
    return f"Fewer runs than declared: {', '.join(part)}."


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
    tail = ["objective", "n_iter", "seconds", "versions"]
    writer.writerow([*RUN_COLUMNS, *SCORES, *hidden, *tail])
    for result in summary.results:
        cell = result["cell"]
        scored = pick(result, summary.protocol.method(cell["method"]))
        own = scored["unlabelled"].get(cell["budget_name"], {})
        writer.writerow(
            [cell[c] for c in RUN_COLUMNS]
            + [_short(scored["all"].get(s)) for s in SCORES]
            + [_short(own.get(s)) for s in SCORES]
            + [_short(result[t]) for t in tail[:3]]
            + [" ".join(f"{k}={v}" for k, v in result.get("versions", {}).items())]
        )
    return buffer.getvalue()


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else ("" if value is None else value)


def _pictures(summary: Summary, folder: Path) -> list[Picture]:
    from PIL import Image

    from partwise.apps.papers.figures import draw_figures, svg

    pictures = []
    for stem, figure in draw_figures(summary).items():
        text = svg(figure)
        write_whole(folder / f"{stem}.svg", text, force=True)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=90)
        small = io.BytesIO()  # lines and few colours: a third of the size
        Image.open(buffer).convert("RGB").quantize(64).save(small, format="png", optimize=True)
        write_whole(folder / f"{stem}.png", small.getvalue(), force=True)
        pictures.append(Picture(f"{stem}.svg", text, summary.protocol.title))
    return pictures
