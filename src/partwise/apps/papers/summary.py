"""From single runs to the numbers of a table: means, deviations, pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partwise.apps.papers.protocol import ComparedMethod, Protocol
from partwise.apps.papers.scores import chosen_readout
from partwise.apps.papers.trials import NO_LABELS, lowest

Point = tuple[str, int, int]  # data, K, run: what two methods share in a pair


@dataclass(frozen=True)
class Stat:
    """A mean over runs, in per cent where the metric is.

    ``sd`` is the deviation of single runs, ``se`` the standard error of the mean; both are nan
    where a row has one run only.
    """

    mean: float
    sd: float
    n: int
    se: float = float("nan")
    rows: int = 1  # of which the mean is taken


@dataclass
class Summary:
    """The results of one protocol, looked up by column, row and metric.

    ``values[(scope, metric)][(column, budget)][point]`` is one number, where the scope is "all"
    or "unlabelled" and a column is a method's or a variant's name.
    """

    protocol: Protocol
    results: list[dict[str, Any]]
    values: dict[tuple[str, str], dict[tuple[str, str], dict[Point, float]]] = field(
        default_factory=dict
    )
    chosen: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def column(
        self, method: str, metric: str, budget: str = NO_LABELS, scope: str = "all"
    ) -> dict[Point, float]:
        """All runs of a column; a method without labels has one column for all budgets."""
        table = self.values.get((scope, metric), {})
        return table.get((method, budget)) or table.get((method, NO_LABELS)) or {}

    def stat(
        self,
        method: str,
        metric: str,
        *,
        budget: str = NO_LABELS,
        scope: str = "all",
        data: str | None = None,
        k: int | None = None,
    ) -> Stat | None:
        """Mean and deviation over runs at one K; over the K's means where k is None.

        The deviation of an average row is the mean of the deviations, as CNMF and LCF print it;
        its standard error is that of a mean of independent means.
        """
        rows: dict[tuple[str, int], list[float]] = defaultdict(list)
        for (d, kk, _), value in self.column(method, metric, budget, scope).items():
            if (data is None or d == data) and (k is None or kk == k):
                rows[d, kk].append(value)
        if not rows:
            return None
        return _over_rows(list(rows.values()))

    def rows(self) -> list[tuple[str, int]]:
        """The (data, K) that have results, in the protocol's order."""
        seen = {(r["cell"]["data"], r["cell"]["k"]) for r in self.results}
        order = {d.name: i for i, d in enumerate(self.protocol.data)}
        return sorted(seen, key=lambda row: (order.get(row[0], 99), row[1]))

    def budgets(self) -> list[str]:
        """The label budgets of the protocol; one nameless where it has none."""
        return [b.name for b in self.protocol.budgets] or [NO_LABELS]


def summarise(protocol: Protocol, results: Iterable[dict[str, Any]]) -> Summary:
    """Gather results into columns, and choose within grids as the paper did."""
    summary = Summary(protocol, list(results))
    known = {m.name: m for m in protocol.methods}
    for result in summary.results:
        cell = result["cell"]
        if cell["method"] not in known:
            continue
        point = (cell["data"], cell["k"], cell["run"])
        scored = pick(result, known[cell["method"]])
        others = {**result["shapes"], "seconds": result["seconds"]}
        found = [("all", cell["budget_name"], scored["all"] | others)]
        found += [("unlabelled", budget, own) for budget, own in scored["unlabelled"].items()]
        for scope, budget, metrics in found:
            for metric, value in metrics.items():
                table = summary.values.setdefault((scope, metric), {})
                table.setdefault((cell["variant"], budget), {})[point] = float(value)
    for method in protocol.methods:
        if method.grid:
            _choose(summary, method)
    return summary


def pick(result: dict[str, Any], method: ComparedMethod) -> dict[str, Any]:
    """A result's scores by the method's readout and its rule for sub-runs."""
    attempts = result["attempts"]
    name = chosen_readout(method.readout, attempts[0]["readouts"])
    scored = [attempt["readouts"][name] for attempt in attempts]
    if len(scored) == 1 or method.subrun_choice == "objective":
        return dict(scored[lowest(attempts)])
    # Each score's own best: "the best result", whichever sub-run it comes from.
    join = np.max if method.subrun_choice == "score" else np.mean
    unlabelled = {
        b: _join([s["unlabelled"][b] for s in scored], join) for b in scored[0]["unlabelled"]
    }
    return {"all": _join([s["all"] for s in scored], join), "unlabelled": unlabelled}


def _join(scores: list[dict[str, float]], join: Callable[..., Any]) -> dict[str, float]:
    return {name: float(join([s[name] for s in scores])) for name in scores[0]}


def _choose(summary: Summary, method: ComparedMethod) -> None:
    """Take the grid setting with the best mean accuracy: chosen on the answer, and marked so."""
    variants = {v.name: v.setting for v in method.variants()}
    table = summary.values.get(("all", "ac"), {})
    budgets = {budget for name, budget in table if name in variants}
    for budget in budgets:
        stats = {name: summary.stat(name, "ac", budget=budget) for name in variants}
        present = {name: s.mean for name, s in stats.items() if s is not None}
        if not present:
            continue
        best = max(present, key=lambda name: present[name])
        summary.chosen[method.name, budget] = {
            "setting": variants[best],
            "accuracies": {name: round(value, 2) for name, value in present.items()},
        }
        for columns in summary.values.values():
            for (name, b), points in list(columns.items()):
                if name == best and (b == budget or budget == NO_LABELS):
                    columns[method.name, b] = points


def paired_stat(a: dict[Point, float], b: dict[Point, float]) -> Stat | None:
    """The mean of a - b over rows, with its standard error, over the runs that both have."""
    rows: dict[tuple[str, int], list[float]] = defaultdict(list)
    for point in set(a) & set(b):
        rows[point[:2]].append(a[point] - b[point])
    return _over_rows(list(rows.values())) if rows else None


def _over_rows(rows: list[list[float]]) -> Stat:
    """Mean of the rows' means; the error is that of a mean of independent means.

    A row of one run has no deviation; where others have one, their mean square stands for it.
    """
    means = [float(np.mean(v)) for v in rows]
    spread = [float(np.std(v, ddof=1)) for v in rows if len(v) > 1]
    if not spread:
        return Stat(float(np.mean(means)), float("nan"), len(means), rows=len(rows))
    pooled = float(np.sqrt(np.mean(np.square(spread))))
    sds = [float(np.std(v, ddof=1)) if len(v) > 1 else pooled for v in rows]
    errors = [sd**2 / len(v) for sd, v in zip(sds, rows, strict=True)]
    se = float(np.sqrt(sum(errors)) / len(rows))
    return Stat(float(np.mean(means)), float(np.mean(spread)), sum(map(len, rows)), se, len(rows))


def paired(a: dict[Point, float], b: dict[Point, float]) -> np.ndarray:
    """Differences a - b over the runs that both have."""
    shared = sorted(set(a) & set(b))
    return np.array([a[point] - b[point] for point in shared])


def paired_test(differences: np.ndarray) -> tuple[str, float]:
    """Wilcoxon's signed-rank test (two-sided), or the sign test where few runs differ, and its p.

    p is 1 where no run differs.
    """
    from scipy import stats

    moved = differences[differences != 0]
    if len(moved) == 0:
        return "no difference", 1.0
    if len(moved) < 6:  # below six, Wilcoxon's smallest p is above 0.05 anyway
        wins = int(np.sum(moved > 0))
        return "sign", float(stats.binomtest(wins, len(moved)).pvalue)
    return "Wilcoxon", float(stats.wilcoxon(moved).pvalue)
