"""Computation of the part weights V for fixed parts, which is a convex problem."""

from __future__ import annotations

import numpy as np

from partwise.backends import DataMatrix, arrays
from partwise.backends.arrays import Array, to_numpy
from partwise.backends.sweeps import nearly_collinear, solve_rows, sweep_rows
from partwise.model.factor_model import FactorModel
from partwise.model.subproblems import Filled, Quadratic, Subproblem, kkt_residual
from partwise.solvers.steps import Step, bounded, hals


def start_codes(data: DataMatrix, U: Array) -> Array:
    """Return constant initial V, as scikit-learn's ``transform``; less for long parts.

    If there are more parts than features, the lengths of parts may differ by many orders of
    magnitude. If the part weight of a long part began far above the mean of X, the first step would
    be so large that all other steps would be negligible.
    """
    n, p = data.shape
    k = U.shape[1]
    mean = abs(float(data.filled().row_sums().sum())) / max(1, n * p)
    U = np.asarray(to_numpy(U), dtype=np.float64)
    scale = np.abs(U).max(axis=0, initial=0)  # squares of long parts may overflow
    length = scale * np.linalg.norm(U / np.where(scale > 0, scale, 1), axis=0)
    usual = np.sqrt(mean / k)
    row = usual * np.minimum(1, 10 * np.sqrt(p) * usual / np.where(length > 0, length, 1))
    return data.constant_rows(row.astype(data.dtype))


def solve_quadratic(sub: Quadratic, Z: Array, tol: float, scale: float) -> Array:
    """Run coordinate descent to convergence, if bounds of terms hold for a whole solve.

    ``scale`` is ‖X‖². A block of rows stops when a sweep changes V Uᵀ by less than its share of
    (tol/100)² ‖X‖². Nearly collinear parts need `solve_exactly`.
    """
    if isinstance(Z, np.ndarray) and Z.dtype == np.float64 and nearly_collinear(sub.G):
        return solve_exactly(sub, Z)
    Z = Z.copy() if isinstance(Z, np.ndarray) else Z
    C, r, _ = bounded(sub, sub.terms, Z)
    # Without a lower limit, sweeps would continue because of the rounding error of C.
    least = max(0.01 * tol, 1e-9, 8 * float(np.finfo(arrays.numpy_dtype(Z.dtype)).eps))
    enough = least**2 * scale * min(1.0, 64 / len(Z))
    return sweep_rows(Z, C, sub.G, sub.d, r, 2000, 1e-9, enough=enough)


def solve_exactly(sub: Quadratic, Z: Array) -> Array:
    """Return the exact minimum for numpy arrays.

    If parts are nearly collinear, as in concept factorization, sweeps become slow far from the
    minimum.
    """
    C, r, _ = bounded(sub, sub.terms, Z)
    return solve_rows(Z, C, sub.G, sub.d, r, 2000, 1e-9)


def solve_filled(sub: Filled, Z: Array, tol: float, scale: float) -> Array:
    """Solve for rows with different missing entries, and so with different Hessians."""
    C, r, _ = bounded(sub.seen_alone(), sub.terms, Z)
    enough = max(0.01 * tol, 1e-9) ** 2 * scale / len(Z)
    assert sub.gaps.solve is not None
    return sub.gaps.solve(Z=Z, C=C, G=sub.G, d=sub.d, r=r, stop=1e-9, enough=enough)


def solve_codes(
    model: FactorModel,
    Z: Array,
    U: Array,
    step: Step,
    *,
    tol: float,
    max_iter: int,
    sub: Subproblem | None = None,
) -> tuple[Array, int]:
    """Minimise over Z with U fixed; least squares is solved by coordinate descent.

    "mu" uses the papers' updates. ``sub`` is the problem at (Z, U), if it is already computed.
    """
    sub = model.subproblem("V", Z, U) if sub is None else sub
    if isinstance(sub, Quadratic) and not step.multiplicative:
        if not sub.local and all(term.exact for term in sub.terms):
            return solve_quadratic(sub, Z, tol, 2 * model.constant), 1
        if isinstance(sub, Filled) and sub.gaps.solve and all(term.exact for term in sub.terms):
            return solve_filled(sub, Z, tol, 2 * model.constant), 1
        step = hals
    n, most = 0, max_iter if tol > 0 else 1 + max_iter // 4  # with tol=0 there is no convergence
    for n in range(1, most + 1):
        Z = step(sub, Z)
        if sub.local:
            sub = model.subproblem("V", Z, U)
        if tol > 0 and n % 5 == 0 and kkt_residual(sub, Z) <= 0.1 * tol:
            break
    return Z, n
