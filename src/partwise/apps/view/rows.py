"""Rows of a table as in its file, with columns that contribute to predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.io import Samples
from partwise.io.sheets import as_text

#: Maximum number of rows from which the linear approximation is computed; more would hardly change
#: it.
FITTED = 5000
#: Ridge penalty of the approximation, relative to the mean variance of a feature.
RIDGE = 1e-2
#: Maximum mean length of a text column that identifies rows; longer texts are content.
SHORT = 40


class Rows:
    """Columns of a table with their original values, identifying columns first.

    `fit` approximates the log-odds of the classes by a sum over columns. It is linear in their
    features, and quadratic in numbers, because a class may have intermediate values. A column
    contributes to a prediction as far as it moves the log-odds away from their mean.
    """

    def __init__(self, samples: Samples) -> None:
        self._table, self._X = samples.table, samples.X
        places = {str(name): 2 for name in samples.table.columns}  # columns that are features
        for name, kind, _ in samples.columns:
            if kind == "left out":
                places[name] = 1 if self._identifies(name) else 3
        if samples.recipe.get("id_column") in places:
            places[samples.recipe["id_column"]] = 0
        self.columns = sorted(places, key=places.__getitem__)
        self.identifying = [name for name in self.columns if places[name] < 2]
        specs = samples.recipe.get("columns", ())
        widths = [len(s["values"]) if s["as"] == "category" else 1 for s in specs]
        self.used = [str(spec["name"]) for spec in specs]
        owner = np.repeat(np.arange(len(specs)), widths)
        self._squared = np.flatnonzero(np.repeat(widths, widths) == 1)
        self._owner = np.append(owner, owner[self._squared])
        self._effects: NDArray[Any] | None = None

    def _identifies(self, name: str) -> bool:
        """Return whether a column identifies rows: its texts are short and distinct."""
        values = self._table[name].map(as_text)
        distinct = values.nunique() > 0.9 * len(values)
        return bool(distinct and values.str.len().mean() <= SHORT)

    @classmethod
    def of(cls, samples: Samples) -> Rows | None:
        """Return the `Rows` of samples that are a table, or None for other samples."""
        is_table = samples.table is not None and samples.recipe.get("reader") == "a table"
        return cls(samples) if is_table and not samples.is_sparse else None

    def values(self, i: int) -> list[tuple[str, str]]:
        """Return name and original value of each column of row i; missing ones are "–"."""
        row = self._table.iloc[i]
        return [
            (name, "–" if (gap := row[name]) is None or gap != gap else as_text(gap) or "–")
            for name in self.columns
        ]

    def fit(self, P: NDArray[Any]) -> Rows:
        """Fit the approximation to the class probabilities P of all rows."""
        some = np.random.default_rng(0).permutation(len(P))[:FITTED]
        log_odds = np.log(np.maximum(P[some], 1e-6))
        log_odds -= log_odds.mean(axis=1, keepdims=True)
        self._middle = self._X[some].mean(axis=0)
        Z = self._features(some)
        self._mean = Z.mean(axis=0)
        Z -= self._mean
        gram = Z.T @ Z
        gram[np.diag_indices_from(gram)] += max(RIDGE * np.trace(gram) / len(gram), 1e-12)
        self._effects = np.linalg.solve(gram, Z.T @ (log_odds - log_odds.mean(axis=0)))
        return self

    def _features(self, rows: Any) -> NDArray[Any]:
        """Return the features of rows, with the squares of numeric features."""
        Z = self._X[rows] - self._middle
        return np.hstack([Z, Z[:, self._squared] ** 2])

    def contributions(self, i: int, c: int) -> dict[str, float]:
        """Return by how much each column moves the log-odds of class c for a row."""
        if self._effects is None or len(self._effects) != len(self._owner):
            return {}
        moves = (self._features([i])[0] - self._mean) * self._effects[:, c]
        sums = np.bincount(self._owner, moves, minlength=len(self.used))
        return dict(zip(self.used, sums.tolist()))
