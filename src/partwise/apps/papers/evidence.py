"""Findings about print itself, computed from the printed numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from partwise.apps.papers.document import Block, Grid, Row, Text
from partwise.apps.papers.printed import SHORT, with_error
from partwise.apps.papers.protocol import Budget, DataSpec, Protocol, load_protocol
from partwise.apps.papers.representations import FitTask, fit_estimator
from partwise.apps.papers.sampling import data_found, draw
from partwise.apps.papers.summary import Summary

Summaries = dict[str, Summary]  # by reading
LEAST_PAIRS = 10  # measured averages below which no line is drawn through them
ROUNDING = 1e-9  # of the largest entry, after some hundred iterations in float64


def evidence(protocol: Protocol, summaries: dict[str, Summary]) -> list[Block]:
    """What the protocol's ``evidence`` names, as blocks with a heading each."""
    blocks: list[Block] = []
    for entry in protocol.evidence:
        blocks += [f"## {entry['title']}", *RULES[entry["type"]](protocol, summaries, entry)]
    return blocks


def single_clustering_values(sizes: tuple[int, int]) -> dict[float, str]:
    """Every adjusted Rand index (in per cent, two decimals) of two clusters on two classes.

    ``a`` samples of the first class and ``b`` of the second lie in the first cluster; the value is
    kept with the least number of errors that gives it.
    """
    from partwise.evaluation.metrics import adjusted_rand

    truth = np.repeat([0, 1], sizes)
    values: dict[float, tuple[int, str]] = {}
    for a in range(sizes[0] + 1):
        for b in range(sizes[1] + 1):
            found = np.concatenate([np.arange(sizes[0]) >= a, np.arange(sizes[1]) >= b])
            wrong = min(sizes[0] - a + b, a + sizes[1] - b)
            value = round(100.0 * float(adjusted_rand(truth, found.astype(int))), 2) + 0.0
            words = f"{wrong} error{'s' if wrong != 1 else ''}"
            if value not in values or wrong < values[value][0]:
                values[value] = (wrong, words)
    return {value: words for value, (_, words) in values.items()}


def _ari_of_one_clustering(protocol: Protocol, summaries: Summaries, entry: Any) -> list[Block]:
    """Which printed averages are values that one clustering of all samples can have."""
    sizes = tuple(entry["sizes"])
    possible = single_clustering_values(sizes)
    cells = [c for c in protocol.printed if c.metric == "ari" and c.k == entry["k"]]
    one = {c.mean: Text.of(possible[c.mean], "no") for c in cells if c.mean in possible}
    none = Text.of("none", "quiet")
    rows: list[Row] = [[c.method, f"{c.mean:.2f}", one.get(c.mean, none)] for c in cells]
    hits = sum(c.mean in possible for c in cells)
    low, high = min(c.mean for c in cells) - 5, max(c.mean for c in cells) + 5
    inside = [v for v in possible if low <= v <= high]
    chance = len(inside) / (100 * (high - low))  # a number of two decimals in that range
    text = (
        f"One clustering of {sum(sizes)} samples in two classes can have {len(possible)} values "
        f"of the index; {hits} of the {len(cells)} printed averages are among them to the last "
        f"digit. {len(inside)} of the values lie between {low:.0f} and {high:.0f}, so a number of "
        f"two decimals drawn there is one of them with chance {100 * chance:.2g} %. Averages of "
        "ten unequal runs would rarely be; single clusterings, or ten equal ones, always are."
    )
    return [text, Grid(["column", "printed ARI", "one clustering with"], rows)]


def _equal_columns(protocol: Protocol, summaries: Summaries, entry: Any) -> list[Block]:
    """In how many rows pairs of printed columns are the same number."""
    rows: list[Row] = []
    metric = protocol.metrics[0]
    values = {
        m.name: {c.k: c.mean for c in protocol.printed if (c.method, c.metric) == (m.name, metric)}
        for m in protocol.methods
    }
    for one, two in combinations(values, 2):
        same = [k for k in values[one] if k != "avg" and values[one][k] == values[two].get(k)]
        if len(same) >= entry.get("least", 2):
            total = len([k for k in values[one] if k != "avg"])
            rows.append([f"{one} = {two}", f"{len(same)} of {total}", ", ".join(same)])
    return [Grid(["columns", "equal cells", "at"], rows)]


def _script(protocol: Protocol, summaries: Summaries, entry: Any) -> list[Block]:
    """What the authors' own script reports on the whole set, beside print and ours."""
    rows: list[Row] = []
    for method, value in entry["values"].items():
        printed = protocol.printed_value("nmi", entry["k"], method)
        summary = summaries.get(entry["reading"])
        stat = summary.stat(method, "nmi", k=entry["k"]) if summary else None
        theirs = f"{printed.mean:.1f}" if printed else ""
        rows.append([method, f"{value:.1f}", theirs, with_error(stat, "nmi")])
    return [entry["text"], Grid(["method", "script's comment", "printed", "ours ± se"], rows)]


def identities(protocol: Protocol) -> frozenset[str]:
    """The methods that are another one with one label a class, to rounding, as computed now."""
    own = load_protocol(protocol.runs_of).evidence if protocol.runs_of else protocol.evidence
    listed = [e for e in own if e["type"] == "identity"]
    return frozenset(e["method"] for e in listed if _two_fits(protocol, e)[0] <= ROUNDING)


def _two_fits(protocol: Protocol, entry: Any) -> tuple[float, str, list[tuple[str, Any]]]:
    """Two methods from one start with one label a class: how far their representations are."""
    method = protocol.method(entry["method"])
    label = Budget("1 per class", per_class=1)
    spec = protocol.data[0] if data_found(protocol.data[0], None) else DataSpec("digits")
    sample = draw(protocol.name, spec, 3, 0)
    fits = []
    for name, estimator in ((entry["method"], method.estimator), (entry["plain"], entry["as"])):
        shared = replace(method, start="shared", unit_basis=False)
        params = {**method.params, **entry.get("params", {})}
        if name == entry["plain"]:
            params = {key: v for key, v in params.items() if key in entry["settings"]}
        y = sample.shown(label) if name == entry["method"] else None
        fits.append((name, fit_estimator(FitTask(sample, y, 3, shared, params), estimator, params)))
    one, two = (np.asarray(fitted.embedding) for _, fitted in fits)
    return float(np.abs(one - two).max() / np.abs(two).max()), spec.name, fits


def _identity(protocol: Protocol, summaries: Summaries, entry: Any) -> list[Block]:
    gap, data, fits = _two_fits(protocol, entry)
    grid = Grid(["method", "objective"], [[n, f"{f.objective:.12g}"] for n, f in fits])
    text = (
        f"{fits[0][0]} with one label a class and {fits[1][0]}, from one start with one solver "
        f"on three classes of {data}: the largest difference of their representations is "
        f"{gap:.2g} of the largest entry. {entry['text']}"
    )
    return [text, grid]


def _pairs(protocol: Protocol, summaries: Summaries, entry: Any) -> list[Block]:
    """Printed averages of two metrics beside the line that measured pairs of them lie on."""
    first, second = entry["metrics"]
    pairs = np.array([pair for s in summaries.values() for pair in _measured_pairs(s, entry)])
    if len(pairs) < LEAST_PAIRS:
        return [f"Not enough was measured yet ({len(pairs)} averages)."]
    line = np.polyfit(pairs[:, 0], pairs[:, 1], 1)
    scatter = float(np.std(pairs[:, 1] - np.polyval(line, pairs[:, 0]), ddof=2))
    other = load_protocol(entry["with"])
    rows: list[Row] = []
    for method in protocol.methods:
        cells = (
            other.printed_value(first, "avg", method.name),
            protocol.printed_value(second, "avg", method.name),
        )
        if cells[0] is None or cells[1] is None:
            continue
        expected = float(np.polyval(line, cells[0].mean))
        off = cells[1].mean - expected
        numbers = [f"{v:.1f}" for v in (cells[0].mean, cells[1].mean, expected)]
        far = Text.of(f"{off:+.1f}", "no" if abs(off) > 3 * scatter else "")
        rows.append([method.name, *numbers, far])
    short = [SHORT.get(m, m) for m in entry["metrics"]]
    text = (
        f"{len(pairs)} averages that we measured (every column, reading and number of labels) lie "
        f"on a line of {short[1]} against {short[0]}, with a deviation of {scatter:.1f} points. "
        f"Both numbers of one set of runs should. {entry['text']}"
    )
    header = ["column", f"printed {short[0]}", f"printed {short[1]}", f"{short[1]} by the line"]
    return [text, Grid([*header, "printed less line"], rows)]


def _measured_pairs(summary: Summary, entry: Any) -> list[tuple[float, float]]:
    """Averages of two metrics of the same runs, for every column and label budget."""
    found = []
    for method in summary.protocol.runnable():
        for budget in summary.budgets() if method.labels else summary.budgets()[:1]:
            both = [summary.stat(method.name, m, budget=budget) for m in entry["metrics"]]
            if both[0] is not None and both[1] is not None:
                found.append((both[0].mean, both[1].mean))
    return found


RULES: dict[str, Callable[[Protocol, Summaries, Any], list[Block]]] = {
    "ari_of_one_clustering": _ari_of_one_clustering,
    "equal_columns": _equal_columns,
    "pairs": _pairs,
    "script": _script,
    "identity": _identity,
}
