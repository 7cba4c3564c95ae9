"""The passes of `MiniBatchNMF.fit` over batches: what is remembered, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from partwise.backends import as_data
from partwise.backends.batches import Batch, RowSource
from partwise.backends.numeric import Array
from partwise.estimators._incoming import checked
from partwise.solvers.loop import Solution
from partwise.solvers.online import SWEEPS, Online


def meet(
    online: Online, batch: Batch, codes: Array | None, among: int | None, sweeps: int,
    V: Array | None = None, at: Array | None = None, fresh: bool = False,
) -> float:  # fmt: skip
    """Learn from a batch; the sum of its objective with the parts as they were.

    Parameters
    ----------
    codes : (n,) array of int or None
        The class of each sample by ``batch.rows``, -1 where it has none.
    among : int or None
        How many samples there are; None: those met so far.
    sweeps : int
        Most sweeps of a solve from a constant.
    V, at : (n, k) and (n,) arrays or None
        Codes of all samples and when they were made (NaN: never), written to.
    fresh : bool
        Whether to solve from a constant in any case.
    """
    rows, X = batch
    online.grow_old(len(rows), among)
    kept = np.zeros(len(rows))
    if at is not None:
        kept = np.where(np.isnan(at[rows]), 0.0, online.kept(at[rows]))
        at[rows] = online.time
    if codes is not None and (labelled := codes[rows] >= 0).any():
        online.classes.add(X[labelled], codes[rows][labelled], 1 - kept[labelled])
        rows, X, kept = rows[~labelled], X[~labelled], kept[~labelled]
    if not len(rows):
        online.move()
        return 0.0
    old = V[rows] if V is not None and V[rows].any() else None
    warm = None if fresh else old
    model = online.model(as_data(X))
    found, value = online.visit(model, warm, SWEEPS if warm is not None else sweeps, old, kept)
    if V is not None:
        V[rows] = found
    return value


class Passes:
    """All passes over X, with the codes of each sample and when they were made.

    Attributes
    ----------
    V : (n, k) array
    steps, n_iter : int
        Batches met, and passes begun.
    history : list of float
        The sum of the objectives of each pass.
    converged : bool
    """

    def __init__(
        self, estimator: Any, source: RowSource, online: Online, codes: Array | None, rng: Any
    ) -> None:
        self.estimator, self.source, self.online, self.codes = estimator, source, online, codes
        self.rng = rng if estimator.shuffle else None
        n, k = source.shape[0], online.U.shape[1]
        self.V, self.at = np.zeros((n, k), source.dtype), np.full(n, np.nan)
        self.steps = self.n_iter = self.idle = self.still = 0
        self.per_pass = -(-n // estimator.batch_size)
        self.history: list[float] = []
        self.smooth: float | None = None
        self.lowest = np.inf
        self.converged = False

    def run(self, report: Callable[[int, Solution], bool] | None) -> str:
        """Passes until one of the rules of `fit` ends them; says which."""
        settings, began = self.estimator, time.perf_counter()
        for number in range(1, settings.max_iter + 1):
            self.n_iter, total = number, 0.0
            self.history.append(0.0)
            batches = self.source.batches(settings.batch_size, self.rng)
            for batch in checked(settings, batches) if number == 1 else batches:
                before = self.online.U
                value = meet(
                    self.online, batch, self.codes, self.source.shape[0],
                    settings.fresh_restarts_max_iter, self.V, self.at, settings.fresh_restarts,
                )  # fmt: skip
                self.steps += 1
                total += value
                why = self._enough(before, value / len(batch.rows), len(batch.rows))
                if why:
                    self.history[-1] = total
                    self.converged = True
                    return why
            self.history[-1] = total
            if settings.verbose and number % 10:
                seconds = time.perf_counter() - began
                print(f"pass {number:4d}, {seconds:.3f} s, objective as met {total:.6g}")
            if report is not None and report(number, self._solution()):
                return "Stopped by a callback."
        return f"Ended after max_iter={settings.max_iter} passes."

    def _solution(self) -> Solution:
        return Solution(self.V, self.online.U, self.history, self.n_iter)

    def _enough(self, before: Array, cost: float, size: int) -> str:
        """Why to stop after this batch: scikit-learn's two rules, over a whole pass at least."""
        if self.steps == 1:
            return ""
        share = min(1.0, size / (self.source.shape[0] + 1))
        self.smooth = cost if self.smooth is None else (1 - share) * self.smooth + share * cost
        U, settings = self.online.U, self.estimator
        still = np.linalg.norm(U - before) <= settings.tol * np.linalg.norm(U)
        self.still = self.still + 1 if still else 0
        if settings.tol > 0 and self.still >= self.per_pass:
            return f"No batch of a pass changed the parts by more than tol={settings.tol:g}."
        self.idle = 0 if self.smooth < self.lowest else self.idle + 1
        self.lowest = min(self.lowest, self.smooth)
        most = max(settings.max_no_improvement or 0, self.per_pass)
        idle = settings.max_no_improvement is not None and self.idle >= most
        return f"No improvement in {most} batches." if idle else ""
