"""The summary at the top of a page of several tables: all claims and all averages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from partwise.apps.papers.averages import NEAR, Comparison
from partwise.apps.papers.claims import FAILS, HOLDS, NOT_RUN
from partwise.apps.papers.document import Block, Fold, table
from partwise.apps.papers.sentences import STATES, Sentence, sentences
from partwise.apps.papers.table_page import IN_PRINT, Report, misses_grid

TITLES = {
    "cnmf": "CNMF (Liu and Wu 2010)",
    "lcf": "LCF (Liu, Yang and Wu 2011)",
    "gnmf": "GNMF (Cai, He, Han and Huang 2011)",
    "nmfdc": "NMF-DC (Yang and others 2018)",
    "cdnmf": "cdNMF (Xiao and others 2013)",
}
WORDS = {HOLDS: "hold", FAILS: "fail", NOT_RUN: "were not run"}
RULE = (
    "A sentence holds where each of its comparisons is beyond two standard errors. It fails where "
    "one comparison is against it by more than chance explains in so many (Bonferroni's bound)."
)


def by_paper(reports: list[Report]) -> dict[str, list[Report]]:
    """Group the reports of tables and figures by paper."""
    papers = dict.fromkeys(report.paper for report in reports)
    return {paper: [r for r in reports if r.paper == paper] for paper in papers}


def asked(reports: list[Report]) -> list[Sentence]:
    """Judge every printed sentence by the verdicts on the claims in these reports."""
    return sentences([(r.section.anchor, v) for r in reports for v in r.verdicts])


def claims_blocks(reports: list[Report]) -> list[Block]:
    """Return the number of sentences per verdict, and every sentence with its verdict."""
    found = asked(reports)
    if not found:
        return []
    counts = Counter(s.state for s in found)
    words = ", ".join(f"{counts[s]} {WORDS.get(s, s)}" for s in STATES if counts[s])
    averages = [c for r in reports for c in r.compared]
    near, not_run = sum(c.near for c in averages), sum(r.not_run for r in reports)
    rows = [
        [
            f"{TITLES[s.paper].split(' (')[0]}, {s.where}",
            f"“{s.text}”",
            IN_PRINT[s.printed],
            s.state,
            s.number,
            "\n".join(s.tables),
        ]
        for s in found
    ]
    header = ["paper", "sentence", "in print", "measured", "the number that decides", "where"]
    return [
        f"Of {len(found)} printed sentences: {words}. Of {len(averages) + not_run} printed "
        f"averages, {near} are within {NEAR:g} points, {len(averages) - near} are not, and "
        f"{not_run} have 0 runs.",
        table(rows, header),
        RULE,
    ]


def averages_table(reports: list[Report]) -> pd.DataFrame:
    """Count the reproduced averages of each table, by the source of the settings."""
    records = [
        {
            "table": report.section.anchor,
            "group": "examined before" if report.audited else "not examined before",
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
    def share(frame: pd.DataFrame) -> str:
        return f"{frame['near'].sum()} of {len(frame)}" if len(frame) else "–"

    by_settings = (share(part[part["settings"] == s]) for s in ("print", "program", "choice"))
    ran = part[part["settings"] != ""]
    return [share(ran), len(part) - len(ran), *by_settings, part["only"].sum()]


def _reproduced_against_print(missed: Comparison, every: list[Comparison]) -> bool:
    same = (c for c in every if (c.metric, c.method) == (missed.metric, missed.method))
    return any(c.near and c.contradicts for c in same)


def averages_blocks(reports: list[Report]) -> list[Block]:
    """Return the counts of reproduced averages, and the causes of all other differences."""
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
