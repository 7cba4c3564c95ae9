"""A protocol's results as a section: printed | measured | difference, claims, notes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from partwise.papers.cells import NO_LABELS
from partwise.papers.check import average_mismatches, listed_slips
from partwise.papers.claims import Verdict, judge
from partwise.papers.document import Grid, Section, Text
from partwise.papers.protocol import Method, Printed, Protocol
from partwise.papers.summary import Stat, Summary

METRICS = {
    "ac": "Accuracy (%)",
    "nmi": "Normalised mutual information (%)",
    "ari": "Adjusted Rand index (%)",
    "seconds": "Seconds of one fit",
    "sparseness_U": "Sparseness of the basis",
    "sparseness_V": "Sparseness of the representation",
    "distance": "Distance of the basis to the centres",
    "ac_best": "Accuracy, best of the sub-runs (%)",
    "nmi_best": "NMI, best of the sub-runs (%)",
}
FAR = 3.0  # points from print beyond which a difference is marked


@dataclass(frozen=True)
class Context:
    """What is said about a run beside its numbers."""

    skipped: dict[str, str]
    failed: dict[str, str]
    part: float = 1.0  # the share of the default protocol's cells that is there


def build(summary: Summary, context: Context) -> Section:
    """The section of a table, without its pictures.

    Parameters
    ----------
    summary : Summary
        The measured numbers with their protocol.
    context : Context
        What was left out or failed.

    Returns
    -------
    Section
    """
    protocol = summary.protocol
    section = Section(f"{protocol.name}: {protocol.title}", protocol.name)
    add = section.blocks.append
    add(f"{protocol.paper}.")
    add(_status(summary, context))
    if not protocol.comparable:
        add("Not comparable with the printed numbers: other data than the paper's (see the notes).")
    for metric in protocol.metrics:
        for budget in summary.budgets():
            for grid_title, grid in _grids(summary, metric, budget):
                add(f"## {grid_title}")
                add(grid)
    _add_choices(summary, section)
    verdicts = judge(summary)
    if verdicts:
        add("## Claims")
        add(_claims(verdicts))
    if protocol.notes or any(b.note for b in protocol.budgets):
        add("## Notes")
        data_notes = [f"{d.name}: {d.note}." for d in protocol.data if d.note]
        budgets = [f"Label budget {b.name}: {b.note}." for b in protocol.budgets if b.note]
        columns = [f"{m.name}: {m.note}." for m in protocol.methods if m.note]
        add([*protocol.notes, *data_notes, *budgets, *columns])
    if protocol.comparable and protocol.kind != "figure":
        section.averages += _against_print(summary)
    slips = slip_sentences(protocol)
    if slips:
        add("## Slips in print")
        add(slips)
    return section


def slip_sentences(protocol: Protocol) -> list[str]:
    """The slips that the protocol lists, and any other average that its column does not give."""
    known = listed_slips(protocol)
    found = [str(m) for m in average_mismatches(protocol) if (m.metric, m.method) not in known]
    return [slip["text"] for slip in protocol.slips] + found


def _status(summary: Summary, context: Context) -> str:
    protocol = summary.protocol
    runs = sorted({(r["cell"]["data"], r["cell"]["k"], r["cell"]["run"]) for r in summary.results})
    per_row: dict[tuple[str, int], int] = {}
    for data, k, _ in runs:
        per_row[data, k] = per_row.get((data, k), 0) + 1
    counts = sorted(set(per_row.values()))
    words = " to ".join(str(c) for c in ([counts[0], counts[-1]] if len(counts) > 1 else counts))
    text = f"Measured with {words or 'no'} run{'s' if words != '1' else ''} a row"
    if protocol.runs_printed:
        text += f" (print: {protocol.runs_printed})"
    text += ", equal subsets, shown labels and starts for all methods."
    if context.part < 1.0:
        text += f" This is {context.part:.0%} of the default protocol's cells."
    for name, reason in context.skipped.items():
        text += f" {name} was not run: {reason}."
    if context.failed:
        first = next(iter(context.failed.values()))
        text += f" {len(context.failed)} runs failed, the first with: {first}."
    return text


def _grids(summary: Summary, metric: str, budget: str) -> list[tuple[str, Grid]]:
    protocol = summary.protocol
    label = METRICS.get(metric, metric)
    if budget != NO_LABELS:
        label += f", labels: {budget}{_whose(protocol, budget)}"
    grids = [(f"{label}: averages", _averages(summary, metric, budget))]
    columns = _columns(protocol)
    if metric == "seconds":
        return grids
    if not protocol.printed:
        return [(label, _by_row(summary, metric, budget, columns))]
    full = _full(summary, metric, budget, columns)
    return [*grids, (f"{label}: printed, measured ± sd, difference", full)]


def _whose(protocol: Protocol, budget: str) -> str:
    """What to say of a budget that is not the printed one; print stands beside it all the same."""
    printed = [b.name for b in protocol.budgets if b.printed]
    return "" if budget in printed else f" (ours; print says {printed[0]})" if printed else ""


def _by_row(summary: Summary, metric: str, budget: str, columns: list[tuple[str, Method]]) -> Grid:
    """Where nothing is printed: a line for each method, a column for each (data, K)."""
    scope = summary.protocol.view.get("score", "all")
    rows = summary.rows()
    lines = []
    for name, method in columns:
        line = [Text.of(name + _mark(method))]
        for data, k in rows:
            stat = summary.stat(name, metric, budget=budget, scope=scope, data=data, k=k)
            line.append(Text.of(_stat(stat, metric)))
        line.append(Text.of(_stat(summary.stat(name, metric, budget=budget, scope=scope), metric)))
        if scope == "all" and summary.protocol.budgets:
            hidden = summary.stat(name, metric, budget=budget, scope="unlabelled")
            line.append(Text.of(_number(hidden.mean, metric) if hidden else ""))
        lines.append(line)
    header = ["method", *(f"{data}, K = {k}" for data, k in rows), "average"]
    if scope == "all" and summary.protocol.budgets:
        header.append("average on unlabelled")
    return Grid(header, lines)


def _columns(protocol: Protocol) -> list[tuple[str, Method]]:
    """Column names with their methods; a sweep has one column for each value."""
    columns = []
    for method in protocol.methods:
        if method.sweep:
            columns += [(v.name, method) for v in method.variants()]
        else:
            columns.append((method.name, method))
    return columns


def _mark(method: Method) -> str:
    return "†" if method.chosen_on_answer else ""


def _averages(summary: Summary, metric: str, budget: str) -> Grid:
    protocol = summary.protocol
    scope = protocol.view.get("score", "all")
    near = f"within {FAR:g} points"
    header = ["method", "printed", "measured", "difference", near, "on unlabelled", "runs"]
    rows = []
    for name, method in _columns(protocol):
        whole = _printed_average(summary, metric, name)
        stat = summary.stat(name, metric, budget=budget, scope=scope)
        hidden = summary.stat(name, metric, budget=budget, scope="unlabelled")
        row = [
            Text.of(name + _mark(method) + (" (printed only)" if method.printed_only else "")),
            Text.of(_number(whole[0], metric) if whole else ""),
            Text.of(_stat(stat, metric)),
            _difference(whole[0] if whole else None, stat, metric, protocol.comparable),
            _near(whole[0] if whole else None, stat, metric, protocol.comparable),
            Text.of(_number(hidden.mean, metric) if hidden else ""),
            Text.of(str(stat.n) if stat else ""),
        ]
        rows.append(row)
    return Grid(header, rows)


def _printed_average(summary: Summary, metric: str, method: str) -> tuple[float, int] | None:
    """The printed mean over the rows that were run, with their number.

    Over all rows this is the printed average up to rounding; over some (a quick pass) the printed
    average would not be the right thing to compare with.
    """
    protocol = summary.protocol
    if metric == "seconds":
        cell = protocol.printed_value("seconds", "avg", method)
        return (cell.mean, 1) if cell else None
    rows = {k for _, k in summary.rows()} or {int(c.k) for c in protocol.printed if c.k != "avg"}
    cells = [protocol.printed_value(metric, k, method) for k in rows]
    values = [c.mean for c in cells if c is not None]
    return (sum(values) / len(values), len(values)) if values else None


def _full(
    summary: Summary,
    metric: str,
    budget: str,
    columns: list[tuple[str, Method]],
) -> Grid:
    protocol = summary.protocol
    scope = protocol.view.get("score", "all")
    several = len(protocol.data) > 1
    measured = summary.rows()
    printed_rows = [
        (protocol.data[0].name, int(k))
        for k in dict.fromkeys(c.k for c in protocol.printed if c.metric == metric)
        if k != "avg"
    ]
    rows = []
    for data, k in sorted(set(printed_rows) | set(measured), key=lambda r: (r[0], r[1])):
        row = [Text.of(f"{data} {k}" if several else str(k))]
        for name, _ in columns:
            cell = protocol.printed_value(metric, k, name)
            stat = summary.stat(name, metric, budget=budget, scope=scope, data=data, k=k)
            row.append(_three(cell, stat, metric, protocol.comparable))
        rows.append(row)
    row = [Text.of("Avg.")]
    for name, _ in columns:
        cell = protocol.printed_value(metric, "avg", name)
        partial = set(printed_rows) - set(measured)
        stat = None if partial else summary.stat(name, metric, budget=budget, scope=scope)
        row.append(_three(cell, stat, metric, protocol.comparable))
    header = ["K", *(name + _mark(method) for name, method in columns)]
    return Grid(header, [*rows, row], last=True)


def _three(cell: Printed | None, stat: Stat | None, metric: str, comparable: bool) -> Text:
    printed = ""
    if cell is not None:
        printed = f"{cell.mean:.{cell.decimals}f}"
        printed += "" if cell.sd is None else f" ± {cell.sd:g}"
    lines = [(printed or "–", "quiet"), (_stat(stat, metric) or "–", "")]
    lines += _difference(cell.mean if cell else None, stat, metric, comparable).lines
    return Text(tuple(lines))


def _number(value: float, metric: str) -> str:
    if metric.startswith("sparseness"):
        return f"{value:.3f}"
    return f"{value:.3g}" if metric in ("seconds", "distance") else f"{value:.1f}"


def _stat(stat: Stat | None, metric: str) -> str:
    if stat is None:
        return ""
    text = _number(stat.mean, metric)
    return text if math.isnan(stat.sd) else f"{text} ± {_number(stat.sd, metric)}"


def _difference(printed: float | None, stat: Stat | None, metric: str, comparable: bool) -> Text:
    if printed is None or stat is None:
        return Text.of("")
    gap = stat.mean - printed
    if metric == "seconds":
        return Text.of(f"x {stat.mean / printed:.2g}" if printed else "")
    if not comparable:
        return Text.of(f"({gap:+.1f})", "quiet")
    return Text.of(f"{gap:+.1f} ▲", "far") if abs(gap) > FAR else Text.of(f"{gap:+.1f}")


def _near(printed: float | None, stat: Stat | None, metric: str, comparable: bool) -> Text:
    """Whether an average came back; empty where print is of other data, or of another machine."""
    if printed is None or stat is None or not comparable or metric == "seconds":
        return Text.of("")
    return Text.of("yes", "yes") if abs(stat.mean - printed) <= FAR else Text.of("no", "no")


def _against_print(summary: Summary) -> Iterator[list[Text]]:
    """A table's averages, one line each, for the page of all."""
    protocol = summary.protocol
    first = summary.budgets()[0]
    for metric in (m for m in protocol.metrics if m != "seconds"):
        for budget in summary.budgets():
            for name, method in _columns(protocol):
                whole = _printed_average(summary, metric, name)
                stat = summary.stat(name, metric, budget=budget)
                # A method without labels has the same runs under every budget.
                if whole is None or stat is None or not (method.labels or budget == first):
                    continue
                labels = budget + _whose(protocol, budget) if method.labels else ""
                words = (protocol.name, METRICS.get(metric, metric), name + _mark(method), labels)
                yield [
                    *(Text.of(text) for text in words),
                    Text.of(_number(whole[0], metric)),
                    Text.of(_number(stat.mean, metric)),
                    _difference(whole[0], stat, metric, True),
                    _near(whole[0], stat, metric, True),
                ]


def overview(sections: list[Section]) -> Section:
    """Every average on the papers' own data in one table."""
    rows = [row for section in sections for row in section.averages]
    near = sum(row[-1].lines[0][0] == "yes" for row in rows)
    text = (
        f"{near} of {len(rows)} averages are within {FAR:g} points of print, on the papers' own "
        "data and over the cluster numbers that were run. The notes of a table say what was tried "
        "where one is not. † marks parameters chosen on the answer, as in the paper."
    )
    header = ["table", "metric", "method", "labels", "printed", "measured", "difference"]
    grid = Grid([*header, f"within {FAR:g} points"], rows)
    return Section("Averages against print", "averages", [text, grid])


def _add_choices(summary: Summary, section: Section) -> None:
    lines = []
    for (method, budget), choice in sorted(summary.chosen.items()):
        tried = ", ".join(f"{name} {value}" for name, value in choice["accuracies"].items())
        where = "" if budget == NO_LABELS else f" ({budget})"
        lines.append(
            f"† {method}{where}: {choice['setting']} was chosen on the answer, as in the paper, "
            f"by mean accuracy over all rows: {tried}."
        )
    if lines:
        section.blocks.append(lines)


def _claims(verdicts: list[Verdict]) -> Grid:
    def holds(value: bool | None) -> Text:
        if value is None:
            return Text.of("–", "quiet")
        return Text.of("holds", "yes") if value else Text.of("does not hold", "no")

    several = len({v.budget for v in verdicts}) > 1
    rows = []
    for v in verdicts:
        text = v.text + (f" [labels: {v.budget}]" if several and v.budget != NO_LABELS else "")
        test = "" if v.p is None else f"{v.test}, p = {v.p:.2g}"
        rows.append(
            [Text.of(text), holds(v.printed), holds(v.measured), Text.of(v.detail), Text.of(test)]
        )
    return Grid(["claim", "in print", "measured", "how", "paired test"], rows)
