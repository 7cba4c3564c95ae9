"""Pairwise comparison of methods, and the variants of a table in one grid."""

from __future__ import annotations

import math

import pandas as pd

from partwise.apps.papers.averages import METRICS, NEAR, number, printed_average, with_error
from partwise.apps.papers.claims import FAILS, HOLDS, UNDECIDED, decide, slower, together
from partwise.apps.papers.document import FAR, Block, table
from partwise.apps.papers.protocol import Method
from partwise.apps.papers.summary import Stat, Summary, paired_stat

SCORES = ("ac", "nmi", "ari")
NO_RUNS = "0 runs"


def mark(method: Method) -> str:
    """Return a dagger if the parameters were chosen by the score that they reach."""
    return "†" if method.chosen_on_answer else ""


def pairs_grid(summary: Summary, metric: str, budget: str) -> pd.DataFrame | None:
    """Tabulate the mean paired difference of every two methods, row minus column.

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
    text = f"{stat.mean:+.1f}" + ("" if math.isnan(stat.se) else f" ± {stat.se:.1f}")
    if decide(abs(stat.mean), stat.se) == HOLDS:
        text += " *"
    printed = [printed_average(summary, metric, name, budget) for name in (one, other)]
    if printed[0] is not None and printed[1] is not None and summary.protocol.comparable:
        text += f"\nprint {printed[0] - printed[1]:+.1f}"
    return text


def pair_blocks(summary: Summary) -> list[Block]:
    """Return one matrix of differences for each score and each label budget of the paper."""
    protocol = summary.protocol
    if protocol.kind == "figure":
        return []
    blocks: list[Block] = []
    for metric in (m for m in protocol.metrics if m in SCORES):
        for budget in summary.budgets():
            if any(b.name == budget and not b.printed for b in protocol.budgets):
                continue
            grid = pairs_grid(summary, metric, budget)
            if grid is not None:
                labels = f", labels: {budget}" if protocol.budgets else ""
                title = f"## {METRICS[metric]}{labels}: row minus column (* beyond two errors)"
                blocks += [title, grid]
    return blocks


def closeness_blocks(summary: Summary) -> list[Block]:
    """Tabulate the time of each rival divided by the time of the claimed method.

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
    """Format a ratio and its interval of two standard errors, computed from its logarithm."""
    ends = (math.exp(stat.mean + sign * 2 * stat.se) for sign in (-1, 1))
    return f"{math.exp(stat.mean):.2g} ({' to '.join(f'{end:.2g}' for end in ends)})"


def variants_grid(summaries: dict[str, Summary], metric: str, budget: str) -> pd.DataFrame | None:
    """Tabulate the averages by variant and method; None if the table has one variant.

    "as main" marks a column whose settings equal those of the main variant.
    """
    main, *rest = summaries.values()
    if not rest:
        return None
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
    """Return the largest number of runs at each number of clusters."""
    return f"{max((s.n / s.rows for s in stats if s), default=0):.3g}"


def _average(summary: Summary, metric: str, budget: str, method: str, stat: Stat | None) -> str:
    if stat is None:
        return NO_RUNS
    printed = printed_average(summary, metric, method, budget)
    far = summary.protocol.comparable and printed is not None and abs(stat.mean - printed) > NEAR
    return with_error(stat, metric) + (f" {FAR}" if far else "")


def _unchanged(main: Summary, variant: Summary, method: str) -> bool:
    """Return whether a variant runs a method with the settings of the main variant."""
    one, other = main.protocol, variant.protocol
    return one.data == other.data and one.method(method) == other.method(method)
