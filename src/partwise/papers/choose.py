"""Choose a model's settings by held-out labels: what a user could do who has only the labels.

Of the labels that are shown, one of each class at a time is hidden; each candidate is fitted with
the rest, and scored on the hidden ones alone. The labels that the final score is taken on are
never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.papers.methods import Fitted, Task, fit_estimator
from partwise.papers.sampling import UNLABELLED
from partwise.papers.scoring import cluster


def folds(y: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Row numbers to hide: the j-th shown label of every class, for each j.

    Classes with one label keep it: a fold that leaves a class without any is another problem.
    """
    members = [np.flatnonzero(y == label) for label in np.unique(y[y != UNLABELLED])]
    most = max((len(rows) for rows in members), default=0)
    hidden = [
        np.array([rows[j] for rows in members if j < len(rows) and len(rows) > 1], dtype=np.int64)
        for j in range(most)
    ]
    return [rows for rows in hidden if len(rows)]


def predict(clusters: NDArray[np.int64], y: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Give every cluster the class that the labelled members' best matching gives it."""
    from scipy.optimize import linear_sum_assignment

    seen = y != UNLABELLED
    table = np.zeros((k, k))
    np.add.at(table, (clusters[seen], y[seen]), 1.0)
    rows, columns = linear_sum_assignment(-table)
    names = np.empty(k, dtype=np.int64)
    names[rows] = columns
    return names[clusters]


def fit_chosen(task: Task) -> Fitted:
    """Fit the candidate that names the held-out labels best; ties go to the first.

    After every fold the better half goes on, but for the ``finalists``, which go through all folds
    ``passes`` times, each time from another start: so that none wins by one lucky start. The time
    is that of the whole choice, not of the last fit.
    """
    params = task.params
    assert task.y is not None
    hidden = folds(task.y)
    tallies = left = [_Tally(candidate) for candidate in params["candidates"]]
    for number in range(params.get("passes", 1)):
        for rows in hidden:
            for tally in left:
                _try(replace(task, start=task.start + number), tally, rows)
            half = max(params.get("finalists", 1), (len(left) + 1) // 2)
            # sorted() is stable: a tie goes to the one that led before, at first to the first
            left = sorted(left, key=lambda t: -t.score)[:half]
    final = _fit(task, {**params.get("common", {}), **left[0].settings}, None)
    final.seconds += sum(t.seconds for t in tallies)
    final.chosen = {"settings": left[0].settings, "held_out_scores": [t.score for t in tallies]}
    return final


@dataclass
class _Tally:
    """A candidate, and how many held-out labels it named right."""

    settings: dict[str, Any]
    right: int = 0
    total: int = 0
    seconds: float = 0.0

    @property
    def score(self) -> float:
        return self.right / self.total if self.total else 0.0


def _try(task: Task, tally: _Tally, rows: NDArray[np.int64]) -> None:
    assert task.y is not None
    fitted = _fit(task, {**task.params.get("common", {}), **tally.settings}, rows)
    found = cluster(fitted, task, restarts=max(1, task.kmeans // 4))
    named = predict(found, _without(task.y, rows), task.k)
    tally.right += int(np.sum(named[rows] == task.y[rows]))
    tally.total += len(rows)
    tally.seconds += fitted.seconds


def _fit(task: Task, params: dict[str, Any], hide: NDArray[np.int64] | None) -> Fitted:
    assert task.y is not None
    y = task.y if hide is None else _without(task.y, hide)
    settings = dict(params)
    # A paper's setting comes with its start: its result is that of so many steps from there.
    method = replace(task.method, start=settings.pop("start", task.method.start))
    unit_codes = settings.pop("unit_codes", False)
    shown = replace(task, y=y, params=settings, method=method)
    fitted = fit_estimator(shown, task.params["estimator"], settings)
    if unit_codes:
        norms = np.linalg.norm(fitted.embedding, axis=1, keepdims=True)
        fitted.embedding = fitted.embedding / np.where(norms > 0, norms, 1.0)
    return fitted


def _without(y: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    y = y.copy()
    y[rows] = UNLABELLED
    return y
