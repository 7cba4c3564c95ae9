"""Means, standard errors and paired differences over the runs of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from partwise.apps.papers.protocol import Method, Protocol
from partwise.apps.papers.scores import chosen_readout
from partwise.apps.papers.trials import NO_LABELS, lowest

POINT = ["data", "k", "run"]  # all methods have the same samples and labels in a run
KEY = ["scope", "metric", "column", "budget"]
NOTHING = pd.Series(index=pd.MultiIndex.from_arrays([[], [], []], names=POINT), dtype=np.float64)


@dataclass(frozen=True)
class Stat:
    """A mean over the rows of a table, each of which has several runs.

    ``sd`` is the standard deviation of single runs, ``se`` is the standard error of the mean, and
    ``n`` is the number of runs. ``sd`` and ``se`` are NaN if every row has only one run.
    """

    mean: float
    sd: float
    n: int
    se: float = float("nan")
    rows: int = 1


@dataclass
class Summary:
    """All results of a table, with its settings (``protocol``).

    ``values[scope, metric, column, budget]`` is a series over (data, K, run). The scope is "all" or
    "unlabelled", and a column is a method, with its parameter values if several are tried.
    """

    protocol: Protocol
    results: list[dict[str, Any]]
    values: dict[tuple[str, str, str, str], pd.Series] = field(default_factory=dict)
    chosen: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def column(
        self, name: str, metric: str, budget: str = NO_LABELS, scope: str = "all"
    ) -> pd.Series:
        """Return the scores of all runs of a method.

        A method without labels has the same runs for every number of labels (``budget``).
        """
        keys = ((scope, metric, name, b) for b in (budget, NO_LABELS))
        return next((self.values[key] for key in keys if key in self.values), NOTHING)

    def stat(
        self,
        name: str,
        metric: str,
        *,
        budget: str = NO_LABELS,
        scope: str = "all",
        data: str | None = None,
        k: int | None = None,
    ) -> Stat | None:
        """Return the mean score of a method, over all rows or those of a data set or K."""
        runs = self.column(name, metric, budget, scope)
        if data is not None:
            runs = runs[runs.index.get_level_values("data") == data]
        if k is not None:
            runs = runs[runs.index.get_level_values("k") == k]
        return over_rows(runs)

    def rows(self) -> list[tuple[str, int]]:
        """Return the pairs of data set and number of clusters K that have results."""
        seen = {(r["cell"]["data"], r["cell"]["k"]) for r in self.results}
        order = {d.name: i for i, d in enumerate(self.protocol.data)}
        return sorted(seen, key=lambda row: (order.get(row[0], 99), row[1]))

    def sets(self) -> list[str]:
        """Return the data sets that have results, in the order of the settings."""
        return list(dict.fromkeys(data for data, _ in self.rows()))

    def budgets(self) -> list[str]:
        """Return the names of the label budgets, or `NO_LABELS` if there are none."""
        return [b.name for b in self.protocol.budgets] or [NO_LABELS]


def summarise(protocol: Protocol, results: Iterable[dict[str, Any]]) -> Summary:
    """Return the results of single runs by method.

    If a method was run with a grid of parameters, the best ones are chosen (see `_choose`).
    """
    summary = Summary(protocol, list(results))
    known = {m.name: m for m in protocol.methods}
    kept = [r for r in summary.results if r["cell"]["method"] in known]
    records = [record for r in kept for record in _records(r, known[r["cell"]["method"]])]
    if records:
        frame = pd.DataFrame(records, columns=[*KEY, *POINT, "value"]).set_index(POINT)
        groups = frame.groupby(KEY, sort=False)["value"]
        summary.values = dict(iter(groups))
    for method in protocol.methods:
        if method.grid:
            _choose(summary, method)
    return summary


def _records(result: dict[str, Any], method: Method) -> Iterator[tuple[Any, ...]]:
    """Yield (scope, metric, column, budget, data, K, run, value) of one result."""
    cell, scored = result["cell"], pick(result, method)
    others = {**result["shapes"], "seconds": result["seconds"]}
    found = [("all", cell["budget_name"], scored["all"] | others)]
    found += [("unlabelled", budget, own) for budget, own in scored["unlabelled"].items()]
    for scope, budget, metrics in found:
        for metric, value in metrics.items():
            yield scope, metric, cell["column"], budget, *(cell[p] for p in POINT), float(value)


def pick(result: dict[str, Any], method: Method) -> dict[str, Any]:
    """Return the scores of a run, for the method's way of clustering and sub-runs."""
    attempts = result["attempts"]
    name = chosen_readout(method.readout, attempts[0]["readouts"])
    scored = [attempt["readouts"][name] for attempt in attempts]
    if len(scored) == 1 or method.subrun_choice == "objective":
        return dict(scored[lowest(attempts)])
    # The paper reports the best result by each score, so the sub-run may differ by score.
    join = "max" if method.subrun_choice == "score" else "mean"

    def joined(scores: list[dict[str, float]]) -> dict[str, float]:
        return dict(pd.DataFrame(scores).agg(join))

    budgets = scored[0]["unlabelled"]
    hidden = {budget: joined([s["unlabelled"][budget] for s in scored]) for budget in budgets}
    return {"all": joined([s["all"] for s in scored]), "unlabelled": hidden}


def _choose(summary: Summary, method: Method) -> None:
    """Choose the parameters with the best mean accuracy, as the paper does.

    Tables mark such columns, because the choice uses the true classes.
    """
    settings = {column.name: column.setting for column in method.columns()}
    budgets = {key[3] for key in summary.values if key[2] in settings and key[:2] == ("all", "ac")}
    for budget in budgets:
        stats = {name: summary.stat(name, "ac", budget=budget) for name in settings}
        means = {name: stat.mean for name, stat in stats.items() if stat}
        best = max(means, key=lambda name: means[name])
        summary.chosen[method.name, budget] = {
            "setting": settings[best],
            "accuracies": {name: round(value, 2) for name, value in means.items()},
        }
        for (scope, metric, name, b), runs in list(summary.values.items()):
            if name == best and budget in (b, NO_LABELS):
                summary.values[scope, metric, method.name, b] = runs


def over_rows(runs: pd.Series) -> Stat | None:
    """Return the mean of all rows' means, with its standard error.

    Runs that are NaN do not count. A row with one run has no standard deviation, so the root mean
    square of the other rows is used. Return None if there are no runs.
    """
    runs = runs.dropna()
    if runs.empty:
        return None
    rows = runs.groupby(level=["data", "k"]).agg(["mean", "std", "count"])
    pooled = np.sqrt((rows["std"] ** 2).mean())
    errors = rows["std"].fillna(pooled) ** 2 / rows["count"]
    se = float(np.sqrt(errors.sum(skipna=False)) / len(rows))
    return Stat(float(rows["mean"].mean()), float(rows["std"].mean()), len(runs), se, len(rows))


def paired_stat(a: pd.Series, b: pd.Series) -> Stat | None:
    """Return the mean and standard error of a - b over the runs that both have."""
    return over_rows(a - b)
