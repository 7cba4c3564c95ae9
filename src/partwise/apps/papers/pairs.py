"""Methods compared in pairs, and the variants of a table beside one another."""

from __future__ import annotations

from partwise.apps.papers.claims import HOLDS, decide
from partwise.apps.papers.document import Block, Grid, Row, Text
from partwise.apps.papers.printed import METRICS, NO_RUNS, mark, near, number, with_error
from partwise.apps.papers.printed import printed_average as average
from partwise.apps.papers.summary import Stat, Summary, paired_stat

SCORES = ("ac", "nmi", "ari", "accuracy")


def pairs_grid(summary: Summary, metric: str, budget: str) -> Grid | None:
    """The mean paired difference of each method (line) minus each other one (column).

    Two methods of a run see the same samples, labels and start, so the difference is taken run by
    run; its standard error is that of a mean over the rows of the table. The second line of a cell
    is the difference of the printed averages over the same rows. None with fewer than two methods.
    """
    columns = {m.name: summary.column(m.name, metric, budget) for m in summary.protocol.methods}
    ran = [name for name, column in columns.items() if column]
    if len(ran) < 2:
        return None
    rows: list[Row] = []
    for one in ran[:-1]:
        cells: list[Text] = []
        for other in ran[1:]:
            stat = paired_stat(columns[one], columns[other])
            behind = ran.index(other) <= ran.index(one)
            cells.append(
                Text.of("")
                if behind or stat is None
                else _pair(summary, metric, budget, one, other, stat)
            )
        rows.append([one, *cells])
    return Grid(["minus", *ran[1:]], rows)


def _pair(summary: Summary, metric: str, budget: str, one: str, other: str, stat: Stat) -> Text:
    state = decide(abs(stat.mean), stat.se)
    words = f"{stat.mean:+.1f} ± {stat.se:.1f}" if stat.se == stat.se else f"{stat.mean:+.1f}"
    lines = [(words, "yes" if state == HOLDS else "maybe")]
    printed = [average(summary, metric, name, budget) for name in (one, other)]
    if printed[0] is not None and printed[1] is not None and summary.protocol.comparable:
        lines.append((f"print {printed[0] - printed[1]:+.1f}", "quiet"))
    return Text(tuple(lines))


def pair_blocks(summary: Summary) -> list[Block]:
    """The matrices of a table for each score, under the label budgets that print states."""
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
                blocks += [f"## {METRICS[metric]}{labels}: line minus column", grid]
    return blocks


def variants_grid(summaries: dict[str, Summary], metric: str, budget: str) -> Grid | None:
    """A line for each variant, a column for each method; None where the table has one variant.

    "as main" is a column that the variant leaves as it is in the main protocol.
    """
    main, *rest = summaries.values()
    if not rest:
        return None
    methods = [m for m in main.protocol.methods if not m.printed_only]
    printed = (average(main, metric, m.name, budget) for m in methods)
    rows: list[Row] = [
        ["print", *("" if v is None else number(v, metric) for v in printed), "", ""]
    ]
    for variant, summary in summaries.items():
        same = {
            m.name for m in methods if summary is not main and _unchanged(main, summary, m.name)
        }
        stats = {m.name: summary.stat(m.name, metric, budget=budget) for m in methods}
        cells = [
            Text.of("as main", "quiet")
            if m.name in same
            else _cell(summary, metric, budget, m.name)
            for m in methods
        ]
        own = [stat.n / stat.rows for m, stat in stats.items() if stat and m not in same]
        label = f"{variant} (main)" if summary is main else variant
        counts = "no: contradicts print" if summary.protocol.reading.contradicts else ""
        rows.append([label, *cells, f"{max(own, default=0):.3g}", Text.of(counts, "quiet")])
    return Grid(["variant", *(m.name + mark(m) for m in methods), "runs", "counts"], rows)


def _cell(summary: Summary, metric: str, budget: str, method: str) -> Text:
    stat = summary.stat(method, metric, budget=budget)
    if stat is None:
        return Text.of(NO_RUNS, "quiet")
    printed = average(summary, metric, method, budget)
    far = near(printed, stat, metric, summary.protocol.comparable).lines[0][1] == "no"
    return Text.of(with_error(stat, metric) + (" ▲" if far else ""), "far" if far else "")


def _unchanged(main: Summary, variant: Summary, method: str) -> bool:
    """Whether a variant runs a column as the main protocol does."""
    one, other = main.protocol, variant.protocol
    return one.data == other.data and one.method(method) == other.method(method)
