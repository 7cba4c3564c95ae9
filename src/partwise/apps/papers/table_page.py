"""Page section of a table: numbers, differences, claims, causes and notes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from partwise.apps.papers.averages import (
    NEAR,
    Comparison,
    Miss,
    compared_columns,
    comparisons,
    misses,
    number,
    printed_average,
    printed_words,
    with_error,
)
from partwise.apps.papers.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Verdict,
    decide,
    judge,
    slower,
    together,
)
from partwise.apps.papers.document import FAR, Block, Fold, Picture, Section, table
from partwise.apps.papers.protocol import Method, Protocol, load_protocol, titles
from partwise.apps.papers.summary import Stat, Summary, paired_stat
from partwise.apps.papers.trials import NO_LABELS

SCORES = ("ac", "nmi", "ari")
NO_RUNS = "0 runs"
MISSED = "## Averages that are not reproduced, and why"
SETTINGS = {"choice": "our choice", "file": "your file"}
IN_PRINT = {None: "–", True: HOLDS, False: FAILS}


@dataclass
class Report:
    """Page section of a table, with its results for the summary of all tables."""

    section: Section
    protocol: Protocol  # with the main variant of the settings
    part: float = 1.0
    quick: bool = False  # some numbers of clusters have no runs, so no causes are shown
    verdicts: list[Verdict] = field(default_factory=list)
    compared: list[Comparison] = field(default_factory=list)  # with the main variant
    every: list[Comparison] = field(default_factory=list)  # in all variants and label budgets
    not_run: int = 0  # number of printed averages without runs although their data is installed
    missed: list[Miss] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)


def build(
    summaries: dict[str, Summary], skipped: dict[str, str], failed: dict[str, str], part: float
) -> Report:
    """Return the page section of a table, from the results of each settings variant.

    ``skipped`` and ``failed`` give the reasons of runs that are missing. ``part`` is the
    share of the declared runs that have a result. Pictures are added later.
    """
    main = next(iter(summaries.values()))
    protocol = main.protocol
    section = Section(f"{protocol.name}: {protocol.title}", protocol.name)
    report = Report(section, protocol, part, verdicts=judge(main, summaries))
    report.every = [c for summary in summaries.values() for c in comparisons(summary)]
    of_main = [c for c in report.every if c.variant == protocol.variant.name]
    report.compared = [c for c in of_main if not c.contradicts]
    if not skipped:
        report.not_run = len(compared_columns(protocol)) - len(report.compared)
    declared = {(data.name, k) for data in protocol.data for k in data.clusters}
    report.quick = not declared <= set(main.rows())
    report.missed = misses(report.every, report.compared, protocol.causes, quick=report.quick)
    section.blocks.append(f"{protocol.paper}. {_status(main, skipped, failed, part)}")
    if not protocol.comparable:
        section.blocks.append("The data are not the paper's, so no average is compared.")
    if len(summaries) > 1:
        section.blocks.append(f'Main variant "{protocol.variant.name}": {protocol.variant.text}.')
    section.blocks += [*_numbers(summaries), *pair_blocks(main), *closeness_blocks(main)]
    if report.verdicts:
        section.blocks += ["## Claims", claims_grid(report.verdicts)]
    if report.missed:
        section.blocks += [MISSED, misses_grid(report.missed)]
    section.blocks += [*([] if report.quick else _identities(protocol)), *_notes(summaries)]
    section.line = _line(report)
    return report


def _identities(protocol: Protocol) -> list[Block]:
    """Return blocks with recorded results that show that two methods are identical."""
    root = load_protocol(protocol.runs_of) if protocol.runs_of else protocol
    blocks: list[Block] = []
    for entry in root.identities:
        rows = [[entry[name], entry["objective"]] for name in ("method", "plain")]
        blocks += [f"## {entry['title']}", entry["text"], table(rows, ["method", "objective"])]
    return blocks


def _line(report: Report) -> str:
    """Return one line that counts the reproduced averages and the verdicts."""
    near, all_of = sum(c.near for c in report.compared), len(report.compared)
    counts = Counter(v.measured for v in report.verdicts if v.counted)
    claims = [f"{counts[s]} {s}" for s in (HOLDS, FAILS, UNDECIDED) if counts[s]]
    parts = [f"{near} of {all_of} averages within {NEAR:g} points"] if all_of else []
    return "; ".join([*parts, f"claims: {', '.join(claims)}"] if claims else parts)


def _status(summary: Summary, skipped: dict[str, str], failed: dict[str, str], part: float) -> str:
    """Return sentences about the number of runs, and missing or failed runs."""
    protocol = summary.protocol
    runs = {(r["cell"]["data"], r["cell"]["k"], r["cell"]["run"]) for r in summary.results}
    counts = sorted(set(Counter((data, k) for data, k, _ in runs).values()))
    text = "0 runs."
    if counts:
        words = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        text = f"Measured with {words} run{'s' if words != '1' else ''} per row"
        text += f" (print: {protocol.runs_printed})." if protocol.runs_printed else "."
    text += f" This is {part:.0%} of the declared runs." if part < 1.0 else ""
    text += "".join(f" {name} was not run: {reason}." for name, reason in skipped.items())
    for first in list(failed.values())[:1]:
        text += f" {len(failed)} runs failed, the first with: {first}."
    return text


def _numbers(summaries: dict[str, Summary]) -> list[Block]:
    """Return blocks with the averages; those for other label numbers are folded."""
    main = next(iter(summaries.values()))
    protocol = main.protocol
    ours = {b.name for b in protocol.budgets if not b.printed}
    blocks: list[Block] = []
    folded: list[Block] = []
    for metric, budget in itertools.product(protocol.metrics, main.budgets()):
        title = titles()["metrics"].get(metric, metric) + _labels(budget)
        if not protocol.printed:
            blocks += [f"## {title}", _by_row(main, metric, budget)]
            continue
        if budget in ours:
            title += " (a budget of ours)"
            folded.append(Fold(title, [_averages(main, metric, budget)]))
        else:
            blocks += [f"## {title}", _averages(main, metric, budget)]
        if metric == "seconds":
            continue
        if budget not in ours and len(summaries) > 1:
            blocks += [f"## {title}: variants", variants_grid(summaries, metric, budget)]
        words = f"{title}: every K, printed | measured ± se | difference"
        folded.append(Fold(words, [_full(main, metric, budget)]))
    return blocks + folded


def _labels(budget: str) -> str:
    """Return the end of a heading that states the number of labels, or ""."""
    return "" if budget == NO_LABELS else f", labels: {budget}"


def _columns(protocol: Protocol) -> list[tuple[str, Method]]:
    """Return the columns of a table: one per method and tried parameter value."""
    every = ((m, [c.name for c in m.columns()] if m.sweep else [m.name]) for m in protocol.methods)
    return [(name, method) for method, names in every for name in names]


def _rest(summary: Summary, column: str, metric: str, budget: str) -> list[str]:
    """Return a list with the score on unlabelled samples; empty without labels."""
    rest = summary.stat(column, metric, budget=budget, scope="unlabelled")
    text = number(rest.mean, metric) if rest and metric != "seconds" else ""
    return [text] if summary.protocol.budgets else []


def _by_row(summary: Summary, metric: str, budget: str) -> pd.DataFrame:
    """Return the results by method, data set and K, if the paper prints no numbers."""
    rows = summary.rows()
    lines = []
    for name, method in _columns(summary.protocol):
        each = [summary.stat(name, metric, budget=budget, data=data, k=k) for data, k in rows]
        stats = [*each, summary.stat(name, metric, budget=budget)]
        numbers = (with_error(stat, metric) for stat in stats)
        lines.append([name + mark(method), *numbers, *_rest(summary, name, metric, budget)])
    header = ["method", *(f"{data}, K = {k}" for data, k in rows), "average"]
    return table(lines, header + (["on unlabelled"] if summary.protocol.budgets else []))


def difference(printed: float | None, stat: Stat | None, metric: str, comparable: bool) -> str:
    """Return measured minus printed as text, marked if it is large.

    For times, the ratio is returned instead.
    """
    if printed is None or stat is None:
        return ""
    if metric == "seconds":
        return f"x {stat.mean / printed:.2g}" if printed else ""
    gap = f"{round(stat.mean - printed, 1) + 0.0:+.1f}"  # adding 0.0 turns -0.0 into 0.0
    if not comparable:
        return f"({gap})"
    return f"{gap} {FAR}" if abs(stat.mean - printed) > NEAR else gap


def _averages(main: Summary, metric: str, budget: str) -> pd.DataFrame:
    """Return a table of printed and measured averages of all methods."""
    protocol = main.protocol
    rows = []
    for column, method in _columns(protocol):
        printed = printed_average(main, metric, column, budget)
        stat = main.stat(column, metric, budget=budget)
        row = [
            column + mark(method),
            "" if printed is None else number(printed, metric),
            with_error(stat, metric) or NO_RUNS,
            difference(printed, stat, metric, protocol.comparable),
            _near(protocol, metric, column, printed, stat),
            SETTINGS.get(name := protocol.settings_from(method), name),
            *_rest(main, column, metric, budget),
            runs_per_row(stat),
        ]
        rows.append(row)
    header = ["method", "printed", "measured ± se", "difference", f"within {NEAR:g}", "settings"]
    header += ["on unlabelled"] if protocol.budgets else []
    return table(rows, [*header, "runs per row"])


def _near(
    protocol: Protocol, metric: str, column: str, printed: float | None, stat: Stat | None
) -> str:
    """Return "yes" if an average is reproduced, "no", or the table that compares it."""
    copied = protocol.copied_from(metric, column)
    if copied:
        return f"judged in {copied}"
    if not protocol.comparable or metric == "seconds" or printed is None or stat is None:
        return ""
    return "yes" if abs(stat.mean - printed) <= NEAR else "no"


def _full(summary: Summary, metric: str, budget: str) -> pd.DataFrame:
    """Return a table of printed and measured values and differences for every K."""
    protocol, columns = summary.protocol, _columns(summary.protocol)
    measured = summary.rows()
    ks = dict.fromkeys(n.k for n in protocol.printed if n.metric == metric and n.k != "avg")
    wanted = {(protocol.data[0].name, int(k)) for k in ks}

    def compared(k: int | str, name: str, stat: Stat | None) -> str:
        """Return the lines of a cell: printed value, measured value and difference."""
        printed = protocol.printed_value(metric, k, name)
        gap = difference(printed.mean if printed else None, stat, metric, protocol.comparable)
        lines = [printed_words(printed), with_error(stat, metric) or "–", gap]
        return "\n".join(line for line in lines if line)

    rows = []
    for data, k in sorted(wanted | set(measured)):
        stats = {n: summary.stat(n, metric, budget=budget, data=data, k=k) for n, _ in columns}
        head = f"{data} {k}" if len(protocol.data) > 1 else str(k)
        rows.append([head, *(compared(k, name, stat) for name, stat in stats.items())])
    whole = wanted <= set(measured)
    stats = {n: summary.stat(n, metric, budget=budget) if whole else None for n, _ in columns}
    rows.append(["Avg.", *(compared("avg", n, stat) for n, stat in stats.items())])
    return table(rows, ["K", *(name + mark(method) for name, method in columns)])


def claims_grid(verdicts: list[Verdict]) -> pd.DataFrame:
    """Return a table of claims with their verdicts; uncounted ones come last."""
    several = len({v.budget for v in verdicts}) > 1
    rows = []
    for v in sorted(verdicts, key=lambda v: not v.counted):
        text = v.text + (f" [labels: {v.budget}]" if several and v.budget != NO_LABELS else "")
        rows.append([text, IN_PRINT[v.printed], v.measured, v.detail])
    return table(rows, ["claim", "in print", "measured", "how (± standard error)"])


def misses_grid(missed: list[Miss], *, tables: bool = False) -> pd.DataFrame:
    """Return a table of averages that were not reproduced, with their causes."""
    rows: list[list[Any]] = []
    for miss in missed:
        c = miss.comparison
        labels = "" if c.budget == NO_LABELS else f", {c.budget}"
        what = (f"{c.table} " if tables else "") + f"{c.metric.upper()}, {c.method}{labels}"
        numbers = (number(c.printed, c.metric), with_error(c.stat, c.metric), f"{c.gap:+.1f}")
        rows.append([what, *numbers, miss.whose, miss.text])
    header = ["average", "printed", "measured ± se", "difference", "cause", "shown by"]
    return table(rows, header)


def _notes(summaries: dict[str, Summary]) -> list[Block]:
    """Return folded blocks about variants of the settings, notes and errors in print."""
    main = next(iter(summaries.values()))
    protocol = main.protocol
    lines = []
    for v in (summary.protocol.variant for summary in summaries.values()):
        of_main = " (main)" if v == protocol.variant else ""
        lines.append(f'"{v.name}"{of_main}: {v.text}. Source: {v.source}.')
    blocks: list[Block] = [Fold("Variants", [lines])] if len(summaries) > 1 else []
    words = titles()["readouts"]
    seeds = {words[m.readout] for m in protocol.methods if m.readout in words}
    notes = [
        *protocol.notes,
        f"Clusters: {'; '.join(sorted(seeds))}, best of {protocol.kmeans} starts.",
        *_choices(main),
        *(f"{d.name}: {d.note}." for d in protocol.data if d.note),
        *(f"Label budget {b.name}: {b.note}." for b in protocol.budgets if b.note),
        *(f"{m.name}: {m.note}." for m in protocol.methods if m.note),
    ]
    blocks.append(Fold("Notes", [notes]))
    wrong = [entry["text"] for entry in protocol.misprints]
    return [*blocks, Fold("Errors in print", [wrong])] if wrong else blocks


def _choices(summary: Summary) -> list[str]:
    """Return sentences about parameters that were chosen by accuracy."""
    lines = []
    for (method, budget), choice in sorted(summary.chosen.items()):
        tried = ", ".join(f"{name} {value}" for name, value in choice["accuracies"].items())
        where = "" if budget == NO_LABELS else f" ({budget})"
        setting = ", ".join(f"{key} = {value}" for key, value in choice["setting"].items())
        how = "was chosen on the answer, as in the paper, by mean accuracy over all rows"
        lines.append(f"† {method}{where}: {setting} {how}: {tried}.")
    return lines


def mark(method: Method) -> str:
    """Return a dagger if parameters were chosen by accuracy on the true classes."""
    return "†" if method.chosen_on_answer else ""


def pairs_grid(summary: Summary, metric: str, budget: str) -> pd.DataFrame | None:
    """Return a table of paired differences of all methods, row minus column.

    The differences are taken run by run, since two methods of a run have the same samples, labels
    and start. The second line of a cell is the difference of the printed averages over the same
    rows. Return None if there are fewer than two methods.
    """
    columns = {m.name: summary.column(m.name, metric, budget) for m in summary.protocol.methods}
    ran = [name for name, column in columns.items() if not column.empty]
    if len(ran) < 2:
        return None
    rows = []
    for i, one in enumerate(ran[:-1]):
        row = [one]
        for j, other in enumerate(ran[1:], 1):
            stat = paired_stat(columns[one], columns[other]) if j > i else None
            row.append(_pair(summary, metric, budget, one, other, stat) if stat else "")
        rows.append(row)
    return table(rows, ["minus", *ran[1:]])


def _pair(summary: Summary, metric: str, budget: str, one: str, other: str, stat: Stat) -> str:
    """Return the cell for two methods: their measured and their printed difference."""
    text = f"{stat.mean:+.1f}" + ("" if math.isnan(stat.se) else f" ± {stat.se:.1f}")
    text += " *" if decide(abs(stat.mean), stat.se) == HOLDS else ""
    a, b = (printed_average(summary, metric, name, budget) for name in (one, other))
    if a is None or b is None or not summary.protocol.comparable:
        return text
    return f"{text}\nprint {a - b:+.1f}"


def pair_blocks(summary: Summary) -> list[Block]:
    """Return a matrix of differences of methods for each score and label number."""
    protocol = summary.protocol
    if protocol.kind == "figure":
        return []
    blocks: list[Block] = []
    theirs = [b.name for b in protocol.budgets if b.printed] or [NO_LABELS]
    metrics = (m for m in protocol.metrics if m in SCORES)
    for metric, budget in itertools.product(metrics, theirs):
        grid = pairs_grid(summary, metric, budget)
        if grid is not None:
            end = "row minus column (* beyond two errors)"
            blocks += [f"## {titles()['metrics'][metric]}{_labels(budget)}: {end}", grid]
    return blocks


def closeness_blocks(summary: Summary) -> list[Block]:
    """Return a table of each rival's time divided by that of the claimed method.

    Each time ends when a method comes close to its own lowest objective.
    """
    blocks: list[Block] = []
    for claim in (c for c in summary.protocol.claims if c["type"] == "sooner"):
        leads = slower(summary, claim, summary.budgets()[0])
        if not leads:
            continue
        states = together(list(leads.values()))[1]
        rows = []
        for ((rival, data), stat), state in zip(leads.items(), states, strict=True):
            faster = {HOLDS: claim["method"], FAILS: rival}.get(state, UNDECIDED)
            rows.append([rival, data, _ratio(stat), faster])
        title = f"## Time until within {claim['within']:.0%} of the lowest objective of each method"
        header = ["rival", "data", f"time in units of {claim['method']}'s", "clearly faster"]
        blocks += [title, table(rows, header)]
    return blocks


def _ratio(stat: Stat) -> str:
    """Return a ratio with an interval of two standard errors, from its logarithm."""
    ends = (math.exp(stat.mean + sign * 2 * stat.se) for sign in (-1, 1))
    return f"{math.exp(stat.mean):.2g} ({' to '.join(f'{end:.2g}' for end in ends)})"


def variants_grid(summaries: dict[str, Summary], metric: str, budget: str) -> pd.DataFrame:
    """Return a table of averages by variant of the settings and method.

    "as main" marks a column whose settings equal those of the main variant.
    """
    main = next(iter(summaries.values()))
    methods = main.protocol.methods
    printed = (printed_average(main, metric, m.name, budget) for m in methods)
    rows = [["print", *("" if v is None else number(v, metric) for v in printed), "", ""]]
    for variant, summary in summaries.items():
        texts, stats = [], list[Stat | None]()
        for method in methods:
            stat = summary.stat(method.name, metric, budget=budget)
            if summary is not main and _unchanged(main, summary, method.name):
                texts.append("as main")
                continue
            texts.append(_average(summary, metric, budget, method.name, stat))
            stats.append(stat)
        label = f"{variant} (main)" if summary is main else variant
        counts = "no: contradicts print" if summary.protocol.variant.contradicts else ""
        rows.append([label, *texts, runs_per_row(*stats), counts])
    header = [m.name + mark(m) for m in methods]
    return table(rows, ["variant", *header, "runs per row", "counts"])


def runs_per_row(*stats: Stat | None) -> str:
    """Return the largest number of runs per table row, as text."""
    return f"{max((s.n / s.rows for s in stats if s), default=0):.3g}"


def _average(summary: Summary, metric: str, budget: str, method: str, stat: Stat | None) -> str:
    """Return a measured average as text, marked if it is far from the printed one."""
    printed = printed_average(summary, metric, method, budget)
    far = FAR in difference(printed, stat, metric, summary.protocol.comparable)
    return (with_error(stat, metric) or NO_RUNS) + (f" {FAR}" if far else "")


def _unchanged(main: Summary, variant: Summary, method: str) -> bool:
    """Return whether a variant has the same settings for a method as the main one."""
    one, other = main.protocol, variant.protocol
    return one.data == other.data and one.method(method) == other.method(method)
