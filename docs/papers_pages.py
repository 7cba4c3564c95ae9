"""Write the pages of the papers for the documentation from the results of ``partwise reproduce``.

    python docs/papers_pages.py partwise-results pages

The folder "pages" gets ``claims.md`` and ``averages.md``, which are parts of ``docs/papers.md``,
and the files of ``docs/papers``: a page of each paper, ``misses.md``, the figures and
``numbers.json``.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pandas as pd

from partwise.apps.papers import names
from partwise.apps.papers.document import Block, Fold, Picture, Section, to_markdown
from partwise.apps.papers.protocol import titles
from partwise.apps.papers.results_page import (
    asked,
    averages_blocks,
    by_paper,
    claims_blocks,
    plain,
    write_one,
)
from partwise.apps.papers.store import Store
from partwise.apps.papers.table_page import MISSED, Report


def main(results: str, out: str) -> None:
    """Write all pages into the folder ``out``."""
    store, folder = Store(results), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    reports = [write_one(name, store) for name in names()]
    for name, text in numbers_markdown(reports).items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    sentences = [asdict(s) for s in asked(reports)]
    values = {"sentences": sentences, "tables": [plain(report) for report in reports]}
    text = json.dumps(values, indent=1, ensure_ascii=False)
    (folder / "numbers.json").write_text(text + "\n", encoding="utf-8")
    for report in reports:
        for picture in drawn(report):
            file = (store.folder / report.section.anchor / picture.file).with_suffix(".png")
            (folder / _file_name(report, picture)).write_bytes(file.read_bytes())


def drawn(report: Report) -> list[Picture]:
    """Return the first pictures of a figure, including those for the paper's label budget."""
    return [] if "/table" in report.section.anchor else report.pictures[:4]


def numbers_markdown(reports: list[Report]) -> dict[str, str]:
    """Return the Markdown pages: claims, averages, causes and papers."""
    averages = averages_blocks(reports)
    counts: list[Block] = [b for b in averages if isinstance(b, pd.DataFrame)]
    pages = {
        "claims": _without_title(Section("", "", claims_blocks(reports))) + "\n",
        "averages": _without_title(Section("", "", counts)) + "\n",
    }
    for fold in (b for b in averages if isinstance(b, Fold)):
        pages["misses"] = to_markdown(Section(fold.title, "", fold.blocks))
    for paper, group in by_paper(reports).items():
        parts = [f"# {titles()['papers'].get(paper, paper)}"]
        for one in group:
            shown = [replace(p, file=_file_name(one, p)) for p in drawn(one)]
            grids = _tables_with_headings(one.section)
            if grids or shown:
                about = one.section.blocks[0]  # the paper, and the number of runs
                text = _without_title(Section("", "", [about, *shown, *grids]), "###")
                parts += [f"## {one.section.title}", text]
        pages[paper] = "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"
    return pages


def _file_name(report: Report, picture: Picture) -> str:
    return f"{report.section.anchor.replace('/', '-')}-{Path(picture.file).stem}.png"


def _without_title(section: Section, level: str = "####") -> str:
    text = to_markdown(section).removeprefix("# ").strip()
    return re.sub("^## ", f"{level} ", text, flags=re.MULTILINE)


def _tables_with_headings(section: Section) -> list[Block]:
    """Return the tables of a section with their headings, without folds and causes."""
    kept: list[Block] = []
    for heading, block in pairwise(section.blocks):
        if isinstance(block, pd.DataFrame) and isinstance(heading, str) and heading != MISSED:
            kept += [heading, block] if heading.startswith("## ") else [block]
    return kept


if __name__ == "__main__":
    main(*sys.argv[1:])
