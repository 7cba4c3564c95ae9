"""Linear programs that adapt the smoothing matrix S of AnsNMF by maximising determinants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
EMPTY = 1e-6  # smallest sum of part weights of a sample that is used


def unmix_codes(V: Matrix, slack: float) -> Matrix:
    """Return B with the largest determinant for which V Bᵀ >= -slack.

    Columns of B sum to one, and B⁻¹ >= 0. So the sums of part weights do not change, and the
    inverse map keeps non-negative values non-negative. The columns are optimised one by one, the
    last one first: with the others fixed, the constraints and the determinant are linear in a
    column.
    """
    Y = V[V.sum(axis=1) > EMPTY]
    B = np.eye(V.shape[1])
    if not len(Y):
        return B
    Y = Y / Y.sum(axis=1, keepdims=True)
    for c in (len(B) - 1, *range(len(B) - 1)):
        others = Y @ B.T - np.outer(Y[:, c], B[:, c])
        least = (others / np.maximum(Y[:, c], EMPTY)[:, None]).min(axis=0)
        B[:, c] = _largest_volume(B, c, bounds=[(-low - slack, None) for low in least])
    return B


def unmix_parts(U: Matrix, slack: float) -> Matrix:
    """Return B with the largest determinant for which U Bᵀ >= -slack.

    The columns of U have sum one. Rows of B sum to one, B⁻¹ >= 0, and the rows are optimised one by
    one.
    """
    C = np.eye(U.shape[1])
    for c in range(len(C)):
        C[:, c] = _largest_volume(C, c, A_ub=-U, b_ub=np.full(len(U), slack))
    return C.T


def _largest_volume(B: Matrix, c: int, **limits: Any) -> Matrix:
    """Replace column c of B to maximise det B within ``limits``, if this increases it.

    With column b instead, det B is multiplied by y_c, and B⁻¹ becomes P - (y - e_c) P_c / y_c,
    where P is the old inverse and y = P b. The condition B⁻¹ >= 0 is therefore y_i <= y_c min_j
    P_ij / P_cj.
    """
    from scipy.optimize import linprog

    P = np.linalg.inv(B)
    used = P[c] > 0
    least = (P[:, used] / P[c, used]).min(axis=1)
    keeps = np.delete(P - least[:, None] * P[c], c, axis=0)
    bounds = limits.pop("bounds", (None, None))
    A, b = limits.get("A_ub", np.empty((0, len(B)))), limits.get("b_ub", [])
    found = linprog(
        -P[c],
        A_ub=np.vstack([keeps, A]),
        b_ub=np.concatenate([np.zeros(len(keeps)), b]),
        A_eq=np.ones((1, len(B))),
        b_eq=[1.0],
        bounds=bounds,
    )
    ok = found.status == 0 and P[c] @ found.x > np.sqrt(np.finfo(float).eps)
    return found.x if ok else B[:, c]
