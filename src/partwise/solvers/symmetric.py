"""Solver for ½‖S - VVᵀ‖², which has one factor and therefore its own problem and loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import AnyArray, Array, dot64
from partwise.backends.numpy.dense import product
from partwise.backends.numpy.sparse import multiply
from partwise.model.subproblems import Quadratic, kkt_residual, misfit
from partwise.solvers.loop import LOOK_BACK, Solution, shifted

#: Ratio of ½‖S - VVᵀ‖² to ½‖S‖² below which a fit is perfect up to rounding.
LEAST_MISFIT = 1e-12


class Symmetric:
    """The objective ½‖S - VVᵀ‖², and coordinate sweeps that never increase it.

    Parameters
    ----------
    S : ndarray or csr_array of shape (n, n)
        Symmetric non-negative matrix of similarities.
    """

    def __init__(self, S: Any) -> None:
        self.S = S
        values = S.data if sp.issparse(S) else S
        self.constant = 0.5 * float(np.sum(np.square(values, dtype=np.float64)))

    def product(self, V: Array) -> AnyArray:
        """Return S V."""
        return multiply(self.S, V) if sp.issparse(self.S) else product(self.S, V)

    def value(self, V: Array) -> float:
        """Return ½‖S - VVᵀ‖²."""
        G = V.T @ V
        return max(self.constant - dot64(self.product(V), V) + 0.5 * dot64(G, G), 0.0)

    def sweep(self, V: Array) -> float:
        """Minimise over each entry of V in turn, in place; return the decrease."""
        from partwise.backends.numpy.kernels import symmetric_sweep

        S, G = self.S, V.T @ V
        n = len(V)
        rows = (np.arange(0, n * n + 1, n), np.arange(n), np.ravel(S))
        args = (S.indptr, S.indices, S.data) if sp.issparse(S) else rows
        return float(symmetric_sweep.symmetric_rows(*args, V, G))

    def residual(self, V: Array, value: float, tol: float) -> float:
        """Return the relative KKT residual of V, see `kkt_residual`."""
        sub = Quadratic(self.product(V), V.T @ V)
        return kkt_residual(sub, V, misfit(value, self.constant, LEAST_MISFIT, tol))


def descend(
    model: Symmetric,
    V: Array,
    max_iter: int,
    tol: float,
    on_iteration: Callable[[int, Solution], bool] | None = None,
) -> Solution:
    """Run sweeps until the residual and the relative decrease in ten sweeps are small.

    Both must be at most ``tol``.
    """
    V = np.array(V, dtype=np.float64, order="C")
    value = model.value(V)
    found = Solution(V, V)
    while not found.status and found.n_iter < max_iter:
        value = max(value - model.sweep(V), 0.0)
        found.n_iter += 1
        found.history.append(value)
        if on_iteration is not None and on_iteration(found.n_iter, found):
            found.status = f"stopped by a callback after {found.n_iter} iterations"
        elif tol > 0 and found.n_iter % 5 == 0 and _ended(model, V, found.history, tol):
            found.converged = True
            found.status = (
                f"converged: relative KKT residual at most {tol:g} after {found.n_iter} iterations"
            )
    if not found.status:
        found.status = f"stopped at max_iter={max_iter}, above tol={tol:g}"
    # The history is the sum of exact decreases, and is shifted to end at the computed objective.
    exact = model.value(V)
    found.history = shifted(found.history, exact - value, exact)
    return found


def _ended(model: Symmetric, V: Array, history: list[float], tol: float) -> bool:
    if len(history) <= LOOK_BACK:
        return False
    scale = max(history[-1], max(LEAST_MISFIT, tol**2) * model.constant)
    still = history[-1 - LOOK_BACK] - history[-1] <= tol * scale
    return still and model.residual(V, history[-1], tol) <= tol
