"""The first screen: the papers' sentences, their averages, and every miss with its cause."""

from __future__ import annotations

import math
from collections import Counter

from partwise.papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from partwise.papers.document import Block, Fold, Grid, Picture, Text
from partwise.papers.printed import FAR, Comparison
from partwise.papers.printed_tables import KINDS, Told, misses_grid
from partwise.papers.readings import FIRST
from partwise.papers.sentences import STATES, sentences

TITLES = {
    "cnmf": "CNMF (Liu and Wu 2010)",
    "lcf": "LCF (Liu, Yang and Wu 2011)",
    "gnmf": "GNMF (Cai, He, Han and Huang 2011)",
    "nmfdc": "NMF-DC (Yang and others 2018)",
    "cdnmf": "cdNMF (Xiao and others 2013)",
    "partwise": "Partwise's own table",
}


MANY = {HOLDS: "hold", FAILS: "fail", NOT_RUN: "were not run"}


def by_paper(told: list[Told]) -> dict[str, list[Told]]:
    """Tables and figures under their paper, in the order they came."""
    groups: dict[str, list[Told]] = {}
    for one in told:
        groups.setdefault(one.paper, []).append(one)
    return groups


def claims_blocks(told: list[Told]) -> list[Block]:
    """Every printed sentence with what became of it and the number that decides."""
    found = sentences([(t.section.anchor, v) for t in told for v in t.verdicts])
    if not found:
        return []
    counts = Counter(s.state for s in found)
    words = ", ".join(f"{counts[s]} {MANY.get(s, s)}" for s in STATES if counts[s])
    rows = [
        [
            Text.of(f"{TITLES[s.paper].split(' (')[0]}, {s.where}"),
            Text.of(f"“{s.text}”"),
            Text.of(s.state, KINDS.get(s.state, "quiet")),
            Text.of(s.number),
            Text((), s.tables),
        ]
        for s in found
    ]
    header = ["paper", "it says", "measured", "the number that decides", "where"]
    return [
        f"Of {len(found)} printed sentences: {words}.",
        Grid(header, rows, cards=True),
        "A sentence holds where each of its comparisons is beyond two standard errors, and fails "
        "where one is against it by more than chance explains in so many (Bonferroni's bound).",
    ]


def first_screen(told: list[Told]) -> list[Block]:
    """What stands above the sections of a page of several tables."""
    rows = []
    for paper, group in by_paper(told).items():
        counts = Counter(v.measured for t in group for v in t.verdicts if v.counted)
        main, first = measured(group), measured(group, first=True)
        if not (main or counts[HOLDS] or counts[FAILS] or counts[UNDECIDED]):
            continue
        rows.append(
            [
                Text.of(TITLES.get(paper, paper)),
                Text.of(str(counts[HOLDS]), "yes"),
                Text.of(str(counts[FAILS]), "no"),
                Text.of(str(counts[UNDECIDED]), "maybe"),
                Text.of(_share(main)),
                Text.of(_share(first), "quiet"),
                Text.of(_mean_gap(main)),
            ]
        )
    header = ["paper", "claims hold", "fail", "undecided", f"averages within {FAR:g} points"]
    header += ["in our first reading", "mean difference ± se"]
    blocks = claims_blocks(told)
    above = len(blocks)
    blocks.append(Grid(header, [*rows, _total(told)] if len(rows) > 1 else rows))
    blocks.append(
        "Claims are the parts of the sentences, a table or figure each. Averages are those of "
        "printed tables on the papers' own data, with as many labels as print states; each table "
        "declares how it is read."
    )
    picture = scatter_picture(told)
    if picture is not None:
        blocks.insert(above + 1, picture)
    missed = [m for t in told for m in t.missed]
    if missed:
        counts = Counter(m.whose for m in missed)
        words = ", ".join(f"{n} {whose}" for whose, n in counts.most_common())
        title = (
            f"The {len(missed)} averages beyond {FAR:g} points, each with its cause where one is "
            f"shown ({words})"
        )
        blocks.append(Fold(title, [misses_grid(missed, tables=True)]))
    return blocks


def measured(group: list[Told], *, first: bool = False) -> list[Comparison]:
    """The averages of these tables in their main reading, or in our first one."""
    found = []
    for told in group:
        name = FIRST if first and FIRST in told.compared else told.main
        found += told.compared.get(name, [])
    return found


def _total(told: list[Told]) -> list[Text]:
    counts = Counter(v.measured for t in told for v in t.verdicts if v.counted)
    main = measured(told)
    return [
        Text.of("all"),
        *(Text.of(str(counts[state])) for state in (HOLDS, FAILS, UNDECIDED)),
        Text.of(_share(main)),
        Text.of(_share(measured(told, first=True)), "quiet"),
        Text.of(_mean_gap(main)),
    ]


def _share(found: list[Comparison]) -> str:
    return f"{sum(c.near for c in found)} of {len(found)}" if found else ""


def _mean_gap(found: list[Comparison]) -> str:
    if not found:
        return ""
    gap = sum(abs(c.gap) for c in found) / len(found)
    errors = [c.stat.se for c in found if not math.isnan(c.stat.se)]
    se = sum(errors) / len(errors) if errors else math.nan
    return f"{gap:.1f}" + ("" if math.isnan(se) else f" ± {se:.1f}")


def scatter_picture(told: list[Told]) -> Picture | None:
    """Measured against printed averages, a panel for each paper."""
    panels = {
        TITLES.get(paper, paper): measured(group)
        for paper, group in by_paper(told).items()
        if measured(group)
    }
    if not panels:
        return None
    from partwise.papers.figures import scatter, svg

    caption = "Measured averages against printed ones, by paper"
    narrow = svg(scatter(panels, columns=2)) if len(panels) > 2 else ""
    return Picture("averages.svg", svg(scatter(panels)), caption, narrow)
