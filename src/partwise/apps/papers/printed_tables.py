"""A protocol's results as a section: printed | measured | difference, claims, causes, notes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from partwise.apps.papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Verdict, judge
from partwise.apps.papers.document import Block, Fold, Grid, Picture, Row, Section, Text
from partwise.apps.papers.evidence import evidence, identities
from partwise.apps.papers.pairs import pair_blocks, variants_grid
from partwise.apps.papers.printed import (
    FAR,
    METRICS,
    NO_RUNS,
    SHORT,
    Comparison,
    Miss,
    average_mismatches,
    comparisons,
    difference,
    listed_slips,
    mark,
    misses,
    near,
    number,
    printed_average,
    printed_words,
    with_error,
)
from partwise.apps.papers.protocol import FIRST, ComparedMethod, Protocol
from partwise.apps.papers.scores import WORDS
from partwise.apps.papers.sentences import STATES, sentences
from partwise.apps.papers.summary import Stat, Summary
from partwise.apps.papers.trials import NO_LABELS

QUICK = 0.5  # the share of the declared runs below which nobody is blamed for a miss
MISSED = "## Averages that did not come back, and why"
SETTINGS = {"print": "print", "program": "program", "choice": "our choice"}
KINDS = {HOLDS: "yes", FAILS: "no", UNDECIDED: "maybe", NOT_RUN: "quiet"}


@dataclass(frozen=True)
class Context:
    """What is said about a run beside its numbers."""

    skipped: dict[str, str]
    failed: dict[str, str]
    part: float = 1.0  # the share of the default protocol's cells that is there


@dataclass
class Told:
    """A table's section, and what it gives to the page's first screen."""

    section: Section
    paper: str = ""
    part: float = 1.0
    verdicts: list[Verdict] = field(default_factory=list)
    compared: dict[str, list[Comparison]] = field(default_factory=dict)  # by reading
    main: str = ""
    missed: list[Miss] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    def drawn(self) -> list[Picture]:
        """The first pictures of a figure, those under print's own labels among them."""
        return [] if "/table" in self.section.anchor else self.pictures[:4]


def build(summaries: dict[str, Summary], context: Context) -> Told:
    """The section of a table, without its pictures, from what was measured in each reading."""
    main = next(iter(summaries.values()))
    protocol = main.protocol
    section = Section(f"{protocol.name}: {protocol.title}", protocol.name)
    told = Told(section, protocol.name.split("/")[0], context.part, main=protocol.reading.name)
    told.verdicts = judge(main, summaries)
    told.compared = {name: comparisons(summary) for name, summary in summaries.items()}
    every = {name: comparisons(s, every_budget=True) for name, s in summaries.items()}
    far = told.compared[told.main]
    quick = context.part < QUICK
    same = identities(protocol) if far and not quick else frozenset[str]()
    told.missed = misses(every, far, protocol.causes, identities=same, quick=quick)
    add = section.blocks.append
    add(f"{protocol.paper}. {_status(main, context)}")
    if not protocol.comparable:
        add("Not comparable with the printed numbers: other data than the paper's (see the notes).")
    if len(summaries) > 1:
        add(f'Read as "{protocol.reading.name}": {protocol.reading.text}.')
    section.blocks += _numbers(summaries) + pair_blocks(main)
    if told.verdicts:
        section.blocks += ["## Claims", claims_grid(told.verdicts)]
    if told.missed:
        section.blocks += [MISSED, misses_grid(told.missed)]
    section.blocks += evidence(protocol, summaries)
    section.blocks += _notes(summaries)
    section.line = _line(told)
    return told


def _line(told: Told) -> str:
    """What a table comes to, in one line."""
    parts = []
    own = told.compared.get(told.main, [])
    if own:
        parts.append(f"{sum(c.near for c in own)} of {len(own)} averages within {FAR:g} points")
    counts = Counter(v.measured for v in told.verdicts if v.counted)
    words = {HOLDS: ("holds", "hold"), FAILS: ("fails", "fail"),
             UNDECIDED: ("is undecided", "are undecided")}  # fmt: skip
    claims = [f"{counts[s]} {words[s][counts[s] > 1]}" for s in words if counts[s]]
    if claims:
        parts.append(f"of its claims {', '.join(claims)}")
    return "; ".join(parts)


def _status(summary: Summary, context: Context) -> str:
    protocol = summary.protocol
    runs = {(r["cell"]["data"], r["cell"]["k"], r["cell"]["run"]) for r in summary.results}
    counts = sorted(set(Counter((data, k) for data, k, _ in runs).values()))
    if not counts:
        text = "Nothing measured yet."
    else:
        words = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        text = f"Measured with {words} run{'s' if words != '1' else ''} a row"
        text += f" (print: {protocol.runs_printed})." if protocol.runs_printed else "."
    if context.part < 1.0:
        text += f" This is {context.part:.0%} of the default protocol."
    for name, reason in context.skipped.items():
        text += f" {name} was not run: {reason}."
    if context.failed:
        first = next(iter(context.failed.values()))
        text += f" {len(context.failed)} runs failed, the first with: {first}."
    return text


def _numbers(summaries: dict[str, Summary]) -> list[Block]:
    """Averages of every reading for print's own labels; the rest behind folds."""
    main = next(iter(summaries.values()))
    protocol = main.protocol
    blocks: list[Block] = []
    folded: list[Block] = []
    for metric in protocol.metrics:
        label = METRICS.get(metric, metric)
        for budget in main.budgets():
            theirs = budget == NO_LABELS or _is_printed(protocol, budget)
            title = label if budget == NO_LABELS else f"{label}, labels: {budget}"
            if not protocol.printed:
                blocks += [f"## {title}", _by_row(main, metric, budget)]
                continue
            grid = _averages(main, metric, budget)
            if theirs:
                blocks += [f"## {title}", grid]
                variants = variants_grid(summaries, metric, budget) if metric != "seconds" else None
                blocks += [f"## {title}: variants", variants] if variants else []
            else:
                folded.append(Fold(f"{title} (ours; print does not have it): averages", [grid]))
            if metric != "seconds":
                full = _full(main, metric, budget)
                folded.append(
                    Fold(f"{title}: every K, printed | measured ± se | difference", [full])
                )
    return blocks + folded


def _is_printed(protocol: Protocol, budget: str) -> bool:
    return any(b.name == budget and b.printed for b in protocol.budgets)


def _columns(protocol: Protocol) -> list[tuple[str, ComparedMethod]]:
    """Column names with their methods; a sweep has one column for each value."""
    columns = []
    for method in protocol.methods:
        if method.sweep:
            columns += [(v.name, method) for v in method.variants()]
        else:
            columns.append((method.name, method))
    return columns


def _by_row(summary: Summary, metric: str, budget: str) -> Grid:
    """Where nothing is printed: a line for each method, a column for each (data, K)."""
    scope = summary.protocol.view.get("score", "all")
    rows = summary.rows()
    unlabelled = scope == "all" and bool(summary.protocol.budgets)
    lines = []
    for name, method in _columns(summary.protocol):
        each = [
            summary.stat(name, metric, budget=budget, scope=scope, data=data, k=k)
            for data, k in rows
        ]
        whole = summary.stat(name, metric, budget=budget, scope=scope)
        line = [name + mark(method), *(with_error(stat, metric) for stat in (*each, whole))]
        if unlabelled:
            hidden = summary.stat(name, metric, budget=budget, scope="unlabelled")
            line.append(number(hidden.mean, metric) if hidden else "")
        lines.append(line)
    header = ["method", *(f"{data}, K = {k}" for data, k in rows), "average"]
    return Grid([*header, "on unlabelled"] if unlabelled else header, lines)


def _averages(main: Summary, metric: str, budget: str) -> Grid:
    """A line for each column: print, the main protocol with its error, and what was counted."""
    protocol = main.protocol
    scope = protocol.view.get("score", "all")
    hidden = bool(protocol.budgets)
    header = ["method", "printed", "measured ± se", "difference", f"within {FAR:g}", "settings"]
    header += ["on unlabelled"] if hidden else []
    rows: list[Row] = []
    for column, method in _columns(protocol):
        printed = printed_average(main, metric, column, budget)
        stat = main.stat(column, metric, budget=budget, scope=scope)
        copied = protocol.copied_from(metric, column)
        back = near(printed, stat, metric, protocol.comparable)
        row: list[str | Text] = [
            column + mark(method) + (" (printed only)" if method.printed_only else ""),
            number(printed, metric) if printed is not None else "",
            with_error(stat, metric) if stat or method.printed_only else NO_RUNS,
            difference(printed, stat, metric, protocol.comparable),
            Text.of(f"judged in {copied}", "quiet") if copied else back,
            SETTINGS[protocol.settings_from(method)],
        ]
        if hidden:
            rest = main.stat(column, metric, budget=budget, scope="unlabelled")
            row.append(number(rest.mean, metric) if rest and metric != "seconds" else "")
        rows.append([*row, Text.of(str(stat.n) if stat else "0", "quiet")])
    return Grid([*header, "runs"], rows)


def _full(summary: Summary, metric: str, budget: str) -> Grid:
    protocol = summary.protocol
    columns = _columns(protocol)
    several = len(protocol.data) > 1
    measured = summary.rows()
    printed_rows = [
        (protocol.data[0].name, int(k))
        for k in dict.fromkeys(c.k for c in protocol.printed if c.metric == metric)
        if k != "avg"
    ]

    def compared(k: int | str, name: str, stat: Stat | None) -> Text:
        cell = protocol.printed_value(metric, k, name)
        gap = difference(cell.mean if cell else None, stat, metric, protocol.comparable)
        lines = [(printed_words(cell), "quiet"), (with_error(stat, metric) or "–", "")]
        return Text((*lines, *gap.lines))

    how = {"budget": budget, "scope": protocol.view.get("score", "all")}
    rows: list[Row] = []
    for data, k in sorted(set(printed_rows) | set(measured)):
        stats = {n: summary.stat(n, metric, data=data, k=k, **how) for n, _ in columns}
        head = f"{data} {k}" if several else str(k)
        rows.append([head, *(compared(k, name, stat) for name, stat in stats.items())])
    partial = bool(set(printed_rows) - set(measured))
    whole = {n: None if partial else summary.stat(n, metric, **how) for n, _ in columns}
    rows.append(["Avg.", *(compared("avg", n, stat) for n, stat in whole.items())])
    header = ["K", *(name + mark(method) for name, method in columns)]
    return Grid(header, rows, last=True)


def claims_grid(verdicts: list[Verdict]) -> Grid:
    """The claims with what became of them; those under labels of ours after the others."""
    several = len({v.budget for v in verdicts}) > 1
    rows: list[Row] = []
    for v in sorted(verdicts, key=lambda v: not v.counted):
        text = v.text + (f" [labels: {v.budget}]" if several and v.budget != NO_LABELS else "")
        test = "" if v.p is None else f"{v.test}, p = {v.p:.2g}"
        inprint = {None: Text.of("–", "quiet"), True: Text.of(HOLDS, "yes")}
        printed = inprint.get(v.printed, Text.of(FAILS, "no"))
        measured = Text.of(v.measured, KINDS[v.measured])
        rows.append([text, printed, measured, v.detail, test])
    return Grid(["claim", "in print", "measured", "how (± standard error)", "paired test"], rows)


def misses_grid(missed: list[Miss], *, tables: bool = False) -> Grid:
    """The averages that did not come back: print, measured, whose it is and what shows it."""
    rows: list[Row] = []
    for miss in missed:
        c = miss.comparison
        labels = "" if c.budget == NO_LABELS else f", {c.budget}"
        name = f"{c.table} " if tables else ""
        what = f"{name}{SHORT.get(c.metric, c.metric)}, {c.method}{labels}"
        numbers = (number(c.printed, c.metric), with_error(c.stat, c.metric), f"{c.gap:+.1f}")
        cause = Text.of(miss.whose, "far" if miss.whose == "open" else "")
        rows.append([what, *numbers, cause, miss.text])
    return Grid(["average", "printed", "measured ± se", "difference", "cause", "shown by"], rows)


def _notes(summaries: dict[str, Summary]) -> list[Block]:
    main = next(iter(summaries.values()))
    protocol = main.protocol
    blocks: list[Block] = []
    if len(summaries) > 1:
        lines = [
            f'"{r.name}"{" (main)" if r.name == protocol.reading.name else ""}: {r.text}. '
            f"Fixed by: {r.source}."
            for r in (s.protocol.reading for s in summaries.values())
        ]
        blocks.append(Fold("How it is read", [lines]))
    chosen = _choices(main)
    data_notes = [f"{d.name}: {d.note}." for d in protocol.data if d.note]
    budgets = [f"Label budget {b.name}: {b.note}." for b in protocol.budgets if b.note]
    columns = [f"{m.name}: {m.note}." for m in protocol.methods if m.note]
    seeds = {WORDS[m.readout] for m in protocol.runnable() if m.readout in WORDS}
    readout = [f"Clusters: {'; '.join(sorted(seeds))}, best of {protocol.kmeans} starts."]
    notes = [*protocol.notes, *readout, *chosen, *data_notes, *budgets, *columns]
    blocks.append(Fold("Notes", [notes]))
    slips = slip_sentences(protocol)
    if slips:
        blocks.append(Fold("Slips in print", [slips]))
    return blocks


def slip_sentences(protocol: Protocol) -> list[str]:
    """The slips that the protocol lists, and any other average that its column does not give."""
    known = listed_slips(protocol)
    found = [text for key, text in average_mismatches(protocol).items() if key not in known]
    return [slip["text"] for slip in protocol.slips] + found


def _choices(summary: Summary) -> list[str]:
    lines = []
    for (method, budget), choice in sorted(summary.chosen.items()):
        tried = ", ".join(f"{name} {value}" for name, value in choice["accuracies"].items())
        where = "" if budget == NO_LABELS else f" ({budget})"
        setting = ", ".join(f"{key} = {value}" for key, value in choice["setting"].items())
        lines.append(
            f"† {method}{where}: {setting} was chosen on the answer, as in the paper, by mean "
            f"accuracy over all rows: {tried}."
        )
    return lines


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
    averages = measured(told)
    inprint = {None: Text.of("–", "quiet"), True: Text.of(HOLDS, "yes")}
    rows: list[Row] = [
        [
            f"{TITLES[s.paper].split(' (')[0]}, {s.where}",
            f"“{s.text}”",
            inprint.get(s.printed, Text.of(FAILS, "no")),
            Text.of(s.state, KINDS.get(s.state, "quiet")),
            s.number,
            Text((), s.tables),
        ]
        for s in found
    ]
    header = ["paper", "it says", "in print", "measured", "the number that decides", "where"]
    return [
        f"Of {len(found)} printed sentences: {words}. Of {len(averages)} printed averages "
        f"{sum(c.near for c in averages)} are within {FAR:g} points.",
        Grid(header, rows, cards=True),
        "A sentence holds where each of its comparisons is beyond two standard errors, and fails "
        "where one is against it by more than chance explains in so many (Bonferroni's bound).",
    ]


def first_screen(told: list[Told]) -> list[Block]:
    """What stands above the sections of a page of several tables."""
    groups = {TITLES.get(paper, paper): group for paper, group in by_paper(told).items()}
    rows = [row for title, group in groups.items() if (row := _paper_row(title, group))]
    header = ["paper", "claims hold", "fail", "undecided", f"averages within {FAR:g} points"]
    header += ["in our first reading", "mean difference ± se"]
    blocks = claims_blocks(told)
    above = len(blocks)
    blocks.append(Grid(header, [*rows, _paper_row("all", told)] if len(rows) > 1 else rows))
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


def _paper_row(title: str, group: list[Told]) -> Row:
    """A paper's line of the first screen; empty where nothing was run."""
    counts = Counter(v.measured for t in group for v in t.verdicts if v.counted)
    judged = [Text.of(str(counts[s]), KINDS[s]) for s in (HOLDS, FAILS, UNDECIDED)]
    main, first = measured(group), measured(group, first=True)
    if not (main or counts[HOLDS] or counts[FAILS] or counts[UNDECIDED]):
        return []
    return [title, *judged, _share(main), Text.of(_share(first), "quiet"), _mean_gap(main)]


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
    from partwise.apps.papers.figures import scatter, svg

    caption = "Measured averages against printed ones, by paper"
    narrow = svg(scatter(panels, columns=2)) if len(panels) > 2 else ""
    return Picture("averages.svg", svg(scatter(panels)), caption, narrow)
